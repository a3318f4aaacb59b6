"""What `jmsx report` takes, refuses and answers by its exit code, with an engine that only listens."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from jmsx import plugins
from jmsx.cli import report as command
from jmsx.cli.commands import app
from jmsx.errors import ConfigurationError


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
    asked = []
    monkeypatch.setattr(plugins, "load", lambda _group, name: (asked.append(name), engine)[1])
    monkeypatch.setattr(command, "find_spec", lambda _name: None)

    unnamed = CliRunner().invoke(app, ["report", "events"])
    named = CliRunner().invoke(app, ["report", "events", "--engine", "local"])

    assert asked == ["local", "local"]
    assert unnamed.stderr.count("pyspark is not installed") == 1
    assert "pyspark" not in named.stderr
