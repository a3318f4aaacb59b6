"""What the processes of this host have done, in an SQLite file of jmsx's own."""

from __future__ import annotations

import sqlite3
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from jmsx.clock import SystemClock
from jmsx.dedupe.store import Turns
from jmsx.errors import ConfigurationError, StoreError
from jmsx.log import logger
from jmsx.process import Origin, tell_of_forks
from jmsx.sqlite import Guarded, open_file

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from jmsx.clock import Clock
    from jmsx.core.ledger import Identity

#: Messages between two looks for rows that are too old.
PRUNE_EVERY: Final = 10_000

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

_log = logger("jmsx.dedupe")


class SqliteStore:
    """
    Remembers for `ttl` seconds, in the file `path`, what was done by any process that uses it.

    It is written when the handler has returned. A crash just before leaves the message to be done again; so do two
    processes that have one message at the same moment. A `DatabaseStore` has neither gap.
    """

    connects = False

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        ttl: float = 7 * 86400.0,
        clock: Clock | None = None,
    ) -> None:
        if not ttl > 0:
            raise ConfigurationError(f"SqliteStore: ttl must be more than 0: {ttl}")
        self.path = Path(path)
        self._ttl = ttl
        self._clock = clock or SystemClock()
        self._guarded = Guarded()
        self._turns = Turns()
        self._users = 0
        self._written = 0
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork: whoever opens it gets a connection of its own."""
        self._users = 0

    def open(self) -> None:
        """Open the file; raises StoreError."""
        with self._guarded.lock:
            if self._guarded.connection is None:
                self._guarded.connection = self._open()
            self._users += 1

    def once(self, identity: Identity, work: Callable[[Any], object]) -> bool:
        """Do `work(None)`, unless that was done for the message; raises StoreError if nobody can tell."""
        origin = Origin()
        with self._turns.turn(identity):
            if self._known(identity):
                return False
            work(None)
            origin.check("the message was taken")
            self._remember(identity)
        return True

    def close(self) -> None:
        """Close the file, if nobody else has opened it."""
        with self._guarded.lock:
            self._users = max(0, self._users - 1)
            if self._users == 0:
                self._guarded.close()

    def _opened(self) -> sqlite3.Connection:
        """Under the lock: the connection, or a new one behind a fork."""
        connection = self._guarded.connection
        if connection is None:
            if self._users == 0:
                raise StoreError(f"{self.path} is closed")
            connection = self._guarded.connection = self._open()
        return connection

    def _open(self) -> sqlite3.Connection:
        return open_file(self.path, _TABLE, self._prepare)

    def _known(self, identity: Identity) -> bool:
        try:
            with self._guarded.lock:
                found = self._opened().execute(_KNOWN, identity).fetchone()
        except sqlite3.Error as error:
            raise StoreError(
                f"{self.path}: {error}; so nobody can tell whether a message is a duplicate"
            ) from error
        return found is not None and found[0] >= self._oldest_ms()

    def _remember(self, identity: Identity) -> None:
        """Failing would do for certain what is only possible otherwise: do the message again."""
        try:
            with self._guarded.lock:
                connection = self._opened()
                connection.execute(_REMEMBER, (*identity, self._now_ms()))
                self._written += 1
                if self._written % PRUNE_EVERY == 0:
                    self._prune(connection)
        except (sqlite3.Error, StoreError) as error:
            _log.error(
                "idempotency store cannot be written: a message could be done again",
                path=str(self.path),
                message_key=identity.key,
                error=str(error),
            )

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(_KNOWN, ("", ""))  # are the columns ours?
        self._prune(connection)

    def _prune(self, connection: sqlite3.Connection) -> None:
        connection.execute("DELETE FROM jmsx_done WHERE done_ms < ?", (self._oldest_ms(),))

    def _oldest_ms(self) -> int:
        return self._now_ms() - round(self._ttl * 1000)

    def _now_ms(self) -> int:
        return round(self._clock.wall() * 1000)
