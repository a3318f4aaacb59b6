"""The bounded queue between the threads that report events and the writer thread, and what happens if it is full."""

from __future__ import annotations

import sys
import threading
from collections import Counter, deque
from time import monotonic
from typing import Final

from jmsx.core.events import Event, Source
from jmsx.drivers.locks import mutex
from jmsx_eventlog.encode import kind_of, urgent_classes

_URGENT: Final = urgent_classes()

#: The most events that are only in memory while the disk accepts writes: so many may be lost by a SIGKILL.
IN_MEMORY: Final = 1000

#: The most seconds that an event may be only in memory, when the next one comes, while the disk accepts writes.
OLDEST: Final = 0.010
#: Seconds that the writer waits for more events, as a wake-up for each costs more. The rest of OLDEST is left for the
#: wake-up and the write.
LINGER: Final = 0.007

#: How many times other threads may take the room that a thread waits for.
_PASSED_OVER: Final = 2

#: The patience is divided into so many waits. If the process was stopped, that uses up only one of them and not all the
#: patience, because the writer did not run either.
_WAITS: Final = 10

_NEVER: Final = sys.maxsize


class Intake:
    """
    Takes events from any thread; the writer thread takes them out and says when they are written.

    Up to `IN_MEMORY` events wait to be written, none for longer than `OLDEST`. A thread that puts an event when there
    are so many, or one is so old, waits for room, at most `patience` seconds in which the process runs. So a writer
    that is only slow, or not scheduled, holds back those threads, and no event is lost. A thread that twice saw room
    taken by others is admitted anyway, so that none is passed over for long. After one wait in which nothing was
    written, no thread waits until something is written again, so that a full disk delays message delivery by `patience`
    only once, and not for each message. Until then `IN_MEMORY` events are kept, urgent ones up to `capacity` in all,
    and others are dropped. These limits may be exceeded by the number of threads that put events at the same time.
    """

    def __init__(self, capacity: int, patience: float) -> None:
        # Each with when it was put; seconds, monotonic
        self._queue: deque[tuple[Event, Source, float]] = deque()
        self._taken = 0  # events that the writer has, and that are not yet written
        self._since = 0.0  # since when the oldest of all these has waited; seconds, monotonic
        self._most = min(capacity, IN_MEMORY)
        self._capacity = capacity
        self._patience = patience
        self._idle = True  # the writer found nothing to take
        self._wake_at = _NEVER  # how many waiting events wake the writer
        self._wake = threading.Event()
        self._room = threading.Condition(mutex())
        self._held = 0  # threads that wait for room
        self._times_written = 0
        self._stuck = False
        self._counting = mutex()
        self._uncounted: Counter[tuple[str, str]] = Counter()
        self.closing = threading.Event()  #: no more is taken in; the writer thread is to end
        self.dropped = 0  #: events, since the start
        self._dropped: Counter[str] = Counter()  # the same by kind

    def __len__(self) -> int:
        """Return how many events are not yet written."""
        return len(self._queue) + self._taken

    def put(self, event: Event, source: Source) -> None:
        """Take in one event, or count it as dropped; raises nothing."""
        waiting, now = len(self._queue) + self._taken, monotonic()
        if not waiting:
            self._since = now
        if waiting >= self._most or now - self._since > OLDEST:
            if not self._admitted(event):
                self.drop(kind_of(event), "overflow")
                return
            now = monotonic()
        self._queue.append((event, source, now))
        if waiting >= self._wake_at:
            self._wake_at = _NEVER
            self._wake.set()

    def drop(self, kind: str, reason: str, count: int = 1) -> None:
        """Count `count` events of `kind` as missing from the log."""
        with self._counting:
            self.dropped += count
            self._dropped[kind] += count
            self._uncounted[kind, reason] += count

    def dropped_by_kind(self) -> dict[str, int]:
        """Return how many events were dropped since the start, by kind."""
        with self._counting:
            return dict(self._dropped)

    def take_dropped(self) -> Counter[tuple[str, str]]:
        """Return how many events were dropped since the last call, by kind and reason."""
        if not self._uncounted:
            return Counter()
        with self._counting:
            dropped, self._uncounted = self._uncounted, Counter()
        return dropped

    # The writer's side -----------------------------------------------------------------------------------------------

    def wait(self, timeout: float) -> None:
        """
        Wait for more events until the oldest is LINGER old; if `take` last found none, first wait `timeout` for one.

        So while events keep coming no thread has to wake the writer, until many are there.
        """
        if self._idle and not self._queue:
            self._wait_for(1, timeout)
        if self._queue or not self._idle:
            now = monotonic()
            oldest = self._queue[0][2] if self._queue else now
            self._wait_for(self._most // 2, oldest + LINGER - now)

    def take(self, most: int) -> list[tuple[Event, Source]]:
        """Take up to `most` events, oldest first; they count as waiting until `written()`."""
        count = min(len(self._queue), most)
        self._idle = count == 0
        self._taken += count
        return [self._queue.popleft()[:2] for _ in range(count)]

    def written(self) -> None:
        """Note that all events taken are written or dropped, so that there is room."""
        self._taken = 0
        self._since = self._queue[0][2] if self._queue else monotonic()
        self._times_written += 1
        self._stuck = False
        if self._held:
            with self._room:
                self._room.notify_all()

    def close(self) -> None:
        """Accept no more events, and wake the writer thread."""
        self.closing.set()
        self._most = 0  # so each further `put` checks `closing`
        self._wake.set()
        with self._room:
            self._room.notify_all()

    def _wait_for(self, events: int, timeout: float) -> None:
        self._wake.clear()
        self._wake_at = events - 1  # as who comes counts those before him
        if len(self._queue) < events and not self.closing.is_set():
            self._wake.wait(timeout)
        self._wake_at = _NEVER

    def _admitted(self, event: Event) -> bool:
        """Return whether an event that found no room is accepted, perhaps after waiting."""
        if not self._stuck and not self.closing.is_set() and self._waited():
            return True
        most = self._capacity if type(event) in _URGENT else self._most
        return len(self) < most and not self.closing.is_set()

    def _waited(self) -> bool:
        """Return whether room came in time."""
        with self._room:
            self._held += 1
            before = self._times_written
            try:
                self._wait(before)
                return self._has_room(before, 1) and not self.closing.is_set()
            finally:
                self._held -= 1

    def _wait(self, before: int) -> None:
        waits = _WAITS
        while not (self._has_room(before, _PASSED_OVER) or self._stuck or self.closing.is_set()):
            if not waits:
                self._stuck = self._times_written == before
                self._room.notify_all()
                break
            if not self._room.wait(self._patience / _WAITS):
                waits -= 1

    def _has_room(self, before: int, times: int) -> bool:
        """Return whether there is room, or others took it `times` times: writes since `before` made that often room."""
        waiting = len(self)
        young = not waiting or monotonic() - self._since <= OLDEST
        return (waiting < self._most and young) or self._times_written - before >= times
