"""
The metric catalogue: every metric that jmsx exports, once.

Code, dashboards, rules, runbooks, the table in `dashboards/prometheus/metrics.md` and the tests
read it here and nowhere else. A row stands here only when something feeds it today: an event of
`jmsx.core.events`, an event log, or a report. No message id, no correlation id and no text of an
exception is ever a label.

Names follow https://prometheus.io/docs/practices/naming: base units, the unit last, then `_total`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from jmsx_prometheus.buckets import (
    ATTEMPTS,
    BACK_OFF_SECONDS,
    BATCH_MESSAGES,
    EXCHANGE_SECONDS,
    LATENCY_SECONDS,
    PROCESS_SECONDS,
)


class Kind(StrEnum):
    """What Prometheus calls the type of a metric."""

    COUNTER = "counter"
    GAUGE = "gauge"
    HISTOGRAM = "histogram"


_UNITLESS: Final = frozenset({"info", "overflow", "up"})


@dataclass(frozen=True, slots=True, kw_only=True)
class Metric:
    """One row of the catalogue: everything about a metric."""

    name: str  #: as exposed; a histogram's samples add `_bucket`, `_sum` and `_count`
    kind: Kind
    labels: tuple[str, ...]
    help: str
    fed_by: tuple[str, ...]  #: the events that change it; empty if no single event does
    buckets: tuple[float, ...] = ()  #: upper bounds in `unit`, without +Inf; histograms only

    @property
    def unit(self) -> str:
        """The unit, from the end of the name; empty for infos, yes-or-no gauges and overflow counters."""
        last = self.name.removesuffix("_total").rpartition("_")[2]
        return "" if last in _UNITLESS else last

    @property
    def samples(self) -> tuple[str, ...]:
        """The names of its samples, as a scrape sees them."""
        if self.kind is Kind.HISTOGRAM:
            return (f"{self.name}_bucket", f"{self.name}_sum", f"{self.name}_count")
        return (self.name,)


#: Each label with its meaning and what limits the number of its values.
LABELS: Final[dict[str, str]] = {
    "action": "`suppressed`, or `delivered`: handed out although it may have been before",
    "blocking": "`true` where the messages behind it wait, too",
    "command": "the STOMP command that was not answered; 20 at most, then `__other__`",
    "direction": "`in` or `out`, seen from this process",
    "ack_mode": "the session's acknowledge mode; one of JMS's",
    "broker": "the broker's address without credentials; at most 20, then `__other__`",
    "consumer": "the listener's name; at most 100, then `__other__`",
    "destination": "as subscribed; temporary ones are `__temp__`, after 100 others `__other__`",
    "error_type": "class name of what the handler raised; at most 20, then `__other__`; empty without one",
    "kind": "`send` or `acknowledgement`",
    "line": "the kind of line that is missing, of those in the schema of the event log",
    "label": "the name of the label whose values grew too many",
    "maximum_redeliveries": "the policy's limit, -1 for none; set once for each consumer",
    "mode": "`client_immediate` or `client_delayed`: without or with a delay",
    "optimize_acknowledge": "`true` or `false`",
    "outcome": "how it ended; the values of `Outcome`, `TransactionOutcome` or of a SEND",
    "python": "the interpreter's version; one for each process",
    "reason": "why, in one word; at most 20 and no sentence, else `__other__`",
    "redelivered": "`true` when the broker's own flag was set",
    "result": "`ok`, or `error` when the handler raised; of an attempt to connect: `ok` or why not",
    "stage": "where rows were counted: `read`, `quarantined`, or the name of a table",
    "trigger": "why the ACK was written; the values of `AckTrigger`",
    "verdict": "`balanced`, `suspect` or `unverifiable`",
    "version": "the version of jmsx; one for each process",
    "worker": "which process of `jmsx run` with `--workers`, from 0",
}

_CONSUMER: Final = ("destination", "consumer")


def _counter(name: str, labels: tuple[str, ...], about: str, *fed_by: str) -> Metric:
    return Metric(name=name, kind=Kind.COUNTER, labels=labels, help=about, fed_by=fed_by)


def _gauge(name: str, labels: tuple[str, ...], about: str, *fed_by: str) -> Metric:
    return Metric(name=name, kind=Kind.GAUGE, labels=labels, help=about, fed_by=fed_by)


def _histogram(
    name: str, buckets: tuple[float, ...], labels: tuple[str, ...], about: str, *fed_by: str
) -> Metric:
    return Metric(
        name=name,
        kind=Kind.HISTOGRAM,
        labels=labels,
        help=about,
        fed_by=fed_by,
        buckets=buckets,
    )


_CONSUMPTION: Final = (
    _counter(
        "jmsx_received_messages_total",
        (*_CONSUMER, "redelivered"),
        "MESSAGE frames received, by the broker's redelivered flag.",
        "MessagesReceived",
    ),
    _counter(
        "jmsx_processed_messages_total",
        (*_CONSUMER, "outcome"),
        "Deliveries that ended, by their fate; one message counts once for each of its deliveries.",
        "DeliveryEnded",
    ),
    _counter(
        "jmsx_settled_messages_total",
        (*_CONSUMER, "ack_mode", "outcome"),
        "Messages that the broker no longer holds for anyone, by how they were settled.",
        "DeliveryEnded",
    ),
    _counter(
        "jmsx_handler_errors_total",
        (*_CONSUMER, "error_type"),
        "Deliveries whose handler raised, by the class of what it raised.",
        "DeliveryEnded",
    ),
    _histogram(
        "jmsx_process_duration_seconds",
        PROCESS_SECONDS,
        (*_CONSUMER, "result"),
        "Time that the handler took; without deliveries that were expired, released or abandoned.",
        "DeliveryEnded",
    ),
    _histogram(
        "jmsx_delivery_latency_seconds",
        LATENCY_SECONDS,
        _CONSUMER,
        "From the broker's timestamp to the handler's start, on the first delivery of a message.",
        "DeliveryEnded",
    ),
    _histogram(
        "jmsx_end_to_end_latency_seconds",
        LATENCY_SECONDS,
        _CONSUMER,
        "From the broker's timestamp to the moment the message was acknowledged or committed.",
        "DeliveryEnded",
    ),
    _histogram(
        "jmsx_buffer_wait_seconds",
        LATENCY_SECONDS,
        _CONSUMER,
        "From the frame's arrival to the handler's start, on the first delivery of a message.",
        "DeliveryEnded",
    ),
    _histogram(
        "jmsx_ack_delay_seconds",
        LATENCY_SECONDS,
        _CONSUMER,
        "From the handler's end to the ACK or COMMIT of the message.",
        "DeliveryEnded",
    ),
    _counter(
        "jmsx_negative_latency_messages_total",
        _CONSUMER,
        "Messages stamped later than they were handled: clocks differ; their latency counts as 0.",
        "DeliveryEnded",
    ),
    _gauge(
        "jmsx_unsettled_messages",
        _CONSUMER,
        "Messages received and not settled, released or abandoned: what a crash delivers again.",
        "MessagesReceived",
        "DeliveryEnded",
        "LinkClosed",
        "SubscriptionClosed",
    ),
    _gauge(
        "jmsx_buffered_messages",
        _CONSUMER,
        "Messages that wait here to be handed out, back-offs too, or for the broker to move them; they are"
        " counted every 15 s.",
        "ConsumerMeasured",
        "LinkClosed",
        "SubscriptionClosed",
    ),
    _gauge(
        "jmsx_in_process_messages",
        _CONSUMER,
        "Messages that the application has, also done ones that are not yet acknowledged; they are counted every 15 s.",
        "ConsumerMeasured",
        "LinkClosed",
        "SubscriptionClosed",
    ),
    _gauge(
        "jmsx_oldest_unsettled_seconds",
        _CONSUMER,
        "How long ago the oldest of the unsettled messages was received; 0 where there are none.",
    ),
    _gauge(
        "jmsx_last_settled_timestamp_seconds",
        _CONSUMER,
        "When a message was last settled, as seconds since the epoch; 0 before the first.",
        "DeliveryEnded",
    ),
)

_ACKNOWLEDGEMENT: Final = (
    _counter(
        "jmsx_ack_frames_total",
        (*_CONSUMER, "trigger"),
        "ACK frames written, by what made it time for one.",
        "MessagesAcknowledged",
    ),
    _histogram(
        "jmsx_ack_batch_messages",
        BATCH_MESSAGES,
        _CONSUMER,
        "Messages settled by one ACK frame.",
        "MessagesAcknowledged",
    ),
    _counter(
        "jmsx_ack_dropped_messages_total",
        (*_CONSUMER, "reason"),
        "Messages whose acknowledgement was not sent; the broker delivers them again.",
        "AckDropped",
    ),
)

_FAILURE: Final = (
    _counter(
        "jmsx_failures_total",
        (*_CONSUMER, "reason", "error_type"),
        "What went wrong with messages, by why; a refused send has no consumer.",
        "MessageDeadLettered",
        "DeadLetterFailed",
        "DeliveryEnded",
        "AckDropped",
        "MessageSent",
    ),
    _gauge(
        "jmsx_last_failure_timestamp_seconds",
        (*_CONSUMER, "reason", "error_type"),
        "When that last happened, as seconds since the epoch.",
        "MessageDeadLettered",
        "DeadLetterFailed",
        "DeliveryEnded",
        "AckDropped",
        "MessageSent",
    ),
    _counter(
        "jmsx_duplicate_messages_total",
        (*_CONSUMER, "action"),
        "Messages that were, or may have been, handled before: kept from the handler or not.",
        "DeliveryEnded",
    ),
    _counter(
        "jmsx_redeliveries_total",
        (*_CONSUMER, "mode"),
        "Redeliveries that jmsx decided; those of the broker are received with redelivered=true.",
        "RedeliveryScheduled",
    ),
    _gauge(
        "jmsx_redelivery_pending_messages",
        (*_CONSUMER, "blocking"),
        "Messages received that wait for the end of their back-off before they are delivered again.",
        "RedeliveryScheduled",
        "LinkClosed",
        "SubscriptionClosed",
    ),
    _histogram(
        "jmsx_redelivery_delay_seconds",
        BACK_OFF_SECONDS,
        _CONSUMER,
        "The back-off decided for a redelivery.",
        "RedeliveryScheduled",
    ),
    _histogram(
        "jmsx_delivery_attempts",
        ATTEMPTS,
        (*_CONSUMER, "outcome"),
        "Deliveries that a message took until it was acknowledged, committed or dead-lettered.",
        "DeliveryEnded",
        "MessageDeadLettered",
    ),
    _counter(
        "jmsx_dead_lettered_messages_total",
        (*_CONSUMER, "reason"),
        "Messages given to a dead letter queue, by why.",
        "MessageDeadLettered",
    ),
    _counter(
        "jmsx_dead_letter_failures_total",
        _CONSUMER,
        "Dead letters that could not be confirmed; the original stays unacknowledged.",
        "DeadLetterFailed",
    ),
)

_CONFIGURATION: Final = (
    _gauge(
        "jmsx_open_subscriptions",
        _CONSUMER,
        "Subscriptions confirmed by the broker and not closed: what can work at once.",
        "SubscriptionOpened",
        "SubscriptionClosed",
        "LinkClosed",
    ),
    _gauge(
        "jmsx_consumer_paused",
        _CONSUMER,
        "1 while a CircuitBreaker has the handler not called, else 0; of consumers that have one.",
    ),
    _gauge(
        "jmsx_prefetch_limit_messages",
        _CONSUMER,
        "The prefetch of the open subscriptions, added up.",
        "SubscriptionOpened",
        "SubscriptionClosed",
        "LinkClosed",
    ),
    _gauge(
        "jmsx_consumer_info",
        (*_CONSUMER, "ack_mode", "optimize_acknowledge", "maximum_redeliveries"),
        "How a consumer was configured; the value is 1.",
        "SubscriptionOpened",
    ),
    _gauge(
        "jmsx_start_timestamp_seconds",
        (),
        "Since when this process counts, as seconds since the epoch.",
    ),
    _gauge(
        "jmsx_build_info",
        ("version", "python"),
        "The jmsx and the Python that run; the value is 1.",
    ),
)

_PRODUCTION: Final = (
    _counter(
        "jmsx_transactions_total",
        ("outcome",),
        "Transactions that ended, by how.",
        "TransactionEnded",
    ),
    _gauge(
        "jmsx_transactions_in_doubt",
        (),
        "COMMITs that lost their connection and whose end is not known yet: the next one tells it (commit_markers).",
        "LinkClosed",
        "TransactionEnded",
    ),
    _histogram(
        "jmsx_transaction_duration_seconds",
        PROCESS_SECONDS,
        ("outcome",),
        "From a transaction's start to its end.",
        "TransactionEnded",
    ),
    _histogram(
        "jmsx_transaction_messages",
        BATCH_MESSAGES,
        ("kind",),
        "Sends and acknowledgements in one transaction.",
        "TransactionEnded",
    ),
    _counter(
        "jmsx_sent_messages_total",
        ("destination", "outcome"),
        "Messages sent: confirmed by a receipt or commit, refused, or without an answer.",
        "MessageSent",
    ),
    _histogram(
        "jmsx_send_duration_seconds",
        EXCHANGE_SECONDS,
        ("destination",),
        "From SEND to its RECEIPT, or to the end of the COMMIT that it was part of.",
        "MessageSent",
    ),
)

_LINK: Final = (
    _gauge(
        "jmsx_connection_up",
        ("broker",),
        "1 while every session that is not closed has its socket, 0 when one lost it.",
        "LinkOpened",
        "LinkClosed",
    ),
    _counter(
        "jmsx_connection_attempts_total",
        ("broker", "result"),
        "Attempts to connect to a broker, by how they ended.",
        "LinkOpened",
        "ConnectFailed",
    ),
    _gauge(
        "jmsx_last_frame_received_timestamp_seconds",
        ("broker",),
        "When the broker was last heard, heart-beats too, by the session that waits for longest.",
        "LinkOpened",
        "LinkMeasured",
        "LinkClosed",
    ),
    _gauge(
        "jmsx_silence_limit_seconds",
        ("broker",),
        "Silence after which a session drops its socket; 0 where no heart-beats are agreed.",
        "LinkMeasured",
    ),
    _counter(
        "jmsx_frames_total",
        ("broker", "direction"),
        "STOMP frames on sockets; they are counted every 15 s.",
        "LinkMeasured",
    ),
    _counter(
        "jmsx_link_bytes_total",
        ("broker", "direction"),
        "Bytes on sockets, heart-beats too, before encryption; they are counted every 15 s.",
        "LinkMeasured",
    ),
    _counter(
        "jmsx_receipt_timeouts_total",
        ("broker", "command"),
        "Frames that the broker has not answered in the time that it had.",
        "ReceiptMissed",
    ),
    _gauge(
        "jmsx_unanswered_frames",
        ("broker",),
        "Frames that the broker has yet to answer; they are counted every 15 s.",
        "LinkMeasured",
        "LinkClosed",
    ),
    _gauge(
        "jmsx_broker_clock_ahead_seconds",
        ("broker",),
        "What the broker's clock was ahead of this host's when it last showed it; negative: behind. Gone after three"
        " looks in vain.",
        "ClockCompared",
    ),
    _histogram(
        "jmsx_connect_duration_seconds",
        EXCHANGE_SECONDS,
        ("broker",),
        "How long it took until the broker said CONNECTED.",
        "LinkOpened",
    ),
    _histogram(
        "jmsx_reconnect_duration_seconds",
        BACK_OFF_SECONDS,
        ("broker",),
        "From the loss of a socket until there was one again, with every subscription on it.",
        "LinkRestored",
    ),
    _counter(
        "jmsx_disconnects_total",
        ("broker", "reason"),
        "Sockets that ended, by why; `closed` is our own wish.",
        "LinkClosed",
    ),
    _counter(
        "jmsx_broker_error_frames_total",
        ("broker",),
        "ERROR frames from the broker.",
        "ErrorReceived",
    ),
    _gauge(
        "jmsx_broker_queue_messages",
        ("destination",),
        "Messages in a queue, at consumers too, when the broker last told its counts. Gone after three looks in vain.",
        "QueueCounted",
    ),
    _counter(
        "jmsx_label_overflow_total",
        ("label",),
        "Events whose label value was replaced, because there were too many values.",
    ),
)

#: Read from an event log at each scrape, if the observer was given one.
_LOG: Final = (
    _counter(
        "jmsx_event_log_lines_total",
        (),
        "Lines that this process has written to its event log.",
    ),
    _counter(
        "jmsx_event_log_dropped_events_total",
        ("line",),
        "Events that are missing from the event log, as the disk or the writer did not keep up.",
    ),
    _gauge(
        "jmsx_event_log_unwritten_events",
        (),
        "Events in memory that are not yet written; a kill of the process costs them.",
    ),
    _gauge(
        "jmsx_event_log_unsynced_seconds",
        (),
        "Age of the oldest line that is written and not yet forced to the disk.",
    ),
    _counter(
        "jmsx_event_log_errors_total",
        (),
        "Writes, syncs and renames of the event log that the disk refused.",
    ),
)

METRICS: Final[tuple[Metric, ...]] = (
    *_CONSUMPTION,
    *_ACKNOWLEDGEMENT,
    *_FAILURE,
    *_CONFIGURATION,
    *_PRODUCTION,
    *_LINK,
    *_LOG,
)

#: Metrics that a report writes about its own outcome; no observer exports them.
PIPELINE: Final[tuple[Metric, ...]] = (
    _gauge("jmsx_report_timestamp_seconds", (), "When the report was made."),
    _gauge(
        "jmsx_report_horizon_timestamp_seconds",
        (),
        "Up to when every writer is complete, so that the verdict holds; absent: nowhere.",
    ),
    _gauge("jmsx_report_verdict", ("verdict",), "1 for the verdict of the report, 0 for others."),
    _gauge("jmsx_report_rows", ("stage",), "Rows that went through each stage of the report."),
    _gauge(
        "jmsx_report_unaccounted_messages",
        ("destination",),
        "Messages that were sent, and of which the log does not say what became of them.",
    ),
    _gauge(
        "jmsx_report_unread_messages",
        ("destination",),
        "Messages that were sent to a destination, and that no consumer in the log has read.",
    ),
    _gauge(
        "jmsx_report_duplicate_messages",
        ("destination",),
        "Messages that were settled more than once.",
    ),
)

#: Metrics that `jmsx run --workers` adds to those of its workers (`jmsx/cli/supervisor.py`).
SUPERVISOR: Final[tuple[Metric, ...]] = (
    _gauge(
        "jmsx_worker_up",
        ("worker",),
        "1 for a worker that answers this scrape, 0 for one that does not, and neither starts nor ends.",
    ),
    _counter("jmsx_worker_restarts_total", (), "Workers that died and were started again."),
    _gauge("jmsx_workers_running", (), "Worker processes."),
)

#: Metrics that no panel and no alert shows, and why.
RAW_ONLY: Final[dict[str, str]] = {
    "jmsx_transaction_messages": "how an application cuts its work; nobody needs it at night",
    "jmsx_consumer_paused": "of consumers with a CircuitBreaker alone; /readyz says it too, and why",
    "jmsx_connect_duration_seconds": "read once, when somebody asks why a start is slow",
}

BY_NAME: Final[dict[str, Metric]] = {metric.name: metric for metric in METRICS}

#: By sample name, with those of reports and supervisors: all metrics that dashboards and rules may use.
SHOWN: Final[dict[str, Metric]] = {
    sample: metric for metric in (*METRICS, *PIPELINE, *SUPERVISOR) for sample in metric.samples
}

BY_SAMPLE: Final[dict[str, Metric]] = {
    sample: metric for metric in METRICS for sample in metric.samples
}


#: Events that change no metric, and why.
UNCOUNTED: Final = {
    "DeliveryEndedLate": "its delivery is counted as abandoned, and its message comes again: the event log has it",
    "SubscriptionRemoved": "an act of a person or a program, once in the life of a subscription: the event log has it",
}


def find(sample: str) -> Metric:
    """
    Return the row of the metric that a sample belongs to.

    Raises:
        KeyError: the catalogue has no such sample, so nothing exports it.
    """
    if sample not in BY_SAMPLE:
        raise KeyError(f"{sample} is not in the metric catalogue")
    return BY_SAMPLE[sample]
