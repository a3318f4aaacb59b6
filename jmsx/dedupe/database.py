"""
What was done, in the user's own database, in one transaction with what the handler writes.

The row is inserted before the handler runs, so the primary key makes a second process wait for the first one's
transaction and then tells it that the message is done. Both are committed together, before the message is acknowledged:
after a crash between the two the message comes again, and the row is there.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from jmsx.clock import SystemClock
from jmsx.errors import ConfigurationError, StoreError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.clock import Clock
    from jmsx.core.ledger import Identity

#: How each `paramstyle` of DB-API (PEP 249) writes parameter number `n`, called `name`.
_MARKS: Final = {
    "qmark": "?",
    "numeric": ":{n}",
    "named": ":{name}",
    "format": "%s",
    "pyformat": "%({name})s",
}

#: Characters of a column of the primary key.
_WIDTH: Final = 255

_CREATE: Final = (
    "CREATE TABLE {table} (place VARCHAR(255) NOT NULL, message_key VARCHAR(255) NOT NULL,"
    " done_ms BIGINT NOT NULL, PRIMARY KEY (place, message_key))"
)
_INSERT: Final = "INSERT INTO {table} (place, message_key, done_ms) VALUES ({place}, {key}, {now})"
_SELECT: Final = "SELECT done_ms FROM {table} WHERE place = {place} AND message_key = {key}"
_UNDO: Final = (
    "DELETE FROM {table} WHERE place = {place} AND message_key = {key} AND done_ms = {now}"
)
_DELETE: Final = "DELETE FROM {table} WHERE done_ms < {oldest}"

#: What a handler may not do with its connection.
_SPOILT: Final = (
    "what the handler wrote cannot be committed ({cause}): it must leave rollback to jmsx, and let errors of the"
    " database out, or use a savepoint"
)


class DatabaseStore:
    """
    Remembers in a table of the user's database, through any DB-API driver (PEP 249); one for each application.

    `connect` gives a connection for each message, not in autocommit mode, and `release` takes it back (default:
    `connection.close()`): hand in a pool's two functions where opening one is slow. `paramstyle` is the driver's own.
    A handler with a keyword-only parameter, such as `def book(order, *, db)`, gets the connection; it writes, and
    leaves commit and rollback to jmsx, and lets errors of the database out. Raises ConfigurationError for a paramstyle
    or table name that makes no sense.

    The row locks: equal messages wait for each other, and in SQLite, which has one writer, all do. There the `timeout`
    of `sqlite3.connect` (5 s) must be longer than handlers take together, or "database is locked" is a failed delivery.
    """

    connects = True

    def __init__(
        self,
        connect: Callable[[], Any],
        *,
        paramstyle: str = "qmark",
        table: str = "jmsx_done",
        release: Callable[[Any], object] | None = None,
        clock: Clock | None = None,
    ) -> None:
        if paramstyle not in _MARKS:
            raise ConfigurationError(
                f"paramstyle {paramstyle!r}: DB-API knows {', '.join(_MARKS)}; see the driver's"
            )
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table):
            raise ConfigurationError(f"{table!r} is no table name")
        self.table = table
        self._connect = connect
        self._release = release or _close
        self._paramstyle = paramstyle
        self._clock = clock or SystemClock()
        self._insert = self._statement(_INSERT)
        self._select = self._statement(_SELECT)
        self._delete = self._statement(_DELETE)
        self._undone = self._statement(_UNDO)

    @property
    def ddl(self) -> str:
        """The statement that makes the table, for those who keep their schema themselves."""
        return _CREATE.replace("{table}", self.table)

    def create_table(self) -> None:
        """Make the table, unless it is there. Raises StoreError if that cannot be."""
        with contextlib.suppress(StoreError):
            self.open()
            return
        with contextlib.suppress(Exception), self._transaction() as connection:
            self._statement(self.ddl).run(connection)
        self.open()  # also if somebody else was first

    def open(self) -> None:
        """
        See whether it can be used.

        Raises StoreError if the database or the table cannot be reached, ConfigurationError for autocommit.
        """
        try:
            with self._transaction() as connection:
                self._known(connection, "", "")
        except ConfigurationError:
            raise
        except Exception as error:
            raise StoreError(
                f"table {self.table} cannot be read: {error}; is the database there? create_table() makes the"
                f" table, or run: {self.ddl}"
            ) from error

    def once(self, identity: Identity, work: Callable[[Any], object]) -> bool:
        """
        Do `work(connection)` in one transaction with the row that says so; False if that row is there.

        Raises what `work` raises, and StoreError if it left nothing that could be committed.
        """
        place, key, now = _fit(identity.place), _fit(identity.key), self._now_ms()
        with self._transaction() as connection:
            try:
                self._insert.run(connection, place=place, key=key, now=now)
            except Exception as error:
                connection.rollback()
                if not (_violates_integrity(error) and self._known(connection, place, key)):
                    raise
                return False
            try:
                work(connection)
                self._check_row(connection, place, key)
            except BaseException:
                self._undo(connection, place, key, now)
                raise
        return True

    def prune(self, seconds: float) -> None:
        """Forget what was done more than `seconds` ago; for a job of yours, once a day, say."""
        with self._transaction() as connection:
            self._delete.run(connection, oldest=self._now_ms() - round(seconds * 1000))

    def close(self) -> None:
        """Nothing is kept open."""

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        connection = self._connect()
        try:
            _check_transactional(connection)
            try:
                yield connection
                connection.commit()
            except BaseException:
                with contextlib.suppress(Exception):  # of a connection that is gone
                    connection.rollback()
                raise
        finally:
            self._release(connection)

    def _check_row(self, connection: Any, place: str, key: str) -> None:
        """
        Raise StoreError if the handler has ended the transaction, or swallowed an error that spoils it.

        PostgreSQL answers COMMIT with a rollback then, and its drivers say nothing: all that was done would be lost.
        """
        try:
            cause = None if self._known(connection, place, key) else "its row is gone"
        except Exception as error:
            cause = str(error)
            raise StoreError(_SPOILT.format(cause=cause)) from error
        if cause:
            raise StoreError(_SPOILT.format(cause=cause))

    def _undo(self, connection: Any, place: str, key: str, now: int) -> None:
        """Whoever failed is not done, also if the handler has committed meanwhile, and with its own work our row."""
        with contextlib.suppress(Exception):  # of a connection that is gone
            connection.rollback()
            self._undone.run(connection, place=place, key=key, now=now)
            connection.commit()

    def _known(self, connection: Any, place: str, key: str) -> bool:
        return self._select.run(connection, place=place, key=key) is not None

    def _statement(self, text: str) -> _Statement:
        return _Statement(text.replace("{table}", self.table), self._paramstyle)

    def _now_ms(self) -> int:
        return round(self._clock.wall() * 1000)


class _Statement:
    """SQL with `{name}` where a parameter goes, in the words of one paramstyle."""

    def __init__(self, text: str, paramstyle: str) -> None:
        self._names = re.findall(r"{(\w+)}", text)
        self._mapped = paramstyle in ("named", "pyformat")
        for number, name in enumerate(self._names, start=1):
            mark = _MARKS[paramstyle].format(n=number, name=name)
            text = text.replace(f"{{{name}}}", mark)
        self._text = text

    def run(self, connection: Any, **values: str | int) -> Any:
        """Execute it; the first row, if it has rows."""
        parameters = values if self._mapped else tuple(values[name] for name in self._names)
        cursor = connection.cursor()
        try:
            cursor.execute(self._text, parameters)
            return cursor.fetchone() if cursor.description else None
        finally:
            cursor.close()


def _check_transactional(connection: Any) -> None:
    """In autocommit mode a crash of the handler would leave the message marked as done."""
    if isinstance(connection, sqlite3.Connection):
        mode = getattr(connection, "autocommit", -1)  # Python 3.12; -1: as isolation_level says
        commits = connection.isolation_level is None if mode == -1 else mode
        commits = commits and not connection.in_transaction
    elif callable(getattr(connection, "get_autocommit", None)):
        commits = connection.get_autocommit()
    else:
        commits = getattr(connection, "autocommit", False) is True
    if commits:
        raise ConfigurationError(
            "a DatabaseStore needs connections that do not commit by themselves; switch autocommit off"
        )


def _violates_integrity(error: Exception) -> bool:
    """Whether it is an IntegrityError, which PEP 249 names and every driver defines for itself."""
    return any(kind.__name__ == "IntegrityError" for kind in type(error).__mro__)


def _fit(text: str) -> str:
    """As it is, or its hash where the column is too narrow."""
    return text if len(text) <= _WIDTH else hashlib.sha256(text.encode()).hexdigest()


def _close(connection: Any) -> None:
    connection.close()
