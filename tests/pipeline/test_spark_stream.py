"""A stream makes the tables of a batch, to the last bit, while the log grows and whatever is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from contextlib import nullcontext, suppress
from threading import Event
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import jmsx_report
from jmsx.errors import ConfigurationError
from jmsx_report import store
from jmsx_report.reports import extend
from jmsx_spark import report, stream, streaming
from tests.benchmarks.segments import write
from tests.integration.broker_support import executable
from tests.pipeline.lines import segments

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pyspark.sql import SparkSession

    from jmsx_report import ReportResult
    from jmsx_report.processes import Engine

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

#: A stream that is killed just before or after it has done something for the first time.
_KILLED: Final = """
import os, signal, sys
from jmsx_spark import streaming
name, when, events, out = sys.argv[1:]
do = getattr(streaming, name)
def killed(*given, **named):
    if when == "after":
        do(*given, **named)
    os.kill(os.getpid(), signal.SIGKILL)
setattr(streaming, name, killed)
list(streaming.stream(events, out, available_now=True, max_bytes_per_trigger=100_000, master="local[2]"))
"""


@pytest.fixture
def log(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> dict[Path, bytes]:
    """A log that nobody has written yet: path -> content of its segments."""
    monkeypatch.setattr(store, "FAN", 4)
    write(tmp_path / "events", events=1500, segments=12, hours=3)
    whole = {path: path.read_bytes() for path in segments(tmp_path / "events")}
    for path in whole:
        path.unlink()
    return whole


def _grow(log: dict[Path, bytes], share: float) -> None:
    """Let all segments be so far; torn lines are at their ends."""
    for number, (path, content) in enumerate(log.items()):
        alive = path.with_name(f"{path.name}.open")
        alive.write_bytes(content[: int(share * len(content))])
        if share == 1.0 and number % 4:
            alive.rename(path)


def _assert_as_a_batch(found: ReportResult, events: Path, out: Path) -> None:
    expected = jmsx_report.run(events, out, engine=map)
    assert found.audit == expected.audit
    for name, path in expected.tables.items():
        table = pl.read_parquet(found.tables[name])
        assert_frame_equal(table, pl.read_parquet(path), check_exact=True)


def test_each_report_is_that_of_a_batch(
    spark: SparkSession, tmp_path: Path, log: dict[Path, bytes]
) -> None:
    """The segments grow while the stream runs; nobody else makes a report there meanwhile."""
    assert spark.version >= "4.2"
    shares = iter((0.3, 0.31, 0.8, 1.0))
    _grow(log, next(shares))
    made = 0
    for found in stream(
        tmp_path / "events", tmp_path / "out", trigger_seconds=0.1, report_seconds=1.0
    ):
        _assert_as_a_batch(found, tmp_path / "events", tmp_path / f"batch{made}")
        with pytest.raises(ConfigurationError, match="another report is being made"):
            report(tmp_path / "events", tmp_path / "out")
        made += 1
        share = next(shares, None)
        if share is None:
            break
        _grow(log, share)

    assert made == 4
    assert found.audit["counts"]["deliveries"] > 500


def test_it_begins_again_when_its_python_is_late(
    spark: SparkSession, tmp_path: Path, log: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark waits ten seconds for it, and says of one that does not come at all what it says of a late one."""
    _grow(log, 0.5)
    late = executable(
        tmp_path / "python",
        f"case $* in *python_streaming_source_runner*) mkdir {tmp_path}/late && exit ;; esac\n"
        f'exec {sys.executable} "$@"',
    )
    monkeypatch.setattr(spark.sparkContext, "pythonExec", str(late))

    (found,) = stream(tmp_path / "events", tmp_path / "out", available_now=True)

    assert (tmp_path / "late").is_dir()
    _assert_as_a_batch(found, tmp_path / "events", tmp_path / "batch")


@pytest.mark.parametrize(
    ("words", "progress", "times"),
    [
        (streaming._LATE, [None] * 6, 6),
        # Twice it went on for a while, and then its Python was late again
        (streaming._LATE, [None, {"batchId": 7}, None, None, {"batchId": 9}, *[None] * 6], 11),
        # Whether it has gone on is not asked of it
        ("a segment is gone", [], 1),
    ],
)
def test_it_does_not_begin_for_ever(
    words: str, progress: list[dict[str, int] | None], times: int
) -> None:
    """And only for what another beginning may mend; the beginnings are counted anew where it has gone on."""
    begun = list[nullcontext[Any]]()

    def begin() -> nullcontext[Any]:
        told = {"lastProgress": progress[len(begun)]} if progress else {}
        begun.append(nullcontext(SimpleNamespace(**told)))
        return begun[-1]

    def reports(_: Any) -> Iterator[ReportResult]:
        yield from ()
        raise ConfigurationError(f"the stream has ended: {words}.")

    with pytest.raises(ConfigurationError, match=words):
        list(streaming._begun_in_time(begin, reports))

    assert len(begun) == times


def test_a_batch_is_one_job_of_spark(
    spark: SparkSession, tmp_path: Path, log: dict[Path, bytes]
) -> None:
    """Jobs have numbers; those of a stream are in a group of its own, the ones before and the report's are in none."""
    _grow(log, 0.5)
    tracker = spark.sparkContext.statusTracker()
    spark.sparkContext.parallelize([0]).count()
    before = set(tracker.getJobIdsForGroup(None))

    list(
        stream(
            tmp_path / "events", tmp_path / "out", available_now=True, max_bytes_per_trigger=100_000
        )
    )

    batches = list((tmp_path / "out" / "checkpoint" / "commits").glob("[0-9]*"))
    assert len(batches) > 1
    after = min(set(tracker.getJobIdsForGroup(None)) - before)
    assert after - max(before) - 1 == len(batches)


def test_what_comes_is_added_while_a_report_merges(
    spark: SparkSession, tmp_path: Path, log: dict[Path, bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a minute there are some hundred runs to merge, which takes seconds."""
    assert spark.version >= "4.2"
    merge = store.Store.merge
    added, was_added = Event(), list[bool]()

    def added_then(*given: Any) -> None:
        extend(*given)
        added.set()

    def merging(self: store.Store, engine: Engine = map) -> None:
        # before the stream has begun, which it may do more than once, nothing is added
        if added.is_set() and not was_added:
            added.clear()
            _grow(log, 0.6)
            was_added.append(added.wait(60))
        merge(self, engine)

    monkeypatch.setattr(streaming, "extend", added_then)
    monkeypatch.setattr(store.Store, "merge", merging)
    _grow(log, 0.3)
    reports = stream(tmp_path / "events", tmp_path / "out", trigger_seconds=0.1, report_seconds=1.0)

    found = next(one for one in reports if was_added)

    assert was_added == [True]
    _assert_as_a_batch(found, tmp_path / "events", tmp_path / "batch")


def test_killed_at_any_point_it_goes_on_where_it_was(
    spark: SparkSession, tmp_path: Path, log: dict[Path, bytes]
) -> None:
    """Read and not noted by Spark, or half way in a report: no line is missing, and none is there twice."""
    events, out = tmp_path / "events", tmp_path / "out"
    for share, name, when in ((0.4, "extend", "after"), (0.7, "read", "after")):
        _grow(log, share)
        command = [sys.executable, "-c", _KILLED, name, when, str(events), str(out)]
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=300)
        assert done.returncode == -9, done.stderr
    _grow(log, 1.0)
    assert spark.version >= "4.2"

    (found,) = stream(events, out, available_now=True, max_bytes_per_trigger=100_000)

    _assert_as_a_batch(found, events, tmp_path / "batch")


def test_what_is_wrong_is_told(spark: SparkSession, tmp_path: Path, log: dict[Path, bytes]) -> None:
    """A folder that is not there, no time between reports, and a segment that is another one than it was."""
    assert spark.version >= "4.2"
    with pytest.raises(ConfigurationError, match=r"report_seconds must be more than 0 s, not 0\.0"):
        next(stream(tmp_path, tmp_path / "out", report_seconds=0.0))
    with pytest.raises(ConfigurationError, match="nowhere is no directory of an event log"):
        next(stream(tmp_path / "nowhere", tmp_path / "out"))
    _grow(log, 0.5)
    list(stream(tmp_path / "events", tmp_path / "out", available_now=True))
    path, content = next(iter(log.items()))
    path.with_name(f"{path.name}.open").write_bytes(b"{}\n" + content)

    with pytest.raises(ConfigurationError, match=f"{path.name} is not the file any more"):
        list(stream(tmp_path / "events", tmp_path / "out", available_now=True))


def test_who_has_had_enough_hears_of_no_end_of_the_stream(
    spark: SparkSession, tmp_path: Path, log: dict[Path, bytes]
) -> None:
    """Ctrl-C in a terminal ends Spark's workers, too, and with them the stream: the last verdict stands."""
    _grow(log, 0.5)
    path, content = next(iter(log.items()))
    noted = tmp_path / "out" / "checkpoint" / "commits" / "0"
    broken = False

    def is_enough() -> bool:
        # what a report reads is not the stream's any more
        while not noted.exists() and spark.streams.active:
            time.sleep(0.1)
        while broken and spark.streams.active:
            time.sleep(0.1)
        return broken

    reports = stream(
        tmp_path / "events",
        tmp_path / "out",
        trigger_seconds=0.1,
        report_seconds=0.1,
        is_enough=is_enough,
    )
    assert next(reports).line
    path.with_name(f"{path.name}.open").write_bytes(b"{}\n" + content)
    broken = True

    assert list(reports) == []


def _following(events: Path, out: Path) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "jmsx", "report", str(events), "--out", str(out), "--follow"]
    command += ["--every", "0.1", "--master", "local[2]"]
    return subprocess.Popen(
        command,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )


def test_the_command_ends_with_ctrl_c(tmp_path: Path, log: dict[Path, bytes]) -> None:
    """As a terminal says it, to all processes at once: with the last verdict, and without a traceback."""
    _grow(log, 1.0)
    events, out = tmp_path / "events", tmp_path / "out"
    with _following(events, out) as running:
        assert running.stdout is not None
        shown = running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=120)

    expected = jmsx_report.run(events, tmp_path / "batch", engine=map)
    assert expected.line in shown
    codes = {"balanced": 0, "suspect": 2, "unverifiable": 3}
    assert running.returncode == codes[expected.audit["verdict"]]
    assert "once more aborts" in said
    assert "Traceback" not in said
    assert "ERROR" not in said
    _assert_as_a_batch(jmsx_report.run(events, out), events, tmp_path / "again")


def test_a_second_ctrl_c_ends_the_command_at_once(tmp_path: Path, log: dict[Path, bytes]) -> None:
    """Whatever it interrupts, it is told in words; what was made before is kept."""
    _grow(log, 1.0)
    events, out = tmp_path / "events", tmp_path / "out"
    with _following(events, out) as running:
        assert running.stdout is not None
        assert running.stderr is not None
        running.stdout.readline()
        os.killpg(running.pid, signal.SIGINT)
        while "once more aborts" not in running.stderr.readline():
            pass
        time.sleep(0.5)  # until it waits for Spark
        with suppress(ProcessLookupError):  # it was faster
            os.killpg(running.pid, signal.SIGINT)
        _, said = running.communicate(timeout=120)

    assert [word for word in ("Traceback", "ERROR", "Warning") if word in said] == []
    _assert_as_a_batch(jmsx_report.run(events, out), events, tmp_path / "again")
