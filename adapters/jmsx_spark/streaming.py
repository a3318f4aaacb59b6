"""The report of a log that goes on being written: a stream adds what comes to the partials of a report."""

from __future__ import annotations

import math
from contextlib import contextmanager
from functools import partial as bound
from pathlib import Path
from threading import Event, Lock
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import ConfigurationError
from jmsx_report import ReportResult
from jmsx_report.processes import Engine
from jmsx_report.reports import extend, read, store_of, terms_of, told
from jmsx_report.segments import survey
from jmsx_report.store import Store, making
from jmsx_spark.engine import cause, on
from jmsx_spark.offsets import between, current, noted
from jmsx_spark.session import LOCAL, session
from jmsx_spark.source import PieceSource

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager

    from pyspark import SparkContext
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery


_CHECKPOINT: Final = "checkpoint"
#: No task gets less to read, as long as there are not more cores than that: what it makes of each share, and merges
#: later, costs as much as reading so much.
_LEAST_BYTES: Final = 4 * 1024 * 1024
#: Seconds between two looks at whether the stream has ended, or shall.
_LOOK_SECONDS: Final = 0.2
#: What Spark says when it has waited 10 s for the Python that reads for a stream, which imports for one second where
#: nothing else runs; and how often in a row a stream is begun until it is waited for long enough.
_LATE: Final = "Python worker failed to connect back"
_BEGINNINGS: Final = 6


def stream(
    events_directory: Path | str,
    out_directory: Path | str,
    *,
    available_now: bool = False,
    trigger_seconds: float = 0.5,
    report_seconds: float = 60.0,
    max_bytes_per_trigger: int = 64 * 1024 * 1024,
    deadline_seconds: float = 0.0,
    expect: Mapping[str, int] | None = None,
    title: str = "jmsx report",
    master: str | None = None,
    is_enough: Callable[[], bool] = lambda: False,
) -> Iterator[ReportResult]:
    """
    Make the report of a log again and again while the log is written; each is that of a batch, to the last bit.

        for made in stream("events", "report"):
            print(made.line)

    What comes is read within `trigger_seconds`, also of segments that are still open, and only once; a report costs
    what is new, and the merging. The stream ends when the loop is left, or `is_enough()`. After kill -9, at any point
    and of any of its processes, the same call goes on where it was. No report can be made by others in `out_directory`
    meanwhile.

    Uses the Spark that runs in this process, or starts one; then what it says goes to spark.log in `out_directory`.

    Args:
        events_directory: of an `EventLog`, or of many hosts below it; with workers on other hosts, the same path there.
        out_directory: made if need be; the same holds for it. Beside the report it has Spark's checkpoint.
        available_now: read what there is now, in batches, make one report and end.
        trigger_seconds: how often is looked for what is new.
        report_seconds: how long after a report was made the next one is begun, and after the beginning the first one.
        max_bytes_per_trigger: of lines; what bounds one batch, where there is much to catch up with.
        deadline_seconds: what was sent, or planned to come again, less than this ago may still wait in its queue.
        expect: service -> how many processes of it are there at once.
        title: the heading of the page.
        master: where Spark runs, in its words ("spark://host:7077"); None: on all cores of this host.
        is_enough: is asked several times a second, between reports, whether the stream shall end.

    Raises:
        ConfigurationError: no time between reports, no Java 17, no such Spark, no folder of a log, nowhere to write,
            another report is being made there, or a segment is another one than it was.

    """
    terms = terms_of(deadline_seconds, expect)
    _check(events_directory, report_seconds)
    events, out = Path(events_directory).absolute(), Path(out_directory).absolute()
    store = store_of(out)
    try:
        store.open()
        with session(out / "spark.log", master=master or LOCAL) as spark:
            engine = on(spark.sparkContext)
            # What there is now was read before the report is made.
            beside = engine if available_now else on(spark.sparkContext, beside=True)
            adding = Lock()
            begin = bound(
                _begun,
                spark,
                events,
                out,
                trigger={"availableNow": True}
                if available_now
                else {"processingTime": f"{trigger_seconds} seconds"},
                most_bytes=max_bytes_per_trigger,
                add=bound(
                    _add,
                    events=events,
                    notes=out / _CHECKPOINT,
                    store=store,
                    context=spark.sparkContext,
                    engine=engine,
                    adding=adding,
                ),
            )

            @making(out)
            def report() -> ReportResult:
                # What comes is added meanwhile; when it has to wait, there is little left to merge.
                store.merge(beside)
                with adding:
                    found = survey(events, out)
                    read(found, events, store, engine)
                    runs = store.runs()
                # Runs do not change, and none is taken away but here: what comes may be added meanwhile.
                return told(found, runs, events, out, engine=beside, terms=terms, title=title)

            def reports(query: StreamingQuery) -> Iterator[ReportResult]:
                wait = math.inf if available_now else report_seconds
                going_on = True
                while going_on:
                    made = None
                    try:
                        going_on = not _ended(query, wait, is_enough)
                        if not is_enough() and current(events):  # else nobody has written yet
                            made = report()
                    except Exception:
                        # Ctrl-C in a terminal ends Spark's workers too; what they had not read, the next report reads
                        if not is_enough():
                            raise
                    if made is not None:
                        yield made
                    if is_enough():
                        return

            yield from _begun_in_time(begin, reports)
    finally:
        store.close()


def _begun_in_time(
    begin: Callable[[], AbstractContextManager[StreamingQuery]],
    reports: Callable[[StreamingQuery], Iterator[ReportResult]],
) -> Iterator[ReportResult]:
    """
    Make the reports of a stream; it begins once more if its Python was not there in time.

    Once the stream has made progress, which it tells itself, its beginnings are counted anew.
    """
    left = _BEGINNINGS
    while True:
        left -= 1
        query = None
        try:
            with begin() as query:
                yield from reports(query)
        except ConfigurationError as error:
            if query is not None and query.lastProgress is not None:
                left = _BEGINNINGS
            if not left or _LATE not in str(error):
                raise
        else:
            return


@contextmanager
def _begun(
    spark: SparkSession,
    events: Path,
    out: Path,
    *,
    trigger: Mapping[str, Any],
    most_bytes: int,
    add: Any,
) -> Iterator[StreamingQuery]:
    """Run the stream, and stop it in the end."""
    ending = Event()

    def added(_rows: DataFrame, batch: int) -> None:
        try:
            add(batch)
        except Exception:
            # else it was stopped in the middle; the next report reads what was not added
            if not ending.is_set():
                raise

    spark.dataSource.register(PieceSource)
    rows = (
        spark.readStream.format(PieceSource.name())
        .option("maxBytesPerTrigger", most_bytes)
        .option("failOnDataLoss", "false")  # the audit tells what is missing
        .load(str(events))
    )
    query = (
        rows.writeStream.foreachBatch(added)
        .option("checkpointLocation", f"file://{out / _CHECKPOINT}")
        .trigger(**trigger)
        .start()
    )
    try:
        yield query
    finally:
        ending.set()
        query.stop()


def _check(events: Path | str, report_seconds: float) -> None:
    if not report_seconds > 0:
        raise ConfigurationError(f"report_seconds must be more than 0 s, not {report_seconds!r}")
    if not Path(events).is_dir():
        raise ConfigurationError(
            f"{events} is no directory of an event log; name the one that EventLog(...) writes to"
        )


def _add(
    batch: int,
    *,
    events: Path,
    notes: Path,
    store: Store,
    context: SparkContext,
    engine: Engine,
    adding: Lock,
) -> None:
    """Add what a batch of the stream reads; done again, it adds nothing."""
    pieces = between(noted(notes, batch - 1), noted(notes, batch))
    total = sum(one.size - one.begin for one in pieces)
    with adding:
        extend(
            store,
            pieces,
            events,
            engine,
            max(_LEAST_BYTES, -(-total // context.defaultParallelism)),
        )


def _ended(query: StreamingQuery, seconds: float, is_enough: Callable[[], bool]) -> bool:
    """Wait until the stream has ended, or so long, or until it `is_enough`; signals are not taken in calls of Spark."""
    until = monotonic() + seconds
    while query.isActive and monotonic() < until and not is_enough():
        sleep(_LOOK_SECONDS)
    error = query.exception()
    if error is not None:
        raise ConfigurationError(f"the stream has ended: {cause(error)}") from error
    return not query.isActive
