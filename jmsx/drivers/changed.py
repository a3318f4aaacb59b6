"""
The condition on which a session's threads wait, whatever a signal handler raises meanwhile.

Python runs signal handlers between the steps of the main thread, also in the middle of `threading`'s own code. `with`
on a Condition goes through its Python methods, where an exception leaves the lock held for ever; `with` on the lock
itself does not. So `with` is used on the session's lock itself, and its condition only for waiting.
Source: CPython 3.11, `Lib/threading.py`, `Condition.wait` and `Condition.__exit__`; `Python/ceval.c`, BEFORE_WITH.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable


def waitable(timeout: float | None) -> float | None:
    """Return `timeout` (seconds), or 292 years if it is longer: more than that Python refuses."""
    return None if timeout is None else min(timeout, threading.TIMEOUT_MAX)


class Event(threading.Event):
    """
    An event with waits of any length, and for event loops.

    No lock is shared: that of `threading.Event` may stay held when a signal handler raises, and whoever sets the event,
    or waits, then hangs for ever.
    """

    _flag: bool

    def __init__(self) -> None:
        super().__init__()
        self._wakes: list[Callable[[], None]] = []  #: called by `set()`, one for each that waits

    def set(self) -> None:
        """Set it as `threading.Event.set` does."""
        self._flag = True
        for wake in list(self._wakes):
            wake()

    def clear(self) -> None:
        """Clear it as `threading.Event.clear` does."""
        self._flag = False

    def wait(self, timeout: float | None = None) -> bool:
        """Wait as `threading.Event.wait` does."""
        gate = threading.Lock()
        gate.acquire()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # it was woken already
                gate.release()

        self._wakes.append(wake)
        try:
            if not self._flag:  # from here on `set` would wake us
                seconds = waitable(timeout)
                gate.acquire(timeout=-1 if seconds is None else max(seconds, 0.0))
        finally:
            self._wakes.remove(wake)
        return self._flag

    async def awaited(self, seconds: float) -> bool:
        """Wait at most `seconds`, while the event loop goes on; return whether the event is set."""
        loop, woken = asyncio.get_running_loop(), asyncio.Event()

        def wake() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(woken.set)

        self._wakes.append(wake)
        try:
            if not self.is_set():  # from here on `set` would wake us
                async with asyncio.timeout(seconds):
                    await woken.wait()
        except TimeoutError:
            pass
        finally:
            self._wakes.remove(wake)
        return self.is_set()


class Changed(threading.Condition):
    """
    A condition on a lock that the waiting thread has taken, once.

    Before each wait `refuse` is called, which raises where waiting is not allowed, for it releases the lock.
    """

    def __init__(self, lock: Any, refuse: Callable[[], object]) -> None:
        super().__init__(lock)
        self._refuse = refuse

    _is_owned: Callable[[], bool]
    _acquire_restore: Callable[[Any], None]
    _release_save: Callable[[], Any]

    @property
    def owned(self) -> bool:
        """Whether the caller has the lock."""
        return self._is_owned()

    def wait(self, timeout: float | None = None) -> bool:
        """Do as `Condition.wait` does; the lock is held afterwards, also if the wait was interrupted."""
        self._refuse()
        try:
            return super().wait(waitable(timeout))
        finally:
            if not self._is_owned():
                self._acquire_restore((1, threading.get_ident()))

    def rest(self, timeout: float | None = None) -> bool:
        """Do as `wait` does, for a thread that has nothing else to do."""
        return self.wait(timeout)
