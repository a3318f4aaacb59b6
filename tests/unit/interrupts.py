"""
Exceptions out of nowhere, one at each step.

Python runs signal handlers between any two steps of the main thread, and what they raise comes out there. A step here
is what comes before a line, or the beginning or the end of a function. None is at the end of a `with` block: what gives
its lock back is called there, and Python looks for signals behind that call and not before it.
"""

from __future__ import annotations

import dis
import math
import sys
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from types import CodeType, FrameType


class Alarm(BaseException):
    """What the signal handler raises; its arguments are the function that it came to, and what Python did there."""


def _raise(alarm: Alarm) -> None:
    raise alarm


class Interrupt:
    """
    Raises Alarm at the steps with these numbers, counted over the code in these folders and files while it is on.

    `handler`: does something else with it, as a signal handler that returns.
    """

    def __init__(
        self, *at: int, within: Sequence[str], handler: Callable[[Alarm], object] = _raise
    ) -> None:
        self._at = set(at)
        self._handler = handler
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
        at, known, within, handler = self._at, self._known, self._within, self._handler
        last, ends = self._last, _ENDS

        def step(frame: FrameType, event: str, _arg: object) -> Any:
            if event == "line" and frame.f_lasti in ends[id(frame.f_code)]:
                return step
            self.steps = steps = self.steps + 1
            if steps in at:
                if steps == last:
                    sys.settrace(None)
                handler(Alarm(frame.f_code.co_name, event))
            return step

        def enter(frame: FrameType, _event: str, _arg: object) -> Any:
            code = frame.f_code
            path = code.co_filename
            if path not in known:
                known[path] = any(place in path for place in within)
            if not known[path]:
                return None
            if id(code) not in ends:
                ends[id(code)] = _ends_of_blocks(code)
                _KEPT.append(code)
            return step

        return enter


#: Where blocks end, by the identity of code: its hash takes longer than a step.
_ENDS: dict[int, frozenset[int]] = {}

#: That code; none gets the identity of one that is gone, as of a module that was imported anew.
_KEPT: list[CodeType] = []


def _ends_of_blocks(code: CodeType) -> frozenset[int]:
    """Where in `code` a `with` block ends that was not left by an exception: `__exit__` is called with three None."""
    steps = list(dis.get_instructions(code))
    calls = [
        place
        for place in range(len(steps))
        if [(one.opname, one.argval) for one in steps[place : place + 3]]
        == [("LOAD_CONST", None)] * 3
    ]
    # what a `return` in the block gives is put aside first
    aside = [
        place - back
        for place in calls
        for back in (1, 2)
        if all(one.opname in ("SWAP", "NOP") for one in steps[place - back : place])
    ]
    return frozenset(steps[place].offset for place in [*calls, *aside])


def _apart(act: Callable[[], Any]) -> Generator[Any]:
    """
    `act()`, with a state of handled exceptions of its own, as a generator has.

    Raised at the first step of an `except` block, which no signal can do, an exception leaves the one that is handled
    there in the thread's state for good, and whatever is raised in later tests would have it as its context.
    """
    yield act()
