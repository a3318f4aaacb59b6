"""`EventLog`: the observer that an application adds."""

from __future__ import annotations

import os
import time
import weakref
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, Literal

from jmsx.core.durations import Duration, seconds
from jmsx.core.events import Event, Source
from jmsx.drivers.locks import mutex
from jmsx.errors import ConfigurationError
from jmsx.stores.files import make_folder
from jmsx_eventlog.intake import Intake
from jmsx_eventlog.segment import Recovered, recover
from jmsx_eventlog.writer import Settings, Writer, host_name, writer_name

if TYPE_CHECKING:
    from collections.abc import Callable


_MEBIBYTE: Final = 1024 * 1024

#: Seconds that a line may stay unsynced, by the option `sync`; None: for ever.
_SYNC: Final = {"always": 0.0, "interval": 1.0, "none": None}


class EventLog:
    """
    Writes each event as one line below `directory`; pass it to an `App` or connection as an observer.

    Lines are written by one thread; `observe` only queues. Every line of a process has the next
    `seq`, and events that had to be dropped are counted in a `log.gap` line, so a reader can prove
    that it has everything, or say what is missing. Errors of the disk, also a full one, are
    counted and the write is retried; they are never raised. After a fork the child goes on with a
    new writer. No message body is ever written, and free text (error messages) only `with_text`.
    Options `…_seconds` are durations: numbers of seconds, a timedelta, or a text such as "1min".

    Args:
        directory: created if missing; segments are written to `date=…/hour=…` below it (UTC).
        service: the application's name, in `log.open`.
        segment_bytes: a segment is closed before it becomes larger than this.
        segment_seconds: a segment is also closed when it is this old, so that readers see it.
        patience_seconds: how long `observe` blocks its caller if 1,000 events are not yet written,
            or one is not for 10 ms. So a writer that is only slower than the application loses no
            line. A SIGKILL loses at most 1,000 events, and of each thread only those of the 10 ms
            before its last one: all others have been passed to the operating system by write(2).
            If nothing could be written for so long, `observe` no longer blocks until something can:
            deliveries, sends, dead letters and transactions are then kept in memory, and all other
            events are dropped and counted.
        queue_events: how many events are then kept in memory; more are dropped and counted.
        sync: when lines are forced to the disk: "always" (each write), "interval" (each second) or
            "none". If only the process crashes, no written line is lost with any of these.
        close_seconds: how long close() tries to write the remaining events.
        wall, monotonic: the clocks, in seconds; `monotonic` is the one of `event.at`.

    Raises:
        ConfigurationError: the directory cannot be made or written to, or an option makes no sense.

    """

    keeps_counts: Final = True  #: an `App` then also logs the broker's own counts

    def __init__(
        self,
        directory: Path | str,
        *,
        service: str,
        segment_bytes: int = 64 * _MEBIBYTE,
        segment_seconds: Duration = 60.0,
        queue_events: int = 65_536,
        patience_seconds: Duration = 1.0,
        sync: Literal["always", "interval", "none"] = "interval",
        close_seconds: Duration = 5.0,
        with_text: bool = False,
        wall: Callable[[], float] = time.time,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        if sync not in _SYNC:
            raise ConfigurationError(f"sync must be one of {', '.join(_SYNC)}, not {sync!r}")
        self.directory = _writable(Path(directory))
        self._settings = Settings(
            directory=self.directory,
            service=service,
            segment_bytes=segment_bytes,
            segment_seconds=seconds("segment_seconds", segment_seconds),
            sync_seconds=_SYNC[sync],
            close_seconds=seconds("close_seconds", close_seconds),
            with_text=with_text,
            wall=wall,
            monotonic=monotonic,
        )
        self._limits = (queue_events, seconds("patience_seconds", patience_seconds))
        self._starting = mutex()
        self._closed = False
        self._intake = Intake(*self._limits)
        self._writer: Writer | None = Writer(self._settings, self._intake)
        _logs().add(self)

    @property
    def writer(self) -> str | None:
        """The name of this process in the log: host, process id and 8 hex digits."""
        return self._writer.name if self._writer else None

    @property
    def records(self) -> int:
        """Lines written by this process."""
        return self._writer.records if self._writer else 0

    @property
    def dropped(self) -> int:
        """Events that are missing from the log of this process."""
        return self._intake.dropped

    def dropped_by_kind(self) -> dict[str, int]:
        """Return how many events of each kind are missing from the log."""
        return self._intake.dropped_by_kind()

    @property
    def errors(self) -> int:
        """How often a write to the log's files failed."""
        return self._writer.errors if self._writer else 0

    @property
    def queued(self) -> int:
        """Events that are not yet written."""
        return len(self._intake)

    @property
    def unsynced_seconds(self) -> float:
        """How long ago the oldest line was written that is not yet forced to the disk; 0: there is none."""
        return self._writer.unsynced_seconds if self._writer else 0.0

    def observe(self, event: Event, source: Source) -> None:
        """Queue one event; returns at once, or holds its caller back as long as `patience_seconds` allow."""
        if self._writer is None:
            self._start()
        self._intake.put(event, source)

    def close(self) -> None:
        """Write the queued events and a `log.close` line, and seal the segment; later events count as dropped."""
        with self._starting:
            self._closed = True
            if self._writer is not None:
                self._writer.stop()

    def _start(self) -> None:
        """Start the writer of a forked child, at its first event."""
        with self._starting:
            if self._writer is None and not self._closed:
                self._writer = Writer(self._settings, self._intake)

    def _after_fork_in_child(self) -> None:
        if self._writer is not None and not self._closed:
            self._writer.forget()
            self._writer = None
            self._intake = Intake(*self._limits)
        self._starting = mutex()


def recover_orphans(directory: Path | str, *, any_host: bool = False) -> list[Recovered]:
    """
    Repair the segments that dead writers of this host left open; returns what was done.

    An `EventLog` does this at its start; call it if none will be started again. `any_host` repairs
    those of all hosts: only for a shared disk whose locks work across hosts. Raises OSError.
    """
    host = None if any_host else host_name()
    return recover(Path(directory), host=host, by=writer_name(), wall=time.time())


def _writable(directory: Path) -> Path:
    try:
        make_folder(directory)
    except OSError as error:
        raise ConfigurationError(f"no event log in {directory}: {error.strerror}") from error
    if not os.access(directory, os.W_OK | os.X_OK):
        raise ConfigurationError(f"no event log in {directory}: this user may not write there")
    return directory


@cache
def _logs() -> weakref.WeakSet[EventLog]:
    """Return the set of this process's logs, which a hook tells of each fork in the child."""
    logs: weakref.WeakSet[EventLog] = weakref.WeakSet()

    def tell_all() -> None:
        for log in logs:
            log._after_fork_in_child()  # noqa: SLF001 - the hook is part of the class

    os.register_at_fork(after_in_child=tell_all)
    return logs
