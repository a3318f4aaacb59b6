"""
Exceptions out of nowhere, one at each step.

Python runs signal handlers between any two steps of the main thread, and what they raise comes out there. A step here
is what comes before a line, or the beginning or the end of a function.
"""

from __future__ import annotations

import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import FrameType


class Alarm(BaseException):
    """What the signal handler raises."""


class Interrupt:
    """Raises Alarm at the steps with these numbers, counted over the code in these folders and files while it is on."""

    def __init__(self, *at: int, within: Sequence[str]) -> None:
        self._at = set(at)
        self._last = max(at, default=math.inf)
        self._within = within
        self._known: dict[str, bool] = {}  #: whether the code of a file is counted
        self.steps = 0

    def run(self, act: Callable[[], Any]) -> Any:
        """`act()`, interrupted; steps after the last that raises are not counted."""
        if self.steps >= self._last:
            return act()
        sys.settrace(self._tracer())
        try:
            return next(_apart(act))
        finally:
            sys.settrace(None)

    def _tracer(self) -> Callable[[FrameType, str, object], Any]:
        """What Python calls at every step: once for each line of a test, so it looks nothing up in `self`."""
        at, known, within = self._at, self._known, self._within

        def step(_frame: FrameType, _event: str, _arg: object) -> Any:
            self.steps = steps = self.steps + 1
            if steps in at:
                raise Alarm
            return step

        def enter(frame: FrameType, _event: str, _arg: object) -> Any:
            path = frame.f_code.co_filename
            if path not in known:
                known[path] = any(place in path for place in within)
            return step if known[path] else None

        return enter


def _apart(act: Callable[[], Any]) -> Generator[Any]:
    """
    `act()`, with a state of handled exceptions of its own, as a generator has.

    Raised at the first step of an `except` block, which no signal can do, an exception leaves the one that is handled
    there in the thread's state for good, and whatever is raised in later tests would have it as its context.
    """
    yield act()
