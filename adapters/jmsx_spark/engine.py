"""
Spark as the engine of the report: its Python workers run the jobs of `jmsx_report`, on whatever machines Spark uses.

Workers return only small results to the driver; what they make is in files, which all workers must reach by the same
paths.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]  # has no types
from pyspark.errors import PySparkException

import jmsx_report
from jmsx.errors import ConfigurationError, JmsxError
from jmsx_report import ReportResult
from jmsx_report.processes import Engine
from jmsx_spark.session import LOCAL, session

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from datetime import datetime

    from pyspark import SparkContext


A = TypeVar("A")
T = TypeVar("T")
#: Tasks for each core: enough that cores finish at about the same time, and so few that starting them costs little.
_TASKS: Final = 32


def on(context: SparkContext, *, beside: bool = False) -> Engine:
    """
    Make an engine of a running Spark; it raises ConfigurationError if a worker fails.

    Args:
        context: the running Spark.
        beside: at most half of the cores are used, so that there are others for another job.

    """

    def spread(job: Callable[[A], T], todo: Iterable[A], /) -> Iterator[T]:
        def told(one: A) -> T | JmsxError:  # a closure: workers need not import this module for it
            try:
                return job(one)
            except JmsxError as error:  # else Spark would retry, and replace the error by its own
                return error

        listed = list(todo)
        if not listed:
            return
        cores = context.defaultParallelism
        tasks = min(len(listed), max(1, cores // 2) if beside else _TASKS * cores)
        try:
            results = context.parallelize(listed, tasks).map(told).collect()
        except (Py4JJavaError, PySparkException) as error:
            raise ConfigurationError(f"Spark on {context.master} failed: {cause(error)}") from error
        for result in results:
            if isinstance(result, JmsxError):
                raise result
            yield result

    return spread


def report(
    events_directory: Path | str,
    out_directory: Path | str,
    *,
    deadline_seconds: float = 0.0,
    expect: Mapping[str, int] | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    title: str = "jmsx report",
    master: str | None = None,
) -> ReportResult:
    """
    Do what `jmsx_report.report` does, to the last bit, on Spark.

    Uses the Spark that runs in this process, or starts one, whose output goes to spark.log in `out_directory`. It is
    started only when there is work for it: errors in the paths are raised before.

    Arguments are those of `jmsx_report.report`; workers on other hosts must reach both directories by the same paths.

    Args:
        master: where Spark runs, in its words ("spark://host:7077"); None: on all cores of this host.

    Raises:
        ConfigurationError: no Java 17, no such Spark, nothing to read, nowhere to write, or another report is being
            made there.

    """
    out = Path(out_directory)
    with ExitStack() as until_made:

        @cache
        def started() -> Engine:
            spark = until_made.enter_context(session(out / "spark.log", master=master or LOCAL))
            return on(spark.sparkContext)

        def engine(job: Callable[[A], T], todo: Iterable[A], /) -> Iterable[T]:
            listed = list(todo)
            return started()(job, listed) if listed else ()

        return jmsx_report.report(
            events_directory,
            out,
            deadline_seconds=deadline_seconds,
            expect=expect,
            since=since,
            until=until,
            title=title,
            engine=engine,
        )


def cause(error: Exception) -> str:
    """Return the last error line of a worker's Python, or else the first line of Spark's message."""
    said = [line for line in str(error).splitlines() if line and not line[0].isspace()]
    python = [
        line
        for line in said
        if line.partition(":")[0].endswith(("Error", "Exception"))
        and not line.startswith(("org.", "java.", "py4j."))
    ]
    return python[-1] if python else said[0]
