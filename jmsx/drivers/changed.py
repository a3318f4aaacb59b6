"""
The condition on which a session's threads wait, whatever a signal handler raises meanwhile.

Python runs signal handlers between the steps of the main thread, also in the middle of `threading`'s own code. `with`
on a Condition goes through its Python methods, where an exception leaves the lock held for ever; `with` on the lock
itself does not. So the session's lock is entered by itself, and its condition only waited for.
Source: CPython 3.11, `Lib/threading.py`, `Condition.wait` and `Condition.__exit__`; `Python/ceval.c`, BEFORE_WITH.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


class Changed(threading.Condition):
    """A condition of a lock that was entered once by who waits."""

    _is_owned: Callable[[], bool]
    _acquire_restore: Callable[[Any], None]
    _release_save: Callable[[], Any]

    def wait(self, timeout: float | None = None) -> bool:
        """As Condition.wait; the lock is held afterwards, also if that was interrupted while it let go of it."""
        try:
            return super().wait(timeout)
        finally:
            if not self._is_owned():
                self._acquire_restore((1, threading.get_ident()))

    def rest(self, timeout: float | None = None) -> bool:
        """As `wait`, of a thread that has nothing to do."""
        return self.wait(timeout)
