"""
The idempotency stores of an app. One that is away is waited for, and the messages of its consumers are not to blame.

All workers of an app that use a store share what is known of it, so it is said once that it is away, and once that it
is back.
"""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from jmsx.app.registration import Consumer
from jmsx.errors import StoreAwayError, StoreError, from_a_signal
from jmsx.log import logger
from jmsx.stores import IdempotencyStore
from jmsx.stores.pauses import pauses

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

_log = logger("jmsx.app")


class Availability:
    """Whether one store can be used, as its workers find out."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._since: float | None = None  #: away, seconds, monotonic

    def away(self, consumer: str, error: StoreError) -> None:
        """Note that a worker could not use the store, and log the first time."""
        with self._lock:
            first = self._since is None
            self._since = self._since or time.monotonic()
        if first:
            _log.error("store away: consumer waits", consumer=consumer, error=str(error))

    def back(self, consumer: str) -> None:
        """Note that a worker could use the store, and log if it was away."""
        if self._since is None:
            return
        with self._lock:
            since, self._since = self._since, None
        if since is not None:
            seconds = round(time.monotonic() - since, 3)
            _log.warning("store back: consumer goes on", consumer=consumer, seconds=seconds)


class Stores:
    """The stores of an app's consumers; several may share one."""

    def __init__(self) -> None:
        self._open: list[IdempotencyStore] = []
        self._availability: dict[int, Availability] = {}

    def availability(self, store: IdempotencyStore | None) -> Availability:
        """What all who use a store share."""
        return self._availability.setdefault(id(store), Availability())

    def open(self, consumers: Iterable[Consumer], pause: Callable[[float], object] | None) -> None:
        """
        Open them all.

        A database that cannot be reached is waited for, as the broker is, by `pause(seconds)` between two attempts;
        with None it raises StoreAwayError.
        """
        for consumer in {id(each.dedupe): each for each in consumers}.values():
            if consumer.dedupe is not None:
                self._open_one(consumer.dedupe, consumer.name, pause)
                self._open.append(consumer.dedupe)

    def close(self) -> None:
        """Close them all; what one raises is logged."""
        while self._open:
            store = self._open.pop()
            try:
                store.close()
            except BaseException as error:
                if from_a_signal(error):
                    raise
                _log.error("store not closed", store=type(store).__name__, exc_info=error)

    def _open_one(
        self, store: IdempotencyStore, consumer: str, pause: Callable[[float], object] | None
    ) -> None:
        availability = self.availability(store)
        for seconds in pauses():
            try:
                store.open()
            except StoreAwayError as error:
                if pause is None:
                    raise
                availability.away(consumer, error)
            else:
                availability.back(consumer)
                return
            pause(seconds)
