"""The audit of a folder of segments: from the merged partials, and a second look at what does not balance."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import polars as pl

from jmsx_report.additive import Partial
from jmsx_report.audit import Audit, audit
from jmsx_report.books import PARTIALS, Terms, books
from jmsx_report.flows import FLOWS, stories
from jmsx_report.health import QUARANTINED
from jmsx_report.local import look_again
from jmsx_report.merge import Totals
from jmsx_report.period import Period
from jmsx_report.processes import Engine
from jmsx_report.segments import Survey, batches
from jmsx_report.store import Run, having
from jmsx_report.table import Context

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


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
        terms: what is asked for; what was put aside and which segments are open is added here.
        asked: of messages that were sent then.
        engine: who reads again what must be looked at key by key.

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
        everywhere = of is not stories
        parts = {
            part.segment: part
            for run in totals.runs
            if wanted.len() and (everywhere or _touches(run, wanted, held.again))
            for part in run.parts
        }
        again = ([parts[segment] for segment in batch] for batch in batches(sorted(parts)))
        return look_again(of, wanted, again, events.absolute(), engine)

    return audit(held, look)


def _with_writer(rows: pl.DataFrame) -> pl.DataFrame:
    """Add `writer`, by the name of the file."""
    name = pl.col("path").str.extract(r"([^/]+)-\d+\.jsonl[^/]*$", 1)
    return rows.with_columns(name.alias("writer"))


def _touches(run: Run, buckets: pl.Series, again: pl.DataFrame) -> bool:
    """Return whether there is anything of `buckets` in the partials of `run`; of those in `again`, in its hours."""
    whole = buckets.filter(~buckets.is_in(again["bucket"].implode()))
    return any(
        rows.head(1).collect().height > 0
        for flows in [one.scan(FLOWS.name) for one in having([run], FLOWS.name)]
        for rows in (
            flows.filter(pl.col("bucket").is_in(whole.implode())),
            flows.join(again.lazy(), on=["bucket", "hour_us"], how="semi"),
        )
    )
