"""How whole the log is: what is missing of each writer, what came twice, what was put aside."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report.table import Adds, Partial, Table
from jmsx_report.writers import SOCKETS

if TYPE_CHECKING:
    from jmsx_report.events import Events
    from jmsx_report.table import Context, Sums

#: Numbers that follow each other, by segment: what is missing lies between them. One row a segment, if it is whole.
RANGES: Final = Partial(
    "ranges",
    ("segment", "writer", "low", "high"),
    {"first_us": Adds.MIN, "last_us": Adds.MAX},
    lambda events: events.about("ranges"),
)
#: Lines by segment.
FILES: Final = Partial(
    "files",
    ("segment",),
    {"lines": Adds.SUM, "aside": Adds.SUM, "repeated": Adds.SUM},
    lambda events: events.about("files"),
)
#: Each line that was put aside.
ASIDE: Final = Partial(
    "quarantine", ("path", "line", "why"), {}, lambda events: events.about("quarantine")
)


def _notes(events: Events) -> pl.DataFrame:
    none = pl.lit(None, pl.String)
    gaps = events.of("log.gap").select(
        "writer", "kind", "seq", "ts_us", pl.col("dropped_kind"), "dropped"
    )
    closes = events.of("log.close").select(
        "writer", "kind", "seq", "ts_us", none.alias("dropped_kind"), "dropped"
    )
    others = [
        events.of(kind).select(
            "writer",
            "kind",
            "seq",
            "ts_us",
            none.alias("dropped_kind"),
            pl.lit(None, pl.Int64).alias("dropped"),
        )
        for kind in ("log.open", "log.recovered")
    ]
    return pl.concat([gaps, closes, *others])


#: What writers say of their own logs: `log.open`, `log.close`, `log.gap`, `log.recovered`.
NOTES: Final = Partial(
    "log_notes",
    ("writer", "kind", "seq", "ts_us", "dropped_kind"),
    {"dropped": Adds.MAX},
    _notes,
)


def missing(ranges: pl.DataFrame) -> pl.DataFrame:
    """
    Find the numbers of each writer that are in no segment, up to the last that is known of.

    Columns: writer, low, high (both included), after_us (when the line before was written, null at the beginning) and
    before_us (when the line behind it was): what is missing was written between them.
    """
    ordered = ranges.sort("writer", "low", "high")
    reached = pl.col("high").cum_max().over("writer")
    return (
        ordered.with_columns(
            (reached.shift().over("writer").fill_null(-1) + 1).alias("from"),
            pl.col("last_us").cum_max().shift().over("writer").alias("after_us"),
        )
        .filter(pl.col("low") > pl.col("from"))
        .select(
            "writer",
            pl.col("from").alias("low"),
            (pl.col("low") - 1).alias("high"),
            "after_us",
            pl.col("first_us").alias("before_us"),
        )
    )


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    ranges, notes = sums[RANGES.name], sums[NOTES.name]
    count = (pl.col("high") - pl.col("low") + 1).sum().cast(pl.Int64)
    whole = ranges.group_by("writer").agg(
        pl.col("segment").n_unique().cast(pl.Int64).alias("segments"),
        count.alias("lines"),
        (pl.col("high").max() + 1).alias("expected"),
        pl.col("first_us").min(),
        pl.col("last_us").max(),
    )
    gone = (
        missing(ranges)
        .group_by("writer")
        .agg(count.alias("missing"), pl.len().cast(pl.Int64).alias("gaps"))
    )
    said = notes.group_by("writer").agg(
        pl.col("dropped").filter(pl.col("kind") == "log.gap").sum().alias("told"),
        pl.col("dropped").filter(pl.col("kind") == "log.close").max().fill_null(0).alias("all"),
        pl.col("kind").eq("log.close").any().alias("closed"),
        pl.col("kind").eq("log.recovered").any().alias("recovered"),
    )
    brokers = (
        sums[SOCKETS.name]
        .group_by("writer")
        .agg(pl.col("broker").drop_nulls().unique().sort().str.join(",").alias("broker"))
    )
    ended = (
        pl.when(pl.col("recovered"))
        .then(pl.lit("recovered"))
        .when(pl.col("closed"))
        .then(pl.lit("closed"))
        .otherwise(pl.lit("open"))
    )
    return (
        whole.join(gone, on="writer", how="left")
        .join(said, on="writer", how="left")
        .join(brokers, on="writer", how="left")
        .join(context.writers, on="writer", how="left")
        .with_columns(pl.col("missing", "gaps").fill_null(0))
        .select(
            "service",
            "broker",
            "writer",
            "host",
            "version",
            "segments",
            # Every number once: what is in several segments was counted in each.
            (pl.col("expected") - pl.col("missing")).alias("lines"),
            "expected",
            "missing",
            "gaps",
            (pl.col("lines") - pl.col("expected") + pl.col("missing")).alias("repeated"),
            pl.max_horizontal("told", "all").fill_null(0).alias("dropped"),
            ended.alias("ended"),
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
    (RANGES, NOTES, SOCKETS),
    _gold,
)


def _put_aside(sums: Sums, _context: Context) -> pl.DataFrame:
    return sums[ASIDE.name]


#: Each line that is in no table, and why. Columns: path, line (from 1; 0: the segment as a whole), why.
QUARANTINE: Final = Table("quarantine", ("path", "line"), (ASIDE,), _put_aside)
