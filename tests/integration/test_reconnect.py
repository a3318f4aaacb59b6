"""A broker that goes and comes back: sessions that outlive their links, on a real one."""

from __future__ import annotations

import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, Queue, Topic
from jmsx.app import App
from jmsx.config.options import ReconnectPolicy
from jmsx.core.events import LinkClosed, LinkRestored
from jmsx.errors import ConnectionFailedError, JmsxError, SendUnconfirmedError
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer
from jmsx_broker import ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AT_ONCE,
    AUTO,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from jmsx import Session

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


#: As the default, with attempts that are soon enough for a test.
QUICK = ReconnectPolicy(maximum_delay=0.2)


def failover(*brokers: ClassicBroker, options: str = "") -> str:
    """The failover: URI of these brokers, with quick attempts."""
    return f"failover:({','.join(broker.url for broker in brokers)})?maxReconnectDelay=200{options}"


def test_a_listener_survives_its_broker(mortal: ClassicBroker, queue: Queue) -> None:
    """SIGKILL and a new start on the same data: the listener goes on, and nobody had to do anything."""
    seen: list[str] = []
    errors: list[Exception] = []

    def is_last(text: str) -> bool:
        return seen[-1] == text

    with nothing_left(), Connection(failover(mortal)) as connection:
        connection.set_exception_listener(errors.append)
        connection.start()
        session = connection.create_session(AUTO)
        session.create_consumer(queue).set_listener(lambda message: seen.append(message.text))
        put(mortal, queue, "before")
        assert eventually(lambda: seen == ["before"])
        for n in range(2):
            mortal.kill()
            mortal.start()
            put(mortal, queue, f"after {n}")
            assert eventually(partial(is_last, f"after {n}")), seen
        assert settles(mortal, queue, size=0)
    assert errors == []


def test_an_app_starts_before_its_broker(
    mortal: ClassicBroker, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    """It waits, says so in one line, and comes up; later it survives a broker that goes and comes back."""
    seen: list[str] = []
    app = App(mortal.url, reconnect=QUICK)
    app.consumer(queue)(lambda message: seen.append(message.text))
    put(mortal, queue, "a")
    with nothing_left():
        mortal.kill()
        start = Call(app.start)
        assert eventually(lambda: "waiting for broker" in caplog.text)
        assert start.waiting
        assert seen == []
        mortal.start()
        assert start.join(20).error is None
        assert eventually(lambda: seen == ["a"])
        mortal.kill()
        mortal.start()
        put(mortal, queue, "b")
        assert eventually(lambda: seen[-1] == "b")
        app.wait(0)  # raises what went wrong
        app.stop()
    told = [
        line for line in caplog.text.splitlines() if mortal.url.removeprefix("stomp://") in line
    ]
    assert sum("waiting for broker" in line and "attempt=1 " in line for line in told) == 2


def test_a_start_that_waits_can_be_left(mortal: ClassicBroker, queue: Queue) -> None:
    """abort() from another thread ends it at once, and nothing comes up afterwards."""
    mortal.kill()
    app = App(mortal.url, reconnect=QUICK)
    app.consumer(queue)(lambda _message: None)
    with nothing_left():
        start = Call(app.start)
        time.sleep(0.3)  # so that it is in the middle of it
        assert start.waiting
        app.abort()
        assert isinstance(start.join(3).error, ConnectionFailedError)


@pytest.mark.parametrize("how", ["stop", "quit"])
def test_a_start_that_waits_is_told_to_stop(
    mortal: ClassicBroker, queue: Queue, diary: Diary, how: str
) -> None:
    """stop() or quit() from another thread ends it; the app does not come up behind its own end."""
    put(mortal, queue, "a")
    mortal.kill()
    app = App(mortal.url, reconnect=QUICK, observers=[diary])
    with nothing_left():
        app.consumer(queue)(lambda _message: None)
        start = Call(app.start)
        time.sleep(0.3)  # so that it is in the middle of it
        assert start.waiting
        assert within(3, getattr(app, how)).error is None
        assert isinstance(start.join(3).error, JmsxError)
        app.stop()
    assert not app.ready().ok
    mortal.start()
    assert settles(mortal, queue, size=1)
    assert diary.closed == 1


def test_a_run_that_waits_is_told_to_quit(mortal: ClassicBroker, queue: Queue) -> None:
    """It ends as after a signal: in good order, for nothing was taken yet."""
    mortal.kill()
    app = App(mortal.url, reconnect=QUICK)
    app.consumer(queue)(lambda _message: None)
    with nothing_left():
        leave = threading.Timer(0.3, app.quit)
        leave.start()
        began = time.monotonic()
        app.run()
        assert 0.2 < time.monotonic() - began < 3
        leave.join()


def test_killed_under_load(mortal: ClassicBroker, queue: Queue) -> None:
    """SIGKILL twice while an app relays in transactions: each message goes on exactly once, whatever was in doubt."""
    out, total = fresh_queue(), 400
    seen: list[str] = []
    app = App(mortal.url, reconnect=QUICK, redelivery_policy=AT_ONCE)

    @app.consumer(queue, mode=TRANSACTED, concurrency=2, prefetch=20)
    def relay(message: Message, session: Session) -> None:
        seen.append(message.text)
        session.create_producer().send(Message(message.text), destination=out)

    def has_seen(count: float) -> bool:
        return len(set(seen)) > count

    put(mortal, queue, *(str(number) for number in range(total)))
    with nothing_left():
        app.start()
        for share in (0.2, 0.6):
            assert eventually(partial(has_seen, share * total), 30)
            mortal.kill()
            mortal.start()
        assert eventually(lambda: len(set(seen)) == total, 30)
        assert settles(mortal, queue, size=0)
        app.wait(0)
        app.stop()
    assert sorted(map(int, bodies(mortal, out))) == list(range(total))


def test_two_brokers(mortal: ClassicBroker, queue: Queue) -> None:
    """When one is gone the session goes to the other, with its consumers, and says where it is."""
    diary = Diary()
    with FakeBrokerServer() as other:
        url = f"failover:({mortal.url},{other.url})?randomize=false&maxReconnectDelay=200"
        with nothing_left(), Connection(url, observers=[diary]) as connection:
            connection.start()
            session = connection.create_session(AUTO)
            consumer, producer = session.create_consumer(queue), session.create_producer(queue)
            producer.send(Message("first"))
            assert consumer.receive(5) is not None
            mortal.kill()
            assert eventually(lambda: any(isinstance(event, LinkClosed) for event in diary.events))
            producer.send(Message("second"))
            message = consumer.receive(5)
            assert message is not None
            assert message.text == "second"
            assert link_of(session).engine.source.broker == other.url.removeprefix("stomp://")
            mortal.start()
    assert [event.attempts for event in diary.events if isinstance(event, LinkRestored)] == [1]


def lying(server: FakeBrokerServer, queue: Queue) -> list[bytes]:
    """What lies in a queue of a fake broker."""
    with server.broker() as broker:
        return [message.body for message in broker.queue(queue.name).browse()]


@pytest.mark.parametrize("wanted", [None, True])
def test_a_send_that_one_of_two_brokers_may_have(queue: Queue, *, wanted: bool | None) -> None:
    """Artemis drops what it has already; another broker cannot know that, so it gets nothing unless that is wanted."""
    with FakeBrokerServer("artemis") as one, FakeBrokerServer("artemis") as other:
        with Proxy(one.url) as proxy:
            url = f"failover:({proxy.url},{other.url})?randomize=false&maxReconnectDelay=200"
            with Connection(url, resend_unconfirmed=wanted) as connection:
                producer = connection.create_session(AUTO).create_producer(queue)
                with one.broker() as broker:
                    broker.cut_next("SEND", applied=True)
                with proxy.shut():
                    call = within(20, lambda: producer.send(Message("x")))
                producer.send(Message("y"))
        assert lying(one, queue) == [b"x"]
        assert lying(other, queue) == ([b"x", b"y"] if wanted else [b"y"])
    if wanted:
        assert call.error is None
    else:
        assert isinstance(call.error, SendUnconfirmedError), call.error
        assert proxy.url.removeprefix("stomp://") in str(call.error)


def test_a_client_id_that_nobody_uses_survives(mortal: ClassicBroker, queue: Queue) -> None:
    """The link that only keeps it is restored like any other, and then serves a session."""
    url = failover(mortal, options=f"&jms.clientID={queue.name}")
    with nothing_left(), Connection(url) as connection:
        connection.start()
        mortal.kill()
        mortal.start()
        session = connection.create_session(AUTO)
        consumer = session.create_durable_consumer(Topic(queue.name), "news")
        session.create_producer(Topic(queue.name)).send(Message("a"))
        assert consumer.receive(5) is not None


def test_a_password_that_is_another_one_now() -> None:
    """Probe and errors name that; the app goes on trying, and nothing is taken for lost."""
    url, reason = "stomp://127.0.0.1:{}", "refused the credentials"
    with ClassicBroker(users={"clerk": "old"}) as before:
        port = int(before.url.rpartition(":")[2])
        app = App(url.format(port), username="clerk", password="old", reconnect=QUICK)  # noqa: S106 - of a test's broker

        @app.consumer(fresh_queue())
        def take(_message: Message) -> None:
            """Nothing comes."""

        app.start()
        app.send("queue://elsewhere", "x")
    with ClassicBroker(port, users={"clerk": "new"}):
        assert eventually(lambda: reason in str(app.ready().body["reasons"]))
        assert app.live().ok
        with pytest.raises(ConnectionFailedError, match=reason):
            app.send("queue://elsewhere", "x", timeout=1)
        within(5, app.stop)
