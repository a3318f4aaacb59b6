"""The recording rules: queries that several alerts use, computed once."""

from __future__ import annotations

from typing import Final

from jmsx_dashboards.model import Recording, Settings

#: Windows of the budgets: fast burn (5m and 1h), slow burn (30m and 6h).
BUDGET_WINDOWS: Final = ("5m", "30m", "1h", "6h")
SETTLED_IN_AN_HOUR: Final = "job_destination:jmsx_settled_messages:increase1h"
#: How many messages wait in a queue, from whichever source.
DEPTH: Final = "destination:jmsx_broker_depth_messages:max"
#: The share of a destination's messages that may become dead letters.
BUDGET: Final = "destination:jmsx_dead_letter_budget:ratio"

_BY_DESTINATION: Final = ("job", "destination")
#: The labels by which the processes and workers of a job differ.
_APART: Final = "instance, worker"


def late_ratio(seconds: float) -> str:
    """Return the recorded name, without its window, of the share of messages that took longer than `seconds`."""
    return f"job_destination:jmsx_end_to_end_latency_over_{seconds:g}s:ratio_rate".replace(".", "_")


def recordings(settings: Settings) -> tuple[Recording, ...]:
    """Return all recording rules of Prometheus."""
    late = (_late(seconds, window) for seconds in settings.seconds for window in BUDGET_WINDOWS)
    return (*map(_dead_lettered, BUDGET_WINDOWS), *late, _allowed(settings), *_FIXED)


def _allowed(settings: Settings) -> Recording:
    """Return a rule that records the budgets, so that the boards are the same for all settings."""
    shares = [
        (f'{{destination="{name}"}}', budget.dead_letters)
        for name, budget in settings.of_destination.items()
    ]
    return Recording(
        record=BUDGET,
        expr=" or ".join(
            f"max by (destination) (jmsx_consumer_info{matchers}) * {share:g}"
            for matchers, share in (*shares, ("", settings.budget.dead_letters))
        ),
        labels=("destination",),
    )


def _dead_lettered(window: str) -> Recording:
    return Recording(
        record=f"job_destination:jmsx_dead_lettered_per_settled:ratio_rate{window}",
        expr=(
            f"sum without ({_APART}, consumer, reason)"
            f" (rate(jmsx_dead_lettered_messages_total[{window}]))"
            f" / sum without ({_APART}, consumer, ack_mode, outcome)"
            f" (rate(jmsx_settled_messages_total[{window}]))"
        ),
        labels=_BY_DESTINATION,
    )


def _late(seconds: float, window: str) -> Recording:
    # Prometheus 2 keeps `le` as the client wrote it, 3 writes it its own way: "30" or "30.0".
    bound = f"{seconds:g}([.]0)?".replace("0.", "0[.]")
    return Recording(
        record=f"{late_ratio(seconds)}{window}",
        expr=(
            f"1 - sum without ({_APART}, consumer, le)"
            f' (rate(jmsx_end_to_end_latency_seconds_bucket{{le=~"{bound}"}}[{window}]))'
            f" / sum without ({_APART}, consumer)"
            f" (rate(jmsx_end_to_end_latency_seconds_count[{window}]))"
        ),
        labels=_BY_DESTINATION,
    )


_FIXED: Final[tuple[Recording, ...]] = (
    Recording(
        record=SETTLED_IN_AN_HOUR,
        expr=(
            f"sum without ({_APART}, consumer, ack_mode, outcome)"
            " (increase(jmsx_settled_messages_total[1h]))"
        ),
        labels=_BY_DESTINATION,
    ),
    Recording(
        record="job_destination_consumer:jmsx_redeliveries_per_processed:ratio_rate10m",
        expr=(
            f"sum without ({_APART}, mode) (rate(jmsx_redeliveries_total[10m]))"
            f" / sum without ({_APART}, outcome) (rate(jmsx_processed_messages_total[10m]))"
        ),
        labels=("job", "destination", "consumer"),
    ),
    Recording(
        record="job_instance_destination:jmsx_prefetch_fill:ratio",
        expr=(
            "sum without (worker, consumer) (jmsx_unsettled_messages)"
            " / sum without (worker, consumer) (jmsx_prefetch_limit_messages > 0)"
        ),
        labels=("job", "instance", "destination"),
    ),
    Recording(
        record="job_instance_destination_consumer:jmsx_negative_latency:ratio_rate15m",
        expr=(
            "sum without (worker) (rate(jmsx_negative_latency_messages_total[15m]))"
            " / sum without (worker) (rate(jmsx_delivery_latency_seconds_count[15m]))"
        ),
        labels=("job", "instance", "destination", "consumer"),
    ),
    Recording(
        record=DEPTH,
        # From jmsx; from Classic by Prometheus' JMX exporter with its activemq.yml; from Artemis by its metrics plugin.
        expr=(
            "max by (destination) (jmsx_broker_queue_messages)"
            ' or label_replace(max by (destination) (activemq_queue_queue_size), "destination",'
            ' "queue://$1", "destination", "(.*)")'
            ' or max by (destination) (label_replace(artemis_message_count, "destination", "queue://$1",'
            ' "queue", "(.*)"))'
        ),
        labels=("destination",),
    ),
)

#: With the default budget.
RECORDINGS: Final = recordings(Settings())
