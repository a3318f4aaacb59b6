"""A report about a part of the log's time: what was sent then, whenever it was settled."""

from __future__ import annotations

from dataclasses import dataclass

import polars as pl

from jmsx_report.additive import HOUR_US, MINUTE_US
from jmsx_report.brokerbook import STATS, TRAFFIC
from jmsx_report.clocks import Clocks
from jmsx_report.copies import COPIES
from jmsx_report.flows import AGAIN, BUCKET_US, FLOWS, PLANS
from jmsx_report.horizon import NOTES, RUNS
from jmsx_report.table import Sums


@dataclass(frozen=True, slots=True, kw_only=True)
class Period:
    """From `since_us` (included) to `until_us` (excluded), by the time of sending; us, epoch; None: no limit."""

    since_us: int | None = None
    until_us: int | None = None

    @classmethod
    def around(cls, since_us: int | None, until_us: int | None) -> Period:
        """Return the shortest period of whole buckets that has all of that time, as `within` counts no less of it."""
        return cls(
            since_us=None if since_us is None else since_us // BUCKET_US * BUCKET_US,
            until_us=None if until_us is None else -(-until_us // BUCKET_US) * BUCKET_US,
        )

    def touches(self, begin: pl.Expr, length_us: int) -> pl.Expr:
        """Return whether the time that begins then and lasts so long has to do with the period."""
        inside = pl.lit(value=True)
        if self.since_us is not None:
            inside &= begin + length_us > self.since_us
        if self.until_us is not None:
            inside &= begin < self.until_us
        return inside


def flowed(asked: Period) -> pl.Expr:
    """Return whether rows as `FLOWS` are of messages of the period."""
    return (
        pl.when(pl.col("bucket") >= 0)
        .then(asked.touches(pl.col("bucket"), BUCKET_US))
        .otherwise(asked.touches(pl.col("hour_us"), HOUR_US))
    )


def within(sums: Sums, asked: Period, clocks: Clocks) -> Sums:
    """
    Keep of the audit's partials what messages of the period need: to 10 s; to the hour where a key tells no time.

    What was missing of a log before the period cannot be about messages that were sent in it, so it counts as there;
    and the broker's counts begin with it.

    Args:
        sums: the audit's partials.
        asked: when the messages were sent, by the clocks of their senders.
        clocks: of the writers.

    """
    flows = sums[FLOWS.name].filter(flowed(asked))
    again = sums[AGAIN.name].filter(asked.touches(pl.col("hour_us"), HOUR_US))
    moved = sums[COPIES.name].filter(
        asked.touches(pl.col("key_us") // BUCKET_US * BUCKET_US, BUCKET_US)
    )
    limited = {**sums, FLOWS.name: flows, AGAIN.name: again, COPIES.name: moved}
    if asked.since_us is not None:
        # By each writer's own clock; a period is one of the senders' clocks.
        ahead = flows.filter(pl.col("kind") == "send").select(clocks.most().max()).item() or 0
        begin = asked.since_us + clocks.least()
        limited[RUNS.name] = _closed(sums[RUNS.name], begin - ahead)
        limited[NOTES.name] = _forgiven(sums[NOTES.name], begin - ahead)
        limited[STATS.name] = sums[STATS.name].filter(pl.col("ts_us") >= begin)
        limited[TRAFFIC.name] = sums[TRAFFIC.name].filter(pl.col("minute_us") + MINUTE_US > begin)
        limited[PLANS.name] = sums[PLANS.name].filter(pl.col("back_us") >= begin)
    return limited


def _closed(runs: pl.DataFrame, begin: pl.Expr) -> pl.DataFrame:
    """Make one run, from the first number on, of all runs of a writer that begin before the period."""
    earlier = (pl.col("first_us") < begin).fill_null(value=False)
    before = (
        runs.filter(earlier)
        .group_by("writer")
        .agg(
            pl.lit(0, pl.Int64).alias("low"),
            pl.col("high").max(),
            pl.col("first_us").min(),
            pl.col("last_us").max(),
        )
    )
    return pl.concat([before.select(runs.columns), runs.filter(~earlier)])


def _forgiven(notes: pl.DataFrame, begin: pl.Expr) -> pl.DataFrame:
    """Leave out gaps that ended before the period; a writer that died before it just ended."""
    earlier = (pl.col("ts_us") < begin).fill_null(value=False)
    ended = pl.when(earlier & (pl.col("kind") == "log.recovered")).then(pl.lit("log.close"))
    return notes.filter(~(earlier & (pl.col("kind") == "log.gap"))).with_columns(
        ended.otherwise("kind").alias("kind"),
        pl.when(earlier)
        .then(0)
        .otherwise("dropped")
        .cast(notes.schema["dropped"])
        .alias("dropped"),
    )


def stories_within(stories: pl.DataFrame, asked: Period) -> pl.DataFrame:
    """
    Keep the rows of messages of the period; rows as `flows.stories`.

    A bucket of keys that tell no time is of all hours. Both ends of such a message belong to the hour in which it was
    sent, by whatever clocks they were told.
    """
    sent = pl.col("hour_us").filter(pl.col("kind") == "send").min().over("msg_key")
    return stories.filter(
        pl.when(pl.col("bucket") >= 0)
        .then(asked.touches(pl.col("bucket"), BUCKET_US))
        .otherwise(asked.touches(pl.coalesce(sent, "hour_us"), HOUR_US))
    )
