"""The store in the user's own database: what was done and what it did are committed together."""

from __future__ import annotations

import contextlib
import re
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.errors import ConfigurationError, StoreError
from jmsx.stores import DatabaseStore
from tests.unit.stores.parts import A, B, Clock, Handler

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def shop(connect: Callable[[], sqlite3.Connection]) -> DatabaseStore:
    """A store beside a table of orders."""
    store = DatabaseStore(connect)
    store.create_table()
    store.create_table()  # a second time does no harm
    with connect() as database:
        database.execute("CREATE TABLE orders (article TEXT)")
    database.close()
    return store


def orders(connect: Callable[[], sqlite3.Connection]) -> int:
    """How many orders are there for others to see."""
    database = connect()
    try:
        (count,) = database.execute("SELECT COUNT(*) FROM orders").fetchone()
        return int(count)
    finally:
        database.close()


def book(database: sqlite3.Connection) -> None:
    """A handler that writes."""
    database.execute("INSERT INTO orders VALUES ('hammer')")


def test_both_are_committed_together(
    shop: DatabaseStore, connect: Callable[[], sqlite3.Connection]
) -> None:
    """The row of the message and the handler's own."""
    assert shop.once(A, book)
    assert orders(connect) == 1
    assert not shop.once(A, book)
    assert orders(connect) == 1


def test_neither_is_committed_when_the_handler_fails(
    shop: DatabaseStore, connect: Callable[[], sqlite3.Connection]
) -> None:
    """What it wrote is rolled back with the row."""

    def fail(database: sqlite3.Connection) -> None:
        book(database)
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        shop.once(A, fail)
    assert orders(connect) == 0
    assert shop.once(A, book)


def test_each_connection_is_released(connect: Callable[[], sqlite3.Connection]) -> None:
    """After success, duplicate and failure alike."""
    taken: list[sqlite3.Connection] = []
    released: list[sqlite3.Connection] = []

    def take() -> sqlite3.Connection:
        taken.append(connect())
        return taken[-1]

    def release(connection: sqlite3.Connection) -> None:
        released.append(connection)
        connection.close()

    store = DatabaseStore(take, release=release)
    store.create_table()
    handler = Handler()
    store.once(A, handler)
    store.once(A, handler)
    handler.error = ValueError()
    with pytest.raises(ValueError, match=r"^$"):
        store.once(B, handler)
    assert taken == released


def test_another_violation_is_no_duplicate(
    shop: DatabaseStore, connect: Callable[[], sqlite3.Connection]
) -> None:
    """A trigger of the user's refuses the row: that is an error, and not a message to be dropped."""
    with connect() as database:
        database.execute(
            "CREATE TRIGGER no BEFORE INSERT ON jmsx_done BEGIN SELECT RAISE(ABORT, 'closed'); END"
        )
    database.close()
    with pytest.raises(sqlite3.IntegrityError, match="closed"):
        shop.once(A, book)


def test_a_violation_in_the_handler_is_the_handlers(
    shop: DatabaseStore, connect: Callable[[], sqlite3.Connection]
) -> None:
    """It is not taken for a duplicate."""
    with connect() as database:
        database.execute("CREATE UNIQUE INDEX one ON orders (article)")
    database.close()
    assert shop.once(A, book)
    with pytest.raises(sqlite3.IntegrityError):
        shop.once(B, book)


def test_prune(connect: Callable[[], sqlite3.Connection], clock: Clock, handler: Handler) -> None:
    """What is older is forgotten."""
    store = DatabaseStore(connect, clock=clock)
    store.create_table()
    store.once(A, handler)
    clock.now += 100.0
    store.once(B, handler)
    store.prune(50.0)
    assert [store.once(A, handler), store.once(B, handler)] == [True, False]


def test_a_table_that_is_not_there(connect: Callable[[], sqlite3.Connection]) -> None:
    """The error has the statement that makes it."""
    with pytest.raises(StoreError, match=r"no such table: done.* CREATE TABLE done \(place"):
        DatabaseStore(connect, table="done").open()


def test_a_database_that_is_not_there() -> None:
    """The driver's words are in the error."""

    def connect() -> None:
        raise OSError("no route to host")

    store = DatabaseStore(connect)
    with pytest.raises(StoreError, match="no route to host"):
        store.open()
    with pytest.raises(StoreError, match="no route to host"):
        store.create_table()


def test_autocommit_is_refused(tmp_path: Path, handler: Handler) -> None:
    """A handler that dies would leave its message marked as done."""
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "x.db", isolation_level=None))
    for use in (store.open, lambda: store.once(A, handler)):
        with pytest.raises(ConfigurationError, match="autocommit off"):
            use()
    assert handler.calls == 0


@pytest.mark.parametrize("name", ["a; DROP TABLE b", "", "1a", "a.b.c"])
def test_table_names_are_checked(name: str) -> None:
    """They cannot be parameters."""
    with pytest.raises(ConfigurationError, match="is no table name"):
        DatabaseStore(lambda: None, table=name)


def test_paramstyles_are_checked() -> None:
    """The error lists those of DB-API."""
    with pytest.raises(ConfigurationError, match="'jdbc': DB-API knows qmark, numeric, named"):
        DatabaseStore(lambda: None, paramstyle="jdbc")


class Driver:
    """A DB-API driver of another paramstyle, over SQLite's; an error spoils its transaction, as in PostgreSQL."""

    def __init__(self, connection: sqlite3.Connection, style: str, *, autocommit: bool) -> None:
        self._connection = connection
        self._style = style
        self._autocommit = autocommit
        self._spoilt = False

    def get_autocommit(self) -> bool:
        """As MySQL's drivers tell it."""
        return self._autocommit

    def cursor(self) -> Driver:
        """The same object will do."""
        return self

    def execute(self, statement: str, parameters: Any) -> None:
        """Translate, and refuse what this style does not know."""
        pattern = {"format": "%s", "pyformat": r"%\(\w+\)s", "named": r":\w+", "numeric": r":\d+"}
        if isinstance(parameters, dict):
            names = re.findall(r"[(:](\w+)", re.sub(r"\(place, .*?\)", "", statement))
            parameters = [parameters[name] for name in names if name in parameters]
        text, found = re.subn(pattern[self._style], "?", statement)
        assert found == len(parameters)
        assert not self._spoilt, "the transaction is aborted: roll back first"
        try:
            self._cursor = self._connection.execute(text, parameters)
        except sqlite3.Error:
            self._spoilt = True
            raise
        self.description = self._cursor.description

    def fetchone(self) -> Any:
        """The first row."""
        return self._cursor.fetchone()

    def commit(self) -> None:
        """Commit; a spoilt transaction is rolled back, and nobody is told."""
        (self._connection.rollback if self._spoilt else self._connection.commit)()

    def rollback(self) -> None:
        """Roll back."""
        self._spoilt = False
        self._connection.rollback()

    def close(self) -> None:
        """A cursor is closed with its connection."""


@pytest.mark.parametrize("style", ["format", "pyformat", "named", "numeric"])
def test_paramstyles(
    style: str,
    connect: Callable[[], sqlite3.Connection],
    handler: Handler,
) -> None:
    """Each driver gets the marks and the parameters that it knows."""
    database = connect()
    store = DatabaseStore(lambda: Driver(database, style, autocommit=False), paramstyle=style)
    store.create_table()
    assert [store.once(A, handler), store.once(A, handler)] == [True, False]
    store.prune(-60.0)
    assert store.once(A, handler)
    database.close()


def test_a_handler_that_swallows_an_error_is_not_done(
    shop: DatabaseStore, connect: Callable[[], sqlite3.Connection]
) -> None:
    """PostgreSQL rolls back what its driver was to commit: the message would be settled, and nothing booked."""
    database = connect()
    store = DatabaseStore(
        lambda: Driver(database, "format", autocommit=False), paramstyle="format", release=print
    )

    def swallow(driver: Driver) -> None:
        driver.execute("INSERT INTO orders VALUES (%s)", ["hammer"])
        with contextlib.suppress(sqlite3.Error):
            driver.execute("INSERT INTO nowhere VALUES (%s)", ["hammer"])

    with pytest.raises(StoreError, match="let errors of the database out"):
        store.once(A, swallow)
    assert orders(connect) == 0
    assert shop.once(A, book)
    database.close()


def test_a_handler_that_rolls_back_is_not_done(
    shop: DatabaseStore, connect: Callable[[], sqlite3.Connection]
) -> None:
    """The row of its message would be gone, and with it what tells a duplicate."""

    def roll_back(database: sqlite3.Connection) -> None:
        database.rollback()
        book(database)

    with pytest.raises(StoreError, match="its row is gone"):
        shop.once(A, roll_back)
    assert orders(connect) == 0


def test_a_handler_that_commits_and_then_fails_is_not_done(shop: DatabaseStore) -> None:
    """`with db:` commits, and with it the row: the message would never come again."""

    def fail(database: sqlite3.Connection) -> None:
        with database:
            book(database)
        raise ValueError

    with pytest.raises(ValueError, match=r"^$"):
        shop.once(A, fail)
    assert shop.once(A, book)


def test_autocommit_of_other_drivers_is_refused(connect: Callable[[], sqlite3.Connection]) -> None:
    """MySQL's are asked by a method, PostgreSQL's have an attribute."""
    database = connect()
    store = DatabaseStore(lambda: Driver(database, "format", autocommit=True), paramstyle="format")
    with pytest.raises(ConfigurationError, match="autocommit off"):
        store.open()
    database.close()
