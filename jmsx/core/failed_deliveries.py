"""
What becomes of messages that failed: delivered again here or by the broker, forgotten, or dead.

The policy decides, unless the failure itself says otherwise; a message that is over its limit when it comes is buried
unseen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import UNDECODABLE, Doom
from jmsx.core.events import AckTrigger, Outcome
from jmsx.core.values import NO_FAILURE, Failure, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.consumer import ConsumerCore
    from jmsx.core.dead_letters import DeadLetters
    from jmsx.core.delivery import Delivery
    from jmsx.core.scheduled_redelivery import Postponements

#: Verdicts that acknowledge a message, and how it then ends.
_FORGET: Final = {Verdict.DISCARD: Outcome.DISCARDED, Verdict.DUPLICATE: Outcome.DUPLICATE}


class Verdicts:
    """Carries them out for one session."""

    def __init__(
        self,
        postponements: Postponements,
        dead_letters: DeadLetters,
        draw: Callable[[], float],
    ) -> None:
        self._dead_letters = dead_letters
        self._postponements = postponements
        self._turn = 0  #: of the last batch that was rolled back, before all that came later
        self._draw = draw  #: the next random number in [-1, 1], for collision avoidance

    def give_back(
        self, consumer: ConsumerCore, failure: Failure, now: float, only: Delivery | None = None
    ) -> None:
        """
        Do with what was delivered as the failure's verdict says; `only` it, unless it is redelivered.

        Of several consumers whose listeners share a session, the one that is given back last is served first.
        Source: `ActiveMQSession.redispatch`, `ActiveMQSessionExecutor.executeFirst`.
        """
        if failure.verdict is Verdict.RELEASE:
            consumer.release(consumer.delivered)
            return
        if (consumer.settings.lazy and only is None) or not consumer.delivered:
            return
        if failure.error_type is not None:
            for delivery in [only] if only is not None else consumer.delivered:
                delivery.note_failure(failure, now)
        if failure.verdict is Verdict.REDELIVER or only is None:
            batch, consumer.delivered = consumer.delivered, []
        else:
            batch = [only]
            consumer.delivered.remove(only)
        if failure.verdict in _FORGET:
            consumer.write_acks(batch)
            consumer.evidence.acknowledged(batch, AckTrigger.EACH, now)
            consumer.end(batch, _FORGET[failure.verdict], now)
        elif failure.verdict is Verdict.REJECT:
            self._dead_letters.bury(consumer, batch, "rejected", failure, now)
        elif self._postponements.postpone(consumer, batch, failure, now, self._draw):
            pass
        else:
            self._turn -= 1
            if not consumer.roll_back(batch, failure, now, self._draw, turn=self._turn):
                self._dead_letters.bury(consumer, batch, "max_redeliveries", failure, now)

    def bury_unseen(self, consumer: ConsumerCore, delivery: Delivery, now: float) -> bool:
        """
        Bury `delivery`, just handed out, if it is over its limit or was doomed on an earlier link; False if it lives.

        Source: the pre-dispatch check, `ActiveMQMessageConsumer.java:556-568`.
        """
        doom = delivery.doom
        if doom is None and not _over_limit(consumer, delivery):
            return False
        if doom is None:
            doom = Doom("max_redeliveries", NO_FAILURE, sure=True)
            if delivery.entry is not None:
                delivery.redelivery_count -= 1  # nobody sees this one
                doom = doom._replace(failure=_consumer_died(delivery.delivery_count))
        consumer.flush(AckTrigger.EACH, now)
        consumer.delivered.remove(delivery)
        # what comes next may kill the process, too, and then there would be another copy
        alone = delivery.entry is not None
        self._dead_letters.bury(consumer, [delivery], doom.reason, doom.failure, now, alone=alone)
        return True

    def bury_undecodable(
        self, consumer: ConsumerCore, delivery: Delivery, error: Exception, now: float
    ) -> None:
        """Bury `delivery`, which was handed out and cannot be understood."""
        delivery.condemn(error)
        consumer.flush(AckTrigger.EACH, now)
        if delivery in consumer.delivered:
            consumer.delivered.remove(delivery)
        failure = delivery.doom.failure if delivery.doom is not None else NO_FAILURE
        self._dead_letters.bury(consumer, [delivery], UNDECODABLE, failure, now)


def _over_limit(consumer: ConsumerCore, delivery: Delivery) -> bool:
    """In a transacted session by what this process knew when it came, and in every mode by a ledger's count."""
    policy = consumer.settings.policy
    if not (policy.pre_dispatch_check or delivery.carried):
        return False
    counts = consumer.settings.transacted and not delivery.seen
    return (counts or delivery.entry is not None) and policy.exhausted(delivery.failures)


def _consumer_died(deliveries: int) -> Failure:
    return Failure(
        "ConsumerDied",
        f"handed out {deliveries} times, and never settled: its consumer died each time,"
        " or lost its connection",
    )
