"""Wherever the JMS face takes a duration: seconds, a timedelta or a text, and they mean the same."""

from __future__ import annotations

import time
from datetime import timedelta
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, ConnectionFailedError, Message
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.core.durations import Duration

FORMS = pytest.mark.parametrize("half_a_second", [0.5, timedelta(milliseconds=500), "500ms"])


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Started, with a fake broker."""
    with FakeBrokerServer() as broker, Connection(broker.url) as made:
        made.start()
        yield made


@FORMS
def test_a_receive_that_waits(connection: Connection, half_a_second: Duration) -> None:
    """No shorter, and not for ever."""
    consumer = connection.create_session().create_consumer("queue://a")
    began = time.monotonic()
    assert consumer.receive(half_a_second) is None
    assert 0.45 < time.monotonic() - began < 10


@FORMS
def test_how_long_a_message_lives(connection: Connection, half_a_second: Duration) -> None:
    """Given with the message, or with the producer for all."""
    producer = connection.create_session().create_producer("queue://a")
    one, other = Message("x"), Message("y")
    producer.send(one, time_to_live=half_a_second)
    producer.time_to_live = half_a_second
    producer.send(other)
    for message in (one, other):
        assert message.timestamp is not None
        assert message.expiration == pytest.approx(message.timestamp + 0.5, abs=0.002)


@FORMS
def test_a_message_that_comes_late(connection: Connection, half_a_second: Duration) -> None:
    """As the broker's scheduler has it."""
    session = connection.create_session()
    consumer = session.create_consumer("queue://a")
    began = time.monotonic()
    session.create_producer("queue://a").send("x", delivery_delay=half_a_second)
    assert consumer.receive("10s") is not None
    assert time.monotonic() - began > 0.45


@FORMS
def test_a_send_that_waits_for_a_broker(half_a_second: Duration) -> None:
    """As long as it says, in an outage."""
    with FakeBrokerServer() as broker:
        url = f"failover:({broker.url})"
        connection = Connection(url, connect_timeout="2s")
        session = connection.create_session()
        producer = session.create_producer("queue://a")
        producer.send("x")
    while link_of(session).connected:
        time.sleep(0.01)
    began = time.monotonic()
    with pytest.raises(ConnectionFailedError, match="was not sent"):
        producer.send("y", timeout=half_a_second)
    assert time.monotonic() - began < 10
    connection.abort()


@FORMS
def test_a_stop_that_waits(connection: Connection, half_a_second: Duration) -> None:
    """For a listener that runs on."""
    session = connection.create_session()
    begun = []

    def slow(_message: Message) -> None:
        begun.append(time.monotonic())
        time.sleep(1.5)

    session.create_consumer("queue://a").set_listener(slow)
    connection.create_session().create_producer("queue://a").send("x")
    while not begun:
        time.sleep(0.01)
    began = time.monotonic()
    assert not connection.stop(half_a_second)
    assert 0.45 < time.monotonic() - began < 1.4
    assert connection.stop("10s")
