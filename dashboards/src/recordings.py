"""The recording rules: what alerts compare, computed once."""

from __future__ import annotations

from typing import Final

from dashboards.src.alerts import SETTLED_IN_AN_HOUR
from dashboards.src.model import Recording

#: Windows of the dead-letter budget: fast burn (5m and 1h), slow burn (30m and 6h).
BUDGET_WINDOWS: Final = ("5m", "30m", "1h", "6h")
LATENCY_WINDOWS: Final = ("5m", "1h")

_BY_DESTINATION: Final = ("job", "destination")


def _dead_lettered(window: str) -> Recording:
    return Recording(
        record=f"job_destination:jmsx_dead_lettered_per_settled:ratio_rate{window}",
        expr=(
            "sum without (instance, consumer, reason)"
            f" (rate(jmsx_dead_lettered_messages_total[{window}]))"
            " / sum without (instance, consumer, ack_mode, outcome)"
            f" (rate(jmsx_settled_messages_total[{window}]))"
        ),
        labels=_BY_DESTINATION,
    )


def _late(window: str) -> Recording:
    # Prometheus 2 keeps `le` as the client wrote it, 3 writes it its own way: "30" or "30.0".
    return Recording(
        record=f"job_destination:jmsx_end_to_end_latency_over_30s:ratio_rate{window}",
        expr=(
            "1 - sum without (instance, consumer, le)"
            f' (rate(jmsx_end_to_end_latency_seconds_bucket{{le=~"30([.]0)?"}}[{window}]))'
            " / sum without (instance, consumer)"
            f" (rate(jmsx_end_to_end_latency_seconds_count[{window}]))"
        ),
        labels=_BY_DESTINATION,
    )


RECORDINGS: Final[tuple[Recording, ...]] = (
    *map(_dead_lettered, BUDGET_WINDOWS),
    *map(_late, LATENCY_WINDOWS),
    Recording(
        record=SETTLED_IN_AN_HOUR,
        expr=(
            "sum without (instance, consumer, ack_mode, outcome)"
            " (increase(jmsx_settled_messages_total[1h]))"
        ),
        labels=_BY_DESTINATION,
    ),
    Recording(
        record="job_destination_consumer:jmsx_redeliveries_per_processed:ratio_rate10m",
        expr=(
            "sum without (instance, mode) (rate(jmsx_redeliveries_total[10m]))"
            " / sum without (instance, outcome) (rate(jmsx_processed_messages_total[10m]))"
        ),
        labels=("job", "destination", "consumer"),
    ),
    Recording(
        record="job_instance_destination:jmsx_prefetch_fill:ratio",
        expr=(
            "sum without (consumer) (jmsx_unsettled_messages)"
            " / sum without (consumer) (jmsx_prefetch_limit_messages > 0)"
        ),
        labels=("job", "instance", "destination"),
    ),
    Recording(
        record="job_instance_destination_consumer:jmsx_negative_latency:ratio_rate15m",
        expr=(
            "rate(jmsx_negative_latency_messages_total[15m])"
            " / rate(jmsx_delivery_latency_seconds_count[15m])"
        ),
        labels=("job", "instance", "destination", "consumer"),
    ),
)
