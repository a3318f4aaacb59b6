"""Where the time of finished deliveries goes."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import MINUTE_US, Adds, Partial, mean, total
from jmsx_report.events import Events, named
from jmsx_report.flows import DONE
from jmsx_report.histogram import HISTOGRAM, bucket, counted, with_percentiles
from jmsx_report.nothing import of_lines
from jmsx_report.table import Context, Sums, Table

#: Percentiles of every latency, in per mille.
PERMILLES: Final = {"p50": 500, "p90": 900, "p95": 950, "p99": 990}

#: From and to which instants a delivery is timed; the first four add up to `end_to_end`. All in microseconds.
SPANS: Final = {
    "queue": ("sent_us", "recv_us"),
    "buffer": ("recv_us", "start_us"),
    "handler": ("start_us", "end_us"),
    "ack": ("end_us", "ts_us"),
    "end_to_end": ("sent_us", "ts_us"),
}
#: The spans that have a histogram, and so percentiles.
MEASURED: Final = ("end_to_end", "handler")

#: The columns that identify the socket of a line; `Context` knows its service and broker.
SOCKET: Final = ("writer", "session_id", "epoch")
_HERE: Final = ("dest", "consumer", "minute_us")
_KEYS: Final = (*SOCKET, *_HERE)


@of_lines("delivery")
def _spans(events: Events) -> pl.DataFrame:
    timed = {name: pl.col(end) - pl.col(start) for name, (start, end) in SPANS.items()}
    done = (
        events.coded("delivery")
        .lazy()
        .filter(pl.col("outcome").is_in(DONE))
        .select(
            *SOCKET,
            "dest",
            "consumer",
            (pl.col("ts_us") // MINUTE_US * MINUTE_US).alias("minute_us"),
            **timed,
        )
        .with_columns(bucket(pl.col(name)).alias(f"{name}_bucket") for name in MEASURED)
        .collect()
    )
    return (
        done.group_by(_KEYS)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            *(pl.col(name).count().cast(pl.Int64).alias(f"{name}_n") for name in SPANS),
            *(total(done, name).alias(f"{name}_us") for name in SPANS),
            *(counted(pl.col(f"{name}_bucket")).alias(f"{name}_histogram") for name in MEASURED),
        )
        .with_columns(pl.col(f"{name}_histogram").cast(HISTOGRAM) for name in MEASURED)
        .pipe(named)
    )


_TIMES: Final = Partial(
    "delivery_spans",
    _KEYS,
    {
        "n": Adds.SUM,
        **{f"{name}_n": Adds.SUM for name in SPANS},
        **{f"{name}_us": Adds.SUM for name in SPANS},
        **{f"{name}_histogram": Adds.JOIN for name in MEASURED},
    },
    _spans,
    time="minute_us",
    apart=("writer", "minute_us"),
)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    grain = DELIVERY_LATENCY.grain
    off = context.clocks.believed().abs().alias("clock_off_us")
    spans = (
        context.placed(sums[_TIMES.name])
        .with_columns(off)
        .group_by(grain)
        .agg(
            pl.col("n").sum(),
            pl.col("clock_off_us").max(),
            *(pl.col(f"{name}_us", f"{name}_n").sum() for name in SPANS),
            *(pl.col(f"{name}_histogram").explode(keep_nulls=False) for name in MEASURED),
        )
        .select(
            *grain,
            "n",
            "clock_off_us",
            *(mean(name).alias(f"{name}_mean_us") for name in SPANS),
            *(f"{name}_histogram" for name in MEASURED),
        )
    )
    for name in MEASURED:
        spans = with_percentiles(spans, name, PERMILLES)
    return spans


#: Where the time of finished deliveries goes, by minute of settlement. Columns: the grain, n, clock_off_us, {queue,
#: buffer, handler, ack, end_to_end}_mean_us, {end_to_end, handler}_{p50, p90, p95, p99}_us, {end_to_end,
#: handler}_histogram. `queue` and `end_to_end` compare the broker's clock with ours and are null where the broker gave
#: no timestamp. They are not corrected; `clock_off_us` says by how much, at the most, the clock of one of the
#: consumers is proven to be wrong.
DELIVERY_LATENCY: Final = Table(
    "delivery_latency",
    ("service", "broker", *_HERE),
    (_TIMES,),
    _gold,
)
