"""The writer thread of one process: numbers lines, begins new segments, and survives a full disk."""

from __future__ import annotations

import os
import re
import socket
import threading
import uuid
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from functools import cache, partial
from importlib.metadata import PackageNotFoundError, version
from time import monotonic as real_monotonic
from time import sleep
from typing import TYPE_CHECKING, Final

from jmsx.core.events import Event, Source
from jmsx.log import logger
from jmsx_eventlog.encode import UNENCODABLE, Encoder, kind_of
from jmsx_eventlog.forcing import Forcing
from jmsx_eventlog.intake import IN_MEMORY, Intake
from jmsx_eventlog.segment import Segment, recover

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_log = logger("jmsx.eventlog")

_BATCH: Final = IN_MEMORY // 2  #: events in one write(); others may come in meanwhile
_IDLE: Final = 0.2  #: seconds between looks at the age of the segment when nothing happens
_RETRY: Final = 0.2  #: seconds between two tries to write what could not be written
_GRACE: Final = 1.0  #: seconds for the thread, on a busy machine, to count what it gave up


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """How one event log is written; times in seconds, sizes in bytes."""

    directory: Path
    service: str
    segment_bytes: int
    segment_seconds: float
    sync_seconds: float | None  #: at most this long unsynced; 0: each write; None: never
    close_seconds: float  #: how long close() tries to write the rest
    with_text: bool
    wall: Callable[[], float]
    monotonic: Callable[[], float]


def host_name() -> str:
    """Return the host's name in the form used in writers' names."""
    return re.sub(r"[^A-Za-z0-9.]+", "_", socket.gethostname()) or "host"


def writer_name() -> str:
    """Make a name that no other writer has had: host, process id and 8 random hex digits."""
    return f"{host_name()}-{os.getpid()}-{uuid.uuid4().hex[:8]}"


@cache
def _own_version() -> str:
    """Return jmsx's version; called once, and not in the writer's thread, because it imports modules."""
    try:
        return version("jmsx")
    except PackageNotFoundError:  # run from a source tree that is not installed
        return "unknown"


class Writer:
    """One writer thread; `stop()` ends it."""

    def __init__(self, settings: Settings, intake: Intake) -> None:
        self.name = writer_name()
        self.records = 0  #: lines written
        self.errors = 0  #: OSErrors met
        # The errno of each OSError that was logged, until the disk takes something again
        self._told = set[int | None]()
        self._settings = settings
        self._intake = intake
        self._encoder = Encoder(self.name, with_text=settings.with_text)
        self._segment: Segment | None = None
        self._opened_at = 0.0  # of the segment; seconds, monotonic
        self._synced_at = 0.0  # seconds, monotonic
        self._dirty_since: float | None = None  # seconds, monotonic; None: nothing is to be forced
        self._forcing = Forcing()
        self._forced_since: deque[float] = deque()  # as `_dirty_since`, of what is being forced
        self._seq = 0  # of the next line
        self._unencoded: list[tuple[Event, Source]] = []  # taken in; no seq is given
        self._unwritten: list[bytes] = []  # encoded lines, one or more together, their seq given
        self._encoded = 0  # lines in it
        self._version = _own_version()
        self._thread = threading.Thread(target=self._run, name="jmsx-eventlog", daemon=True)
        self._thread.start()

    @property
    def unsynced_seconds(self) -> float:
        """How long ago the oldest line was written that is not yet forced to the disk; 0: there is none."""
        dirty = self._dirty_since
        since = [*self._forced_since, *([] if dirty is None else [dirty])]
        return max(self._settings.monotonic() - since[0], 0.0) if since else 0.0

    def stop(self) -> None:
        """Write what is left, seal the segment, end the thread; gives up after `close_seconds`."""
        self._intake.close()
        self._thread.join(self._settings.close_seconds + _RETRY + _GRACE)

    def forget(self) -> None:
        """In the child of a fork, leave the segment to the parent: the writer thread runs only there."""
        if self._segment is not None:
            self._segment.abandon()

    def _run(self) -> None:
        if self._settings.sync_seconds:  # else each write waits for the disk, or none does
            self._forcing.start()
        try:
            self._write_until_closed()
        except Exception as error:  # noqa: BLE001 - whatever it is: what is not written must be told
            self.errors += 1
            _log.error(
                "event log has ended by a fault: nothing more is written",
                writer=self.name,
                exc_info=error,
            )
            self._give_up()

    def _write_until_closed(self) -> None:
        self._recover_orphans()
        self._add_own(
            "log.open",
            service=self._settings.service,
            host=host_name(),
            pid=os.getpid(),
            version=self._version,
        )
        while not self._intake.closing.is_set():
            self._write_all()
            self._intake.wait(_IDLE)
            self._add(self._intake.take(_BATCH))
            self._roll_if_old()
        self._finish()

    def _finish(self) -> None:
        """Write the remaining events and `log.close`, but try no longer than `close_seconds`."""
        deadline = real_monotonic() + self._settings.close_seconds
        while events := self._intake.take(_BATCH):
            self._add(events)
        self._add_dropped()
        self._add_own("log.close", dropped=self._intake.dropped)
        while not self._written():
            if real_monotonic() > deadline:
                _log.error("event log is incomplete", writer=self.name, lines=self._encoded)
                self._give_up()
                return
            sleep(_RETRY)
        self._seal()
        self._forcing.end()
        self._drop_late()

    def _give_up(self) -> None:
        """Count all unwritten events, and later ones, as dropped; leave the segment to be recovered."""
        self._intake.close()
        self._forcing.end()
        self.forget()
        self._intake.drop("log.close", "unwritable", self._encoded)
        for event, _ in self._unencoded:
            self._intake.drop(kind_of(event), "unwritable")
        self._drop_late()
        self._intake.written()

    def _drop_late(self) -> None:
        """Count as dropped the events that came while the log was closing."""
        for event, _ in self._intake.take(len(self._intake)):
            self._intake.drop(kind_of(event), "overflow")

    def _recover_orphans(self) -> None:
        settings = self._settings
        with suppress(OSError):
            for orphan in recover(
                settings.directory, host=host_name(), by=self.name, wall=settings.wall()
            ):
                _log.warning(
                    "segment of a dead writer recovered",
                    path=str(orphan.path),
                    lost_bytes=orphan.lost_bytes,
                )

    def _add(self, events: list[tuple[Event, Source]]) -> None:
        """Encode `events`; each that cannot be written as JSON becomes a gap."""
        self._unencoded = events
        offset = self._settings.wall() - self._settings.monotonic()
        if events:
            try:
                lines = self._encoder.events(events, self._seq, offset)
            except UNENCODABLE:
                self._add_each(offset)
            else:
                self._add_lines(lines, len(events))
        self._unencoded = []
        self._add_dropped()

    def _add_each(self, offset: float) -> None:
        while self._unencoded:
            event, source = self._unencoded[0]
            try:
                line = self._encoder.event(event, source, self._seq, offset)
            except UNENCODABLE:
                self._intake.drop(kind_of(event), "unencodable")
            else:
                self._add_lines(line, 1)
            del self._unencoded[0]

    def _add_lines(self, lines: bytes, count: int) -> None:
        self._unwritten.append(lines)
        self._encoded += count
        self._seq += count

    def _add_dropped(self) -> None:
        for (kind, reason), count in sorted(self._intake.take_dropped().items()):
            self._add_own("log.gap", reason=reason, dropped=count, dropped_kind=kind)

    def _add_own(self, kind: str, **members: object) -> None:
        wall, monotonic = self._settings.wall(), self._settings.monotonic()
        self._add_lines(self._encoder.own(kind, self._seq, wall, monotonic, **members), 1)

    def _write_all(self) -> None:
        """Retry to write the encoded lines until that succeeds, or the log is to close."""
        failed = False
        while not self._written() and not self._intake.closing.wait(_RETRY):
            failed = True
        if failed and not self._unwritten:
            self._told.clear()
            _log.warning(
                "event log can be written again",
                directory=str(self._settings.directory),
                writer=self.name,
            )

    def _written(self) -> bool:
        """Try once to write; return whether nothing is left to be written."""
        if self._unwritten:
            try:
                while self._unwritten:
                    self._append_some()
            except OSError as error:
                self._note(error)
                self._sync_if_due()  # what was written before
                return False
            self._sync_if_due()
        self._intake.written()
        return True

    def _append_some(self) -> None:
        """Append all lines, or as many as fit into the segment."""
        segment = self._segment
        room = self._settings.segment_bytes - (segment.size if segment else 0)
        lines = b"".join(self._unwritten)
        if len(lines) > room:
            end = lines.rfind(b"\n", 0, max(room, 0)) + 1
            if not end and segment:
                self._seal()
                return
            end = end or lines.find(b"\n") + 1  # a segment has at least one line
        else:
            end = len(lines)
        count = self._encoded if end == len(lines) else lines.count(b"\n", 0, end)
        self._append(lines[:end])
        self.records += count
        self._encoded -= count
        self._unwritten = [lines[end:]] if end < len(lines) else []

    def _append(self, lines: bytes) -> None:
        settings = self._settings
        if self._segment is None:
            first_seq = self._seq - self._encoded
            self._segment = Segment(settings.directory, self.name, first_seq, settings.wall())
            self._opened_at = settings.monotonic()
        try:
            self._segment.append(lines)
        except OSError:
            if self._segment.broken:
                self._forcing.do(self._segment.abandon)
                self._segment = None
            raise
        if self._dirty_since is None:
            self._dirty_since = settings.monotonic()

    def _sync_if_due(self) -> None:
        every, now = self._settings.sync_seconds, self._settings.monotonic()
        if (
            self._segment is None
            or every is None
            or self._dirty_since is None
            or self._forced_since
            or now - self._synced_at < every
        ):
            return
        self._synced_at = now
        self._forced_since.append(self._dirty_since)
        self._dirty_since = None
        self._forcing.do(partial(self._sync, self._segment))

    def _sync(self, segment: Segment) -> None:
        since = self._forced_since[0]
        try:
            segment.sync()
        except OSError as error:
            self._note(error)
            self._dirty_since = since
        self._forced_since.popleft()

    def _roll_if_old(self) -> None:
        if self._segment is None:
            return
        self._sync_if_due()
        age = self._settings.monotonic() - self._opened_at
        if age >= self._settings.segment_seconds and not self._unwritten:
            self._seal()

    def _seal(self) -> None:
        segment, self._segment = self._segment, None
        if segment is None or not segment.size:
            return
        since, self._dirty_since = self._dirty_since, None
        self._forced_since.extend([] if since is None else [since])
        self._forcing.do(partial(self._seal_one, segment, dirty=since is not None))

    def _seal_one(self, segment: Segment, *, dirty: bool) -> None:
        try:
            segment.seal(durable=self._settings.sync_seconds is not None)
        except OSError as error:
            self._note(error)
        if dirty:  # even if it failed: nothing more can be done
            self._forced_since.popleft()

    def _note(self, error: OSError) -> None:
        self.errors += 1
        if error.errno not in self._told:
            self._told.add(error.errno)
            _log.error(
                "event log cannot be written",
                directory=str(self._settings.directory),
                writer=self.name,
                error=str(error),
            )
