"""Events in, metrics out: the observer that a `/metrics` endpoint is built on."""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from importlib.metadata import version
from threading import Lock
from typing import TYPE_CHECKING, assert_never

from prometheus_client import CollectorRegistry, make_wsgi_app

from jmsx.core.events import (
    AckDropped,
    DeadLetterFailed,
    DeliveryEnded,
    ErrorReceived,
    LinkClosed,
    LinkOpened,
    LinkRestored,
    MessageDeadLettered,
    MessagesAcknowledged,
    MessageSent,
    MessagesReceived,
    Outcome,
    RedeliveryScheduled,
    SubscriptionClosed,
    SubscriptionOpened,
    TransactionEnded,
    TransactionOutcome,
)
from jmsx.process import tell_of_forks
from jmsx_prometheus.catalogue import find
from jmsx_prometheus.consumers import DEAD_LETTER_REASONS, ConsumerSeries, OpenValues
from jmsx_prometheus.labels import DestinationGuard, LabelGuard, WordGuard
from jmsx_prometheus.links import DISCONNECT_REASONS, Links
from jmsx_prometheus.series import SeriesTable, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric as Family

    from jmsx.core.events import Event, Source

_SEND_OUTCOMES = ("confirmed", "unconfirmed", "error", "rolled_back")


def read_clocks() -> tuple[float, float]:
    """Seconds on the monotonic clock and seconds since the epoch, read together."""
    return time.monotonic(), time.time()


class PrometheusObserver:
    """
    Counts what happens, exactly, and shows it to Prometheus.

    One lock is held for each event, and only while some integers change; Prometheus' objects are
    made when somebody scrapes. One observer serves one process; its numbers outlive `close()`.

    Args:
        registry: where it registers; an own one by default, never the global one.
        clock: gives monotonic and wall seconds, read together.
        maximum_destinations: how many destinations get their own label value, and likewise
        maximum_consumers: how many consumers do; later ones are `__other__`.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        clock: Callable[[], tuple[float, float]] = read_clocks,
        maximum_destinations: int = 100,
        maximum_consumers: int = 100,
    ) -> None:
        self._clock = clock
        self._clock_read_at, wall = clock()
        self._offset = wall - self._clock_read_at  # seconds from monotonic time to wall time
        self._lock = Lock()
        self._table = SeriesTable()
        self._destinations = DestinationGuard(maximum_destinations, self._overflow("destination"))
        self._consumer_names = LabelGuard(maximum_consumers, self._overflow("consumer"))
        reasons = WordGuard(
            20, self._overflow("reason"), known=(*DEAD_LETTER_REASONS, *DISCONNECT_REASONS)
        )
        self._open_values = OpenValues(
            error_type=LabelGuard(20, self._overflow("error_type")), reason=reasons
        )
        self._links = Links(self._table, LabelGuard(20, self._overflow("broker")), reasons)
        self._consumers: dict[tuple[str, str], ConsumerSeries] = {}  # by destination and consumer
        self._make_process_series()
        self.registry = CollectorRegistry() if registry is None else registry
        self.registry.register(self)
        tell_of_forks(self)
        self.wsgi = make_wsgi_app(self.registry)  #: shows the metrics; `App(health=…)` serves it

    def after_fork(self) -> None:
        """In the child of a fork: it goes on with what the parent has counted."""
        self._lock = Lock()

    def observe(self, event: Event, source: Source) -> None:
        """Count `event`."""
        with self._lock:
            self._note(event, source)

    def close(self) -> None:
        """Nothing to flush: the last scrape comes after the last message, so all stays readable."""

    def collect(self) -> Iterator[Family]:
        """All metrics as they are now; Prometheus' registry calls it for each scrape."""
        with self._lock:
            table = self._table.copy()
        return table.families()

    def describe(self) -> Iterator[Family]:
        """All metrics without numbers: lets a shared registry refuse a second observer."""
        return SeriesTable().families()

    def value(self, name: str, **labels: str) -> float:
        """
        Sum the samples of `name` that carry all of `labels`.

        For a histogram say which sample: `…_count`, `…_sum`, or `…_bucket` with `le`.

        Raises:
            KeyError: the catalogue has no such sample, or not with these labels.
        """
        return self.totals(name, **labels).get((), 0)

    def totals(self, name: str, /, *by: str, **labels: str) -> dict[tuple[str, ...], float]:
        """
        Sum the samples of `name` that carry all of `labels`, for each combination of labels `by`.

        Raises:
            KeyError: the catalogue has no such sample, or not with these labels.
        """
        row = find(name)
        unknown = {*by, *labels} - {*row.labels, "le"}
        if unknown:
            raise KeyError(f"{name} has no label {', '.join(sorted(unknown))}")
        sums: defaultdict[tuple[str, ...], float] = defaultdict(float)
        for family in self.collect():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    sums[tuple(sample.labels[label] for label in by)] += sample.value
        return dict(sums)

    def _note(self, event: Event, source: Source) -> None:
        match event:
            case DeliveryEnded():
                self._note_ended(event, source)
            case MessagesReceived():
                consumer = self._consumer(event.destination, event.consumer)
                consumer.note_received(event)
                self._links.note_received(source, consumer, event.messages)
            case MessagesAcknowledged():
                self._consumer(event.destination, event.consumer).note_acknowledged(event)
            case MessageSent():
                self._note_sent(event)
            case TransactionEnded():
                self._note_transaction(event)
            case LinkOpened():
                self._links.note_opened(source, event.seconds)
            case LinkClosed():
                self._links.note_closed(source, event)
            case LinkRestored():
                self._links.note_restored(source, event.seconds)
            case ErrorReceived():
                self._links.note_error(source)
            case _:
                self._note_rare(event, source)

    def _note_rare(
        self,
        event: AckDropped
        | DeadLetterFailed
        | MessageDeadLettered
        | RedeliveryScheduled
        | SubscriptionClosed
        | SubscriptionOpened,
        source: Source,
    ) -> None:
        consumer = self._consumer(event.destination, event.consumer)
        match event:
            case RedeliveryScheduled():
                consumer.note_redelivery(event)
            case MessageDeadLettered():
                consumer.note_dead_lettered(event)
            case DeadLetterFailed():
                consumer.note_dead_letter_failed()
            case AckDropped():
                consumer.note_ack_dropped(event)
            case SubscriptionOpened():
                consumer.note_subscribed(event)
                self._links.note_subscribed(source, consumer, event)
            case SubscriptionClosed():
                self._links.note_unsubscribed(source, consumer)
            case _:
                assert_never(event)

    def _note_ended(self, event: DeliveryEnded, source: Source) -> None:
        if not 0 <= event.at - self._clock_read_at < 1:
            self._clock_read_at, wall = self._clock()
            self._offset = wall - self._clock_read_at
        consumer = self._consumer(event.destination, event.consumer)
        consumer.note_ended(event, self._offset)
        if event.outcome is not Outcome.ROLLED_BACK:  # else it waits here for its next delivery
            self._links.note_ended(source, consumer)

    def _note_sent(self, event: MessageSent) -> None:
        destination = self._destinations.admit(event.destination)
        for outcome in _SEND_OUTCOMES:
            self._table.tally("jmsx_sent_messages_total", destination=destination, outcome=outcome)
        self._table.tally(
            "jmsx_sent_messages_total", destination=destination, outcome=event.outcome
        ).value += 1
        if event.outcome == "confirmed":
            duration = self._table.distribution(
                "jmsx_send_duration_seconds", destination=destination
            )
            duration.observe(event.at - event.started_at)

    def _note_transaction(self, event: TransactionEnded) -> None:
        outcome = event.outcome.value
        self._table.tally("jmsx_transactions_total", outcome=outcome).value += 1
        duration = self._table.distribution("jmsx_transaction_duration_seconds", outcome=outcome)
        duration.observe(event.at - event.started_at)
        self._table.distribution("jmsx_transaction_messages", kind="send").observe(event.sends)
        self._table.distribution("jmsx_transaction_messages", kind="acknowledgement").observe(
            event.acknowledgements
        )

    def _consumer(self, destination: str, consumer: str) -> ConsumerSeries:
        known = self._consumers.get((destination, consumer))
        if known is not None:
            return known
        labels = (self._destinations.admit(destination), self._consumer_names.admit(consumer))
        if labels not in self._consumers:
            self._consumers[labels] = ConsumerSeries(self._table, *labels, self._open_values)
        return self._consumers[labels]

    def _overflow(self, label: str) -> Tally:
        return self._table.tally("jmsx_label_overflow_total", label=label)

    def _make_process_series(self) -> None:
        for outcome in TransactionOutcome:
            self._table.tally("jmsx_transactions_total", outcome=outcome.value)
            self._table.distribution("jmsx_transaction_duration_seconds", outcome=outcome.value)
        build = {"version": version("jmsx"), "python": platform.python_version()}
        self._table.tally("jmsx_build_info", **build).value = 1
