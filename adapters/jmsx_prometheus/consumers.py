"""The series of one consumer on one destination, and what each event does to them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.events import SETTLED, AckTrigger, Outcome

if TYPE_CHECKING:
    from jmsx.core.events import (
        AckDropped,
        DeliveryEnded,
        MessageDeadLettered,
        MessagesAcknowledged,
        MessagesReceived,
        RedeliveryScheduled,
        SubscriptionOpened,
    )
    from jmsx_prometheus.labels import LabelGuard
    from jmsx_prometheus.series import Distribution, SeriesTable, Tally

#: Outcomes that only a delivery whose handler ended can have; of the others nobody knows.
_HANDLED: Final = frozenset(
    {
        Outcome.ACKNOWLEDGED,
        Outcome.COMMITTED,
        Outcome.ROLLED_BACK,
        Outcome.DEAD_LETTERED,
        Outcome.DISCARDED,
    }
)
_DONE: Final = frozenset({Outcome.ACKNOWLEDGED, Outcome.COMMITTED})
#: What `MessageDeadLettered` says today.
DEAD_LETTER_REASONS: Final = ("max_redeliveries", "rejected", "expired", "undecodable")


@dataclass(frozen=True, slots=True)
class OpenValues:
    """Guards of the labels whose values come from outside, shared by all consumers."""

    error_type: LabelGuard
    reason: LabelGuard


class ConsumerSeries:
    """
    What one consumer on one destination has done.

    All series whose labels are known beforehand start at 0: `increase()` does not see that a series
    was born at 1.
    """

    __slots__ = (
        "_ack_delay",
        "_ack_frames",
        "_attempts_dead",
        "_attempts_done",
        "_batch",
        "_buffer_wait",
        "_dead_letter_failures",
        "_delayed",
        "_delivery_latency",
        "_end_to_end_latency",
        "_immediate",
        "_last_settled",
        "_negative",
        "_open",
        "_process_error",
        "_process_ok",
        "_processed",
        "_received_again",
        "_received_first",
        "_redelivery_delay",
        "_settled",
        "_table",
        "_who",
        "prefetch",
        "subscriptions",
        "unsettled",
    )

    def __init__(
        self, table: SeriesTable, destination: str, consumer: str, open_values: OpenValues
    ) -> None:
        self._table = table
        self._who = {"destination": destination, "consumer": consumer}
        self._open = open_values
        self._settled: dict[str, dict[Outcome, Tally]] = {}  # by acknowledge mode
        self.unsettled = self._tally("jmsx_unsettled_messages")
        self.subscriptions = self._tally("jmsx_open_subscriptions")
        self.prefetch = self._tally("jmsx_prefetch_limit_messages")
        self._make_delivery_series()
        self._make_acknowledgement_series()

    def _tally(self, name: str, **labels: str) -> Tally:
        return self._table.tally(name, **self._who, **labels)

    def _distribution(self, name: str, **labels: str) -> Distribution:
        return self._table.distribution(name, **self._who, **labels)

    def _make_delivery_series(self) -> None:
        self._received_first = self._tally("jmsx_received_messages_total", redelivered="false")
        self._received_again = self._tally("jmsx_received_messages_total", redelivered="true")
        self._processed = {
            outcome: self._tally("jmsx_processed_messages_total", outcome=outcome.value)
            for outcome in Outcome
        }
        self._process_ok = self._distribution("jmsx_process_duration_seconds", result="ok")
        self._process_error = self._distribution("jmsx_process_duration_seconds", result="error")
        self._delivery_latency = self._distribution("jmsx_delivery_latency_seconds")
        self._end_to_end_latency = self._distribution("jmsx_end_to_end_latency_seconds")
        self._buffer_wait = self._distribution("jmsx_buffer_wait_seconds")
        self._negative = self._tally("jmsx_negative_latency_messages_total")
        self._last_settled = self._tally("jmsx_last_settled_timestamp_seconds")

    def _make_acknowledgement_series(self) -> None:
        self._ack_delay = self._distribution("jmsx_ack_delay_seconds")
        self._ack_frames = {
            trigger: self._tally("jmsx_ack_frames_total", trigger=trigger.value)
            for trigger in AckTrigger
        }
        self._batch = self._distribution("jmsx_ack_batch_messages")
        self._tally("jmsx_ack_dropped_messages_total", reason="stale_epoch")
        self._immediate = self._tally("jmsx_redeliveries_total", mode="client_immediate")
        self._delayed = self._tally("jmsx_redeliveries_total", mode="client_delayed")
        self._redelivery_delay = self._distribution("jmsx_redelivery_delay_seconds")
        self._attempts_done = self._distribution("jmsx_delivery_attempts", outcome="settled")
        self._attempts_dead = self._distribution("jmsx_delivery_attempts", outcome="dead_lettered")
        self._dead_letter_failures = self._tally("jmsx_dead_letter_failures_total")
        for reason in DEAD_LETTER_REASONS:
            self._tally("jmsx_dead_lettered_messages_total", reason=reason)

    def note_received(self, event: MessagesReceived) -> None:
        """Count the frames."""
        self._received_again.value += event.redelivered
        self._received_first.value += event.messages - event.redelivered

    def note_ended(self, event: DeliveryEnded, offset: float) -> None:
        """Count one delivery; `offset` is wall clock minus monotonic clock, in seconds."""
        outcome = event.outcome
        self._processed[outcome].value += 1
        if event.error_type is not None:
            error_type = self._open.error_type.admit(event.error_type)
            self._tally("jmsx_handler_errors_total", error_type=error_type).value += 1
        if outcome in _HANDLED:
            self._note_handled(event, offset)
        if outcome in SETTLED:
            self._settled_by(event.ack_mode)[outcome].value += 1
            self._last_settled.value = event.at + offset
        if outcome in _DONE:
            self._attempts_done.observe(event.attempt)
            self._ack_delay.observe(event.at - event.ended_at)
            if event.sent_ms is not None:
                latency = event.at + offset - event.sent_ms / 1000
                self._end_to_end_latency.observe(latency)
        elif outcome is Outcome.DEAD_LETTERED:
            self._attempts_dead.observe(event.attempt)

    def _note_handled(self, event: DeliveryEnded, offset: float) -> None:
        process = self._process_ok if event.error_type is None else self._process_error
        process.observe(event.ended_at - event.started_at)
        if event.attempt != 1:
            return  # what passed since the frame or the sender is mostly our own back-off
        self._buffer_wait.observe(event.started_at - event.received_at)
        if event.sent_ms is not None:
            latency = event.started_at + offset - event.sent_ms / 1000
            self._negative.value += latency < 0
            self._delivery_latency.observe(latency)

    def _settled_by(self, ack_mode: str) -> dict[Outcome, Tally]:
        if ack_mode not in self._settled:
            self._settled[ack_mode] = {
                outcome: self._tally(
                    "jmsx_settled_messages_total", ack_mode=ack_mode, outcome=outcome.value
                )
                for outcome in sorted(SETTLED)
            }
        return self._settled[ack_mode]

    def note_acknowledged(self, event: MessagesAcknowledged) -> None:
        """Count one ACK frame."""
        self._ack_frames[event.trigger].value += 1
        self._batch.observe(event.messages)

    def note_redelivery(self, event: RedeliveryScheduled) -> None:
        """Count one decision to deliver again."""
        (self._delayed if event.delay > 0 else self._immediate).value += 1
        self._redelivery_delay.observe(event.delay)

    def note_dead_lettered(self, event: MessageDeadLettered) -> None:
        """Count one dead letter."""
        reason = self._open.reason.admit(event.reason)
        self._tally("jmsx_dead_lettered_messages_total", reason=reason).value += 1

    def note_dead_letter_failed(self) -> None:
        """Count one dead letter that is none; its reason is a sentence, and so no label."""
        self._dead_letter_failures.value += 1

    def note_ack_dropped(self, event: AckDropped) -> None:
        """Count the messages of an acknowledgement that was not sent."""
        reason = self._open.reason.admit(event.reason)
        self._tally("jmsx_ack_dropped_messages_total", reason=reason).value += event.messages

    def note_subscribed(self, event: SubscriptionOpened) -> None:
        """Show how it is configured."""
        self._settled_by(event.ack_mode)
        self._tally(
            "jmsx_consumer_info",
            ack_mode=event.ack_mode,
            optimize_acknowledge=str(event.optimize_acknowledge).lower(),
            maximum_redeliveries=str(event.maximum_redeliveries),
        ).value = 1
