"""A handler whose body never ran has not handled anything: its message is a dead letter, on both brokers."""

from __future__ import annotations

import functools
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Connection, Message, RedeliveryPolicy
from jmsx.app import App
from jmsx.errors import ConfigurationError
from jmsx.stores import MemoryStore
from tests.integration.broker_support import eventually
from tests.integration.support import (
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    settles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE


async def later(message: Message) -> None:
    """Never runs."""
    raise AssertionError(message)


def lazily(message: Message) -> Iterator[Message]:
    """Never runs, either."""
    yield message


@pytest.mark.parametrize("unrun", [later, lazily])
@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_it_is_a_dead_letter(broker: Broker, mode: AcknowledgeMode, unrun: Any) -> None:
    """At once, with a text that names the handler; what it sent in its transaction is undone."""
    queue, dead, out, diary = fresh_queue(), fresh_queue(), fresh_queue(), Diary()
    app = App(broker.url, observers=[diary])
    policy = RedeliveryPolicy(maximum_redeliveries=3, initial_redelivery_delay=0.01)

    @app.consumer(queue, mode=mode, dead_letter=dead.uri, redelivery=policy, name="desk")
    def desk(message: Message) -> Any:
        if mode is TRANSACTED:
            app.send(out, "never")
        return unrun(message)

    with app:
        for text in "abc":
            app.send(queue, text)
        assert eventually(lambda: len(diary.dead()) == 3, 10)
        assert settles(broker, queue, size=0)
    assert sorted(bodies(broker, dead)) == ["a", "b", "c"]
    assert {one.reason for one in diary.dead()} == {"rejected"}
    assert {one.attempts for one in diary.dead()} == {1}
    assert {one.error_type for one in diary.dead()} == {"ConfigurationError"}
    assert "desk returned a" in str(diary.dead()[0].error_message)
    if mode is TRANSACTED:
        assert broker.statistics(out.name).size == 0


@pytest.mark.parametrize(
    "hidden",
    [lambda message: [[later(message)]], lambda message: functools.partial(later, message)],
)
def test_so_is_one_that_returned_it_in_a_wrapping(broker: Broker, hidden: Any) -> None:
    """Lists inside lists, and what would have to be called first."""
    queue, dead = fresh_queue(), fresh_queue()
    app = App(broker.url, dead_letter=dead.uri)
    app.consumer(queue)(hidden)
    with app:
        app.send(queue, "x")
        assert eventually(lambda: bodies(broker, dead) == ["x"], 10)


def test_it_is_not_known_as_done(broker: Broker) -> None:
    """So the same message, sent once more, is handled."""
    queue, dead, store, diary = fresh_queue(), fresh_queue(), MemoryStore(), Diary()
    app, seen = App(broker.url, observers=[diary], dead_letter=dead.uri), []

    def number(message: Message) -> str:
        return message.text[:1]

    def desk(message: Message) -> Any:
        if message.text == "1 first":
            return later(message)
        seen.append(message.text)
        return None

    app.consumer(queue, dedupe=store, dedupe_by=number, dead_letter=dead.uri)(desk)
    with app:
        app.send(queue, "1 first")
        app.send(queue, "1 second")
        assert eventually(lambda: seen == ["1 second"], 10)
    assert bodies(broker, dead) == ["1 first"]


def test_a_listener(broker: Broker) -> None:
    """What returns a coroutine has failed; a coroutine function is refused."""
    queue, dead = fresh_queue(), fresh_queue()
    with Connection(broker.url, dead_letter=dead.uri) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        for unfit in (later, lazily, functools.partial(later)):
            with pytest.raises(ConfigurationError, match="would not run"):
                consumer.set_listener(unfit)
        consumer.set_listener(lambda message: later(message))  # noqa: PLW0108 - the point of the test
        connection.create_session().create_producer(queue).send(Message("x"))
        assert eventually(lambda: bodies(broker, dead) == ["x"], 10)
