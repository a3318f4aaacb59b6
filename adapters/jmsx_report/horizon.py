"""
How complete the log is: runs of line numbers, gaps between them, and the moment up to which every writer is complete.

Each writer numbers its lines from 0 without a gap and writes when it ends. Lines between two runs are missing; so are
the lines, of unknown number, that a writer had not yet written when it died. A writer that has not ended is complete up
to its last line; the earliest of these last lines is the horizon, up to which running processes can be judged.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx.log import counted
from jmsx_eventlog.schema import AUDITED
from jmsx_report.additive import Adds, Partial
from jmsx_report.clocks import Clocks
from jmsx_report.events import SCHEMAS, Events, every_line, named
from jmsx_report.flows import PLAUSIBLE_US, optional
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_lines, of_rows

if TYPE_CHECKING:
    from collections.abc import Collection


#: A writer that has not ended is not waited for if its last line is so much older than the newest of all.
SILENT_US: Final = 3_600_000_000
#: A writer that was silent for so long while others wrote is reported: with a connection, even an idle process writes
#: its numbers each minute.
QUIET_US: Final = 300_000_000
#: A running writer writes a line every 15 s while its link is up. If it has only closed segments, and its last line is
#: less than this older than the newest, it is taken to open its next segment soon.
BETWEEN_US: Final = 60_000_000
_RANGES_TOLD: Final = 10
_NOTED: Final = ("log.gap", "log.close", "log.recovered")
#: More lines and messages than any log has.
WITHOUT_END: Final = 2**48
#: The columns of `gaps`.
GAPS: Final = {
    "writer": pl.String,
    "service": pl.String,
    "low_us": pl.Int64,
    "high_us": pl.Int64,
    "lines": pl.Int64,
    "why": pl.String,
}


#: A line's own time; null for a line that another writer added at the end, whose time is not the dead writer's.
_OWN_US: Final = (
    pl.when(pl.col("ts_us").is_between(*PLAUSIBLE_US) & (pl.col("kind") != "log.recovered"))
    .then("ts_us")
    .alias("at_us")
)


def _lines(events: Events) -> pl.DataFrame:
    """Return writer, seq and own time of every line."""
    rows = events.once(every_line).lazy()
    return rows.select("writer", "seq", _OWN_US).drop_nulls("seq").pipe(at_once)


_RUN: Final = (
    pl.col("seq").min().alias("low"),
    pl.col("seq").max().alias("high"),
    pl.col("at_us").min().alias("first_us"),
    pl.col("at_us").max().alias("last_us"),
)
_HOLED: Final = pl.col("n") != pl.col("high") - pl.col("low") + 1


def _runs(events: Events) -> pl.DataFrame:
    lines = events.once(_lines)
    # If each line of a writer is there once, counting is enough; only lines of writers with a hole are sorted.
    runs = lines.group_by("writer").agg(*_RUN, pl.len().alias("n"))
    whole = runs.lazy().filter(~_HOLED).drop("n").pipe(named).pipe(at_once)
    if whole.height == runs.height:
        return whole
    split = (
        lines.lazy()
        .join(runs.lazy().filter(_HOLED), on="writer", how="semi")
        .unique(["writer", "seq"], keep="any")
        .sort("writer", "seq")
        .with_columns(run=pl.col("seq") - pl.int_range(pl.len()).over("writer"))
        .group_by("writer", "run")
        .agg(_RUN)
        .drop("run")
        .pipe(named)
        .pipe(at_once)
    )
    return pl.concat([whole, split])


#: Runs of consecutive line numbers, both ends included, and the times of the first and last line.
RUNS: Final = Partial(
    "runs",
    ("writer", "low"),
    {"high": Adds.MAX, "first_us": Adds.MIN, "last_us": Adds.MAX},
    _runs,
    apart=("writer",),
)


#: The columns of `NOTES` for each kind of line; each kind lacks some of them.
_TOLD: Final = {
    kind: (
        pl.col("writer", "seq", "kind", "ts_us"),
        optional(kind, "dropped", pl.Int64),
        optional(kind, "dropped_kind", pl.String),
        optional(kind, "lost_bytes", pl.Int64),
    )
    for kind in _NOTED
}


@of_lines(*_NOTED)
def _notes(events: Events) -> pl.DataFrame:
    notes = pl.concat(events.coded(kind).select(_TOLD[kind]) for kind in events.kinds(*_NOTED))
    # Select by numbers first, which leaves few lines.
    before = (
        events.once(_lines)
        .lazy()
        .filter(pl.col("seq").is_in((notes["seq"] - 1).unique().implode()))
        .select("writer", pl.col("seq") + 1, pl.col("at_us").alias("before_us"))
    )
    return (
        notes.lazy()
        .join(before, on=["writer", "seq"], how="left")
        .group_by("writer", "seq", "kind")
        .agg(
            pl.col("ts_us").min(),
            pl.col("before_us").max(),
            pl.col("dropped").max(),
            pl.col("dropped_kind").min(),
            pl.col("lost_bytes").max(),
        )
        .pipe(named)
        .pipe(at_once)
    )


#: What writers say about their own logs: gaps and ends. `before_us`: when the line before was written.
NOTES: Final = Partial(
    "notes",
    ("writer", "seq", "kind"),
    {
        "ts_us": Adds.MIN,
        "before_us": Adds.MAX,
        "dropped": Adds.MAX,
        "dropped_kind": Adds.MIN,
        "lost_bytes": Adds.MAX,
    },
    _notes,
    apart=("writer",),
)


@dataclass(frozen=True, slots=True)
class Completeness:
    """How complete the log of every writer is."""

    #: One row for each writer: writer, lines, expected, first_us, last_us (of its own lines), ended_us (of the last
    #: one, by whoever wrote it; null: none), lost_bytes (of a line that was cut off), ended (closed, recovered or
    #: open).
    writers: pl.DataFrame
    #: One row for each hole: writer, low, high (of `seq`, both included), before_us, after_us (times of its
    #: neighbours).
    holes: pl.DataFrame
    #: One row for each `log.gap`: writer, kind (of what was dropped), dropped, low_us, high_us.
    drops: pl.DataFrame
    #: writer, dropped: events that `log.close` counts as dropped, but no `log.gap` line told of.
    untold: pl.DataFrame

    def faults(self) -> list[str]:
        """Return what is wrong, in words; nothing if the log is whole and every writer has ended."""
        told = []
        for hole in self.holes.sort("writer", "low").iter_rows(named=True):
            lines = counted(hole["high"] - hole["low"] + 1, "line")
            told.append(
                f"writer {hole['writer']}: {lines} missing (seq {hole['low']}-{hole['high']})"
            )
        drops = self.drops.group_by("writer", "kind").agg(pl.col("dropped").sum())
        told += [
            f"writer {drop['writer']}: it had to drop {drop['dropped']} {drop['kind']}"
            for drop in drops.sort("writer", "kind").iter_rows(named=True)
        ]
        told += [
            f"writer {row['writer']}: its log.close tells of {row['dropped']} more lines that were dropped"
            for row in self.untold.sort("writer").iter_rows(named=True)
        ]
        words = {
            "recovered": "it died; {} bytes were cut off, and what it had not yet written is unknown",
            "open": "it has not ended: it still runs, or it died",
        }
        told += [
            f"writer {row['writer']}: {words[row['ended']].format(row['lost_bytes'] or 0)}"
            for row in self.writers.filter(pl.col("ended").is_in(list(words)))
            .sort("writer")
            .iter_rows(named=True)
        ]
        return told

    def as_json(self) -> list[dict[str, Any]]:
        """Return one object a writer, for programs."""
        missing: dict[str, list[list[int]]] = {}
        for hole in self.holes.sort("writer", "low").iter_rows(named=True):
            missing.setdefault(hole["writer"], []).append([hole["low"], hole["high"]])
        dropped: dict[str, dict[str, int]] = {}
        for drop in self.drops.sort("writer", "kind").iter_rows(named=True):
            kinds = dropped.setdefault(drop["writer"], {})
            kinds[drop["kind"]] = kinds.get(drop["kind"], 0) + drop["dropped"]
        told = self.writers.sort("writer").select("writer", "lines", "expected", "ended")
        return [
            {
                "writer": writer,
                "lines": lines,
                "expected": expected,
                "missing": missing.get(writer, [])[:_RANGES_TOLD],
                "ended": ended,
                "dropped": dropped.get(writer, {}),
            }
            for writer, lines, expected, ended in told.rows()
        ]


def completeness(runs: pl.DataFrame, notes: pl.DataFrame) -> Completeness:
    """Combine each writer's runs with what it says about its own log; `runs` as `RUNS`, `notes` as `NOTES`."""
    ordered = _reached(runs.sort("writer", "low")).with_columns(
        (pl.col("high") - pl.max_horizontal("low", pl.col("until") + 1) + 1)
        .clip(lower_bound=0)
        .alias("new")
    )
    holes = (
        ordered.lazy()
        .filter(pl.col("low") > pl.col("until") + 1)
        .select(
            "writer",
            (pl.col("until") + 1).alias("low"),
            (pl.col("low") - 1).alias("high"),
            "before_us",
            pl.col("first_us").alias("after_us"),
        )
        .pipe(at_once)
    )
    ends = (
        notes.lazy()
        .filter(pl.col("kind") != "log.gap")
        .select("writer", "ts_us", "lost_bytes", high="seq", end="kind")
    )
    writers = (
        ordered.lazy()
        .group_by("writer")
        .agg(
            pl.col("new").sum().alias("lines"),
            pl.col("high").max(),
            pl.col("first_us").min(),
            pl.col("last_us").max(),
        )
        .join(ends, on=["writer", "high"], how="left")
        .group_by("writer", "lines", "high", "first_us", "last_us")
        # "closed" wins if one writer has two ends
        .agg(pl.col("end").min(), pl.col("ts_us", "lost_bytes").max())
        .select(
            "writer",
            "lines",
            (pl.col("high") + 1).alias("expected"),
            "first_us",
            "last_us",
            pl.col("ts_us").alias("ended_us"),
            "lost_bytes",
            pl.col("end")
            .str.strip_prefix("log.")
            .replace("close", "closed")
            .fill_null("open")
            .alias("ended"),
        )
        .pipe(at_once)
    )
    drops = (
        notes.lazy()
        .filter(pl.col("kind") == "log.gap")
        .select(
            "writer",
            pl.col("dropped_kind").fill_null("?").alias("kind"),
            pl.col("dropped").fill_null(0),
            pl.coalesce("before_us", "ts_us").alias("low_us"),
            pl.col("ts_us").alias("high_us"),
        )
        .pipe(at_once)
    )
    told = drops.lazy().group_by("writer").agg(pl.col("dropped").sum().alias("told"))
    untold = (
        notes.lazy()
        .filter(pl.col("kind") == "log.close")
        .group_by("writer")
        .agg(pl.col("dropped").max())
        .join(told, on="writer", how="left")
        .select("writer", (pl.col("dropped") - pl.col("told").fill_null(0)).alias("dropped"))
        .filter(pl.col("dropped") > 0)
        .pipe(at_once)
    )
    return Completeness(writers, holes, drops, untold)


def _reached(ordered: pl.DataFrame) -> pl.DataFrame:
    """
    Add to sorted runs how far the writer's earlier runs reach: `until` (seq; -1: none) and before_us.

    If each run reaches further than the one before, looking at that one is enough: to accumulate over all runs of each
    writer takes a tenth of a report of 100,000 writers.
    """
    same = pl.col("writer") == pl.col("writer").shift()
    high, last_us = pl.col("high"), pl.col("last_us")
    follows = (pl.col("low") > high.shift()) & (last_us >= last_us.shift())
    strange = ordered.filter(same & ~follows.fill_null(value=False))["writer"].unique().implode()
    mixed = pl.col("writer").is_in(strange)
    following = (
        ordered.lazy()
        .filter(~mixed)
        .with_columns(
            pl.when(same).then(high.shift()).otherwise(-1).alias("until"),
            pl.when(same).then(last_us.shift()).alias("before_us"),
        )
        .pipe(at_once)
    )
    if following.height == ordered.height:
        return following
    others = ordered.filter(mixed).with_columns(
        high.cum_max().shift().over("writer").fill_null(-1).alias("until"),
        last_us.cum_max().shift().over("writer").alias("before_us"),
    )
    return pl.concat([following, others])


@dataclass(frozen=True, slots=True)
class Horizon:
    """Up to when the log can be judged; microseconds since the epoch, by corrected clocks."""

    until_us: int | None  #: None: there is no line
    living: bool  #: some writers still run, so later messages are not judged yet
    silent: pl.DataFrame  #: writer, last_us: their logs just stop, and are not waited for
    newest_us: int | None  #: as `reached`
    #: writer, end_us (corrected), waited: writers that have not ended, and last wrote QUIET_US before the newest line.
    quiet: pl.DataFrame


def reached(found: Completeness, clocks: Clocks) -> int | None:
    """
    Return the latest moment at which a writer wrote, by corrected clocks; None: there is no line.

    A clock that may be ahead is taken to be as far ahead as it may be. A clock about which no message tells anything is
    taken to be right: its writer may be the only one left, and its lines show that all others are silent.
    """
    newest = found.writers.select((pl.col("last_us") - clocks.lately()).max()).item()
    return newest if isinstance(newest, int) else None


def horizon(found: Completeness, clocks: Clocks, open_segments: Collection[str]) -> Horizon:
    """
    Find the latest moment up to which all writers are complete.

    A writer is waited for while it has an open segment, or may be between two: it closes one after a line, and opens
    the next only for its next line. If only closed segments are copied here, no writer has an open one; then writers
    that have not ended are waited for if they are at least half of all that wrote lately.

    Args:
        found: as `completeness`.
        clocks: of the writers.
        open_segments: names of the segments that are still written to.

    """
    ends = (
        found.writers.lazy()
        .drop_nulls("last_us")
        .with_columns(
            (pl.col("last_us") - clocks.believed()).alias("end_us"),
            clocks.latest("last_us").alias("latest_us"),
        )
        .pipe(at_once)
    )
    newest = reached(found, clocks)
    if newest is None:
        return Horizon(
            until_us=None,
            living=False,
            silent=ends.select("writer", "last_us"),
            newest_us=None,
            quiet=ends.select("writer", "end_us", waited=pl.lit(value=False)),
        )
    lately = pl.col("latest_us") >= newest - SILENT_US
    unended = ends.filter(pl.col("ended") == "open")
    here = {PurePath(name).name.split(".jsonl")[0].rsplit("-", 1)[0] for name in open_segments}
    if here:
        between = pl.col("latest_us") >= newest - BETWEEN_US
        waited = lately & (pl.col("writer").is_in(list(here)) | between)
    else:
        most = 2 * unended.filter(lately).height >= ends.filter(lately).height
        waited = lately & pl.lit(most)
    least = unended.filter(waited)["end_us"].min()
    last = ends["end_us"].max()
    return Horizon(
        until_us=least if isinstance(least, int) else last if isinstance(last, int) else None,
        living=isinstance(least, int),
        silent=unended.filter(~waited).select("writer", "last_us"),
        newest_us=newest,
        quiet=unended.select("writer", "end_us", waited=waited).filter(
            pl.col("end_us") < newest - QUIET_US
        ),
    )


def gaps(found: Completeness, silent: pl.DataFrame) -> pl.DataFrame:
    """
    Return the gaps: where lines that the audit needs may be missing.

    Columns: writer, service (null), low_us, high_us (by the writer's clock; null: no limit), lines (at most so many;
    null: unknown), why.
    """
    low_us, high_us, last_us, dropped = map(pl.col, ("low_us", "high_us", "last_us", "dropped"))
    none = pl.lit(None, pl.Int64)
    told = (
        gap_rows(
            found.holes,
            "lines are missing",
            low_us=pl.col("before_us"),
            high_us=pl.coalesce("after_us", "before_us"),
            lines=pl.col("high") - pl.col("low") + 1,
        ),
        gap_rows(
            found.drops.filter(_may_be_evidence()),
            "the writer had to drop lines",
            low_us=low_us,
            high_us=high_us,
            lines=dropped,
        ),
        gap_rows(
            found.untold.join(found.writers, on="writer"),
            "its log.close tells of lines that were dropped",
            low_us=pl.col("first_us"),
            high_us=last_us,
            lines=dropped,
        ),
        gap_rows(
            found.writers.filter(pl.col("ended") == "recovered"),
            "the writer died; what it had not yet written is unknown",
            low_us=last_us,
            high_us=pl.max_horizontal("last_us", "ended_us"),
            lines=none,
        ),
        gap_rows(
            silent,
            "its log just stops: it died, or the rest is not here",
            low_us=last_us,
            high_us=none,
            lines=none,
        ),
    )
    return pl.concat(told)


@of_rows
def gap_rows(
    rows: pl.DataFrame, why: str, *, low_us: pl.Expr, high_us: pl.Expr, lines: pl.Expr
) -> pl.DataFrame:
    """Return a gap for each row, of its `writer`; columns as `GAPS`."""
    return rows.select(
        "writer",
        pl.lit(None, pl.String).alias("service"),
        low_us.alias("low_us"),
        high_us.alias("high_us"),
        lines.alias("lines"),
        pl.lit(why).alias("why"),
    ).cast(pl.Schema(GAPS))


def _may_be_evidence() -> pl.Expr:
    """Return whether dropped lines may be ones that the audit needs; lines of an unknown kind may be."""
    others = [kind for kind in SCHEMAS if kind not in AUDITED]
    return ~pl.col("kind").is_in(others)
