"""The five boards: the queries of each panel, what good looks like, and what to do if it does not."""

from __future__ import annotations

from typing import Final

from jmsx_dashboards.model import OVERVIEW, Board, Panel, Query, Row, View
from jmsx_dashboards.recordings import BUDGET, DEPTH
from jmsx_dashboards.shapes import (
    AT_ALL,
    B,
    D,
    I,
    J,
    R,
    gauge,
    mean,
    quantiles,
    rates,
    ratio,
    stat,
)

DESTINATION: Final = "jmsx-destination"
RELIABILITY: Final = "jmsx-reliability"
BROKER: Final = "jmsx-broker"
PIPELINE: Final = "jmsx-pipeline"

_CAUSE: Final = "destination, consumer, reason, error_type"
_FAILED: Final = f"sum by ({_CAUSE}) (increase(jmsx_failures_total{{{D}}}{R})) > 0"
_LAST: Final = f"max by ({_CAUSE}) (jmsx_last_failure_timestamp_seconds{{{D}}})"
_JMSX_ALERTS: Final = 'alertname=~"Jmsx.*",job=~"$job|"'
_FIRING: Final = f'ALERTS{{{_JMSX_ALERTS},alertstate="firing"}}'
_DEPTH: Final = f'{DEPTH}{{destination=~"$destination"}}'

_FIRST_FOLD: Final = Row(
    "",
    (
        stat(
            "Alerts firing",
            "Alerts of jmsx that fire now. Good is 0. Else the list below names them; each leads to its runbook.",
            "short",
            f"count({_FIRING}) or vector(0)",
            AT_ALL,
        ),
        stat(
            "Dead letters",
            "Messages of the shown time that became dead letters. Good is 0. Else the table below says of which"
            " queue, and why.",
            "short",
            f"round(sum(increase(jmsx_dead_lettered_messages_total{{{D}}}{R})))",
            AT_ALL,
        ),
        stat(
            "Oldest message held",
            "How long the oldest message that is held and not settled has been held. Good is about as long as the"
            " slowest handler takes.",
            "s",
            f"max(jmsx_oldest_unsettled_seconds{{{D}}})",
            ((60, "yellow"), (600, "red")),
        ),
        stat(
            "Instances gone",
            "Processes that ran jmsx within the last hour and do not answer Prometheus now. Good is 0."
            " Else see its log; others do its work.",
            "short",
            f"count(up{{{J}}} == 0 and on (job, instance) max_over_time(jmsx_build_info{{{J}}}[1h]))"
            " or vector(0)",
            AT_ALL,
        ),
        stat(
            "Connections down",
            "Processes with a session that lost its socket. Good is 0. Else see the broker board.",
            "short",
            f"count(jmsx_connection_up{{{B}}} == 0) or vector(0)",
            AT_ALL,
            board=BROKER,
        ),
        stat(
            "Transactions in doubt",
            "COMMITs of the shown time that nobody answered. Good is 0. Else find them in the event log.",
            "short",
            f'round(sum(increase(jmsx_transactions_total{{{J},outcome="in_doubt"}}{R})))',
            AT_ALL,
            board=RELIABILITY,
        ),
        Panel(
            title="Failed messages",
            view=View.TABLE,
            description="Each cause of a failure in the shown time: which queue, who, why, by which error, how often,"
            " and when last. Good is no row. The runbook says what to do about that reason.",
            unit="short",
            queries=(
                Query(
                    # Prometheus extrapolates increases; messages are whole
                    f'label_replace(clamp_min(round({_FAILED}), 1), "runbook", "$1", "reason", "(.*)")',
                    "count",
                ),
                Query(
                    f'label_replace({_LAST} * 1000 and on ({_CAUSE}) {_FAILED}, "runbook", "$1", "reason", "(.*)")',
                    "last seen",
                ),
            ),
            columns=(
                "destination",
                "reason",
                "error_type",
                "count",
                "last seen",
                "consumer",
                "runbook",
            ),
            times=("last seen",),
            runbooks={"runbook": "Causes.md#{}"},
            thresholds=AT_ALL,
            width=13,
            height=11,
        ),
        Panel(
            title="Firing alerts",
            view=View.TABLE,
            description="What fires, how grave it is, where, and since when. Good is no row. The name leads to the"
            " runbook: what it means, what to look at first, what to do.",
            unit="short",
            queries=(
                Query(
                    "max by (alertname, severity, destination, instance, broker)"
                    f" (ALERTS_FOR_STATE{{{_JMSX_ALERTS}}} * 1000 and ignoring (alertstate) {_FIRING})",
                    "since",
                ),
            ),
            columns=("alertname", "severity", "since", "destination", "instance", "broker"),
            times=("since",),
            runbooks={"alertname": "{}.md"},
            thresholds=AT_ALL,
            width=11,
            height=6,
        ),
        Panel(
            title="Oldest message not settled",
            view=View.BARGAUGE,
            description="How long the oldest message that is held has been held, by queue, with its back-off. Good is"
            " about as long as the handler takes. A bar that grows is a message that hangs, whatever is settled"
            " beside it.",
            unit="s",
            queries=(
                Query(
                    f"topk(8, max by (destination) (jmsx_oldest_unsettled_seconds{{{D}}}))",
                    "{{destination}}",
                ),
            ),
            thresholds=((60, "yellow"), (600, "red")),
            width=11,
            height=5,
        ),
        rates(
            "Deliveries by fate",
            "How deliveries ended. Good is acknowledged or committed."
            " `rolled_back` comes again, `abandoned` lost its connection.",
            "mps",
            f"jmsx_processed_messages_total{{{D}}}",
            "outcome",
        ),
        ratio(
            "Deliveries whose handler raised",
            "Share of the deliveries that ended with an error, by queue."
            " Good is near 0; a step up at a release is the release.",
            f'jmsx_process_duration_seconds_count{{{D},result="error"}}',
            f"jmsx_process_duration_seconds_count{{{D}}}",
            (0.01, "yellow"),
            (0.1, "red"),
        ),
        quantiles(
            "End-to-end latency",
            "From the broker's timestamp to the ACK. Good is 99 % below 30 s."
            " Else the destination board says where the time goes.",
            "jmsx_end_to_end_latency_seconds",
            D,
            thresholds=((30, "red"),),
        ),
    ),
)

_WORK: Final = Row(
    "Work",
    (
        rates(
            "Settled by instance",
            "Who does the work. Good is an even share. One that settles nothing is stalled or idle.",
            "mps",
            f"jmsx_settled_messages_total{{{D}}}",
            "instance",
            "consumer",
        ),
        gauge(
            "Handlers at work",
            "Share of the time that the open subscriptions' handlers run. Near 100 % more consumers are needed.",
            "percentunit",
            f"sum by (destination, consumer) (rate(jmsx_process_duration_seconds_sum{{{D}}}{I}))"
            f" / sum by (destination, consumer) (jmsx_open_subscriptions{{{D}}})",
            "{{destination}} {{consumer}}",
            thresholds=((0.8, "yellow"), (0.95, "red")),
        ),
        gauge(
            "Messages held",
            "Received and neither settled nor given back: what the broker delivers again if all processes died now."
            " Good is a number that moves. Steady and above 0 means stalled.",
            "short",
            f"sum by (destination) (jmsx_unsettled_messages{{{D}}})",
            "{{destination}}",
        ),
        rates(
            "Received",
            "Messages that came in; `true` are those that the broker calls redelivered."
            " Many of them mean lost connections.",
            "mps",
            f"jmsx_received_messages_total{{{D}}}",
            "redelivered",
        ),
        rates(
            "Sends by outcome",
            "Messages sent. Good is confirmed."
            " `error` is the broker's refusal, `unconfirmed` had no answer or asked for none.",
            "mps",
            f"jmsx_sent_messages_total{{{D}}}",
            "outcome",
        ),
        gauge(
            "Dead-letter budget left",
            "What is left of each queue's budget (0.1 %, if it has none of its own) over the shown time. Below 0 it is"
            " spent: mend before you release.",
            "percentunit",
            f"1 - sum by (destination) (increase(jmsx_dead_lettered_messages_total{{{D}}}{R}))"
            f" / sum by (destination) (increase(jmsx_settled_messages_total{{{D}}}{R}))"
            f" / max by (destination) ({BUDGET})",
            "{{destination}}",
            thresholds=((0.0, "yellow"), (0.5, "green")),
            base_color="red",
        ),
    ),
)

_CONFIGURATION: Final = Row(
    "Configuration",
    (
        stat(
            "Workers started again",
            "Worker processes (`jmsx run`, `--workers`) that died in the shown time, and were started again. Good is 0."
            " Else its log tells by which signal or exit code; what they held came again.",
            "short",
            f"round(sum(increase(jmsx_worker_restarts_total{{{J}}}{R}))) or vector(0)",
            AT_ALL,
        ),
        stat(
            "Workers that do not answer",
            "Worker processes (`jmsx run`, `--workers`) that are there and gave their supervisor no answer; who starts"
            " or ends does not count. Good is 0. Else they hang, and nothing else is shown of them: its `/healthz`"
            " names their processes.",
            "short",
            f"count(jmsx_worker_up{{{J}}} == 0) or vector(0)",
            AT_ALL,
        ),
        Panel(
            title="Consumers",
            view=View.TABLE,
            description="How each consumer is configured, and how many instances run it so. Two rows for one consumer:"
            " a release is under way.",
            unit="short",
            queries=(
                Query(
                    "count by (destination, consumer, ack_mode, optimize_acknowledge, maximum_redeliveries)"
                    f" (jmsx_consumer_info{{{D}}})",
                    "instances",
                ),
            ),
            unbounded="a table of settings",
            width=16,
        ),
        Panel(
            title="Versions",
            view=View.TABLE,
            description="Which jmsx and Python run, on how many instances. Good is one row.",
            unit="short",
            queries=(Query(f"count by (version, python) (jmsx_build_info{{{J}}})", "instances"),),
            unbounded="a table of versions",
        ),
        gauge(
            "Instances",
            "Processes that answer, by job. Good is as many as you started; a step down is a crash or a scale-down.",
            "short",
            f"count by (job) (jmsx_build_info{{{J}}})",
            "{{job}}",
        ),
        rates(
            "Label values replaced",
            "Events counted as `__other__`, because a label has too many values. Good is 0."
            " Raise the observer's limit.",
            "cps",
            f"jmsx_label_overflow_total{{{J}}}",
            "label",
            thresholds=((0.001, "yellow"),),
        ),
    ),
)

_TIME: Final = Row(
    "Where the time goes",
    (
        Panel(
            title="Where the time goes",
            description="Means of a message's time in this process. Buffer: lower the prefetch or add consumers."
            " Handler: see what it calls. ACK: batches wait to be full.",
            unit="s",
            queries=(
                Query(mean("jmsx_buffer_wait_seconds"), "buffer"),
                Query(mean("jmsx_process_duration_seconds"), "handler"),
                Query(mean("jmsx_ack_delay_seconds"), "ACK"),
            ),
            stacked=True,
            unbounded="good depends on the handler",
        ),
        Panel(
            title="Delivery latency",
            view=View.HEATMAP,
            description="From the broker's timestamp to the handler's start. Good is one bright band low down."
            " A second band is a backlog, or a clock that differs.",
            unit="s",
            queries=(
                Query(
                    f"sum by (le) (increase(jmsx_delivery_latency_seconds_bucket{{{D}}}{I}))",
                    "{{le}}",
                ),
            ),
            unbounded="a picture of a distribution",
        ),
        quantiles(
            "Handler time, 95th percentile",
            "How long the handler takes, with and without an error."
            " Errors far slower than the rest are timeouts.",
            "jmsx_process_duration_seconds",
            D,
            "result",
            thresholds=((30, "red"),),
        ),
        gauge(
            "Time since the last message was settled",
            "Good stays near 0 where there is traffic."
            " It grows on a quiet queue too: compare with the messages held.",
            "s",
            "time() - max by (destination, consumer)"
            f" (jmsx_last_settled_timestamp_seconds{{{D}}} > 0)",
            "{{destination}} {{consumer}}",
            thresholds=((600, "red"),),
        ),
        gauge(
            "Prefetch filled",
            "Messages held, per message that may be held. Full while others idle: lower the prefetch.",
            "percentunit",
            f"sum by (instance, destination) (jmsx_unsettled_messages{{{D}}})"
            f" / sum by (instance, destination) (jmsx_prefetch_limit_messages{{{D}}} > 0)",
            "{{instance}} {{destination}}",
            thresholds=((0.8, "yellow"),),
        ),
        gauge(
            "Share of each instance",
            "What part of a queue's messages an instance settles. Good is an even share; one that gets all hoards,"
            " one that gets none is stalled.",
            "percentunit",
            f"sum by (instance, destination) (rate(jmsx_settled_messages_total{{{D}}}{I}))"
            " / on (destination) group_left ()"
            f" sum by (destination) (rate(jmsx_settled_messages_total{{{D}}}{I}))",
            "{{instance}} {{destination}}",
        ),
    ),
)

_FAILURES: Final = Row(
    "Failures",
    (
        rates(
            "Errors by type",
            "What the handlers raise, by queue and class. No line is good. One class alone is one cause.",
            "cps",
            f"jmsx_handler_errors_total{{{D}}}",
            "destination",
            "error_type",
            thresholds=((0.001, "yellow"),),
        ),
        ratio(
            "Redeliveries per delivery",
            "Share of the deliveries that led to another one."
            " Above 20 % the service mostly repeats itself.",
            f"jmsx_redeliveries_total{{{D}}}",
            f"jmsx_processed_messages_total{{{D}}}",
            (0.05, "yellow"),
            (0.2, "red"),
        ),
        rates(
            "Dead letters by reason",
            "Messages given up, by queue. `max_redeliveries` is about the handler, `rejected` and"
            " `undecodable` about the message.",
            "mps",
            f"jmsx_dead_lettered_messages_total{{{D}}}",
            "destination",
            "reason",
            thresholds=((0.001, "red"),),
        ),
        quantiles(
            "Back-off",
            "How long redeliveries are put off, within 25 %."
            " At the policy's maximum the messages are close to the dead letter queue.",
            "jmsx_redelivery_delay_seconds",
            D,
        ),
        gauge(
            "Waiting for their back-off",
            "Messages that failed and wait for their next delivery. Good is few. Where `blocking` is true, what came"
            " later waits behind them.",
            "short",
            f"sum by (destination, blocking) (jmsx_redelivery_pending_messages{{{D}}})",
            "{{destination}} blocking {{blocking}}",
        ),
        rates(
            "Redeliveries by mode",
            "Redeliveries decided here, at once or after a delay."
            " Immediate ones in numbers are a busy loop.",
            "cps",
            f"jmsx_redeliveries_total{{{D}}}",
            "mode",
        ),
        Panel(
            title="Attempts until the end",
            view=View.BARGAUGE,
            description="Deliveries that messages took until they were done. Good is 1. A bar at the policy's limit"
            " plus 1 just made it.",
            unit="short",
            queries=(
                Query(
                    f'sum by (le) (increase(jmsx_delivery_attempts_bucket{{{D},outcome="settled"}}{R}))',
                    "{{le}}",
                ),
            ),
            unbounded="a picture of a distribution",
        ),
        rates(
            "Duplicates by action",
            "Messages that came again. `suppressed` were kept from the handler, `delivered` it has seen though it may"
            " have before. Good is 0; else see the lost connections.",
            "mps",
            f"jmsx_duplicate_messages_total{{{D}}}",
            "action",
        ),
        ratio(
            "Messages from the future",
            "Share of the messages stamped later than they were handled."
            " Above 0 the clocks differ and latencies are too small.",
            f"jmsx_negative_latency_messages_total{{{D}}}",
            f"jmsx_delivery_latency_seconds_count{{{D}}}",
            (0.01, "yellow"),
        ),
    ),
)

_ACKNOWLEDGEMENT: Final = Row(
    "Acknowledgements",
    (
        gauge(
            "Messages per ACK frame",
            "Mean size of a batch. In AUTO one ACK has what was handled within 5 ms: 1 where handlers take longer."
            " With optimize_acknowledge more is faster and risks more duplicates.",
            "short",
            f"sum by (destination) (rate(jmsx_ack_batch_messages_sum{{{D}}}{I}))"
            f" / sum by (destination) (rate(jmsx_ack_batch_messages_count{{{D}}}{I}))",
            "{{destination}}",
        ),
        rates(
            "ACK frames by trigger",
            "What makes it time for an ACK."
            " `idle` far above `threshold` means that batches never fill.",
            "cps",
            f"jmsx_ack_frames_total{{{D}}}",
            "trigger",
        ),
        quantiles(
            "Handler's end to ACK",
            "How long what is done waits for its ACK. Good is far below the back-off of a batch; what waits is"
            " delivered again after a crash.",
            "jmsx_ack_delay_seconds",
            D,
            thresholds=((1, "yellow"),),
        ),
        rates(
            "Acknowledgements dropped",
            "Messages done whose connection was gone before the ACK: the broker delivers them"
            " again. Good is 0.",
            "mps",
            f"jmsx_ack_dropped_messages_total{{{D}}}",
            "destination",
            "reason",
            thresholds=((0.001, "red"),),
        ),
        rates(
            "Dead letters not confirmed",
            "Dead letters that the broker did not take; the originals stay. Good is 0. Else see the broker's log.",
            "cps",
            f"jmsx_dead_letter_failures_total{{{D}}}",
            "destination",
            thresholds=((0.001, "red"),),
        ),
        rates(
            "Answers that did not come",
            "Frames that the broker did not answer in time, by command. Good is 0. Else its store is slow or full.",
            "cps",
            f"jmsx_receipt_timeouts_total{{{B}}}",
            "command",
            thresholds=((0.001, "red"),),
        ),
    ),
)

_TRANSACTIONS: Final = Row(
    "Transactions and sends",
    (
        rates(
            "Transactions by outcome",
            "Good is committed. Rolled back ones are repeated; an in_doubt one needs a person.",
            "cps",
            f"jmsx_transactions_total{{{J}}}",
            "outcome",
        ),
        stat(
            "Transactions in doubt now",
            "COMMITs that lost their connection, whose end the next one tells (commit_markers). Good is 0; a while"
            " above it means that no broker can be reached.",
            "short",
            f"sum(jmsx_transactions_in_doubt{{{J}}}) or vector(0)",
            AT_ALL,
        ),
        quantiles(
            "Transaction time, 95th percentile",
            "From start to end, by outcome. A long one holds all its messages back.",
            "jmsx_transaction_duration_seconds",
            J,
            "outcome",
            thresholds=((10, "yellow"),),
        ),
        quantiles(
            "SEND to RECEIPT, 95th percentile",
            "How long the broker takes to confirm a send, commits included."
            " Above a second its store is slow.",
            "jmsx_send_duration_seconds",
            D,
            "destination",
            thresholds=((1, "red"),),
        ),
    ),
)

_QUEUES: Final = Row(
    "Queues",
    (
        gauge(
            "Messages waiting at the broker",
            "How many messages a queue has, as jmsx asks each minute, or the broker's own exporter tells (Classic by"
            " the JMX exporter, Artemis by its metrics). Good goes down again.",
            "short",
            f"max by (destination) ({_DEPTH})",
            "{{destination}}",
            width=12,
        ),
        Panel(
            title="Backlog: at the broker, or held here?",
            description="All that wait at the broker beside what our processes hold of it, and how much of that waits"
            " or is in work. Waiting here: the handlers are slow, or the prefetch is too large. At the broker alone:"
            " more consumers, or a larger prefetch.",
            unit="short",
            queries=(
                Query(f"sum({_DEPTH})", "at the broker"),
                Query(f"sum(jmsx_unsettled_messages{{{D}}})", "held here"),
                Query(f"sum(jmsx_buffered_messages{{{D}}})", "waiting here"),
                Query(f"sum(jmsx_in_process_messages{{{D}}})", "in work"),
            ),
            unbounded="numbers to compare",
            width=12,
        ),
    ),
)

_CONNECTIONS: Final = Row(
    "Connections",
    (
        Panel(
            title="Connections",
            view=View.STATE_TIMELINE,
            description="1 while all sessions of an instance have their socket to the broker, 0"
            " while one has not.",
            unit="none",
            queries=(
                Query(
                    f"min by (instance, broker) (jmsx_connection_up{{{B}}})",
                    "{{instance}} {{broker}}",
                ),
            ),
            thresholds=((1, "green"),),
            base_color="red",
        ),
        rates(
            "Attempts to connect",
            "Attempts by what came of them. Good is nothing, or some `ok` at a start. `credentials` and `tls` need a"
            " person; `refused` and `timeout` the broker or the network.",
            "cps",
            f"jmsx_connection_attempts_total{{{B}}}",
            "broker",
            "result",
        ),
        rates(
            "Disconnects by reason",
            "Sockets that ended. `closed` is our own wish; `heartbeat`, `error_frame`,"
            " `io` and `protocol` are losses, and good is 0.",
            "cps",
            f"jmsx_disconnects_total{{{B}}}",
            "reason",
        ),
        quantiles(
            "Time until connected again, 95th percentile",
            "From the loss of a socket until there is one again, with every subscription on it, by broker. Good is"
            " about a second; minutes are an outage.",
            "jmsx_reconnect_duration_seconds",
            B,
            "broker",
            thresholds=((60, "red"),),
        ),
        gauge(
            "Silence of the broker",
            "Since when the broker was not heard, heart-beats too. Good is below the period of the heart-beats; it is"
            " measured each 15 s.",
            "s",
            f"time() - min by (instance, broker) (jmsx_last_frame_received_timestamp_seconds{{{B}}})",
            "{{instance}} {{broker}}",
            thresholds=((60, "yellow"),),
        ),
        gauge(
            "Silence that is allowed",
            "How long the broker may be silent until a session drops its socket. Good is tens of seconds; 0 means that"
            " no heart-beats are agreed and a half-open connection is found by nobody.",
            "s",
            f"min by (instance, broker) (jmsx_silence_limit_seconds{{{B}}})",
            "{{instance}} {{broker}}",
        ),
        gauge(
            "Frames not answered yet",
            "Frames that the broker has yet to answer, when last counted. Good is few, now and then. Steady and above"
            " 0: its store is slow or full, or it is stopped.",
            "short",
            f"sum by (instance, broker) (jmsx_unanswered_frames{{{B}}})",
            "{{instance}} {{broker}}",
        ),
        gauge(
            "The broker's clock",
            "What the broker's clock is ahead of a host's, where an app keeps an event log; it is asked each minute."
            " Good is within a few milliseconds. Else latencies are off by that much.",
            "s",
            f"max by (instance, broker) (jmsx_broker_clock_ahead_seconds{{{B}}})",
            "{{instance}} {{broker}}",
            thresholds=((1, "yellow"),),
        ),
        rates(
            "ERROR frames",
            "What the broker complained of. Good is 0. The log has its words.",
            "cps",
            f"jmsx_broker_error_frames_total{{{B}}}",
            "instance",
            "broker",
            thresholds=((0.001, "red"),),
        ),
        rates(
            "Frames",
            "STOMP frames of all sessions, in and out. Far more out than messages: ACKs one by one.",
            "cps",
            f"jmsx_frames_total{{{B}}}",
            "direction",
        ),
        rates(
            "Bytes",
            "What goes over the sockets, before encryption. Good is what the messages weigh.",
            "Bps",
            f"jmsx_link_bytes_total{{{B}}}",
            "direction",
        ),
    ),
)

_LOG: Final = Row(
    "Event log",
    (
        rates(
            "Events missing from the event log",
            "What the event log could not take, by kind of line. Good is 0."
            " Else the disk is full or too slow, and the report cannot vouch for these hours.",
            "cps",
            f"jmsx_event_log_dropped_events_total{{{J}}}",
            "instance",
            "line",
            thresholds=((0.001, "red"),),
        ),
        rates(
            "Lines written",
            "What is written to event logs. Good follows the traffic, three lines a message or so.",
            "cps",
            f"jmsx_event_log_lines_total{{{J}}}",
            "instance",
        ),
        gauge(
            "Events not written yet",
            "Events in memory; a kill of the process costs them. Good is below a thousand.",
            "short",
            f"sum by (instance) (jmsx_event_log_unwritten_events{{{J}}})",
            "{{instance}}",
            thresholds=((10_000, "yellow"),),
        ),
        gauge(
            "Event log not on the disk",
            "Age of the oldest line that was not forced to the disk. Good is about a second.",
            "s",
            f"max by (instance) (jmsx_event_log_unsynced_seconds{{{J}}})",
            "{{instance}}",
            thresholds=((10, "yellow"), (60, "red")),
        ),
        rates(
            "Errors of the event log",
            "Writes, syncs and renames that the disk refused. Good is 0. Else make room.",
            "cps",
            f"jmsx_event_log_errors_total{{{J}}}",
            "instance",
            thresholds=((0.001, "red"),),
        ),
    ),
)

_REPORT: Final = Row(
    "Report",
    (
        stat(
            "Age of the last report",
            "How old the last report is. Good is below the time between two of them.",
            "s",
            "time() - max(jmsx_report_timestamp_seconds)",
            ((3600, "yellow"), (7200, "red")),
        ),
        stat(
            "Behind the living",
            "Since when the verdict does not hold any more: up to then every writer is complete. Good is minutes.",
            "s",
            "time() - max(jmsx_report_horizon_timestamp_seconds)",
            ((3600, "yellow"), (7200, "red")),
        ),
        Panel(
            title="Verdict",
            view=View.TABLE,
            description="What the last report says. Good is balanced. `suspect`: see its page; `unverifiable`: it says"
            " which logs are missing.",
            unit="short",
            queries=(Query("max by (verdict) (jmsx_report_verdict) == 1", "is so"),),
            unbounded="a word",
            height=4,
        ),
        gauge(
            "Messages without an account",
            "Messages that were sent, and of which no log says what became of them. Good is 0. Else the report lists"
            " their keys.",
            "short",
            'max by (destination) (jmsx_report_unaccounted_messages{destination=~"$destination"})',
            "{{destination}}",
            thresholds=AT_ALL,
        ),
        gauge(
            "Messages that nobody has read",
            "Messages that were sent to a destination that no consumer in the log has read. Good is 0, where jmsx"
            " reads all there is.",
            "short",
            'max by (destination) (jmsx_report_unread_messages{destination=~"$destination"})',
            "{{destination}}",
            thresholds=AT_ALL,
        ),
        gauge(
            "Messages settled twice",
            "Messages that were settled more than once. Good is 0. Else the report says by whom and after what.",
            "short",
            'max by (destination) (jmsx_report_duplicate_messages{destination=~"$destination"})',
            "{{destination}}",
            thresholds=AT_ALL,
        ),
        gauge(
            "Rows of the report",
            "Rows that went through each stage. `quarantined` is good at 0: such a line is none of the schema.",
            "short",
            "max by (stage) (jmsx_report_rows)",
            "{{stage}}",
        ),
    ),
)

BOARDS: Final[tuple[Board, ...]] = (
    Board(
        uid=OVERVIEW,
        title="jmsx overview",
        description="Which queue, which cause, since when, and what to do.",
        rows=(_FIRST_FOLD, _WORK, _CONFIGURATION),
        leads_to=DESTINATION,
    ),
    Board(
        uid=DESTINATION,
        title="jmsx destination",
        description="Where the time of a queue's messages goes, and what fails.",
        rows=(_TIME, _FAILURES),
        leads_to=RELIABILITY,
    ),
    Board(
        uid=RELIABILITY,
        title="jmsx reliability",
        description="How messages are acknowledged, committed and confirmed.",
        rows=(_ACKNOWLEDGEMENT, _TRANSACTIONS),
        leads_to=BROKER,
    ),
    Board(
        uid=BROKER,
        title="jmsx broker",
        description="What waits at the broker, Classic or Artemis, and how we are connected to it.",
        rows=(_QUEUES, _CONNECTIONS),
        leads_to=PIPELINE,
    ),
    Board(
        uid=PIPELINE,
        title="jmsx pipeline",
        description="Whether the evidence is complete, and what the report makes of it.",
        rows=(_LOG, _REPORT),
        leads_to=OVERVIEW,
    ),
)
