"""What handlers are given by their annotations, and which handlers are refused when they are registered."""

# ruff: noqa: ARG001, D103, PLR0917, TC003 - handlers whose parameters are all there is to them

from __future__ import annotations

import asyncio
import functools
import json
import sqlite3
import subprocess
import sys
import threading
from dataclasses import dataclass
from datetime import date
from enum import Enum, StrEnum
from functools import partial, wraps
from typing import TYPE_CHECKING, Annotated, Any, Literal, NewType, TypeVar
from uuid import UUID
from zoneinfo import ZoneInfo

import pydantic.v1
import pytest
from pydantic import BaseModel, ConfigDict, Field, RootModel, field_validator
from typing_extensions import TypedDict  # which pydantic wants on Python 3.11

from jmsx import (
    App,
    ConfigurationError,
    DatabaseStore,
    Destination,
    Header,
    MapMessage,
    MemoryStore,
    Message,
    Property,
    RedeliveryPolicy,
    Session,
)
from jmsx.testing import harness

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable
    from decimal import Decimal
    from pathlib import Path

HOURS = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=3600.0, redelivery_delay=3600.0
)


@dataclass
class Order:
    """Of one's own."""

    id: int
    note: str = ""


class Sku(RootModel[str]):
    """A text with a name."""


class Item(TypedDict):
    """A dict whose names are known."""

    article: str
    count: int


class Rank(Enum):
    """Of a property."""

    HIGH = "high"
    LOW = "low"


class Word(StrEnum):
    """It is a text."""

    YES = "yes"


ItemId = NewType("ItemId", str)


def given(handler: Callable[..., Any], body: Any, **options: Any) -> list[Any]:
    """What `handler` was given for one message with that body, if it was called."""
    app = App()
    app.consumer("queue://a", name="it", redelivery=HOURS)(handler)
    with harness(app) as mq:
        mq.send("queue://a", Message(body, **options))
        [*calls] = mq.handler("it").calls
        assert len(calls) == (not mq.dead_letters())
        return list(calls[0].arguments) if calls else []


def refused(handler: Callable[..., Any], body: Any, **options: Any) -> str:
    """What is told of a message that became a dead letter at once, without a call of `handler`."""
    app = App()
    app.consumer("queue://a", name="it", redelivery=HOURS)(handler)
    with harness(app) as mq:
        mq.send("queue://a", Message(body, **options))
        assert mq.handler("it").calls == []
        [dead] = mq.dead_letters()
        assert (dead.reason, dead.attempts) == ("rejected", 1)
        assert dead.error_type == "MessageNotReadableError"
        return dead.error_message or ""


def of_text(body: str) -> None: ...
def of_bytes(body: bytes) -> None: ...
def of_dict(body: dict) -> None: ...  # type: ignore[type-arg]  # as a program may have it
def of_any_dict(body: dict[str, Any]) -> None: ...
def of_list(body: list) -> None: ...  # type: ignore[type-arg]  # as a program may have it
def of_numbers(body: list[int]) -> None: ...
def of_number(body: float) -> None: ...
def of_order(order: Order) -> None: ...
def of_orders(orders: list[Order]) -> None: ...
def of_item(item: Item) -> None: ...
def of_perhaps(order: Order | None) -> None: ...
def of_either(order: Order | list[int]) -> None: ...
def of_id(name: ItemId) -> None: ...
def of_choice(choice: Literal["a", "b"]) -> None: ...
def of_rank(rank: Rank) -> None: ...
def of_word(word: Word) -> None: ...
def of_text_or_bytes(body: str | bytes) -> None: ...
def of_named(name: Annotated[str, Field(max_length=3)]) -> None: ...


@pytest.mark.parametrize(
    ("handler", "body", "wanted"),
    [
        (of_text, "42", "42"),
        (of_text, None, ""),
        (of_bytes, b"\0\xff", b"\0\xff"),
        (of_bytes, "é", "é".encode()),
        (of_dict, '{"a": 1}', {"a": 1}),
        (of_dict, b'{"a": 1}', {"a": 1}),
        (of_any_dict, {"a": 1, "b": b"x"}, {"a": 1, "b": b"x"}),
        (of_list, "[1, [2]]", [1, [2]]),
        (of_numbers, "[1, 2]", [1, 2]),
        (of_number, "1.5", 1.5),
        (of_order, '{"id": 7, "more": true}', Order(7)),
        (of_order, b'{"id": 7, "note": "\xc3\xa9"}', Order(7, "é")),
        (of_order, {"id": 7, "note": "x"}, Order(7, "x")),
        (of_orders, '[{"id": 7}]', [Order(7)]),
        (of_item, '{"article": "x", "count": 2}', {"article": "x", "count": 2}),
        (of_perhaps, '{"id": 7}', Order(7)),
        (of_perhaps, None, None),
        (of_either, "[1]", [1]),
        (of_named, "abc", "abc"),
        (of_id, "abc", "abc"),
        (of_choice, "b", "b"),
        (of_rank, '"low"', Rank.LOW),
        (of_word, "yes", Word.YES),
        (of_text_or_bytes, "no JSON", "no JSON"),
        (of_text_or_bytes, b"\0\xff", b"\0\xff"),
    ],
)
def test_bodies(handler: Callable[..., Any], body: Any, wanted: Any) -> None:
    """As the annotation says, whether JSON came as text, as bytes, or as a map."""
    assert given(handler, body) == [wanted]


@pytest.mark.parametrize(
    ("handler", "body", "words"),
    [
        (of_text, b"\xff", "carries bytes, not text"),
        (of_text, {"a": 1}, "carries a map, not text"),
        (of_bytes, {"a": 1}, "the body is not bytes: it is a map"),
        (of_dict, "[]", "the body is no dict: it is a list in JSON"),
        (of_dict, "no", "is not JSON"),
        (of_dict, None, "has no body"),
        (of_list, "{}", "the body is no list: it is a dict in JSON"),
        (of_dict, "[" * 100_000, "is not JSON"),
        (of_orders, "[" * 100_000, "the body is no list[Order]: Invalid JSON: recursion limit"),
        (of_order, '{"id":' * 100_000, "the body is no Order: Invalid JSON: recursion limit"),
        (of_order, '{"note": 5}', "id: Field required; note: Input should be a valid string"),
        (
            of_order,
            b'{"id": 7, "note": "\xe9"}',
            "the body is no Order: Invalid JSON: invalid unicode",
        ),
        (of_order, None, "the body is no Order: Invalid JSON: EOF"),
        (of_order, "null", "the body is no Order: Input should be"),
        (of_numbers, '["a", "b", "c", "d", "e", "f", "g"]', "; and 2 more"),
        (of_numbers, "[" + '"a",' * 2000 + "1]", "the body is no list[int]: 2000 errors"),
        (of_named, "abcd", "at most 3 characters"),
        (of_choice, "c", "Input should be 'a' or 'b'"),
        (of_word, "no", "the body is no Word: Input should be 'yes'"),
    ],
)
def test_a_body_that_does_not_fit(handler: Callable[..., Any], body: Any, words: str) -> None:
    """Is a dead letter at once: no repetition makes it fit."""
    assert words in refused(handler, body)


def test_what_is_told_of_a_misfit_is_short_and_tells_no_secrets() -> None:
    """What is wrong and where; not what the body says, however long the names are in it."""
    told = refused(of_numbers, '["hunter2"]')
    assert "0: Input should be a valid integer" in told
    assert "hunter2" not in told

    def strict(body: dict[str, dict[str, int]]) -> None: ...

    assert len(refused(strict, '{"%s": {"a": "x"}}' % ("n" * 100_000))) < 400


class CardA(BaseModel):
    """One kind."""

    kind: Literal["a"]


class CardB(BaseModel):
    """The other."""

    kind: Literal["b"]


class Card(BaseModel):
    """With validators of the program's own, that quote."""

    model_config = ConfigDict(extra="forbid")
    number: str = ""
    zone: ZoneInfo | None = None
    id: UUID | None = None
    day: date | None = None
    limits: dict[str, int] = {}
    kind: Annotated[CardA | CardB, Field(discriminator="kind")] | None = None

    @field_validator("number")
    @classmethod
    def check(cls, number: str) -> str:
        """It is wrong."""
        if number:
            raise ValueError(f"{number} is no number of a card")
        return number


def pay(card: Card) -> None: ...


@pytest.mark.parametrize(
    ("body", "told"),
    [
        ({"number": "hunter2"}, "number: value_error"),
        ({"zone": "hunter2"}, "zone"),
        ({"id": "hunter2"}, "id: uuid_parsing"),
        ({"day": "hunter2"}, "day: Input should be a valid date"),
        ({"limits": {"hunter2": "hunter2"}}, "limits.…: Input should be a valid integer"),
        ({"kind": {"kind": "hunter2"}}, "kind: union_tag_invalid"),
        ({"hunter2": 1}, "…: Extra inputs are not permitted"),
    ],
)
def test_no_word_of_a_body_is_told(body: Any, told: str) -> None:
    """Neither by validators that quote it, nor as the name of a place in it."""
    found = refused(pay, json.dumps(body))
    assert told in found
    assert "hunter2" not in found
    assert "`h`" not in found


def test_a_large_body() -> None:
    """Is read as any other."""
    [numbers] = given(of_numbers, "[" + "12345," * 1_500_000 + "1]")
    assert len(numbers) == 1_500_001


class Sum(BaseModel):
    """With a condition."""

    amount: int = Field(gt=0)


def take(money: Sum) -> None: ...


def test_a_map_and_a_model() -> None:
    """Java's MapMessage, and pydantic's own words."""
    assert given(take, {"amount": 5}) == [Sum(amount=5)]
    assert "amount: Input should be greater than 0" in refused(take, {"amount": -5})


def test_all_at_once() -> None:
    """Whatever order they are in, behind the first."""

    def handle(
        order: Order,
        region: Annotated[str, Property()],
        message: Message,
        rank: Annotated[int, Property("how_high")],
        session: Session,
        kind: Annotated[str | None, Header("JMSType")],
        *,
        sent: Annotated[float, Header("timestamp")],
    ) -> None: ...

    order, region, message, rank, session, kind = given(
        handle, '{"id": 7}', properties={"region": "EU", "how_high": 3}
    )
    assert (order, region, rank, kind) == (Order(7), "EU", 3, None)
    assert isinstance(message, Message)
    assert isinstance(session, Session)


def test_properties_are_read_as_the_type_says() -> None:
    """Also those that senders without types have written as text."""

    def handle(
        _: Message,
        n: Annotated[int, Property],
        f: Annotated[float, Property],
        b: Annotated[bool, Property()],
        t: Annotated[str, Property()],
        r: Annotated[Rank, Property()],
        m: Annotated[str | None, Property("missing")],
        d: Annotated[int, Property("missing")] = 5,
        e: str = "mine",
    ) -> None: ...

    for properties in (
        {"n": 3, "f": 1.5, "b": True, "t": 7, "r": "high"},
        {"n": "3", "f": "1.5", "b": "TRUE", "t": "7", "r": "high"},
    ):
        rest = given(handle, "x", properties=properties)[1:]
        assert rest == [3, 1.5, True, "7", Rank.HIGH, None, 5]
    fit: dict[str, Any] = {"n": 3, "f": 1.5, "b": True, "t": 7, "r": "high"}
    for name, value, words in (
        ("n", "x", "property 'n' does not fit: 'x' is no whole number"),
        ("n", "²", "is no whole number"),
        ("n", "9" * 5000, "is no whole number"),
        ("f", "x", "property 'f' does not fit: 'x' is no number"),
        ("f", "1_0", "'1_0' is no number"),
        ("b", "yes", "'yes' is neither true nor false"),
        ("r", "middle", "property 'r' does not fit: Input should be 'high' or 'low'"),
        ("t", None, "it has no property 't': the handler cannot do without it"),
    ):
        assert words in refused(handle, "x", properties={**fit, name: value})


def test_headers() -> None:
    """By the names of Message, and by JMS's."""

    def handle(
        text: str,
        reply: Annotated[Destination, Header("reply_to")],
        correlation: Annotated[str, Header("JMSCorrelationID")],
        priority: Annotated[int, Header],
        again: Annotated[bool, Header("redelivered")],
        count: Annotated[int, Header("delivery_count")],
        group_id: Annotated[str, Header()] = "none",
    ) -> None: ...

    found = given(handle, "x", reply_to="queue://answers", correlation_id="7")
    assert found[1:] == [Destination("queue://answers"), "7", 4, False, 1, "none"]
    assert "it has no header 'JMSCorrelationID'" in refused(handle, "x", reply_to="queue://answers")


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_when_what_expires_behind_a_delay_was_sent(kind: str) -> None:
    """Classic must not know of it, or its time to live would begin anew; a handler does, however often it comes."""
    app, got = App(), list[float]()

    @app.consumer("queue://begin")
    def delay(_message: Message) -> None:
        app.send("queue://a", "x", delay=5, expires="1h")

    policy = RedeliveryPolicy(maximum_redeliveries=2, mode="scheduled")

    @app.consumer("queue://a", redelivery=policy)
    def handle(text: str, sent: Annotated[float, Header("timestamp")]) -> None:
        got.append(sent)
        if len(got) < 3:
            raise ValueError(text)

    with harness(app, kind) as mq:
        mq.send("queue://begin", "")
        mq.advance(60)
        assert mq.dead_letters("queue://a") == []
    assert len(got) == 3
    assert kind == "artemis" or len(set(got)) == 1


def test_a_wrapped_handler() -> None:
    """Its annotations are those of what it wraps; a method and a partial are handlers, too."""

    @wraps(of_order)
    def wrapper(*arguments: Any) -> None:
        of_order(*arguments)

    class Shop:
        def handle(self, order: Order, region: Annotated[str, Property()] = "EU") -> None: ...

    class Callable_:  # noqa: N801 - an object that is called
        def __call__(self, order: Order) -> None: ...

    assert given(wrapper, '{"id": 7}') == [Order(7)]
    assert given(Shop().handle, '{"id": 7}') == [Order(7), "EU"]
    assert given(Callable_(), '{"id": 7}') == [Order(7)]
    assert given(partial(Shop.handle, Shop()), '{"id": 7}')[0] == Order(7)


def test_types_of_the_function_around() -> None:
    """What annotations as text mean is looked up where the handler is registered."""

    @dataclass
    class Local:
        id: int

    app, got = App(), []

    @app.consumer("queue://a")
    def handle(first: Local) -> None:
        got.append(first)

    with harness(app) as mq:
        mq.send("queue://a", '{"id": 7}')
    assert got == [Local(7)]


def test_async_handlers() -> None:
    """As others."""
    got: list[Order] = []
    app = App()

    @app.consumer("queue://a", name="it")
    async def handle(order: Order, message: Message) -> None:
        got.append(order)

    with harness(app) as mq:
        mq.send("queue://a", '{"id": 7}')
        mq.send("queue://a", "no")
        assert got == [Order(7)]
        assert len(mq.dead_letters()) == 1


def test_a_session_that_may_be_left_out() -> None:
    """Is given, for who calls the function himself may do without; what a partial has bound stays."""

    def handle(
        order: Order, session: Session | None = None, message: Message | None = None, more: int = 3
    ) -> None: ...

    _, session, message = given(handle, '{"id": 1}')
    assert isinstance(session, Session)
    assert isinstance(message, Message)
    mine = Message("mine")
    assert len(given(partial(handle, message=mine), '{"id": 1}')) == 2


def test_what_is_bound_before_is_no_mark() -> None:
    """Whatever it is of: the container of a framework, or its application."""

    def handle(message: Message, *, container: Any) -> None: ...
    def kept(message: Message, container: Depends | None = Depends()) -> None: ...  # noqa: B008 - as a program has it

    assert len(given(partial(handle, container=Depends()), "x")) == 1
    assert len(given(kept, "x")) == 1
    for handler in (marked_by_others, default_of_others):  # as their refusals say
        assert len(given(partial(handler, user="me"), "x")) == 1


def test_a_model_that_is_one_text_may_be_a_property() -> None:
    """What it is a model of counts."""
    got: list[Sku] = []
    app = App()

    @app.consumer("queue://q")
    def handle(message: Message, sku: Annotated[Sku | None, Property()]) -> None:
        assert sku is not None
        got.append(sku)

    with harness(app) as mq:
        mq.send("queue://q", "x", properties={"sku": "A-1"})
    assert got == [Sku("A-1")]


def test_the_connection_of_a_store(tmp_path: Path) -> None:
    """By keyword, beside a body."""
    app = App()
    seen: list[object] = []
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "shop.db", check_same_thread=False))
    store.create_table()

    @app.consumer("queue://a", dedupe=store, name="it")
    def handle(order: Order, *, db: sqlite3.Connection) -> None:
        seen.extend([order, db])

    with harness(app) as mq:
        mq.send("queue://a", '{"id": 7}')
        mq.send("queue://a", "no")
        assert len(mq.dead_letters()) == 1
    assert seen[0] == Order(7)
    assert isinstance(seen[1], sqlite3.Connection)


MODES = ["auto", "individual", "transacted"]


@pytest.mark.parametrize("store", [None, MemoryStore])
@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_misfit_in_a_batch(kind: str, mode: str, store: Callable[[], MemoryStore] | None) -> None:
    """Is a dead letter alone, and the handler gets the others, with lists that go together."""
    app = App()
    got: list[tuple[list[Order], list[str], list[str]]] = []

    @app.consumer(
        "queue://a",
        batch=4,
        batch_timeout=10,
        mode=mode,
        redelivery=HOURS,
        name="it",
        dedupe=store and store(),
    )
    def handle(
        orders: list[Order],
        messages: list[Message],
        regions: Annotated[list[str], Property("region")],
    ) -> None:
        got.append((orders, [one.text for one in messages], regions))

    with harness(app, kind) as mq:
        for body in ('{"id": 1}', "no", '{"id": 3}', '{"id": "x"}'):
            mq.send("queue://a", body, properties={"region": "EU"})
        mq.advance(10)
        fit = ([Order(1), Order(3)], ['{"id": 1}', '{"id": 3}'], ["EU", "EU"])
        assert got == [fit]
        dead = mq.dead_letters()
        assert [one.attempts for one in dead] == [1, 1]
        assert sorted(one.message.text for one in dead if one.message) == ["no", '{"id": "x"}']
        assert mq.messages("queue://a") == []


# What is refused -----------------------------------------------------------------------------------------------------


def unknown_type(lock: threading.Lock) -> None: ...
def connection_by_position(message: Message, db: sqlite3.Connection) -> None: ...
def known_to_checkers_only(order: Decimal) -> None: ...
def two_bodies(order: Order, item: Item) -> None: ...
def two_messages(message: Message, again: Message) -> None: ...
def two_sessions(message: Message, session: Session, again: Session) -> None: ...
def swapped(session: Session, order: Order) -> None: ...
def two_connections(message: Message, *, db: object, other: object) -> None: ...
def no_connection(message: Message, *, order: Order) -> None: ...
def unsaid(order: Order, message) -> None: ...  # type: ignore[no-untyped-def]  # noqa: ANN001 - as a program may have it
def misspelt_header(text: str, c: Annotated[str, Header("correlationid")]) -> None: ...
def mistyped_header(text: str, priority: Annotated[str, Header()]) -> None: ...
def mistyped_property(text: str, lock: Annotated[threading.Lock, Property()]) -> None: ...
def several(messages: list[Message]) -> None: ...
def in_a_batch(order: Order) -> None: ...
def property_in_a_batch(orders: list[Order], region: Annotated[str, Property()]) -> None: ...
def marker_as_default(text: str, region: str = Property()) -> None: ...  # type: ignore[assignment]  # as in FastStream
def marker_as_type(text: str, region: Property) -> None: ...
def marker_first(text: str, kind: Annotated[Header("type"), str]) -> None: ...  # type: ignore[valid-type]  # the mistake that is tested: the two are swapped
def nothing_known(body: None) -> None: ...
def a_class(order: type[Order]) -> None: ...
def a_function(order: Callable[..., int]) -> None: ...
def read_bit_by_bit(orders: Iterable[int]) -> None: ...
def dict_in_a_property(text: str, where: Annotated[dict[str, str], Property()]) -> None: ...
def list_in_a_property(text: str, tags: Annotated[list[str] | None, Property()]) -> None: ...
def model_in_a_property(text: str, item: Annotated[Item, Property()]) -> None: ...
def header_as_property(text: str, c: Annotated[str, Property("JMSCorrelationID")]) -> None: ...
def property_as_header(text: str, region: Annotated[str, Header("region")]) -> None: ...
def two_marks(text: str, c: Annotated[str, Property("c"), Header("type")]) -> None: ...
def misnamed(text: str, c: Annotated[str, Property(5)]) -> None: ...
def mark_within_a_union(text: str, region: Annotated[str, Property()] | None = None) -> None: ...
def mark_within_a_list(orders: list[Order], tags: list[Annotated[str, Property()]]) -> None: ...
def message_in_a_property(text: str, it: Annotated[Message, Property()]) -> None: ...
def sets_in_a_batch(messages: set[Message]) -> None: ...
def lists_in_a_batch(messages: list[list[Message]]) -> None: ...
def awaited_by_nobody(message: Message) -> Awaitable[None]:
    return asyncio.sleep(0)


def called_by_nobody(message: Message) -> Callable[[], object]:
    return message.acknowledge


class Depends:
    """As another framework has it."""

    __module__ = "fast_depends.dependencies"


def marked_by_others(message: Message, user: Annotated[str, Depends()]) -> None: ...
def default_of_others(message: Message, user: str = Depends()) -> None: ...  # type: ignore[assignment]  # as programs of that framework have it


@functools.cache
def remembering(order: str) -> None: ...


T = TypeVar("T")
AnyMessage = TypeVar("AnyMessage", bound=Message)


class OwnMessage(Message):
    """Which nobody receives."""


def of_any_type(order: T) -> None: ...
def of_any_types(orders: list[T]) -> None: ...
def of_any_message(message: AnyMessage) -> None: ...
def map_message(order: MapMessage) -> None: ...
def own_message(message: OwnMessage | None) -> None: ...
def own_messages(messages: list[OwnMessage]) -> None: ...


class Old(pydantic.v1.BaseModel):
    """A model of pydantic 1."""

    id: int


@dataclass
class Parcel:
    """Has one in it."""

    old: Old


def make_order(number: int) -> Order:
    return Order(number)


def of_pydantic_1(order: Old) -> None: ...
def of_pydantic_1_within(parcels: list[Parcel]) -> None: ...
def an_object(order: Order(1)) -> None: ...  # type: ignore[valid-type]  # the mistake that is tested: an object, and no class
def a_factory(order: make_order) -> None: ...  # type: ignore[valid-type]  # the mistake that is tested: a function that makes one


class Elsewhere(BaseModel):
    """Part of it is known to nobody."""

    what: Nowhere  # type: ignore[name-defined]  # noqa: F821 - a name that nobody can find is what is tested


def unknown_within(order: Elsewhere) -> None: ...


@pytest.mark.filterwarnings("ignore:Mixing V1 models")
@pytest.mark.parametrize(
    ("handler", "settings", "right"),
    [
        (unknown_type, {}, "lock is no type of data"),
        (connection_by_position, {}, "the connection of a DatabaseStore is given by keyword"),
        (
            known_to_checkers_only,
            {},
            "import it where the program does, and not under TYPE_CHECKING",
        ),
        (two_bodies, {}, "wants the body twice, as order and as item; a parameter is"),
        (two_messages, {}, "wants the message twice, as message and as again"),
        (two_sessions, {}, "wants the session twice"),
        (swapped, {}, "the message comes first, then the session: (message: Message, session"),
        (
            two_connections,
            {},
            "has several parameters for a database connection (db, other), and its DatabaseStore gives it one",
        ),
        (
            no_connection,
            {},
            "parameter order would be a database connection, which only dedupe=DatabaseStore(...) gives",
        ),
        (unsaid, {}, "does not say what message is, and must take (message), (message, session)"),
        (
            misspelt_header,
            {},
            "but there is no header 'correlationid'; did you mean 'correlation_id'?",
        ),
        (mistyped_header, {}, "header 'priority' is of type int; annotate its parameter so"),
        (mistyped_property, {}, "lock is no type of data"),
        (marker_as_default, {}, "write region: Annotated[str, Property()]"),
        (marker_as_type, {}, "write region: Annotated[str, Property()]"),
        (marker_first, {}, "write kind: Annotated[str, Header('type')]"),
        (several, {}, "for several at once say @app.consumer(..., batch=500)"),
        (in_a_batch, {"batch": 10}, "it gets a list[...]; write (order: list[Order])"),
        (
            property_in_a_batch,
            {"batch": 10},
            "with batch= it gets a list[...]; write (region: Annotated[list[str], Property()])",
        ),
        (sets_in_a_batch, {"batch": 10}, "gets a list[Message]; write (messages: list[Message])"),
        (lists_in_a_batch, {"batch": 10}, "gets a list[Message]; write (messages: list[Message])"),
        (nothing_known, {}, "NoneType is never a body. A parameter is a Message, its body (str, "),
        (a_class, {}, "type[Order] is never a body. A parameter is"),
        (a_function, {}, "Callable[..., int] is never a body"),
        (read_bit_by_bit, {}, "Iterable[int] is never a body"),
        (dict_in_a_property, {}, "dict[str, str] is never a property, which is a text, number"),
        (list_in_a_property, {}, "list[str] is never a property"),
        (
            model_in_a_property,
            {},
            "for JSON in a text write Annotated[pydantic.Json[...], Property()]",
        ),
        (header_as_property, {}, "no property: write Header('correlation_id')"),
        (property_as_header, {}, "what a sender set himself is Property('region')"),
        (two_marks, {}, "from Property(name='c') and Header(name='type'), and it gets one: keep"),
        (
            marked_by_others,
            {},
            "a Depends of fast_depends at user, which jmsx does not fill in; it",
        ),
        (default_of_others, {}, "bound before: functools.partial(default_of_others, user=...)"),
        (
            remembering,
            {},
            "so its body would not run for a message that is equal to an earlier one; put functools.cache on",
        ),
        (
            mark_within_a_union,
            {},
            "has Property within the type of region; write region: Annotated[",
        ),
        (mark_within_a_list, {"batch": 10}, "write tags: Annotated[list[str], Property()]"),
        (message_in_a_property, {}, "and never a property, which is a text, number or flag"),
        (of_pydantic_1, {}, "Old is made for pydantic 1: derive it from pydantic.BaseModel"),
        (of_pydantic_1_within, {}, "Old is made for pydantic 1: derive it from"),
        (an_object, {}, "takes order: Order(1), but Order(id=1, note='') is no type of data"),
        (a_factory, {}, "make_order is a function, and no type of data. A parameter is a Message"),
        (awaited_by_nobody, {}, "says that it returns a Awaitable, so its body has not run to its"),
        (
            called_by_nobody,
            {},
            "says that it returns a Callable, so its body has not run to its end",
        ),
        (unknown_within, {}, "is no type of data to pydantic"),
        (of_any_type, {}, "takes order: T, and a type variable does not say what that is: write"),
        (of_any_types, {"batch": 10}, "and a type variable does not say what that is"),
        (of_any_message, {}, "write Message, dict or the like"),
        (map_message, {}, "takes order: MapMessage, and what is received is a Message: write"),
        (own_message, {}, "takes message: OwnMessage | None, and what is received is a Message"),
        (own_messages, {"batch": 10}, "received is a Message: write Message, or dict for the body"),
    ],
)
def test_wrong_handlers(handler: Any, settings: dict[str, Any], right: str) -> None:
    """Are refused at import, with a sentence that says what is right, and who it is."""
    with pytest.raises(ConfigurationError) as caught:
        App().consumer("queue://a", **settings)(handler)
    assert right in str(caught.value)
    assert handler.__name__ in str(caught.value)


def test_a_mark_with_another_name() -> None:
    """It is said at import, also where the annotation is only read then."""
    with pytest.raises(
        ConfigurationError, match="the name of a Property must be a str, not an int"
    ):
        App().consumer("queue://a")(misnamed)


WITHOUT = """
import sys
sys.modules["pydantic"] = None
from dataclasses import dataclass
from typing import Annotated, Any
from jmsx import App, ConfigurationError, Message, Property
from jmsx.testing import harness

@dataclass
class Order:
    id: int

app, got = App(), []

def handler(kind):
    def handle(body, region): got.append((body, region))
    handle.__annotations__ = {"body": kind, "region": Annotated[int, Property()]}
    return handle

KINDS = (str, bytes, dict, list, dict[str, Any])
for number, kind in enumerate(KINDS):
    app.consumer(f"queue://{number}", name=str(kind))(handler(kind))
try:
    app.consumer("queue://order")(handler(Order))
except ConfigurationError as error:
    print(error)
with harness(app) as mq:
    for number, kind in enumerate(KINDS):
        mq.send(f"queue://{number}", "[]" if kind is list else "{}", properties={"region": 5})
print(got)
"""


def test_without_pydantic() -> None:
    """The plain ones are there, and whoever wants more is told at import what to install."""
    told = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True
    )
    error, got = told.stdout.splitlines()
    assert "handle takes body: Order, but to read a Order jmsx needs the package pydantic" in error
    assert "pip install 'jmsx[pydantic]'. Without it there are str, bytes, dict and list" in error
    assert got == "[('{}', 5), (b'{}', 5), ({}, 5), ([], 5), ({}, 5)]"


def test_pydantic_is_imported_by_who_needs_it() -> None:
    """It takes a fifth of a second."""
    code = "import sys, jmsx; a = jmsx.App(); a.consumer('q')(lambda message: 1); print('pydantic' in sys.modules)"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert told.stdout.strip() == "False"
