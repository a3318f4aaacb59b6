"""
Decides which message the application gets next, and counts which delivery of it that is.

What the process remembers of a message (process_memory.py) and what a ledger counts is asked here, and not before:
until the message is handed out, another session or process may have had it. All that is known is merged into its
history (history.py), by which everything goes from then on.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.consumer import ConsumerCore
from jmsx.core.dead_letters import DeadLetters
from jmsx.core.delivery import ARRIVED, HANDED_OUT, WITHIN, Delivery, Held, Limit
from jmsx.core.delivery_state import DeliveryInput
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger
from jmsx.core.failed_deliveries import FailedDeliveries
from jmsx.core.frames import MessageFrame
from jmsx.core.identity import store_key
from jmsx.core.ledger import Entry, StoreKey
from jmsx.core.policy import given_up
from jmsx.core.subscriptions import Subscriptions
from jmsx.core.translating import is_browsable
from jmsx.core.unit_of_work import UnitOfWork

if TYPE_CHECKING:
    from collections.abc import Collection


class HandingOut:
    """Hands out the messages of one session to the application."""

    def __init__(
        self,
        dialect: Dialect,
        consumers: Subscriptions,
        work: UnitOfWork | None,
        failed_deliveries: FailedDeliveries,
        dead_letters: DeadLetters,
    ) -> None:
        """`work`: the transactions of the session; None if it is not transacted."""
        self._dialect = dialect
        self._consumers = consumers
        self._work = work
        self._failed_deliveries = failed_deliveries
        self._dead_letters = dead_letters

    def deliver(
        self, subscription_ids: Collection[str], now: float, held: Held | None = None
    ) -> Delivery | None:
        """
        Return the next message of these consumers, in the order of arrival, or None; then call `want` to be kept
        supplied.

        Where a ledger counts, call its two halves `offer` and `admit` instead.
        """
        while (delivery := self.offer(subscription_ids, now, held)) is not None:
            if self.admit(delivery, now):
                break
        return delivery

    def offer(
        self, subscription_ids: Collection[str], now: float, held: Held | None = None
    ) -> Delivery | None:
        """
        Return the next message of these consumers, or None; then `admit` decides whether
        the application may have it.
        """
        held = Held() if held is None else held
        held.delivery = None
        if self._work is not None and self._work.in_doubt:
            return None
        while (consumer := self._consumers.next_ready(subscription_ids, now)) is not None:
            delivery = consumer.hand_out(now, held)
            if delivery is not None:
                expires_at = delivery.arrival.expires_at
                unexpired = expires_at is None or now <= expires_at
                if unexpired or delivery.is_acknowledged:
                    return delivery
                consumer.take_delivered(delivery)
                self._dead_letters.expire(consumer, delivery, now)
            held.delivery = None
        return None

    def store_key(self, delivery: Delivery) -> StoreKey | None:
        """Return the key under which a ledger counts `delivery`, or None if it is not counted."""
        consumer = self._consumers.find(delivery.arrival.subscription_id)
        try:
            return store_key(delivery, consumer.settings, self._dialect.reading)
        except Exception as error:
            if not self._is_odd(consumer, delivery):
                raise
            delivery.mark_undecodable(error)
            return None

    def admit(
        self,
        delivery: Delivery,
        now: float,
        entry: Entry | None = None,
        *,
        asks_store: bool = False,
    ) -> bool:
        """
        Return whether the application gets `delivery`, which `offer` returned; `entry`: its hand-out in the ledger, if
        any.

        A message that is over its limit becomes a dead letter instead. If the application `asks_store` whether a
        message was done, it gets that one too, with its `limit` OVER: then it acknowledges it as done, or gives it
        back as NOT_DONE, and no handler is called.
        """
        consumer = self._consumers.find(delivery.arrival.subscription_id)
        if delivery.is_acknowledged and delivery.dead_letter_cause is None:
            return True
        try:
            admitted = self._admit(consumer, delivery, now, entry, asks_store=asks_store)
        except Exception as error:
            if not self._is_odd(consumer, delivery):
                raise
            self._failed_deliveries.dead_letter_undecodable(consumer, delivery, error, now)
            return False
        if not admitted:
            consumer.not_seen(delivery)
        return admitted

    def unclear(self, delivery: Delivery) -> bool:
        """
        Return whether `delivery`, which `offer` returned, may have a body that did not come: then look it up
        (drivers/body_lookup.py).
        """
        consumer = self._consumers.find(delivery.arrival.subscription_id)
        if (
            not consumer.untranslated
            or delivery.arrival.looked_at
            or delivery.dead_letter_cause is not None
        ):
            return False
        return is_browsable(consumer.settings) and not self._dialect.reading.carries(
            delivery.headers, delivery.frame.body
        )

    def complete(self, delivery: Delivery, shown: MessageFrame | None) -> None:
        """
        Take the frame that another look at an `unclear` message has `shown`; None: nothing more is known.

        Only now it is known which message it is, and so how often it was delivered before. If its link was lost
        meanwhile, nothing more is done: it comes again on the next one.
        """
        delivery.complete(shown)
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if shown is not None and consumer is not None and delivery in consumer.waiting:
            self._consumers.recall(consumer, delivery)

    def decline(self, held: Held) -> None:
        """Put back what `offer` returned: it is the next message again, as if it had not been offered."""
        if held.delivery is not None:
            self._consumers.find(held.delivery.arrival.subscription_id).decline(held.delivery)
            held.delivery = None

    def _admit(
        self,
        consumer: ConsumerCore,
        delivery: Delivery,
        now: float,
        entry: Entry | None,
        *,
        asks_store: bool,
    ) -> bool:
        remembered = consumer.memory.recall(delivery) if delivery.progress is ARRIVED else None
        delivery.begin_hand_out(remembered, entry)
        if remembered is not None and remembered.sent_back:
            again = self._failed_deliveries.send_back_again
            if again(consumer, delivery, remembered.failures, now):
                return False
        owed = remembered is not None and remembered.only_ack_owed
        if owed and self._dialect.reading.genuine(delivery):  # else copy it again: it is doubtful
            consumer.flush(AckTrigger.EACH, now)
            consumer.take_delivered(delivery)
            consumer.forget_counts([delivery])
            consumer.acknowledge_originals([delivery], now)
            return False
        cause = None if remembered is None else remembered.dead_letter_cause
        if cause is not None and cause.holds(flagged=delivery.history.flagged):
            delivery.dies_of(cause)
        if delivery.decided.limit is WITHIN and _over_limit(consumer, delivery, delivery.failures):
            delivery.go_over_limit()
        over = delivery.decided.limit is not WITHIN and not (
            asks_store and _is_asked_for(consumer, delivery)
        )
        if over or delivery.decided.dead_letter_cause is not None:
            self._failed_deliveries.dead_letter_unseen(consumer, delivery, now)
            return False
        if delivery.entry is not None:
            delivery.note_last(is_last=_dies_with_process(consumer, delivery, delivery.entry))
        delivery.note_handed_out()
        consumer.memory.handed_out(delivery)
        if self._work is not None:
            self._work.touch(consumer, delivery, now)
        return True

    def _is_odd(self, consumer: ConsumerCore, delivery: Delivery) -> bool:
        """Return whether an exception is the message's fault, and would be raised each time; not a signal handler's."""
        try:
            consumer.key(delivery)
            consumer.memory.name(delivery)
            store_key(delivery, consumer.settings, self._dialect.reading)
        except Exception:  # noqa: BLE001 - whatever it is, one message must not end the session
            return True
        return False

    def take_back(self, held: Held, *, linked: int | None) -> bool:
        """
        Put back the message that `held` has: it is the next one again, as if it had not been handed out.

        `linked`: the epoch of the link, or None without one; the broker delivers again what came on an older link. The
        message may be in the middle of being handed out. This may be interrupted, and called again: `held` keeps the
        message until it is where it was. Returns False if its state cannot be known; then drop the link.
        """
        delivery = held.delivery
        if delivery is None:
            return True
        consumer = self._consumers.get(delivery.arrival.subscription_id)
        if consumer is None:
            return True
        if delivery.arrival.epoch != linked and not delivery.is_acknowledged:
            held.delivery = None
            self._consumers.note_not_failed([delivery])
            return True
        if delivery.arrival.epoch != linked:  # its ACK may be written, and is not to be any more
            delivery.step(DeliveryInput.ACKED)
        if self._work is not None:
            self._work.untouch(delivery)
        if not consumer.put_back(delivery):
            return False
        held.delivery = None
        return True


def _over_limit(consumer: ConsumerCore, delivery: Delivery, failures: int) -> bool:
    """
    Return whether a message that has failed so often is over its limit before it is handed out.

    In transacted sessions this goes by what the process knew when the message came, in the others by what a ledger was
    told: what the application still holds of a lost link has not failed.
    Source: the pre-dispatch check, `ActiveMQMessageConsumer.java:556-568`.
    """
    policy, lost = consumer.settings.policy, delivery.history.lost
    if not (policy.pre_dispatch_check or (lost is not None and lost.refused)):
        return False
    if consumer.settings.transacted and delivery.progress is not HANDED_OUT:
        return given_up(policy, failures)
    return delivery.entry is not None and given_up(policy, failures - delivery.history.untold)


def _is_asked_for(consumer: ConsumerCore, delivery: Delivery) -> bool:
    """
    Return whether a store is to be asked for a message that is over its limit.

    It is asked only when the message is one failure over: the question itself may be what kills its processes.
    """
    return delivery.decided.limit is not Limit.NOT_DONE and not _over_limit(
        consumer, delivery, delivery.failures - 1
    )


def _dies_with_process(consumer: ConsumerCore, delivery: Delivery, entry: Entry) -> bool:
    """Return whether the ledger will count the message as over its limit if all processes that have it die."""
    failures = delivery.history.sent_back + entry.failures + entry.in_doubt + 1
    policy = consumer.settings.policy
    return policy.pre_dispatch_check and given_up(policy, failures)
