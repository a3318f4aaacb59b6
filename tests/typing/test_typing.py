"""The typed face: what mypy and pyright say of programs that use jmsx, installed as any library is."""

from __future__ import annotations

import functools
import json
import re
import subprocess
import sys
from dataclasses import fields
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx.app.registration import Consumer, ConsumerKeywords
from jmsx.app.sender import Sending, SendKeywords
from jmsx.config.options import AppKeywords, ConnectionKeywords, ConnectionOptions

if TYPE_CHECKING:
    from collections.abc import Callable

HERE: Final = Path(__file__).parent
CACHE: Final = HERE.parents[1] / ".mypy_cache"
ACCEPTED: Final = HERE / "accepted.py"
MISTAKES: Final = HERE / "mistakes.py"


#: What a checker says: file by file, errors by line.
Told = dict[Path, dict[int, str]]


@functools.cache
def mypy() -> Told:
    """What `mypy --strict` tells a user, who has not our configuration, of both files: to start it costs more."""
    command = [
        sys.executable,
        "-m",
        "mypy",
        "--strict",
        "--config-file=",
        "--cache-dir",
        str(CACHE),
        ACCEPTED.name,
        MISTAKES.name,
    ]
    told = subprocess.run(command, cwd=HERE, capture_output=True, text=True, check=False)
    assert not told.stderr
    found: Told = {ACCEPTED: {}, MISTAKES: {}}
    for line in told.stdout.splitlines():
        each = re.fullmatch(r"(\w+\.py):(\d+): error: (.*)", line)
        if each is not None:
            found[HERE / each[1]][int(each[2])] = each[3]
    return found


@functools.cache
def pyright() -> Told:
    """The same of pyright's strict mode (basedpyright is pyright without npm)."""
    settings = HERE / "pyrightconfig.json"
    command = [sys.executable, "-m", "basedpyright", "--outputjson"]
    command += ["--pythonpath", sys.executable, "--project", str(settings)]
    command += [str(ACCEPTED), str(MISTAKES)]
    told = subprocess.run(command, capture_output=True, text=True, check=False)
    found: Told = {ACCEPTED: {}, MISTAKES: {}}
    for each in json.loads(told.stdout)["generalDiagnostics"]:
        if each["severity"] == "error":
            line = each["range"]["start"]["line"] + 1
            found[Path(each["file"])][line] = each["message"]
    return found


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_programs_are_accepted(checker: Callable[[], Told]) -> None:
    """As users write them."""
    assert checker()[ACCEPTED] == {}


@pytest.mark.parametrize("checker", [mypy, pyright])
def test_mistakes_are_found(checker: Callable[[], Told]) -> None:
    """Each, and nothing else."""
    lines = MISTAKES.read_text("utf-8").splitlines()
    planted = {number for number, line in enumerate(lines, 1) if line.endswith("# mistake")}
    assert len(planted) > 20
    assert set(checker()[MISTAKES]) == planted


def spelled_types(keywords: Any) -> dict[str, str]:
    """The types of a TypedDict's keys, as they are written."""
    return {name: each.__forward_arg__ for name, each in keywords.__annotations__.items()}


#: What fields of options are given, which hold it in seconds.
GIVEN: Final = {
    "Seconds": "Duration",
    "SecondsOrNone": "Duration | None",
    "Heartbeat": "tuple[Duration, Duration]",
}


def test_keywords_of_connections_are_the_options() -> None:
    """By name and type."""
    assert spelled_types(ConnectionKeywords) == {
        each.name: GIVEN.get(str(each.type), each.type) for each in fields(ConnectionOptions)
    }
    assert spelled_types(ConnectionKeywords).keys() - spelled_types(AppKeywords) == {"reconnect"}


def test_keywords_of_consumers_are_their_settings() -> None:
    """By name and type; None would say nothing where the decorator's default says it."""
    settings = {each.name: str(each.type) for each in fields(Consumer)}
    spelled = {
        "handler",
        "destination",
        "name",
        "mode",
        "redelivery",
        "parameters",
        "dedupe",
        "batch",
    }
    keywords = spelled_types(ConsumerKeywords)
    assert keywords.keys() == settings.keys() - spelled
    keywords["dead_letter"] += " | None"
    assert keywords == {name: settings[name] for name in keywords}


def test_keywords_of_sends_are_what_a_send_has() -> None:
    """By name and type."""
    assert spelled_types(SendKeywords) == {each.name: each.type for each in fields(Sending)}
