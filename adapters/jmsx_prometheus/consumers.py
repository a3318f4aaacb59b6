"""The series of one consumer on one destination, and what each event does to them."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.events import (
    SETTLED,
    AckDropped,
    AckTrigger,
    DeadLetterFailed,
    DeliveryEnded,
    MessageDeadLettered,
    MessagesAcknowledged,
    MessagesReceived,
    Outcome,
    RedeliveryScheduled,
    SubscriptionOpened,
)
from jmsx_prometheus.labels import LabelGuard
from jmsx_prometheus.series import Distribution, SeriesTable, Tally

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Outcomes that only a delivery whose handler ended can have; with other outcomes the handler may not have ended.
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
#: The reasons that `MessageDeadLettered` has at present.
DEAD_LETTER_REASONS: Final = ("max_redeliveries", "rejected", "expired", "undecodable")


@dataclass(frozen=True, slots=True)
class OpenValues:
    """Guards of the labels whose values come from outside, shared by all consumers."""

    error_type: LabelGuard
    reason: LabelGuard


class ConsumerSeries:
    """
    The series of one consumer on one destination.

    All series whose labels are known beforehand start at 0: `increase()` does not see the value with
    which a series begins.
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
        "_delivered_again",
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
        "_suppressed",
        "_table",
        "_who",
        "buffered",
        "in_process",
        "oldest",
        "pending",
        "pending_blocking",
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
        self.buffered = self._tally("jmsx_buffered_messages")
        self.in_process = self._tally("jmsx_in_process_messages")
        self.oldest = self._tally("jmsx_oldest_unsettled_seconds")
        self.pending = self._tally("jmsx_redelivery_pending_messages", blocking="false")
        self.pending_blocking = self._tally("jmsx_redelivery_pending_messages", blocking="true")
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
        self._suppressed = self._tally("jmsx_duplicate_messages_total", action="suppressed")
        self._delivered_again = self._tally("jmsx_duplicate_messages_total", action="delivered")
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

    def _note_failure(self, reason: str, error_type: str, at: float, messages: int = 1) -> None:
        """Count failures, and show when (seconds since the epoch); both label values are already admitted."""
        cause = {"reason": reason, "error_type": error_type}
        self._tally("jmsx_failures_total", **cause).value += messages
        self._tally("jmsx_last_failure_timestamp_seconds", **cause).value = at

    def note_paused(self, *, paused: bool) -> None:
        """Show whether its circuit breaker is open."""
        self._tally("jmsx_consumer_paused").value = float(paused)

    def note_received(self, events: Sequence[MessagesReceived]) -> None:
        """Count the frames."""
        messages = sum([event.messages for event in events])
        again = sum([event.redelivered for event in events])
        self._received_again.value += again
        self._received_first.value += messages - again

    def note_ended(self, events: Sequence[DeliveryEnded], offset: float) -> None:
        """Count deliveries; `offset` is wall clock minus monotonic clock, in seconds."""
        outcomes = Counter([event.outcome for event in events])
        for outcome, count in outcomes.items():
            self._processed[outcome].value += count
        self._suppressed.value += outcomes[Outcome.DUPLICATE]
        failed = [event for event in events if event.error_type is not None]
        self._note_handled(_those(events, outcomes, _HANDLED), offset, failed=bool(failed))
        self._note_settled(_those(events, outcomes, SETTLED), outcomes, offset)
        self._note_done(_those(events, outcomes, _DONE), offset)
        for event in failed:
            error_type = self._open.error_type.admit(event.error_type or "")
            self._tally("jmsx_handler_errors_total", error_type=error_type).value += 1
            if event.outcome is not Outcome.DEAD_LETTERED:  # MessageDeadLettered counts that
                self._note_failure("handler_error", error_type, event.at + offset)

    def _note_handled(
        self, events: Sequence[DeliveryEnded], offset: float, *, failed: bool
    ) -> None:
        """Count handlers that ended, some of which have `failed`, or none."""
        well = events
        if failed:
            well = [event for event in events if event.error_type is None]
            ill = [event for event in events if event.error_type is not None]
            self._process_error.observe_all([event.ended_at - event.started_at for event in ill])
        self._process_ok.observe_all([event.ended_at - event.started_at for event in well])
        # Only first attempts: for later ones the time since receipt or sending is mostly the redelivery delay.
        first = [event for event in events if event.attempt == 1]
        self._buffer_wait.observe_all([event.started_at - event.received_at for event in first])
        latencies = [
            event.started_at + offset - event.sent_ms / 1000
            for event in first
            if event.sent_ms is not None
        ]
        if latencies and min(latencies) < 0:
            self._negative.value += sum([latency < 0 for latency in latencies])
        self._delivery_latency.observe_all(latencies)
        # Only first attempts: the broker says that these may have been done before; messages retried here were not.
        self._delivered_again.value += sum([event.redelivered for event in first])

    def _note_settled(
        self, events: Sequence[DeliveryEnded], outcomes: Counter[Outcome], offset: float
    ) -> None:
        """Count settled `events` by acknowledge mode; `outcomes` has their numbers, perhaps with other outcomes."""
        if events:
            self._last_settled.value = events[-1].at + offset
        modes = {event.ack_mode for event in events}
        for mode in modes:
            if len(modes) > 1:
                outcomes = Counter([event.outcome for event in events if event.ack_mode == mode])
            settled = self._settled_by(mode)
            for outcome in SETTLED.intersection(outcomes):
                settled[outcome].value += outcomes[outcome]

    def _note_done(self, events: Sequence[DeliveryEnded], offset: float) -> None:
        self._attempts_done.observe_all([event.attempt for event in events])
        self._ack_delay.observe_all([event.at - event.ended_at for event in events])
        self._end_to_end_latency.observe_all(
            [
                event.at + offset - event.sent_ms / 1000
                for event in events
                if event.sent_ms is not None
            ]
        )

    def _settled_by(self, ack_mode: str) -> dict[Outcome, Tally]:
        if ack_mode not in self._settled:
            self._settled[ack_mode] = {
                outcome: self._tally(
                    "jmsx_settled_messages_total", ack_mode=ack_mode, outcome=outcome.value
                )
                for outcome in sorted(SETTLED)
            }
        return self._settled[ack_mode]

    def note_acknowledged(self, events: Sequence[MessagesAcknowledged]) -> None:
        """Count ACK frames."""
        for trigger, count in Counter([event.trigger for event in events]).items():
            self._ack_frames[trigger].value += count
        self._batch.observe_all([event.messages for event in events])

    def note_redelivery(self, event: RedeliveryScheduled) -> None:
        """Count one decision to deliver again."""
        (self._delayed if event.delay > 0 else self._immediate).value += 1
        self._redelivery_delay.observe(event.delay)

    def note_dead_lettered(self, event: MessageDeadLettered, offset: float) -> None:
        """Count one dead letter; `offset` as for `note_ended`."""
        reason = self._open.reason.admit(event.reason)
        self._tally("jmsx_dead_lettered_messages_total", reason=reason).value += 1
        self._attempts_dead.observe(event.attempts)
        raised = event.error_type
        error_type = "" if raised is None else self._open.error_type.admit(raised)
        self._note_failure(reason, error_type, event.at + offset)

    def note_dead_letter_failed(self, event: DeadLetterFailed, offset: float) -> None:
        """Count one dead letter that the broker did not take; its reason is a sentence, and so no label."""
        self._dead_letter_failures.value += 1
        self._note_failure("dead_letter_refused", "", event.at + offset)

    def note_ack_dropped(self, event: AckDropped, offset: float) -> None:
        """Count the messages of an acknowledgement that was not sent."""
        reason = self._open.reason.admit(event.reason)
        self._tally("jmsx_ack_dropped_messages_total", reason=reason).value += event.messages
        self._note_failure("acknowledgement_dropped", "", event.at + offset, event.messages)

    def note_subscribed(self, event: SubscriptionOpened) -> None:
        """Set the gauges that show how the consumer is configured."""
        self._settled_by(event.ack_mode)
        self._tally(
            "jmsx_consumer_info",
            ack_mode=event.ack_mode,
            optimize_acknowledge=str(event.optimize_acknowledge).lower(),
            maximum_redeliveries=str(event.maximum_redeliveries),
        ).value = 1


def _those(
    events: Sequence[DeliveryEnded], outcomes: Counter[Outcome], wanted: frozenset[Outcome]
) -> Sequence[DeliveryEnded]:
    """Return the `events` whose outcome is in `wanted`; `outcomes`, their counts, show quickly if it is all or none."""
    if outcomes.keys() <= wanted:
        return events
    if outcomes.keys().isdisjoint(wanted):
        return ()
    return [event for event in events if event.outcome in wanted]
