"""Wherever the JMS face takes a duration: seconds, a timedelta or a text, and they mean the same."""

from __future__ import annotations

import threading
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

FORMS = pytest.mark.parametrize("told", [0.2, timedelta(milliseconds=200), "200ms"])


@pytest.fixture
def connection() -> Iterator[Connection]:
    """Started, with a fake broker."""
    with FakeBrokerServer() as broker, Connection(broker.url) as made:
        made.start()
        yield made


@FORMS
def test_a_receive_that_waits(connection: Connection, told: Duration) -> None:
    """No shorter, and not for ever."""
    consumer = connection.create_session().create_consumer("queue://a")
    began = time.monotonic()
    assert consumer.receive(told) is None
    assert 0.18 < time.monotonic() - began < 10


@FORMS
def test_how_long_a_message_lives(connection: Connection, told: Duration) -> None:
    """Given with the message, or with the producer for all."""
    producer = connection.create_session().create_producer("queue://a")
    one, other = Message("x"), Message("y")
    producer.send(one, time_to_live=told)
    producer.time_to_live = told
    producer.send(other)
    for message in (one, other):
        assert message.timestamp is not None
        assert message.expiration == pytest.approx(message.timestamp + 0.2, abs=0.002)


@FORMS
def test_a_message_that_comes_late(
    connection: Connection, told: Duration, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the broker's scheduler has it."""
    # of what it is asked with whether it has one
    monkeypatch.setattr("jmsx.jms.scheduling.DELAY", 0.1)
    monkeypatch.setattr("jmsx.jms.scheduling.DELAYED", 0.08)
    session = connection.create_session()
    consumer = session.create_consumer("queue://a")
    began = time.monotonic()
    session.create_producer("queue://a").send("x", delivery_delay=told)
    assert consumer.receive("10s") is not None
    assert time.monotonic() - began > 0.18


@FORMS
def test_a_send_that_waits_for_a_broker(told: Duration) -> None:
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
        producer.send("y", timeout=told)
    assert time.monotonic() - began < 10
    connection.abort()


@FORMS
def test_a_stop_that_waits(connection: Connection, told: Duration) -> None:
    """For a listener that runs on."""
    session = connection.create_session()
    begun, go_on = threading.Event(), threading.Event()

    def slow(_message: Message) -> None:
        begun.set()
        go_on.wait(60)

    session.create_consumer("queue://a").set_listener(slow)
    connection.create_session().create_producer("queue://a").send("x")
    assert begun.wait(10)
    began = time.monotonic()
    assert not connection.stop(told)
    assert 0.18 < time.monotonic() - began < 10
    go_on.set()
    assert connection.stop("10s")
