"""
Reports by Spark: its workers do what `jmsx_report` does, with the same tables to the last bit, on any `--master`.

On one machine the local engine is the faster one; Spark is for logs that many machines read.
"""

from __future__ import annotations

from jmsx.plugins import needing as _needing

with _needing("jmsx_spark"):
    from jmsx_report import ReportResult
    from jmsx_spark.engine import on, report
    from jmsx_spark.source import EventLogSource
    from jmsx_spark.streaming import stream

__all__ = ["EventLogSource", "ReportResult", "on", "report", "stream"]
