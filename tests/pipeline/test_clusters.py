"""Workers in processes of their own, as on a cluster: the same tables, by a batch and by a stream."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import time
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl
import pyspark
import pytest
from polars.testing import assert_frame_equal

import jmsx_report
from tests.benchmarks.segments import write

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_report import ReportResult

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

_SECONDS: Final = 120
#: Of the JVMs, which live for seconds: what they would compile well pays for itself later than that.
_JAVA: Final = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
#: A report and a stream, in a session that both use.
_BOTH: Final = """
import sys
from pathlib import Path
from jmsx_report import segments
from jmsx_spark import report, stream
from jmsx_spark.session import session
segments.BATCH_BYTES = 40_000
with session(Path("spark.log"), master=sys.argv[1]):
    report("events", "batch")
    list(stream("events", "stream", available_now=True, max_bytes_per_trigger=200_000))
"""


@pytest.fixture
def expected(tmp_path: Path) -> ReportResult:
    """Make a log of some 20 batches, some of it open and one segment shipped twice, and its tables by plain code."""
    events = tmp_path / "events"
    write(events, events=1500, segments=24, hours=3)
    first, *_, last = sorted(events.rglob("*.jsonl"))
    (events / "again").mkdir()
    (events / "again" / first.name).write_bytes(first.read_bytes() + b"{}\n")
    last.rename(f"{last}.open")
    return jmsx_report.run(events, tmp_path / "expected", engine=map)


def _assert_same_on(master: str, expected: ReportResult, folder: Path) -> None:
    """Make both from a directory that is not the checkout, by relative paths."""
    settings = folder / "spark-defaults.conf"
    settings.write_text(f"spark.executor.extraJavaOptions {_JAVA}\n")
    done = subprocess.run(
        [sys.executable, "-c", _BOTH, master],
        cwd=folder,
        env={**os.environ, "SPARK_CONF_DIR": str(folder)},
        capture_output=True,
        text=True,
        check=False,
        timeout=500,
    )
    assert done.returncode == 0, done.stderr + (folder / "spark.log").read_text()[-4000:]
    for out in ("batch", "stream"):
        summary = (folder / out / "summary.json").read_text()
        assert summary == expected.report.with_name("summary.json").read_text()
        for name, path in expected.tables.items():
            table = pl.read_parquet(folder / out / "tables" / name)
            assert_frame_equal(table, pl.read_parquet(path), check_exact=True)


def test_two_executors_of_one_host(expected: ReportResult, tmp_path: Path) -> None:
    """Spark's own cluster for tests: each executor is a process."""
    _assert_same_on("local-cluster[2,1,1024]", expected, tmp_path)


def test_a_master_with_two_workers(expected: ReportResult, tmp_path: Path) -> None:
    """A standalone cluster; both of its workers work."""
    with ExitStack() as running:
        master = running.enter_context(
            _daemon(
                "master.Master", tmp_path / "master.log", r"master at (spark://\S+)", "--port", "0"
            )
        )
        for number in (1, 2):
            where = tmp_path / f"worker{number}"
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(where), master)
            log = tmp_path / f"worker{number}.log"
            running.enter_context(
                _daemon("worker.Worker", log, r"(registered with master)", *options)
            )
        _assert_same_on(master, expected, tmp_path)
    for number in (1, 2):
        assert list((tmp_path / f"worker{number}").glob("app-*/*/stderr"))


@contextmanager
def _daemon(name: str, log: Path, says: str, *options: str) -> Iterator[str]:
    """Run one of Spark's daemons, as soon as it `says` that it is ready; lends what that says."""
    command = [
        str(Path(pyspark.__file__).parent / "bin" / "spark-class"),
        f"org.apache.spark.deploy.{name}",
        *("--host", "127.0.0.1", "--webui-port", "0"),
        *options,
    ]
    environment = {
        **os.environ,
        "SPARK_DAEMON_MEMORY": "256m",
        "SPARK_DAEMON_JAVA_OPTS": _JAVA,
        "SPARK_NO_DAEMONIZE": "1",
    }
    with log.open("wb") as sink:
        daemon = subprocess.Popen(command, stdout=sink, stderr=sink, env=environment)
    try:
        until = time.monotonic() + _SECONDS
        while (found := re.search(says, log.read_text())) is None:
            assert daemon.poll() is None, log.read_text()
            assert time.monotonic() < until, log.read_text()
            time.sleep(0.1)
        yield found[1]
    finally:
        daemon.kill()
        daemon.wait()
