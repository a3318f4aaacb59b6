"""What batches of acknowledgements save, and what they cost."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_eventlog.schema import FIELDS
from jmsx_report.additive import HOUR_US, Adds, Partial, mean
from jmsx_report.consumption import CONSUMPTION, SUBSCRIPTION, SUBSCRIPTIONS
from jmsx_report.events import Events, named
from jmsx_report.nothing import of_lines
from jmsx_report.table import Context, Sums, Table

_KEYS: Final = (*SUBSCRIPTION, "hour_us", "trigger", "messages")
TRIGGERS: Final = next(one.words["ack.batch"] for one in FIELDS if one.name == "trigger")


@of_lines("ack.batch")
def _frames(events: Events) -> pl.DataFrame:
    hour = (pl.col("ts_us") // HOUR_US * HOUR_US).alias("hour_us")
    return (
        events.coded("ack.batch")
        .group_by(*SUBSCRIPTION, hour, "trigger", pl.col("messages").cast(pl.Int64))
        .agg(pl.len().cast(pl.Int64).alias("frames"))
        .pipe(named)
    )


#: How many ACK frames settled how many messages each: few distinct numbers, so percentiles can be exact.
_FRAMES: Final = Partial("ack_frames", _KEYS, {"frames": Adds.SUM}, _frames)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    grain = ACK_EFFICIENCY.grain
    modes = sums[SUBSCRIPTIONS.name].select(*SUBSCRIPTION, "ack_mode")

    def by_mode(rows: pl.DataFrame) -> pl.DataFrame:
        return context.placed(rows.join(modes, on=SUBSCRIPTION, how="left", nulls_equal=True))

    frames = pl.col("frames")
    acked = (pl.col("messages") * frames).sum()
    rank = (frames.sum() * 950 + 999) // 1000
    batches = (
        by_mode(sums[_FRAMES.name])
        .group_by(*grain, "messages")
        .agg(frames.sum(), *(frames.filter(trigger=name).sum().alias(name) for name in TRIGGERS))
        .sort(*grain, "messages")
        .group_by(grain, maintain_order=True)
        .agg(
            acked.alias("acked"),
            frames.sum(),
            (acked / frames.sum()).alias("batch_mean"),
            pl.col("messages").filter(frames.cum_sum() >= rank).first().alias("batch_p95"),
            pl.col("messages").max().alias("batch_max"),
            (acked - frames.sum()).alias("frames_saved"),
            pl.when(acked > 0).then(1 - frames.sum() / acked).alias("saved_ratio"),
            pl.col(*TRIGGERS).sum(),
        )
    )
    hour = (pl.col("minute_us") // HOUR_US * HOUR_US).alias("hour_us")
    delays = (
        by_mode(sums[CONSUMPTION.name].with_columns(hour))
        .group_by(grain)
        .agg(pl.col("ack_us", "ack_n").sum(), pl.col("ack_max_us").max().alias("ack_delay_max_us"))
        .select(*grain, mean("ack").alias("ack_delay_mean_us"), "ack_delay_max_us")
    )
    return batches.join(delays, on=grain, how="left", nulls_equal=True)


#: ACK frames by hour. Columns: the grain (ack_mode: null where the subscription's line is missing), acked (messages),
#: frames, batch_mean, batch_p95, batch_max (messages a frame; as many come again if a process dies before the frame is
#: written), frames_saved (acked - frames), saved_ratio (1 - frames / acked), frames by what they were written for
#: (each, threshold, idle, explicit, commit, close), ack_delay_mean_us and ack_delay_max_us (from the end of the
#: application's work to the settlement of messages that were done, by hour of settlement).
ACK_EFFICIENCY: Final = Table(
    "ack_efficiency",
    ("service", "broker", "dest", "consumer", "ack_mode", "hour_us"),
    (_FRAMES, SUBSCRIPTIONS, CONSUMPTION),
    _gold,
)
