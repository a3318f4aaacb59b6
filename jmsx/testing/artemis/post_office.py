"""
The part of an Artemis broker that all connections share: addresses, their queues, and how messages are routed to them.

Source: jmsx_artemis/BROKER.md; artemis-stomp-protocol 2.44.0 StompConnection.autoCreateDestinationIfPossible and
StompSession, artemis-server 2.44.0 PostOfficeImpl, BindingsImpl and QueueImpl.
"""

from __future__ import annotations

from collections.abc import Callable

from jmsx.testing.artemis.message import CoreMessage, Filter, Refused, Routing, numbered, split
from jmsx.testing.artemis.queue import ArtemisQueue
from jmsx.testing.profiles import ArtemisProfile
from jmsx.testing.runtime import Runtime


class ArtemisTransaction:
    """The transactions that a connection runs, one after another, under one id; it holds the SENDs of the open one."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.rollback_only = False  #: a duplicate was sent
        self._begun = False
        self._steps: list[Callable[[], None]] = []

    def begin(self) -> None:
        """Begin a transaction; raises Refused if the last one under this id has not ended."""
        if self._begun:
            raise Refused(f"Transaction already started: {self.name}")
        self._begun = True

    def enlist(self, step: Callable[[], None]) -> None:
        """Do `step` at the commit. As on a real broker, a BEGIN need not have come before."""
        self._steps.append(step)

    def commit(self) -> None:
        """
        Do all steps, in order.

        Raises Refused if it was not begun, or contains a duplicate: then all its messages are lost, and it stays open.
        """
        if not self._begun:
            raise numbered(339013, f"Error committing {self.name}")
        steps, rolls_back = self._steps, self.rollback_only
        self.forget()
        if rolls_back:
            raise numbered(339013, f"Error committing {self.name}")
        for step in steps:
            step()
        self._begun = False

    def abort(self) -> None:
        """Forget all steps; raises Refused if it was not begun."""
        if not self._begun:
            raise Refused(f"No transaction started: {self.name}")
        self.forget()
        self._begun = False

    def forget(self) -> None:
        """Drop all messages that were sent in it."""
        self._steps = []
        self.rollback_only = False


class Address:
    """A name that messages are sent to, and the queues behind it."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.routings: set[Routing] = set()
        self.queues: list[ArtemisQueue] = []
        self.duplicate_ids: set[str] = set()  #: of all messages ever sent to it
        self._turn = 0

    @property
    def is_topic(self) -> bool:
        """Whether a subscriber gets a queue of its own."""
        return self.routings == {Routing.MULTICAST}

    def targets(self, message: CoreMessage) -> list[ArtemisQueue]:
        """Return the queues that `message` goes to: one ANYCAST queue, in turn, and all MULTICAST ones that match."""
        wanting = [
            queue
            for queue in self.queues
            if message.routing in {None, queue.routing}
            and (queue.selector is None or queue.selector.wants(message))
        ]
        copies = [queue for queue in wanting if queue.routing is Routing.MULTICAST]
        rivals = [queue for queue in wanting if queue.routing is Routing.ANYCAST]
        if rivals:
            self._turn += 1
            copies.append(rivals[(self._turn - 1) % len(rivals)])
        return copies


class PostOffice:
    """The addresses of one broker."""

    def __init__(self, runtime: Runtime, profile: ArtemisProfile) -> None:
        self.runtime = runtime
        self.profile = profile
        self.addresses: dict[str, Address] = {}  #: by name
        self.queues: dict[str, ArtemisQueue] = {}  #: by name, which is unique in the whole broker
        for name in (profile.dead_letter_address, profile.expiry_address):
            if name is not None:
                self.queue(name)

    def queue(self, name: str) -> ArtemisQueue:
        """Return the queue called `name`, or `address::name`; it is created as ANYCAST if it does not exist."""
        self.provide(name, Routing.ANYCAST)
        address, queue = split(name)
        return self.queues[queue or address]

    def provide(self, destination: str, routing: Routing | None) -> None:
        """
        Create what a SEND or SUBSCRIBE to `destination` needs: the address with `routing`, and for ANYCAST its queue.

        If `destination` is `address::queue`, that queue is created.
        """
        name, queue = split(destination)
        wanted = routing or Routing.MULTICAST
        self.addresses.setdefault(name, Address(name)).routings.add(wanted)
        if queue is not None or wanted is Routing.ANYCAST:
            self._provide_queue(ArtemisQueue(self, queue or name, name, wanted))

    def provide_subscription(
        self, name: str, address: str, selector: Filter | None, *, temporary: bool
    ) -> ArtemisQueue:
        """Return the queue of a subscription to a topic; an existing queue keeps its old selector."""
        made = ArtemisQueue(
            self, name, address, Routing.MULTICAST, selector=selector, temporary=temporary
        )
        return self._provide_queue(made)

    def _provide_queue(self, made: ArtemisQueue) -> ArtemisQueue:
        """Return the existing queue of the same name, or else bind `made` to its address and return it."""
        if made.name not in self.queues:
            self.queues[made.name] = made
            self.addresses[made.address].queues.append(made)
        return self.queues[made.name]

    def delete_queue(self, queue: ArtemisQueue) -> None:
        """Forget `queue` and what is in it."""
        del self.queues[queue.name]
        self.addresses[queue.address].queues.remove(queue)

    def route(self, message: CoreMessage, transaction: ArtemisTransaction | None = None) -> None:
        """Put `message` into its queues, now or at COMMIT; a duplicate is dropped and makes the COMMIT fail."""
        address = self.addresses[split(message.address)[0]]
        if message.duplicate_id is None or message.duplicate_id not in address.duplicate_ids:
            self._store(message, address, transaction)
        elif transaction is not None:
            transaction.rollback_only = True

    def _store(
        self, message: CoreMessage, address: Address, transaction: ArtemisTransaction | None
    ) -> None:
        """
        Put `message` into all queues that it is routed to; it is no error if there are none.

        Source: artemis-server 2.44.0 PostOfficeImpl.route.
        """
        _, name = split(message.address)
        queues = address.targets(message) if name is None else [self.queues[name]]

        def store() -> None:
            if message.duplicate_id is not None:
                address.duplicate_ids.add(message.duplicate_id)
            for each in queues:
                each.add(message)

        if transaction is None:
            store()
        else:
            transaction.enlist(store)

    def move(
        self,
        queue: ArtemisQueue,
        message: CoreMessage,
        address: str | None,
        expired_at: int | None = None,
    ) -> None:
        """Route a copy of a message of `queue` to `address`, duplicate or not; if that is None the message is lost."""
        if address is None:
            return
        copy = message.copy_for(
            address, message_id=self.runtime.next_id(), queue=queue.name, expired_at=expired_at
        )
        self._store(copy, self.addresses[address], None)
