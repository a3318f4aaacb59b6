"""
Which message the application gets next, and as which delivery of it.

What the process knows of a message (memory.py) and a ledger counts is asked here, and not before: until it is handed
out, another session or process may have had it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.ledger import identity

if TYPE_CHECKING:
    from collections.abc import Sequence

    from jmsx.core.burial import DeadLetters
    from jmsx.core.consumer import ConsumerCore
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.core.ledger import Entry, Identity
    from jmsx.core.subscriptions import Subscriptions
    from jmsx.core.unit_of_work import UnitOfWork
    from jmsx.core.verdicts import Verdicts


class HandingOut:
    """Of one session's messages."""

    def __init__(
        self,
        dialect: Dialect,
        consumers: Subscriptions,
        work: UnitOfWork,
        verdicts: Verdicts,
        dead_letters: DeadLetters,
    ) -> None:
        self._dialect = dialect
        self._consumers = consumers
        self._work = work
        self._verdicts = verdicts
        self._dead_letters = dead_letters

    def deliver(self, subscription_ids: Sequence[str], now: float) -> Delivery | None:
        """
        The next message of these consumers, in the order of arrival, or None; ask `want` to be kept supplied.

        Where a ledger counts, `offer` and `admit` are its two halves.
        """
        while (delivery := self.offer(subscription_ids, now)) is not None:
            if self.admit(delivery, now):
                break
        return delivery

    def offer(self, subscription_ids: Sequence[str], now: float) -> Delivery | None:
        """The next message of these consumers; `admit` decides whether the application may have it."""
        if self._work.in_doubt:
            return None
        consumers = [self._consumers.find(name) for name in subscription_ids]
        if len(consumers) > 1:
            consumers.sort(key=lambda consumer: consumer.next_turn)
        for consumer in consumers:
            while (delivery := consumer.hand_out(now)) is not None:
                if delivery.expires_at is None or now <= delivery.expires_at:
                    return delivery
                consumer.delivered.remove(delivery)
                self._dead_letters.expire(consumer, delivery, now)
        return None

    def identity(self, delivery: Delivery) -> Identity | None:
        """What a ledger counts `delivery` as; None: it is not counted."""
        consumer = self._consumers.find(delivery.subscription_id)
        try:
            return identity(delivery, consumer.settings, self._dialect)
        except Exception as error:  # noqa: BLE001 - one message must not end the session
            delivery.condemn(error)
            return None

    def admit(self, delivery: Delivery, now: float, entry: Entry | None = None) -> bool:
        """
        Whether the application gets `delivery`, which `offer` gave; `entry`: how the ledger has it, if one counts.

        A message that is over its limit is buried unseen.
        """
        consumer = self._consumers.find(delivery.subscription_id)
        try:
            return self._admit(consumer, delivery, now, entry)
        except Exception as error:  # noqa: BLE001 - one message must not end the session
            self._verdicts.bury_undecodable(consumer, delivery, error, now)
            return False

    def _admit(
        self, consumer: ConsumerCore, delivery: Delivery, now: float, entry: Entry | None
    ) -> bool:
        consumer.recollection.recall(delivery)
        if entry is not None:
            delivery.count(entry)
        if self._verdicts.bury_unseen(consumer, delivery, now):
            return False
        consumer.recollection.handed_out(delivery)
        if consumer.settings.transacted:
            self._work.touch(consumer, delivery, now)
        return True
