"""Makes a report, that is tables, `summary.json` and a page, from a folder of event log segments."""

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
from jmsx_report.health import FILES, QUARANTINED, RANGES
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
#: The longest deadline in seconds, some 30,000 years: added to any time of a log, its microseconds fit into 64 bits.
_LONGEST: Final = 10**12


@dataclass(frozen=True, slots=True)
class ReportResult:
    """
    The files of a report, and the result of its audit.

    `audit` has the content of `summary.json`:

    - `verdict`: "balanced" (every message sent was settled, once), "suspect" (some were not settled, or twice) or
      "unverifiable" (the log cannot tell), with its `reasons`.
    - Settlements, also of messages from foreign senders; a message that is settled twice counts twice: `settled`, and
      of these `done`, `dead_lettered`, `discarded`, `suppressed` and `expired`.
    - Messages: `sent` (confirmed, or settled), `unaccounted` (sent to where jmsx reads, and never settled), `explained`
      (how many of these may be explained by a gap in the log, the broker, a consumer, another queue or a duplicate id;
      the others are lost), `in_flight` (sent, or due for redelivery, less than the deadline ago), `unread` (sent to
      where jmsx does not read), `awaiting_reader` (not settled, and sent less than the deadline, or a minute where none
      is asked for, before the last reader there was closed in order, or later), `removed` (not settled when their
      durable subscription was removed), `duplicates` (done more than once), `dead_after_done` (dead-lettered after they
      were done once), `unsent` (settled, but without a send in the log), `foreign` (not sent by jmsx) and `unclaimed`
      (moved as dead letters to a queue that jmsx reads, and not read there; counted at that queue).
    - `horizon` (up to when all writers are complete; microseconds, epoch) and `since` (messages sent after it).
    - `destinations` and `hours`: the same for each.
    - The keys of unaccounted messages: `lost` if that is proven, else `unsettled` (if a gap may explain some of them,
      it is unknown which); and those of `repeated` messages.
    - `findings`, `completeness`, `counts` and `counts_by_destination` (deliveries by outcome, redelivered, dlq, …, for
      comparison with metrics and the broker).
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

    Segments that an earlier run to `out` has read are not read again. The tables cover the segments now in `events`.

    Args:
        events: the directory of an `EventLog`, or one with those of many hosts below it.
        out: the folder for the report, created if missing.
        engine: runs the jobs.
        terms: the parameters of the audit.
        asked: only messages sent in this period are audited; None: all.
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
    """Return the store of the reports in `out`, with an absolute path: workers may have another working directory."""
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
    """Make tables, `summary.json` and `report.html` below `out` from the partials in `runs`."""
    asked = asked or Period()
    totals = Totals(runs)
    known = context(totals.of(KNOWN))
    tables = merge(totals, known, out / _TABLES)
    totals.forget(but=[*AUDITED, QUARANTINED])
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
    """Return the roster that earlier reports to the same place left; empty if there is none, or it cannot be read."""
    try:
        return pl.read_ndjson(path, schema=ROSTER)
    except (OSError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema=ROSTER)


def _as_json(summary: Mapping[str, Any]) -> str:
    """Return JSON with one member on each line: indenting all of it would take seconds for 100,000 writers."""
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
    Update the partials in `store` to the segments `found`: read new ones, and again those that must be read otherwise.

    `engine` runs `job` for each batch of segments; None: the job of a report.
    """
    job = job or bound(make, events=events.absolute(), store=store)
    present = frozenset(found.segments)
    held = _held(store)
    # Segments that are unchanged fit; asking each part takes a second if there are 100,000.
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
    """Return what must still be read of the segments `present`, in shares; `before` as `overlaps.earlier`."""
    todo = held.lacking_of(events, sorted(present - held.segments))
    return [
        [Part(segment, before.get(segment.name, ())) for segment in batch] for batch in shares(todo)
    ]


def extend(
    store: Store, pieces: Iterable[Segment], events: Path, engine: Engine, batch_bytes: int
) -> None:
    """
    Read `pieces` of segments, as far as they are not yet in `store`; everything else is left to `read`.

    Nothing is removed from the store, so that others may go on reading or merging it.
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

    Needs neither Java nor Spark. Segments that an earlier report to the same place has read are not read again.

    Args:
        events_directory: the directory of an `EventLog`, or one with those of many hosts below it.
        out_directory: the folder for the report, created if missing.
        deadline_seconds: messages sent, or due for redelivery, less than this ago may still wait in their queue.
        expect: service -> how many of its processes must run at the same time.
        since: only messages that were sent from then on are audited, whenever they were settled; with a time zone.
        until: only messages that were sent before; with a time zone. Both are widened to whole 10 s, and for messages
            whose key tells no time to the hour.
        title: the heading of the page.
        progress: called with the number of batches of segments read so far, and the number of all.
        engine: runs the jobs.

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
    """Return the audit's parameters from the user's; raises ConfigurationError for an impossible deadline."""
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
