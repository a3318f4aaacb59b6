"""`report`: from a directory of event log segments to tables, a page and a verdict."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import Row

from jmsx.errors import ConfigurationError
from jmsx_report.findings import Findings, Shown
from jmsx_report.page import page
from jmsx_report.sentences import one_line
from jmsx_spark.job import find_open_segments, run, save_summary
from jmsx_spark.session import local_session

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx_spark import job

_LARGE_BYTES: Final = 256 * 1024 * 1024  #: of segments: from here on the JVM's optimiser pays


@dataclass(frozen=True, slots=True)
class ReportResult:
    """
    Where the report lies, and what it says.

    `audit` is ready for JSON. Its `verdict` is "balanced" (all that was sent was settled, once), "suspect"
    (something was not, or twice) or "unverifiable" (the log cannot tell; `completeness.faults` says why).
    Its numbers are messages: sent (confirmed), settled, done, dead_lettered, discarded, suppressed, expired,
    unaccounted (sent to where jmsx reads, and never settled: lost, or still there), in_flight, unread (sent
    to where jmsx does not read), duplicates (done more than once), unsent (settled, but no send of it is
    logged), foreign (not of a jmsx sender).
    Beside them `destinations` (the same for each), `counts` and `counts_by_destination` (deliveries by outcome,
    redelivered, dlq, …: to be held against metrics and the broker) and `completeness`.
    """

    report: Path  #: report.html
    summary: Path  #: summary.json: `audit`
    tables: Mapping[str, Path]  #: Parquet: delivery_latency, redelivery, dead_letters, audit
    audit: Mapping[str, Any]
    line: str  #: the verdict and its numbers in one line


def report(
    events_directory: Path | str,
    out_directory: Path | str,
    *,
    deadline_seconds: float = 0.0,
    title: str = "jmsx report",
) -> ReportResult:
    """
    Read the closed segments below `events_directory`; write tables and report.html to `out_directory`.

    Starts Spark in this process (10 s, 1 GB) unless a session is active. What Spark says goes to spark.log there.

    Args:
        events_directory: the directory of an `EventLog`, or one with those of many hosts below it.
        out_directory: made if need be; what an earlier report wrote there is replaced.
        deadline_seconds: what was sent less than this before the last line counts as in flight,
            not as unaccounted for.
        title: the heading of the page.

    Raises:
        ConfigurationError: no Java 17, nothing to read, or nowhere to write.

    """
    find_open_segments(
        Path(events_directory)
    )  # what is wrong with the paths is told before Spark starts
    out = Path(out_directory)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise ConfigurationError(f"no report in {out}: {error.strerror}") from error
    size = sum(path.stat().st_size for path in Path(events_directory).rglob("*.jsonl"))
    with local_session(
        out / "spark.log", size="large" if size > _LARGE_BYTES else "small"
    ) as spark:
        findings = run(spark, Path(events_directory), out, deadline_seconds=deadline_seconds)
    html, summary = out / "report.html", out / "summary.json"
    drawn = page(_shown(findings, Path(events_directory)), title=title)
    html.write_text(drawn, encoding="utf-8")
    save_summary(findings.audit, summary)
    return ReportResult(html, summary, findings.tables, findings.audit, one_line(findings.audit))


def _shown(found: job.Findings, events: Path) -> Findings:
    """Hand the rows of Spark to the page."""

    def rows(of: list[Row]) -> Shown:
        return Shown([row.asDict(recursive=True) for row in of], len(of))

    return Findings(
        audit=found.audit,
        events=str(events),
        latency=rows([Row(service=None, **row.asDict()) for row in found.latency]),
        redelivery=rows(found.redelivery),
        dead_letters=rows(found.dead_letters),
        flow=rows(found.buckets).rows,
    )
