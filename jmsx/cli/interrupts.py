"""Handling of Ctrl-C and SIGTERM for commands that have to finish something first."""

from __future__ import annotations

import os
import signal
from contextlib import contextmanager
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from types import FrameType


def take_sigterm_as_init() -> None:
    """
    Have SIGTERM end the first process of a container (PID 1), as it ends any other process, until a command handles it.

    The kernel delivers to PID 1 only signals for which it has a handler. So without this a SIGTERM during Python's
    imports is lost, and the service runs on until it is killed. A child that it forks gets the default action back, by
    which the kernel ends it even in code that is not Python. Source: pid_namespaces(7).
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        signal.signal(signal.SIGTERM, _end_at_once)
        # Imported first: in a child, its hook restores the handlers from before, so ours has to run after it.
        import jmsx.drivers.process  # noqa: F401, PLC0415 - no other command needs it

        os.register_at_fork(after_in_child=_leave_to_system)


def _end_at_once(number: int, _frame: FrameType | None) -> NoReturn:
    """Do not raise: in the middle of an import that leaves its locks held."""
    os._exit(128 + number)


def _leave_to_system() -> None:
    if signal.getsignal(signal.SIGTERM) is _end_at_once:
        signal.signal(signal.SIGTERM, signal.SIG_DFL)


def is_interruption(error: BaseException) -> bool:
    """Return whether Ctrl-C caused `error`: Python wraps it in a RuntimeError while a class is being created."""
    return isinstance(error, KeyboardInterrupt) or isinstance(error.__cause__, KeyboardInterrupt)


@contextmanager
def first_of_two(end: Callable[[], object]) -> Iterator[None]:
    """In this block the first Ctrl-C or SIGTERM calls `end`, the second raises KeyboardInterrupt."""
    came = False

    def told(_number: int, _frame: FrameType | None) -> None:
        nonlocal came
        if came:
            raise KeyboardInterrupt
        came = True
        end()

    before = {number: signal.signal(number, told) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@contextmanager
def sigterm_as_ctrl_c() -> Iterator[None]:
    """In this block SIGTERM raises KeyboardInterrupt."""

    def interrupt(_number: int, _frame: FrameType | None) -> NoReturn:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
