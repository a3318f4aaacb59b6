"""Locks that a signal handler leaves as they were, in every Python."""

from __future__ import annotations

import signal
import sys
from typing import TYPE_CHECKING, Any, NoReturn

import pytest

from jmsx.drivers import locks

if TYPE_CHECKING:
    from collections.abc import Iterator

#: Those that Python 3.14 needs, and what this Python gets.
KINDS = [locks._Mutex, locks._Reentrant, locks.mutex, locks.reentrant]


class Rung(Exception):  # noqa: N818 - no error of anybody
    """A signal came."""


@pytest.fixture
def alarms() -> Iterator[None]:
    """A signal handler that raises."""

    def ring(_signal: int, _frame: object) -> NoReturn:
        raise Rung

    before = signal.signal(signal.SIGALRM, ring)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def take_for_ever(lock: Any) -> NoReturn:
    """Nearly all that is done is to take it and to give it back."""
    while True:
        with lock:
            pass


@pytest.mark.usefixtures("alarms")
@pytest.mark.parametrize("kind", KINDS)
def test_an_exception_of_a_signal_handler_leaves_it_free(kind: Any) -> None:
    """Wherever it comes: more than half of them left a lock of `threading` held in 3.14."""
    lock = kind()
    for _ in range(200):
        with pytest.raises(Rung):  # noqa: PT012 - it may come at once
            signal.setitimer(signal.ITIMER_REAL, 0.0002)
            take_for_ever(lock)
        assert not locked(lock)


@pytest.mark.usefixtures("alarms")
def test_nor_is_one_held_that_is_not_reentrant_while_the_exception_is_looked_at() -> None:
    """Its traceback keeps alive what was at it, such as a generator that would give the lock back when it dies."""
    alone = locks.NonReentrantLock("this")

    def take_for_ever() -> NoReturn:
        while True:
            with alone():
                pass

    for _ in range(200):
        try:
            signal.setitimer(signal.ITIMER_REAL, 0.0002)
            take_for_ever()
        except Rung:
            with alone():
                pass


def locked(lock: Any) -> bool:
    """Whether anybody has it."""
    return bool(lock._is_owned() if hasattr(lock, "_is_owned") else lock.locked())


@pytest.mark.parametrize("kind", KINDS)
def test_a_block_has_it(kind: Any) -> None:
    """And an exception in the block gives it back."""
    lock = kind()
    with pytest.raises(Rung), lock:  # noqa: PT012 - what is looked at is in the block
        assert locked(lock)
        raise Rung
    assert not locked(lock)


def test_a_reentrant_one_is_taken_again() -> None:
    """By the thread that has it."""
    lock = locks._Reentrant()
    with lock, lock:
        assert locked(lock)
    assert not locked(lock)


def test_which_python_needs_them() -> None:
    """Where a `with` gives its lock back itself, nothing is added to it."""
    assert isinstance(locks.mutex(), locks._Mutex) == (sys.version_info[:2] == (3, 14))
