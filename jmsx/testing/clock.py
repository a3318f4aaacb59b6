"""A clock that moves when a test says so, and never back."""

from __future__ import annotations


class FakeClock:
    """
    Seconds that only `advance` and `advance_to` move.

    `monotonic()` is what a driver would read; it starts at `start` (seconds).
    """

    __slots__ = ("_now",)

    def __init__(self, start: float = 0.0) -> None:
        self._now = start

    @property
    def now(self) -> float:
        """The time in seconds: `start`, and what `advance` has added to it."""
        return self._now

    def monotonic(self) -> float:
        """Seconds, monotonic: what `time.monotonic` would say."""
        return self._now

    def advance(self, seconds: float) -> float:
        """Move forward by `seconds` and return the new time; raises ValueError on a negative number."""
        return self.advance_to(self._now + seconds)

    def advance_to(self, moment: float) -> float:
        """Move to `moment` (seconds, monotonic) and return it; raises ValueError if that is in the past."""
        if not moment >= self._now:  # also refuses NaN
            raise ValueError(f"a clock does not go back: it is {self._now}, not {moment}")
        self._now = moment
        return self._now
