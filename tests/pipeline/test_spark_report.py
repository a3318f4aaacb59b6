"""The whole way: segments in, Parquet, page and verdict out."""

from __future__ import annotations

import json
import os
import re
import stat
import subprocess
import sys
from typing import TYPE_CHECKING, Final

import pytest
from typer.testing import CliRunner, Result

from jmsx.cli.commands import app
from jmsx.errors import ConfigurationError
from jmsx_report.wording import duration
from jmsx_spark import ReportResult, engine, report
from jmsx_spark.session import check_java
from tests.pipeline.nesting import assert_well_nested
from tests.pipeline.simulator import SOURCE, Clock, Shop, open_log, sent

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import SparkSession

#: Tables that have one service and one broker here, and are sorted by destination then.
_BY_DESTINATION: Final = {"delivery_latency", "redelivery", "dead_letters", "audit"}
#: The tables without a row, as the day had nothing for them.
_NOTHING_TO_TELL: Final = {"transactions", "quarantine", "files"}


@pytest.fixture(scope="module")
def made(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> ReportResult:
    """Report on a day with every kind of trouble, by way of the running session."""
    assert spark.version >= "4.1"
    directory = tmp_path_factory.mktemp("report")
    shop = Shop(directory / "events", seed=21)
    shop.trade(900, lost=1, duplicated=2, dead=12, discarded=1, retried=30)
    shop.close()
    return report(directory / "events", directory / "out", title="Monday <1>")


@pytest.mark.spark
def test_the_tables_are_parquet(made: ReportResult, spark: SparkSession) -> None:
    """Each gold table can be read again, in order, with rows."""
    assert set(made.tables) > _BY_DESTINATION
    for name, path in made.tables.items():
        rows = spark.read.parquet(str(path)).collect()
        assert (name, bool(rows)) == (name, name not in _NOTHING_TO_TELL)
        if name in _BY_DESTINATION:
            assert [row["dest"] for row in rows] == sorted(row["dest"] for row in rows)


@pytest.mark.spark
def test_the_page_needs_nothing_and_says_the_verdict_first(made: ReportResult) -> None:
    """One file: no script, no address, nothing to load; well nested; the verdict before all else."""
    text = made.report.read_text(encoding="utf-8")

    assert re.search(r"https?:|[\"'(]//|<script|<link|<img|@import", text.lower()) is None
    assert set(re.findall(r'(?:href|src)="([^"#]*)', text)) <= {""}
    assert text.index("Suspect") < text.index("<h2>")
    assert "900 sent, 888 done" in text
    assert "1 unaccounted for, 2 duplicates" in text
    assert "Monday &lt;1&gt;" in text
    assert "#0102" not in text
    assert_well_nested(text)


@pytest.mark.spark
def test_the_summary_is_the_audit_for_programs(made: ReportResult) -> None:
    """summary.json holds what `audit` holds."""
    assert made.audit["verdict"] == "suspect"
    summary = made.report.with_name("summary.json")
    assert json.loads(json.dumps(made.audit)) == json.loads(summary.read_text())


def _command(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["report", *map(str, arguments), "--engine", "spark"])


@pytest.mark.spark
def test_the_command_answers_by_its_exit_code(spark: SparkSession, tmp_path: Path) -> None:
    """A balanced log ends with 0; one that proves nothing with 3, and its page is drawn without rows."""
    assert spark.version >= "4.1"
    shop = Shop(tmp_path / "balanced", seed=22)
    shop.trade(10)
    shop.close()
    log = open_log(tmp_path / "events", Clock())
    log.observe(sent("0" * 32, "topic://news", 1.0), SOURCE)
    log.close()

    well = _command(tmp_path / "balanced", "--out", tmp_path / "all well")
    assert (well.exit_code, well.output[:29]) == (0, "balanced until 2026-09-21 14:")
    open_ = _command(tmp_path / "events", "--out", tmp_path / "out")
    assert (open_.exit_code, open_.output[:41]) == (3, "unverifiable, judged until 2026-09-21 14:")
    assert "No delivery was done" in (tmp_path / "out" / "report.html").read_text()


def test_the_module_is_the_command(tmp_path: Path) -> None:
    """A directory without a segment is a wrong path or too early: no traceback, exit 1."""
    command = [sys.executable, "-m", "jmsx_spark", str(tmp_path), "--out", str(tmp_path / "out")]

    done = subprocess.run(command, capture_output=True, text=True, check=False)

    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.startswith("error: no event log segment (*.jsonl) below")


def test_paths_are_looked_at_before_spark_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt one is told at once."""
    monkeypatch.setattr(engine, "session", None)
    (tmp_path / "a.jsonl").touch()

    with pytest.raises(ConfigurationError, match="nowhere is no directory of an event log"):
        report(tmp_path / "nowhere", tmp_path / "out")
    with pytest.raises(ConfigurationError, match="no report in"):
        report(tmp_path, tmp_path / "a.jsonl" / "out")


@pytest.mark.parametrize(
    ("says", "expected"),
    [
        ('openjdk version "11.0.2" 2019-01-15', "needs Java 17 or newer"),
        ('java version "1.8.0_402"', "needs Java 17 or newer"),
        ("who knows", "needs Java 17 or newer"),
        ('openjdk version "17.0.15" 2025-04-15', None),
        ('openjdk version "25" 2025-09-16', None),
    ],
)
def test_an_old_java_is_told_with_the_cure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, says: str, expected: str | None
) -> None:
    """Java 17 is the least; the error names the command that installs it."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text(f"#!/bin/sh\necho '{says}' >&2\n")
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))

    if expected is None:
        check_java()
    else:
        with pytest.raises(ConfigurationError, match=f"{expected}.*apt-get install"):
            check_java()


@pytest.mark.parametrize(
    ("says", "told"),
    [
        (
            (
                'Exception in thread "main" java.lang.ExceptionInInitializerError\n'
                "Caused by: java.net.UnknownHostException: box: box: Name or service not known\n"
                "Caused by: java.net.UnknownHostException: box: Name or service not known"
            ),
            ": java.net.UnknownHostException: box: Name or service not known;",
        ),
        (
            (
                "Unrecognized VM option 'Foo'\nError: Could not create the Java Virtual Machine.\n"
                "Error: A fatal exception has occurred. Program will exit."
            ),
            ": Unrecognized VM option 'Foo';",
        ),
        (
            "Error occurred during initialization of VM\nCould not reserve enough space for the heap",
            ": Could not reserve enough space for the heap;",
        ),
        ("", "did not start;"),
    ],
)
def test_a_jvm_that_does_not_start_is_no_fault_of_ours(
    tmp_path: Path, says: str, told: str
) -> None:
    """The error gives the JVM's last word, and names the way without one; in a process of its own, which has no JVM."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    (tmp_path / "says").write_text(says + "\n")
    java.write_text(
        '#!/bin/sh\n[ "$1" = -version ] && exec echo \'openjdk version "17.0.15"\' >&2\n'
        f"cat {tmp_path / 'says'} >&2\nexit 1\n"
    )
    java.chmod(java.stat().st_mode | stat.S_IXUSR)
    events, out = tmp_path / "events", str(tmp_path / "report")
    open_log(events, Clock()).close()

    command = ["-m", "jmsx", "report", str(events), "--engine", "spark", "--out", out]
    ended = subprocess.run(
        [sys.executable, *command],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "JAVA_HOME": str(tmp_path), "COLUMNS": "400"},
    )

    assert ended.returncode == 1
    assert told in ended.stderr
    assert "--engine local" in ended.stderr
    assert "fault of ours" not in ended.stderr
    assert "Traceback" not in ended.stderr


_UNANSWERED: Final = """
import sys
from pathlib import Path

from jmsx.errors import ConfigurationError
from jmsx_spark import session


class Unanswered(session.SparkContext):
    def __init__(self, **how):
        super().__init__(**how)
        self._jsc.sc().stop()


lends = session.SparkContext
session.SparkContext = Unanswered
try:
    with session.session(Path(sys.argv[1]), master="local[1]"):
        pass
except ConfigurationError as error:
    print(error)
session.SparkContext = lends
with session.session(Path(sys.argv[1]), master="local[1]") as spark:
    print(spark.range(3).count())
"""


def test_a_master_that_does_not_answer_is_no_fault_of_ours(tmp_path: Path) -> None:
    """
    Spark gives up after a minute, and stops its context: after it was made, and before it was used.

    Another one can be made afterwards. In a process of its own, which has no JVM.
    """
    log = tmp_path / "spark.log"

    done = subprocess.run(
        [sys.executable, "-c", _UNANSWERED, str(log)], capture_output=True, text=True, check=False
    )

    assert done.stdout.splitlines() == [
        f"no Spark at local[1]: Cannot call methods on a stopped SparkContext; {log} says more",
        "3",
    ]


def test_no_java_is_told_with_the_cure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any Java there is one clear sentence and not Spark's traceback."""
    monkeypatch.delenv("JAVA_HOME", raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigurationError, match=r"no java on the PATH.*apt-get install"):
        check_java()


@pytest.mark.parametrize(
    ("microseconds", "words"),
    [
        (None, "-"),
        (0.4, "0.4 us"),
        (999, "999 us"),
        (1500, "1.5 ms"),
        (2.345e6, "2.35 s"),
        (-2e3, "-2 ms"),
    ],
)
def test_durations_are_worded_with_the_unit_that_suits(
    microseconds: float | None, words: str
) -> None:
    """Three digits are enough to read."""
    assert words == duration(microseconds)
