"""Sentences of the JMS javadoc on a real broker: each test quotes its own."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message
from jmsx.drivers.link_state import LinkState
from jmsx.errors import ConfigurationError, IllegalStateError, JmsxError
from jmsx.jms.link import SessionLink
from jmsx.jms.session import link_of
from tests.integration.broker_support import eventually
from tests.integration.support import AUTO, DUPS_OK, Outcome, fresh_queue, put, settles, text

if TYPE_CHECKING:
    from jmsx import AcknowledgeMode, Queue
    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class Listener:
    """Waits in its call until it may go on."""

    def __init__(self) -> None:
        self.called, self.go_on = threading.Event(), threading.Event()

    def __call__(self, _message: Message) -> None:
        """Be called."""
        self.called.set()
        self.go_on.wait(30)


def send(connection: Connection, queue: Queue, *texts: str) -> None:
    """Send these, in a session of their own."""
    with connection.create_session() as session:
        producer = session.create_producer(queue)
        for one in texts:
            producer.send(one)


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_a_listener_s_message_is_not_acknowledged_before_it_returns(
    broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """
    "… when the message listener the session has called to process the message successfully returns" (AUTO_ACKNOWLEDGE).

    Where the listener is taken away while it runs, `receive()` waits for it, as Java's client does, for the ACK of the
    next message would cover its own. When the link ends meanwhile all comes again.
    """
    listener = Listener()
    connection = Connection(broker.url)
    connection.start()
    consumer = connection.create_session(mode).create_consumer(queue)

    consumer.set_listener(listener)
    send(connection, queue, *"abc")
    assert listener.called.wait(10)
    consumer.set_listener(None)
    assert consumer.receive(0.3) is None
    assert consumer.receive_no_wait() is None
    connection.abort()
    listener.go_on.set()
    # Whatever of it Artemis has in delivery for nobody, as where a socket breaks.
    assert eventually(lambda: broker.statistics(queue.name).size == 3, 5)


def test_receive_goes_on_when_the_listener_has_returned(
    connection: Connection, broker: Broker, queue: Queue
) -> None:
    """At once, and nothing is acknowledged twice: on Artemis that would end the link."""
    listener = Listener()
    session = connection.create_session()
    consumer = session.create_consumer(queue)

    consumer.set_listener(listener)
    send(connection, queue, *"abc")
    assert listener.called.wait(10)
    consumer.set_listener(None)
    received = Outcome(lambda: consumer.receive(30))
    time.sleep(0.2)
    assert received.waiting
    listener.go_on.set()
    assert text(received.join(5).value) == "b"
    assert text(consumer.receive(10)) == "c"
    assert settles(broker, queue, size=0)
    assert link_of(session).epoch == 1


def test_a_listener_does_not_receive_what_is_behind_its_own_message(
    connection: Connection, broker: Broker, queue: Queue
) -> None:
    """In AUTO that would acknowledge its message; nobody could wait here for it to return."""
    errors: list[str] = []
    consumer = connection.create_session().create_consumer(queue)

    def listen(_message: Message) -> None:
        consumer.set_listener(None)
        with pytest.raises(IllegalStateError) as caught:
            consumer.receive(30)
        errors.append(str(caught.value))

    send(connection, queue, *"ab")
    consumer.set_listener(listen)
    assert eventually(lambda: bool(errors), 10)
    assert "listener" in errors[0]
    assert text(consumer.receive(10)) == "b"
    assert settles(broker, queue, size=0)


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


def test_stop_from_a_listener_while_that_of_another_session_closes(
    connection: Connection,
) -> None:
    """As with two that stop: neither waits for the other, and what both had is done."""
    both, ended, queues = threading.Barrier(2), list[str](), (fresh_queue(), fresh_queue())

    def stop(_message: Message) -> None:
        both.wait(10)
        connection.stop()
        ended.append("stop")

    def close(_message: Message) -> None:
        both.wait(10)
        time.sleep(0.3)  # behind the other's stop()
        connection.close()
        ended.append("close")

    for queue, listen in zip(queues, (stop, close), strict=True):
        connection.create_session().create_consumer(queue, listener=listen)
        send(connection, queue, "a")
    assert eventually(lambda: ended == ["stop", "close"], 10)


def test_stop_does_not_wait_for_a_session_that_is_closed(broker: Broker, queue: Queue) -> None:
    """Where close() has left a listener alone, stop() of another thread ends when that returns."""
    listener = Listener()
    with Connection(broker.url, request_timeout=1.0) as connection:
        connection.start()
        connection.create_session().create_consumer(queue, listener=listener)
        send(connection, queue, "a")
        assert listener.called.wait(10)
        stopping = Outcome(connection.stop)
        connection.close()
        listener.go_on.set()
        assert stopping.join(10).error is None


def test_start_and_stop_from_two_threads(
    connection: Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection supports concurrent use (JMS 2.0, 2.14): what came last holds for all of its sessions."""
    link, starts, pause = (
        link_of(connection.create_session()),
        list[Outcome[None]](),
        SessionLink.pause,
    )

    def pause_late(self: SessionLink) -> None:
        starts.append(Outcome(connection.start))
        time.sleep(0.2)
        pause(self)

    monkeypatch.setattr(SessionLink, "pause", pause_late)
    connection.stop()
    starts[0].join(10)
    assert link.shared.started
    assert link.calls.running


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


def test_an_exception_listener_that_would_not_run(connection: Connection) -> None:
    """It is refused when it is set, as a message listener is: nobody would await it."""

    async def awaited(_error: JmsxError) -> None:
        """Never run."""

    for listener, match in (
        (awaited, "async"),
        (dict, "class"),
        (lambda: None, "error"),
        ("x", "no function"),
    ):
        with pytest.raises(ConfigurationError, match=match):
            connection.set_exception_listener(listener)  # type: ignore[arg-type]  # the refusal is what is tested
    connection.set_exception_listener(None)


def test_what_a_closed_session_refuses(connection: Connection) -> None:
    """As Session.close says: any other call on a closed session raises IllegalStateException."""
    session = connection.create_session()
    session.close()
    for call in (session.create_queue, session.create_topic):
        with pytest.raises(IllegalStateError, match="The Session is closed"):
            call("a")
    for look in (lambda: session.mode, lambda: session.transacted):
        with pytest.raises(IllegalStateError, match="The Session is closed"):
            look()


def test_a_closed_connection_takes_no_exception_listener(connection: Connection) -> None:
    """As Java's: it would never be called."""
    connection.close()
    with pytest.raises(IllegalStateError, match="The Connection is closed"):
        connection.set_exception_listener(lambda _error: None)


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
