"""An idempotency store for all processes of this host, in an SQLite file of jmsx's own."""

from __future__ import annotations

import contextlib
import os
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar

from jmsx.clock import Clock, SystemClock
from jmsx.core.durations import Duration, bounded
from jmsx.core.ledger import StoreKey
from jmsx.core.option_checks import wrong_type
from jmsx.drivers.process import Origin, tell_of_forks
from jmsx.errors import StoreError
from jmsx.log import logger
from jmsx.stores.idempotency import MessageLocks
from jmsx.stores.sqlite_file import OPENING, OwnFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Sequence


T = TypeVar("T")

#: After how many messages rows that are too old are looked for again.
PRUNE_EVERY: Final = 10_000

#: Seconds before a thread tries again to write what could not be written; each message tries, too.
AGAIN: Final = 1.0

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS jmsx_done (
    place TEXT NOT NULL,        -- the queue, or the subscription
    message_key TEXT NOT NULL,  -- the message's stable identity
    done_ms INTEGER NOT NULL,   -- when it was done, epoch milliseconds
    PRIMARY KEY (place, message_key)
) WITHOUT ROWID
"""

_KNOWN: Final = "SELECT done_ms FROM jmsx_done WHERE place = ? AND message_key = ?"
_REMEMBER: Final = "INSERT OR REPLACE INTO jmsx_done (place, message_key, done_ms) VALUES (?, ?, ?)"

_log = logger("jmsx.stores")


class SqliteStore:
    """
    Remembers in the file `path` which messages were handled by any process that uses the file.

    It forgets a message after `ttl`: seconds, a timedelta, or a text such as "7d".

    The file is written when the handler has returned. If the process crashes just before, the message is handled again;
    and if two processes have equal messages at the same moment, both handle it. A `DatabaseStore` has neither gap.

    While the file cannot be written, no handler is called. A message whose handler returns just then is acknowledged,
    remembered in memory, and written as soon as that is possible; so is a message whose handler returns after its app
    has ended. If the file is removed, it is created anew, with the messages that were not written yet.
    """

    connects = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ttl: Duration = 7 * 86400.0,
        clock: Clock | None = None,
    ) -> None:
        if not isinstance(path, str | os.PathLike):
            raise wrong_type("path of an SqliteStore", "a path", path)
        self.path = Path(path)
        self._ttl = bounded("ttl", ttl, zero=False)
        self._clock = clock or SystemClock()
        self._file = OwnFile(self.path, _TABLE, self._prepare, self._begin_anew)
        self._message_locks = MessageLocks()
        self._users = 0
        self._written = 0
        self._owed: dict[StoreKey, int] = {}  #: unwritten, and when handled (epoch ms)
        self._away: str | None = None  #: why `_owed` cannot be written
        self._ended = threading.Event()
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, begin anew: the parent writes what is not written yet."""
        self._users = 0
        self._owed, self._away, self._ended = {}, None, threading.Event()

    @property
    def away(self) -> str | None:
        """Why handled messages cannot be written to the file; None: all of them are written."""
        return self._away

    def open(self) -> None:
        """Open the file; raises StoreError."""
        with self._file.lock:
            self._file.open(OPENING)
            self._users += 1
            if self._owed:  # from before it was closed
                with contextlib.suppress(StoreError):
                    self._write(_nothing)

    def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
        """
        Call `work(None)` unless the message is known.

        Raises StoreError if the file cannot be read or written; before `work`, never after it.
        """
        origin = Origin()
        lock = self._message_locks.lock_of(identity)
        with lock:
            if self._known([identity]):
                return False
            work(None)
            origin.check("the message was taken")
            self._remember([identity])
        return True

    def once_each(
        self,
        identities: Sequence[StoreKey],
        work: Callable[[Any, frozenset[StoreKey]], Collection[StoreKey]],
    ) -> None:
        """Call `work(None, new)` with the messages of a batch that are not known; raises StoreError as `once` does."""
        origin = Origin()

        def handle() -> None:
            done = work(None, frozenset(identities) - self._known(identities))
            origin.check("the messages were taken")
            self._remember(done)

        self._message_locks.call_with_all(identities, handle)

    def close(self) -> None:
        """Write what is not written yet, if that is possible, and close the file when its last user closes it."""
        with self._file.lock:
            if self._users <= 1 and self._owed:
                with contextlib.suppress(StoreError):  # it is logged below
                    self._write(_nothing)
                if self._owed:
                    _log.error(
                        "idempotency store not written: messages could be done again",
                        path=str(self.path),
                        messages=len(self._owed),
                        error=self._away,
                    )
            self._users = max(0, self._users - 1)
            if self._users == 0:
                self._away = None
                self._ended.set()
                self._file.close()

    def _begin_anew(self) -> None:
        _log.warning(
            "idempotency store was removed: what was done before is not known any more",
            path=str(self.path),
        )

    def _known(self, identities: Collection[StoreKey]) -> set[StoreKey]:
        """Return which of these messages are done; raises StoreError where nobody can tell, so that none is begun."""
        with self._file.lock:
            try:
                found = self._write(
                    lambda connection: {
                        one: connection.execute(_KNOWN, one).fetchone() for one in identities
                    }
                )
            except StoreError as error:
                raise StoreError(
                    f"{error}; so nobody can tell whether a message is a duplicate"
                ) from error
        oldest = self._oldest_ms()
        return {one for one, row in found.items() if row is not None and row[0] >= oldest}

    def _remember(self, identities: Collection[StoreKey]) -> None:
        """Note that the messages were done, which are acknowledged all the same; what fails is written later."""
        if not identities:
            return
        with self._file.lock:
            self._owed.update(dict.fromkeys(identities, self._now_ms()))
            try:
                self._write(lambda connection: self._count(connection, len(identities)))
            except StoreError as error:
                known, self._away = self._away is not None, str(error)
                if not known:
                    _log.error(
                        "idempotency store away: what was done is in memory only, until it can be written",
                        path=str(self.path),
                        message_key=next(iter(identities)).key,
                        error=str(error),
                    )
                    self._ended = threading.Event()
                    later = threading.Thread(
                        target=self._catch_up, args=(self._ended,), name="jmsx-dedupe", daemon=True
                    )
                    # If no thread can be started, the next message, or `close`, writes it.
                    with contextlib.suppress(RuntimeError):
                        later.start()

    def _catch_up(self, ended: threading.Event) -> None:
        """Write what is owed also if no other message comes, on a thread of its own."""
        while not ended.wait(AGAIN):
            with self._file.lock, contextlib.suppress(StoreError):
                if not ended.is_set():
                    self._write(_nothing)

    def _write(self, work: Callable[[sqlite3.Connection], T]) -> T:
        """Write what is owed, and do `work`, in one transaction; under the lock. Raises StoreError."""

        def both(connection: sqlite3.Connection) -> T:
            for identity, done_ms in self._owed.items():
                connection.execute(_REMEMBER, (*identity, done_ms))
            return work(connection)

        try:
            result = self._file.write(both)
        finally:
            if self._users == 0:  # as after an abandoned handler: nothing else closes it
                self._file.close()
        self._owed.clear()
        if self._away is not None:
            self._away = None
            self._ended.set()
            _log.warning("idempotency store back: what was done is written", path=str(self.path))
        return result

    def _count(self, connection: sqlite3.Connection, written: int) -> None:
        before, self._written = self._written, self._written + written
        if before // PRUNE_EVERY != self._written // PRUNE_EVERY:
            self._prune(connection)

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(_KNOWN, ("", ""))  # fails if the columns are not ours
        self._prune(connection)

    def _prune(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM jmsx_done WHERE done_ms < ?", (self._oldest_ms(),))

    def _oldest_ms(self) -> int:
        return self._now_ms() - round(self._ttl * 1000)

    def _now_ms(self) -> int:
        return round(self._clock.wall() * 1000)


def _nothing(_connection: sqlite3.Connection) -> None:
    """Do nothing but write what is owed."""
