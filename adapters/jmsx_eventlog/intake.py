"""The bounded queue between delivery and the writer thread, and what is done when it is full."""

from __future__ import annotations

import threading
from collections import Counter
from queue import Empty, SimpleQueue
from time import monotonic
from typing import TYPE_CHECKING, Final

from jmsx_eventlog.encode import kind_of, urgent_classes

if TYPE_CHECKING:
    from jmsx.core.events import Event, Source

_URGENT: Final = urgent_classes()


class Intake:
    """
    Takes events from any thread; one thread takes them out.

    `capacity` is in events (approximate by the number of threads that put at once); `patience` is
    how long, in seconds, an urgent event waits for room. After one wait was in vain nobody waits
    until there is room: a full disk costs delivery `patience` once, not once a message.
    """

    def __init__(self, capacity: int, patience: float) -> None:
        self._queue: SimpleQueue[tuple[Event, Source] | None] = SimpleQueue()
        self._capacity = capacity
        self._patience = patience
        self._room = threading.Event()
        self._stuck = False
        self._counting = threading.Lock()
        self._uncounted: Counter[tuple[str, str]] = Counter()
        self.closing = threading.Event()  #: no more is taken in; the writer thread is to end
        self.dropped = 0  #: events, since the start

    def __len__(self) -> int:
        """How many events wait."""
        return self._queue.qsize()

    def put(self, event: Event, source: Source) -> None:
        """Take in one event, or count it as dropped."""
        if (
            self._queue.qsize() < self._capacity or self._waited(event)
        ) and not self.closing.is_set():
            self._queue.put((event, source))
        else:
            self.drop(kind_of(event), "overflow")

    def drop(self, kind: str, reason: str, count: int = 1) -> None:
        """Count `count` events of `kind` as missing from the log."""
        with self._counting:
            self.dropped += count
            self._uncounted[kind, reason] += count

    def take_dropped(self) -> Counter[tuple[str, str]]:
        """Hand over what was dropped since the last call, by kind and reason, and forget it."""
        with self._counting:
            dropped, self._uncounted = self._uncounted, Counter()
        return dropped

    def take(self, most: int, timeout: float) -> list[tuple[Event, Source]]:
        """Take up to `most` events, oldest first; waits `timeout` seconds for the first one."""
        taken: list[tuple[Event, Source]] = []
        try:
            item = self._queue.get(timeout=timeout)
            while True:
                if item is not None:
                    taken.append(item)
                if len(taken) >= most:
                    break
                item = self._queue.get_nowait()
        except Empty:
            pass
        if taken:
            self._stuck = False
            self._room.set()
        return taken

    def close(self) -> None:
        """Take in no more, and wake the writer thread."""
        self.closing.set()
        self._room.set()
        self._queue.put(None)

    def _waited(self, event: Event) -> bool:
        """Whether `event` is worth waiting for and room came in time."""
        if self._stuck or type(event) not in _URGENT:
            return False
        deadline = monotonic() + self._patience
        while self._queue.qsize() >= self._capacity and not self.closing.is_set():
            self._room.clear()
            remaining = deadline - monotonic()
            if remaining <= 0:
                self._stuck = True
                return False
            if self._queue.qsize() >= self._capacity:
                self._room.wait(remaining)
        return True
