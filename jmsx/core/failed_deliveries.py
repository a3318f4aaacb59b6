"""
What is done with failed messages: each is delivered again, by jmsx or the broker, discarded, or made a dead letter.

The policy decides, unless the failure's disposition says otherwise. A message that is over its limit when it comes
becomes a dead letter, and the application does not see it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.consumer import ConsumerCore
from jmsx.core.dead_letters import Dead, DeadLetters
from jmsx.core.delivery import UNDECODABLE, Delivery
from jmsx.core.events import AckTrigger, Outcome
from jmsx.core.history import DeadLetterCause
from jmsx.core.scheduled_redelivery import ScheduledRedelivery
from jmsx.core.values import NO_FAILURE, Disposition, Failure

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: Dispositions that acknowledge a message, and how its delivery then ends.
_FORGET: Final = {Disposition.DISCARD: Outcome.DISCARDED, Disposition.DUPLICATE: Outcome.DUPLICATE}


class FailedDeliveries:
    """Disposes of the failed messages of one session, as their failure's disposition or the policy says."""

    def __init__(
        self,
        scheduled: ScheduledRedelivery,
        dead_letters: DeadLetters,
        draw: Callable[[], float],
    ) -> None:
        self._dead_letters = dead_letters
        self._scheduled = scheduled
        self._front_order = 0  #: `order` of the last batch that was rolled back, below all others
        self._draw = draw  #: the next random number in [-1, 1], for collision avoidance

    def give_back(
        self, consumer: ConsumerCore, failure: Failure, now: float, only: Delivery | None = None
    ) -> None:
        """
        Dispose of all delivered messages as the failure's disposition says; `only`: of this one alone, unless it is
        redelivered.

        Of several consumers whose listeners share a session, the one that is given back last is served first. Source:
        `ActiveMQSession.redispatch`, `ActiveMQSessionExecutor.executeFirst`.
        """
        if failure.disposition is Disposition.RELEASE:
            consumer.release(list(consumer.delivered))
            return
        if (consumer.settings.lazy and only is None) or not consumer.delivered:
            return
        # Else the ACK of a dead letter would cover what was done before.
        consumer.flush(AckTrigger.EACH, now)
        if failure.error_type is not None:
            for delivery in [only] if only is not None else consumer.delivered:
                delivery.note_failure(failure, now)
        if failure.disposition is Disposition.REDELIVER or only is None:
            batch = consumer.take_delivered()
        else:
            batch = consumer.take_delivered(only)
        dead = self._dispose(consumer, batch, failure, now)
        if dead:
            self._dead_letters.move(consumer, dead, now)

    def give_back_each(
        self, consumer: ConsumerCore, failed: Sequence[tuple[Delivery, Failure]], now: float
    ) -> None:
        """Dispose of deliveries (oldest first, all handed out) each by its own failure and its own count."""
        dead: list[Dead] = []
        for batch, failure in reversed(_runs(failed)):  # each is put in front of those before it
            if failure.disposition is Disposition.RELEASE:
                consumer.release(batch)
                continue
            if failure.disposition is Disposition.UNDO:
                consumer.undo(batch)
                continue
            for delivery in batch:
                consumer.take_delivered(delivery)
                consumer.note_end(delivery, now)
                if failure.error_type is not None:
                    delivery.note_failure(failure, now)
            if failure.disposition in _FORGET and not consumer.settings.individual:
                consumer.owe(batch, _FORGET[failure.disposition])
            else:
                dead = [*self._dispose(consumer, batch, failure, now), *dead]
        if dead:
            self._dead_letters.move(consumer, dead, now)

    def _dispose(
        self, consumer: ConsumerCore, batch: list[Delivery], failure: Failure, now: float
    ) -> list[Dead]:
        """
        Dispose of a batch, which was taken from the delivered messages, as the failure's disposition says.

        Returns what is to be a dead letter.
        """
        if failure.disposition in _FORGET:
            consumer.acknowledge(batch, AckTrigger.EACH, now, _FORGET[failure.disposition])
            return []
        consumer.count_failures(batch)
        if failure.disposition is Disposition.REJECT:
            return [Dead(delivery, "rejected", failure) for delivery in batch]
        if self._scheduled.schedule(consumer, batch, failure, now, self._draw):
            return []
        self._front_order -= 1
        if consumer.roll_back(batch, failure, now, self._draw, order=self._front_order):
            return []
        return [Dead(delivery, "max_redeliveries", failure) for delivery in batch]

    def send_back_again(
        self, consumer: ConsumerCore, delivery: Delivery, failures: int, now: float
    ) -> bool:
        """Do as `ScheduledRedelivery.send_back_again` does, for a message that was just handed out."""
        consumer.flush(AckTrigger.EACH, now)
        return self._scheduled.send_back_again(consumer, delivery, failures, self._draw)

    def dead_letter_unseen(self, consumer: ConsumerCore, delivery: Delivery, now: float) -> None:
        """Make `delivery`, just handed out, a dead letter: it is over its limit, or was to be one on an older link."""
        cause = delivery.dead_letter_cause
        if cause is None:
            cause = DeadLetterCause("max_redeliveries", _last_failure(delivery), sure=True)
        delivery.dies_unseen()
        consumer.flush(AckTrigger.EACH, now)
        consumer.take_delivered(delivery)
        # the next message may kill the process, too, and then this one would be copied again
        alone = delivery.entry is not None
        dead = Dead(delivery, cause.reason, cause.failure)
        self._dead_letters.move(consumer, [dead], now, alone=alone)

    def dead_letter_undecodable(
        self, consumer: ConsumerCore, delivery: Delivery, error: Exception, now: float
    ) -> None:
        """Make `delivery`, which was handed out and cannot be decoded, a dead letter."""
        delivery.mark_undecodable(error)
        delivery.dies_unseen()
        consumer.not_seen(delivery)
        consumer.flush(AckTrigger.EACH, now)
        if delivery in consumer.delivered:
            consumer.take_delivered(delivery)
        failure = (
            delivery.dead_letter_cause.failure
            if delivery.dead_letter_cause is not None
            else NO_FAILURE
        )
        self._dead_letters.move(consumer, [Dead(delivery, UNDECODABLE, failure)], now)


def _runs(failed: Sequence[tuple[Delivery, Failure]]) -> list[tuple[list[Delivery], Failure]]:
    """Group neighbours with the same failure and as many failures before it: one decision holds for them."""
    runs: list[tuple[list[Delivery], Failure]] = []
    for delivery, failure in failed:
        if runs and runs[-1][1] is failure and runs[-1][0][-1].failures == delivery.failures:
            runs[-1][0].append(delivery)
        else:
            runs.append(([delivery], failure))
    return runs


def _last_failure(delivery: Delivery) -> Failure:
    """Return how the delivery before this one failed: as its handler has told, or with its process, by a ledger."""
    lost, deliveries = delivery.history.lost, delivery.redelivery_count
    if lost is not None and lost.failure is not None and lost.deliveries == deliveries:
        return lost.failure
    if delivery.entry is None:
        return NO_FAILURE
    often = "once" if deliveries == 1 else f"{deliveries} times"
    each = "" if deliveries == 1 else " each time"
    return Failure(
        "ConsumerDied",
        f"handed out {often}, and never settled: its consumer died{each}, or lost its connection",
    )
