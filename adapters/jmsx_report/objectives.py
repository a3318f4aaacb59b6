"""Whether messages were done in time and how many were given up, against what is allowed."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import DAY_US, HOUR_US
from jmsx_report.consumption import CONSUMPTION, LATENCY_TARGET_US
from jmsx_report.table import Context, Sums, Table

#: The shares of messages that may be late, and that may be dead-lettered; the alerts use the same.
LATE_BUDGET: Final = 0.01
DEAD_BUDGET: Final = 0.001
_COUNTS: Final = ("settled", "dead_lettered", "timed", "late")


def _spent(counted: pl.DataFrame) -> pl.DataFrame:
    """Add the shares (null if there were no messages), and how much of each budget they use up."""

    def share(part: str, of: str) -> pl.Expr:
        return pl.when(pl.col(of) > 0).then(pl.col(part) / pl.col(of))

    return counted.with_columns(
        share("late", "timed").alias("late_share"),
        share("dead_lettered", "settled").alias("dead_letter_share"),
    ).with_columns(
        (pl.col("late_share") / LATE_BUDGET).alias("late_spent"),
        (pl.col("dead_letter_share") / DEAD_BUDGET).alias("dead_letter_spent"),
    )


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    place = ("service", "broker", "dest")
    hours = _spent(
        context.placed(sums[CONSUMPTION.name])
        .group_by(*place, (pl.col("minute_us") // HOUR_US * HOUR_US).alias("hour_us"))
        .agg(pl.col(_COUNTS).sum())
        .filter(pl.col("settled") > 0)
    ).with_columns(
        (pl.col("hour_us") // DAY_US * DAY_US).alias("day_us"),
        pl.max_horizontal("late_spent", "dead_letter_spent").alias("spent"),
    )
    worst = (
        hours.filter(pl.col("spent") > 0)
        .sort("spent", "hour_us", descending=[True, False])
        .group_by(SLO.grain, maintain_order=True)
        .agg(
            pl.col("hour_us").first().alias("worst_hour_us"),
            pl.col("spent").first().alias("worst_hour_spent"),
        )
    )
    days = _spent(hours.group_by(SLO.grain).agg(pl.col(_COUNTS).sum()))
    return days.join(worst, on=SLO.grain, how="left", nulls_equal=True).select(
        *SLO.grain,
        *_COUNTS,
        pl.lit(LATENCY_TARGET_US, pl.Int64).alias("target_us"),
        (1 - pl.col("late_share")).alias("within_share"),
        "late_spent",
        "dead_letter_share",
        "dead_letter_spent",
        "worst_hour_us",
        "worst_hour_spent",
    )


#: What was promised, by destination and day of settlement. Columns: the grain, settled (no longer at the broker),
#: dead_lettered, timed (done, with the broker's timestamp), late (of these, done more than the target after it),
#: target_us (30 s), within_share (0 to 1; null: nothing timed), late_spent (1: the 1 % that may be late is used up),
#: dead_letter_share, dead_letter_spent (1: the 0.1 % that may be given up is used up), worst_hour_us and
#: worst_hour_spent (the hour that spent most of either, as if it were all; null: nothing was spent).
SLO: Final = Table("slo", ("service", "broker", "dest", "day_us"), (CONSUMPTION,), _gold)
