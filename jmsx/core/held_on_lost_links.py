"""
Messages that the application was handed on links that are lost now, and of which it has not told yet how they went.

The broker delivers them again, to any consumer. One has failed only if the application says so, or can no longer say
how it went.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import Delivery
from jmsx.core.frames import Outbox
from jmsx.core.process_memory import ConsumerMemory

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator


#: Messages of a consumer that are kept at most when another link is lost: an application that never says how it went
#: must not fill the memory. In a transaction all are kept, for its end says it.
MOST: Final = 1000


class HeldOnLostLinks:
    """The deliveries of a session that are held on lost links, oldest first, each with the memory of its consumer."""

    def __init__(self, outbox: Outbox) -> None:
        self._outbox = outbox
        self._held: dict[Delivery, ConsumerMemory] = {}
        #: Counted as failed before the application has told how they went
        self._refused: dict[Delivery, ConsumerMemory] = {}

    def __contains__(self, delivery: Delivery) -> bool:
        return delivery in self._held

    def __iter__(self) -> Iterator[Delivery]:
        # Over a copy: whoever asks may note how each of them went.
        return iter(list(self._held))

    @property
    def untold(self) -> list[Delivery]:
        """The deliveries of which the application has not told yet how they went, whether that still counts or not."""
        return [*self._held, *self._refused]

    def of(self, memory: ConsumerMemory) -> list[Delivery]:
        """Return the deliveries of the consumer that has this memory."""
        return [one for one, its in self._held.items() if its is memory]

    def add(self, batch: Iterable[Delivery], memory: ConsumerMemory, *, bounded: bool) -> None:
        """Keep what a consumer has handed out on a link that is lost; `bounded`: no more than MOST of earlier links."""
        if bounded:
            for delivery in self.of(memory)[:-MOST]:
                self.failed(delivery)
        self._held.update(dict.fromkeys(batch, memory))

    def told(self, delivery: Delivery) -> None:
        """Forget a delivery: the application has said how it went, or never saw it."""
        self._held.pop(delivery, None)

    def failed(self, delivery: Delivery) -> None:
        """Count a delivery as failed, if the application still held it."""
        memory = self._held.pop(delivery, None)
        if memory is not None:
            self._count([delivery], memory)

    def refuse(self, epoch: int) -> None:
        """Count the deliveries of a link as failed, however the application will say that they went."""
        for delivery in self:
            if delivery.arrival.epoch == epoch:
                self._refused[delivery] = self._held[delivery]
                self.failed(delivery)

    def forget(self, memory: ConsumerMemory | None = None) -> None:
        """Count the deliveries of one consumer, or all, as failed: nobody will say any more how they went."""
        for each in [memory] if memory is not None else dict.fromkeys(self._held.values()):
            late = self.of(each)
            for delivery in late:
                del self._held[delivery]
            self._count(late, each)
        self._refused = {
            one: its
            for one, its in self._refused.items()
            if memory is not None and its is not memory
        }

    def _count(self, batch: list[Delivery], memory: ConsumerMemory) -> None:
        memory.lost(batch)
        self._outbox.fail(one.entry for one in batch)
