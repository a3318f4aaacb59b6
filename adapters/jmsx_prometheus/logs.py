"""Metrics about an event log itself: how much it has written, dropped and not yet written."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from jmsx_prometheus.series import SeriesTable

if TYPE_CHECKING:
    from collections.abc import Mapping


class LogNumbers(Protocol):
    """The numbers of an event log, as `jmsx_eventlog.EventLog` has them."""

    @property
    def records(self) -> int:
        """Lines written."""

    @property
    def errors(self) -> int:
        """How often a write to the log's files failed."""

    @property
    def queued(self) -> int:
        """Events not yet written."""

    @property
    def unsynced_seconds(self) -> float:
        """How many seconds ago the oldest line was written that is not yet forced to the disk."""

    def dropped_by_kind(self) -> Mapping[str, int]:
        """Events that are missing from the log."""


def note_log(table: SeriesTable, log: LogNumbers) -> None:
    """Put the numbers of `log`, as they are now, into `table`."""
    table.tally("jmsx_event_log_lines_total").value = log.records
    table.tally("jmsx_event_log_errors_total").value = log.errors
    table.tally("jmsx_event_log_unwritten_events").value = log.queued
    table.tally("jmsx_event_log_unsynced_seconds").value = log.unsynced_seconds
    # Series of the audit's evidence start at 0: `increase()` does not see the value with which a series begins.
    for kind, dropped in ({"delivery": 0, "send": 0} | dict(log.dropped_by_kind())).items():
        table.tally("jmsx_event_log_dropped_events_total", line=kind).value = dropped
