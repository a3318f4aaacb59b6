"""Idempotency stores on a real broker: what was done is acknowledged, and not done again, whatever happened between."""

from __future__ import annotations

import shutil
import signal
import sqlite3
import threading
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Message, RedeliveryPolicy, Topic
from jmsx.app import App
from jmsx.core.events import DeliveryEnded, MessageDeadLettered, Outcome
from jmsx.core.ledger import StoreKey
from jmsx.errors import ConfigurationError, StoreError
from jmsx.stores import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore
from jmsx_prometheus import PrometheusObserver
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    dead_copies,
    fresh_queue,
    nothing_left,
    put,
    settles,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

SOON = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.01, redelivery_delay=0.01
)


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_a_message_that_was_done_is_acknowledged(
    classic_broker: Broker, mode: AcknowledgeMode
) -> None:
    """Its handler is not called, and it is counted; one that failed is none; in every mode."""
    queue, diary, metrics = fresh_queue(), Diary(), PrometheusObserver()
    app = App(classic_broker.url, observers=[diary, metrics], redelivery_policy=SOON)
    seen: list[str] = []

    @app.consumer(queue, mode=mode, dedupe=MemoryStore(), name="desk")
    def desk(message: Message) -> None:
        seen.append(message.text)
        if message.text == "fails once" and message.delivery_count == 1:
            raise ValueError

    put(classic_broker, queue, "a", key="1")
    put(classic_broker, queue, "fails once", key="2")
    put(classic_broker, queue, "a", "a", key="1")
    put(classic_broker, queue, "b", key="3")
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    assert seen == ["a", "fails once", "fails once", "b"]
    assert diary.outcomes()[Outcome.DUPLICATE] == 2
    assert bodies(classic_broker, queue) == []
    assert metrics.value("jmsx_settled_messages_total", outcome="duplicate") == 2
    assert metrics.value("jmsx_settled_messages_total") == 5
    assert {
        event.error_type
        for event in diary.events
        if isinstance(event, DeliveryEnded) and event.outcome is Outcome.DUPLICATE
    } == {None}


def test_equal_by_what_the_application_says(classic_broker: Broker) -> None:
    """A sender that repeats itself gives each message another id; a number of its own tells."""
    queue, diary = fresh_queue(), Diary()
    app = App(classic_broker.url, observers=[diary])

    def number(message: Message) -> str:
        return str(message.properties["order"])

    @app.consumer(queue, dedupe=MemoryStore(), dedupe_by=number)
    def desk(_message: Message) -> None:
        pass

    for order in ("17", "18", "17"):
        put(classic_broker, queue, "x", order=order)
    with app:
        assert settles(classic_broker, queue, size=0)
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 2, Outcome.DUPLICATE: 1}


def test_each_durable_subscription_has_its_own(classic_broker: Broker) -> None:
    """Two services may call theirs the same: the second is not taken for the first one doing it again."""
    topic, store, seen = Topic(f"{fresh_queue().name}.t"), MemoryStore(), Counter[str]()
    apps = [App(classic_broker.url, client_id=f"{topic.name}.{number}") for number in "12"]
    for app in apps:

        @app.consumer(topic, durable="orders", dedupe=store)
        def desk(message: Message) -> None:
            seen[message.text] += 1

    with apps[0], apps[1]:
        apps[0].send(topic, "x")
        assert eventually(lambda: seen["x"] == 2, 5)


def test_a_message_without_key_has_no_transaction(classic_broker: Broker, tmp_path: Path) -> None:
    """The handler would write into nothing; the dead letter says why it was not called."""
    queue, diary = fresh_queue(), Diary()
    app = App(classic_broker.url, observers=[diary], redelivery_policy=SOON)
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "shop.db"))
    store.create_table()

    @app.consumer(queue, dedupe=store, dedupe_by=lambda message: message.properties.get("order"))
    def book(message: Message, *, db: sqlite3.Connection) -> None:
        raise AssertionError(message, db)

    put(classic_broker, queue, "x")
    with app:
        assert settles(classic_broker, queue, size=0)
    (dead,) = (event for event in diary.events if isinstance(event, MessageDeadLettered))
    assert dead.error_type == "StoreError"
    assert "names no key" in str(dead.error_message)


class Slow:
    """A handler that ends when it is told to, well or not."""

    def __init__(self, *, well: bool) -> None:
        self.inside, self.go_on = threading.Event(), threading.Event()
        self._well = well

    def __call__(self, _connection: object) -> None:
        """Work, and perhaps fail."""
        self.inside.set()
        assert self.go_on.wait(5)
        if not self._well:
            raise ValueError


@pytest.mark.parametrize("well", [True, False])
@pytest.mark.parametrize("kind", ["memory", "sqlite", "database"])
def test_the_second_of_two_at_a_time_waits_for_the_first(
    tmp_path: Path, kind: str, *, well: bool
) -> None:
    """If the first one ends well it is a duplicate, else the second does it: by the primary key between processes."""
    shop = DatabaseStore(lambda: sqlite3.connect(tmp_path / "shop.db"))
    shop.create_table()
    made: dict[str, IdempotencyStore] = {
        "memory": MemoryStore(),
        "sqlite": SqliteStore(tmp_path / "x.db"),
        "database": shop,
    }
    store = made[kind]
    store.open()
    slow, key = Slow(well=well), StoreKey("queue://q", "a")
    first = Call(store, key, slow)
    assert slow.inside.wait(5)
    second = Call(store, key, lambda _connection: None)
    slow.go_on.set()
    assert first.join() is (True if well else None)
    assert second.join() is not well
    store.close()


class Call:
    """`store.once` in a thread of its own; None if it raised."""

    def __init__(self, store: IdempotencyStore, key: StoreKey, work: Any) -> None:
        self._result: bool | None = None
        self._thread = threading.Thread(target=self._run, args=(store, key, work), daemon=True)
        self._thread.start()

    def join(self) -> bool | None:
        """What it returned."""
        self._thread.join(10)
        assert not self._thread.is_alive()
        return self._result

    def _run(self, store: IdempotencyStore, key: StoreKey, work: Any) -> None:
        try:
            self._result = store.once(key, work)
        except ValueError:
            self._result = None


#: Books orders in its own database; dies before or after the commit, when it is told to, but never twice.
PROGRAM = """
import os, signal, sqlite3, sys
from jmsx.app import App
from jmsx.stores import DatabaseStore

url, queue, path, death = sys.argv[1:]

def release(connection):
    connection.close()
    if death == "after":
        os.kill(os.getpid(), signal.SIGKILL)

store = DatabaseStore(lambda: sqlite3.connect(path), release=release)
app = App(url)

@app.consumer(queue, dedupe=store)
def book(order, *, db):
    db.execute("INSERT INTO orders VALUES (?)", (order.text,))
    print("booked", order.text, flush=True)
    if death == "before":
        os.kill(os.getpid(), signal.SIGKILL)

store.open = lambda: None  # it would be released, too
app.run()
"""


def test_a_crash_before_and_after_the_commit(classic_broker: Broker, tmp_path: Path) -> None:
    """Each order is booked once: before, nothing of it is there; after, the message is known when it comes again."""
    queue, path = fresh_queue(), tmp_path / "shop.db"
    with closing(sqlite3.connect(path)) as database:
        database.execute("CREATE TABLE orders (article TEXT)")
    DatabaseStore(lambda: sqlite3.connect(path)).create_table()
    put(classic_broker, queue, "hammer", "nails")

    def booked() -> list[str]:
        with closing(sqlite3.connect(path)) as database:
            return [article for (article,) in database.execute("SELECT article FROM orders")]

    command = ("-c", PROGRAM, classic_broker.url, queue.uri, str(path))
    for death, expected in (("before", []), ("after", ["hammer"])):
        with python(*command, death) as process:
            _, errors = process.communicate(timeout=20)
            assert process.returncode == -signal.SIGKILL, errors
        assert booked() == expected
    with python(*command, "never") as process:
        assert read_line(process) == "booked nails"
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0, process.communicate()
    assert booked() == ["hammer", "nails"]
    assert settles(classic_broker, queue, size=0)


def test_a_store_that_cannot_tell(classic_broker: Broker, tmp_path: Path) -> None:
    """Nothing is done twice by guessing, and no message is to blame: the consumer waits, and gives it back."""
    queue, path = fresh_queue(), tmp_path / "done.db"
    app = App(classic_broker.url, redelivery_policy=SOON)
    calls: list[str] = []
    store = SqliteStore(path)
    app.consumer(queue, dedupe=store, name="desk")(lambda message: calls.append(message.text))
    with nothing_left(), app:
        with closing(sqlite3.connect(path)) as vandal:
            vandal.execute("DROP TABLE jmsx_done")
        put(classic_broker, queue, "x", case=queue.name)
        assert eventually(lambda: not app.ready().ok, 5)
        assert "desk: waits for its store, which is away" in str(app.ready().body)
        assert app.live().ok
    assert calls == []
    assert bodies(classic_broker, queue) == ["x"]
    assert dead_copies(classic_broker, queue.name) == []


@pytest.mark.parametrize("kind", ["classic", "artemis"])
@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_a_store_that_cannot_be_written(
    request: pytest.FixtureRequest, tmp_path: Path, kind: str, mode: AcknowledgeMode
) -> None:
    """What was done just then is acknowledged and known; nothing else is begun, and health says so meanwhile."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    queue, path, calls = fresh_queue(), tmp_path / "done.db", list[str]()
    app = App(broker.url, redelivery_policy=SOON)
    holder = sqlite3.connect(path, isolation_level=None, check_same_thread=False)

    @app.consumer(
        queue,
        mode=mode,
        dedupe=SqliteStore(path),
        dedupe_by=lambda message: message.text,
        name="desk",
    )
    def desk(message: Message) -> None:
        calls.append(message.text)
        if message.text == "a":
            holder.execute("BEGIN EXCLUSIVE")

    with nothing_left(), closing(holder), app:
        app.send(queue, "a")
        assert eventually(lambda: calls == ["a"], 5)
        assert settles(broker, queue, size=0)
        assert eventually(lambda: not app.ready().ok, 5)  # although no other message has come
        assert "desk: waits for its store, which is away" in str(app.ready().body)
        assert "database is locked" in str(app.ready().body)
        assert app.live().ok
        for text in "ab":
            app.send(queue, text)
        assert eventually(lambda: broker.statistics(queue.name).size == 2, 5)
        assert calls == ["a"]
        holder.execute("ROLLBACK")
        assert eventually(lambda: calls == ["a", "b"], 10)
        assert settles(broker, queue, size=0)
        assert app.ready().ok
        # a transaction is noted when its commit was answered, which is later than the broker's count
        known = "SELECT count(*) FROM jmsx_done"
        assert eventually(lambda: holder.execute(known).fetchone() == (2,), 5)
    assert dead_copies(broker, queue.name) == []


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_a_store_that_is_removed(request: pytest.FixtureRequest, tmp_path: Path, kind: str) -> None:
    """While its folder is gone nothing is begun; then it is made anew, with what was done meanwhile."""
    broker: Broker = request.getfixturevalue(f"{kind}_broker")
    queue, path, calls = fresh_queue(), tmp_path / "folder" / "done.db", list[str]()
    path.parent.mkdir()
    app = App(broker.url, redelivery_policy=SOON)

    @app.consumer(
        queue, dedupe=SqliteStore(path), dedupe_by=lambda message: message.text, name="desk"
    )
    def desk(message: Message) -> None:
        calls.append(message.text)
        if message.text == "a":
            shutil.rmtree(path.parent)

    with nothing_left(), app:
        app.send(queue, "a")
        assert eventually(lambda: not app.ready().ok, 5)
        assert "desk: waits for its store, which is away" in str(app.ready().body)
        for text in "ab":
            app.send(queue, text)
        assert eventually(lambda: broker.statistics(queue.name).size == 2, 5)
        path.parent.mkdir()
        assert eventually(lambda: calls == ["a", "b"], 10)
        assert settles(broker, queue, size=0)
        assert app.ready().ok
    with closing(sqlite3.connect(path)) as file:
        keys = file.execute("SELECT message_key FROM jmsx_done").fetchall()
    assert len(keys) == 2
    assert dead_copies(broker, queue.name) == []


def test_errors_at_the_door(classic_broker: Broker, tmp_path: Path) -> None:
    """Before a message is taken."""

    def plain(message: Message) -> None:
        raise AssertionError(message)

    app = App(classic_broker.url)
    store = SqliteStore(tmp_path / "no" / "x.db")
    app.consumer(fresh_queue(), dedupe=store, name="a")(plain)
    with nothing_left(), pytest.raises(StoreError, match="unable to open"):
        app.start()

    database = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db"))

    def wants_session(message: Message, session: Any) -> None:
        raise AssertionError(message, session)

    def wants_connection(message: Message, *, db: Any) -> None:
        raise AssertionError(message, db)

    refused: list[tuple[Any, dict[str, Any], str]] = [
        (wants_session, {"mode": TRANSACTED, "dedupe": database}, "would never be sent"),
        (wants_connection, {"dedupe": MemoryStore()}, "db= with dedupe=DatabaseStore"),
        (wants_connection, {}, "a connection for db="),
        (plain, {"dedupe_by": str}, "needs a dedupe= store"),
    ]
    for handler, settings, complaint in refused:
        with pytest.raises(ConfigurationError, match=complaint):
            app.consumer(fresh_queue(), name=complaint, **settings)(handler)
