"""The one table of fields: it fits the events, the lines fit it, the docs are made from it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import pytest

import jmsx_eventlog
from jmsx import AcknowledgeMode
from jmsx.core.events import AckTrigger, Outcome
from jmsx_eventlog.encode import Encoder, kind_of
from jmsx_eventlog.schema import FIELDS, KINDS, REQUIRED, FieldType, fault_of, fields_of, markdown
from tests.pipeline.lines import lines
from tests.pipeline.simulator import SOURCE, Shop, delivery, seeded
from tests.pipeline.specimens import BARE, EVENTS, GOLDEN

_JSON_TYPES: Final = {
    FieldType.STRING: str,
    FieldType.INT: int,
    FieldType.LONG: int,
    FieldType.BOOLEAN: bool,
}


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_full_event_fills_every_field_of_its_kind(event: Any) -> None:
    """With every member set, exactly the fields that the table gives to the kind stand in the line."""
    line = json.loads(Encoder("w", with_text=True).event(event, SOURCE, 7, 100.0))

    assert {field.name for field in fields_of(kind_of(event))} == set(line)
    assert fault_of(line) is None
    types = {field.name: _JSON_TYPES[field.type] for field in FIELDS}
    assert {name: types[name] for name in line} == {name: type(line[name]) for name in line}


def test_every_kind_and_field_is_declared_once() -> None:
    """No name stands twice, and no field names a kind that is not there."""
    kinds = [kind.name for kind in KINDS]
    names = [field.name for field in FIELDS]

    assert len(kinds) == len(set(kinds))
    assert len(names) == len(set(names))
    assert {kind for field in FIELDS for kind in field.sources} <= set(kinds)
    assert names[:2] == ["v", "kind"]


def test_times_are_in_microseconds_and_have_64_bits() -> None:
    """As their names say; 32 bits end after 36 minutes."""
    times = [each for each in FIELDS if each.name.endswith("_us")]
    assert len(times) > 10
    assert [
        each.name
        for each in times
        if each.type is not FieldType.LONG or each.unit.partition(",")[0] != "us"
    ] == []


def test_every_line_of_a_log_is_in_the_table(tmp_path: Path) -> None:
    """What the log writes about itself is declared too."""
    shop = Shop(tmp_path, seed=1)
    shop.trade(50, dead=5, lost=5)
    shop.close()

    undeclared = {
        (line["kind"], name)
        for line in lines(tmp_path)
        for name in line
        if name not in {field.name for field in fields_of(line["kind"])}
    }
    assert undeclared == set()


def test_the_document_is_made_from_the_table() -> None:
    """SCHEMA.md is what `python -m jmsx_eventlog` prints."""
    document = Path(jmsx_eventlog.__file__).with_name("SCHEMA.md")

    assert document.read_text(encoding="utf-8") == markdown()


@pytest.mark.parametrize("event", BARE, ids=lambda event: type(event).__name__)
def test_what_is_required_is_always_there(event: Any) -> None:
    """A line of which nothing is told that may be left out is a line still."""
    line = json.loads(Encoder("w").event(event, SOURCE, 7, 100.0))

    assert fault_of(line) is None


def test_no_value_is_taken_for_the_end_of_a_line() -> None:
    """Lines are encoded together and then cut; what would be cut in the wrong place is refused."""
    chance, array = seeded(1), [{"v": 1}, {"v": 1, "kind": "send"}]
    odd = delivery("a", "queue://orders", 1.0, chance, correlation_id=array)
    like = delivery("a", "queue://orders", 1.0, chance, correlation_id=json.dumps(array))

    with pytest.raises(TypeError):
        Encoder("w").events([(odd, SOURCE)], 0, 0.0)
    assert Encoder("w").events([(like, SOURCE)], 0, 0.0).count(b"\n") == 1


def _golden() -> dict[str, list[dict[str, Any]]]:
    return {
        path.stem: [json.loads(line) for line in path.read_bytes().splitlines()]
        for path in GOLDEN.glob("*.jsonl")
    }


@pytest.mark.parametrize("release", sorted(_golden()))
def test_every_line_of_an_older_release_is_readable(release: str) -> None:
    """What was ever written as version 1 is without fault for ever, field by field."""
    known = {kind.name: {field.name for field in fields_of(kind.name)} for kind in KINDS}

    assert [line for line in _golden()[release] if fault_of(line) is not None] == []
    assert [line for line in _golden()[release] if set(line) - known[line["kind"]]] == []


def test_the_corpus_has_each_kind_field_and_word() -> None:
    """Whoever adds one adds its lines, too."""
    lines = [line for release in _golden().values() for line in release]
    shown = {(line["kind"], name) for line in lines for name in line}
    said = {(line["kind"], name, str(value)) for line in lines for name, value in line.items()}

    declared = {(kind.name, field.name) for kind in KINDS for field in fields_of(kind.name)}
    words = {
        (kind, field.name, word)
        for field in FIELDS
        for kind, words in field.words.items()
        for word in words
    }
    by_another_writer = {("log.recovered", name) for name in ("mono_us", "session_id", "epoch")}
    of_the_log = {
        (kind.name, name)
        for kind in KINDS
        if kind.name.startswith("log.")
        for name in ("session_id", "epoch")
    }
    assert declared - shown == by_another_writer | of_the_log
    assert words - said == {("log.gap", "reason", "overflow")}


_SENT: Final[dict[str, Any]] = {
    "v": 1,
    "kind": "send",
    "writer": "w",
    "seq": 0,
    "ts_us": 1,
    "dest": "queue://a",
    "msg_key": "k",
    "outcome": "confirmed",
}


@pytest.mark.parametrize("name", [*REQUIRED, "dest", "msg_key", "outcome"])
@pytest.mark.parametrize(
    "value",
    ["gone", None, [], {}, 1.0, True, "²", -(2**70), 1 << 20_000],
    ids=lambda value: type(value).__name__,
)
def test_a_required_field_that_is_missing_or_odd_is_told(name: str, value: object) -> None:
    """One of them gone, null or of a wrong type makes the line none, and the fault names the field."""
    line = {**_SENT, name: value}
    if value == "gone":
        del line[name]
    if value == "²" and name in {"writer", "dest", "msg_key"}:
        assert fault_of(line) is None
        return

    fault = fault_of(line)

    assert fault is not None
    assert name in fault
    assert len(fault) < 120


@pytest.mark.parametrize(
    ("members", "fault"),
    [
        ({}, None),
        ({"size": None, "of a later release": {}, "session_id": "s"}, None),
        ({"v": 2}, "v 2 is newer than 1, the newest that this release knows"),
        ({"v": 0}, "v is 0, and no version"),
        ({"kind": "pigeon"}, "unknown kind 'pigeon'"),
        ({"kind": "x" * 1000}, f"unknown kind '{35 * 'x'}...'"),
        ({"outcome": "Confirmed"}, "outcome of send is 'Confirmed'"),
        ({"outcome": "acknowledged"}, "outcome of send is 'acknowledged'"),
        ({"seq": "12"}, "seq of send is '12'"),
        ({"seq": -1}, "seq of send is -1"),
        ({"seq": 1.5}, "seq of send is 1.5"),
        ({"seq": float("nan")}, "seq of send is NaN"),
        ({"seq": True}, "seq of send is true"),
        ({"ts_us": -(2**80)}, "ts_us of send is a number of 81 bits"),
        ({"ts_us": 2**62}, "ts_us of send is 4611686018427387904"),
        ({"size": 2**31}, "size of send is 2147483648"),
        ({"dest": 7}, "dest of send is 7"),
        ({"dest": ["queue://a"]}, "dest of send is an array"),
        ({"expires_us": "soon"}, "expires_us of send is 'soon'"),
        ({"tx_id": {"a": 1}}, "tx_id of send is an object"),
    ],
)
def test_what_is_wrong_with_a_line_is_said(members: dict[str, Any], fault: str | None) -> None:
    """One sentence that names field, kind and value."""
    found = fault_of(_SENT | members)

    assert (found is None) if fault is None else fault in str(found)


@pytest.mark.parametrize("line", [None, 7, "text", [], [_SENT], 1.5, True])
def test_what_is_no_object_is_no_line(line: object) -> None:
    """JSON has more than objects."""
    assert fault_of(line) == "no JSON object"


def test_the_words_are_those_of_the_core() -> None:
    """A new outcome, trigger or acknowledge mode has to stand in the table."""
    words = {
        (field.name, kind): set(words) for field in FIELDS for kind, words in field.words.items()
    }

    assert words["outcome", "delivery"] == {outcome.value for outcome in Outcome}
    assert words["trigger", "ack.batch"] == {trigger.value for trigger in AckTrigger}
    assert words["ack_mode", "sub.open"] == {mode.label for mode in AcknowledgeMode}
