"""
Objects in the child of a fork: their sockets, files and threads are the parent process's.

An object that has such things, or a lock, has its `after_fork()` called in the child, before anything else runs there.
It closes the descriptors without a word to the other side, makes new locks, because the old ones may be held for ever
by threads that the child does not have, and refuses from then on what only the parent may do.
"""

from __future__ import annotations

import ctypes
import os
import weakref
from typing import Final, Protocol

from jmsx.errors import IllegalStateError


class Forked(Protocol):
    """An object that is told when it is in the child of a fork."""

    def after_fork(self) -> None:
        """Let go of what is the parent's, in the child, where no other thread runs: do not wait, and take no lock."""


class Suspended(Forked, Protocol):
    """An object that must not be open while the process forks, neither for the parent nor for the child."""

    def before_fork(self) -> None:
        """Close, on the thread that forks, and let no other thread open it before `after_fork_in_parent`."""

    def after_fork_in_parent(self) -> None:
        """Let others go on, in the parent, on the thread that has forked."""


class Origin:
    """The process in which something was begun."""

    def __init__(self) -> None:
        self._generation = _generation

    @property
    def here(self) -> bool:
        """Whether that was this process, and not one that it was forked from."""
        return self._generation == _generation

    def check(self, what: str) -> None:
        """Raise IllegalStateError if `what` was begun before a fork."""
        if not self.here:
            raise left_behind(what, "do it in the parent, or begin anew in the child")


def tell_of_forks(each: Forked) -> None:
    """Let `each` know of forks as long as it lives."""
    _told.add(each)


def suspend_for_forks(each: Suspended) -> None:
    """Let `each` know of forks as `tell_of_forks` does, and have it closed while the process forks."""
    _suspended.add(each)
    _told.add(each)


def left_behind(what: str, advice: str) -> IllegalStateError:
    """Return the error for a child that uses `what` of its parent."""
    return IllegalStateError(
        f"{what} before fork(), and in this child process it is the parent's: {advice}"
    )


def keep_for_ever(inherited: object) -> None:
    """
    Never let an object be freed in this process, not even at its end: freeing it would act on what the parent uses.

    Source: sqlite.org, "How To Corrupt An SQLite Database File", 2.6: a connection of the parent is not even closed.
    """
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(inherited))


_told: Final[weakref.WeakSet[Forked]] = weakref.WeakSet()
_suspended: Final[weakref.WeakSet[Suspended]] = weakref.WeakSet()
_generation = 0  #: how many forks lie between the first process and this one


def _before() -> None:
    for each in sorted(_suspended, key=id):  # two threads that fork take their locks in one order
        each.before_fork()


def _in_parent() -> None:
    for each in list(_suspended):
        each.after_fork_in_parent()


def _in_child() -> None:
    global _generation  # noqa: PLW0603 - the process is what it belongs to
    _generation += 1
    for each in list(_told):
        each.after_fork()


os.register_at_fork(before=_before, after_in_parent=_in_parent, after_in_child=_in_child)
