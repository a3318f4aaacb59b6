"""
Whose turn it is: round and round, from where the last one was served.

Source: artemis-commons 2.44.0 ArrayResettableIterator and UpdatableIterator; artemis-server 2.44.0 QueueConsumersImpl.
"""

from __future__ import annotations

from typing import Generic, TypeVar

T = TypeVar("T")


class Turns(Generic[T]):
    """A circle of takers; a round is over when all had their turn since `restart`."""

    __slots__ = ("_left", "_next", "_takers")

    def __init__(self) -> None:
        self._takers: list[T] = []
        self._next = 0
        self._left = 0

    def add(self, taker: T) -> None:
        """Let `taker` be the last; the first is next."""
        self._takers.append(taker)
        self._next = 0

    def remove(self, taker: T) -> None:
        """Take `taker` out; the first is next."""
        self._takers.remove(taker)
        self._next = 0

    def restart(self) -> None:
        """Begin a new round, with whose turn it is."""
        self._left = len(self._takers)

    def next(self) -> T | None:
        """Whose turn it is; None if the round is over."""
        if not self._left:
            return None
        taker = self._takers[self._next]
        self._next = (self._next + 1) % len(self._takers)
        self._left -= 1
        return taker

    def repeat(self) -> None:
        """Give the turn back to whom `next` told last."""
        self._next = (self._next - 1) % len(self._takers)
        self._left += 1
