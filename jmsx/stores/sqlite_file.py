"""SQLite files of jmsx's own: opened for many threads and processes, and refused with advice."""

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

#: Seconds that the first opening waits for them: processes that start together make and prune the file in turn, and on
#: a busy host one may be stopped in the middle of that.
OPENING: Final = 10.0

#: Seconds until a file is opened again that another process was making.
_AGAIN: Final = 0.01

#: What to do about what SQLite says.
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

#: What SQLite keeps beside a file with a write-ahead log.
_COMPANIONS: Final = ("-wal", "-shm")


class OwnFile:
    """
    A file of jmsx's own that other processes may write too, the connection to it, and the lock around that.

    It is opened at the first use, and anew when somebody has removed it or its table, of which `removed` is told, and
    after each error, unless another program was writing. Neither lock nor connection survives a fork: SQLite keeps its
    locks in memory, by file, and a child inherits those of its parent's connections, which are wrong there. So it is
    closed while the process forks.

    Args:
        path: of the file.
        table: the statement that makes its table, unless it is there.
        prepare: does what is to be done first with each connection, and raises sqlite3.Error if the table is not what
            it should be.
        removed: called when what was in the file is gone.

    """

    def __init__(
        self,
        path: Path,
        table: str,
        prepare: Callable[[sqlite3.Connection], object],
        removed: Callable[[], object],
    ) -> None:
        self.path = path
        self.lock = mutex()  #: to be held for all that follows
        self.connection: sqlite3.Connection | None = None
        self._table = table
        self._prepare = prepare
        self._removed = removed
        self._id: tuple[int, int] | None = None  #: device and number of the file when it was opened
        #: This is a child, and the fork came in the middle of the parent's work.
        self._interrupted = False
        self._forking: int | None = None  #: the thread that does
        suspend_for_forks(self)

    def open(self, patience: float = PATIENCE) -> sqlite3.Connection:
        """
        Return the connection, which is opened if it is not; raises StoreError.

        Where others write to the file, it waits for them, `patience` seconds at the most.
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
        """Do `work` in one transaction that may write, from its beginning; raises StoreError if that cannot be."""
        if self._id not in (None, _file_id(self.path)):
            self.close()
            self._id = None
            self._removed()
        connection = self.open()
        try:
            return _transact(connection, work)
        except sqlite3.Error as error:
            if not _busy(error):
                self.close()  # whatever is wrong with it
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
        """Let other threads go on, in the parent."""
        if self._forking == threading.get_ident():
            self._forking = None
            self.lock.release()

    def after_fork(self) -> None:
        """Let go of the connection in the child of a fork, where it is the parent's, and of the lock."""
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
        with contextlib.suppress(OSError):  # SQLite says better what is wrong with a place
            make_file(path)  # what SQLite keeps beside it has the same mode
    deadline = time.monotonic() + patience
    while True:
        left = max(deadline - time.monotonic(), 0.0)
        try:
            return _connect(path, table, prepare, left)
        except sqlite3.Error as error:
            # Of two that make the file at the same time SQLite refuses one at once, as each would wait for the other
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
    # first: a new file is made before its companions
    left = [each for each in companions if each.exists()]
    if left and not path.exists():
        for each in left:
            with contextlib.suppress(OSError):
                each.unlink()


def unusable(path: Path, cause: str) -> StoreError:
    """Return what to raise because of what SQLite says, with advice."""
    advice = next((advice for words, advice in _ADVICE if words in cause), "name another file")
    return StoreError(f"{path}: {cause}; {advice}")
