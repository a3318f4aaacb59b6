"""
The event log turned into tables: read segment by segment into additive rows, which are merged.

Knows no Spark; any scheduler may call the same functions.
"""

from __future__ import annotations

from jmsx.plugins import needing as _needing

with _needing("jmsx_report"):
    from jmsx_report.report import ReportResult, report, run

__all__ = ["ReportResult", "report", "run"]
