"""
Locks that do not stay held when a signal handler raises.

In Python 3.14 a signal handler may raise when a `with` has taken its lock and its block has not begun: then the lock
stays held for ever (python/cpython#148874; this cannot happen in 3.13 and before). `mutex` and `reentrant` return locks
that are released then; for other versions of Python these are the locks of `threading`. In every version a generator
with a lock in it (`contextlib.contextmanager`) releases the lock only when nobody has the traceback of such an
exception any more: so write `with` on a lock itself.
"""

from __future__ import annotations

import _thread
import contextlib
import sys
import threading
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

from jmsx.errors import IllegalStateError, from_a_signal

if TYPE_CHECKING:
    from collections.abc import Callable

T = TypeVar("T")

_LEFT_HELD: Final = sys.version_info[:2] == (3, 14)


def mutex() -> threading.Lock:
    """Return a lock that one thread has at a time."""
    return cast("threading.Lock", _Mutex()) if _LEFT_HELD else threading.Lock()


def reentrant() -> threading.RLock:
    """Return a lock that the thread which has it may take again."""
    return _Reentrant() if _LEFT_HELD else threading.RLock()


def _take(acquire: Callable[[bool], bool], release: Callable[[], None]) -> bool:
    """Acquire a lock; it is released again if a signal handler raises meanwhile."""
    taken: list[bool] = []
    try:
        taken += map(acquire, (True,))  # one step for Python: it is held, and `taken` says so
    except BaseException:
        if taken:
            release()
        raise
    return True


class _Mutex:
    """
    Does as `threading.Lock`, which cannot be subclassed.

    Its `__exit__` is that of the lock itself: a signal handler could raise before a function in Python begins.
    """

    __slots__ = ("__exit__", "__weakref__", "acquire", "locked", "release")

    def __init__(self) -> None:
        lock = threading.Lock()
        self.acquire, self.release, self.locked = lock.acquire, lock.release, lock.locked
        self.__exit__: Any = lock.__exit__

    def __enter__(self) -> bool:
        return _take(self.acquire, self.release)


class _Reentrant(_thread.RLock):  # type: ignore[misc]  # final for typeshed, and not for Python
    """As `threading.RLock`."""

    def __enter__(self) -> bool:  # type: ignore[override]  # typeshed takes it for `acquire`
        return _take(self.acquire, self.release)


def end_each(things: list[T], end: Callable[[T], object]) -> None:
    """
    Take each of `things` out of the list, the last one first, and call `end` with it.

    Several threads may do so at once: each thing is ended by one of them. Where a signal handler raises in the middle,
    the thing is put back, for the next call.
    """
    while _end_last(things, end):
        pass


def _end_last(things: list[T], end: Callable[[T], object]) -> bool:
    taken: list[T] = []
    try:
        with contextlib.suppress(IndexError):  # there is none
            taken += map(list.pop, (things,))  # in one step for Python, as above
        if taken:
            end(taken[0])
    except BaseException as error:
        if from_a_signal(error):
            things += taken
        raise
    return bool(taken)


def reentered(what: str) -> IllegalStateError:
    """Return the error for a signal handler that calls `what` in the middle of the same thread's call of it."""
    return IllegalStateError(
        f"{what} was called in the middle of another of its calls, by a signal handler or an observer:"
        " set a flag there, and act on it when the call has returned"
    )


class NonReentrantLock:
    """
    A lock for `with lock():`.

    Raises IllegalStateError, and does not wait for ever, in a signal handler that interrupts the thread which has it.
    """

    def __init__(self, what: str) -> None:
        self._what = what
        self.lock = reentrant()  #: for steps that a signal handler may do in the middle of a block

    def __call__(self) -> threading.RLock:
        """Return the lock, for a `with` block; other threads wait."""
        if self.lock._is_owned():  # type: ignore[attr-defined]  # noqa: SLF001 - as `threading.Condition` asks
            raise reentered(self._what)
        return self.lock
