"""From a folder of event log segments to tables."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, replace
from datetime import UTC, datetime, timedelta
from functools import partial as bound
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx.errors import ConfigurationError
from jmsx_report.books import Terms
from jmsx_report.findings import findings
from jmsx_report.health import FILES, RANGES
from jmsx_report.judgement import judge
from jmsx_report.local import make, processes
from jmsx_report.merge import merge, save, sums
from jmsx_report.overlaps import earlier
from jmsx_report.period import Period
from jmsx_report.roster import ROSTER
from jmsx_report.segments import shares, survey
from jmsx_report.sentences import one_line
from jmsx_report.store import Part, Store

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from jmsx_report.local import Engine, Progress
    from jmsx_report.segments import Survey

_PARTIALS: Final = "partials"
_TABLES: Final = "tables"
_ROSTER: Final = "roster.jsonl"
SUMMARY: Final = "summary.json"
PAGE: Final = "report.html"


@dataclass(frozen=True, slots=True)
class ReportResult:
    """
    Where the report lies, and what it says.

    The `verdict` of `audit` is "balanced" (all that was sent was settled, once), "suspect" (something was not, or
    twice) or "unverifiable" (the log cannot tell; `reasons` say why). Its numbers are messages: sent (confirmed),
    settled, done, dead_lettered, discarded, suppressed, expired, unaccounted (sent to where jmsx reads, and never
    settled: lost, or still there), in_flight, unread (sent to where jmsx does not read), duplicates (done more than
    once), unsent (settled, but no send of it is logged), foreign (not of a jmsx sender).
    Beside them `horizon` (up to when all writers are complete; us, epoch) and `since` (messages sent after it),
    `destinations` and `hours` (the same for each), `lost` and `repeated` (keys), `findings`, `counts` and
    `counts_by_destination` (deliveries by outcome, redelivered, dlq, …: to be held against metrics and the broker)
    and `completeness`.
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
    draw = _drawing()  # what is missing is told before the work
    asked = asked or Period()
    found = survey(events, out)
    store = Store((out / _PARTIALS).absolute())  # workers may have another working directory
    store.open()
    try:
        job = bound(make, events=events.absolute(), store=store)
        read(found, store, engine, job, progress)
        runs = store.runs()
        tables = merge(runs, out / _TABLES)
        tables["files"] = save(out / _TABLES / "files", iter([found.files]))
        asking = replace(terms or Terms(), before=_roster(out / _ROSTER))
        judged = judge(found, runs, events, terms=asking, asked=asked, engine=engine)
        for name, table in (("audit", judged.table), ("duplicates", judged.duplicates)):
            tables[name] = save(out / _TABLES / name, iter([table]))
        summary = judged.summary | {"period": asdict(asked)}
        _put(out / SUMMARY, json.dumps(summary, indent=2) + "\n")
        html = draw(findings(summary, events, tables, runs, asked), title=title)
        _put(out / PAGE, html)
        _put(out / _ROSTER, judged.roster.write_ndjson())
        rows = {"read": int(sums(FILES, runs)["lines"].sum())} | {
            name: pl.scan_parquet(folder).select(pl.len()).collect().item()
            for name, folder in tables.items()
        }
    finally:
        store.close()
    return ReportResult(out / PAGE, tables, summary, one_line(summary), rows)


def _roster(path: Path) -> pl.DataFrame:
    """Read who was heard of by earlier reports to the same place; nobody where that is not there or cannot be read."""
    try:
        return pl.read_ndjson(path, schema=ROSTER)
    except (OSError, pl.exceptions.PolarsError):
        return pl.DataFrame(schema=ROSTER)


def _put(path: Path, text: str) -> None:
    """Write a file that appears whole or not at all, in place of an earlier one."""
    unfinished = path.with_name(f".{path.name}")
    unfinished.write_text(text, encoding="utf-8")
    unfinished.rename(path)


def _drawing() -> Callable[..., str]:
    """
    Load what draws the page; the processes that read segments need none of it.

    Raises:
        ConfigurationError: it is not installed.

    """
    try:
        from jmsx_report.page import page  # noqa: PLC0415 - matplotlib takes longer than a small log
    except ModuleNotFoundError as error:
        raise ConfigurationError(
            f"the page of a report needs the package {error.name};"
            " install it with: pip install 'jmsx[report]'"
        ) from error
    return page


def read(
    found: Survey,
    store: Store,
    engine: Engine,
    job: Callable[[Sequence[Part]], None],
    progress: Progress | None = None,
) -> None:
    """
    Bring the partials in `store` to what was `found`: read what is new, and again what must be read otherwise.

    `engine` has `job` done for each batch of segments.
    """
    present = frozenset(found.segments)
    store.keep(lambda part: part.segment in present)
    # The second round reads what overlaps; which numbers a segment holds does not depend on how it was read.
    while True:
        before = earlier(sums(RANGES, store.runs()))
        held = store.keep(bound(_is_as_it_must_be, before))
        todo = present - held
        if not todo:
            break
        again = [
            [Part(segment, before.get(segment.path, ())) for segment in batch]
            for batch in shares(todo)
        ]
        for done, _ in enumerate(engine(job, again), 1):
            if progress is not None:
                progress(done, len(again))
    store.merge(engine)


def _is_as_it_must_be(before: Mapping[str, tuple[str, ...]], part: Part) -> bool:
    return part.earlier == before.get(part.segment.path, ())


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
        deadline_seconds: what was sent less than this ago may still wait in its queue.
        expect: service -> how many processes of it are there at once.
        since: only messages that were sent from then on are audited, whenever they were settled; with a time zone.
        until: only messages that were sent before; with a time zone.
        title: the heading of the page.
        progress: is told how many batches of segments have been read, and of how many.
        engine: who does the work.

    Raises:
        ConfigurationError: nothing to read, nowhere to write, another report is being made there, or a package is
            missing.

    """
    return run(
        Path(events_directory),
        Path(out_directory),
        engine=engine,
        terms=Terms(deadline_us=round(deadline_seconds * 1_000_000), expect=expect or {}),
        asked=Period(since_us=_microseconds(since), until_us=_microseconds(until)),
        title=title,
        progress=progress,
    )


def _microseconds(moment: datetime | None) -> int | None:
    if moment is None:
        return None
    return (moment - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)
