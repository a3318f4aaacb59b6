"""How transactions ended, and how long they took."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import HOUR_US, Adds, Partial
from jmsx_report.events import Events
from jmsx_report.flows import PLAUSIBLE_US
from jmsx_report.histogram import HISTOGRAM, bucket, counted, with_percentiles
from jmsx_report.latency import PERMILLES
from jmsx_report.nothing import of_lines
from jmsx_report.table import Context, Sums, Table

#: Kind of line -> the column that counts it.
_ENDS: Final = {
    "tx.commit": "committed",
    "tx.rollback": "rolled_back",
    "tx.in_doubt": "in_doubt",
}
_KEYS: Final = ("writer", "session_id", "epoch", "hour_us")
_COUNTED: Final = (*_ENDS.values(), "sends", "acknowledgements")


@of_lines(*_ENDS)
def _ended(events: Events) -> pl.DataFrame:
    plausible = pl.col("ts_us").is_between(*PLAUSIBLE_US) & pl.col("start_us").is_between(
        *PLAUSIBLE_US
    )
    frames = [
        events.of(kind).select(
            *_KEYS[:-1],
            (pl.col("ts_us") // HOUR_US * HOUR_US).alias("hour_us"),
            *(pl.lit(int(name == ends), pl.Int64).alias(name) for name in _ENDS.values()),
            pl.col("tx_sends").cast(pl.Int64).fill_null(0).alias("sends"),
            pl.col("tx_acks").cast(pl.Int64).fill_null(0).alias("acknowledgements"),
            pl.when(plausible).then(pl.col("ts_us") - pl.col("start_us")).alias("took_us"),
        )
        for kind, ends in _ENDS.items()
    ]
    return (
        pl.concat(frames)
        .with_columns(bucket(pl.col("took_us")).alias("took_bucket"))
        .group_by(_KEYS)
        .agg(
            *(pl.col(name).sum() for name in _COUNTED),
            pl.col("took_us").max().alias("longest_us"),
            counted(pl.col("took_bucket")).alias("took_histogram"),
        )
        .with_columns(pl.col("took_histogram").cast(HISTOGRAM))
    )


_TRANSACTIONS: Final = Partial(
    "transaction_ends",
    _KEYS,
    {
        **dict.fromkeys(_COUNTED, Adds.SUM),
        "longest_us": Adds.MAX,
        "took_histogram": Adds.JOIN,
    },
    _ended,
    time="hour_us",
)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    hours = (
        context.placed(sums[_TRANSACTIONS.name])
        .group_by(TRANSACTIONS.grain)
        .agg(
            *(pl.col(name).sum() for name in _COUNTED),
            pl.col("longest_us").max(),
            pl.col("took_histogram").explode(keep_nulls=False),
        )
    )
    return with_percentiles(hours, "took", PERMILLES)


#: Columns: the grain, committed, rolled_back, in_doubt, sends and acknowledgements in them, longest_us, took_histogram
#: and took_{p50, p90, p95, p99}_us, from the first send or delivery to the end.
TRANSACTIONS: Final = Table(
    "transactions", ("service", "broker", "hour_us"), (_TRANSACTIONS,), _gold
)
