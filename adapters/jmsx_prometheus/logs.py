"""What an event log tells of itself, beside what it writes down."""

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
        """How long the oldest line that is not forced to the disk has been written."""

    def dropped_by_kind(self) -> Mapping[str, int]:
        """Events that are missing from the log."""


def note_log(table: SeriesTable, log: LogNumbers) -> None:
    """Put the numbers of `log`, as they are now, into `table`."""
    table.tally("jmsx_event_log_lines_total").value = log.records
    table.tally("jmsx_event_log_errors_total").value = log.errors
    table.tally("jmsx_event_log_unwritten_events").value = log.queued
    table.tally("jmsx_event_log_unsynced_seconds").value = log.unsynced_seconds
    # The evidence is there at 0 before any is missing: `increase()` does not see a series that is born at 1.
    for kind, dropped in ({"delivery": 0, "send": 0} | dict(log.dropped_by_kind())).items():
        table.tally("jmsx_event_log_dropped_events_total", line=kind).value = dropped
