"""Draining: what was finished is confirmed and never done again, what was not begun goes back, and all in time."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Message, Queue, RedeliveryPolicy
from jmsx.app import App
from jmsx.errors import ConnectionFailedError, DrainError, IllegalStateError
from jmsx_broker import ArtemisBroker, ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AUTO,
    MODES,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    paused,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from jmsx import AcknowledgeMode, Session
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


@pytest.mark.parametrize("settings", MODES.values(), ids=MODES)
def test_a_running_handler_finishes(
    classic_broker: Broker, queue: Queue, diary: Diary, settings: dict[str, Any]
) -> None:
    """Its message is settled, once; what nobody had begun comes again, to others, unchanged."""
    app = App(classic_broker.url, observers=[diary])
    began, seen = threading.Event(), []

    @app.consumer(queue, **settings)  # type: ignore[untyped-decorator]  # the settings may be any
    def slow(message: Message) -> None:
        began.set()
        time.sleep(0.4)  # a handler that takes its time
        seen.append(message.text)

    put(classic_broker, queue, "a", "b", "c")
    with nothing_left():
        app.start()
        assert began.wait(5)
        app.stop()
    assert seen == ["a"]
    assert bodies(classic_broker, queue) == ["b", "c"]
    assert settles(classic_broker, queue, size=2)
    assert diary.outcomes().total() == 1
    assert diary.closed == 1


def test_what_an_idle_worker_holds_goes_back_at_once(classic_broker: Broker) -> None:
    """It does not wait for another consumer's handler; nor does a message that waits for its redelivery."""
    slow_queue, idle_queue = fresh_queue(), fresh_queue()
    hours = RedeliveryPolicy(initial_redelivery_delay=3600.0, redelivery_delay=3600.0)
    app = App(classic_broker.url, redelivery_policy=hours)
    began, failed, free = threading.Event(), threading.Event(), threading.Event()

    @app.consumer(slow_queue)
    def slow(_message: Message) -> None:
        began.set()
        free.wait(20)

    @app.consumer(idle_queue)
    def fails(_message: Message) -> None:
        failed.set()
        raise ValueError

    put(classic_broker, slow_queue, "slow")
    put(classic_broker, idle_queue, "a", "b", "c")
    with nothing_left():
        app.start()
        assert began.wait(5)
        assert failed.wait(5)
        assert settles(classic_broker, idle_queue, size=3, inflight=3)
        stop = Call(app.stop)
        assert settles(classic_broker, idle_queue, size=3, inflight=0)
        assert stop.waiting
        free.set()
        assert stop.join(5).error is None
    assert settles(classic_broker, slow_queue, size=0)


def test_a_handler_that_never_returns(
    classic_broker: Broker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """stop() gives up after its time, and says for whom; its message comes again, the others' are settled."""
    other = fresh_queue()
    app = App(classic_broker.url)
    began, free = threading.Semaphore(0), threading.Event()

    @app.consumer(queue, name="stuck")
    def stuck(_message: Message) -> None:
        began.release()
        free.wait(30)

    @app.consumer(other)
    def finishes(_message: Message) -> None:
        began.release()
        time.sleep(0.3)  # shorter than the time for draining

    put(classic_broker, queue, "a")
    put(classic_broker, other, "b")
    (message,) = classic_broker.browse(queue.name)
    with nothing_left():
        app.start()
        assert began.acquire(timeout=5)
        assert began.acquire(timeout=5)
        stop = within(3, lambda: app.stop(drain_timeout=0.8))
        assert isinstance(stop.error, DrainError)
        assert 0.8 <= stop.seconds < 1.5
        assert settles(classic_broker, queue, size=1)
        assert settles(classic_broker, other, size=0)
        free.set()
    message_id = message.headers["message-id"]
    assert "stuck" in str(stop.error)
    assert message_id in str(stop.error)
    assert "0.8 s" in str(stop.error)
    (line,) = [one.getMessage() for one in caplog.records if "abandoned" in one.getMessage()]
    assert "consumer='stuck'" in line
    assert f"message_id='{message_id}'" in line
    assert "running_seconds=0." in line
    assert bodies(classic_broker, queue) == ["a"]


def test_a_transaction_that_is_cut_off(classic_broker: Broker, queue: Queue) -> None:
    """A transacted handler that is late has done nothing: its message comes again, what it sent is undone."""
    out = fresh_queue()
    app = App(classic_broker.url)
    began, free = threading.Event(), threading.Event()

    @app.consumer(queue, mode=TRANSACTED)
    def late(_message: Message, session: Session) -> None:
        session.create_producer(out).send(Message("sent"))
        began.set()
        free.wait(30)

    put(classic_broker, queue, "a")
    with nothing_left():
        app.start()
        assert began.wait(5)
        assert isinstance(within(3, lambda: app.stop(drain_timeout=0.2)).error, DrainError)
        free.set()
    assert settles(classic_broker, queue, size=1)
    assert bodies(classic_broker, queue) == ["a"]
    assert bodies(classic_broker, out) == []


def test_a_broker_that_does_not_answer(mortal: ClassicBroker, queue: Queue) -> None:
    """Nothing confirms what the handler finished: an error says so, in time, however patient requests are."""
    app = App(mortal.url, request_timeout=30.0)
    began, free = threading.Event(), threading.Event()

    @app.consumer(queue, name="ship", concurrency=2)
    def handle(_message: Message) -> None:
        began.set()
        free.wait(20)

    put(mortal, queue, "a")
    with nothing_left():
        app.start()
        assert began.wait(5)
        with paused(mortal):
            free.set()
            stop = within(5, lambda: app.stop(drain_timeout=1.0))
    assert isinstance(stop.error, DrainError)
    assert stop.seconds < 2
    assert "did not confirm" in str(stop.error)
    assert "ship" in str(stop.error)


@pytest.mark.parametrize("kind", [ClassicBroker, ArtemisBroker])
def test_a_broker_that_does_not_answer_the_apps_own_sends(
    kind: type[ClassicBroker | ArtemisBroker], queue: Queue
) -> None:
    """Nor is it waited for longer by the connections that `send`, `request` and the answers have."""
    with kind() as broker:
        stop_beside_silence(broker, queue)


def stop_beside_silence(broker: ClassicBroker | ArtemisBroker, queue: Queue) -> None:
    """Stop an app, all of whose connections have been used, while the broker says nothing."""
    app = App(broker.url)

    @app.consumer(queue)
    def price(_message: Message) -> str:
        return "42"

    with nothing_left():
        app.start()
        assert app.request(queue, "a book", timeout=10).text == "42"
        app.send(fresh_queue(), "x")
        with paused(broker):
            stop = within(6, lambda: app.stop(drain_timeout=1.0))
    assert isinstance(stop.error, DrainError)
    assert stop.seconds < 3.5


def test_a_sender_that_only_sends(mortal: ClassicBroker) -> None:
    """An app without consumers stops in time, too, and says what may be lost."""
    app = App(mortal.url)
    app.send(fresh_queue(), "x")
    with nothing_left(), paused(mortal):
        stop = within(6, lambda: app.stop(drain_timeout=1.5))
    assert isinstance(stop.error, DrainError)
    assert "confirm=False may be lost" in str(stop.error)
    assert stop.seconds < 4


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_a_broker_that_is_away(mortal: ClassicBroker, queue: Queue, mode: AcknowledgeMode) -> None:
    """Nobody waits for it to come back: the handler finishes, what it did is told as not confirmed, and that is all."""
    app = App(mortal.url)
    began, free = threading.Event(), threading.Event()
    done: list[str] = []

    @app.consumer(queue, name="busy", mode=mode)
    def busy(message: Message) -> None:
        began.set()
        free.wait(20)
        done.append(message.text)

    app.consumer(fresh_queue(), name="idle")(lambda _message: None)
    put(mortal, queue, "a", "b")
    with nothing_left():
        app.start()
        assert began.wait(5)
        mortal.kill()
        assert eventually(lambda: len(app.ready().body["reasons"]) == 2, 5)
        stop = Call(app.stop)
        assert not eventually(lambda: not stop.waiting, 0.3)
        free.set()
        error = stop.join(3).error
    assert isinstance(error, DrainError)
    assert "busy" in str(error)
    assert "idle" not in str(error)
    assert done == ["a"]
    mortal.start()
    assert bodies(mortal, queue) == ["a", "b"]


def test_a_handler_that_stops_the_app(classic_broker: Broker, queue: Queue) -> None:
    """quit() in a handler ends the app after it, in good order; stop() there would wait for itself, and says so."""
    app = App(classic_broker.url)
    said: list[str] = []

    @app.consumer(queue)
    def last(_message: Message) -> None:
        with pytest.raises(IllegalStateError, match="quit"):
            app.stop()
        said.append("stop() refused")
        app.quit()
        time.sleep(0.3)  # so that stop() finds it running

    put(classic_broker, queue, "a", "b")
    with nothing_left():
        app.start()
        app.wait(10)
        app.stop()
    assert said == ["stop() refused"]
    assert bodies(classic_broker, queue) == ["b"]


def test_one_lost_link_cuts_nobody_else_off(classic_broker: Broker, queue: Queue) -> None:
    """The app ends with the error of the consumer that lost its link; the other's handler finishes before."""
    app = App(classic_broker.url, reconnect=False)
    began, done = threading.Event(), threading.Event()

    @app.consumer(queue, name="slow")
    def slow(_message: Message) -> None:
        began.set()
        time.sleep(1.0)  # longer than it takes to notice
        done.set()

    app.consumer(fresh_queue(), name="unlucky")(lambda _message: None)
    put(classic_broker, queue, "a", "b")
    with nothing_left():
        app.start()
        assert began.wait(5)
        app._service.workers[1]._link.engine._epoch.link._transport.drop()
        with pytest.raises(ConnectionFailedError):
            app.wait(5)
        assert isinstance(within(5, app.stop).error, ConnectionFailedError)
    assert done.is_set()
    assert bodies(classic_broker, queue) == ["b"]
