"""The audit of a folder of segments: from the merged partials, and a second look at what does not balance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report.additive import Partial
from jmsx_report.audit import Audit, audit
from jmsx_report.books import PARTIALS, Terms, books
from jmsx_report.flows import FLOWS, PLANS, stories
from jmsx_report.health import QUARANTINED, RANGES
from jmsx_report.local import look_again
from jmsx_report.merge import Totals
from jmsx_report.period import Period
from jmsx_report.processes import Engine
from jmsx_report.segments import Survey, batches
from jmsx_report.store import Part, Run
from jmsx_report.table import Context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


_WHERE: Final = ("bucket", "hour_us", "writer", "low", "high")


def judge(
    found: Survey,
    totals: Totals,
    known: Context,
    events: Path,
    *,
    terms: Terms,
    asked: Period,
    engine: Engine,
) -> Audit:
    """
    Audit the log in `events`, of which the partials add up to `totals`.

    Args:
        found: what lies in `events`.
        totals: of all of it.
        known: its writers, sockets and clocks.
        events: the folder of the log.
        terms: the parameters; the quarantine and the open segments are added here.
        asked: the period in which the audited messages were sent.
        engine: reads again the segments that must be looked at key by key.

    """
    aside = totals.of([QUARANTINED])[QUARANTINED.name]
    unread = found.files.filter("unread").select("path", "why")
    held = books(
        totals.of(PARTIALS),
        known,
        replace(
            terms,
            quarantine=_with_writer(aside.sort("path", "line", "why")),
            passed_over=_with_writer(unread),
            open_segments=tuple(one.path for one in found.segments if one.is_open),
        ),
        asked,
    )

    def look(of: Callable[[pl.Series], Partial], wanted: pl.Series) -> pl.DataFrame:
        parts = {
            part.segment: part
            for run in totals.runs
            for part in (_parts(run, wanted, held.again) if of is stories else run.parts)
        }
        again = ([parts[segment] for segment in batch] for batch in batches(sorted(parts)))
        return look_again(of, wanted, again, events.absolute(), engine)

    return audit(held, look)


def _with_writer(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `writer`, by the name of the file."""
    name = pl.col("path").str.extract(r"([^/]+)-\d+\.jsonl[^/]*$", 1)
    return rows.with_columns(name.alias("writer"))


def _parts(run: Run, buckets: pl.Series, again: pl.DataFrame) -> list[Part]:
    """Return the parts of `run` that may have lines of `buckets`; for buckets in `again` only those of its hours."""
    told = [one.name for one in (FLOWS, PLANS) if one.name in run.rows]
    if buckets.is_empty() or not told:
        return []
    wanted = pl.col("bucket").is_in(buckets.implode())
    lines = pl.concat(run.scan(name).select(_WHERE).filter(wanted) for name in told).collect()
    by_hour = pl.col("bucket").is_in(again["bucket"].implode())
    of_hours = lines.join(again, on=["bucket", "hour_us"], how="semi")
    names = _segments(pl.concat([lines.filter(~by_hour), of_hours]), run.read(RANGES.name))
    return [part for part in run.parts if part.segment.name in names]


def _segments(lines: pl.DataFrame, ranges: pl.DataFrame) -> frozenset[str]:
    """Return the segments with any line number from `low` to `high` of a row of `lines`; `ranges` as `RANGES`."""
    reach = lines.sort("low").with_columns(pl.col("high").cum_max().over("writer").alias("up_to"))
    last = ranges.sort("high").join_asof(
        reach.select("writer", "low", "up_to"),
        left_on="high",
        right_on="low",
        by="writer",
        suffix="_of_line",
        check_sortedness=False,  # they are sorted, but Polars cannot check that by writer
    )
    return frozenset(last.filter(pl.col("up_to") >= pl.col("low"))["segment"])
