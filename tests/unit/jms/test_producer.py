"""A producer prepares once what its messages have in common, and nobody can tell."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, Queue
from jmsx.errors import ConfigurationError
from jmsx.testing import FakeBrokerServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Session


@pytest.fixture
def session() -> Iterator[Session]:
    """A session of a started connection to a fake broker."""
    with FakeBrokerServer() as broker, Connection(broker.url) as connection:
        connection.start()
        yield connection.create_session()


def test_each_message_goes_as_it_was_said(session: Session) -> None:
    """Whatever was said of the one before: where to, how important, whether it outlives the broker's process."""
    producer = session.create_producer()
    wanted = [
        ("a", 4, True), ("b", 4, True), ("a", 4, True), ("a", 9, True), ("a", 9, False), ("b", 0, False), ("b", 4, True)
    ]  # fmt: skip
    for number, (name, priority, persistent) in enumerate(wanted):
        producer.send(
            str(number), destination=f"queue://{name}", priority=priority, persistent=persistent
        )
    found = {}
    for name, count in Counter(name for name, _, _ in wanted).items():
        consumer = session.create_consumer(Queue(name))
        for _ in range(count):
            message = consumer.receive(10)
            assert message is not None
            found[int(message.text)] = (name, message.priority, message.persistent)
        assert consumer.receive_no_wait() is None
    assert [found[number] for number in range(len(wanted))] == wanted


def test_a_message_is_told_where_it_went(session: Session) -> None:
    """As its sender named it: two destinations are equal that only say something else of their consumers."""
    producer, one, other = session.create_producer(), Queue("a"), Queue("a?consumer.priority=7")
    for to in (one, other, one):
        message = Message("x")
        producer.send(message, destination=to)
        assert message.destination is to


def test_a_key_tells_the_time_of_its_message(session: Session) -> None:
    """Also where it takes long to write its body down: who reads a log tells by it whose clock showed a time."""
    producer = session.create_producer(Queue("a"))
    consumer = session.create_consumer(Queue("a"))
    for _ in range(3):
        key = producer.send({f"field {number}": number for number in range(10_000)})
        message = consumer.receive(10)
        assert message is not None
        assert message.timestamp is not None
        assert int(key[:12], 16) == round(message.timestamp * 1000)


@pytest.mark.parametrize(
    "wrong",
    [
        {"persistent": 1},
        {"priority": True},
        {"priority": 1.0},
        {"time_to_live": False},
        {"delivery_delay": False},
    ],
)
def test_what_only_equals_an_option_is_refused(session: Session, wrong: dict[str, Any]) -> None:
    """Also behind a message for which the right one was said."""
    producer = session.create_producer("queue://a")
    producer.send("x", persistent=True, priority=1, time_to_live=0.0, delivery_delay=0.0)
    with pytest.raises(ConfigurationError, match=next(iter(wrong))):
        producer.send("y", **{"persistent": True, "priority": 1, **wrong})
