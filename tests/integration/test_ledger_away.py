"""A delivery ledger that is away makes its consumers wait, and nothing is handed out uncounted; on both brokers."""

from __future__ import annotations

import shutil
import sqlite3
import time
from contextlib import closing, contextmanager, nullcontext
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Connection, Message, RedeliveryPolicy
from jmsx.app import App
from jmsx.core.ledger import StoreKey
from jmsx.stores import MemoryStore
from tests.integration.broker_support import eventually
from tests.integration.support import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    settles,
    text,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

ONCE = RedeliveryPolicy(maximum_redeliveries=0)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where its file is."""
    return tmp_path / "ledger.db"


@contextmanager
def held(path: Path) -> Iterator[None]:
    """Another program writes, and does not come to an end."""
    with closing(sqlite3.connect(path, isolation_level=None)) as connection:
        connection.execute("BEGIN EXCLUSIVE")
        yield


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_it_comes_back(
    broker: Broker, path: Path, mode: AcknowledgeMode, caplog: pytest.LogCaptureFixture
) -> None:
    """All messages are done once, in order, at their first delivery; the log says so once, and health meanwhile."""
    queue, diary = fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=ONCE, ledger=path)
    done: list[tuple[str, int]] = []

    @app.consumer(queue, mode=mode, name="desk")
    def desk(message: Message) -> None:
        done.append((message.text, message.delivery_count))

    texts = [str(number) for number in range(20)]
    with app:
        app.send(queue, "before")
        assert eventually(lambda: len(done) == 1, 5)
        with held(path):
            for one in texts:
                app.send(queue, one)
            assert eventually(lambda: not app.ready().ok, 5)
            ready = str(app.ready().body)
            assert "desk: waits for its delivery ledger, which is away" in ready
            assert "database is locked" in ready
            assert app.live().ok
            time.sleep(1.5)
            assert len(done) == 1
        assert eventually(lambda: len(done) == 21, 10)
        assert settles(broker, queue, size=0)
        assert app.ready().ok
    assert done == [("before", 1), *((one, 1) for one in texts)]
    assert diary.dead() == []
    told = [record.message for record in caplog.records if "delivery ledger " in record.message]
    told = [text for text in told if "session" not in text]
    assert ["away" in text for text in told] == [True, False]


def test_a_folder_that_is_removed(broker: Broker, tmp_path: Path) -> None:
    """Nothing is handed out until it is there again, and what failed before is counted on."""
    path, queue, diary = tmp_path / "folder" / "ledger.db", fresh_queue(), Diary()
    path.parent.mkdir()
    twice = RedeliveryPolicy(maximum_redeliveries=2, initial_redelivery_delay=0.01)
    app = App(broker.url, observers=[diary], redelivery_policy=twice, ledger=path)
    tries: list[int] = []

    @app.consumer(queue, name="desk")
    def desk(message: Message) -> None:
        tries.append(message.delivery_count)
        if len(tries) == 1:
            shutil.rmtree(path.parent)
            raise ValueError

    with app:
        app.send(queue, "a")
        assert eventually(lambda: not app.ready().ok, 5)
        ready = str(app.ready().body)
        assert "desk: waits for its delivery ledger, which is away" in ready
        assert "unable to open" in ready
        time.sleep(1.2)
        assert tries == [1]
        path.parent.mkdir()
        assert eventually(lambda: tries == [1, 2], 10)
        assert settles(broker, queue, size=0)
        assert app.ready().ok
    assert path.exists()
    assert diary.dead() == []


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_stopping_meanwhile(broker: Broker, path: Path, mode: AcknowledgeMode) -> None:
    """It ends soon, and the messages are the broker's again."""
    queue, diary = fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=ONCE, ledger=path)
    app.consumer(queue, mode=mode)(lambda _message: None)
    app.start()
    with held(path):
        app.send(queue, "a")
        app.send(queue, "b")
        assert eventually(lambda: not app.ready().ok, 5)
        began = time.monotonic()
        app.stop()
        assert time.monotonic() - began < 5
    assert diary.dead() == []
    assert bodies(broker, queue) == ["a", "b"]


def test_receive_returns_in_time(broker: Broker, path: Path) -> None:
    """None at its timeout, also without one to wait for; then the message, at its first delivery."""
    queue = fresh_queue()
    with Connection(broker.url, ledger=path) as connection:
        connection.start()
        session = connection.create_session()
        for one in "ab":
            session.create_producer(queue).send(one)
        consumer = session.create_consumer(queue)
        assert text(consumer.receive(5)) == "a"
        with held(path):
            for timeout in (0.3, 0.0):
                began = time.monotonic()
                assert consumer.receive(timeout) is None
                assert time.monotonic() - began < timeout + 1.2
        message = consumer.receive(5)
        assert message is not None
        assert (message.text, message.delivery_count, message.redelivered) == ("b", 1, False)
        assert consumer.receive(0.2) is None


def test_what_waited_for_its_store_waits_on(broker: Broker, path: Path) -> None:
    """The ledger is away when the handler could be called: that is not called, and the message has not failed."""
    queue, diary, done = fresh_queue(), Diary(), list[tuple[str, int]]()
    tried: list[StoreKey] = []

    class Slow(MemoryStore):
        def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
            tried.append(identity)
            with held(path) if len(tried) == 1 else nullcontext():
                return super().once(identity, work)

    app = App(broker.url, observers=[diary], redelivery_policy=ONCE, ledger=path)

    @app.consumer(queue, dedupe=Slow(), name="desk")
    def desk(message: Message) -> None:
        done.append((message.text, message.delivery_count))

    with app:
        app.send(queue, "a")
        app.send(queue, "b")
        assert settles(broker, queue, size=0)
        assert len(tried) == 3
    assert done == [("a", 1), ("b", 1)]
    assert diary.dead() == []
