"""What every idempotency store does, and how two of them keep equal messages apart while one is being done."""

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


#: What may name a message; None names none.
Key: TypeAlias = str | int | float | Decimal | UUID | None


def key_text(key: object) -> str | None:
    """
    Return the text under which a store keeps `key`, the same for equal keys of one type; None for a key that has none.

    Other processes read that text, so it is made of the value, and not by `str()`, which a subclass may change or which
    tells where an object lies. Keys of several types are not told apart in general: 1 and "1" have one text, 1 and 1.0
    two.
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
    """What each idempotency store does: it knows which messages were handled; used by many threads."""

    @property
    def connects(self) -> bool:
        """Whether the handler may have the database connection of its message."""

    def open(self) -> None:
        """Be ready; called when an app starts. Raises StoreError or ConfigurationError."""

    def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
        """
        Call `work(connection)` and remember the message, unless it is known; False: it is known.

        Raises what `work` raises, and then the message is not known; StoreError if nobody can tell whether it is.
        """

    def close(self) -> None:
        """Release what is open; called once for each `open`, when the app ends, and again if Ctrl-C interrupts it."""


class BatchStore(IdempotencyStore, Protocol):
    """What a store for consumers with `batch=` has besides."""

    def once_each(
        self,
        identities: Sequence[StoreKey],
        work: Callable[[Any, frozenset[StoreKey]], Collection[StoreKey]],
    ) -> None:
        """
        Call `work(connection, new)` with those of a batch that are not known; remember those that it returns.

        A store that `connects` remembers all that are new, in one transaction. Raises as `once`.
        """


_ACQUIRED: Final = methodcaller("acquire")


class MessageLocks:
    """Equal messages take turns in this process: the second one waits to see how the first one ends."""

    def __init__(self) -> None:
        self.after_fork()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: forget which keys are being handled, for the threads that did so are the parent's."""
        self._guard = reentrant()
        #: As long as somebody has one or waits for it.
        self._locks = WeakValueDictionary[StoreKey, threading.Lock]()

    def lock_of(self, identity: StoreKey) -> threading.Lock:
        """
        Return the lock that a thread holds, in a `with` block, while it handles this message.

        Bind it to a name first. A lock that nothing refers to is forgotten, and other threads get a new one; a `with`
        alone does not keep a lock of ours referred to, as Python 3.14 has them (drivers/locks.py).
        """
        with self._guard:
            return self._locks.setdefault(identity, mutex())

    def call_with_all(self, identities: Iterable[StoreKey], work: Callable[[], None]) -> None:
        """
        Call `work` while no other thread handles any of these messages.

        Their locks are taken in one order, so that two batches cannot wait for each other. If a signal handler raises
        while they are released, the rest is free as soon as nothing refers to that exception any more.
        """
        locks = [self.lock_of(one) for one in sorted(set(identities))]
        held: list[threading.Lock] = []
        try:
            held += filter(_ACQUIRED, locks)  # in one step for Python: what is held is known
            work()
        finally:
            for lock in reversed(held):
                lock.release()
