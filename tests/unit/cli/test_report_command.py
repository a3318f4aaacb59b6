"""What `jmsx report` takes, refuses and answers by its exit code, with an engine that only listens."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from dataclasses import dataclass, field
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from typer.testing import CliRunner

from jmsx import plugins
from jmsx.cli import report as command
from jmsx.cli.commands import app
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


@dataclass
class _Engine:
    """Keeps what it was asked for and answers with `verdict`."""

    verdict: str = "balanced"
    asked: dict[str, Any] = field(default_factory=dict)

    def __call__(
        self,
        events: Path,
        out: Path,
        *,
        deadline_seconds: float = 0.0,
        expect: dict[str, int] | None = None,
        since: datetime | None = None,
        until: datetime | None = None,
    ) -> Any:
        """Report nothing at all."""
        self.asked = {
            "events": events,
            "out": out,
            "deadline_seconds": deadline_seconds,
            "expect": expect,
            "since": since,
            "until": until,
        }

        @dataclass
        class Made:
            audit: dict[str, Any]
            line: str = "balanced: 1 sent"
            report: Path = Path("somewhere/report.html")
            rows: dict[str, int] = field(default_factory=dict)

        return Made({"verdict": self.verdict, "reasons": ["because"]})


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> _Engine:
    """Take the place of every engine."""
    made = _Engine()
    monkeypatch.setattr(plugins, "load", lambda _group, _name: made)
    return made


@pytest.mark.parametrize(
    ("verdict", "code"), [("balanced", 0), ("suspect", 2), ("unverifiable", 3), ("anything", 3)]
)
def test_only_balanced_ends_with_0(engine: _Engine, verdict: str, code: int) -> None:
    """What a program does next hangs on the exit code."""
    engine.verdict = verdict

    result = CliRunner().invoke(app, ["report", "events"])

    assert result.exit_code == code
    assert "because" in result.stdout


def test_json_is_all_that_is_printed(engine: _Engine) -> None:
    """So that it may be piped, with the same exit code."""
    engine.verdict = "suspect"

    result = CliRunner().invoke(app, ["report", "events", "--json"])

    assert json.loads(result.stdout) == {"verdict": "suspect", "reasons": ["because"]}
    assert result.exit_code == 2


def test_everything_that_is_asked_for_reaches_the_engine(engine: _Engine) -> None:
    """Times are UTC unless a zone is said."""
    words = ["report", "events", "--out", "there", "--deadline", "1.5m"]
    words += ["--since", "2026-11-22T10:00", "--until", "2026-11-22T12:00+01:30"]
    words += ["--expect", "shop=2", "--expect", "a=b=1"]

    result = CliRunner().invoke(app, words)

    assert result.exit_code == 0
    assert engine.asked == {
        "events": Path("events"),
        "out": Path("there"),
        "deadline_seconds": 90.0,
        "expect": {"shop": 2, "a=b": 1},
        "since": datetime(2026, 11, 22, 10, tzinfo=UTC),
        "until": datetime(2026, 11, 22, 10, 30, tzinfo=UTC),
    }


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--since", "yesterday"], "--since 'yesterday' is no time: write 2026-11-22T10:00"),
        (["--until", "12"], "--until '12' is no time"),
        (["--since", "1e9d"], "is no time"),
        (["--since", "99999999d"], "is no time"),
        (["--since", "9999-12-31T23:59-14:00"], "is no time"),
        (["--until", "0001-01-01T00:00+14:00"], "is no time"),
        (["--since", "1h", "--until", "2h"], "nothing to judge"),
        (["--deadline", "soon"], "write seconds, as 300, or 5m"),
        (["--deadline", "-5"], "--deadline '-5' is no duration"),
        (["--deadline", "inf"], "is no duration"),
        (["--expect", "shop"], "is not SERVICE=N"),
        (["--expect", "shop=two"], "is not SERVICE=N"),
        (["--expect", "shop=0"], "is not SERVICE=N"),
        (["--expect", "=2"], "is not SERVICE=N"),
        (["--expect", "shop=1", "--expect", "shop=2"], "twice"),
        (["--master", "local[2]"], "takes no --master"),
        (["--sinse", "1h"], "No such option"),
        (["--deadline"], "--deadline"),
    ],
)
def test_what_is_wrong_is_refused_with_what_is_right(
    engine: _Engine, arguments: list[str], told: str
) -> None:
    """Before anything is read, and not with the exit code of a suspect log."""
    result = CliRunner().invoke(app, ["report", "events", *arguments])

    assert isinstance(result.exception, ConfigurationError)
    assert told in str(result.exception)
    assert engine.asked == {}


def test_without_pyspark_local_processes_work_and_it_is_said_once(
    engine: _Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is said to who names an engine."""
    asked: list[str] = []

    def load(_group: str, name: str) -> _Engine:
        asked.append(name)
        return engine

    monkeypatch.setattr(plugins, "load", load)
    monkeypatch.setattr(command, "find_spec", lambda _name: None)

    unnamed = CliRunner().invoke(app, ["report", "events"])
    named = CliRunner().invoke(app, ["report", "events", "--engine", "local"])

    assert asked == ["local", "local"]
    assert unnamed.stderr.count("pyspark is not installed") == 1
    assert "pyspark" not in named.stderr


class _Stream:
    """Makes a report for each verdict, and is interrupted after the last; then it waits until that is enough."""

    def __init__(self, *verdicts: str) -> None:
        self.verdicts = verdicts
        self.closed = False

    def __call__(
        self,
        events: Path,
        out: Path,
        *,
        is_enough: Callable[[], bool],
        report_seconds: float = 60.0,
    ) -> Iterator[Any]:
        """Report that often."""
        try:
            for verdict in self.verdicts:
                yield _Engine(verdict)(events, out)
            signal.raise_signal(signal.SIGINT)
            assert is_enough()
            assert report_seconds == 5
        finally:
            self.closed = True


@pytest.mark.parametrize(
    ("verdicts", "code"), [((), 1), (("suspect", "balanced"), 0), (("balanced", "suspect"), 2)]
)
def test_a_followed_log_ends_with_ctrl_c_and_the_last_verdict(
    monkeypatch: pytest.MonkeyPatch, verdicts: tuple[str, ...], code: int
) -> None:
    """Each report is one line, and in JSON as well."""
    stream = _Stream(*verdicts)
    monkeypatch.setattr(
        plugins, "load", lambda group, name: {("jmsx.streams", "spark"): stream}[group, name]
    )
    before = signal.getsignal(signal.SIGINT)
    words = ["report", "events", "--follow", "--every", "5s"]

    shown = CliRunner().invoke(app, words)
    piped = CliRunner().invoke(app, [*words, "--json"])

    assert (shown.exit_code, piped.exit_code) == (code, code)
    assert (
        shown.stdout.count("balanced: 1 sent\n") == len(shown.stdout.splitlines()) == len(verdicts)
    )
    assert tuple(json.loads(line)["verdict"] for line in piped.stdout.splitlines()) == verdicts
    assert "once more aborts" in shown.stderr
    assert signal.getsignal(signal.SIGINT) == before


def test_a_stream_ends_where_what_is_done_with_its_report_fails(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """Spark is not left running behind the error."""
    stream = _Stream("balanced")

    def write(*_report: Any, **_times: Any) -> None:
        raise OSError("disk full")

    loaded = {"jmsx.streams": stream, "jmsx.metrics": write}
    monkeypatch.setattr(plugins, "load", lambda group, _name: loaded[group])

    result = CliRunner().invoke(
        app, ["report", "events", "--follow", "--metrics", str(tmp_path / "jmsx.prom")]
    )

    assert "disk full" in str(result.exception)
    assert stream.closed


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--follow", "--since", "1h"], "--follow takes no --since"),
        (["--follow", "--engine", "local"], "--follow is done by Spark"),
        (["--follow", "--every", "soon"], "--every 'soon' is no duration"),
        (["--follow", "--every", "0"], "--every must be more than 0 s, not '0'"),
        (["--every", "5s"], "takes no --every; leave it out, or use --follow"),
    ],
)
def test_what_cannot_be_followed_is_refused(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], told: str
) -> None:
    """With what is right, before Spark starts."""
    loaded = {"jmsx.streams": _Stream(), "jmsx.reports": _Engine()}
    monkeypatch.setattr(plugins, "load", lambda group, _name: loaded[group])

    result = CliRunner().invoke(app, ["report", "events", *arguments])

    assert isinstance(result.exception, ConfigurationError)
    assert told in str(result.exception)


@pytest.mark.parametrize(
    "command",
    [["-m", "jmsx"], ["-c", "from jmsx.cli import main; main()"]],
    ids=["module", "script"],
)
def test_the_version_is_told(command: list[str]) -> None:
    """However the command is called, and whatever else is asked for."""
    done = subprocess.run(
        [sys.executable, *command, "--version", "report"],
        capture_output=True,
        text=True,
        check=True,
    )

    assert done.stdout == f"jmsx {version('jmsx')}\n"
