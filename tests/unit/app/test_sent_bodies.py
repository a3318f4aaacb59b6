"""What is sent as JSON, and read again: on both brokers in memory, in virtual time."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from typing import Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from jmsx import (
    App,
    MapMessage,
    Message,
    MessageFormatError,
)
from jmsx.testing import harness

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])


class Colour(Enum):
    """Said by its value."""

    RED = "red"


class Word(StrEnum):
    """It is a text."""

    YES = "yes"


@dataclass
class Line:
    """In an order."""

    article: str
    price: Decimal


@dataclass
class Order:
    """With all that JSON has no word for."""

    id: UUID
    due: date
    at: datetime
    within: timedelta
    colour: Colour
    lines: list[Line] = field(default_factory=list)


class Price(BaseModel):
    """Known to others by another name."""

    amount: Decimal = Field(alias="Amount")


ORDER = Order(
    UUID(int=7),
    date(2026, 1, 2),
    datetime(2026, 1, 2, 3, tzinfo=UTC),
    timedelta(minutes=1),
    Colour.RED,
    [Line("é", Decimal("1.50"))],
)


@KINDS
@pytest.mark.parametrize(
    ("body", "text"),
    [
        ({"a": [1, None, True]}, '{"a":[1,null,true]}'),
        ([], "[]"),
        ({}, "{}"),
        (42, "42"),
        (Line("é\0", Decimal(1)), '{"article":"é\\u0000","price":"1"}'),
        ([Price(Amount=Decimal("1.5"))], '[{"Amount":"1.5"}]'),
    ],
)
def test_what_is_sent_is_json(kind: str, body: Any, text: str) -> None:
    """As plain text, whose kind is told."""
    with harness(App(), kind) as mq:
        mq.send("queue://a", body, properties={"region": "EU"})
        (message,) = mq.messages("queue://a")
        assert message.body == text
        assert dict(message.properties) == {"content-type": "application/json", "region": "EU"}


@KINDS
def test_what_is_no_json(kind: str) -> None:
    """Text and bytes are themselves, and a map is asked for."""
    with harness(App(), kind) as mq:
        bodies: list[Any] = ["x", b"x", bytearray(b"y"), None, Word.YES]
        for body in bodies:
            mq.send("queue://a", body)
        found = mq.messages("queue://a")
        assert [one.body for one in found] == ["x", b"x", b"y", None, "yes"]
        assert [dict(one.properties) for one in found] == [{}] * 5
        mq.send("queue://map", MapMessage({"a": 1, "b": b"x"}, correlation_id="7"))
        mq.send("queue://map", Message({"a": 1}))
        maps = mq.messages("queue://map")
        assert [dict(one.body) for one in maps] == [{"a": 1, "b": b"x"}, {"a": 1}]  # type: ignore[arg-type]  # a map's body is a mapping
        assert maps[0].correlation_id == "7"


def test_a_map_message_is_of_a_map() -> None:
    """Whatever the type checker was told."""
    with pytest.raises(
        MessageFormatError, match="the body of a MapMessage is a mapping, not a str"
    ):
        MapMessage("x")  # type: ignore[arg-type]  # the refusal is what is tested


@KINDS
def test_what_is_sent_is_read_again(kind: str) -> None:
    """By the same types."""
    app, got = App(), list[Any]()

    @app.consumer("queue://orders")
    def handle(order: Order) -> None:
        got.append(order)

    @app.consumer("queue://prices")
    def price(price: Price) -> None:
        got.append(price)

    with harness(app, kind) as mq:
        mq.send("queue://orders", ORDER)
        mq.send("queue://prices", Price(Amount=Decimal(2)))
        assert got == [ORDER, Price(Amount=Decimal(2))]


def endless() -> list[Any]:
    """It contains itself."""
    one: list[Any] = []
    one.append(one)
    return one


def deep() -> list[Any]:
    """It contains others, a hundred thousand times."""
    one: list[Any] = []
    for _ in range(100_000):
        one = [one]
    return one


@pytest.mark.parametrize(
    ("body", "why"),
    [
        ({"a": object()}, "a dict that is sent is JSON, which cannot say it: there is a object in"),
        (object(), "there is a object in it"),
        ([float("nan")], "a list that is sent is JSON, which cannot say it"),
        ({(1, 2): 3}, "keys must be str"),
        ({"a": b"x"}, "there is a bytes in it"),
        (endless(), "Circular"),
        (deep(), "nested too deeply"),
    ],
)
def test_what_json_cannot_say(body: Any, why: str) -> None:
    """Is refused, and nothing is sent."""
    with pytest.raises(MessageFormatError, match=why):
        App("stomp://localhost:1").send("queue://a", body)
