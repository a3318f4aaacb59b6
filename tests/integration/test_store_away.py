"""A database that is away makes its consumer wait, and no message fails for it; on both brokers."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from threading import Thread
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, Message, RedeliveryPolicy
from jmsx.app import App
from jmsx.errors import IllegalStateError, JmsxError, StoreAwayError, StoreError
from jmsx.stores import DatabaseStore, pauses
from tests.integration.broker_support import eventually
from tests.integration.support import (
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    settles,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

AUTO = AcknowledgeMode.AUTO_ACKNOWLEDGE
QUICK = RedeliveryPolicy(
    maximum_redeliveries=1, initial_redelivery_delay=0.01, redelivery_delay=0.01
)


class Database:
    """A database that can be away: for new connections, or at the commit, before or after it was made."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.away = False
        self.at_commit = ""
        self.breaks = 0  #: how many connections break when the handler has returned
        with closing(sqlite3.connect(path)) as connection:
            connection.execute("CREATE TABLE bookings (article TEXT)")
        self.store = DatabaseStore(self.connect)
        self.store.create_table()

    def connect(self) -> Any:
        """As a driver does it."""
        if self.away:
            raise sqlite3.OperationalError("could not connect to server")
        return Line(self, self.path)

    def booked(self) -> list[str]:
        """What is in it."""
        with closing(sqlite3.connect(self.path)) as connection:
            return [text for (text,) in connection.execute("SELECT article FROM bookings")]


class Line(sqlite3.Connection):
    """A connection that can break at its commit."""

    def __init__(self, database: Database, *arguments: Any, **options: Any) -> None:
        super().__init__(*arguments, **options)
        self._of = database

    def cursor(self, *arguments: Any, **options: Any) -> Any:
        """As jmsx asks for one; handlers of these tests do not."""
        if self.in_transaction and self._of.breaks:
            self._of.breaks -= 1
            raise sqlite3.OperationalError("terminating connection due to administrator command")
        return super().cursor(*arguments, **options)

    def commit(self) -> None:
        """Commit, or lose the server before or after that."""
        when, self._of.at_commit = self._of.at_commit, ""
        if when == "after":
            super().commit()
        if when:
            raise sqlite3.OperationalError("server closed the connection unexpectedly")
        super().commit()


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FIRST_PAUSE", 0.1)


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_it_comes_back(
    broker: Broker, tmp_path: Path, mode: AcknowledgeMode, caplog: pytest.LogCaptureFixture
) -> None:
    """All messages are done once, in order, at their first delivery; the log says so once, and health meanwhile."""
    queue, diary, database = fresh_queue(), Diary(), Database(tmp_path / "shop.db")
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)
    counts: list[int] = []

    @app.consumer(queue, mode=mode, dedupe=database.store, name="desk")
    def book(message: Message, *, db: sqlite3.Connection) -> None:
        counts.append(message.delivery_count)
        db.execute("INSERT INTO bookings VALUES (?)", (message.text,))

    with app:
        database.away = True
        texts = [str(number) for number in range(20)]
        for text in texts:
            app.send(queue, text)
        assert eventually(lambda: not app.ready().ok, 5)
        assert "could not connect to server" in str(app.ready().body)
        assert app.live().ok
        database.away = False
        assert settles(broker, queue, size=0)
        assert app.ready().ok
    assert database.booked() == texts
    assert set(counts) == {1}
    assert diary.dead() == []
    told = [record.message for record in caplog.records if "store" in record.message]
    assert ["away" in text for text in told] == [True, False]
    assert "consumer='desk'" in told[0]


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
def test_a_commit_that_nobody_knows_of(
    broker: Broker, tmp_path: Path, mode: AcknowledgeMode, when: str
) -> None:
    """The store decides: what was committed is not done again, what was not is; uncounted either way."""
    queue, diary, database = fresh_queue(), Diary(), Database(tmp_path / "shop.db")
    policy = RedeliveryPolicy(maximum_redeliveries=0)
    app = App(broker.url, observers=[diary], redelivery_policy=policy)

    @app.consumer(queue, mode=mode, dedupe=database.store)
    def book(message: Message, *, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO bookings VALUES (?)", (message.text,))

    with app:
        database.at_commit = when
        app.send(queue, "a")
        app.send(queue, "b")
        # First what is booked: once Artemis told an empty queue before anything was.
        assert eventually(lambda: database.booked() == ["a", "b"], 10)
        assert settles(broker, queue, size=0)
    assert database.booked() == ["a", "b"]
    assert diary.dead() == []


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_stopping_meanwhile(broker: Broker, tmp_path: Path, mode: AcknowledgeMode) -> None:
    """It ends at once, and the message is the broker's again."""
    queue, diary, database = fresh_queue(), Diary(), Database(tmp_path / "shop.db")
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)
    app.consumer(queue, mode=mode, dedupe=database.store)(lambda _message: None)
    with app:
        database.away = True
        app.send(queue, "a")
        app.send(queue, "b")
        assert eventually(lambda: not app.ready().ok, 5)
    assert diary.dead() == []
    assert bodies(broker, queue) == ["a", "b"]


def test_what_the_handler_spoils_is_its_failure(broker: Broker, tmp_path: Path) -> None:
    """Its own errors of the database, a rollback, and a connection that it closes."""
    queue, dead, diary = fresh_queue(), fresh_queue(), Diary()
    database = Database(tmp_path / "shop.db")
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    @app.consumer(queue, dedupe=database.store, dead_letter=dead.uri)
    def book(message: Message, *, db: sqlite3.Connection) -> None:
        if message.text == "error":
            raise sqlite3.OperationalError("mine")
        if message.text == "rollback":
            db.rollback()
        if message.text == "close":
            db.close()

    with app:
        for text in ("error", "rollback", "close", "fine"):
            app.send(queue, text)
        assert eventually(lambda: len(diary.dead()) == 3, 10)
        assert settles(broker, queue, size=0)
    assert bodies(broker, dead) == ["error", "rollback", "close"]
    assert [one.error_type for one in diary.dead()] == [
        "OperationalError",
        "SpoiltTransactionError",
        "SpoiltTransactionError",
    ]


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED])
@pytest.mark.parametrize(("breaks", "dead"), [(2, 0), (3, 1)])
def test_a_connection_that_breaks_behind_the_handler(
    broker: Broker, tmp_path: Path, mode: AcknowledgeMode, breaks: int, dead: int
) -> None:
    """Nothing was committed, so it is done anew, uncounted; a handler that breaks each of them fails in the end."""
    queue, diary, database = fresh_queue(), Diary(), Database(tmp_path / "shop.db")
    policy = RedeliveryPolicy(maximum_redeliveries=0)
    app = App(broker.url, observers=[diary], redelivery_policy=policy)
    counts: list[int] = []

    @app.consumer(queue, mode=mode, dedupe=database.store)
    def book(message: Message, *, db: sqlite3.Connection) -> None:
        counts.append(message.delivery_count)
        db.execute("INSERT INTO bookings VALUES (?)", (message.text,))

    with app:
        database.breaks = breaks
        app.send(queue, "a")
        app.send(queue, "b")
        # Artemis does not count yet what it has only just taken in
        assert eventually(lambda: database.booked() == (["b"] if dead else ["a", "b"]), 10)
        assert settles(broker, queue, size=0)
    assert database.booked() == (["b"] if dead else ["a", "b"])
    assert len(diary.dead()) == dead
    assert counts == [1] * (3 + 1)


def test_a_database_that_is_away_at_the_start(
    broker: Broker, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The app waits for it, as for its broker, and takes nothing meanwhile."""
    queue, database = fresh_queue(), Database(tmp_path / "shop.db")
    app = App(broker.url)

    @app.consumer(queue, dedupe=database.store)
    def book(message: Message, *, db: sqlite3.Connection) -> None:
        db.execute("INSERT INTO bookings VALUES (?)", (message.text,))

    app.send(queue, "a")
    database.away = True
    starting = Thread(target=app.start)
    starting.start()
    assert eventually(lambda: "store away" in caplog.text, 5)
    name = "test_a_database_that_is_away_at_the_start.<locals>.book"
    away = (
        f"{name}: not connected; waits for its store, which is away: no connection to the database:"
    )
    assert eventually(lambda: len(app.ready().body["reasons"]) == 2, 5)
    first, second = app.ready().body["reasons"]
    assert first == "not started"
    assert second.startswith(away)
    database.away = False
    starting.join(10)
    assert settles(broker, queue, size=0)
    app.stop()
    assert database.booked() == ["a"]


def test_giving_it_up_at_the_start(broker: Broker, tmp_path: Path) -> None:
    """By quit(), or at once where the app is not to wait for anything."""
    database = Database(tmp_path / "shop.db")
    database.away = True
    for reconnect in (True, False):
        app = App(broker.url, reconnect=reconnect)
        app.consumer(fresh_queue(), dedupe=database.store)(lambda _message: None)
        raised: list[JmsxError] = []

        def start(app: App = app, raised: list[JmsxError] = raised) -> None:
            try:
                app.start()
            except JmsxError as error:
                raised.append(error)

        starting = Thread(target=start)
        starting.start()
        if reconnect:
            starting.join(0.3)
            assert starting.is_alive()
            app.quit()
        starting.join(5)
        assert isinstance(raised[0], IllegalStateError if reconnect else StoreAwayError)
        app.abort()


def test_a_store_that_makes_no_sense_is_no_outage(broker: Broker, tmp_path: Path) -> None:
    """A table that is not there, or a function that is wrong, would be waited for in vain."""

    def wrong() -> Any:
        raise KeyError("DATABASE_URL")

    for connect in (lambda: sqlite3.connect(tmp_path / "empty.db"), wrong):
        app = App(broker.url)
        app.consumer(fresh_queue(), dedupe=DatabaseStore(connect))(lambda _message: None)
        with pytest.raises(StoreError, match=r"create_table\(\)"):
            app.start()
        app.abort()
