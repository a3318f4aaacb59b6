"""A process that may start no further thread: told with a typed error, waited through where links are restored."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx import App, Connection, Message
from jmsx.app.signals import Signals
from jmsx.drivers.transport import DriverTransport
from jmsx.errors import ConnectionFailedError, JmsxError, ResourceAllocationError
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually
from tests.integration.support import TRANSACTED, nothing_left, outage, settles

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Queue
    from jmsx_broker import Broker

pytestmark = pytest.mark.timeout(60)


@contextlib.contextmanager
def no_threads() -> Iterator[None]:
    """In the block no thread can be started, as where a limit is reached: none of them gets its stack."""
    threading.stack_size(1 << 46)
    try:
        yield
    finally:
        threading.stack_size(0)


@pytest.mark.broker
def test_a_session(broker: Broker) -> None:
    """Nothing of it stays open, and the next one is made."""
    with Connection(broker.url) as connection:
        for _ in range(3):
            with (
                nothing_left(),
                no_threads(),
                pytest.raises(ConnectionFailedError, match="gets no further thread"),
            ):
                connection.create_session()
        connection.create_session()


@pytest.mark.broker
def test_a_listener(broker: Broker, queue: Queue) -> None:
    """It is not set, and can be set later: it would never be called, and its messages would lie here."""
    seen: list[str] = []
    with Connection(broker.url) as connection:
        connection.start()
        session = connection.create_session()
        consumer = session.create_consumer(queue)
        with no_threads(), pytest.raises(ResourceAllocationError, match="set it again"):
            consumer.set_listener(lambda message: seen.append(message.text))
        session.create_producer(queue).send("one")
        message = consumer.receive(5)  # there is no listener
        assert message is not None
        consumer.set_listener(lambda message: seen.append(message.text))
        session.create_producer(queue).send("two")
        assert eventually(lambda: seen == ["two"], 5)
    assert settles(broker, queue, size=0)


@pytest.mark.broker
def test_a_link_that_is_to_be_restored(broker: Broker, queue: Queue) -> None:
    """It waits for a thread as for a broker; the session ended for good."""
    seen: list[str] = []
    lost: list[JmsxError] = []
    url = f"failover:({broker.url})?maxReconnectDelay=100"
    with nothing_left(), Connection(url) as connection:
        connection.start()
        connection.set_exception_listener(lost.append)
        session = connection.create_session()
        session.create_consumer(queue).set_listener(lambda message: seen.append(message.text))
        sender = connection.create_session(TRANSACTED)
        producer = sender.create_producer(queue)
        with no_threads():
            for each in (session, sender):
                link_of(each).renew("of the test")
            assert not eventually(lambda: not outage(session) or not outage(sender), 1)
        producer.send(Message("one"))
        sender.commit()
        assert eventually(lambda: seen == ["one"], 5)
    assert lost == []
    assert settles(broker, queue, size=0)


@pytest.mark.broker
def test_an_app_that_stops(broker: Broker, queue: Queue) -> None:
    """Its consumers drain one after the other, on the thread that stops it, and what they have done is confirmed."""
    seen: list[str] = []
    app = App(broker.url)

    @app.consumer(queue, concurrency=2)
    def handle(message: Message) -> None:
        seen.append(message.text)

    app.start()
    app.send(queue, "one")
    assert eventually(lambda: seen == ["one"], 5)
    with no_threads():
        app.stop()
    assert settles(broker, queue, size=0)


@pytest.mark.broker
def test_an_app_that_stops_with_a_slow_handler(broker: Broker, queue: Queue) -> None:
    """While that is waited for, nobody begins anything more: its time would be that of all others, too."""
    busy, go, begun = f"{queue.name}.busy", threading.Event(), threading.Event()
    seen: list[float] = []
    app = App(broker.url)

    @app.consumer(queue)
    def slow(_message: Message) -> None:
        begun.set()
        go.wait(20)

    @app.consumer(f"queue://{busy}")
    def quick(_message: Message) -> None:
        seen.append(time.monotonic())
        time.sleep(0.01)

    app.start()
    for _ in range(200):
        app.send(f"queue://{busy}", "one", persistent=False)
    app.send(queue, "slow")
    assert begun.wait(5)
    assert eventually(lambda: len(seen) > 0, 5)
    threading.Timer(1.0, go.set).start()
    with no_threads():
        stopped = time.monotonic()
        app.stop()
    assert max(seen) - stopped < 0.5
    assert settles(broker, queue, size=0)


@pytest.mark.broker
@pytest.mark.parametrize("health", [None, "127.0.0.1:0"])
def test_an_app_that_starts(broker: Broker, queue: Queue, health: str | None) -> None:
    """Neither its event loop nor its health is there; nothing stays open, and it starts when there is room."""
    seen: list[str] = []
    app = App(broker.url, health=health)

    @app.consumer(queue)
    async def handle(message: Message) -> None:
        seen.append(message.text)

    for _ in range(2):
        with nothing_left(), no_threads(), pytest.raises(ResourceAllocationError, match="again"):
            app.start()
    app.start()
    app.send(queue, "one")
    assert eventually(lambda: seen == ["one"], 5)
    app.stop()
    assert settles(broker, queue, size=0)


@pytest.mark.broker
def test_an_app_that_sends(broker: Broker, queue: Queue) -> None:
    """Nothing was sent, and the next one is."""
    app = App(broker.url)
    with no_threads(), pytest.raises(ConnectionFailedError, match="gets no further thread"):
        app.send(queue, "one")
    app.send(queue, "two")
    app.stop()
    assert settles(broker, queue, size=1)


def test_a_socket_that_the_broker_is_to_close_first() -> None:
    """Where nobody can wait for that, it is closed at once."""
    closed: list[bool] = []

    class Stream:
        def shutdown(self) -> None:
            closed.append(True)

    transport = DriverTransport(("", 0), Stream, lambda _frames: None, 1)  # type: ignore[arg-type]  # only its end is asked for
    transport.attempt_connection()
    with no_threads():
        transport.drop(after=60.0)
    assert closed == [True]


def test_what_is_done_beside_the_main_thread() -> None:
    """As the draining of `run()`: it is done on the thread that asks, and what it raises is raised there."""
    done: list[str] = []
    with Signals() as signals, no_threads():
        assert signals.beside(lambda: done.append("drained"), "of-a-test").wait(5) is None
        with pytest.raises(ZeroDivisionError):
            signals.beside(lambda: 1 // 0, "of-a-test").wait(5)
    assert done == ["drained"]


@pytest.mark.parametrize("how", ["asend", "arequest"])
def test_what_an_event_loop_sends_without_a_thread_is_never_sent(how: str) -> None:
    """A pool that others use kept it, and sent it behind its error, when it had a thread again."""

    async def send(app: App, server: FakeBrokerServer) -> None:
        others = asyncio.get_running_loop().run_in_executor(None, held.wait, 20)
        with no_threads(), pytest.raises(ResourceAllocationError, match="nothing was sent to out:"):
            await (app.asend if how == "asend" else app.arequest)("out", "x", timeout=5)
        held.set()
        await others
        await app.asend("queue://later", "y")
        with server.broker() as broker:
            assert [len(broker.queue(name)) for name in ("out", "later")] == [0, 1]

    held = threading.Event()
    with FakeBrokerServer("classic") as server:
        app = App(server.url)
        app.send("queue://first", "x")
        asyncio.run(send(app, server))
        app.abort()
