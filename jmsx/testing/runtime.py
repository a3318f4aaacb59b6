"""What a fake broker runs on: a time that its caller sets, timers, a queue of work, ids, and planned faults."""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Callable

from jmsx.testing.faults import FaultPlan


class Runtime:
    """
    The time, timers and pending work of one broker, without a clock or a thread.

    Args:
        origin: the wall-clock time at `now` = 0, in seconds since 1970.
    """

    def __init__(self, origin: float) -> None:
        self.faults = FaultPlan()
        self.now = 0.0  #: the latest time that was given (seconds, monotonic)
        self._origin = origin
        self._waiting: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._ids = itertools.count(1)

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return round((self._origin + self.now) * 1000)

    def next_id(self) -> int:
        """Return a number that was never given before."""
        return next(self._ids)

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` when the current step is done, as another thread of the real broker would."""
        self._waiting.append(work)

    def settle(self) -> None:
        """Do all pending work, and what that adds, until none is left."""
        while self._waiting:
            self._waiting.popleft()()

    def at(self, moment: float, work: Callable[[], None]) -> None:
        """Do `work` when it is `moment` (seconds, monotonic)."""
        heapq.heappush(self._timers, (moment, self.next_id(), work))

    def next_timer(self) -> float | None:
        """Return when something is next due (seconds, monotonic), or None if nothing waits for a time."""
        return self._timers[0][0] if self._timers else None

    def advance_to(self, now: float) -> None:
        """Advance time to `now`, running the timers that are due on the way; raises ValueError if it would go back."""
        if not now >= self.now:  # also refuses NaN
            raise ValueError(f"time does not go back: it is {self.now}, not {now}")
        while self._timers and self._timers[0][0] <= now:
            self.now, _, work = heapq.heappop(self._timers)
            work()
            self.settle()
        self.now = now
