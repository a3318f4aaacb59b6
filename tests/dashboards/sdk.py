"""
What we use of grafana-foundation-sdk, imported without its warning.

It warns on import that a newer schema exists. Written is the classic one, which every Grafana from 10 on imports.
"""

from __future__ import annotations

import warnings

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)
    from grafana_foundation_sdk.builders import (
        bargauge,
        common,
        dashboard,
        heatmap,
        prometheus,
        stat,
        statetimeline,
        table,
        timeseries,
    )
    from grafana_foundation_sdk.cog.encoder import JSONEncoder
    from grafana_foundation_sdk.models.common import (
        DataSourceRef,
        GraphThresholdsStyleMode,
        LegendDisplayMode,
        LegendPlacement,
        StackingMode,
    )
    from grafana_foundation_sdk.models.dashboard import (
        Dashboard,
        DashboardCursorSync,
        Threshold,
        ThresholdsMode,
        VariableRefresh,
        VariableSort,
    )
    from grafana_foundation_sdk.models.prometheus import PromQueryFormat

__all__ = [
    "Dashboard",
    "DashboardCursorSync",
    "DataSourceRef",
    "GraphThresholdsStyleMode",
    "JSONEncoder",
    "LegendDisplayMode",
    "LegendPlacement",
    "PromQueryFormat",
    "StackingMode",
    "Threshold",
    "ThresholdsMode",
    "VariableRefresh",
    "VariableSort",
    "bargauge",
    "common",
    "dashboard",
    "heatmap",
    "prometheus",
    "stat",
    "statetimeline",
    "table",
    "timeseries",
]
