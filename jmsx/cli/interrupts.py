"""Ctrl-C and SIGTERM of commands that have something to bring to an end."""

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
    Have SIGTERM end the first process of a container, as it ends any other one, until a command takes it.

    The system passes on to that process only signals that it takes, so one that came while Python imported the program
    was lost, and a service ran on until it was killed. Source: pid_namespaces(7).
    """
    if os.getpid() == 1 and signal.getsignal(signal.SIGTERM) is signal.SIG_DFL:
        # At once: what raises in the middle of an import leaves its locks held.
        signal.signal(signal.SIGTERM, lambda number, _frame: os._exit(128 + number))


def is_interruption(error: BaseException) -> bool:
    """Return whether Ctrl-C caused `error`: Python makes it a RuntimeError where a class is being made."""
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
