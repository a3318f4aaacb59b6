"""Sentences of the JMS javadoc on a real broker: each test quotes its own."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message
from jmsx.drivers.link_state import LinkState
from jmsx.errors import IllegalStateError, JmsxError
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.support import fresh_queue, put

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Queue
    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.fixture
def connection(broker: Broker) -> Iterator[Connection]:
    """A started connection."""
    with Connection(broker.url) as made:
        made.start()
        yield made


def send(connection: Connection, queue: Queue, *texts: str) -> None:
    """Send these, in a session of their own."""
    with connection.create_session() as session:
        producer = session.create_producer(queue)
        for one in texts:
            producer.send(one)


def test_stop_from_listeners_of_two_sessions(connection: Connection) -> None:
    """
    "This call blocks until … message listeners in progress have completed" (Connection.stop).

    But for those that stop the connection, too: they would wait for each other for ever. Who is no listener waits for
    both.
    """
    both, go_on = threading.Barrier(2), threading.Event()
    stopped: list[bool] = []

    def listen(_message: Message) -> None:
        both.wait(10)
        stopped.append(connection.stop())
        go_on.wait(30)

    for queue in (fresh_queue(), fresh_queue()):
        connection.create_session().create_consumer(queue, listener=listen)
        send(connection, queue, "a")
    assert eventually(lambda: stopped == [True, True], 10)
    assert not connection.stop(timeout=0.2)
    go_on.set()
    assert connection.stop(timeout=10)


def test_an_exception_listener_is_called_for_one_after_the_other(
    connection: Connection,
) -> None:
    """As setExceptionListener says: "A connection serializes execution of its ExceptionListener"."""
    running, most, told = [0], [0], list[JmsxError]()
    lock = threading.Lock()

    def listener(error: JmsxError) -> None:
        with lock:
            running[0] += 1
            most[0] = max(most[0], running[0])
        time.sleep(0.3)
        with lock:
            running[0] -= 1
            told.append(error)

    connection.set_exception_listener(listener)
    for _ in range(3):
        link_of(connection.create_session()).engine.fault(RuntimeError("a fault"))
    assert eventually(lambda: len(told) == 3, 10)
    assert most == [1]


def test_an_exception_listener_that_closes_the_connection(connection: Connection) -> None:
    """It is not told of the other sessions that were lost with that one, and makes no second connection."""
    told: list[JmsxError] = []
    ends = threading.Event()

    def listener(error: JmsxError) -> None:
        told.append(error)
        ends.wait(10)
        connection.close()

    connection.set_exception_listener(listener)
    links = [link_of(connection.create_session()) for _ in range(3)]
    for link in links:
        link.engine.fault(RuntimeError("a fault"))
    assert eventually(lambda: all(link.engine.state is LinkState.GONE for link in links), 10)
    ends.set()
    assert eventually(lambda: not any(link.engine.alive for link in links), 10)
    assert len(told) == 1


def test_what_a_closed_session_refuses(connection: Connection) -> None:
    """As Session.close says: any other call on a closed session raises IllegalStateException."""
    session = connection.create_session()
    session.close()
    for call in (session.create_queue, session.create_topic):
        with pytest.raises(IllegalStateError, match="The Session is closed"):
            call("a")


def test_a_closed_browser_shows_nothing(classic_broker: ClassicBroker, queue: Queue) -> None:
    """As Java's: `getEnumeration` raises, and what it has returned has no more elements."""
    put(classic_broker, queue, *"ab")
    with Connection(classic_broker.url) as connection:
        browser = connection.create_session().create_browser(queue)
        shown = iter(browser)
        assert next(shown).text == "a"
        browser.close()
        browser.close()
        assert list(shown) == []
        with pytest.raises(IllegalStateError, match=f"The Browser of {queue} is closed"):
            list(browser)
