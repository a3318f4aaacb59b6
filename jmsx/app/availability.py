"""
An idempotency store that is away: its consumers wait for it, and their messages are not to blame.

All workers of an app that use a store share what is known of it, so it is said once that it is away, and once that it
is back.
"""

from __future__ import annotations

import threading
import time

from jmsx.errors import StoreError
from jmsx.log import logger

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
