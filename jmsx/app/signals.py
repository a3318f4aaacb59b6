"""
SIGTERM and Ctrl-C, as the app takes them.

Python runs a signal handler on the main thread between any two instructions of it, also while that thread holds a lock.
So the handler does nothing but put the signal into a queue that may be interrupted by itself; who waits there decides.
"""

from __future__ import annotations

import contextlib
import queue
import signal
from typing import TYPE_CHECKING, Final, Self

from jmsx.drivers.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import FrameType

_NUMBERS: Final = (signal.SIGTERM, signal.SIGINT)

#: Seconds after which a signal that did not wake the main thread is noticed.
LOOK_EVERY: Final = 0.5


class Interrupted(BaseException):
    """A signal came while nothing was running yet; not an Exception, so that nobody swallows it."""


class Signals:
    """In a `with` on the main thread: signals can be waited for; the old handlers come back with its end."""

    def __init__(self) -> None:
        self._notices: queue.SimpleQueue[signal.Signals | None] = queue.SimpleQueue()
        self._interrupting = False
        self._previous = {}  # type: ignore[var-annotated]  # what signal.signal() returns has no name
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Take the handlers away in the child of a fork: nobody waits there, and SIGTERM shall end it."""
        for number, handler in self._previous.items():
            if signal.getsignal(number) == self._note:
                signal.signal(number, handler)

    def wait(self) -> signal.Signals | None:
        """
        The next signal, or None for a `wake()`.

        Python notes a signal when the main thread runs. One that comes just before that waits, or that the system gives
        to another thread, does not end the waiting; so it is a short one, again and again.
        """
        while True:
            with contextlib.suppress(queue.Empty):
                return self._notices.get(timeout=LOOK_EVERY)

    def wait_briefly(self, timeout: float) -> signal.Signals | None:
        """The next signal; None for a `wake()`, or if none has come in `timeout` seconds."""
        with contextlib.suppress(queue.Empty):
            return self._notices.get(timeout=timeout)
        return None

    def wake(self) -> None:
        """End one `wait()`; from any thread."""
        self._notices.put(None)

    @contextlib.contextmanager
    def interrupting(self) -> Iterator[None]:
        """
        In this block a signal raises Interrupted at once; for work that may be left at any point.

        It can be waited for, too: what it raises may end where nobody sees it, in an `except:` of a library, say.
        """
        self._interrupting = True
        try:
            yield
        finally:
            self._interrupting = False

    def __enter__(self) -> Self:
        for number in _NUMBERS:
            self._previous[number] = signal.signal(number, self._note)
        return self

    def __exit__(self, *_: object) -> None:
        for number, handler in self._previous.items():
            signal.signal(number, handler)

    def _note(self, number: int, _frame: FrameType | None) -> None:
        self._notices.put(signal.Signals(number))
        if self._interrupting:
            self._interrupting = False  # one is enough: what follows is cleaning up
            raise Interrupted
