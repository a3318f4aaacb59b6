"""
Reports by Spark: its workers do what `jmsx_report` does, on any `--master`, and makes the same tables to the last bit.

On one machine the local engine is faster; Spark is for logs that must be read by many machines.
"""

from __future__ import annotations

from jmsx.plugins import needing as _needing

with _needing("jmsx_spark"):
    from jmsx_report import ReportResult
    from jmsx_spark.engine import on, report
    from jmsx_spark.source import EventLogSource
    from jmsx_spark.streaming import stream

__all__ = ["EventLogSource", "ReportResult", "on", "report", "stream"]
