"""
An address: a name that messages are sent to, and the queues behind it.

Source: artemis-server 2.44.0 BindingsImpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.testing.artemis.names import Routing
from jmsx.testing.artemis.selecting import suits

if TYPE_CHECKING:
    from jmsx.testing.artemis.message import CoreMessage
    from jmsx.testing.artemis.queue import ArtemisQueue


class Address:
    """One address."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.routings: set[Routing] = set()
        self.queues: list[ArtemisQueue] = []
        self.enqueued = 0  #: messages that were sent to it
        self.duplicate_ids: set[str] = set()  #: of all that was ever sent to it
        self._turn = 0

    @property
    def is_topic(self) -> bool:
        """Whether a subscriber gets a queue of its own."""
        return self.routings == {Routing.MULTICAST}

    def targets(self, message: CoreMessage) -> list[ArtemisQueue]:
        """The queues that `message` goes to: one of the ANYCAST ones, in turn, and all others that want it."""
        wanting = [
            queue
            for queue in self.queues
            if message.routing in {None, queue.routing} and suits(queue.selector, message)
        ]
        copies = [queue for queue in wanting if queue.routing is Routing.MULTICAST]
        rivals = [queue for queue in wanting if queue.routing is Routing.ANYCAST]
        if rivals:
            self._turn += 1
            copies.append(rivals[(self._turn - 1) % len(rivals)])
        return copies
