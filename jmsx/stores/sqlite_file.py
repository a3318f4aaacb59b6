"""SQLite files of jmsx's own, for many threads and processes; errors come with advice."""

from __future__ import annotations

import contextlib
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.drivers.locks import mutex
from jmsx.drivers.process import keep_for_ever, suspend_for_forks
from jmsx.errors import StoreError
from jmsx.stores.files import make_file

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

T = TypeVar("T")

#: Seconds that a write waits at most for other processes that write.
PATIENCE: Final = 0.5

#: Seconds that opening the file for the first time waits for other processes: those that start together create and
#: prune the file in turn, and on a busy host one may be stopped in the middle of that.
OPENING: Final = 10.0

#: Seconds before another attempt to open a file that another process was creating.
_AGAIN: Final = 0.01

#: Words in SQLite's errors, and the advice for each.
_ADVICE: Final = (
    ("unable to open", "name a file in a folder that exists and may be written"),
    ("readonly", "name a file that may be written"),
    ("log does not work", "name a file on a local disk"),
    ("locked", "another program holds it: end that, or name another file"),
    ("full", "make room"),
    ("malformed", "remove it, and begin anew"),
    ("no such table", "it is made anew at the next try"),
    ("no such column", "another version of jmsx made it: remove it, or name another file"),
)

#: The bits of an error code that say what kind it is. Source: sqlite.org, "Result and Error Codes".
_PRIMARY: Final = 0xFF

#: Suffixes of the files that SQLite keeps beside a file with a write-ahead log.
_COMPANIONS: Final = ("-wal", "-shm")


class OwnFile:
    """
    A file of jmsx's own, which other processes may write, too; with the connection to it, and a lock for both.

    The file is opened at its first use. It is opened anew if the file or its table was removed, and after each error
    except that another program was writing. Neither lock nor connection survives a fork: SQLite keeps its locks in
    memory, by file, and the child would inherit the locks of the parent's connections. So the file is closed while the
    process forks.

    Args:
        path: the path of the file.
        table: the statement that creates its table unless it exists.
        prepare: called with each new connection; raises sqlite3.Error if the table is not as it should be.
        removed: called when the file or its table was removed, with all that it contained.

    """

    def __init__(
        self,
        path: Path,
        table: str,
        prepare: Callable[[sqlite3.Connection], object],
        removed: Callable[[], object],
    ) -> None:
        self.path = path
        self.lock = mutex()  #: to be held while any method below is called
        self.connection: sqlite3.Connection | None = None
        self._table = table
        self._prepare = prepare
        self._removed = removed
        self._id: tuple[int, int] | None = None  #: device and number of the file when it was opened
        #: Whether this process is a child that was forked in the middle of the parent's work.
        self._interrupted = False
        self._forking: int | None = None  #: the thread that forks the process
        suspend_for_forks(self)

    def open(self, patience: float = PATIENCE) -> sqlite3.Connection:
        """
        Return the connection, after opening it if necessary; raises StoreError.

        If other processes write to the file, this waits for them, at most `patience` seconds.
        """
        if self._interrupted:
            raise StoreError(
                f"{self.path} cannot be used in this process: its parent was writing it when it forked;"
                " fork before the app starts, or start processes by spawn"
            )
        if self.connection is None:
            self.connection = _open_file(self.path, self._table, self._prepare, patience)
            self._id = _file_id(self.path)
        return self.connection

    def write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Do `work` in one write transaction, from `BEGIN` on; raises StoreError if that fails."""
        if self._id not in (None, _file_id(self.path)):
            self.close()
            self._id = None
            self._removed()
        connection = self.open()
        try:
            return _transact(connection, work)
        except sqlite3.Error as error:
            if not _busy(error):
                self.close()  # the next use opens a new connection
            if "no such table" in str(error):
                self._removed()
            raise unusable(self.path, str(error)) from error

    def close(self) -> None:
        """Close the connection to the file, if it is open."""
        connection, self.connection = self.connection, None
        if connection is not None:
            connection.close()

    def before_fork(self) -> None:
        """Close the connection, and keep other threads from opening one, while the process forks."""
        if self.lock.acquire(timeout=2 * PATIENCE):
            self._forking = threading.get_ident()
            self.close()

    def after_fork_in_parent(self) -> None:
        """In the parent, let other threads use the file again."""
        if self._forking == threading.get_ident():
            self._forking = None
            self.lock.release()

    def after_fork(self) -> None:
        """In the child of a fork, let go of the connection and the lock, which are the parent's."""
        if self.connection is not None:
            keep_for_ever(self.connection)
            self._interrupted = True
        self.connection = None
        self._forking, self.lock = None, mutex()


def _busy(error: sqlite3.Error) -> bool:
    """Return whether another program writes, and nothing is wrong with the connection."""
    return getattr(error, "sqlite_errorcode", 0) & _PRIMARY == sqlite3.SQLITE_BUSY


def _file_id(path: Path) -> tuple[int, int] | None:
    """Return what tells a file from another one that takes its name; None: there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino


def _open_file(
    path: Path, table: str, prepare: Callable[[sqlite3.Connection], object], patience: float
) -> sqlite3.Connection:
    """
    Return a connection in autocommit mode to the file `path`, with a write-ahead log; what is made is for its owner
    alone.

    `table` is the statement that makes its table, unless it is there; `prepare` does what is to be done at first, and
    raises sqlite3.Error if the table is not what it should be.

    `synchronous=NORMAL` survives the death of a process without a sync to disk for each transaction; a power cut may
    take the last ones. Waits for other processes `patience` seconds at the most; raises StoreError.
    """
    _remove_companions(path)
    if str(path) != ":memory:":  # which is no file, and is refused below
        with contextlib.suppress(OSError):  # SQLite's own error below is clearer
            make_file(path)  # SQLite gives its companion files the same mode
    deadline = time.monotonic() + patience
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            return _connect(path, table, prepare, left)
        except sqlite3.Error as error:
            # If two processes create the file at once, SQLite refuses one at once, for each would wait for the other
            if not _busy(error) or left == 0:
                raise unusable(path, str(error)) from error
        time.sleep(_AGAIN)


def _connect(
    path: Path, table: str, prepare: Callable[[sqlite3.Connection], object], patience: float
) -> sqlite3.Connection:
    """Do as `_open_file` does, for one attempt; raises sqlite3.Error, too."""
    connection = sqlite3.connect(
        path, timeout=patience, isolation_level=None, check_same_thread=False
    )
    try:
        connection.execute("PRAGMA page_size=1024")  # each commit writes the pages it touched
        (mode,) = connection.execute("PRAGMA journal_mode=WAL").fetchone()
        connection.execute("PRAGMA synchronous=NORMAL")
        connection.execute("PRAGMA wal_autocheckpoint=8000")
        connection.execute(table)
        prepare(connection)
        connection.execute(f"PRAGMA busy_timeout={PATIENCE * 1000:.0f}")
    except sqlite3.Error:
        connection.close()
        raise
    if mode != "wal":
        connection.close()
        raise unusable(path, "write-ahead log does not work there")
    return connection


def _transact(connection: sqlite3.Connection, work: Callable[[sqlite3.Connection], T]) -> T:
    """Do `work`; raises sqlite3.Error if somebody else writes, or nothing can be written, and then before `work`."""
    execute = connection.execute
    if connection.in_transaction:  # the last one was interrupted by a signal handler
        execute("ROLLBACK")
    try:
        execute("BEGIN IMMEDIATE")
        result = work(connection)
        execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            execute("ROLLBACK")
        raise
    return result


def _remove_companions(path: Path) -> None:
    """
    Remove what is left of a file that somebody removed while others had it open, which go on in a nameless one.

    A new file would share the index of their log, and fail with "disk I/O error" (tried).
    """
    companions = [path.with_name(f"{path.name}{suffix}") for suffix in _COMPANIONS]
    # listed first, for a new file is created before its companions
    left = [each for each in companions if each.exists()]
    if left and not path.exists():
        for each in left:
            with contextlib.suppress(OSError):
                each.unlink()


def unusable(path: Path, cause: str) -> StoreError:
    """Return the StoreError for SQLite's error `cause`, with advice."""
    advice = next((advice for words, advice in _ADVICE if words in cause), "name another file")
    return StoreError(f"{path}: {cause}; {advice}")
