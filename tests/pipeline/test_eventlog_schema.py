"""The one table of fields: it fits the events, the lines fit it, the docs and Spark are made from it."""

from __future__ import annotations

import dataclasses
import json
import typing
from pathlib import Path
from typing import Any, Final

import pytest

import jmsx_eventlog
from jmsx.core import events as core
from jmsx_eventlog.encode import Encoder, kind_of
from jmsx_eventlog.schema import FIELDS, KINDS, FieldType, fields_of, markdown
from jmsx_spark.schema import event_schema
from tests.pipeline.lines import lines
from tests.pipeline.simulator import SOURCE, Shop

_JSON_TYPES: Final = {
    FieldType.STRING: str,
    FieldType.INT: int,
    FieldType.LONG: int,
    FieldType.BOOLEAN: bool,
}
_SAMPLES: Final[dict[Any, Any]] = {
    "str": "x",
    "float": 1.5,
    "int": 3,
    "bool": True,
    "AckTrigger": core.AckTrigger.IDLE,
    "Outcome": core.Outcome.EXPIRED,
    "TransactionOutcome": core.TransactionOutcome.IN_DOUBT,
}


def _sample(cls: type) -> Any:
    """Make an event with every member set."""
    return cls(
        **{
            member.name: _SAMPLES[str(member.type).removesuffix(" | None")]
            for member in dataclasses.fields(cls)
        }
    )


EVENTS: Final = [_sample(cls) for cls in typing.get_args(core.Event)]


@pytest.mark.parametrize("event", EVENTS, ids=lambda event: type(event).__name__)
def test_a_full_event_fills_every_field_of_its_kind(event: Any) -> None:
    """With every member set, exactly the fields that the table gives to the kind stand in the line."""
    line = json.loads(Encoder("w", with_text=True).event(event, SOURCE, 7, 100.0))

    assert {field.name for field in fields_of(kind_of(event))} == set(line)
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


def test_spark_reads_the_same_fields() -> None:
    """The StructType has the table's names, order and types."""
    expected = [(field.name, field.type.value) for field in FIELDS]

    assert expected == [(field.name, field.dataType.simpleString()) for field in event_schema()]
