"""How often messages came again, and whether the planned delays were kept."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import HOUR_US, Adds, Partial, mean, total
from jmsx_report.events import Events, named
from jmsx_report.flows import DONE
from jmsx_report.histogram import bucket, percentile
from jmsx_report.latency import SOCKET
from jmsx_report.nothing import of_lines, of_rows
from jmsx_report.recovery import in_ranges
from jmsx_report.table import Context, Sums, Table

_HERE: Final = ("dest", "consumer", "hour_us")
_KEYS: Final = (*SOCKET, *_HERE)
_IDENTITY: Final = (*SOCKET, "dest", "consumer", "msg_key", "attempt")
_HOUR: Final = (pl.col("ts_us") // HOUR_US * HOUR_US).alias("hour_us")


@of_lines("delivery")
def _attempts(events: Events) -> pl.DataFrame:
    again = (pl.col("attempt") > 1) | pl.col("redelivered").fill_null(value=False)
    late = (pl.col("attempt") > 1) & pl.col("outcome").is_in(DONE)
    return (
        events.coded("delivery")
        .lazy()
        .group_by(*SOCKET, "dest", "consumer", _HOUR)
        .agg(
            pl.len().cast(pl.Int64).alias("deliveries"),
            again.sum().cast(pl.Int64).alias("redelivered"),
            pl.col("attempt").max().alias("attempts_max"),
            late.sum().cast(pl.Int64).alias("succeeded_late"),
        )
        .collect()
        .pipe(named)
    )


@of_lines("delivery", "redelivery.scheduled")
def _both(events: Events) -> pl.DataFrame:
    """
    Return each redelivery by its identity, even if only one of its two lines is in this batch.

    The lines are the plan and the delivery; if one is not here, its columns are null.
    A message that was given back unseen comes again with the same attempt number: all such deliveries count as one
    redelivery, which began when the message was first handed over. `whole`: both lines are here, and no line is missing
    in between, so no other batch can have an earlier delivery.
    """
    place = (*SOCKET, "dest", "consumer", "msg_key")
    scheduled = events.coded("redelivery.scheduled").select(
        *place,
        pl.col("next_attempt").alias("attempt"),
        "seq",
        pl.col("ts_us").alias("scheduled_us"),
        pl.col("delay_us").alias("planned_us"),
    )
    came = (
        events.coded("delivery")
        .lazy()
        .filter(pl.col("attempt") > 1)
        .select(*_IDENTITY, "seq", "ts_us", "start_us")
        .collect()
    )
    begun = pl.col("start_us").is_not_null()
    both = _each(scheduled, events, "scheduled_us", "planned_us", first=pl.lit(value=True)).join(
        _each(came, events, "ts_us", "start_us", first=begun),
        on=_IDENTITY,
        how="full",
        coalesce=True,
        nulls_equal=True,
    )
    return named(both).with_columns(
        (pl.col("range") == pl.col("range_right")).fill_null(value=False).alias("whole")
    )


def _each(rows: pl.DataFrame, events: Events, *times: str, first: pl.Expr) -> pl.DataFrame:
    """
    Return one row for each identity: the least of its times, and the `range` of the first of its lines for which
    `first` holds.
    """
    return (
        in_ranges(rows, events)
        .group_by(_IDENTITY, maintain_order=True)
        .agg(pl.col(times).min(), pl.col("range").filter(first).first())
    )


def _waits(redeliveries: pl.DataFrame) -> pl.DataFrame:
    return redeliveries.with_columns(
        _HOUR, (pl.col("start_us") - pl.col("scheduled_us")).alias("actual_us")
    )


@of_rows
def _kept(redeliveries: pl.DataFrame) -> pl.DataFrame:
    waits = _waits(redeliveries)
    return waits.group_by(_KEYS).agg(
        pl.len().cast(pl.Int64).alias("scheduled"),
        total(waits, "planned_us"),
        pl.col("actual_us").count().cast(pl.Int64).alias("actual_n"),
        total(waits, "actual_us"),
    )


@of_rows
def _late(redeliveries: pl.DataFrame) -> pl.DataFrame:
    return (
        _waits(redeliveries)
        .select(*_KEYS, bucket(pl.col("actual_us") - pl.col("planned_us")).alias("bucket"))
        .filter(pl.col("bucket").is_not_null())
        .group_by(*_KEYS, "bucket")
        .agg(pl.len().cast(pl.Int64).alias("n"))
    )


_ATTEMPTS: Final = Partial(
    "attempts",
    _KEYS,
    {
        "deliveries": Adds.SUM,
        "redelivered": Adds.SUM,
        "attempts_max": Adds.MAX,
        "succeeded_late": Adds.SUM,
    },
    _attempts,
    apart=("writer",),
)
_KEPT: Final = Partial(
    "delays",
    _KEYS,
    {"scheduled": Adds.SUM, "planned_us": Adds.SUM, "actual_n": Adds.SUM, "actual_us": Adds.SUM},
    lambda events: _kept(events.once(_both).filter("whole")),
)
_LATE: Final = Partial(
    "delay_buckets",
    (*_KEYS, "bucket"),
    {"n": Adds.SUM},
    lambda events: _late(events.once(_both).filter("whole")),
)
#: Redeliveries of which another batch may have the other line.
_HALVES: Final = Partial(
    "delay_halves",
    _IDENTITY,
    {"scheduled_us": Adds.MIN, "planned_us": Adds.MIN, "ts_us": Adds.MIN, "start_us": Adds.MIN},
    lambda events: (
        events.once(_both).filter(~pl.col("whole")).drop("whole", "range", "range_right")
    ),
)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    grain = REDELIVERY.grain
    halves = sums[_HALVES.name].drop_nulls(["scheduled_us", "ts_us"])
    attempts = (
        context.placed(sums[_ATTEMPTS.name])
        .group_by(grain)
        .agg(
            pl.col("deliveries", "redelivered", "succeeded_late").sum(),
            pl.col("attempts_max").max(),
        )
    )
    kept = (
        context.placed(pl.concat([sums[_KEPT.name], _kept(halves)]))
        .group_by(grain)
        .agg(pl.col(*_KEPT.adds).sum())
    )
    late = (
        context.placed(pl.concat([sums[_LATE.name], _late(halves)]))
        .group_by(*grain, "bucket")
        .agg(pl.col("n").sum())
        .sort(*grain, "bucket")
        .group_by(grain, maintain_order=True)
        .agg(percentile(950).alias("delay_late_p95_us"))
    )
    return (
        attempts.join(kept, on=grain, how="left", nulls_equal=True)
        .join(late, on=grain, how="left", nulls_equal=True)
        .select(
            *grain,
            "deliveries",
            "redelivered",
            (pl.col("redelivered") / pl.col("deliveries")).alias("ratio"),
            "attempts_max",
            "succeeded_late",
            "scheduled",
            (pl.col("planned_us") / pl.col("scheduled")).alias("delay_planned_mean_us"),
            mean("actual").alias("delay_actual_mean_us"),
            "delay_late_p95_us",
        )
    )


#: How often messages came again, by hour of settlement. Columns: the grain, deliveries, redelivered, ratio (0 to 1),
#: attempts_max, succeeded_late (done at a second or later attempt), scheduled (planned and come on one
#: socket; null: none), delay_planned_mean_us, delay_actual_mean_us, delay_late_p95_us (actual less planned; a busy
#: consumer makes it grow).
REDELIVERY: Final = Table(
    "redelivery", ("service", "broker", *_HERE), (_ATTEMPTS, _KEPT, _LATE, _HALVES), _gold
)
