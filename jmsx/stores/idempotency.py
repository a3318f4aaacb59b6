"""What every idempotency store does, and how two of them keep equal messages apart while one is being done."""

from __future__ import annotations

import contextlib
import math
import threading
from decimal import Decimal
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias
from uuid import UUID

from jmsx.core.ledger import StoreKey
from jmsx.drivers.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Sequence


#: What may name a message; None names none.
Key: TypeAlias = str | int | float | Decimal | UUID | None


def key_text(key: object) -> str | None:
    """
    Return the text of what names a message; None where nobody knows that equal keys have one, and others another one.

    That holds for keys of one type: 1 and 1.0 have two, and 1 and "1" have one. The store keeps texts, which other
    processes read. An object's is where it lies, or what its class says; so it goes by what a subclass is made of, and
    not by its words.
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
    """Knows what was done; used by many threads."""

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
        """Release what is open; called once for each `open`, when the app ends."""


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


class Turns:
    """Equal messages take turns in this process: the second one waits to see how the first one ends."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._busy: set[StoreKey] = set()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: forget which keys are being handled, for the threads that did so are the parent's."""
        self._changed = threading.Condition()
        self._busy = set()

    @contextlib.contextmanager
    def turn(self, identity: StoreKey) -> Iterator[None]:
        """Wait until nobody else is at this message, and keep others off."""
        with self._changed:
            self._changed.wait_for(lambda: identity not in self._busy)
            self._busy.add(identity)
        try:
            yield
        finally:
            with self._changed:
                self._busy.discard(identity)
                self._changed.notify_all()

    @contextlib.contextmanager
    def turns(self, identities: Iterable[StoreKey]) -> Iterator[None]:
        """Keep other threads from several messages; in one order, so that two batches cannot wait for each other."""
        with contextlib.ExitStack() as stack:
            for identity in sorted(set(identities)):
                stack.enter_context(self.turn(identity))
            yield
