"""From a folder of event log segments to tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial as bound
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx.core.durations import seconds
from jmsx.errors import ConfigurationError
from jmsx.files import appearing
from jmsx_report.books import PARTIALS as AUDITED
from jmsx_report.books import Terms
from jmsx_report.findings import findings
from jmsx_report.flows import FLOWS
from jmsx_report.garbage import uncollected
from jmsx_report.health import FILES, RANGES
from jmsx_report.inline import inlined
from jmsx_report.judgement import judge
from jmsx_report.local import Progress, make, processes
from jmsx_report.merge import Totals, merge, save, sums
from jmsx_report.overlaps import earlier, repeating
from jmsx_report.page import page
from jmsx_report.period import Period
from jmsx_report.pieces import Pieces, is_piece
from jmsx_report.processes import Engine
from jmsx_report.roster import ROSTER
from jmsx_report.segments import Segment, Survey, batches, shares, survey
from jmsx_report.sentences import one_line
from jmsx_report.store import Part, Run, Store, having, making
from jmsx_report.writers import KNOWN, context

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterable, Mapping, Sequence


_PARTIALS: Final = "partials"
_SHOWN: Final = "shown"
_TABLES: Final = "tables"
_ROSTER: Final = "roster.jsonl"
SUMMARY: Final = "summary.json"
PAGE: Final = "report.html"
#: Seconds of a deadline, some 30,000 years: with any time of a log, microseconds fit into 64 bits.
_LONGEST: Final = 10**12


@dataclass(frozen=True, slots=True)
class ReportResult:
    """
    Where the report lies, and what it says.

    `audit` is what `summary.json` holds:

    - `verdict`: "balanced" (all that was sent was settled, once), "suspect" (something was not, or twice) or
      "unverifiable" (the log cannot tell), with its `reasons`.
    - Settlements, each counted, also those of messages from foreign senders, so that what is done twice counts twice:
      `settled`, and of these `done`, `dead_lettered`, `discarded`, `suppressed` and `expired`.
    - Messages: `sent` (confirmed, or settled), `unaccounted` (sent to where jmsx reads, and never settled), `explained`
      (so many of these a gap in the log, the broker, a consumer, another queue or its id may explain; the others are
      lost), `in_flight` (sent, or planned to come again, less than the deadline ago), `unread` (sent to where jmsx does
      not read), `removed` (not settled when their durable subscription was removed), `duplicates` (done more than
      once), `dead_after_done` (dead-lettered after they were done once), `unsent` (settled, but no send of it is
      logged), `foreign` (not of a jmsx sender) and `unclaimed` (moved as dead letters to where jmsx reads, and not read
      there; counted at that queue).
    - `horizon` (up to when all writers are complete; microseconds, epoch) and `since` (messages sent after it).
    - `destinations` and `hours`: the same for each.
    - The keys of the unaccounted: `lost` where that is proven, else `unsettled` (if a gap may explain only some, nobody
      knows which); and of what was `repeated`.
    - `findings`, `completeness`, `counts` and `counts_by_destination` (deliveries by outcome, redelivered, dlq, …: to
      be held against metrics and the broker).
    """

    report: Path  #: report.html: what a person looks at
    tables: Mapping[str, Path]  #: folders of Parquet, by the name of the table
    audit: Mapping[str, Any]  #: as `summary.json`
    line: str  #: the verdict and its numbers in one line
    rows: Mapping[str, int]  #: lines `read`, and rows of each table, by its name


def run(
    events: Path,
    out: Path,
    *,
    engine: Engine = processes,
    terms: Terms | None = None,
    asked: Period | None = None,
    title: str = "jmsx report",
    progress: Progress | None = None,
) -> ReportResult:
    """
    Make the gold tables of the log `events`, `summary.json` and `report.html` below `out`.

    What an earlier run below `out` has read is not read again. The tables are those of what lies in `events` now.

    Args:
        events: the directory of an `EventLog`, or one with those of many hosts below it.
        out: made if need be.
        engine: who does the work.
        terms: what the audit is asked for.
        asked: the audit is about messages that were sent then; None: about all.
        title: the heading of the page.
        progress: as for `report`.

    Raises:
        ConfigurationError: nothing to read, nowhere to write, or another report is being made there.

    """
    found = survey(events, out)
    store = store_of(out)
    try:
        with making(out):
            store.open()
            read(found, events, store, engine, progress=progress)
            return told(
                found,
                store.runs(),
                events,
                out,
                engine=engine,
                terms=terms,
                asked=asked,
                title=title,
            )
    finally:
        store.close()


def store_of(out: Path) -> Store:
    """Name the store of the reports in `out`; workers may have another working directory."""
    return Store((out / _PARTIALS).absolute())


@inlined
@uncollected()
def told(
    found: Survey,
    runs: Sequence[Run],
    events: Path,
    out: Path,
    *,
    engine: Engine,
    terms: Terms | None = None,
    asked: Period | None = None,
    title: str = "jmsx report",
) -> ReportResult:
    """Make tables, `summary.json` and `report.html` below `out` from the partials of what was `found`."""
    asked = asked or Period()
    totals = Totals(runs)
    known = context(totals.of(KNOWN))
    tables = merge(totals, known, out / _TABLES)
    totals.forget(but=AUDITED)
    tables["files"] = save(out / _TABLES / "files", found.files)
    asking = replace(terms or Terms(), before=_roster(out / _ROSTER))
    judged = judge(found, totals, known, events, terms=asking, asked=asked, engine=engine)
    for name, table in (("audit", judged.table), ("duplicates", judged.duplicates)):
        tables[name] = save(out / _TABLES / name, table)
    summary = judged.summary | {"period": asdict(asked)}
    _put(out / SUMMARY, _as_json(summary))
    html = page(
        findings(
            summary,
            events,
            tables,
            totals.of([FLOWS])[FLOWS.name],
            asked,
            kept=out / _PARTIALS / _SHOWN,
        ),
        title=title,
    )
    _put(out / PAGE, html)
    _put(out / _ROSTER, judged.roster.write_ndjson())
    read_lines = sum(int(run.read(FILES.name)["lines"].sum()) for run in having(runs, FILES.name))
    rows = {"read": read_lines} | {
        name: pl.scan_parquet(folder).select(pl.len()).collect().item()
        for name, folder in tables.items()
    }
    return ReportResult(out / PAGE, tables, summary, one_line(summary), rows)


def _roster(path: Path) -> pl.DataFrame:
    """Read who was heard of by earlier reports to the same place; nobody where that is not there or cannot be read."""
    try:
        return pl.read_ndjson(path, schema=ROSTER)
    except (OSError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema=ROSTER)


def _as_json(summary: Mapping[str, Any]) -> str:
    """Write a member a line: to indent all of it takes seconds where there are 100,000 writers."""
    lines = (f"  {json.dumps(name)}: {json.dumps(value)}" for name, value in summary.items())
    return "{\n" + ",\n".join(lines) + "\n}\n"


def _put(path: Path, text: str) -> None:
    with appearing(path) as unfinished:
        unfinished.write_text(text, encoding="utf-8")


def read(
    found: Survey,
    events: Path,
    store: Store,
    engine: Engine,
    job: Callable[[Sequence[Part]], None] | None = None,
    *,
    progress: Progress | None = None,
) -> None:
    """
    Bring the partials in `store` to what was `found`: read what is new, and again what must be read otherwise.

    `engine` has `job` done for each batch of segments; None: that of a report.
    """
    job = job or bound(make, events=events.absolute(), store=store)
    present = frozenset(found.segments)
    held = _held(store)
    # What is there as it was read fits; to ask that of each part by itself takes a second where there are 100,000.
    if not held.segments <= present:
        named = {segment.name: segment for segment in found.segments}
        store.keep(lambda part: held.fits(part.segment, named.get(part.segment.name)))
    # The second round reads what overlaps; which numbers a segment holds does not depend on how it was read.
    while True:
        ranges = sums(RANGES, store.runs())
        before, at_once = earlier(ranges), repeating(ranges)
        if before or at_once or any(run.against for run in store.runs()):
            store.keep(bound(_is_as_it_must_be, before, at_once))
        held = _held(store)
        again = _to_be_read(held, present, events, before)
        if not again:
            break
        for done, _ in enumerate(engine(job, again), 1):
            if progress is not None:
                progress(done, len(again))
    store.merge(engine)


@uncollected()
def _to_be_read(
    held: Pieces,
    present: frozenset[Segment],
    events: Path,
    before: Mapping[str, tuple[str, ...]],
) -> list[list[Part]]:
    """List what is lacking of the segments that are `present`, share by share; `before` as `overlaps.earlier`."""
    todo = held.lacking_of(events, sorted(present - held.segments))
    return [
        [Part(segment, before.get(segment.name, ())) for segment in batch] for batch in shares(todo)
    ]


def extend(
    store: Store, pieces: Iterable[Segment], events: Path, engine: Engine, batch_bytes: int
) -> None:
    """
    Read `pieces` of segments, as far as they are not in `store` yet; what else is to be read is left to `read`.

    Nothing is taken away from the store, so that others may go on reading what was there, or merge it.
    """
    job = bound(make, events=events.absolute(), store=store)
    held = _held(store)
    missing = (held.missing(one) for one in pieces)
    todo = [one for one in missing if one is not None]
    for _ in engine(job, [[Part(one) for one in batch] for batch in batches(todo, batch_bytes)]):
        pass


def _held(store: Store) -> Pieces:
    return Pieces(store.held())


def _is_as_it_must_be(
    before: Mapping[str, tuple[str, ...]], at_once: Container[str], part: Part
) -> bool:
    name = part.segment.name
    return part.earlier == before.get(name, ()) and not (is_piece(part.segment) and name in at_once)


def report(
    events_directory: Path | str,
    out_directory: Path | str,
    *,
    deadline_seconds: float = 0.0,
    expect: Mapping[str, int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    title: str = "jmsx report",
    progress: Progress | None = None,
    engine: Engine = processes,
) -> ReportResult:
    """
    Read the segments below `events_directory`; write tables, `summary.json` and `report.html` below `out_directory`.

    Needs neither Java nor Spark. What an earlier report to the same place has read is not read again.

    Args:
        events_directory: of an `EventLog`, or of many hosts below it.
        out_directory: made if need be.
        deadline_seconds: what was sent, or planned to come again, less than this ago may still wait in its queue.
        expect: service -> how many processes of it are there at once.
        since: only messages that were sent from then on are audited, whenever they were settled; with a time zone.
        until: only messages that were sent before; with a time zone. Both are widened to whole 10 s, and for messages
            whose key tells no time to the hour.
        title: the heading of the page.
        progress: is told how many batches of segments have been read, and of how many.
        engine: who does the work.

    Raises:
        ConfigurationError: nothing to read, nowhere to write, another report is being made there, a package is
            missing, or a deadline or a time that cannot be.

    """
    return run(
        Path(events_directory),
        Path(out_directory),
        engine=engine,
        terms=terms_of(deadline_seconds, expect),
        asked=Period.around(_microseconds("since", since), _microseconds("until", until)),
        title=title,
        progress=progress,
    )


def terms_of(deadline_seconds: float, expect: Mapping[str, int] | None) -> Terms:
    """Make the terms of what a user asks for; raises ConfigurationError for a deadline that cannot be."""
    deadline = seconds("deadline_seconds", deadline_seconds)
    if deadline > _LONGEST:
        raise ConfigurationError(
            f"deadline_seconds must be {_LONGEST} s at the most, not {deadline_seconds!r}"
        )
    return Terms(deadline_us=round(deadline * 1_000_000), expect=expect or {})


def _microseconds(name: str, moment: datetime | None) -> int | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ConfigurationError(
            f"{name}={moment} has no time zone; write it with one, such as UTC"
        )
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
