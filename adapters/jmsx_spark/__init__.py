"""The event log turned into answers: gold tables as Parquet, and one HTML page that needs nothing."""

from __future__ import annotations

from jmsx.plugins import needing as _needing

with _needing("jmsx_spark"):
    from jmsx_spark.report import ReportResult, report

__all__ = ["ReportResult", "report"]
