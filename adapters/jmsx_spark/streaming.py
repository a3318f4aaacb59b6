"""Reports of a log that is still being written: a stream adds new lines to the partials of a report."""

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
#: The least bytes that a task reads: making partials of a share, and merging them later, costs as much as reading
#: these.
_LEAST_BYTES: Final = 4 * 1024 * 1024
#: Seconds between two checks whether the stream has ended, or shall end.
_LOOK_SECONDS: Final = 0.2
#: Spark's message after waiting 10 s for the Python process of a stream's source, which needs one second for its
#: imports on an idle machine; and how often in a row a stream is begun before that is raised.
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
    Make the report of a log again and again while the log is written; each equals that of `report`, to the last bit.

        for made in stream("events", "report"):
            print(made.line)

    New lines are read within `trigger_seconds`, also from segments that are still open, and only once; a report only
    costs reading these and merging. The stream ends when the loop is left, or `is_enough()` is true. After kill -9 of
    any of its processes, at any point, the same call goes on where it was. Meanwhile no other report can be made in
    `out_directory`.

    Uses the Spark that runs in this process, or starts one, whose output goes to spark.log in `out_directory`.

    Args:
        events_directory: the directory of an `EventLog`, or one with those of many hosts below it; workers on other
            hosts must reach it by the same path.
        out_directory: created if missing; workers must reach it, too. It gets the report and Spark's checkpoint.
        available_now: read what there is now, in batches, make one report and end.
        trigger_seconds: the interval of looking for new lines.
        report_seconds: the pause between two reports, and before the first one.
        max_bytes_per_trigger: the most bytes of lines in one batch, if there is much to catch up with.
        deadline_seconds: messages sent, or due for redelivery, less than this ago may still wait in their queue.
        expect: service -> how many of its processes must run at the same time.
        title: the heading of the page.
        master: where Spark runs, in its words ("spark://host:7077"); None: on all cores of this host.
        is_enough: called several times a second, between reports; if it returns True the stream ends.

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
            # With `available_now` all reading is over before the report is made, so the report may use all cores.
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
                # New lines may be added during this merge; so little is left to merge while they have to wait.
                store.merge(beside)
                with adding:
                    found = survey(events, out)
                    read(found, events, store, engine)
                    runs = store.runs()
                # Runs never change, and only this function removes any: new lines may be added meanwhile.
                return told(found, runs, events, out, engine=beside, terms=terms, title=title)

            def reports(query: StreamingQuery) -> Iterator[ReportResult]:
                wait = math.inf if available_now else report_seconds
                going_on = True
                while going_on:
                    made = None
                    try:
                        going_on = not _ended(query, wait, is_enough)
                        if not is_enough() and current(events):  # else nothing was written yet
                            made = report()
                    except Exception:
                        # Ctrl-C in a terminal ends Spark's workers, too; the next report reads what they had not read
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
    Yield the reports of a stream, which is begun again if the Python process of its source did not start in time.

    Once the stream has made progress, the number of beginnings is counted anew.
    """
    left = _BEGINNINGS
    while True:
        left -= 1
        query = None
        try:
            with begin() as query:
                yield from reports(query)
        except ConfigurationError as error:
            if _LATE not in str(error):
                raise
            if query is not None and query.lastProgress is not None:
                left = _BEGINNINGS
            if not left:
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
            # if it was stopped in the middle of a batch, the next report reads what was not added
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
    """Add the lines of one batch to the store; repeated for the same batch, it adds nothing."""
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
    """
    Wait until the stream has ended, `seconds` are over, or `is_enough()`; return whether the stream has ended.
    It polls, because Python handles no signals during calls into Spark.
    """
    until = monotonic() + seconds
    while query.isActive and monotonic() < until and not is_enough():
        sleep(_LOOK_SECONDS)
    error = query.exception()
    if error is not None:
        raise ConfigurationError(f"the stream has ended: {cause(error)}") from error
    return not query.isActive
