"""The clock of sessions and stores, which a test may replace by its own; sockets do not use it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """A monotonic clock and a wall clock."""

    def monotonic(self) -> float:
        """Return seconds that never go back; for durations and deadlines."""

    def wall(self) -> float:
        """Return the time of day in epoch seconds; may jump."""


class SystemClock:
    """The clocks of this machine."""

    #: Seconds since some moment in the past.
    monotonic = staticmethod(time.monotonic)

    #: Epoch seconds.
    wall = staticmethod(time.time)
