"""
How many messages a consumer should be given in advance.

A prefetch window is refilled when messages are acknowledged, and the most thrifty way to acknowledge waits until 0.65
of it are done. What is left must last for two seconds: `fill` = rate * 2 s / 0.65, rounded up. More is of no use, and
what lies in the window of a busy consumer is kept from an idle one, and comes again if the process dies. So

- where the busiest consumer did more than 1.5 times its part, `even_fill` holds, which is the same for an even part;
- `latency_cap` is what the handler can do within the target: the last of the window should not be late;
- nobody gets more than 1,000, and who needs more than a second for one message gets one.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import DAY_US, mean
from jmsx_report.consumption import (
    CONSUMPTION,
    LATENCY_TARGET_US,
    PRESENCE,
    SUBSCRIPTION,
    SUBSCRIPTIONS,
)
from jmsx_report.sharing import balance
from jmsx_report.table import Context, Sums, Table

LARGEST: Final = 1000
SLOW_US: Final = 1_000_000
_PLACE: Final = ("service", "broker", "dest")
_GRAIN: Final = (*_PLACE, "consumer", "day_us")
_MINUTE: Final = 60
#: `fill` is n * 200 / 3900 for n messages a minute: in integers, so that it never is rounded up by chance.
_TIMES: Final = 2 * 100
_SHARE: Final = 65 * _MINUTE
#: The consumption is uneven if the busiest consumer did more than 3/2 of an even part.
_EVEN: Final = (3, 2)


def _up(amount: pl.Expr, by: pl.Expr | int) -> pl.Expr:
    return ((amount + by - 1) // by).cast(pl.Int64)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    done = _done(sums, context)
    shares = (
        balance(sums, context)
        .group_by(*_PLACE, (pl.col("five_minutes_us") // DAY_US * DAY_US).alias("day_us"))
        .agg(
            (pl.col("most") * pl.col("consumers")).cast(pl.Int128).sum().alias("most"),
            pl.col("messages").cast(pl.Int128).sum().alias("messages"),
        )
    )
    n = pl.col("n").cast(pl.Int128)
    most, messages = pl.col("most"), pl.col("messages")
    handled, handler = pl.col("handler_n").cast(pl.Int128), pl.col("handler_us")
    told = (
        _rates(done)
        .join(_means(done), on=_GRAIN, nulls_equal=True)
        .join(shares, on=[*_PLACE, "day_us"], how="left", nulls_equal=True)
        .with_columns(
            (pl.col("n") / _MINUTE).alias("rate"),
            _up(n * _TIMES, _SHARE).alias("fill"),
            mean("handler").alias("handler_mean_us"),
            pl.when(handler > 0)
            .then(handled * LATENCY_TARGET_US // pl.when(handler > 0).then(handler))
            .cast(pl.Int64)
            .alias("latency_cap"),
            (most / messages).alias("imbalance"),
            _up(n * _TIMES * messages, _SHARE * most).alias("even_fill"),
            (handler > handled * SLOW_US).fill_null(value=False).alias("slow"),
            (most * _EVEN[1] > messages * _EVEN[0]).fill_null(value=False).alias("uneven"),
        )
    )
    return _advised(told)


def _advised(told: pl.DataFrame) -> pl.DataFrame:
    wanted = pl.when("uneven").then(pl.min_horizontal("fill", "even_fill")).otherwise("fill")
    bound = pl.min_horizontal(wanted, "latency_cap", LARGEST)
    binding = (
        pl.when("slow")
        .then(pl.lit("slow_handler"))
        .when(bound == wanted)
        .then(pl.when(wanted < pl.col("fill")).then(pl.lit("uneven")).otherwise(pl.lit("rate")))
        .when(bound == pl.col("latency_cap"))
        .then(pl.lit("latency"))
        .otherwise(pl.lit("largest"))
    )
    return told.select(
        *_GRAIN,
        "rate",
        "fill",
        "imbalance",
        "even_fill",
        "handler_mean_us",
        "latency_cap",
        "prefetch",
        pl.when("slow").then(1).otherwise(bound).clip(1).cast(pl.Int64).alias("advised"),
        binding.alias("binding"),
    )


def _done(sums: Sums, context: Context) -> pl.DataFrame:
    prefetches = sums[SUBSCRIPTIONS.name].select(*SUBSCRIPTION, "prefetch")
    return (
        context.placed(sums[CONSUMPTION.name])
        .filter(pl.col("done") > 0)
        .with_columns((pl.col("minute_us") // DAY_US * DAY_US).alias("day_us"))
        .join(prefetches, on=SUBSCRIPTION, how="left", nulls_equal=True)
    )


def _rates(done: pl.DataFrame) -> pl.DataFrame:
    """Return the 95th percentile, by nearest rank, of the messages that a consumer did in its minutes with any."""
    return (
        done.group_by(*_GRAIN, "writer", "session_id", "minute_us")
        .agg(pl.col("done").sum())
        .group_by(_GRAIN)
        .agg(
            pl.col("done").sort().get((pl.len().cast(pl.Int64) * 950 + 999) // 1000 - 1).alias("n")
        )
    )


def _means(done: pl.DataFrame) -> pl.DataFrame:
    return done.group_by(_GRAIN).agg(
        pl.col("handler_us", "handler_n").sum(), pl.col("prefetch").max().cast(pl.Int64)
    )


#: How many messages consumers should be given in advance, by day. Columns: the grain, rate (messages a second of one
#: consumer: 95th percentile of the minutes in which it did some), fill (rate * 2 s / 0.65), imbalance (what the busiest
#: consumer did, over an even part; by five minutes, weighed by messages), even_fill (what fill would be at rate /
#: imbalance), handler_mean_us, latency_cap (30 s / handler_mean; null: no time of a handler is known), prefetch (now;
#: the largest of those that did some, null where no subscription's line tells it), advised, binding (what it comes
#: from: rate, uneven, latency, largest, slow_handler).
PREFETCH_ADVICE: Final = Table("prefetch_advice", _GRAIN, (CONSUMPTION, *PRESENCE), _gold)
