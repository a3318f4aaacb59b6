"""The logs of the situations are what a writer of jmsx would leave, and their books are right."""

from __future__ import annotations

import json
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.pipeline.situations.judge import chosen
from tests.pipeline.situations.scene import SITUATIONS, Scene
from tests.pipeline.situations.truth import SUSPECT, Said, Truth

_SCHEMA = Path(__file__).parents[3] / "adapters" / "jmsx_eventlog" / "SCHEMA.md"
_TYPES = {"string": str, "int": int, "bigint": int, "boolean": bool}

_ONE_HOUR = {"settled": 0, "done": 0, "unaccounted": 0, "duplicates": 0}


def _lines(directory: Path) -> list[dict[str, Any]]:
    paths = sorted(directory.rglob("*.jsonl*"))
    return [json.loads(line) for path in paths for line in path.read_bytes().split(b"\n") if line]


def _fields() -> dict[str, tuple[str, frozenset[str]]]:
    """Read type and kinds of each field off the schema's own page."""
    rows = re.findall(
        r"^\| `(\w+)` \| (\w+) \| [^|]* \| ([^|]*) \|", _SCHEMA.read_text(), re.MULTILINE
    )
    return {name: (kind, frozenset(re.findall(r"`([\w.]+)`", where))) for name, kind, where in rows}


@pytest.mark.parametrize("family", ["healthy", "lost", "fanout", "unsettled"])
def test_every_line_is_as_the_schema_has_it(family: str, tmp_path: Path) -> None:
    """Each field of each line is of the kind and of the type that SCHEMA.md says."""
    fields = _fields()
    for one in chosen([family]):
        if one.name == "ten_thousand_destinations":
            continue
        directory = tmp_path / one.name
        directory.mkdir()
        one.make(Scene(directory, 1, 60))
        for line in _lines(directory) if "torn" not in one.name else []:
            if line["kind"] == "broker.stats":
                continue
            for name in line:
                kind, kinds = fields[name]
                assert type(line[name]) is _TYPES[kind], (one.name, name, line)
                assert not kinds or line["kind"] in kinds, (one.name, name, line)


@pytest.mark.parametrize("name", ["clean_with_skews", "lost_and_repeated", "receipts_lost"])
def test_books_agree_with_a_plain_count_of_the_lines(name: str, tmp_path: Path) -> None:
    """Sent, settled, lost and repeated, counted key by key from the lines, are what the truth says."""
    made = SITUATIONS[name].make(Scene(tmp_path, 5))
    assert isinstance(made, Truth)
    sent, settled, done = Counter[str](), Counter[str](), Counter[str]()
    for line in _lines(tmp_path):
        if line["kind"] == "send":
            sent[line["msg_key"]] += 1
        elif line["kind"] == "delivery":
            settled[line["msg_key"]] += line["outcome"] not in {
                "abandoned",
                "released",
                "rolled_back",
            }
            done[line["msg_key"]] += line["outcome"] == "acknowledged"

    assert {
        "sent": sent.total(),
        "settled": settled.total(),
        "done": done.total(),
        "unaccounted": sum(not settled[key] for key in sent),
        "duplicates": sum(count > 1 for count in done.values()),
        "unsent": 0,
    }.items() <= made.numbers.items()


def test_each_seed_makes_the_same_log_again(tmp_path: Path) -> None:
    """A wrong answer can be looked at again by situation and seed."""
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        SITUATIONS["lost_and_repeated"].make(Scene(tmp_path / name, 9, 60))

    one, two = (
        {path.relative_to(tmp_path / name): path.read_bytes() for path in found}
        for name in ("one", "two")
        for found in [[path for path in (tmp_path / name).rglob("*") if path.is_file()]]
    )
    assert one == two
    assert one


def test_numbers_of_every_writer_have_no_gap(tmp_path: Path) -> None:
    """Where nothing was taken out, each writer's lines are numbered from 0."""
    SITUATIONS["clean_with_skews"].make(Scene(tmp_path, 3))
    numbers: dict[str, list[int]] = {}
    for line in _lines(tmp_path):
        numbers.setdefault(line["writer"], []).append(line["seq"])

    assert len(numbers) == 4
    for found in numbers.values():
        assert sorted(found) == list(range(len(found)))


def test_a_truth_finds_what_is_said_wrongly() -> None:
    """Each of verdict, exit code, number, destination, hour, finding and key can fail."""
    truth = Truth(
        SUSPECT,
        numbers={"sent": 3, "unaccounted": 1},
        by_destination={"queue://a": {"sent": 3}},
        verdicts={"queue://a": SUSPECT},
        findings=[("lost", "queue://a")],
        quarantined=0,
        complete=True,
        lost_keys=frozenset({"0123"}),
    )
    right: dict[str, Any] = {
        "verdict": "suspect",
        "sent": 3,
        "unaccounted": 1,
        "quarantined": 0,
        "destinations": {"queue://a": {"sent": 3, "verdict": "suspect", "sample_keys": ["0123"]}},
        "hours": [
            {"dest": "queue://a", "hour_us": hour, "verdict": "suspect", **_ONE_HOUR, "sent": sent}
            for hour, sent in ((0, 1), (3_600_000_000, 2))
        ],
        "completeness": {"complete": True, "faults": []},
        "findings": ["queue://a: 1 message was LOST"],
    }
    assert truth.faults(Said(right, 2)) == []

    wrong = {
        "verdict": "balanced",
        "sent": 4,
        "quarantined": 1,
        "destinations": {},
        "hours": right["hours"][:1],
        "completeness": {"complete": False},
        "findings": [],
    }
    for name, value in wrong.items():
        assert truth.faults(Said(right | {name: value}, 2)), name
    assert truth.faults(Said(right, 0))
