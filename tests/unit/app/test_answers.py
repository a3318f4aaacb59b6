"""What is sent as JSON, what answers a reply-to, and `app.request`: on both brokers in memory, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import threading
from contextlib import closing, contextmanager
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from decimal import Decimal
from enum import Enum, StrEnum
from pathlib import Path  # noqa: TC003 - pytest asks what it is
from typing import TYPE_CHECKING, Any
from uuid import UUID

import pytest
from pydantic import BaseModel, Field

from jmsx import (
    App,
    ConfigurationError,
    ConnectionFailedError,
    DatabaseStore,
    IllegalStateError,
    InvalidDestinationError,
    MapMessage,
    Message,
    MessageFormatError,
    RedeliveryPolicy,
    UnansweredError,
)
from jmsx.app.answers import PendingRequest, answer_to
from jmsx.app.sender import Sending
from jmsx.testing import harness

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.testing import Harness

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
ONCE = RedeliveryPolicy(maximum_redeliveries=0)


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


# Bodies that are sent ------------------------------------------------------------------------------------------------


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
        assert [dict(one.body) for one in maps] == [{"a": 1, "b": b"x"}, {"a": 1}]  # type: ignore[arg-type]  # a map
        assert maps[0].correlation_id == "7"


def test_a_map_message_is_of_a_map() -> None:
    """Whatever the type checker was told."""
    with pytest.raises(
        MessageFormatError, match="the body of a MapMessage is a mapping, not a str"
    ):
        MapMessage("x")  # type: ignore[arg-type]  # what is refused


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
        (deep(), "recursion"),
    ],
)
def test_what_json_cannot_say(body: Any, why: str) -> None:
    """Is refused, and nothing is sent."""
    with pytest.raises(MessageFormatError, match=why):
        App("stomp://localhost:1").send("queue://a", body)


# Answers -------------------------------------------------------------------------------------------------------------


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
def test_what_a_handler_returns_answers(kind: str, mode: str) -> None:
    """Whoever asked; with the correlation id of the request, or else its message id."""
    app = App()

    @app.consumer("queue://double", mode=mode)
    def double(number: int) -> int | None:
        return number * 2 if number else None

    with harness(app, kind) as mq:
        mq.send("queue://double", 4, reply_to="queue://answers", correlation_id="c1", priority=7)
        mq.send("queue://double", 5, reply_to="queue://answers", persistent=False)
        mq.send("queue://double", 6)
        mq.send("queue://double", 0, reply_to="queue://answers")
        first, second = sorted(mq.messages("queue://answers"), key=lambda one: -one.priority)
        asked = mq.handler("test_what_a_handler_returns_answers.<locals>.double").messages
        assert (first.text, first.correlation_id, first.priority) == ("8", "c1", 7)
        assert (first.persistent, second.persistent) == (True, False)
        assert (second.text, second.correlation_id) == ("10", asked[1].message_id)
        assert mq.messages("queue://double") == []
        assert mq.dead_letters() == []


@KINDS
def test_a_message_that_answers_many(kind: str) -> None:
    """Each gets a copy of it, with its own correlation id."""
    app, done = App(), Message("done", type="answer", properties={"a": 1})

    @app.consumer("queue://a")
    def handle(body: str) -> Message:
        del body
        return done

    with harness(app, kind) as mq:
        for name in ("c1", "c2"):
            mq.send("queue://a", "x", reply_to="queue://answers", correlation_id=name)
        answers = mq.messages("queue://answers")
        assert [one.correlation_id for one in answers] == ["c1", "c2"]
        assert [(one.text, one.type, one.properties["a"]) for one in answers] == [
            ("done", "answer", 1)
        ] * 2
        assert (done.correlation_id, done.message_id) == (None, None)


@KINDS
def test_an_answer_in_a_transaction(kind: str) -> None:
    """Is sent with it, and only once, however often the handler failed before."""
    app = App(redelivery_policy=RedeliveryPolicy(initial_redelivery_delay=60.0))
    tries = []

    @app.consumer("queue://a", mode="transacted")
    async def handle(body: dict[str, Any]) -> Message:
        tries.append(body)
        app.send("queue://log", "x")
        if len(tries) == 1:
            raise ValueError
        return Message("done", type="answer", correlation_id="mine")

    with harness(app, kind) as mq:
        mq.send("queue://a", {"a": 1}, reply_to="queue://answers", correlation_id="c")
        assert mq.messages("queue://answers") == []
        mq.advance("1min")
        (answer,) = mq.messages("queue://answers")
        assert (answer.text, answer.type, answer.correlation_id) == ("done", "answer", "mine")
        assert len(mq.messages("queue://log")) == 1


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_an_answer_that_cannot_be_sent(kind: str, mode: str) -> None:
    """Is told in a dead letter; repeating the work would not help."""
    app = App()

    @app.consumer("queue://a", mode=mode)
    def handle(body: str) -> object:
        del body
        return object()

    with harness(app, kind) as mq:
        mq.send("queue://a", "x", reply_to="queue://answers")
        mq.send("queue://a", "nobody asked")
        (dead,) = mq.dead_letters()
        assert (dead.reason, dead.attempts) == ("rejected", 1)
        assert "a object that is sent is JSON, which cannot say it" in (dead.error_message or "")


@pytest.mark.parametrize("place", ["queue://a,queue://b", "queue://a.>", "topic://a.*", None])
def test_an_answer_goes_to_one_place(place: str | None) -> None:
    """Whoever names many gets none."""
    with pytest.raises(InvalidDestinationError, match="which is no single destination"):
        answer_to(Message("x", reply_to=place), "answer")


@KINDS
def test_an_answer_to_many(kind: str) -> None:
    """Is told in a dead letter."""
    app = App()

    @app.consumer("queue://q")
    def handle(body: str) -> str:
        return body

    with harness(app, kind) as mq:
        mq.send("queue://q", "x", reply_to="queue://a.>")
        (dead,) = mq.dead_letters()
        assert "which is no single destination" in (dead.error_message or "")


@KINDS
def test_an_answer_to_oneself_ends(kind: str) -> None:
    """Answers ask for no answer, so two handlers cannot keep each other busy."""
    app, got = App(), list[str]()

    @app.consumer("queue://q")
    def handle(body: str) -> str:
        got.append(body)
        return body + "!"

    with harness(app, kind) as mq:
        mq.send("queue://q", "x", reply_to="queue://q")
        assert got == ["x", "x!"]


@KINDS
def test_a_request_that_is_its_own_answer(kind: str) -> None:
    """Asks for no answer, either; a new message may."""
    app, got = App(), list[Message]()

    @app.consumer("queue://q")
    def echo(message: Message) -> Message | None:
        got.append(message)
        return message if len(got) < 9 else None

    @app.consumer("queue://new")
    def new(body: str) -> Message:
        return Message(body, reply_to="queue://more")

    with harness(app, kind) as mq:
        mq.send("queue://q", "x", reply_to="queue://q", correlation_id="c", properties={"a": 1})
        assert [(one.text, one.correlation_id, one.properties["a"]) for one in got] == [
            ("x", "c", 1)
        ] * 2
        assert [str(one.reply_to) for one in got] == ["queue://q", "None"]
        mq.send("queue://new", "x", reply_to="queue://answers")
        assert [str(one.reply_to) for one in mq.messages("queue://answers")] == ["queue://more"]


@KINDS
def test_with_a_store_that_commits_first(kind: str, tmp_path: Path) -> None:
    """The answer is sent at once, also in a transacted session, whose sends could be lost with their transaction."""
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db", check_same_thread=False))
    store.create_table()
    app = App()

    @app.consumer("queue://a", dedupe=store)
    def handle(body: str) -> str:
        return body

    @app.consumer("queue://b", dedupe=store, mode="transacted", name="other")
    def other(body: str) -> str:
        return body

    with harness(app, kind) as mq:
        mq.send("queue://a", "x", reply_to="queue://answers")
        assert [one.text for one in mq.messages("queue://answers")] == ["x"]
        mq.send("queue://b", "x", reply_to="queue://answers")
        assert [one.text for one in mq.messages("queue://answers")] == ["x", "x"]
        assert mq.dead_letters() == []


@KINDS
def test_an_answer_before_the_database_commits(kind: str, tmp_path: Path) -> None:
    """It is sent, though the commit is refused; nothing is done then, and the request is a dead letter."""

    def connect() -> sqlite3.Connection:
        made = sqlite3.connect(tmp_path / "shop.db")
        made.execute("PRAGMA foreign_keys = ON")
        return made

    with closing(connect()) as database:
        database.execute("CREATE TABLE orders (id INTEGER PRIMARY KEY)")
        late = "REFERENCES orders DEFERRABLE INITIALLY DEFERRED"
        database.execute(f"CREATE TABLE lines (id INTEGER {late})")
    store, app = DatabaseStore(connect), App()
    store.create_table()

    @app.consumer("queue://a", dedupe=store, redelivery=ONCE)
    def book(body: str, *, db: sqlite3.Connection) -> str:
        db.execute("INSERT INTO lines VALUES (7)")
        return f"{body} booked"

    with harness(app, kind) as mq:
        mq.send("queue://a", "x", reply_to="queue://answers")
        assert [one.text for one in mq.messages("queue://answers")] == ["x booked"]
        assert [one.error_type for one in mq.dead_letters()] == ["IntegrityError"]
    with closing(connect()) as database:
        assert database.execute("SELECT * FROM lines").fetchall() == []


# Requests ------------------------------------------------------------------------------------------------------------


def shop(**options: Any) -> App:
    """It doubles numbers, but for 0, to which it has no answer, and at once save for those above 1000."""
    app = App(**options)

    @app.consumer("queue://double", name="double", concurrency=4)
    def double(number: int, message: Message) -> int | None:
        if number > 1000 and message.delivery_count == 1:
            raise ValueError
        return number * 2 or None

    return app


@KINDS
def test_a_request(kind: str) -> None:
    """Returns the answer."""
    app = shop()
    with harness(app, kind):
        answer = app.request("queue://double", 21, properties={"region": "EU"})
        assert (answer.json(), answer.properties["content-type"]) == (42, "application/json")
        question = Message("4", type="question")
        assert app.request("queue://double", question, timeout="5s").json() == 8
        assert (question.reply_to, question.correlation_id) == (None, None)
        assert app.request("queue://double", 5, correlation_id="mine").correlation_id == "mine"


@KINDS
def test_no_answer(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """In time; nobody knows what became of it. One that comes later is dropped, with a line in the log."""
    app = shop(redelivery_policy=RedeliveryPolicy(initial_redelivery_delay=60.0))
    with harness(app, kind) as mq:
        began = mq.now
        with pytest.raises(
            UnansweredError, match=r"to queue://double: no answer came in time; whe"
        ) as caught:
            app.request("queue://double", 0, timeout=5)
        assert mq.now - began == pytest.approx(5)
        assert not caught.value.retriable
        with pytest.raises(UnansweredError):
            app.request("queue://double", 0)
        assert mq.now - began == pytest.approx(35)
        with pytest.raises(UnansweredError):
            app.request("queue://double", 1001, timeout=59)
        with caplog.at_level(logging.INFO):
            mq.advance("1min")
        assert "answer dropped: nobody waits for it" in caplog.text
        assert app.request("queue://double", 4).json() == 8


@KINDS
def test_many_at_once(kind: str) -> None:
    """Each gets its own answer, over one queue."""
    app = shop()
    got: dict[int, Any] = {}

    @app.consumer("queue://ask", name="ask", concurrency=8)
    def ask(number: int) -> None:
        got[number] = app.request("queue://double", number).json()

    with harness(app, kind) as mq:
        for number in range(1, 41):
            mq.send("queue://ask", number)
        assert got == {number: number * 2 for number in range(1, 41)}


@KINDS
def test_many_from_a_loop(kind: str) -> None:
    """While it goes on; who is cancelled waits no longer."""
    app = shop()
    got: list[Any] = []

    @app.consumer("queue://ask", name="ask", redelivery=ONCE)
    async def ask(numbers: list[int]) -> None:
        asking = [asyncio.create_task(app.arequest("queue://double", one)) for one in numbers]
        got.extend([answer.json() for answer in await asyncio.gather(*asking)])
        late = asyncio.create_task(app.arequest("queue://double", 0, timeout="1h"))
        await asyncio.sleep(0.05)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late

    with harness(app, kind) as mq:
        mq.send("queue://ask", list(range(1, 21)))
        assert got == [number * 2 for number in range(1, 21)]
        assert mq.dead_letters() == []


@KINDS
def test_a_handler_on_the_loop_does_not_hold_it_up(kind: str) -> None:
    """It is told to await."""
    app, got = App(), list[Any]()

    @app.consumer("queue://a", redelivery=ONCE)
    async def handle(body: str) -> None:
        try:
            app.request("queue://b", body)
        except IllegalStateError as error:
            got.append(str(error))

    with harness(app, kind) as mq:
        mq.send("queue://a", "x")
    assert "await app.arequest() there" in got[0]


@KINDS
def test_a_request_in_a_transaction_is_none_of_it(kind: str) -> None:
    """Or its answer would never come."""
    app = shop()
    got: list[Any] = []

    @app.consumer("queue://ask", mode="transacted")
    def ask(number: int) -> None:
        got.append(app.request("queue://double", number).json())

    with harness(app, kind) as mq:
        mq.send("queue://ask", 4)
        assert got == [8]


def ask_for_ever(app: App, mq: Harness) -> tuple[threading.Thread, list[UnansweredError]]:
    """Who has asked for the double of 0, which nobody answers, and the error, once there is one."""
    told: list[UnansweredError] = []

    def ask() -> None:
        try:
            app.request("queue://double", 0, timeout=3600)
        except UnansweredError as error:
            told.append(error)

    asking = mq._world.thread(ask, "asking")
    asking.start()
    mq.settle()
    return asking, told


@KINDS
def test_a_lost_connection(kind: str) -> None:
    """Whoever waits is told at once, and the next request has a new queue."""
    app = shop()
    with harness(app, kind) as mq:
        assert app.request("queue://double", 1).json() == 2
        _, told = ask_for_ever(app, mq)
        assert told == []
        mq.drop_connections()
        began = mq.now
        mq.advance("10s")
        assert "is gone" in str(told)
        assert mq.now - began < 60
        assert app.request("queue://double", 4).json() == 8


@contextmanager
def away(mq: Any) -> Iterator[None]:
    """No link to the broker is opened meanwhile."""

    def refused(*_: object) -> None:
        raise ConnectionFailedError("away")

    dial = mq._world.dial
    mq._world.dial = refused
    try:
        yield
    finally:
        mq._world.dial = dial


@KINDS
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("what", ["send", "request"])
def test_a_timeout_while_the_broker_is_away(kind: str, what: str, opened: bool) -> None:  # noqa: FBT001 - a parameter
    """It bounds the opening of the connection too, and what was given up is not sent later."""
    app = App()
    with harness(app, kind) as mq:
        if opened:
            app.send("queue://a", "first")
            with pytest.raises(UnansweredError):
                app.request("queue://a", "second", timeout=1)
        before, began = len(mq.messages("queue://a")), mq.now
        with away(mq):
            mq.drop_connections()
            with pytest.raises(ConnectionFailedError):
                getattr(app, what)("queue://a", "late", timeout="2s")
            assert mq.now - began == pytest.approx(2, abs=0.5)
        mq.advance("10min")
        assert len(mq.messages("queue://a")) == before
        app.send("queue://a", "next", timeout="2s")
        assert [one.text for one in mq.messages("queue://a")[before:]] == ["next"]


@KINDS
@pytest.mark.parametrize("opened", [False, True])
def test_a_cancelled_request_is_not_sent_later(kind: str, opened: bool) -> None:  # noqa: FBT001 - a parameter
    """Its connection comes when nobody waits any more."""
    app = App()
    with harness(app, kind) as mq:
        if opened:
            with pytest.raises(UnansweredError):
                app.request("queue://a", "first", timeout=1)
        before = len(mq.messages("queue://a"))

        async def main() -> None:
            asking = asyncio.create_task(app.arequest("queue://a", "late", timeout=3600))
            await asyncio.sleep(0.2)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

        with away(mq):
            mq.drop_connections()
            with mq._world._moves():  # time stands still
                asyncio.run(main())
        mq.advance("10min")
        for thread in threading.enumerate():
            if thread.name.startswith("jmsx-beside"):
                thread.join(5)
        assert len(mq.messages("queue://a")) == before


@KINDS
def test_who_gives_up_leaves_the_connection_to_others(kind: str) -> None:
    """The one that is restored is still of use, and whoever waits for it longer is served."""
    app = App(request_timeout=600.0)
    with harness(app, kind) as mq:
        app.send("queue://a", "first")
        told: list[object] = []
        with away(mq):
            mq.drop_connections()
            sending = mq._world.thread(lambda: told.append(app.send("queue://a", "patient")), "x")
            sending.start()
            mq.settle()
            with pytest.raises(ConnectionFailedError):
                app.send("queue://a", "hasty", timeout="2s")
        mq.advance("10min")
        sending.join(5)
        assert [type(one) for one in told] == [str]
        assert [one.text for one in mq.messages("queue://a")] == ["first", "patient"]


@KINDS
def test_a_queue_that_was_replaced(kind: str) -> None:
    """Whoever waits at it is told, too, when its link is gone."""
    app = shop()
    with harness(app, kind) as mq:
        _, told = ask_for_ever(app, mq)
        replaced = app._requests._take()
        assert app.request("queue://double", 1).json() == 2
        assert replaced is not None
        replaced.connection.abort()
        mq.settle()
        assert "is gone" in str(told)


@KINDS
def test_a_handler_that_asks_while_the_app_drains(kind: str) -> None:
    """The app's own consumers take nothing more: it fails in its timeout, and its message comes again."""
    app, told = shop(), list[BaseException]()

    @app.consumer("queue://orders", name="ship")
    def ship(order: str) -> None:
        del order
        app._machine.event().wait(2.0)
        try:
            app.request("queue://double", 1, timeout="5s")
        except UnansweredError as error:
            told.append(error)
            raise

    with harness(app, kind) as mq:
        broker = mq.broker
        app.send("queue://orders", "x")
        mq.settle()
    assert "no answer came in time" in str(told)
    assert len(broker.queue("orders").browse()) == 1


@KINDS
def test_the_app_is_stopped(kind: str) -> None:
    """Whoever waits is told so."""
    app = shop()
    with harness(app, kind) as mq:
        assert app.request("queue://double", 1).json() == 2
        asking, told = ask_for_ever(app, mq)
    asking.join(5)
    assert "is gone (closed)" in str(told)


def test_a_stop_that_makes_no_sense() -> None:
    """Stops nothing."""
    app = shop()
    with harness(app):
        with pytest.raises(ConfigurationError, match="drain_timeout='30 secs' is no duration"):
            app.stop("30 secs")
        assert app.ready().ok


def test_what_a_request_refuses() -> None:
    """Before it connects."""
    app = App("stomp://localhost:1")
    with pytest.raises(ConfigurationError, match="waits for the answer at a queue of its own"):
        app.request("queue://a", "x", reply_to="queue://b")
    with pytest.raises(ConfigurationError, match="waits for the answer at a queue of its own"):
        app.request("queue://a", Message("x", reply_to="queue://b"))
    with pytest.raises(ConfigurationError, match="timeout"):
        app.request("queue://a", "x", timeout="soon")
    with pytest.raises(MessageFormatError):
        app.request("queue://a", object())  # type: ignore[arg-type]  # what is refused


@KINDS
def test_one_correlation_id_twice(kind: str) -> None:
    """Nobody could tell whose the answer is."""
    app = shop()
    with harness(app, kind) as mq:

        def ask() -> None:
            with pytest.raises(UnansweredError):
                app.request("queue://double", 0, correlation_id="same", timeout=10)

        asking = mq._world.thread(ask, "asking")
        asking.start()
        mq.settle()
        with pytest.raises(IllegalStateError, match="an answer to 'same' is awaited already"):
            app.request("queue://double", 1, correlation_id="same")
        mq.advance(10)


@KINDS
def test_the_next_one_with_that_correlation_id(kind: str) -> None:
    """Gets its answer, also if who asked before has not quite taken his own."""
    app, told = shop(), list[object]()

    @app.consumer("queue://slow", name="slow")
    def slow(number: int) -> int:
        app._machine.event().wait(5.0)
        return number

    class Dawdling(PendingRequest):
        def answer(self, timeout: float) -> Message:
            found = super().answer(timeout)
            asking.start()
            app._machine.event().wait(1.0)
            return found

    def ask() -> None:
        told.append(app.request("queue://slow", 7, correlation_id="same").json())

    with harness(app, kind) as mq:
        asking = mq._world.thread(ask, "asking")
        first = Sending.of({"correlation_id": "same"})
        pending = Dawdling(app._machine)
        assert app._requests.ask(first, "queue://double", 1, pending).json() == 2
        assert told == []
        mq.advance(10)
        assert told == [7]


@KINDS
def test_who_asked_is_gone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The work is done all the same, and no dead letter."""
    app = App()

    @app.consumer("queue://a")
    def handle(body: str) -> str:
        return body

    with harness(app, kind) as mq:
        with app.connect() as connection:
            session = connection.create_session()
            queue = session.create_temporary_queue()
            consumer = session.create_consumer(queue)
            connection.start()
            app.send("queue://hold", Message("x", reply_to=queue))
            (held,) = mq.messages("queue://hold")
            consumer.close()
        with caplog.at_level(logging.WARNING):
            mq.send("queue://a", "x", reply_to=held.reply_to)
        assert mq.dead_letters() == []
        assert mq.messages("queue://a") == []
