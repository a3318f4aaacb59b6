"""A database that is away when an app starts holds up its own consumers, and nobody else's."""

from __future__ import annotations

import os
import signal
import sqlite3
import threading
import time
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, MemoryStore, Message
from jmsx.errors import ConfigurationError, StoreError
from jmsx.stores import DatabaseStore, pauses
from jmsx.stores.ledger import DeliveryLedger
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.timeout(60)


class Database:
    """One that is away until somebody says that it is there."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.error: Exception | None = None
        self.store = DatabaseStore(self.connect)
        self.store.create_table()
        self.error = sqlite3.OperationalError("could not connect to server")

    def connect(self) -> Any:
        """As a driver does it."""
        if self.error is not None:
            raise self.error
        return sqlite3.connect(self._path)

    def done(self) -> int:
        """Messages that it knows."""
        with closing(sqlite3.connect(self._path)) as connection:
            return int(connection.execute("SELECT count(*) FROM jmsx_done").fetchone()[0])


@pytest.fixture
def database(tmp_path: Path) -> Database:
    """It is away."""
    return Database(tmp_path / "shop.db")


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pauses, "FIRST_PAUSE", 0.05)


def shop(server: FakeBrokerServer, database: Database) -> tuple[App, list[str]]:
    """Two consumers with the database, and one without, which notes what it was given."""
    app, seen = App(server.url), list[str]()
    app.consumer("queue://books", name="books", dedupe=database.store)(lambda _message: None)
    app.consumer("queue://toys", name="toys", dedupe=database.store, concurrency=2)(
        lambda _message: None
    )

    @app.consumer("queue://news", name="news")
    def read(message: Message) -> None:
        seen.append(message.text)

    return app, seen


def reasons(app: App) -> list[str]:
    """Why it is not ready."""
    told: list[str] = app.ready().body["reasons"]
    return told


def test_the_others_start(server: FakeBrokerServer, database: Database) -> None:
    """They handle messages; the two that wait are told of, and begin when it is back."""
    app, seen = shop(server, database)
    with app:
        for name in ("news", "books", "toys"):
            app.send(f"queue://{name}", name)
        assert eventually(lambda: seen == ["news"], 5)
        away = "waits for its store, which is away: no connection to the database"
        assert [one.partition(":")[0] for one in reasons(app)] == ["books", "toys"]
        assert all(away in one for one in reasons(app))
        assert app.live().ok
        assert [row["consumer"] for row in app.ready().body["workers"]] == ["news", "books", "toys"]
        database.error = None
        assert eventually(lambda: database.done() == 2, 5)
        assert eventually(lambda: app.ready().ok, 5)
        assert len(app.ready().body["workers"]) == 4
    assert seen == ["news"]


@pytest.mark.parametrize("away", [False, "away".upper])
def test_what_a_store_of_the_application_s_own_means_by_away(
    server: FakeBrokerServer, away: object
) -> None:
    """No protocol names it, so it tells nothing: a flag, or a method, is no reason why its consumer waits."""
    store = MemoryStore()
    vars(store)["away"] = away
    app = App(server.url)
    app.consumer("queue://books", dedupe=store)(lambda _message: None)
    with app:
        assert eventually(lambda: app.ready().ok, 5), reasons(app)


def test_it_is_stopped_meanwhile(server: FakeBrokerServer, database: Database) -> None:
    """At once, and without a word."""
    app, seen = shop(server, database)
    with app:
        app.send("queue://news", "news")
        assert eventually(lambda: seen == ["news"], 5)
        began = time.monotonic()
    assert time.monotonic() - began < 5
    assert not [one for one in threading.enumerate() if one.name == "jmsx-stores"]
    database.error = None
    assert database.done() == 0


def test_idle_is_not_who_waits(server: FakeBrokerServer, database: Database) -> None:
    """A program that ends when there is nothing to do waits for the database, and says so."""
    app, _ = shop(server, database)
    app.send("queue://books", "a book")

    def come_back() -> None:
        database.error = None

    timer = threading.Timer(0.5, come_back)

    def announce(one: str) -> None:
        if one.startswith("books waits for its store, which is away"):
            timer.start()

    app.run(until_idle=0.2, announce=announce)
    assert database.done() == 1


@pytest.mark.parametrize("answers", [True, False])
def test_a_signal_while_it_does_not_answer(
    server: FakeBrokerServer, database: Database, *, answers: bool
) -> None:
    """
    It is interrupted nowhere, and is waited for as long as for running handlers.

    An exception in the middle of it would leave locks held: Python's own, too, if it was importing something.
    """
    asked, answer, ended = threading.Event(), threading.Event(), threading.Event()

    def connect() -> Any:
        asked.set()
        answer.wait(20)
        ended.set()
        return database.connect()

    def interrupt() -> None:
        assert asked.wait(20)  # else nobody sees to the signal, and it ends all tests
        os.kill(os.getpid(), signal.SIGTERM)
        if answers:
            answer.set()

    database.error = None
    app = App(server.url)
    app.consumer("queue://books", dedupe=DatabaseStore(connect))(lambda _message: None)
    threading.Thread(target=interrupt).start()
    app.run(drain_timeout=20 if answers else 0.1)
    assert ended.is_set() == answers
    answer.set()
    assert eventually(ended.is_set, 5)
    assert eventually(lambda: "jmsx-start" not in {one.name for one in threading.enumerate()}, 5)
    assert not app.live().body["workers"]


@pytest.mark.parametrize(
    "error", [KeyError("DATABASE_URL"), sqlite3.ProgrammingError("no such database")]
)
def test_one_that_makes_no_sense_later(
    server: FakeBrokerServer, database: Database, error: Exception
) -> None:
    """It ends the app, as it would have at the start."""
    app, _ = shop(server, database)
    app.start()
    database.error = error
    with pytest.raises(StoreError, match=r"create_table\(\)"):
        app.wait(10)
    with pytest.raises(StoreError):
        app.stop()


def test_a_store_that_raises_anything(server: FakeBrokerServer, database: Database) -> None:
    """Its consumers are not forgotten either."""
    app, _ = shop(server, database)
    app.start()

    def fail() -> None:
        raise ZeroDivisionError("of a store's")

    wrong: Callable[[], None] = fail
    database.store.open = wrong  # type: ignore[method-assign]  # one of somebody else's
    with pytest.raises(StoreError, match="of a store's"):
        app.wait(10)
    app.abort()


@pytest.mark.parametrize("given", ["path", "object"])
def test_a_ledger_in_the_database_is_refused(
    server: FakeBrokerServer, tmp_path: Path, given: str
) -> None:
    """A handler's transaction holds its file, so no hand-out could be written down: none was ever made."""
    path = tmp_path / "shop.db"
    store = DatabaseStore(lambda: sqlite3.connect(path))
    store.create_table()
    with closing(DeliveryLedger(path)) as ledger:
        app = App(server.url, ledger=ledger if given == "object" else f"{tmp_path}/./shop.db")
        app.consumer("queue://books", name="books", dedupe=store)(lambda _message: None)
        with pytest.raises(ConfigurationError, match=r"^consumer books: .*a file of its own"):
            app.start()
