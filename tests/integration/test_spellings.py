"""Destinations as text, wherever they are taken, on both brokers; and a client that is not jmsx writes `/queue/x`."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message
from jmsx.app import App
from jmsx.errors import InvalidDestinationError, MessageFormatError
from tests.integration.broker_support import eventually
from tests.integration.support import Diary, bodies, fresh_queue, put

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def test_one_queue_in_three_spellings(broker: Broker) -> None:
    """Sender, consumer, reader and dead letters meet."""
    name, dead, diary = fresh_queue().name, fresh_queue().name, Diary()
    app, seen = App(broker.url, observers=[diary]), []

    @app.consumer(f"/queue/{name}", dead_letter=f"/queue/{dead}")
    def desk(message: Message) -> None:
        seen.append(message.text)
        raise ValueError

    app.change("test_one_queue_in_three_spellings.<locals>.desk", give_up_on=(ValueError,))
    with app:
        for spelling in (name, f"queue:{name}", f"/queue/{name}", f"queue://{name}"):
            app.send(spelling, spelling)
        assert eventually(lambda: len(diary.dead()) == 4, 10)
    assert len(seen) == len(bodies(broker, dead)) == 4


def test_a_stomp_client_and_jmsx(classic_broker: Broker) -> None:
    """What it sends to `/queue/x` is what jmsx reads from there."""
    queue = fresh_queue()
    put(classic_broker, queue, "x")
    with Connection(classic_broker.url) as connection:
        connection.start()
        message = connection.create_session().create_consumer(f"/queue/{queue.name}").receive(5)
    assert message is not None


def test_sessions_and_producers_take_text(broker: Broker) -> None:
    """Where they take destinations; and `send` takes the body of a message."""
    name = fresh_queue().name
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(f"queue:{name}")
        session.create_producer(f"/queue/{name}").send("text")
        session.create_producer().send(b"bytes", destination=f"queue://{name}")
        session.create_producer(name).send({"a": 1})
        got = [consumer.receive(5) for _ in range(3)]
        assert [one and one.body for one in got] == ["text", b"bytes", {"a": 1}]
        for unfit in (None, 17, ["x"], object()):
            with pytest.raises(
                MessageFormatError,
                match=r"takes a Message, or the body|a body of (int|list|object); send str",
            ):
                session.create_producer(name).send(unfit)  # type: ignore[arg-type]  # the refusal is what is tested
        for unfit in ("/queue/", "queue//x", 17, None):
            with pytest.raises(InvalidDestinationError):
                session.create_consumer(unfit)  # type: ignore[arg-type]  # the refusal is what is tested


def test_a_browser_takes_text(classic_broker: Broker) -> None:
    """Too."""
    queue = fresh_queue()
    put(classic_broker, queue, "x")
    with Connection(classic_broker.url) as connection:
        connection.start()
        browser = connection.create_session().create_browser(f"/queue/{queue.name}")
        assert len(list(browser)) == 1
