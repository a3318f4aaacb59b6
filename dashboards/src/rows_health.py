"""The upper rows of the overview: is it well, what goes through, how long it takes."""

from __future__ import annotations

from typing import Final

from dashboards.src.model import Panel, Query, Row, View
from dashboards.src.shapes import AT_ALL, B, D, I, J, R, mean, quantiles, rates, stat

_DEAD: Final = f"jmsx_dead_lettered_messages_total{{{D}}}"
_SETTLED: Final = f"jmsx_settled_messages_total{{{D}}}"

HEALTH: Final = Row(
    "Is it well?",
    (
        stat(
            "Dead letters per settled message",
            "Share of the shown time's messages that were dead-lettered. Good is below 0.1 %."
            " Else see the reasons below.",
            "percentunit",
            f"sum(increase({_DEAD}{R})) / sum(increase({_SETTLED}{R}))",
            ((0.001, "yellow"), (0.0144, "red")),
        ),
        stat(
            "Dead-letter budget left",
            "What is left of a budget of 0.1 % of the shown time's messages; 30 days is the usual time."
            " Below 0 the budget is spent: mend before you release.",
            "percentunit",
            f"1 - sum(increase({_DEAD}{R})) / sum(increase({_SETTLED}{R})) / 0.001",
            ((0.0, "yellow"), (0.5, "green")),
            base_color="red",
        ),
        stat(
            "Messages not settled",
            "Received and neither settled nor given back: what the broker delivers again if all"
            " processes died now. Good is a number that moves. Steady and above 0 means stalled.",
            "short",
            f"sum(jmsx_unsettled_messages{{{D}}})",
            (),
        ),
        stat(
            "Connections down",
            "Processes with a session that lost its socket. Good is 0."
            " Else see the connections below.",
            "short",
            f"count(jmsx_connection_up{{{B}}} == 0) or vector(0)",
            AT_ALL,
        ),
        stat(
            "Transactions in doubt",
            "COMMITs of the shown time that nobody answered. Good is 0."
            " Else find them in the event log.",
            "short",
            f'sum(increase(jmsx_transactions_total{{{J},outcome="in_doubt"}}{R}))',
            AT_ALL,
        ),
        stat(
            "Dead letters not confirmed",
            "Dead letters of the shown time that the broker did not take. Good is 0."
            " Else see the broker's log.",
            "short",
            f"sum(increase(jmsx_dead_letter_failures_total{{{D}}}{R}))",
            AT_ALL,
        ),
    ),
)

TRAFFIC: Final = Row(
    "Traffic",
    (
        rates(
            "Deliveries by fate",
            "How deliveries ended. Good is acknowledged or committed."
            " `rolled_back` comes again, `abandoned` lost its connection.",
            "mps",
            f"jmsx_processed_messages_total{{{D}}}",
            "outcome",
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
            "Settled by instance",
            "Who does the work. Good is an even share."
            " One that settles nothing is stalled or idle.",
            "mps",
            _SETTLED,
            "instance",
            "consumer",
        ),
        rates(
            "Sends by outcome",
            "Messages sent. Good is confirmed."
            " `error` is the broker's refusal, `unconfirmed` had no answer or asked for none.",
            "mps",
            f"jmsx_sent_messages_total{{{D}}}",
            "outcome",
        ),
        Panel(
            title="Handlers at work",
            description="Share of the time that the open subscriptions' handlers run."
            " Near 100 % more consumers are needed.",
            unit="percentunit",
            queries=(
                Query(
                    f"sum by (destination, consumer) (rate(jmsx_process_duration_seconds_sum{{{D}}}{I}))"
                    f" / sum by (destination, consumer) (jmsx_open_subscriptions{{{D}}})",
                    "{{destination}} {{consumer}}",
                ),
            ),
            thresholds=((0.8, "yellow"), (0.95, "red")),
        ),
        Panel(
            title="Oldest message not settled",
            description="How long the oldest message that is held has been held, with its back-off."
            " Good is about as long as the handler takes. One line that climbs is a message that hangs,"
            " whatever is settled beside it.",
            unit="s",
            queries=(
                Query(
                    f"max by (destination, consumer) (jmsx_oldest_unsettled_seconds{{{D}}})",
                    "{{destination}} {{consumer}}",
                ),
            ),
        ),
        Panel(
            title="Prefetch filled",
            description="Messages held, per message that may be held."
            " Full while others idle: lower the prefetch.",
            unit="percentunit",
            queries=(
                Query(
                    f"sum by (instance, destination) (jmsx_unsettled_messages{{{D}}})"
                    f" / sum by (instance, destination) (jmsx_prefetch_limit_messages{{{D}}} > 0)",
                    "{{instance}} {{destination}}",
                ),
            ),
            thresholds=((0.8, "yellow"),),
        ),
    ),
)

LATENCY: Final = Row(
    "Latency",
    (
        quantiles(
            "End-to-end latency",
            "From the broker's timestamp to the ACK. Good is 99 % below 30 s."
            " Else see where the time goes.",
            "jmsx_end_to_end_latency_seconds",
            D,
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
        ),
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
        ),
        quantiles(
            "Handler time, 95th percentile",
            "How long the handler takes, with and without an error."
            " Errors far slower than the rest are timeouts.",
            "jmsx_process_duration_seconds",
            D,
            "result",
        ),
        quantiles(
            "SEND to RECEIPT, 95th percentile",
            "How long the broker takes to confirm a send, commits included."
            " Above a second its store is slow.",
            "jmsx_send_duration_seconds",
            D,
            "destination",
        ),
        Panel(
            title="Time since the last message was settled",
            description="Good stays near 0 where there is traffic."
            " It grows on a quiet queue too: compare with the messages not settled.",
            unit="s",
            queries=(
                Query(
                    "time() - max by (destination, consumer)"
                    f" (jmsx_last_settled_timestamp_seconds{{{D}}} > 0)",
                    "{{destination}} {{consumer}}",
                ),
            ),
            thresholds=((600, "red"),),
        ),
    ),
)
