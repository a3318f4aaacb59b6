"""What one thread does at a time, and no signal handler in the middle of it."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from jmsx.errors import IllegalStateError

if TYPE_CHECKING:
    from collections.abc import Iterator


def reentered(what: str) -> IllegalStateError:
    """The error for a signal handler that calls `what` in the middle of the same thread's call of it."""
    return IllegalStateError(
        f"{what} was called in the middle of another of its calls, by a signal handler or an observer:"
        " let that note what is to be done, and do it when the call has returned"
    )


class NonReentrantLock:
    """
    A lock for `with lock():`.

    Raises IllegalStateError, and does not wait for ever, in a signal handler that interrupts the thread which has it.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.lock = threading.RLock()  #: for steps that a signal handler may do in between
        self._taken = False

    @contextlib.contextmanager
    def __call__(self) -> Iterator[None]:
        """Hold the lock in a `with` block; other threads wait."""
        with self.lock:
            if self._taken:
                raise reentered(self._what)
            self._taken = True
            try:
                yield
            finally:
                self._taken = False
