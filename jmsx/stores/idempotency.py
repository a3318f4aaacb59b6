"""The interface of idempotency stores, and the locks by which two of them handle equal messages one after another."""

from __future__ import annotations

import math
import threading
from decimal import Decimal
from operator import methodcaller
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias
from uuid import UUID
from weakref import WeakValueDictionary

from jmsx.core.ledger import StoreKey
from jmsx.drivers.locks import mutex, reentrant
from jmsx.drivers.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Sequence


#: The types of a message's key; None: the message has none.
Key: TypeAlias = str | int | float | Decimal | UUID | None


def key_text(key: object) -> str | None:
    """
    Return the text under which a store keeps `key`, the same for equal keys of one type; None if it cannot be a key.

    The text must be the same in other processes, so it is made from the value, not by `str()`, which a subclass may
    override, or whose result may contain an object's address. Keys of different types may have the same text, as 1 and
    "1" do, or equal ones different texts, as 1 and 1.0 do.
    """
    if isinstance(key, str):
        return str.__str__(key)
    if isinstance(key, UUID):
        return str(UUID(int=key.int))
    if isinstance(key, Decimal) and key.is_finite():
        return _decimal_text(key)
    if isinstance(key, float) and math.isfinite(key):
        return float.__repr__(key)
    if isinstance(key, int) and not isinstance(key, bool):
        return int.__repr__(key)
    return None


def _decimal_text(number: Decimal) -> str:
    """Return its digits and exponent, without the zeros by which 1.0 and 1.00 differ, and with all that tell others."""
    sign, digits, exponent = number.as_tuple()
    told = "".join(map(str, digits)).lstrip("0")
    kept = told.rstrip("0")
    return f"{'-' * sign}{kept}e{int(exponent) + len(told) - len(kept)}" if kept else "0"


class IdempotencyStore(Protocol):
    """The interface of an idempotency store, which remembers handled messages; many threads may use it."""

    @property
    def connects(self) -> bool:
        """Whether `work` gets a database connection, which a handler may take as a parameter."""

    def open(self) -> None:
        """Make the store ready; called when an app starts. Raises StoreError or ConfigurationError."""

    def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
        """
        Call `work(connection)` and remember the message; return False, without the call, if it is known already.

        Raises what `work` raises, and does not remember the message then; StoreError if the store cannot say whether
        the message is known.
        """

    def close(self) -> None:
        """Release what is open; called once for each `open`, when the app ends, and again if Ctrl-C interrupts it."""


class BatchStore(IdempotencyStore, Protocol):
    """The further interface of a store for consumers with `batch=`."""

    def once_each(
        self,
        identities: Sequence[StoreKey],
        work: Callable[[Any, frozenset[StoreKey]], Collection[StoreKey]],
    ) -> None:
        """
        Call `work(connection, new)` with the messages of a batch that are not known; remember those that it returns.

        A store that `connects` remembers all of `new` instead, in one transaction. Raises as `once`.
        """


_ACQUIRED: Final = methodcaller("acquire")


class MessageLocks:
    """Locks by which equal messages are handled one after another in this process."""

    def __init__(self) -> None:
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, forget all locks, for the threads that held them are the parent's."""
        self._guard = reentrant()
        #: A lock exists here as long as a thread holds it or waits for it.
        self._locks = WeakValueDictionary[StoreKey, threading.Lock]()

    def lock_of(self, identity: StoreKey) -> threading.Lock:
        """
        Return the lock that a thread holds, in a `with` block, while it handles this message.

        Bind it to a variable first. A lock without references is forgotten, and other threads would get a new one; the
        `with` statement alone keeps no reference to one of jmsx's locks in Python 3.14 (drivers/locks.py).
        """
        with self._guard:
            return self._locks.setdefault(identity, mutex())

    def call_with_all(self, identities: Iterable[StoreKey], work: Callable[[], None]) -> None:
        """
        Call `work` while no other thread handles any of these messages.

        The locks are always taken in the same order, so that two batches cannot deadlock. If a signal handler raises
        while they are released, the others are free as soon as nothing refers to that exception any more.
        """
        locks = [self.lock_of(one) for one in sorted(set(identities))]
        held: list[threading.Lock] = []
        try:
            held += filter(_ACQUIRED, locks)  # in one step, so that `held` is complete
            work()
        finally:
            for lock in reversed(held):
                lock.release()
