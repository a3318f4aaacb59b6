"""What raises where nobody expects it: exceptions without a traceback, log handlers, observers, jmsx's own code."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, Queue
from jmsx.app import App
from jmsx.errors import ConnectionFailedError
from jmsx.jms import dispatcher
from jmsx.jms.session import link_of
from tests.hiding import HidingError
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import QUICK, bodies, nothing_left, settles, within

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.core.events import Event, Source
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class RaisingHandler(logging.Handler):
    """Raises, once it is armed."""

    def __init__(self) -> None:
        super().__init__()
        self.error: BaseException | None = None
        self.raised = 0

    def emit(self, record: logging.LogRecord) -> None:  # noqa: ARG002 - nothing is written
        """Raise."""
        if self.error is not None:
            self.raised += 1
            raise self.error


class RaisingObserver:
    """Raises at every event, and at the end."""

    def __init__(self, error: BaseException) -> None:
        self.error = error

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - as Observer wants it
        """Raise."""
        raise self.error

    def close(self) -> None:
        """Raise."""
        raise self.error


@pytest.fixture
def handler() -> Iterator[RaisingHandler]:
    """Of the application's log."""
    made = RaisingHandler()
    logging.getLogger().addHandler(made)
    yield made
    made.error = None
    logging.getLogger().removeHandler(made)


def send(broker: Broker, queue: Queue, *texts: str) -> None:
    """Confirmed."""
    with Connection(broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for each in texts:
            producer.send(Message(each))


def syntax() -> BaseException:
    """Python's own traceback module fails at it."""
    return SyntaxError("x", ("f", "abc", "def", "t"))  # type: ignore[arg-type]  # Python's traceback module fails at such a line number


@pytest.mark.parametrize("make", [syntax, HidingError])
def test_an_exception_that_cannot_be_printed(
    broker: Broker, queue: Queue, make: Callable[[], BaseException]
) -> None:
    """It is a failure like any other: three attempts, a dead letter, and the next message."""
    dead = Queue(f"{queue.name}.dead")
    seen: list[str] = []

    def listen(message: Message) -> None:
        seen.append(message.text)
        if message.text == "bad":
            raise make()

    send(broker, queue, "bad", "good")
    with (
        nothing_left(),
        Connection(broker.url, redelivery_policy=QUICK, dead_letter=dead.uri) as connection,
    ):
        connection.start()
        connection.create_session().create_consumer(queue).set_listener(listen)
        assert eventually(lambda: seen == ["bad", "bad", "bad", "good"])
    assert bodies(broker, dead) == ["bad"]
    assert bodies(broker, queue) == []


@pytest.mark.parametrize("error", [ValueError("full"), SystemExit(1)])
def test_a_log_handler_that_raises_when_the_link_is_cut(
    broker: Broker, queue: Queue, handler: RaisingHandler, error: BaseException
) -> None:
    """The line about it is lost; the link is restored, and what fails then is delivered again."""
    seen: list[str] = []

    def listen(message: Message) -> None:
        seen.append(message.text)
        if seen.count("b") == 1:
            raise ValueError(message.text)

    with nothing_left(), Proxy(broker.url) as proxy:
        connection = Connection(f"failover:({proxy.url})", redelivery_policy=QUICK)
        connection.start()
        session = connection.create_session()
        session.create_consumer(queue).set_listener(listen)
        send(broker, queue, "a")
        assert eventually(lambda: seen == ["a"])
        assert settles(broker, queue, size=0)  # else a may come again
        handler.error = error
        proxy.cut()
        send(broker, queue, "b")
        assert eventually(lambda: seen == ["a", "b", "b"], 10)
        assert link_of(session).alive
        assert handler.raised >= 2
        connection.close()
    assert bodies(broker, queue) == []


@pytest.mark.parametrize("error", [ValueError("no"), SystemExit(1)])
def test_an_observer_that_raises(broker: Broker, queue: Queue, error: BaseException) -> None:
    """At every event of every thread: messages flow, and nothing leaves start() and abort()."""
    seen: list[str] = []
    app = App(broker.url, observers=[RaisingObserver(error)])

    @app.consumer(queue)
    def handle(message: Message) -> None:
        seen.append(message.text)

    send(broker, queue, "a", "b")
    with nothing_left():
        app.start()
        assert eventually(lambda: seen == ["a", "b"])
        app.abort()


def test_a_fault_behind_the_handler(
    broker: Broker, queue: Queue, handler: RaisingHandler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In our own code, where even the log fails: the session ends, and acknowledges nothing that is not done."""
    causes: list[Exception] = []

    def fault(error: BaseException) -> None:
        handler.error = ValueError("the log too")
        raise SystemExit(str(error))

    monkeypatch.setattr(dispatcher, "failure_of", fault)

    def listen(message: Message) -> None:
        raise ValueError(message.text)

    send(broker, queue, "a", "b")
    with nothing_left():
        connection = Connection(broker.url, redelivery_policy=QUICK)
        connection.set_exception_listener(causes.append)
        connection.start()
        session = connection.create_session()
        session.create_consumer(queue).set_listener(listen)
        assert eventually(lambda: bool(causes))
        # its thread ends behind what it tells
        assert eventually(lambda: not link_of(session).alive)
        assert within(10, connection.close).error is None
    assert isinstance(causes[0], ConnectionFailedError)
    assert "SystemExit: a" in str(causes[0])
    assert bodies(broker, queue) == ["a", "b"]


def test_a_fault_of_the_thread_that_serves_a_session(
    broker: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever escapes it ends the session with its cause, and who waits is told."""
    causes: list[Exception] = []
    connection = Connection(broker.url)
    connection.set_exception_listener(causes.append)
    connection.start()
    session = connection.create_session()
    consumer = session.create_consumer(queue)

    def fault(*_: object) -> None:
        raise SystemExit("no more")

    monkeypatch.setattr(link_of(session).engine, "_turn", fault)
    with nothing_left():
        waiting = within(10, lambda: consumer.receive(8))
        assert isinstance(waiting.error, ConnectionFailedError)
        assert "SystemExit: no more" in str(waiting.error)
        assert eventually(lambda: bool(causes))
        connection.close()
