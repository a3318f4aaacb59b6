"""
The idempotency stores of an app, and whether they can be reached.

A worker waits for a store that cannot be reached, and its messages do not count as failed. All workers of an app that
use a store share what is known of it, so the log says once that it cannot be reached, and once that it can be again.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from jmsx.app.registration import Consumer
from jmsx.drivers.locks import end_each, mutex
from jmsx.errors import StoreAwayError, StoreError, from_a_signal
from jmsx.log import logger
from jmsx.stores import IdempotencyStore

if TYPE_CHECKING:
    from collections.abc import Iterable

_log = logger("jmsx.app")


class Availability:
    """Whether one store can be reached, as the workers that use it find out."""

    def __init__(self) -> None:
        self._lock = mutex()
        self._since: float | None = None  #: unreachable since (seconds, monotonic)
        self.reason = ""  #: why it could not be reached last

    def away(self, consumer: str, error: StoreError) -> None:
        """Note that a worker could not use the store, and log the first time."""
        self.reason = str(error)
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
        """Return the Availability of `store`, which all consumers that use it share."""
        return self._availability.setdefault(id(store), Availability())

    def open(self, consumers: Iterable[Consumer], *, waits: bool) -> list[Consumer]:
        """
        Open the stores of `consumers`; returns the consumers whose store cannot be reached.

        `waits`: whether the app will try those again later; otherwise StoreAwayError is raised. Raises what opening a
        store raises.
        """
        consumers, opened = list(consumers), {id(store) for store in self._open}
        for consumer in {id(each.dedupe): each for each in consumers}.values():
            store = consumer.dedupe
            if store is not None and id(store) not in opened:
                self._open_one(store, consumer.name, waits=waits)
        opened = {id(store) for store in self._open}
        return [one for one in consumers if one.dedupe is not None and id(one.dedupe) not in opened]

    def close(self) -> None:
        """Close all stores; an error of one is logged, and the others are closed all the same."""
        end_each(self._open, _close)

    def _open_one(self, store: IdempotencyStore, consumer: str, *, waits: bool) -> None:
        availability = self.availability(store)
        try:
            store.open()
        except StoreAwayError as error:
            if not waits:
                raise
            availability.away(consumer, error)
        else:
            self._open.append(store)
            availability.back(consumer)


def _close(store: IdempotencyStore) -> None:
    try:
        store.close()
    except BaseException as error:
        if from_a_signal(error):
            raise
        _log.error("store not closed", store=type(store).__name__, exc_info=error)
