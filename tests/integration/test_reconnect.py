"""A broker that goes and comes back: sessions that outlive their links, on a real one."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Queue
from jmsx.app import App
from jmsx.errors import ConnectionFailedError
from jmsx.options import ReconnectPolicy
from jmsx_broker import ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.support import AUTO, fresh_queue, nothing_left, put, settles
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = [pytest.mark.broker, pytest.mark.timeout(90)]


#: As the default, with attempts that are soon enough for a test.
QUICK = ReconnectPolicy(maximum_delay=0.2)


@pytest.fixture(scope="module")
def mortal_broker() -> Iterator[ClassicBroker]:
    """One broker for all tests here."""
    with ClassicBroker() as broker:
        yield broker


@pytest.fixture
def mortal(mortal_broker: ClassicBroker) -> ClassicBroker:
    """A broker to kill; alive again for each test."""
    return mortal_broker if mortal_broker.running else mortal_broker.start()


@pytest.fixture
def queue() -> Queue:
    """A queue that no other test knows."""
    return fresh_queue()


def failover(*brokers: ClassicBroker, options: str = "") -> str:
    """The failover: URI of these brokers, with quick attempts."""
    return f"failover:({','.join(broker.url for broker in brokers)})?maxReconnectDelay=200{options}"


def test_a_listener_survives_its_broker(mortal: ClassicBroker, queue: Queue) -> None:
    """SIGKILL and a new start on the same data: the listener goes on, and nobody had to do anything."""
    seen: list[str] = []
    errors: list[Exception] = []
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
            assert eventually(lambda n=n: seen[-1] == f"after {n}"), seen
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
