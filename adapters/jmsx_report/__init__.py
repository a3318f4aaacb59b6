"""
The event log turned into tables: read segment by segment into additive rows, which are merged.

Knows no Spark; any scheduler may call the same functions. A name is loaded when it is first asked for: a command sets
its process up before Polars is imported (commands.py).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.plugins import needing as _needing
from jmsx.plugins import on_demand as _on_demand

if TYPE_CHECKING:
    from jmsx_report.reports import ReportResult, report, run

__all__ = ["ReportResult", "report", "run"]

_HOMES: Final = dict.fromkeys(__all__, "jmsx_report.reports")

if not TYPE_CHECKING:
    __getattr__, __dir__ = _on_demand(__name__, _HOMES, lambda: _needing("jmsx_report"))
