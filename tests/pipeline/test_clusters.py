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
#: Of the JVMs, which live for seconds: what they would compile well pays for itself later than that. And what every JVM
#: of Spark's has in this run.
_JAVA: Final = (
    f"-XX:TieredStopAtLevel=1 -XX:+UseSerialGC {os.environ.get('SPARK_SUBMIT_OPTS', '')}".strip()
)
#: On each master a report and a stream, in a session that both use; one JVM drives all sessions.
_BOTH: Final = """
import sys
from pathlib import Path
from jmsx_report import segments
from jmsx_spark import report, stream
from jmsx_spark.session import session
segments.BATCH_BYTES = 40_000
for number, master in enumerate(sys.argv[1:]):
    with session(Path("spark.log"), master=master):
        report("events", f"batch{number}")
        list(stream("events", f"stream{number}", available_now=True, max_bytes_per_trigger=200_000))
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


def test_on_clusters_too(expected: ReportResult, tmp_path: Path) -> None:
    """
    From a directory that is not the checkout, by relative paths, on two kinds of clusters.

    On Spark's own for tests, where each executor is a process, and on a standalone one, both of whose workers work.
    """
    settings = tmp_path / "spark-defaults.conf"
    settings.write_text(f"spark.executor.extraJavaOptions {_JAVA}\n")
    with _standalone(tmp_path) as standalone:
        masters = ("local-cluster[2,1,1024]", standalone)
        done = subprocess.run(
            [sys.executable, "-c", _BOTH, *masters],
            cwd=tmp_path,
            env={**os.environ, "SPARK_CONF_DIR": str(tmp_path)},
            capture_output=True,
            text=True,
            check=False,
            timeout=500,
        )
    assert done.returncode == 0, done.stderr + (tmp_path / "spark.log").read_text()[-4000:]
    for number, master in enumerate(masters):
        for out in (tmp_path / f"batch{number}", tmp_path / f"stream{number}"):
            summary = (out / "summary.json").read_text()
            assert summary == expected.report.with_name("summary.json").read_text(), master
            for name, path in expected.tables.items():
                table = pl.read_parquet(out / "tables" / name)
                assert_frame_equal(table, pl.read_parquet(path), check_exact=True)
    for number in (1, 2):
        assert list((tmp_path / f"worker{number}").glob("app-*/*/stderr"))


@contextmanager
def _standalone(folder: Path) -> Iterator[str]:
    """Run a standalone cluster of two workers below `folder`; lends the URL of its master."""
    with ExitStack() as running:
        says = r"master at (spark://\S+)"
        master = running.enter_context(
            _daemon("master.Master", folder / "master.log", says, "--port", "0")
        )
        for number in (1, 2):
            where = folder / f"worker{number}"
            options = ("--cores", "1", "--memory", "1g", "--work-dir", str(where), master)
            log = folder / f"worker{number}.log"
            running.enter_context(
                _daemon("worker.Worker", log, r"(registered with master)", *options)
            )
        yield master


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
