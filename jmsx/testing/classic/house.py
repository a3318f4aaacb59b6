"""
What is behind the links of a Classic broker: queues, topics, durable subscriptions, and the way of a message.

Source: activemq-broker 6.1.8 RegionBroker, TopicRegion and SchedulerBroker.
"""

from __future__ import annotations

import itertools
from typing import TYPE_CHECKING

from jmsx.core.headers import whole
from jmsx.testing.classic.destination import Destination, Kind, parse_stomp_name
from jmsx.testing.classic.link import ClassicLink
from jmsx.testing.classic.queue import BrowserSubscription, FakeQueue, QueueSubscription
from jmsx.testing.classic.subscription import DurableSubscription, TopicSubscription
from jmsx.testing.classic.topic import FakeTopic
from jmsx.testing.faults import BrokerFault
from jmsx.testing.house import House
from jmsx.testing.selector import Selector, SelectorSyntaxError

if TYPE_CHECKING:
    from jmsx.testing.classic.consumer import StompConsumer
    from jmsx.testing.classic.manners import ClassicManners
    from jmsx.testing.classic.message import StoredMessage
    from jmsx.testing.classic.transaction import FakeTransaction
    from jmsx.testing.fake_broker import FakeBroker

_NOT_SCHEDULED = {"AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"}


class ClassicHouse(House):
    """Queues, topics and durable subscriptions of one broker."""

    def __init__(self, broker: FakeBroker, manners: ClassicManners) -> None:
        self.broker = broker
        self.manners = manners
        self.durables: dict[tuple[str, str], DurableSubscription] = {}  #: by client id and name
        self._queues: dict[Destination, FakeQueue] = {}
        self._topics: dict[Destination, FakeTopic] = {}
        self.scheduled: list[StoredMessage] = []  #: kept back for their delay
        self._dead_letters_seen: set[str] = set()
        self._ack_ids = itertools.count(1)

    def open_link(self, connection_id: str) -> ClassicLink:
        """A new connection."""
        return ClassicLink(self.broker, self, connection_id)

    def queue(self, name: str) -> FakeQueue:
        """The queue called `name` (with or without `/queue/`), made if it is not there."""
        found = parse_stomp_name(name) or Destination(Kind.QUEUE, name)
        return self._queue(found)

    def topic(self, name: str) -> FakeTopic:
        """The topic called `name` (with or without `/topic/`), made if it is not there."""
        found = parse_stomp_name(name) or Destination(Kind.TOPIC, name)
        return self._topic(found)

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return self.broker.now_ms()

    # -- destinations ---------------------------------------------------------------------------

    def create(self, destination: Destination) -> Destination:
        """Make `destination` if it is not there, and return it."""
        if destination.is_queue:
            self._queue(destination)
        else:
            self._topic(destination)
        return destination

    def delete(self, destination: Destination) -> None:
        """Forget `destination` and what is in it."""
        self._queues.pop(destination, None)
        self._topics.pop(destination, None)

    def _queue(self, destination: Destination) -> FakeQueue:
        if destination not in self._queues:
            queue = FakeQueue(
                destination, self, self.manners, lambda q: self.broker.later(q.iterate)
            )
            self._queues[destination] = queue
            self.broker.at(self.broker.now + self.manners.expiry_period, lambda: self._sweep(queue))
        return self._queues[destination]

    def _topic(self, destination: Destination) -> FakeTopic:
        if destination not in self._topics:
            self._topics[destination] = FakeTopic(destination, self)
        return self._topics[destination]

    def _sweep(self, queue: FakeQueue) -> None:
        if self._queues.get(queue.destination) is queue:
            queue.sweep()
            self.broker.at(self.broker.now + self.manners.expiry_period, lambda: self._sweep(queue))

    # -- messages -------------------------------------------------------------------------------

    def send(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Store or publish `message`; raises BrokerFault if its temporary destination is gone."""
        destination = message.destination
        known = destination in self._queues or destination in self._topics
        if destination.is_temporary and not known:
            raise BrokerFault(
                str(destination), "org.apache.activemq.DestinationDoesNotExistException"
            )
        for name in _NOT_SCHEDULED & message.properties.keys():
            raise NotImplementedError(f"the fake broker has no {name}")
        if self.manners.scheduler and "AMQ_SCHEDULED_DELAY" in message.properties:
            self._schedule(message, transaction)
        else:
            self._place(message, transaction)

    def _place(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        if message.destination.is_queue:
            self._queue(message.destination).send(message, transaction)
        else:
            self._topic(message.destination).send(message, transaction)

    def _schedule(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """
        Keep `message` back for its delay, which counts from the commit.

        Source: jmsx_classic/BROKER.md C45, and seen live: same message id, and scheduledJobId tells it.
        """
        delay = (whole(message.properties.pop("AMQ_SCHEDULED_DELAY")) or 0) / 1000
        message.properties["scheduledJobId"] = message.message_id

        def start() -> None:
            self.scheduled.append(message)
            self.broker.at(self.broker.now + delay, arrive)

        def arrive() -> None:
            self.scheduled.remove(message)
            self._place(message, None)

        if transaction is None:
            start()
        else:
            transaction.enlist(on_commit=start)

    def send_to_dead_letter_queue(self, message: StoredMessage, cause: str | None) -> None:
        """
        Copy `message` there, unless it is not persistent, comes from there, or was there before.

        Source: activemq-broker 6.1.8 AbstractDeadLetterStrategy and RegionBroker; jmsx_classic/BROKER.md C43.
        """
        target = Destination(Kind.QUEUE, self.manners.dead_letter_queue)
        seen = message.message_id in self._dead_letters_seen
        self._dead_letters_seen.add(message.message_id)
        if message.persistent and not seen and message.destination != target:
            self._queue(target).send(message.dead_letter(target, cause), None)

    # -- links and their consumers --------------------------------------------------------------

    def register(self, link: ClassicLink, client_id: str | None) -> str:
        """Give `link` its client id; raises BrokerFault if another link has it."""
        if client_id is None:
            return link.connection_id
        if any(other.client_id == client_id for other in self.broker.links):
            raise BrokerFault(
                f"Broker: localhost - Client: {client_id} already connected from tcp://127.0.0.1:1",
                "jakarta.jms.InvalidClientIDException",
            )
        return client_id

    def next_message_id(self, link: ClassicLink) -> str:
        """A message id, such as the broker makes for what `link` sends."""
        return f"{link.connection_id}:-1:1:{self.broker.next_id()}"

    def next_consumer_id(self, link: ClassicLink) -> str:
        """A consumer id."""
        return f"{link.connection_id}:-1:{self.broker.next_id()}"

    def next_ack_id(self) -> str:
        """The `ack` of a MESSAGE."""
        return f"ID:fake-1-2:{next(self._ack_ids)}"

    def add_consumer(self, consumer: StompConsumer) -> None:
        """Let `consumer` take part; raises BrokerFault on a bad selector or a durable one in use."""
        options = consumer.options
        if options.selector_text is not None:
            try:
                options.selector = Selector(options.selector_text)
            except SelectorSyntaxError as error:
                raise BrokerFault(
                    options.selector_text, "jakarta.jms.InvalidSelectorException"
                ) from error
        if options.destination.is_queue:
            self._add_queue_consumer(consumer)
        elif options.subscription_name is not None:
            self._add_durable_consumer(consumer, options.subscription_name)
        else:
            topic = self._topic(options.destination)
            subscription = TopicSubscription(options, self, consumer.deliver)
            topic.subscriptions.append(subscription)
            consumer.subscription = subscription

    def _add_queue_consumer(self, consumer: StompConsumer) -> None:
        options = consumer.options
        queue = self._queue(options.destination)
        if options.browser:
            browser = BrowserSubscription(
                options, self, consumer.deliver, queue, consumer.end_browse
            )
            consumer.subscription = browser
            self.broker.later(browser.open_window)
            return
        subscription = QueueSubscription(options, self, consumer.deliver, queue)
        consumer.subscription = subscription
        queue.add_consumer(subscription)

    def _add_durable_consumer(self, consumer: StompConsumer, name: str) -> None:
        """
        Come back to a durable subscription, or begin it; another selector or topic begins it anew, without its backlog.

        Source: TopicRegion.addConsumer; jmsx_classic/BROKER.md C60.
        """
        options = consumer.options
        client_id = consumer.link.client_id or ""
        known = self.durables.get((client_id, name))
        if known is not None and known.active:
            raise BrokerFault(
                f"Durable consumer is in use for client: {client_id} and subscriptionName: {name}"
            )
        if known is not None and _is_changed(known, consumer):
            self.delete_durable(client_id, name)
            known = None
        if known is None:
            known = DurableSubscription(options, self, consumer.deliver)
            self.durables[client_id, name] = known
            self._topic(options.destination).subscriptions.append(known)
        else:
            known.activate(options, consumer.deliver)
        consumer.subscription = known

    def remove_consumer(self, consumer: StompConsumer) -> None:
        """End `consumer`; raises BrokerFault if the broker never had it."""
        subscription, consumer.subscription = consumer.subscription, None
        match subscription:
            case BrowserSubscription():
                pass
            case QueueSubscription():
                subscription.queue.remove_consumer(subscription)
            case DurableSubscription():
                subscription.deactivate()
            case TopicSubscription():
                self._topic(consumer.options.destination).subscriptions.remove(subscription)
            case _:
                raise BrokerFault(
                    "Cannot remove a consumer that had not been registered:"
                    f" {consumer.options.consumer_id}",
                    "java.lang.IllegalStateException",
                )

    def delete_durable(self, client_id: str, name: str) -> None:
        """Delete a durable subscription; raises BrokerFault if there is none or it is in use."""
        known = self.durables.get((client_id, name))
        if known is None:
            raise BrokerFault(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {name}",
                "jakarta.jms.InvalidDestinationException",
            )
        if known.active:
            raise BrokerFault("Durable consumer is in use")
        del self.durables[client_id, name]
        self._topic(known.options.destination).subscriptions.remove(known)


def _is_changed(known: DurableSubscription, consumer: StompConsumer) -> bool:
    before, after = known.options, consumer.options
    return (before.destination, before.selector_text, before.no_local) != (
        after.destination,
        after.selector_text,
        after.no_local,
    )
