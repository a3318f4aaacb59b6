"""Limits a report to messages that were sent in a period, whenever they were settled."""

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
        """Return the shortest period of whole buckets that covers that time: `within` can only select whole buckets."""
        return cls(
            since_us=None if since_us is None else since_us // BUCKET_US * BUCKET_US,
            until_us=None if until_us is None else -(-until_us // BUCKET_US) * BUCKET_US,
        )

    def touches(self, begin: pl.Expr, length_us: int) -> pl.Expr:
        """Return whether the span that starts at `begin` and lasts `length_us` overlaps the period."""
        inside = pl.lit(value=True)
        if self.since_us is not None:
            inside &= begin + length_us > self.since_us
        if self.until_us is not None:
            inside &= begin < self.until_us
        return inside


def flowed(asked: Period) -> pl.Expr:
    """Return whether rows of `FLOWS` are about messages that were sent in the period."""
    return (
        pl.when(pl.col("bucket") >= 0)
        .then(asked.touches(pl.col("bucket"), BUCKET_US))
        .otherwise(asked.touches(pl.col("hour_us"), HOUR_US))
    )


def within(sums: Sums, asked: Period, clocks: Clocks) -> Sums:
    """
    Keep the rows of the audit's partials that concern messages of the period.

    It is kept to 10 s, or to the hour for keys without a time.
    Lines that were missing before the period cannot be about messages sent in it, so they do not count as missing; and
    the broker's counts begin with the period.

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
        # `begin` is by each writer's own clock, while the period is by the senders' clocks.
        ahead = flows.filter(pl.col("kind") == "send").select(clocks.most().max()).item() or 0
        begin = asked.since_us + clocks.least()
        limited[RUNS.name] = _closed(sums[RUNS.name], begin - ahead)
        limited[NOTES.name] = _forgiven(sums[NOTES.name], begin - ahead)
        limited[STATS.name] = sums[STATS.name].filter(pl.col("ts_us") >= begin)
        limited[TRAFFIC.name] = sums[TRAFFIC.name].filter(pl.col("minute_us") + MINUTE_US > begin)
        limited[PLANS.name] = sums[PLANS.name].filter(pl.col("back_us") >= begin)
    return limited


def _closed(runs: pl.DataFrame, begin: pl.Expr) -> pl.DataFrame:
    """Close the gaps between a writer's runs that begin before the period: they become one run from number 0."""
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
    """Leave out gaps that ended before the period; a writer that died before it counts as closed."""
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

    A bucket of keys without a time has messages of all hours. Send and deliveries of such a message both belong to the
    hour in which it was sent, whatever the clocks of their writers show.
    """
    sent = pl.col("hour_us").filter(pl.col("kind") == "send").min().over("msg_key")
    return stories.filter(
        pl.when(pl.col("bucket") >= 0)
        .then(asked.touches(pl.col("bucket"), BUCKET_US))
        .otherwise(asked.touches(pl.coalesce(sent, "hour_us"), HOUR_US))
    )
