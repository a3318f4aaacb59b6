"""The lower rows of the overview: what fails, how it is acknowledged, who is connected."""

from __future__ import annotations

from typing import Final

from dashboards.src.model import Panel, Query, Row, View
from dashboards.src.shapes import B, D, I, J, R, quantiles, rates, ratio

FAILURE: Final = Row(
    "Failures",
    (
        ratio(
            "Deliveries whose handler raised",
            "Share of the deliveries that ended with an error."
            " Good is near 0; a step up at a release is the release.",
            f'jmsx_process_duration_seconds_count{{{D},result="error"}}',
            f"jmsx_process_duration_seconds_count{{{D}}}",
            (0.01, "yellow"),
            (0.1, "red"),
        ),
        rates(
            "Errors by type",
            "What the handlers raise, by class. No line is good. One class alone is one cause.",
            "cps",
            f"jmsx_handler_errors_total{{{D}}}",
            "error_type",
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
        quantiles(
            "Back-off",
            "How long redeliveries are put off."
            " At the policy's maximum the messages are close to the dead letter queue.",
            "jmsx_redelivery_delay_seconds",
            D,
        ),
        rates(
            "Redeliveries by mode",
            "Redeliveries decided here, at once or after a delay."
            " Immediate ones in numbers are a busy loop.",
            "cps",
            f"jmsx_redeliveries_total{{{D}}}",
            "mode",
        ),
        rates(
            "Dead letters by reason",
            "Messages given up. `max_redeliveries` is about the handler, `rejected` and"
            " `undecodable` about the message.",
            "mps",
            f"jmsx_dead_lettered_messages_total{{{D}}}",
            "reason",
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
        ),
        Panel(
            title="Consumers that fail most",
            view=View.TABLE,
            description="Deliveries of the shown time whose handler raised: where to begin.",
            unit="short",
            queries=(
                Query(
                    "topk(15, sum by (destination, consumer)"
                    f' (increase(jmsx_process_duration_seconds_count{{{D},result="error"}}{R})))'
                ),
            ),
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

ACKNOWLEDGEMENT: Final = Row(
    "Acknowledgements and transactions",
    (
        Panel(
            title="Messages per ACK frame",
            description="Mean size of a batch."
            " 1 is right for AUTO; with optimize_acknowledge more is faster and risks more duplicates.",
            unit="short",
            queries=(
                Query(
                    f"sum by (destination) (rate(jmsx_ack_batch_messages_sum{{{D}}}{I}))"
                    f" / sum by (destination) (rate(jmsx_ack_batch_messages_count{{{D}}}{I}))",
                    "{{destination}}",
                ),
            ),
        ),
        rates(
            "ACK frames by trigger",
            "What makes it time for an ACK."
            " `idle` far above `threshold` means that batches never fill.",
            "cps",
            f"jmsx_ack_frames_total{{{D}}}",
            "trigger",
        ),
        rates(
            "Acknowledgements dropped",
            "Messages done whose connection was gone before the ACK: the broker delivers them"
            " again. Good is 0.",
            "mps",
            f"jmsx_ack_dropped_messages_total{{{D}}}",
            "reason",
        ),
        rates(
            "Transactions by outcome",
            "Good is committed. Rolled back ones are repeated; an in_doubt one needs a person.",
            "cps",
            f"jmsx_transactions_total{{{J}}}",
            "outcome",
        ),
        quantiles(
            "Transaction time, 95th percentile",
            "From start to end, by outcome. A long one holds all its messages back.",
            "jmsx_transaction_duration_seconds",
            J,
            "outcome",
        ),
    ),
)

CONNECTION: Final = Row(
    "Connections and configuration",
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
            "Disconnects by reason",
            "Sockets that ended. `closed` is our own wish; `heartbeat`, `error_frame`,"
            " `io` and `protocol` are losses, and good is 0.",
            "cps",
            f"jmsx_disconnects_total{{{B}}}",
            "reason",
        ),
        rates(
            "ERROR frames",
            "What the broker complained of. Good is 0. The log has its words.",
            "cps",
            f"jmsx_broker_error_frames_total{{{B}}}",
            "instance",
            "broker",
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
                    f" (jmsx_consumer_info{{{D}}})"
                ),
            ),
        ),
        Panel(
            title="Versions",
            view=View.TABLE,
            description="Which jmsx and Python run, on how many instances. Good is one row.",
            unit="short",
            queries=(Query(f"count by (version, python) (jmsx_build_info{{{J}}})"),),
        ),
        rates(
            "Events missing from the event log",
            "What the event log could not take, by kind of line. Good is 0."
            " Else the disk is full or too slow, and the report cannot vouch for these hours.",
            "cps",
            f"jmsx_event_log_dropped_events_total{{{J}}}",
            "instance",
            "line",
        ),
        rates(
            "Label values replaced",
            "Events counted as `__other__`, because a label has too many values. Good is 0."
            " Raise the observer's limit.",
            "cps",
            f"jmsx_label_overflow_total{{{J}}}",
            "label",
        ),
    ),
)
