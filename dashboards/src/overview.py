"""The overview dashboard in Grafana's words, for grafana-foundation-sdk."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final, TypeAlias

from dashboards.src.alerts import ALERTS
from dashboards.src.model import DASHBOARD, Panel, Query, Row, View
from dashboards.src.rows_failure import ACKNOWLEDGEMENT, CONNECTION, FAILURE
from dashboards.src.rows_health import HEALTH, LATENCY, TRAFFIC
from dashboards.src.sdk import (
    DashboardCursorSync,
    DataSourceRef,
    GraphThresholdsStyleMode,
    JSONEncoder,
    LegendDisplayMode,
    LegendPlacement,
    PromQueryFormat,
    StackingMode,
    Threshold,
    ThresholdsMode,
    VariableRefresh,
    VariableSort,
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
from dashboards.src.shapes import B, D, J

if TYPE_CHECKING:
    from collections.abc import Iterator

ROWS: Final[tuple[Row, ...]] = (HEALTH, TRAFFIC, LATENCY, FAILURE, ACKNOWLEDGEMENT, CONNECTION)

#: Each variable with the query of its values, in the order in which one narrows the next.
VARIABLES: Final[dict[str, str]] = {
    "job": "label_values(jmsx_build_info, job)",
    "instance": 'label_values(jmsx_build_info{job=~"$job"}, instance)',
    "destination": f"label_values(jmsx_processed_messages_total{{{J}}}, destination)",
    "broker": f"label_values(jmsx_disconnects_total{{{J}}}, broker)",
}

#: What is marked on all panels: its name, query, label to show and colour.
ANNOTATIONS: Final = (
    (
        "Alerts",
        'ALERTS{alertname=~"Jmsx.*",alertstate="firing",job=~"$job"}',
        "{{alertname}}",
        "red",
    ),
    (
        "Connections lost",
        f'increase(jmsx_disconnects_total{{{B},reason!="closed"}}[$__rate_interval]) > 0',
        "{{instance}} {{reason}}",
        "orange",
    ),
    (
        "Dead letters",
        f"increase(jmsx_dead_lettered_messages_total{{{D}}}[$__rate_interval]) > 0",
        "{{destination}} {{reason}}",
        "purple",
    ),
)

_PanelBuilder: TypeAlias = (
    stat.Panel
    | timeseries.Panel
    | heatmap.Panel
    | bargauge.Panel
    | table.Panel
    | statetimeline.Panel
)

_DATASOURCE: Final = DataSourceRef(type_val="prometheus", uid="$datasource")
_BUILDERS: Final[dict[View, type[_PanelBuilder]]] = {
    View.STAT: stat.Panel,
    View.TIMESERIES: timeseries.Panel,
    View.HEATMAP: heatmap.Panel,
    View.BARGAUGE: bargauge.Panel,
    View.TABLE: table.Panel,
    View.STATE_TIMELINE: statetimeline.Panel,
}
_FORMATS: Final = {
    View.HEATMAP: PromQueryFormat.HEATMAP,  # Grafana turns cumulated buckets into single ones
    View.BARGAUGE: PromQueryFormat.HEATMAP,
    View.TABLE: PromQueryFormat.TABLE,
}
_INSTANT: Final = frozenset({View.STAT, View.BARGAUGE, View.TABLE})


def panels() -> Iterator[Panel]:
    """List all panels, from the top."""
    for row in ROWS:
        yield from row.panels


def dashboard_json() -> str:
    """Write the dashboard as Grafana imports it."""
    board = (
        dashboard.Dashboard("jmsx overview")
        .uid(DASHBOARD)
        .description("What jmsx does in all processes. Written by dashboards/src/generate.py.")
        .tags(["jmsx", "jms", "activemq"])
        .readonly()
        .refresh("30s")
        .time("now-3h", "now")
        .tooltip(DashboardCursorSync.CROSSHAIR)
    )
    board = board.with_variable(dashboard.DatasourceVariable("datasource").type("prometheus"))
    for name, query in VARIABLES.items():
        board = board.with_variable(_variable(name, query))
    for name, expr, title, color in ANNOTATIONS:
        board = board.annotation(_annotation(name, expr, title, color))
    number = 0
    for row in ROWS:
        board = board.with_row(dashboard.Row(row.title))
        for panel in row.panels:
            number += 1
            board = board.with_panel(_panel(panel, number))
    return json.dumps(board.build(), cls=JSONEncoder, indent=2, sort_keys=True) + "\n"


def _variable(name: str, query: str) -> dashboard.QueryVariable:
    return (
        dashboard.QueryVariable(name)
        .query(query)
        .datasource(_DATASOURCE)
        .multi(multi=True)
        .include_all(include_all=True)
        .all_value(".+")
        .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
        .sort(VariableSort.ALPHABETICAL_ASC)
    )


def _annotation(name: str, expr: str, title: str, color: str) -> dashboard.AnnotationQuery:
    return (
        dashboard.AnnotationQuery()
        .name(name)
        .datasource(_DATASOURCE)
        .enable(enable=True)
        .icon_color(color)
        .expr(expr)
        .title_format(title)
    )


def _panel(panel: Panel, number: int) -> _PanelBuilder:
    builder = (
        _BUILDERS[panel.view]()
        .id(number)
        .title(panel.title)
        .description(described(panel))
        .datasource(_DATASOURCE)
        .unit(panel.unit)
        .height(panel.height)
        .span(panel.width)
        .thresholds(_thresholds(panel))
    )
    for index, query in enumerate(panel.queries):
        builder = builder.with_target(_target(panel, query, "ABCDEFGH"[index]))
    if isinstance(builder, timeseries.Panel):
        builder = _drawn(builder, panel)
    return builder


def described(panel: Panel) -> str:
    """Say what the panel shows, and which alerts watch it."""
    watching = ", ".join(alert.name for alert in ALERTS if alert.panel == panel.title)
    return f"{panel.description} Watched by {watching}." if watching else panel.description


def _thresholds(panel: Panel) -> dashboard.ThresholdsConfig:
    steps = [
        Threshold(value=None, color=panel.base_color),
        *(Threshold(value=value, color=color) for value, color in panel.thresholds),
    ]
    return dashboard.ThresholdsConfig().mode(ThresholdsMode.ABSOLUTE).steps(steps)


def _target(panel: Panel, query: Query, reference: str) -> prometheus.Dataquery:
    target = prometheus.Dataquery().expr(query.expr).ref_id(reference).legend_format(query.legend)
    target = target.format(_FORMATS.get(panel.view, PromQueryFormat.TIME_SERIES))
    return target.instant() if panel.view in _INSTANT else target.range()


def _drawn(builder: timeseries.Panel, panel: Panel) -> timeseries.Panel:
    legend = common.VizLegendOptions().display_mode(LegendDisplayMode.TABLE)
    legend = legend.show_legend(show_legend=True).placement(LegendPlacement.BOTTOM)
    builder = builder.legend(legend.calcs(["lastNotNull", "max"]))
    builder = builder.fill_opacity(10).axis_soft_min(0)
    if panel.thresholds:
        style = common.GraphThresholdsStyleConfig().mode(GraphThresholdsStyleMode.DASHED)
        builder = builder.thresholds_style(style)
    if panel.stacked:
        builder = builder.stacking(common.StackingConfig().mode(StackingMode.NORMAL))
    return builder
