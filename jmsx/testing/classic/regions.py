"""
The part of a Classic broker that all connections share: queues, topics, durable subscriptions, and message routing.

Source: jmsx_classic/BROKER.md; activemq-broker 6.1.8 RegionBroker, TopicRegion and SchedulerBroker.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from jmsx.core.headers import whole
from jmsx.testing.classic.message import Destination, Kind, StoredMessage, parse_stomp_name
from jmsx.testing.classic.queue import BrowserSubscription, ClassicQueue, QueueSubscription
from jmsx.testing.classic.subscription import ClassicTransaction, ConsumerOptions, Subscription
from jmsx.testing.classic.topic import DurableSubscription, Topic, TopicSubscription
from jmsx.testing.faults import BrokerFault
from jmsx.testing.profiles import ClassicProfile
from jmsx.testing.runtime import Runtime
from jmsx.testing.selector import Selector, SelectorSyntaxError

_DEAD_LETTER_QUEUE: Final = Destination(Kind.QUEUE, "ActiveMQ.DLQ")
_NOT_SCHEDULED: Final = {"AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"}


class RegionBroker:
    """Queues, topics and durable subscriptions of one broker."""

    def __init__(self, runtime: Runtime, profile: ClassicProfile) -> None:
        self.runtime = runtime
        self.profile = profile
        self._durables: dict[tuple[str, str], DurableSubscription] = {}  #: by client id and name
        self._queues: dict[Destination, ClassicQueue] = {}
        self._topics: dict[Destination, Topic] = {}
        self._dead_letters_seen: set[str] = set()

    def queue(self, name: str) -> ClassicQueue:
        """Return the queue called `name` (with or without `/queue/`); it is created if it does not exist."""
        return self._queue(parse_stomp_name(name) or Destination(Kind.QUEUE, name))

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self.runtime.now_ms()

    # -- destinations ---------------------------------------------------------------------------

    def create(self, destination: Destination) -> None:
        """Create `destination` if it does not exist."""
        if destination.is_queue:
            self._queue(destination)
        else:
            self._topic(destination)

    def delete(self, destination: Destination) -> None:
        """Forget `destination` and what is in it."""
        self._queues.pop(destination, None)
        self._topics.pop(destination, None)

    def _queue(self, destination: Destination) -> ClassicQueue:
        if destination not in self._queues:
            size = self.profile.max_page_size
            self._queues[destination] = ClassicQueue(self, size, self.runtime.later)
        return self._queues[destination]

    def _topic(self, destination: Destination) -> Topic:
        return self._topics.setdefault(destination, Topic(self))

    # -- messages -------------------------------------------------------------------------------

    def send(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Store or publish `message`; raises BrokerFault if its temporary destination is gone."""
        destination = message.destination
        known = destination in self._queues or destination in self._topics
        if destination.is_temporary and not known:
            raise BrokerFault(
                str(destination), "org.apache.activemq.DestinationDoesNotExistException"
            )
        for name in _NOT_SCHEDULED & message.properties.keys():
            raise NotImplementedError(f"the fake broker has no {name}")
        if "AMQ_SCHEDULED_DELAY" in message.properties:
            self._schedule(message, transaction)
        else:
            self._place(message, transaction)

    def _place(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        if message.destination.is_queue:
            self._queue(message.destination).send(message, transaction)
        else:
            self._topic(message.destination).send(message, transaction)

    def _schedule(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Hold `message` for its delay, which counts from the commit; its property scheduledJobId is its id."""
        delay = (whole(message.properties.pop("AMQ_SCHEDULED_DELAY")) or 0) / 1000
        message.properties["scheduledJobId"] = message.message_id
        to_queue = message.destination.is_queue
        delayed = self._queue(message.destination).delayed if to_queue else []

        def start() -> None:
            delayed.append(message)
            self.runtime.at(self.runtime.now + delay, arrive)

        def arrive() -> None:
            delayed.remove(message)
            if message.timestamp > 0 and message.expires > 0:  # jmsx_classic/BROKER.md C78
                late = max(self.now_ms() - message.timestamp, 0)
                message.timestamp, message.expires = (
                    message.timestamp + late,
                    message.expires + late,
                )
            self._place(message, None)

        if transaction is None:
            start()
        else:
            transaction.enlist(on_commit=start)

    def send_to_dead_letter_queue(self, message: StoredMessage, cause: str | None) -> None:
        """
        Copy `message` into the dead letter queue if it is persistent, does not come from there, and is no repetition.

        Source: activemq-broker 6.1.8 AbstractDeadLetterStrategy and RegionBroker.
        """
        target = _DEAD_LETTER_QUEUE
        seen = message.message_id in self._dead_letters_seen
        self._dead_letters_seen.add(message.message_id)
        if message.persistent and not seen and message.destination != target:
            self._queue(target).send(message.dead_letter(target, cause), None)

    # -- consumers ------------------------------------------------------------------------------

    def subscribe(
        self,
        options: ConsumerOptions,
        client_id: str,
        deliver: Callable[[StoredMessage], None],
        finish: Callable[[], None],
    ) -> Subscription:
        """
        Begin a subscription; raises BrokerFault on a bad selector, or if a durable subscription is in use.

        Args:
            options: what the SUBSCRIBE asked for.
            client_id: the client id of the connection.
            deliver: writes a MESSAGE.
            finish: tells a browser that it has seen all messages.
        """
        if options.selector_text is not None:
            try:
                options.selector = Selector(options.selector_text)
            except SelectorSyntaxError as error:
                raise BrokerFault(
                    options.selector_text, "jakarta.jms.InvalidSelectorException"
                ) from error
        if options.destination.is_queue:
            queue = self._queue(options.destination)
            if options.browser:
                browser = BrowserSubscription(options, queue, deliver, finish)
                self.runtime.later(browser.open_window)
                return browser
            consumer = QueueSubscription(options, queue, deliver)
            queue.add_consumer(consumer)
            return consumer
        if options.subscription_name is not None:
            return self._subscribe_durably(options, (client_id, options.subscription_name), deliver)
        topic = self._topic(options.destination)
        subscription = TopicSubscription(options, topic, deliver)
        topic.subscriptions.append(subscription)
        return subscription

    def _subscribe_durably(
        self,
        options: ConsumerOptions,
        key: tuple[str, str],
        deliver: Callable[[StoredMessage], None],
    ) -> DurableSubscription:
        """
        Resume a durable subscription, or begin it; with another selector or topic it begins anew, without its backlog.

        Source: activemq-broker 6.1.8 TopicRegion.addConsumer.
        """
        known = self._durables.get(key)
        if known is not None and known.active:
            raise BrokerFault(
                f"Durable consumer is in use for client: {key[0]} and subscriptionName: {key[1]}"
            )
        if known is not None and _terms(known.options) != _terms(options):
            self.delete_durable(*key)
            known = None
        if known is None:
            known = self._durables[key] = DurableSubscription(options, self, deliver)
            self._topic(options.destination).subscriptions.append(known)
        else:
            known.activate(options, deliver)
        return known

    def delete_durable(self, client_id: str, name: str) -> None:
        """Delete a durable subscription; raises BrokerFault if there is none or it is in use."""
        known = self._durables.get((client_id, name))
        if known is None:
            raise BrokerFault(
                f"No durable subscription exists for clientID: {client_id} and subscriptionName: {name}",
                "jakarta.jms.InvalidDestinationException",
            )
        if known.active:
            raise BrokerFault("Durable consumer is in use")
        del self._durables[client_id, name]
        self._topic(known.options.destination).subscriptions.remove(known)


def _terms(options: ConsumerOptions) -> tuple[Destination, str | None, bool]:
    """Return the options that a durable subscription cannot change without losing its backlog."""
    return options.destination, options.selector_text, options.no_local
