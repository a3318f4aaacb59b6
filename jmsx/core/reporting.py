"""Makes and reports every event that names a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core import events
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.events import AckTrigger, LateOutcome, Outcome
from jmsx.core.frames import Outbox
from jmsx.core.headers import sent_ms
from jmsx.core.identity import key_of
from jmsx.core.values import ConsumerSettings, Failure

if TYPE_CHECKING:
    from collections.abc import Sequence


class ConsumerReports:
    """Reports the events of one consumer; times are seconds, monotonic."""

    def __init__(self, settings: ConsumerSettings, dialect: Dialect, outbox: Outbox) -> None:
        self._settings = settings
        self._dialect = dialect
        self._outbox = outbox
        self._mode = settings.mode.label

    def key(self, delivery: Delivery) -> str:
        """Return the stable identity of a message."""
        return key_of(delivery, self._dialect.reading)

    # The subscription ------------------------------------------------------------------------------------------------

    def opened(self, now: float) -> None:
        """Report that the broker confirmed the subscription."""
        settings = self._settings
        self._outbox.report(
            events.SubscriptionOpened(
                at=now,
                consumer=settings.name,
                destination=settings.destination,
                ack_mode=self._mode,
                prefetch=settings.prefetch,
                maximum_redeliveries=settings.policy.maximum_redeliveries,
                optimize_acknowledge=settings.optimize is not None,
                subscription=settings.subscription,
                selective=settings.selective,
            )
        )

    def closed(self, now: float) -> None:
        """Report that the consumer is closed."""
        name, destination = self._settings.name, self._settings.destination
        self._outbox.report(
            events.SubscriptionClosed(at=now, consumer=name, destination=destination)
        )

    # What came, and how it was settled -------------------------------------------------------------------------------

    def received(self, deliveries: Sequence[Delivery], now: float) -> None:
        """Report the messages that came in one chunk."""
        if not self._outbox.detailed:
            return
        settings, flagged = self._settings, sum([one.history.flagged for one in deliveries])
        self._outbox.report(
            events.MessagesReceived(
                now, settings.name, settings.destination, len(deliveries), flagged
            )
        )

    def acknowledged(self, batch: Sequence[Delivery], trigger: AckTrigger, now: float) -> None:
        """Report that the ACK frames of `batch` were written."""
        if not self._outbox.ends:
            return
        settings = self._settings
        frames, size = (len(batch), 1) if settings.individual else (1, len(batch))
        for _ in range(frames):
            self._outbox.report(
                events.MessagesAcknowledged(now, settings.name, settings.destination, size, trigger)
            )

    def dropped(self, messages: int, now: float) -> None:
        """Report that so many acknowledgements cannot be sent, because their link is gone."""
        name, destination = self._settings.name, self._settings.destination
        self._outbox.report(
            events.AckDropped(at=now, consumer=name, destination=destination, messages=messages)
        )

    def measured(self, buffered: int, in_process: int, still: int, now: float) -> None:
        """Report how many messages wait here, and how many the application has; `still`: since it was told last."""
        self._outbox.report(
            events.ConsumerMeasured(
                at=now,
                consumer=self._settings.name,
                destination=self._settings.destination,
                buffered=buffered,
                in_process=in_process,
                still_in_process=still,
            )
        )

    def redelivery(
        self,
        delivery: Delivery,
        delay: float,
        now: float,
        *,
        blocking: bool = False,
        by_broker: bool = False,
    ) -> None:
        """
        Report that the next delivery of a message is due in `delay` seconds.

        Until then later messages wait for it (`blocking`), or the broker has it (`by_broker`); else it waits here, and
        nothing waits for it.
        """
        delivery.expect_next(delay)
        self._outbox.report(
            events.RedeliveryScheduled(
                at=now,
                consumer=self._settings.name,
                destination=self._settings.destination,
                message_key=self.key(delivery),
                next_attempt=delivery.delivery_count,
                delay=delay,
                blocking=blocking,
                by_broker=by_broker,
            )
        )

    def ended(
        self, delivery: Delivery, outcome: Outcome, now: float, transaction_id: str | None
    ) -> None:
        """Report how a delivery ended, with its whole story."""
        if not self._outbox.ends:
            return
        settings, arrival = self._settings, delivery.arrival
        headers = delivery.frame.headers
        ended = events.DeliveryEnded(  # in the order of its fields
            now,
            settings.name,
            settings.destination,
            arrival.message_id,
            key_of(delivery, self._dialect.reading),
            headers.get("correlation-id"),
            self._mode,
            settings.prefetch,
            delivery.delivery_count,
            delivery.redelivered,
            sent_ms(headers),
            arrival.received_at,
            delivery.started_at,
            delivery.ended_at,
            outcome,
            None,  # no error, up to now
            None,
            None,
            transaction_id,
            len(delivery.frame.body),
            settings.subscription,
        )
        if (failure := delivery.failed.failure) is not None:
            ended.error_type, ended.error_place = failure.error_type, failure.place
            # of a dead letter its own event tells it
            if delivery.failed.is_first and outcome is not Outcome.DEAD_LETTERED:
                ended.error_stack = failure.trace
        self._outbox.report(ended)

    def ended_late(
        self, delivery: Delivery, outcome: LateOutcome, failure: Failure | None, now: float
    ) -> None:
        """Report how a delivery went whose link was lost before."""
        if not self._outbox.ends:
            return
        self._outbox.report(
            events.DeliveryEndedLate(
                at=now,
                consumer=self._settings.name,
                destination=self._settings.destination,
                message_key=self.key(delivery),
                attempt=delivery.delivery_count,
                epoch=delivery.arrival.epoch,
                started_at=delivery.started_at,
                outcome=outcome,
                error_type=None if failure is None else failure.error_type,
                error_place=None if failure is None else failure.place,
                subscription=self._settings.subscription,
            )
        )

    # Dead letters ----------------------------------------------------------------------------------------------------

    def dead_lettered(
        self, delivery: Delivery, reason: str, failure: Failure, copied_to: str, now: float
    ) -> None:
        """
        Report that a message is a dead letter: by a copy at the URI `copied_to`, or else
        wherever the broker put it.
        """
        self._outbox.report(
            events.MessageDeadLettered(
                at=now,
                consumer=self._settings.name,
                destination=self._settings.destination,
                message_id=delivery.message_id,
                message_key=self.key(delivery),
                attempts=delivery.attempts,
                reason=reason,
                error_type=failure.error_type,
                error_message=failure.error_message,
                error_place=failure.place,
                error_stack=failure.trace,
                dead_letter_destination=copied_to or None,
                by_copy=bool(copied_to),
            )
        )

    def dead_letter_failed(self, delivery: Delivery, reason: str, place: str, now: float) -> None:
        """
        Report that the broker refused to take a dead letter; `place`: the URI of the copy, or empty if the broker
        chooses.

        From now on each end is told: it matters whether the message is settled after all.
        """
        self._outbox.ends = self._outbox.detailed
        self._outbox.report(
            events.DeadLetterFailed(
                at=now,
                consumer=self._settings.name,
                destination=self._settings.destination,
                message_key=self.key(delivery),
                reason=reason,
                dead_letter_destination=place or None,
            )
        )
