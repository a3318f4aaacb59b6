"""The observer that counts events as metrics, which a `/metrics` endpoint exposes."""

from __future__ import annotations

import platform
import time
from collections import defaultdict
from importlib.metadata import version
from threading import Lock
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from prometheus_client import CollectorRegistry, make_wsgi_app

from jmsx.core.events import (
    AckDropped,
    ClockCompared,
    ConnectFailed,
    ConsumerMeasured,
    DeadLetterFailed,
    DeliveryEnded,
    DeliveryEndedLate,
    ErrorReceived,
    Event,
    LinkClosed,
    LinkMeasured,
    LinkOpened,
    LinkRestored,
    MessageDeadLettered,
    MessagesAcknowledged,
    MessageSent,
    MessagesReceived,
    QueueCounted,
    ReceiptMissed,
    RedeliveryScheduled,
    Source,
    SubscriptionClosed,
    SubscriptionOpened,
    SubscriptionRemoved,
    TransactionEnded,
    TransactionOutcome,
)
from jmsx.drivers.process import tell_of_forks
from jmsx_prometheus.catalogue import find
from jmsx_prometheus.consumers import DEAD_LETTER_REASONS, ConsumerSeries, OpenValues
from jmsx_prometheus.labels import DestinationGuard, LabelGuard, WordGuard
from jmsx_prometheus.links import ANSWERED, DISCONNECT_REASONS, LOOKS, Links
from jmsx_prometheus.logs import LogNumbers, note_log
from jmsx_prometheus.series import SeriesKey, SeriesTable, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from prometheus_client import Metric as Family


#: Events that come with each message: those of one consumer and link are counted together.
_FREQUENT: Final = (MessagesReceived, MessagesAcknowledged, DeliveryEnded)

#: Events that open or close a link or subscription: message events before such an event are counted before it.
_TURNS: Final = (LinkOpened, LinkClosed, SubscriptionOpened, SubscriptionClosed)

#: Frequent events by class, for each source (by its identity), destination and consumer.
_Runs: TypeAlias = "dict[tuple[int, str, str], tuple[Source, dict[type, list[Any]]]]"

#: So many pending events are counted together, by the thread that adds the last one, unless another does so already.
_PENDING: Final = 1024

#: With so many pending events, a thread that adds one waits until it can count them.
_TOO_MANY: Final = 8 * _PENDING

_SEND_OUTCOMES = ("confirmed", "unconfirmed", "error", "rolled_back")


class _OfConsumer(Protocol):
    """What events that name a consumer have in common."""

    @property
    def destination(self) -> str: ...

    @property
    def consumer(self) -> str: ...


class _Sends:
    """The series about messages sent to one destination."""

    def __init__(self, table: SeriesTable, destination: str) -> None:
        self._outcomes = {
            outcome: table.tally(
                "jmsx_sent_messages_total", destination=destination, outcome=outcome
            )
            for outcome in _SEND_OUTCOMES
        }
        self._table, self._destination = table, destination

    def note(self, event: MessageSent, offset: float) -> None:
        """Count one SEND; `offset` is wall clock minus monotonic clock, in seconds."""
        self._outcomes[event.outcome].value += 1
        if event.outcome == "error":
            cause = {"reason": "send_refused", "error_type": "", "consumer": ""}
            where = {"destination": self._destination, **cause}
            self._table.tally("jmsx_failures_total", **where).value += 1
            last = self._table.tally("jmsx_last_failure_timestamp_seconds", **where)
            last.value = event.at + offset
        if event.outcome == "confirmed":
            duration = self._table.distribution(
                "jmsx_send_duration_seconds", destination=self._destination
            )
            duration.observe(event.at - event.started_at)


def read_clocks() -> tuple[float, float]:
    """Return seconds on the monotonic clock and seconds since the epoch, read together."""
    return time.monotonic(), time.time()


class PrometheusObserver:
    """
    Counts all events exactly, and exposes them as Prometheus metrics.

    Events are queued without a lock, and counted about a thousand at a time under one; before each
    read all are counted. Prometheus' objects are made only for a scrape. One observer serves one
    process; its numbers stay readable after `close()`.

    Args:
        registry: the registry to register with; by default a new one, never the global one.
        clock: returns monotonic and wall-clock seconds, read together.
        log: an event log about which metrics are exposed, too: lines written, events dropped and not yet written.
        maximum_destinations: how many destinations get a label value of their own; later ones are `__other__`.
        maximum_consumers: how many consumers get one; later ones are `__other__`.
    """

    def __init__(
        self,
        registry: CollectorRegistry | None = None,
        *,
        clock: Callable[[], tuple[float, float]] = read_clocks,
        log: LogNumbers | None = None,
        maximum_destinations: int = 100,
        maximum_consumers: int = 100,
    ) -> None:
        self._clock = clock
        self._log = log
        monotonic, wall = clock()
        self._offset = wall - monotonic  # seconds from monotonic time to wall time
        self._shown: set[SeriesKey] | None = None  # counters in the last scrape; None: before it
        self._pending: list[tuple[Event, Source]] = []  # not counted yet
        self._lock = Lock()  # for all numbers
        self._table = SeriesTable()
        self._destinations = DestinationGuard(maximum_destinations, self._overflow("destination"))
        self._consumer_names = LabelGuard(maximum_consumers, self._overflow("consumer"))
        reasons = WordGuard(
            20, self._overflow("reason"), known=(*DEAD_LETTER_REASONS, *DISCONNECT_REASONS)
        )
        commands = LabelGuard(20, self._overflow("command"), known=ANSWERED)
        self._open_values = OpenValues(
            error_type=LabelGuard(20, self._overflow("error_type")), reason=reasons
        )
        self._links = Links(
            self._table, LabelGuard(20, self._overflow("broker")), reasons, commands
        )
        self._sends: dict[str, _Sends] = {}  # by destination
        self._consumers: dict[tuple[str, str], ConsumerSeries] = {}  # by destination and consumer
        self._handlers = self._make_handlers()
        self._make_process_series(began=wall)
        self.registry = CollectorRegistry() if registry is None else registry
        self.registry.register(self)
        tell_of_forks(self)
        self.wsgi = make_wsgi_app(self.registry)  #: shows the metrics; `App(health=…)` serves it

    def after_fork(self) -> None:
        """In the child of a fork, go on from the parent's numbers."""
        self._lock = Lock()

    def observe(self, event: Event, source: Source) -> None:
        """Queue `event`, which is counted before any number is read."""
        pending = self._pending
        pending.append((event, source))
        if len(pending) >= _PENDING and self._lock.acquire(blocking=len(pending) >= _TOO_MANY):
            try:
                self._count()
            finally:
                self._lock.release()

    def note_paused(self, destination: str, consumer: str, *, paused: bool) -> None:
        """Show whether the circuit breaker of a consumer is open; an `App` tells it."""
        with self._lock:
            self._consumer(destination, consumer).note_paused(paused=paused)

    def close(self) -> None:
        """Do nothing: the last scrape comes after the last message, so all numbers stay readable."""

    def collect(self) -> Iterator[Family]:
        """
        Return all metrics as they are now; Prometheus' registry calls it for each scrape.

        A counter that is new since the first scrape is shown as 0 once, and with its value from the next scrape on:
        otherwise `increase()` would not see the first failure of its kind.
        """
        table = self._copy()
        with self._lock:
            self._shown = table.begin_at_0(self._shown)
        return table.families()

    def describe(self) -> Iterator[Family]:
        """Return all metrics without numbers: lets a shared registry refuse a second observer."""
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
        for family in self._copy().families():
            for sample in family.samples:
                if sample.name == name and labels.items() <= sample.labels.items():
                    sums[tuple(sample.labels[label] for label in by)] += sample.value
        return dict(sums)

    def _copy(self) -> SeriesTable:
        """Return a copy of all numbers, after counting all pending events."""
        with self._lock:
            now = self._count()
            self._links.note_waiting(self._consumers.values(), now)
            self._table.end(now)
            table = self._table.copy()
        if self._log is not None:
            note_log(table, self._log)
        return table

    def _count(self) -> float:
        """Count what is pending; the lock is held. Returns the time, seconds, monotonic."""
        monotonic, wall = self._clock()
        self._offset = wall - monotonic
        pending = self._pending
        told: list[tuple[Any, Source]] = pending[:]
        del pending[: len(told)]  # like the copy one atomic step: later events stay
        runs: _Runs = {}
        source = destination = consumer = None  # of the event before: mostly the next one's, too
        received: list[Any] = []
        acknowledged: list[Any] = []
        ended: list[Any] = []
        for event, its_source in told:
            cls = type(event)
            # One branch for each class, though they look alike: Python caches attribute look-ups by class at each place
            # in the code, and a place that sees several classes must look up each time.
            if (
                cls is DeliveryEnded
                and its_source is source
                and event.consumer == consumer
                and event.destination == destination
            ):
                ended.append(event)
            elif (
                cls is MessagesReceived
                and its_source is source
                and event.consumer == consumer
                and event.destination == destination
            ):
                received.append(event)
            elif (
                cls is MessagesAcknowledged
                and its_source is source
                and event.consumer == consumer
                and event.destination == destination
            ):
                acknowledged.append(event)
            elif cls in _FREQUENT:
                source, destination, consumer = its_source, event.destination, event.consumer
                key = (id(source), destination, consumer)
                if key not in runs:
                    runs[key] = source, {each: [] for each in _FREQUENT}
                run = runs[key][1]
                received, acknowledged, ended = run.values()
                run[cls].append(event)
            else:
                if cls in _TURNS:
                    self._count_runs(runs)
                    source = None
                self._handlers[cls](event, its_source)
        self._count_runs(runs)
        return monotonic

    def _count_runs(self, runs: _Runs) -> None:
        """Count the events between two turns, and clear them; received messages are counted before ended ones."""
        for (_, destination, name), (source, events) in runs.items():
            consumer = self._consumer(destination, name, sum(map(len, events.values())))
            if received := events[MessagesReceived]:
                consumer.note_received(received)
                self._links.note_received(source, consumer, received)
            if ended := events[DeliveryEnded]:
                consumer.note_ended(ended, self._offset)
                self._links.note_ended(source, consumer, ended)
            if acknowledged := events[MessagesAcknowledged]:
                consumer.note_acknowledged(acknowledged)
        runs.clear()

    def _make_handlers(self) -> dict[type, Callable[[Any, Source], None]]:
        """Return the handlers for all other classes of events."""
        links = self._links
        return {
            MessageSent: lambda event, _: self._note_sent(event),
            TransactionEnded: self._note_transaction,
            LinkOpened: lambda event, source: links.note_opened(source, event, self._offset),
            LinkClosed: lambda event, source: links.note_closed(source, event),
            LinkRestored: lambda event, source: links.note_restored(source, event.seconds),
            ErrorReceived: lambda _, source: links.note_error(source),
            RedeliveryScheduled: self._note_redelivery,
            ConnectFailed: lambda event, source: links.note_failed(source, event),
            LinkMeasured: lambda event, source: links.note_measured(source, event, self._offset),
            ConsumerMeasured: lambda event, source: links.note_consumer(
                source, self._of(event), event
            ),
            ClockCompared: lambda event, source: links.note_clock(source, event),
            ReceiptMissed: lambda event, source: links.note_missed(source, event),
            MessageDeadLettered: lambda event, _: self._of(event).note_dead_lettered(
                event, self._offset
            ),
            DeadLetterFailed: lambda event, _: self._of(event).note_dead_letter_failed(
                event, self._offset
            ),
            AckDropped: lambda event, _: self._of(event).note_ack_dropped(event, self._offset),
            SubscriptionOpened: self._note_subscribed,
            SubscriptionClosed: lambda event, source: links.note_unsubscribed(
                source, self._of(event)
            ),
            DeliveryEndedLate: lambda *_: (
                None
            ),  # as `catalogue.UNCOUNTED` says, and of the next, too
            SubscriptionRemoved: lambda *_: None,
            QueueCounted: lambda event, _: self._note_counted(event),
        }

    def _note_subscribed(self, event: SubscriptionOpened, source: Source) -> None:
        consumer = self._of(event)
        consumer.note_subscribed(event)
        self._links.note_subscribed(source, consumer, event)

    def _note_redelivery(self, event: RedeliveryScheduled, source: Source) -> None:
        consumer = self._of(event)
        consumer.note_redelivery(event)
        self._links.note_redelivery(source, consumer, event)

    def _note_counted(self, event: QueueCounted) -> None:
        destination = self._destinations.admit(event.destination)
        name, until = "jmsx_broker_queue_messages", event.at + LOOKS * event.every
        self._table.show(name, event.size, until=until, destination=destination)

    def _note_sent(self, event: MessageSent) -> None:
        series = self._sends.get(event.destination)
        if series is None:
            destination = self._destinations.admit(event.destination)
            series = _Sends(self._table, destination)
            if destination == event.destination:  # else it shares a label with others
                self._sends[destination] = series
        series.note(event, self._offset)

    def _note_transaction(self, event: TransactionEnded, source: Source) -> None:
        self._links.note_transaction(source)
        outcome = event.outcome.value
        self._table.tally("jmsx_transactions_total", outcome=outcome).value += 1
        duration = self._table.distribution("jmsx_transaction_duration_seconds", outcome=outcome)
        duration.observe(event.at - event.started_at)
        self._table.distribution("jmsx_transaction_messages", kind="send").observe(event.sends)
        self._table.distribution("jmsx_transaction_messages", kind="acknowledgement").observe(
            event.acknowledgements
        )

    def _of(self, event: _OfConsumer) -> ConsumerSeries:
        """Return the series of the consumer that `event` names."""
        return self._consumer(event.destination, event.consumer)

    def _consumer(self, destination: str, consumer: str, events: int = 1) -> ConsumerSeries:
        """Return the series of one consumer; `events` is how many are to be counted, in case it becomes `__other__`."""
        known = self._consumers.get((destination, consumer))
        if known is not None:
            return known
        labels = (
            self._destinations.admit(destination, events),
            self._consumer_names.admit(consumer, events),
        )
        if labels not in self._consumers:
            self._consumers[labels] = ConsumerSeries(self._table, *labels, self._open_values)
        return self._consumers[labels]

    def _overflow(self, label: str) -> Tally:
        return self._table.tally("jmsx_label_overflow_total", label=label)

    def _make_process_series(self, began: float) -> None:
        """Make what every process shows from its first moment, `began` in seconds since the epoch."""
        for outcome in TransactionOutcome:
            self._table.tally("jmsx_transactions_total", outcome=outcome.value)
            self._table.distribution("jmsx_transaction_duration_seconds", outcome=outcome.value)
        build = {"version": version("jmsx"), "python": platform.python_version()}
        self._table.tally("jmsx_build_info", **build).value = 1
        self._table.tally("jmsx_start_timestamp_seconds").value = began
