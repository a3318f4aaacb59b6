"""
A topic: everyone who is there gets a copy, and durable subscriptions get theirs later.

Source: activemq-broker 6.1.8 Topic and TopicRegion.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.testing.classic.subscription import DurableSubscription, TopicSubscription, expiry_cause

if TYPE_CHECKING:
    from jmsx.testing.classic.destination import Destination
    from jmsx.testing.classic.house import ClassicHouse
    from jmsx.testing.classic.message import StoredMessage
    from jmsx.testing.classic.transaction import FakeTransaction


class FakeTopic:
    """One topic; `enqueued` is for tests to look at."""

    def __init__(self, destination: Destination, house: ClassicHouse) -> None:
        self.destination = destination
        self.house = house
        self.enqueued = 0  #: messages that were published
        self.subscriptions: list[TopicSubscription | DurableSubscription] = []

    def send(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Publish `message`, now or at the commit."""
        if message.is_expired(self.house.now_ms()):
            self.house.send_to_dead_letter_queue(message, expiry_cause(message))
        elif transaction is None:
            self._publish(message)
        else:
            transaction.enlist(on_commit=lambda: self._publish(message))

    def _publish(self, message: StoredMessage) -> None:
        self.enqueued += 1
        for subscription in list(self.subscriptions):
            if subscription.matches(message):
                subscription.add(message)
