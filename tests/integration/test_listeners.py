"""Listeners on a real broker: taken away, closing each other, raising what cannot be written."""

from __future__ import annotations

import math
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    Message,
    Queue,
    Retry,
)
from jmsx.app import App
from jmsx.core.events import (
    RedeliveryScheduled,
)
from jmsx.errors import IllegalStateError
from jmsx.jms.translation import ReceivedMessage
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    QUICK,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    put,
    settles,
    text,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


class CannotSayError(Exception):
    """Neither its text nor its representation can be had."""

    def __str__(self) -> str:
        raise RuntimeError("no str")

    def __repr__(self) -> str:
        raise RuntimeError("no repr")


def test_a_listener_that_is_taken_away_at_the_hand_out(
    classic_broker: Broker, queue: Queue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Between hand-out and call; whoever was to get the message gets it, and nobody acknowledges it unseen."""
    seen: list[str] = []
    with Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)

        def taken_away(*came: Any) -> Message:
            consumer.set_listener(None)
            return ReceivedMessage(*came)

        monkeypatch.setattr("jmsx.jms.link.ReceivedMessage", taken_away)
        consumer.set_listener(lambda message: seen.append(message.text))
        put(classic_broker, queue, "a", "b")
        assert settles(classic_broker, queue, size=1, inflight=1)
        assert seen == ["a"]
        monkeypatch.undo()
        assert text(consumer.receive(5)) == "b"
    assert settles(classic_broker, queue, size=0)


@pytest.mark.parametrize("what", ["consumer", "session", "connection"])
@pytest.mark.parametrize("optimize", [False, True])
def test_what_a_listener_has_not_finished_is_not_acknowledged(
    classic_broker: Broker, queue: Queue, what: str, *, optimize: bool
) -> None:
    """close() from elsewhere waits for it; if that takes too long, its message is the broker's again, and no other."""
    put(classic_broker, queue, "done", "begun", "not begun")
    began, free = threading.Event(), threading.Event()
    with nothing_left():
        connection = Connection(
            classic_broker.url, request_timeout=1.0, optimize_acknowledge=optimize
        )
        session = connection.create_session()
        consumer = session.create_consumer(queue)

        def listen(message: Message) -> None:
            if message.text == "begun":
                began.set()
                free.wait(20)

        consumer.set_listener(listen)
        connection.start()
        assert began.wait(5)
        close = {
            "consumer": consumer.close,
            "session": session.close,
            "connection": connection.close,
        }
        assert within(5, close[what]).error is None
        left = bodies(classic_broker, queue)
        free.set()
        connection.close()
    assert left == ["begun", "not begun"]
    assert bodies(classic_broker, queue) == ["begun", "not begun"]


def test_close_of_a_consumer_waits_for_its_listener(classic_broker: Broker, queue: Queue) -> None:
    """Its message is acknowledged when it has returned; one that raises has failed."""
    put(classic_broker, queue, "a", "b")
    began, free = threading.Event(), threading.Event()
    with Connection(classic_broker.url) as connection:
        consumer = connection.create_session().create_consumer(queue)

        def listen(_message: Message) -> None:
            began.set()
            free.wait(20)

        consumer.set_listener(listen)
        connection.start()
        assert began.wait(5)
        close = Call(consumer.close)
        time.sleep(0.3)
        assert close.waiting
        assert bodies(classic_broker, queue) == ["a", "b"]
        free.set()
        assert close.join(5).error is None
    assert bodies(classic_broker, queue) == ["b"]


def test_a_link_that_ends_while_close_waits_for_a_listener(broker: Broker, queue: Queue) -> None:
    """With it the consumer has ended, too: close() raises nothing then, as it does not if the link was gone before."""
    began, free = threading.Event(), threading.Event()
    connection = Connection(broker.url)
    connection.start()
    session = connection.create_session()
    session.create_producer(queue).send("a")
    consumer = session.create_consumer(queue)

    def listen(_message: Message) -> None:
        began.set()
        free.wait(20)

    consumer.set_listener(listen)
    assert began.wait(5)
    closes = [Call(each.close) for each in (consumer, session, connection)]
    time.sleep(0.3)
    assert all(close.waiting for close in closes)
    connection.abort()
    free.set()
    assert [close.join(5).error for close in closes] == [None, None, None]
    with pytest.raises(IllegalStateError):
        consumer.receive(0)
    assert settles(broker, queue, size=1)


def test_listeners_that_close_each_other(classic_broker: Broker, diary: Diary) -> None:
    """Each waits for the other no longer than for the broker, and both messages are done."""
    queues = [fresh_queue(), fresh_queue()]
    both = threading.Barrier(2)
    closed: list[int] = []
    with nothing_left():
        connection = Connection(classic_broker.url, request_timeout=1.5, observers=[diary])
        connection.start()
        sessions = [connection.create_session() for _ in queues]

        def closer(number: int) -> Callable[[Message], None]:
            def close(_message: Message) -> None:
                both.wait(5)
                sessions[1 - number].close()
                closed.append(number)

            return close

        for number, queue in enumerate(queues):
            sessions[number].create_consumer(queue).set_listener(closer(number))
            put(classic_broker, queue, f"{number}")
        assert eventually(lambda: len(closed) == 2, 6)
        assert within(5, connection.close).error is None
    assert diary.outcomes().total() == 2


def test_listeners_that_never_return_are_waited_for_together(
    classic_broker: Broker, diary: Diary, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Not one after the other, and not once more when their sessions are closed: their messages come again."""
    limit, free, waited = 1.0, threading.Event(), list[float | None]()
    queues = [fresh_queue() for _ in range(3)]
    join = threading.Thread.join

    def noted(thread: threading.Thread, timeout: float | None = None) -> None:
        if thread.name.startswith("jmsx-listener-"):
            waited.append(timeout)
        join(thread, timeout)

    connection = Connection(classic_broker.url, request_timeout=limit, observers=[diary])
    connection.start()
    began = threading.Semaphore(0)

    def hang(_message: Message) -> None:
        began.release()
        free.wait(30)

    for queue in queues:
        connection.create_session().create_consumer(queue).set_listener(hang)
        put(classic_broker, queue, "a")
    assert all(began.acquire(timeout=5) for _ in queues)
    monkeypatch.setattr(threading.Thread, "join", noted)
    assert within(10, connection.close).error is None
    monkeypatch.undo()
    free.set()
    assert sum(math.inf if one is None else one for one in waited) < 1.5 * limit
    assert all(bodies(classic_broker, queue) == ["a"] for queue in queues)


@pytest.mark.parametrize("error", [ValueError("no file \udcff"), CannotSayError()], ids=["a", "b"])
@pytest.mark.parametrize("mode", [AUTO, TRANSACTED, CLIENT, INDIVIDUAL])
def test_errors_that_cannot_be_written(
    classic_broker: Broker, queue: Queue, diary: Diary, mode: AcknowledgeMode, error: Exception
) -> None:
    """A surrogate, or no text at all: three deliveries, one copy with what can be told, and the next message."""
    dead = f"{queue.name}.dead"
    seen: list[str] = []
    app = App(classic_broker.url, observers=[diary])

    @app.consumer(queue, mode=mode, redelivery=QUICK, dead_letter=f"queue://{dead}")
    def handle(message: Message) -> None:
        seen.append(message.text)
        if message.text == "bad":
            raise error

    put(classic_broker, queue, "bad", "good")
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    assert seen == ["bad", "bad", "bad", "good"]
    (copy,) = classic_broker.browse(dead)
    assert copy.headers["jmsx_exception"] == type(error).__name__
    assert copy.headers["jmsx_exception_message"] in (
        "no file ?",
        "<CannotSayError that cannot be printed>",
    )


def test_a_retry_in_the_distant_future(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """30,000 years are more than a lock can wait for; the session lives, and closes."""
    put(classic_broker, queue, "a")
    with nothing_left():
        connection = Connection(classic_broker.url, heartbeat=(0, 0), observers=[diary])
        connection.start()
        session = connection.create_session()
        called = threading.Event()

        def later(_message: Message) -> None:
            called.set()
            raise Retry(delay=1e12)

        session.create_consumer(queue).set_listener(later)
        assert called.wait(5)
        assert eventually(lambda: any(isinstance(e, RedeliveryScheduled) for e in diary.events))
        other = fresh_queue()
        send = within(5, lambda: session.create_producer(other).send(Message("x")))
        assert send.error is None
        assert within(5, connection.close).error is None
    assert bodies(classic_broker, queue) == ["a"]


def test_receive_with_an_infinite_timeout(classic_broker: Broker, queue: Queue) -> None:
    """For ever, as without one."""
    with nothing_left(), Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        call = Call(lambda: consumer.receive(float("inf")))
        assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 1)
        assert call.waiting
        put(classic_broker, queue, "a")
        assert text(call.join(5).value) == "a"
