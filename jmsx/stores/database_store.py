"""
An idempotency store in the user's own database, in one transaction with what the handler writes.

The message's row is inserted before the handler runs. So the primary key makes a second process with the same message
wait for the first one's transaction, and then tells it that the message was handled. The row and the handler's work are
committed together, before the message is acknowledged: if the process crashes between commit and acknowledgement, the
message is delivered again, and the row shows that it was handled.
"""

from __future__ import annotations

import contextlib
import hashlib
import re
import sqlite3
from typing import TYPE_CHECKING, Any, Final

from jmsx.clock import Clock, SystemClock
from jmsx.core.durations import Duration, as_number
from jmsx.core.ledger import StoreKey
from jmsx.core.option_checks import wrong_type
from jmsx.drivers.process import Origin, keep_for_ever
from jmsx.errors import ConfigurationError, SpoiltTransactionError, StoreAwayError, StoreError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence


#: How each `paramstyle` of DB-API (PEP 249) writes parameter number `n`, called `name`.
_MARKS: Final = {
    "qmark": "?",
    "numeric": ":{n}",
    "named": ":{name}",
    "format": "%s",
    "pyformat": "%({name})s",
}

#: Names of exceptions that say that the row exists already.
_INTEGRITY: Final = ("IntegrityError",)

#: Names of exceptions about the data or SQL that jmsx or the handler gave the database.
_OURS: Final = (*_INTEGRITY, "DataError", "NotSupportedError", "ValueError", "TypeError")

#: Names of exceptions about a connection that the database or the network has ended.
_BROKEN: Final = ("OperationalError", "OSError")

#: Names of exceptions about a connection that does not work, for whatever reason.
_LINK: Final = (*_BROKEN, "InterfaceError")

#: The length of the primary key's columns, in characters.
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

#: The error's text if a handler has done with its connection what it must not do.
_SPOILT: Final = (
    "what the handler wrote cannot be committed ({cause}): it must leave rollback to jmsx, and let errors of the"
    " database out, or use a savepoint"
)


_log = logger("jmsx.stores")


class DatabaseStore:
    """
    Remembers handled messages in a table of the user's database, by a DB-API driver (PEP 249); one store for each app.

    For each message, `connect` returns a connection that is not in autocommit mode, and `release` takes it back
    (default: `connection.close()`); if opening a connection is slow, pass the two functions of a pool. `paramstyle` is
    the driver's `paramstyle`. A handler with a keyword-only parameter, such as `def book(order, *, db)`, gets the
    connection: it may write, but must leave commit and rollback to jmsx, and must not catch errors of the database.
    Raises ConfigurationError for a paramstyle or table name that makes no sense.

    The inserted row is a lock: handlers of equal messages wait for each other. In SQLite, which allows one writer, all
    handlers do; there the `timeout` of `sqlite3.connect` (5 s) should be longer than the waiting handlers take
    together, or the store counts as unreachable ("database is locked"), and their workers wait and try again.
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
        if not callable(connect):
            raise wrong_type(
                "connect of a DatabaseStore",
                'a function that opens a connection, such as lambda: sqlite3.connect("shop.db")',
                connect,
            )
        if paramstyle not in tuple(_MARKS):
            raise ConfigurationError(
                f"paramstyle {paramstyle!r}: DB-API knows {', '.join(_MARKS)}; give the driver's, such as"
                " psycopg.paramstyle"
            )
        if not isinstance(table, str):
            raise wrong_type("table of a DatabaseStore", "a str", table)
        if not re.fullmatch(r"[A-Za-z_]\w*(\.[A-Za-z_]\w*)?", table):
            raise ConfigurationError(
                f"{table!r} is no table name; write letters, digits and _, after a schema and a dot if there is one"
            )
        self.table = table
        self._connect = connect
        self._release = release or _close
        self._paramstyle = paramstyle
        self._clock = clock or SystemClock()
        self._insert = self._statement(_INSERT)
        self._select = self._statement(_SELECT)
        self._delete = self._statement(_DELETE)
        self._undone = self._statement(_UNDO)
        self.file: str | None = None  #: path of an SQLite database, set by `open`

    @property
    def ddl(self) -> str:
        """The CREATE TABLE statement, for those who manage the database schema themselves."""
        return _CREATE.replace("{table}", self.table)

    def create_table(self) -> None:
        """Create the table unless it exists; raises StoreError if that fails."""
        with contextlib.suppress(StoreError):
            self.open()
            return
        with contextlib.suppress(Exception), self._transaction() as connection:
            self._statement(self.ddl).run(connection)
        self.open()  # also succeeds if another process has just created the table

    def open(self) -> None:
        """
        Check that the database and the table can be used.

        Raises StoreAwayError if the database cannot be reached, StoreError if the table cannot be read, or `connect`
        fails for another reason, and ConfigurationError for autocommit.
        """
        try:
            with self._transaction() as connection:
                self._known(connection, "", "")
                self.file = _file_of(connection)
        except (ConfigurationError, StoreAwayError):
            raise
        except Exception as error:
            raise StoreError(
                f"table {self.table} cannot be read: {error}; is the database there? create_table() makes the"
                f" table, or run: {self.ddl}"
            ) from error

    def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
        """
        Insert the row of the message and call `work(connection)`, in one transaction; False if the row exists already.

        Raises what `work` raises, SpoiltTransactionError if the transaction cannot be committed after `work`, and
        StoreError if the database fails: before `work`, after it, or so that the outcome of the commit is unknown.
        """
        now = self._now_ms()
        with self._transaction() as connection:
            if not self._insert_row(connection, *_row(identity), now):
                return False
            with self._undone_unless_whole(connection, [identity], now):
                work(connection)
        return True

    def once_each(
        self,
        identities: Sequence[StoreKey],
        work: Callable[[Any, frozenset[StoreKey]], Collection[StoreKey]],
    ) -> None:
        """
        Call `work(connection, new)` with the messages of a batch that have no row, in one transaction with their rows.

        The result of `work` is ignored: if it raises, all is rolled back, else all of `new` are remembered. Raises as
        `once`.
        """
        now = self._now_ms()
        with self._transaction() as connection:
            new = self._insert_rows(connection, identities, now)
            with self._undone_unless_whole(connection, new, now):
                work(connection, frozenset(new))

    @contextlib.contextmanager
    def _undone_unless_whole(
        self, connection: Any, identities: Sequence[StoreKey], now: int
    ) -> Iterator[None]:
        """Undo the new rows, and with them the transaction, if what the block does fails or has spoilt that."""
        origin = Origin()
        try:
            yield
            origin.check("the transaction was begun")
            if identities:
                self._check_row(connection, *_row(identities[0]))
        except BaseException:
            if origin.here:
                self._undo(connection, identities, now)
            raise

    def _insert_rows(
        self, connection: Any, identities: Sequence[StoreKey], now: int
    ) -> list[StoreKey]:
        """
        Note messages as done; those that were not.

        In one order, so that two batches do not wait for each other. Somebody else's row that comes in between ends the
        transaction in some databases, so it is begun again, and that row is known then.
        """
        while True:
            new = []
            for identity in sorted(set(identities)):
                with self._present("cannot be read"):
                    if not self._known(connection, *_row(identity)):
                        new.append(identity)
            if all(self._insert_row(connection, *_row(identity), now) for identity in new):
                return new

    def prune(self, age: Duration) -> None:
        """
        Delete the rows of messages that were handled longer ago than `age`: seconds, a timedelta, or a text like "30d".

        jmsx never calls it; call it from a job of your own, once a day, say.
        """
        seconds: float = as_number("age", age)
        with self._transaction() as connection:
            self._delete.run(connection, oldest=self._now_ms() - round(seconds * 1000))

    def close(self) -> None:
        """Do nothing: the store itself keeps no connection open."""

    def _insert_row(self, connection: Any, place: str, key: str, now: int) -> bool:
        """Note the message as done; False if it is. Raises StoreError if the database is away."""
        with self._present("cannot be written"):
            try:
                self._insert.run(connection, place=place, key=key, now=now)
            except Exception as error:
                connection.rollback()
                if not (_is(error, _INTEGRITY) and self._known(connection, place, key)):
                    raise
                return False
            return True

    @contextlib.contextmanager
    def _transaction(self) -> Iterator[Any]:
        try:
            connection = self._connect()
        except ConfigurationError:
            raise
        except Exception as error:
            kind = StoreAwayError if _is(error, _LINK) else StoreError
            raise kind(f"no connection to the database: {_told(error)}") from error
        origin = Origin()
        try:
            _check_transactional(connection)
            try:
                yield connection
                with self._present("was perhaps not committed; the message is looked for again"):
                    connection.commit()
            except BaseException:
                if origin.here:
                    with contextlib.suppress(Exception):  # the connection may be lost
                        connection.rollback()
                raise
        finally:
            if origin.here:
                self._give_back(connection)
            else:  # the handler has forked, and this is the child
                keep_for_ever(connection)

    @contextlib.contextmanager
    def _present(self, what: str) -> Iterator[None]:
        """Tell an error of the database, which is away then, from one of what it was given."""
        try:
            yield
        except Exception as error:
            if _is(error, _OURS):
                raise
            raise StoreError(f"table {self.table} {what}: {_told(error)}") from error

    def _give_back(self, connection: Any) -> None:
        """Release the connection; what was committed stands, also if that fails."""
        try:
            self._release(connection)
        except Exception as error:  # noqa: BLE001 - a pool may raise anything
            _log.warning("connection not released", table=self.table, error=_told(error))

    def _check_row(self, connection: Any, place: str, key: str) -> None:
        """
        Raise SpoiltTransactionError if the handler has ended the transaction, or swallowed an error that spoils it.

        A connection that broke took all of the transaction with it. One that does not work may be the handler's doing,
        or the database is away: a new one tells.

        PostgreSQL answers COMMIT with a rollback then, and its drivers say nothing: all that was done would be lost.
        """
        try:
            cause = None if self._known(connection, place, key) else "its row is gone"
        except Exception as error:
            if _is(error, _BROKEN):
                raise StoreError(
                    f"the connection to the database broke before anything was committed: {_told(error)}"
                ) from error
            if _is(error, _LINK):
                self.open()
            raise SpoiltTransactionError(_SPOILT.format(cause=_told(error))) from error
        if cause:
            raise SpoiltTransactionError(_SPOILT.format(cause=cause))

    def _undo(self, connection: Any, identities: Sequence[StoreKey], now: int) -> None:
        """Take the rows back, also if the handler has committed them meanwhile with its own work."""
        with contextlib.suppress(Exception):  # of a connection that is gone
            connection.rollback()
            for place, key in map(_row, identities):
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
        """Execute the statement; return the first row, if it has rows."""
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


def _is(error: Exception, names: tuple[str, ...]) -> bool:
    """Return whether it is one of the errors that PEP 249 names, and every driver defines for itself."""
    return any(kind.__name__ in names for kind in type(error).__mro__)


def _told(error: Exception) -> str:
    return f"{type(error).__name__}: {error}"


def _row(identity: StoreKey) -> tuple[str, str]:
    """Return place and key as they are written."""
    return _fit(identity.place), _fit(identity.key)


def _fit(text: str) -> str:
    """Return `text`, or its hash where the column is too narrow for it or a database may refuse it."""
    if len(text) <= _WIDTH and text.isprintable():
        return text
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def _close(connection: Any) -> None:
    connection.close()


def _file_of(connection: Any) -> str | None:
    """Return the file of a database of SQLite; None: it has none, or is another."""
    if not isinstance(connection, sqlite3.Connection):
        return None
    cursor = connection.cursor()
    cursor.row_factory = None
    _, _, file = cursor.execute("PRAGMA database_list").fetchone()
    return file or None
