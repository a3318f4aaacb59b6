"""What every idempotency store promises, and what each of them adds."""

from __future__ import annotations

import logging
import re
import sqlite3
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.ledger import Identity
from jmsx.dedupe import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore
from jmsx.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

A = Identity("queue://q", "a")
B = Identity("queue://q", "b")


class Clock:
    """A clock that goes when told to."""

    def __init__(self) -> None:
        self.now = 1_000_000.0

    def monotonic(self) -> float:
        """Seconds."""
        return self.now

    def wall(self) -> float:
        """Epoch seconds."""
        return self.now


class Handler:
    """Counts its calls; raises what it is given."""

    def __init__(self) -> None:
        self.calls = 0
        self.error: BaseException | None = None

    def __call__(self, _connection: object) -> None:
        """Do the work."""
        self.calls += 1
        if self.error is not None:
            raise self.error


@pytest.fixture
def clock() -> Clock:
    """Goes when told to."""
    return Clock()


@pytest.fixture
def handler() -> Handler:
    """Does nothing, and counts it."""
    return Handler()


@pytest.fixture
def connect(tmp_path: Path) -> Callable[[], sqlite3.Connection]:
    """The user's database."""
    return lambda: sqlite3.connect(tmp_path / "shop.db")


@pytest.fixture(params=["memory", "sqlite", "database"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: Clock,
    connect: Callable[[], sqlite3.Connection],
) -> Iterator[IdempotencyStore]:
    """Each kind, open."""
    made: dict[str, Callable[[], Any]] = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SqliteStore(tmp_path / "done.db", clock=clock),
        "database": lambda: DatabaseStore(connect, clock=clock),
    }
    store = made[request.param]()
    if isinstance(store, DatabaseStore):
        store.create_table()
    store.open()
    yield store
    store.close()


# -- all of them ------------------------------------------------------------------------------------------------------


def test_what_was_done_is_not_done_again(store: IdempotencyStore, handler: Handler) -> None:
    """The second time the handler is not called."""
    assert [store.once(A, handler), store.once(A, handler), store.once(A, handler)] == [
        True,
        False,
        False,
    ]
    assert handler.calls == 1


def test_others_are_done(store: IdempotencyStore, handler: Handler) -> None:
    """Another message, and the same one in another place."""
    elsewhere = Identity("queue://r", "a")
    assert [store.once(each, handler) for each in (A, B, elsewhere)] == [True, True, True]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
def test_what_failed_is_not_done(
    store: IdempotencyStore, handler: Handler, error: BaseException
) -> None:
    """It comes again, and is done then."""
    handler.error = error
    with pytest.raises(type(error)):
        store.once(A, handler)
    handler.error = None
    assert store.once(A, handler)
    assert not store.once(A, handler)


def test_keys_of_any_kind(store: IdempotencyStore, handler: Handler) -> None:
    """Long ones, and such with the marks of SQL in them."""
    for key in ("k" * 5000, "k" * 5000 + "x", "'; --", "%s", ":key", "{place}", "ключ"):
        assert store.once(Identity("queue://q", key), handler)
        assert not store.once(Identity("queue://q", key), handler)


# -- in memory --------------------------------------------------------------------------------------------------------


def test_memory_is_bounded(handler: Handler, clock: Clock) -> None:
    """What was not seen for the longest time is forgotten first."""
    store = MemoryStore(2, clock=clock)
    keys = [Identity("q", key) for key in "aabac"]
    assert [store.once(key, handler) for key in keys] == [True, False, True, False, True]
    assert store.once(Identity("q", "b"), handler)
    assert not store.once(Identity("q", "c"), handler)


def test_memory_has_an_age(handler: Handler, clock: Clock) -> None:
    """From when it was last seen."""
    store = MemoryStore(ttl=10.0, clock=clock)
    store.once(A, handler)
    clock.now += 10.0
    assert not store.once(A, handler)
    clock.now += 10.1
    assert store.once(A, handler)


@pytest.mark.parametrize("limits", [{"maximum": 0}, {"ttl": 0.0}, {"ttl": float("nan")}])
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    """An error at the door."""
    with pytest.raises(ConfigurationError, match="must be more than 0"):
        MemoryStore(**limits)


# -- in a file of ours ------------------------------------------------------------------------------------------------


def test_a_file_is_there_for_the_next_process(
    tmp_path: Path, handler: Handler, clock: Clock
) -> None:
    """Until it is too old."""
    for expected in (True, False):
        store = SqliteStore(tmp_path / "x.db", ttl=60.0, clock=clock)
        store.open()
        assert store.once(A, handler) is expected
        store.close()
    clock.now += 61.0
    store = SqliteStore(tmp_path / "x.db", ttl=60.0, clock=clock)
    store.open()
    assert store.once(A, handler)
    store.close()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A clear error when the app starts."""
    with pytest.raises(StoreError, match=r"nowhere/x.db: unable to open .* a folder that exists"):
        SqliteStore(tmp_path / "nowhere" / "x.db").open()
    with pytest.raises(ConfigurationError, match="ttl must be more than 0"):
        SqliteStore(tmp_path / "x.db", ttl=0)


def test_a_file_that_cannot_be_read(tmp_path: Path, handler: Handler) -> None:
    """Then nobody knows whether it was done, so it is not."""
    store = SqliteStore(tmp_path / "x.db")
    store.open()
    with sqlite3.connect(tmp_path / "x.db") as vandal:
        vandal.execute("DROP TABLE jmsx_done")
    vandal.close()
    with pytest.raises(StoreError, match="nobody can tell whether a message is a duplicate"):
        store.once(A, handler)
    store.close()
    assert handler.calls == 0


def test_a_file_that_cannot_be_written(
    tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    """The work is done and its message may go; the log tells of the gap."""
    store = SqliteStore(tmp_path / "x.db")
    store.open()
    blocker = sqlite3.connect(tmp_path / "x.db", isolation_level=None)
    blocker.execute("BEGIN IMMEDIATE")
    with caplog.at_level(logging.ERROR, "jmsx.dedupe"):
        assert store.once(A, handler)
    assert "could be done again" in caplog.text
    blocker.close()
    store.close()


# -- in the user's database -------------------------------------------------------------------------------------------


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
        """Commit."""
        self._connection.commit()

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


def test_autocommit_of_other_drivers_is_refused(connect: Callable[[], sqlite3.Connection]) -> None:
    """MySQL's are asked by a method, PostgreSQL's have an attribute."""
    database = connect()
    store = DatabaseStore(lambda: Driver(database, "format", autocommit=True), paramstyle="format")
    with pytest.raises(ConfigurationError, match="autocommit off"):
        store.open()
    database.close()
