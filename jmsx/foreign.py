"""
Code that is not ours, and may raise anything wherever it runs: log handlers, observers, the methods of exceptions.

What it raises goes no further than the call. What a signal handler raises meanwhile is not its own, and does.
"""

from __future__ import annotations

import threading
import traceback
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from types import TracebackType


def from_a_signal(error: BaseException) -> bool:
    """
    Whether `error`, caught by who calls, was raised by a signal handler, and so is meant for the application.

    Signal handlers run on the main thread, and are given the frame that they interrupt, which calls them. The one for
    Ctrl-C leaves no frame.
    """
    if threading.current_thread() is not threading.main_thread():
        return False
    if issubclass(type(error), KeyboardInterrupt):
        return True
    trace, caller = _trace(error), None
    while trace is not None:
        for value in trace.tb_frame.f_locals.values():
            within = value if type(value) is tuple else (value,)
            if caller is not None and any(each is caller for each in within):
                return True
        caller, trace = trace.tb_frame, trace.tb_next
    return False


def cause_of(error: BaseException) -> BaseException | None:
    """What it was raised from, whatever its class makes of that name."""
    cause = BaseException.__dict__["__cause__"].__get__(error)
    return cause if isinstance(cause, BaseException) else None


def text_of(error: BaseException) -> str:
    """Its own words, if it has any."""
    try:
        return str(error)
    except BaseException as another:
        if from_a_signal(another):
            raise
        return f"<{type(error).__name__} that cannot be printed>"


def traceback_of(error: BaseException) -> str:
    """Its traceback as Python prints it, or as much of that as can be had."""
    try:
        return "".join(traceback.format_exception(type(error), error, _trace(error)))
    except BaseException as another:
        if from_a_signal(another):
            raise
    told = f"{type(error).__name__}: {text_of(error)}\n"
    try:
        return "".join((*traceback.format_tb(_trace(error)), told))
    except Exception:  # noqa: BLE001 - of a module that does not give its source
        return told


def exc_info_of(
    error: BaseException,
) -> tuple[type[BaseException], BaseException, TracebackType | None]:
    """As `sys.exc_info()` gives it while `error` is handled."""
    return type(error), error, _trace(error)


def _trace(error: BaseException) -> TracebackType | None:
    trace: TracebackType | None = BaseException.__dict__["__traceback__"].__get__(error)
    return trace
