"""Typed bodies, answers and requests, over real brokers."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

import pytest

from jmsx import App, Connection, MapMessage, Message, RedeliveryPolicy
from jmsx.core.frames import Frame
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually, queue_headers
from tests.integration.support import Diary, fresh_queue, settles

if TYPE_CHECKING:
    from jmsx import Queue
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


@dataclass
class Number:
    """A body."""

    value: int


def doubling(broker: Broker, queue: Queue, mode: str) -> App:
    """An app that doubles numbers."""
    app = App(broker.url, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))

    @app.consumer(queue, mode=mode, concurrency=2)
    def double(number: Number) -> Number:
        return Number(number.value * 2)

    return app


@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_there_and_back(broker: Broker, mode: str) -> None:
    """From many threads at once, from another app, and by hand, as any JMS program asks."""
    queue = fresh_queue()
    app, other = doubling(broker, queue, mode), App(broker.url)
    got: dict[int, object] = {}

    def ask(value: int) -> None:
        got[value] = other.request(queue, Number(value), timeout="30s").json()

    with app, other:
        asking = [threading.Thread(target=ask, args=(value,)) for value in range(8)]
        for one in asking:
            one.start()
        for one in asking:
            one.join()
        assert got == {value: {"value": value * 2} for value in range(8)}
        with Connection(broker.url) as connection:
            session = connection.create_session()
            answers = session.create_temporary_queue()
            consumer = session.create_consumer(answers)
            connection.start()
            question = Message('{"value": 21}', reply_to=answers, correlation_id="by hand")
            session.create_producer(queue).send(question)
            answer = consumer.receive(20)
        assert answer is not None
        assert (answer.json(), answer.correlation_id) == ({"value": 42}, "by hand")


def test_who_answers_by_hand_over_stomp(broker: Broker) -> None:
    """As the page says; whoever asks gets the first answer to his own request, whatever else comes."""
    queue, app, got = fresh_queue(), App(broker.url), list[Message]()

    def ask() -> None:
        got.append(app.request(queue, "question", timeout="60s"))

    asking = threading.Thread(target=ask)
    asking.start()
    with Wire(broker.url) as wire:
        where = queue_headers(wire, queue.name)
        wire.request(Frame("SUBSCRIBE", {"id": "1", "ack": "auto", **where}))
        head = wire.receive("MESSAGE").headers
        to = {"destination": head["reply-to"]}
        if wire.is_artemis:
            to = {
                "destination": head["reply-to"].removeprefix("temp-queue://"),
                "destination-type": "ANYCAST",
            }
        mine = head["correlation-id"]
        bodies = [("", b"of none"), ("other", b"of another"), (mine, b"x" * 5_000_000)]
        for name, body in (*bodies, (mine, b"second"), (mine, b"\xff\xfe")):
            named = {"correlation-id": name} if name else {}
            wire.request(Frame("SEND", {**to, **named}, body))
    asking.join(60)
    (answer,) = got
    assert (answer.correlation_id, len(answer.text)) == (mine, 5_000_000)
    app.stop()


def test_a_body_that_does_not_fit_and_a_map(broker: Broker) -> None:
    """What is sent is plain JSON to any STOMP client; a map is read as its object; misfits are dead letters at once."""
    queue, out, dead = fresh_queue(), fresh_queue(), fresh_queue()
    app, got = App(broker.url, dead_letter=dead.uri), list[int]()

    @app.consumer(queue)
    def handle(number: Number) -> None:
        got.append(number.value)

    with app:
        app.send(queue, "no number")
        app.send(queue, Number(1))
        app.send(queue, MapMessage({"value": 2}))
        app.send(out, Number(3))
        assert eventually(lambda: got == [1, 2], 20)
    with Wire(broker.url) as wire:
        where = queue_headers(wire, out.name)
        wire.request(Frame("SUBSCRIBE", {"id": "1", "ack": "auto", **where}))
        frame = wire.receive("MESSAGE")
        assert (frame.body, frame.headers["content-type"]) == (b'{"value":3}', "application/json")
        assert "content-length" not in frame.headers or wire.is_artemis
    with Connection(broker.url) as connection:
        connection.start()
        letter = connection.create_session().create_consumer(dead).receive(10)
    assert letter is not None
    assert "the body is no Number: Invalid JSON" in str(letter.properties["jmsx_exception_message"])


@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_who_asked_is_gone(broker: Broker, mode: str, caplog: pytest.LogCaptureFixture) -> None:
    """The work is done all the same: no redelivery and no dead letter, and the next answer finds its way."""
    queue, diary = fresh_queue(), Diary()
    app, began, gone = App(broker.url, observers=[diary]), threading.Event(), threading.Event()
    calls: list[str] = []

    @app.consumer(queue, mode=mode)
    def handle(text: str) -> str:
        calls.append(text)
        began.set()
        assert gone.wait(30)
        return text

    with app:
        with Connection(broker.url) as connection:
            session = connection.create_session()
            answers = session.create_temporary_queue()
            session.create_consumer(answers)
            session.create_producer(queue).send(Message("x", reply_to=answers))
            assert began.wait(30)
        gone.set()
        assert app.request(queue, "y", timeout=30).text == "y"
        assert settles(broker, queue, size=0)
    assert calls == ["x", "y"]
    assert diary.dead() == []
    assert "answer not sent: who asked is gone" in caplog.text
