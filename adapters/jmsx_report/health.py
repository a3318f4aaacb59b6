"""How complete the log is: each writer's missing lines, repeated ones, and those in quarantine."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import Adds, Partial
from jmsx_report.horizon import NOTES, RUNS, completeness
from jmsx_report.table import Context, Sums, Table
from jmsx_report.writers import SOCKETS

#: Ranges of consecutive line numbers, by segment; missing lines are between them. A complete segment has one row.
RANGES: Final = Partial(
    "ranges",
    ("segment", "writer", "low", "high"),
    {"first_us": Adds.MIN, "last_us": Adds.MAX, "times": Adds.SUM},
    lambda events: events.about("ranges"),
)
#: Lines by segment.
FILES: Final = Partial(
    "files",
    ("segment",),
    {"lines": Adds.SUM, "aside": Adds.SUM, "repeated": Adds.SUM},
    lambda events: events.about("files"),
)
#: Each line that is in quarantine.
QUARANTINED: Final = Partial(
    "quarantine", ("path", "line", "what", "why"), {}, lambda events: events.about("quarantine")
)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    found = completeness(sums[RUNS.name], sums[NOTES.name])
    whole = (
        sums[RANGES.name]
        .group_by("writer")
        .agg(
            pl.col("segment").n_unique().cast(pl.Int64).alias("segments"),
            (pl.col("high") - pl.col("low") + 1).sum().cast(pl.Int64).alias("read"),
            pl.col("first_us").min(),
            pl.col("last_us").max(),
        )
    )
    gaps = found.holes.group_by("writer").agg(pl.len().cast(pl.Int64).alias("gaps"))
    dropped = (
        pl.concat([frame.select("writer", "dropped") for frame in (found.drops, found.untold)])
        .group_by("writer")
        .agg(pl.col("dropped").sum())
    )
    brokers = sums[SOCKETS.name].select("writer", "broker").unique()
    several = pl.col("writer").is_duplicated() | pl.col("broker").is_null()
    brokers = pl.concat(
        [
            brokers.filter(~several),
            brokers.filter(several)
            .group_by("writer")
            .agg(pl.col("broker").drop_nulls().sort().str.join(",")),
        ]
    )
    return (
        found.writers.select("writer", "lines", "expected", "ended")
        .join(whole, on="writer", how="left")
        .join(gaps, on="writer", how="left")
        .join(dropped, on="writer", how="left")
        .join(brokers, on="writer", how="left")
        .join(context.writers, on="writer", how="left")
        .select(
            "service",
            "broker",
            "writer",
            "host",
            "version",
            "segments",
            "lines",
            "expected",
            (pl.col("expected") - pl.col("lines")).alias("missing"),
            pl.col("gaps").fill_null(0),
            # A line that is in several segments was counted in each.
            (pl.col("read") - pl.col("lines")).alias("repeated"),
            pl.col("dropped").fill_null(0),
            "ended",
            "first_us",
            "last_us",
        )
    )


#: How whole each writer's log is. Columns: the grain (`broker`: all that it had, joined by commas), host, version,
#: segments, lines (each number once), expected (0 to the last that is known of), missing and in how many gaps, repeated
#: (in several segments), dropped (what the writer says it lost), ended (closed, recovered, open), first_us, last_us.
EVENT_LOG_HEALTH: Final = Table(
    "event_log_health",
    ("service", "broker", "writer"),
    (RANGES, RUNS, NOTES, SOCKETS),
    _gold,
)


def _quarantined(sums: Sums, _context: Context) -> pl.DataFrame:
    return sums[QUARANTINED.name]


#: Each line that is in no table, and why. Columns: path, line (from 1; 0: the segment as a whole), what (unreadable,
#: contradiction: its number is there with another line; namesake: with one of another time; empty), why.
QUARANTINE: Final = Table("quarantine", ("path", "line"), (QUARANTINED,), _quarantined)
