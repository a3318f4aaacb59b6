"""
What is behind the links of an Artemis broker: addresses, their queues, and the way of a message into them.

Source: artemis-stomp-protocol 2.44.0 StompConnection.autoCreateDestinationIfPossible, artemis-server 2.44.0
PostOfficeImpl and QueueImpl.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from jmsx.testing.artemis.address import Address
from jmsx.testing.artemis.link import ArtemisLink
from jmsx.testing.artemis.names import Routing, split
from jmsx.testing.artemis.queue import ArtemisQueue
from jmsx.testing.house import House

if TYPE_CHECKING:
    from jmsx.testing.artemis.manners import ArtemisManners
    from jmsx.testing.artemis.message import CoreMessage
    from jmsx.testing.artemis.selecting import Filter
    from jmsx.testing.artemis.transaction import ArtemisTransaction
    from jmsx.testing.fake_broker import FakeBroker


class ArtemisHouse(House):
    """The addresses of one broker."""

    def __init__(self, broker: FakeBroker, manners: ArtemisManners) -> None:
        self.broker = broker
        self.manners = manners
        self.addresses: dict[str, Address] = {}  #: by name
        self.queues: dict[str, ArtemisQueue] = {}  #: by name, which is unique in the whole broker
        self._ids = itertools.count(1)
        for name in (manners.settings.dead_letter_address, manners.settings.expiry_address):
            if name is not None:
                self.queue(name)

    def open_link(self, connection_id: str) -> ArtemisLink:
        """A new connection; its session id looks like a channel's."""
        del connection_id
        return ArtemisLink(self.broker, self, f"{self.next_id():08x}")

    def next_id(self) -> int:
        """A number for a message or a consumer, never given before."""
        return next(self._ids)

    def queue(self, name: str) -> ArtemisQueue:
        """The queue called `name`, or `address::name`, made for ANYCAST if it is not there."""
        self.provide(name, Routing.ANYCAST)
        address, queue = split(name)
        return self.queues[queue or address]

    def topic(self, name: str) -> Address:
        """The address called `name`, made for MULTICAST if it is not there."""
        self.provide(name, Routing.MULTICAST)
        return self.addresses[name]

    # -- addresses and queues -------------------------------------------------------------------

    def provide(self, destination: str, routing: Routing | None) -> None:
        """
        Make what a SEND or SUBSCRIBE to `destination` needs: the address for `routing`, and for ANYCAST its queue.

        A queue of its own name too, if `destination` names one.
        """
        name, queue = split(destination)
        wanted = routing or self.manners.match(name).default_routing
        address = self.addresses.setdefault(name, Address(name))
        address.routings.add(wanted)
        if queue is not None or wanted is Routing.ANYCAST:
            self._provide_queue(queue or name, address, wanted)

    def _provide_queue(self, name: str, address: Address, routing: Routing) -> None:
        if name not in self.queues:
            self.add_queue(ArtemisQueue(self, name, address.name, routing))

    def subscription_queue(
        self, name: str, address: str, selector: Filter | None, *, temporary: bool
    ) -> ArtemisQueue:
        """The queue of a subscription to a topic; one that is there keeps its old selector."""
        if name not in self.queues:
            self.add_queue(
                ArtemisQueue(
                    self, name, address, Routing.MULTICAST, selector=selector, temporary=temporary
                )
            )
        return self.queues[name]

    def add_queue(self, queue: ArtemisQueue) -> None:
        """Bind `queue` to its address, and look for expired messages in it from now on."""
        self.queues[queue.name] = queue
        self.addresses[queue.address].queues.append(queue)
        self.broker.at(self.broker.now + self.manners.expiry_period, lambda: self._sweep(queue))

    def delete_queue(self, queue: ArtemisQueue) -> None:
        """Forget `queue` and what is in it."""
        del self.queues[queue.name]
        self.addresses[queue.address].queues.remove(queue)

    def _sweep(self, queue: ArtemisQueue) -> None:
        if self.queues.get(queue.name) is queue:
            queue.sweep()
            self.broker.at(self.broker.now + self.manners.expiry_period, lambda: self._sweep(queue))

    # -- messages -------------------------------------------------------------------------------

    def route(
        self,
        message: CoreMessage,
        transaction: ArtemisTransaction | None = None,
        *,
        reject_duplicates: bool = True,
    ) -> None:
        """
        Put `message` into all queues that it belongs to, now or at the commit; into none is no error.

        Source: PostOfficeImpl.route. A duplicate is dropped, and dooms its transaction.
        """
        name, queue = split(message.address)
        address = self.addresses[name]
        duplicate_id = message.duplicate_id
        if duplicate_id is not None and duplicate_id in address.duplicate_ids and reject_duplicates:
            if transaction is not None:
                transaction.rollback_only = True
            return
        queues = [self.queues[queue]] if queue is not None else address.targets(message)

        def store() -> None:
            if duplicate_id is not None:
                address.duplicate_ids.add(duplicate_id)
            for each in queues:
                each.add(message)
            address.enqueued += 1

        if transaction is None:
            store()
        else:
            transaction.enlist(store)

    def bury(self, queue: ArtemisQueue, message: CoreMessage, grave: str | None) -> None:
        """Move a dead message of `queue` to its dead letter address; without one, or a queue on it, it is gone."""
        self._move(queue, message, grave)

    def expire(self, queue: ArtemisQueue, message: CoreMessage) -> None:
        """Move an expired message of `queue` to its expiry address; without one it is gone."""
        grave = self.manners.match(queue.address).expiry_address
        self._move(queue, message, grave, expired_at=self.broker.now_ms())

    def _move(
        self,
        queue: ArtemisQueue,
        message: CoreMessage,
        grave: str | None,
        expired_at: int | None = None,
    ) -> None:
        if grave is None or grave not in self.addresses:
            return
        copy = message.copy_for(
            grave, message_id=self.next_id(), queue=queue.name, expired_at=expired_at
        )
        self.route(copy, reject_duplicates=False)
