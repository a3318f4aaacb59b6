"""
What this process remembers of messages that it was handed and that are not settled: the ledger of those who have none.

Artemis flags at most the oldest message of a consumer that ended, so without it a message that a closed session had
would look new to the next one. It forgets what other processes had, and everything when the process ends.
"""

from __future__ import annotations

import threading
from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from jmsx.core.ledger import Entry, Identity

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Messages that are remembered at most: the oldest are forgotten, and count again from the broker's flag.
LIMIT: Final = 100_000


class DeliveryMemory:
    """A ledger in memory, shared by all sessions of the process."""

    def __init__(self, limit: int = LIMIT) -> None:
        self._limit = limit
        self._lock = threading.Lock()
        self._known: OrderedDict[Identity, tuple[int, int]] = OrderedDict()  #: deliveries, finished

    def __len__(self) -> int:
        return len(self._known)

    def begin(self, identity: Identity) -> Entry:
        """Note one more hand-out."""
        with self._lock:
            deliveries, finished = self._known.pop(identity, (0, 0))
            self._known[identity] = (deliveries + 1, finished)
            if len(self._known) > self._limit:
                self._known.popitem(last=False)
        return Entry(identity, deliveries + 1, finished, partial=True)

    def finish(self, entries: Iterable[Entry]) -> None:
        """These did not fail."""
        with self._lock:
            for entry in entries:
                deliveries, finished = self._known.get(entry.identity, (0, 0))
                if deliveries == entry.number:
                    self._known[entry.identity] = (deliveries, finished + 1)

    def settle(self, entries: Iterable[Entry]) -> None:
        """Forget these, unless somebody else was handed them since."""
        with self._lock:
            for entry in entries:
                if self._known.get(entry.identity, (0, 0))[0] == entry.number:
                    del self._known[entry.identity]

    def flush(self) -> None:
        """Nothing is put off."""


#: The memory of this process.
MEMORY: Final = DeliveryMemory()
