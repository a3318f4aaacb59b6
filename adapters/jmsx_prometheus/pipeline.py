"""The outcome of a report as metrics, in a file that node_exporter's textfile collector reads."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from prometheus_client import CollectorRegistry, Gauge, write_to_textfile

from jmsx_prometheus.catalogue import PIPELINE

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

#: The verdicts of a report.
VERDICTS: Final = ("balanced", "suspect", "unverifiable")

#: Numbers of the summary that are exposed for each destination, with their metrics.
_BY_DESTINATION: Final = {
    "unaccounted": "jmsx_report_unaccounted_messages",
    "unread": "jmsx_report_unread_messages",
    "duplicates": "jmsx_report_duplicate_messages",
}


def registry_of(
    summary: Mapping[str, Any], rows: Mapping[str, int], *, now: float, horizon: float | None
) -> CollectorRegistry:
    """
    Make the metrics of one report.

    Args:
        summary: as in `summary.json`: `verdict`, and for each of `destinations` the numbers of the audit.
        rows: how many rows each stage had, such as `read`, `quarantined`, and each table's.
        now: when the report was made, seconds since the epoch.
        horizon: up to when all writers are complete, seconds since the epoch; None: nowhere.

    """
    registry = CollectorRegistry()
    gauges = {
        row.name: Gauge(row.name, row.help, row.labels, registry=registry) for row in PIPELINE
    }
    gauges["jmsx_report_timestamp_seconds"].set(now)
    if horizon is not None:
        gauges["jmsx_report_horizon_timestamp_seconds"].set(horizon)
    for verdict in VERDICTS:
        gauges["jmsx_report_verdict"].labels(verdict).set(verdict == summary["verdict"])
    for stage, count in rows.items():
        gauges["jmsx_report_rows"].labels(stage).set(count)
    for destination, numbers in summary.get("destinations", {}).items():
        for number, name in _BY_DESTINATION.items():
            if numbers.get(number) is not None:  # else it is unknown
                gauges[name].labels(destination).set(numbers[number])
    return registry


def write_metrics(
    path: Path,
    summary: Mapping[str, Any],
    rows: Mapping[str, int],
    *,
    now: float,
    horizon: float | None,
) -> None:
    """Write the metrics of one report to `path`, whole or not at all; arguments as of `registry_of`. Raises OSError."""
    write_to_textfile(str(path), registry_of(summary, rows, now=now, horizon=horizon))
