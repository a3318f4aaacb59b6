"""What a handler returns answers a reply-to: on both brokers in memory, in virtual time."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path  # noqa: TC003 - pytest asks what it is
from typing import Any

import pytest

from jmsx import (
    App,
    DatabaseStore,
    InvalidDestinationError,
    Message,
    RedeliveryPolicy,
)
from jmsx.app.answers import answer_to
from jmsx.testing import harness

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
ONCE = RedeliveryPolicy(maximum_redeliveries=0)


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
