"""
A topic: each active subscriber gets a copy at once, and an inactive durable subscription when it is active again.

Source: jmsx_classic/BROKER.md; activemq-broker 6.1.8 Topic, TopicSubscription and DurableTopicSubscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable

from jmsx.testing.classic.message import StoredMessage
from jmsx.testing.classic.subscription import (
    Acknowledgement,
    AckType,
    ClassicTransaction,
    ConsumerOptions,
    Region,
    StoreSubscription,
    Subscription,
    expiry_cause,
)
from jmsx.testing.faults import BrokerFault


class Topic:
    """One topic and its subscriptions."""

    def __init__(self, region: Region) -> None:
        self.region = region
        self.subscriptions: list[TopicSubscription | DurableSubscription] = []

    def send(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Publish `message`, now or at the commit."""
        if message.is_expired(self.region.now_ms()):
            self.region.send_to_dead_letter_queue(message, expiry_cause(message))
        elif transaction is None:
            self._publish(message)
        else:
            transaction.enlist(on_commit=lambda: self._publish(message))

    def _publish(self, message: StoredMessage) -> None:
        for subscription in list(self.subscriptions):
            if subscription.matches(message):
                subscription.add(message)


class TopicSubscription(Subscription):
    """
    A non-durable subscription to a topic: messages that it has not acknowledged are lost when it ends.

    A NACK only frees room in the window: there is no dead letter. Source: activemq-broker 6.1.8 TopicSubscription.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        topic: Topic,
        deliver: Callable[[StoredMessage], None],
    ) -> None:
        super().__init__(options, topic.region, deliver)
        self._topic = topic
        self._pending: deque[StoredMessage] = deque()

    def add(self, message: StoredMessage) -> None:
        """Take a published message, and dispatch it now or when the window has room."""
        self._pending.append(message)
        self.open_window()

    def open_window(self) -> None:
        """Dispatch what the window now allows; expired messages vanish."""
        while self._pending and not self.is_full:
            message = self._pending.popleft()
            if not message.is_expired(self.region.now_ms()):
                self.dispatch(message)

    def acknowledge(self, ack: Acknowledgement, transaction: ClassicTransaction | None) -> None:
        """Carry out `ack`; raises BrokerFault on a NACK in a transaction."""
        if ack.type is AckType.DELIVERED:
            self.expand(ack.count)
        elif transaction is None:
            self._forget(ack)
        elif ack.type is AckType.POISON:
            raise BrokerFault(f"Poison ack cannot be transacted: {ack}")
        else:
            self._forget_at_commit(ack, transaction)
            if ack.type is AckType.INDIVIDUAL:
                self.expand(1)
        self.open_window()

    def _forget_at_commit(self, ack: Acknowledgement, transaction: ClassicTransaction) -> None:
        def commit() -> None:
            self._forget(ack)
            self.open_window()

        transaction.enlist(on_commit=commit, on_rollback=lambda: self.contract(ack.count))

    def _forget(self, ack: Acknowledgement) -> None:
        self.contract(ack.count)
        if ack.type is not AckType.STANDARD:
            self.dispatched.pop(ack.last, None)
            return
        for message_id in list(self.dispatched):
            del self.dispatched[message_id]
            if message_id == ack.last:
                break

    def close(self) -> None:
        """Leave the topic: messages published from now on do not reach this subscription."""
        self._topic.subscriptions.remove(self)


class DurableSubscription(StoreSubscription):
    """
    A durable subscription to a topic, which keeps its messages while no consumer is active.

    It never raises a message's redelivery counter: over STOMP none of its messages is ever `redelivered`.
    Source: activemq-broker 6.1.8 DurableTopicSubscription.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        region: Region,
        deliver: Callable[[StoredMessage], None],
    ) -> None:
        super().__init__(options, region, deliver)
        self.active = True
        self._pending: deque[StoredMessage] = deque()

    def add(self, message: StoredMessage) -> None:
        """Keep a published message, and dispatch it if a consumer is active."""
        self._pending.append(message)
        self.open_window()

    def open_window(self) -> None:
        """Dispatch what the window now allows; expired messages become dead letters."""
        while self.active and self._pending and not self.is_full:
            message = self._pending.popleft()
            if message.is_expired(self.region.now_ms()):
                self.region.send_to_dead_letter_queue(message, expiry_cause(message))
            else:
                self.dispatch(message)

    def settle(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Do nothing: a message that left the window has left the store."""

    def close(self) -> None:
        """Become inactive and keep what is published from now on; messages in flight go back to the front, in order."""
        self.active = False
        self._pending.extendleft(reversed(self.dispatched.values()))
        self.dispatched.clear()
        self.extension = 0

    def activate(self, options: ConsumerOptions, deliver: Callable[[StoredMessage], None]) -> None:
        """Dispatch to a consumer that is back: persistent messages first, then the others, each kind in order."""
        self.options = options
        self.deliver = deliver
        self._pending = deque(sorted(self._pending, key=lambda message: not message.persistent))
        self.active = True
        self.open_window()
