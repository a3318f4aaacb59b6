"""
The event log turned into tables: each segment is read into rows that add up, and these are merged.

This package does not depend on Spark; any scheduler may call its functions. A name is imported when it is first used:
a command must set its process up before Polars is imported (commands.py).
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
