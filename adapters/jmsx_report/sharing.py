"""How evenly the consumers of a destination share its messages."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import MINUTE_US, mean
from jmsx_report.consumption import CONSUMPTION, PRESENCE, SUBSCRIPTION, presence
from jmsx_report.table import Context, Sums, Table

WIDTH_US: Final = 5 * MINUTE_US
_PLACE: Final = ("service", "broker", "dest")
_GRAIN: Final = (*_PLACE, "five_minutes_us")


def balance(sums: Sums, context: Context) -> pl.DataFrame:
    """Make the table; `sums` has CONSUMPTION and PRESENCE."""
    return context.shared(_balance, sums)


def _balance(sums: Sums, context: Context) -> pl.DataFrame:
    there = _there(sums)
    active = _active(sums, context, there)
    idle = _idle(active, context.placed(there))
    x = pl.col("done")
    number = pl.col("active") + pl.col("idle")
    # In order of size and with the idle ones in front; Gini's mean of differences without comparing all pairs.
    rank = pl.int_range(1, pl.len() + 1, dtype=pl.Int64) + pl.col("idle")
    weight = 2 * rank - pl.len().cast(pl.Int64) - pl.col("idle") - 1
    return (
        active.join(idle, on=_GRAIN, nulls_equal=True)
        .sort("done")  # rows keep their order within a group, whatever the order of groups
        .group_by(_GRAIN)
        .agg(
            pl.len().cast(pl.Int64).alias("active"),
            pl.col("idle").first(),
            x.sum().alias("messages"),
            x.max().alias("most"),
            (x.cast(pl.Int128) ** 2).sum().alias("squares"),
            (weight.cast(pl.Int128) * x).sum().alias("weighed"),
            mean("buffer").max().alias("buffer_worst_us"),
        )
        .select(
            *_GRAIN,
            number.alias("consumers"),
            "idle",
            "messages",
            "most",
            (pl.col("most") / pl.col("messages")).alias("share_max"),
            (1 / number).alias("share_mean"),
            (pl.col("most") * number / pl.col("messages")).alias("imbalance"),
            (
                (number * pl.col("squares") - pl.col("messages").cast(pl.Int128) ** 2)
                .cast(pl.Float64)
                .sqrt()
                / pl.col("messages")
            ).alias("cv"),
            (pl.col("weighed").cast(pl.Float64) / (number * pl.col("messages"))).alias("gini"),
            "buffer_worst_us",
        )
    )


def _there(sums: Sums) -> pl.DataFrame:
    """Return each SUBSCRIPTION, and the whole intervals that it existed: from `first` to before `end`."""
    first = -(-pl.col("opened_us") // WIDTH_US) * WIDTH_US
    end = pl.col("left_us") // WIDTH_US * WIDTH_US
    return (
        presence(sums)
        .select(*SUBSCRIPTION, first.alias("first"), end.alias("end"))
        .filter(pl.col("first") < pl.col("end"))
    )


def _active(sums: Sums, context: Context, there: pl.DataFrame) -> pl.DataFrame:
    """Return each consumer that did messages: how many, and whether it was subscribed `throughout` the interval."""
    at = pl.col("five_minutes_us")
    return (
        context.placed(sums[CONSUMPTION.name])
        .filter(pl.col("done") > 0)
        .with_columns((pl.col("minute_us") // WIDTH_US * WIDTH_US).alias("five_minutes_us"))
        .join(there, on=SUBSCRIPTION, how="left", nulls_equal=True)
        .with_columns(
            (at.ge(pl.col("first")) & at.lt(pl.col("end"))).fill_null(value=False).alias("in")
        )
        .group_by(*_GRAIN, "writer", "session_id", "consumer")
        .agg(pl.col("done", "buffer_us", "buffer_n").sum(), pl.col("in").any().alias("throughout"))
    )


def _idle(active: pl.DataFrame, there: pl.DataFrame) -> pl.DataFrame:
    """Return, for each interval with an active consumer, how many consumers were subscribed throughout and idle."""
    none, one = pl.lit(0, pl.Int64), pl.lit(1, pl.Int64)
    at = "five_minutes_us"
    seen = active.group_by(_GRAIN).agg(pl.col("throughout").sum().cast(pl.Int64))
    changes = pl.concat(
        [
            there.select(*_PLACE, pl.col("first").alias(at), one.alias("change")),
            there.select(*_PLACE, pl.col("end").alias(at), (-one).alias("change")),
            seen.select(*_PLACE, at, none.alias("change")),
        ]
    )
    counts = (
        changes.group_by(_GRAIN)
        .agg(pl.col("change").sum())
        .sort(_GRAIN)
        .select(*_GRAIN, pl.col("change").cum_sum().over(_PLACE).alias("present"))
    )
    return seen.join(counts, on=_GRAIN, nulls_equal=True).select(
        *_GRAIN, (pl.col("present") - pl.col("throughout")).alias("idle")
    )


#: How evenly a service's consumers of a destination share it, by five minutes in which messages were done. Columns: the
#: grain, consumers (those that did something, and the idle), idle (subscribed all the five minutes, and did nothing),
#: messages (done), most (of one consumer), share_max, share_mean (1 / consumers), imbalance (share_max / share_mean: 1
#: is even), cv (standard deviation / mean), gini (0 is even), buffer_worst_us (how long messages waited in the buffer
#: of that consumer where they waited longest, on average).
CONSUMER_BALANCE: Final = Table("consumer_balance", _GRAIN, (CONSUMPTION, *PRESENCE), balance)
