"""The clock that sessions and stores ask, and in whose place a test puts its own; sockets do not ask it."""

from __future__ import annotations

import time
from typing import Protocol


class Clock(Protocol):
    """What time it is, in two ways."""

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
