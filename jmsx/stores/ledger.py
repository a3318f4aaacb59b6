"""
The delivery ledger: an SQLite file that counts how often each unsettled message was handed out to the application.

A hand-out is committed to the file before the application gets the message. So a message that kills its process is
counted, whichever process of this host gets it next. The end of a hand-out is written along with the next hand-out:
this makes one transaction for each message, and none for messages that are merely prefetched. WAL with
`synchronous=NORMAL` survives the death of a process without a sync to disk; after a power cut the last counts may be
missing, but never a message.

Each hand-out has its own end. If no end is written and the process of the hand-out is dead, the hand-out has failed. If
that process lives, the hand-out is in doubt: its link may be lost, so that the broker delivers the message to another
process, and then to a third, before the first one notices. It counts as failed when its process says so, or has died.

A message that waits before the application gets it, for a store or for the rest of a batch, is written when it is
taken, and once more when it reaches the application: if its process dies in between, that was no delivery.

While the file cannot be written, no message that it counts is handed out, for an uncounted hand-out could be the one
that kills its process. Ends that come in the meantime are kept in memory and written afterwards. If the file is
removed, the next hand-out creates it anew, with all open hand-outs of this process.
"""

from __future__ import annotations

import contextlib
import os
from collections import OrderedDict
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from jmsx.clock import Clock, SystemClock
from jmsx.core.durations import Duration, bounded
from jmsx.core.headers import whole
from jmsx.core.ledger import (
    DoubtingLedger,
    Entry,
    HandOutEnd,
    Ledger,
    StagedLedger,
    StoreKey,
)
from jmsx.core.option_checks import kind_of
from jmsx.drivers import living
from jmsx.drivers.locks import mutex
from jmsx.drivers.process import tell_of_forks
from jmsx.errors import StoreError, from_a_signal, text_of
from jmsx.log import logger
from jmsx.stores.pauses import pauses
from jmsx.stores.sqlite_file import OPENING, OwnFile

if TYPE_CHECKING:
    import sqlite3
    from collections.abc import Callable, Collection, Iterable


T = TypeVar("T")

#: After how many hand-outs rows that are too old are looked for again.
PRUNE_EVERY: Final = 100_000

#: The most ends of hand-outs that are kept until they can be written; further ones are dropped, and their rows deleted
#: when they are too old. The same limit holds for the open hand-outs that are remembered.
BACKLOG: Final = 10_000

#: How many hand-outs of a message may end before the application got it, before a waiting one counts as any other: code
#: that runs before the handler, such as `dedupe_by=`, may be what kills the process.
MOST_UNSEEN: Final = 10

_TABLE: Final = """
CREATE TABLE IF NOT EXISTS jmsx_deliveries (
    place TEXT NOT NULL,         -- the queue, or the durable subscription
    message_key TEXT NOT NULL,   -- what the broker knows it by, and a digest of its body
    deliveries INTEGER NOT NULL, -- how often it was handed out
    finished INTEGER NOT NULL,   -- how many of those did not fail, although they are not acknowledged
    last_ms INTEGER NOT NULL,    -- when this was written, epoch milliseconds
    holder TEXT,                 -- the process that has the last hand-out, and has not said how that went
    unseen INTEGER NOT NULL DEFAULT 0, -- how many hand-outs did not reach the application
    earlier TEXT,                -- of hand-outs before the last the same: lines of a number and a process
    waiting TEXT,                -- numbers of those that have not reached the application yet
    PRIMARY KEY (place, message_key)
) WITHOUT ROWID
"""

#: Fails if a table of this name has other columns than ours.
_OURS: Final = "SELECT deliveries, finished, last_ms FROM jmsx_deliveries LIMIT 0"

#: Columns that files of earlier versions lack; those versions can also use a file that has them.
_LATER_COLUMNS: Final = {
    "holder": "ALTER TABLE jmsx_deliveries ADD COLUMN holder TEXT",
    "unseen": "ALTER TABLE jmsx_deliveries ADD COLUMN unseen INTEGER NOT NULL DEFAULT 0",
    "earlier": "ALTER TABLE jmsx_deliveries ADD COLUMN earlier TEXT",
    "waiting": "ALTER TABLE jmsx_deliveries ADD COLUMN waiting TEXT",
}

_FIRST: Final = (
    "INSERT INTO jmsx_deliveries (place, message_key, deliveries, finished, last_ms, holder, waiting)"
    " VALUES (?, ?, 1, 0, ?, ?, ?) ON CONFLICT DO NOTHING"
)
_READ: Final = (
    "SELECT deliveries, finished, unseen, holder, earlier, waiting FROM jmsx_deliveries"
    " WHERE place = ? AND message_key = ?"
)
_WRITE: Final = (
    "INSERT INTO jmsx_deliveries"
    " (place, message_key, last_ms, deliveries, finished, unseen, holder, earlier, waiting)"
    " VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET last_ms = excluded.last_ms,"
    " deliveries = excluded.deliveries, finished = excluded.finished,"
    " unseen = excluded.unseen, holder = excluded.holder, earlier = excluded.earlier,"
    " waiting = excluded.waiting"
)
_SETTLE: Final = (
    "DELETE FROM jmsx_deliveries WHERE place = ? AND message_key = ? AND deliveries = ?"
)

#: For a message with only one open hand-out, as nearly all have
_REACH: Final = (
    "UPDATE jmsx_deliveries SET waiting = NULL"
    " WHERE place = ? AND message_key = ? AND deliveries = ? AND waiting = ?"
)

_log = logger("jmsx.stores.ledger")


@dataclass(slots=True)
class _Row:
    """What is known of the hand-outs of one message."""

    deliveries: int  #: hand-outs in all
    finished: int = 0
    unseen: int = 0
    #: The hand-outs without a known end, by their numbers, and the process of each
    held: dict[int, str] = field(default_factory=dict)
    #: The numbers of those that have not reached the application yet
    waiting: set[int] = field(default_factory=set)

    @classmethod
    def read(cls, connection: sqlite3.Connection, identity: StoreKey) -> _Row | None:
        """Return what the file knows of the message, or None."""
        found = connection.execute(_READ, identity).fetchone()
        if found is None:
            return None
        deliveries, finished, unseen, holder, earlier, waiting = found
        row = cls(deliveries, finished, unseen)
        for line in (earlier or "").splitlines():
            told, _, process = line.partition(" ")
            number = whole(told)
            if number is not None:
                row.held[number] = process
        if holder is not None:
            row.held[deliveries] = holder
        told_waiting = map(whole, (waiting or "").split())
        row.waiting = {number for number in told_waiting if number in row.held}
        return row

    def write(self, connection: sqlite3.Connection, identity: StoreKey, now_ms: int) -> None:
        """Write the row into the file."""
        holder = self.held.get(self.deliveries)
        earlier = [
            f"{number} {one}" for number, one in self.held.items() if number != self.deliveries
        ]
        connection.execute(
            _WRITE,
            (
                *identity,
                now_ms,
                self.deliveries,
                self.finished,
                self.unseen,
                holder,
                "\n".join(earlier) or None,
                " ".join(map(str, self.waiting)) or None,
            ),
        )

    def hand_out(self, identity: StoreKey, process: str | None, *, waits: bool) -> Entry:
        """Count one more hand-out; what reached the application in processes that are dead by now has failed."""
        alive = {one for one in set(self.held.values()) if living.lives(one)}
        for number in [number for number, one in self.held.items() if one not in alive]:
            self.end(number, [HandOutEnd.UNSEEN if number in self.waiting else HandOutEnd.FAILED])
        self.deliveries += 1
        entry = Entry(identity, self.deliveries, self.finished, len(self.held), self.unseen)
        if process is not None:
            self.held[self.deliveries] = process
            if waits and self.unseen < MOST_UNSEEN:
                self.waiting.add(self.deliveries)
        return entry

    def end(self, number: int, ends: Collection[HandOutEnd]) -> None:
        """Note how a hand-out went."""
        self.held.pop(number, None)
        self.waiting.discard(number)
        if HandOutEnd.FINISHED in ends:
            self.finished += 1
        elif HandOutEnd.UNSEEN in ends:
            self.unseen += 1

    def add(self, kept: _Row) -> None:
        """Add what another process knows of the same message."""
        self.deliveries = max(self.deliveries, kept.deliveries)
        self.finished = max(self.finished, kept.finished)
        self.unseen = max(self.unseen, kept.unseen)
        self.held |= kept.held
        self.waiting |= kept.waiting


class _Ends:
    """
    The ends of hand-outs that a ledger was told of, as none of them is told twice.

    What succeeds at its last attempt has an end before a store remembers it, and the same one with its ACK.
    """

    def __init__(self) -> None:
        self._ended: OrderedDict[tuple[StoreKey, int], HandOutEnd] = OrderedDict()

    def begin(self, entry: Entry) -> None:
        """Forget that a hand-out has ended: this is another one, of a row that is new."""
        self._ended.pop((entry.identity, entry.number), None)

    def adds(self, entry: Entry, end: HandOutEnd) -> bool:
        """
        Return whether `end` adds something to what was told of a hand-out.

        Behind SETTLED its row is gone, and another one may have begun for the message. One that has failed may be done
        after all.
        """
        before = self._ended.get((entry.identity, entry.number))
        if before is None:
            return True
        if end is HandOutEnd.SETTLED:
            return before is not end
        return before is HandOutEnd.FAILED is not end

    def note(self, entry: Entry, end: HandOutEnd) -> None:
        """Remember that it was told."""
        self._ended[entry.identity, entry.number] = end
        while len(self._ended) > BACKLOG:
            self._ended.popitem(last=False)

    def clear(self) -> None:
        """Forget all."""
        self._ended.clear()


class DeliveryLedger:
    """
    Counts hand-outs in the file `path`, which any number of processes on this host may share.

    The row of a message is deleted when the message is settled. A row stays if another program settled the message, or
    if its process was killed just after the acknowledgement; it is deleted after `maximum_age` (seconds, a timedelta,
    or a text such as "30d"), or as one of the oldest of more than `maximum_rows`. Raises StoreError if the file cannot
    be used, and ConfigurationError for an age or number that makes no sense.
    """

    def __init__(
        self,
        path: str | os.PathLike[str],
        *,
        maximum_age: Duration = 30 * 86400.0,
        maximum_rows: int = 1_000_000,
        clock: Clock | None = None,
    ) -> None:
        self.path = Path(path)
        self._maximum_age = bounded("maximum_age", maximum_age, zero=False)
        self._maximum_rows = maximum_rows
        self._clock = clock or SystemClock()
        self._file = OwnFile(self.path, _TABLE, self._prepare, self._begin_anew)
        #: The ends of hand-outs that are not written yet, by message and number of the hand-out
        self._done: OrderedDict[tuple[StoreKey, int], set[HandOutEnd]] = OrderedDict()
        #: Those of them that may be in the file already: whether their transaction was committed is not known
        self._unsure: set[tuple[StoreKey, int]] = set()
        self._ends = _Ends()  #: of the hand-outs of this process
        #: The rows of messages that this process has handed out and not settled
        self._open_rows: OrderedDict[StoreKey, _Row] = OrderedDict()
        self._anew = False  #: whether the file is new, without these rows
        self._begun = 0
        self._closed = False
        self._me = living.name()
        self._away: StoreError | None = None  #: the last error in writing; None: it was written
        self._away_since = 0.0  #: seconds, monotonic
        self._pauses = pauses()
        self._resume_at = 0.0
        self._file.open(OPENING)
        tell_of_forks(self)

    def after_fork(self) -> None:
        """In the child of a fork, go on with a connection of its own; unwritten ends are left to the parent."""
        self._away, self._pauses = None, pauses()
        self._me = living.name()
        self._done.clear()
        self._unsure.clear()
        self._ends.clear()
        self._open_rows.clear()

    def begin(self, identity: StoreKey) -> Entry | None:
        """Write one more hand-out, and the ends noted before; raises StoreError if the file cannot be written."""
        return self._hand_out(identity, waits=False)

    def take(self, identity: StoreKey) -> Entry | None:
        """
        Do as `begin` does, for a message that waits before the application gets it; call `reach` when it does.

        If the process dies before `reach`, the hand-out does not count as a delivery, up to MOST_UNSEEN times.
        """
        return self._hand_out(identity, waits=True)

    def reach(self, entries: Iterable[Entry]) -> None:
        """Write that the application now gets these messages, which were begun by `take`; may raise StoreError."""
        with self._file.lock:
            reached = self._that_may_wait(entries)
            if reached:
                self._try(None, reached)

    def finish(self, entries: Iterable[Entry]) -> None:
        """
        Note that the application has handled these messages: if the process dies now, they have not failed.

        This may come late, when another consumer has been handed the message already.
        """
        self._note(entries, HandOutEnd.FINISHED)

    def fail(self, entries: Iterable[Entry]) -> None:
        """Note that these hand-outs have failed, whether their process lives or not."""
        self._note(entries, HandOutEnd.FAILED)

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Note that the application did not get these messages after all: the hand-outs count as no deliveries."""
        self._note(entries, HandOutEnd.UNSEEN)

    def settle(self, entries: Iterable[Entry]) -> None:
        """Forget the hand-outs of settled messages, unless another consumer was handed such a message since."""
        self._note(entries, HandOutEnd.SETTLED)

    def flush(self) -> None:
        """Write the ends noted so far; raises StoreError if the file cannot be written."""
        if self._done or self._away is not None:
            with self._file.lock:
                self._try(None)

    def close(self) -> None:
        """Write the ends noted so far, if that is possible, and close the file; idempotent."""
        with self._file.lock:
            if self._closed:
                return
            if self._done:
                self._resume_at = 0.0  # try at once, also within a pause: there is no later chance
                with contextlib.suppress(StoreError):
                    self._try(None)
            self._closed = True
            self._file.close()

    def _hand_out(self, identity: StoreKey, *, waits: bool) -> Entry | None:
        """Write down one more hand-out. One at which a signal handler raises is none: nobody gets the message then."""
        counted: list[Entry] = []
        try:
            with self._file.lock:
                return self._try(identity, waits=waits, counted=counted)
        except BaseException:
            self._disown(counted)
            raise

    def _disown(self, counted: Iterable[Entry]) -> None:
        """Note that nobody has these, which may be in the file or not: nobody else will ever say how they went."""
        with self._file.lock:
            for entry in counted:
                self._ends.begin(entry)
                self._unsure.add((entry.identity, entry.number))
                self._note_one(entry, HandOutEnd.UNSEEN)

    def _begin_anew(self) -> None:
        """Go on in the file that has the name now: another process would count in that one."""
        _log.warning(
            "delivery ledger was removed: it is made anew, and knows what is handed out now",
            path=str(self.path),
        )
        self._anew = True

    def _try(
        self,
        identity: StoreKey | None,
        reached: Collection[Entry] = (),
        *,
        waits: bool = False,
        counted: list[Entry] | None = None,
    ) -> Entry | None:
        """
        Write, unless that failed a moment ago; under the lock. Raises StoreError if it cannot be written.

        `counted` gets the hand-out before it is committed.
        """
        if self._closed:
            raise StoreError(f"{self.path}: the delivery ledger is closed")
        if self._away is not None and self._clock.monotonic() < self._resume_at:
            raise self._away
        try:
            entry = self._write(identity, reached, waits=waits, counted=counted)
        except StoreError as error:
            self._gone(error)
            raise
        if self._away is not None:
            seconds = round(self._clock.monotonic() - self._away_since, 3)
            self._away, self._pauses = None, pauses()
            _log.warning(
                "delivery ledger back: messages go on", path=str(self.path), seconds=seconds
            )
        return entry

    def _gone(self, why: StoreError) -> None:
        """Note that it cannot be written; it is tried again after a pause."""
        now = self._clock.monotonic()
        if self._away is None:
            self._away_since = now
            _log.error(
                "delivery ledger away: its consumers hand nothing out until it can be written",
                path=str(self.path),
                error=str(why),
            )
        self._away, self._resume_at = why, now + next(self._pauses)

    def _write(
        self,
        identity: StoreKey | None,
        reached: Collection[Entry],
        *,
        waits: bool,
        counted: list[Entry] | None,
    ) -> Entry | None:
        """Write what is done, what is `reached`, and the hand-out of `identity`, in one transaction."""

        def work(connection: sqlite3.Connection) -> Entry | None:
            now_ms = self._now_ms()
            self._write_ends(connection, now_ms)
            if self._anew:  # after the ends, which these rows contain
                for message, kept in self._open_rows.items():
                    row = _Row.read(connection, message) or _Row(0)
                    row.add(kept)
                    row.write(connection, message, now_ms)
            for one in reached:
                _reach(connection, one, now_ms)
            if identity is None:
                return None
            entry = self._count(connection, identity, waits=waits)
            if counted is not None:
                counted.append(entry)
            return entry

        entry = self._file.write(work)
        self._done.clear()
        self._unsure.clear()
        self._anew = False
        for one in reached:
            if (known := self._open_rows.get(one.identity)) is not None:
                known.waiting.discard(one.number)
        if entry is not None:
            self._keep(entry, waits=waits and entry.unseen < MOST_UNSEEN)
        return entry

    def _write_ends(self, connection: sqlite3.Connection, now_ms: int) -> None:
        """Write what was told of the ends of hand-outs."""
        for (message, number), ends in self._done.items():
            if HandOutEnd.SETTLED in ends:
                settled = connection.execute(_SETTLE, (*message, number)).rowcount
                if settled:
                    continue
            row = _Row.read(connection, message)
            if row is None or row.deliveries < number:
                continue
            if (message, number) not in self._unsure or row.held.get(number) == self._me:
                row.end(number, ends)
                row.write(connection, message, now_ms)

    def _that_may_wait(self, entries: Iterable[Entry]) -> list[Entry]:
        """Return those that the file may have as waiting: not where this process knows better."""
        return [
            entry
            for entry in entries
            if (known := self._open_rows.get(entry.identity)) is None
            or entry.number in known.waiting
        ]

    def _keep(self, entry: Entry, *, waits: bool) -> None:
        """Keep what was handed out, in case somebody removes the file."""
        self._ends.begin(entry)
        row = self._open_rows.setdefault(entry.identity, _Row(entry.number))
        row.deliveries, row.finished, row.unseen = entry.number, entry.finished, entry.unseen
        if self._me is not None:
            row.held[entry.number] = self._me
            if waits:
                row.waiting.add(entry.number)
        if len(self._open_rows) > BACKLOG:
            self._open_rows.popitem(last=False)

    def _count(self, connection: sqlite3.Connection, identity: StoreKey, *, waits: bool) -> Entry:
        self._begun += 1
        if self._begun % PRUNE_EVERY == 0:
            self._prune(connection)
        now_ms = self._now_ms()
        waiting = "1" if waits and self._me is not None else None
        if connection.execute(_FIRST, (*identity, now_ms, self._me, waiting)).rowcount:
            return Entry(identity, 1)
        row = _Row.read(connection, identity) or _Row(0)
        entry = row.hand_out(identity, self._me, waits=waits)
        row.write(connection, identity, now_ms)
        return entry

    def _prepare(self, connection: sqlite3.Connection) -> None:
        connection.execute(_OURS)
        if _lacking(connection):
            connection.execute("BEGIN IMMEDIATE")
            for addition in _lacking(connection):  # none, if another process has just added them
                connection.execute(addition)
            connection.execute("COMMIT")
        self._prune(connection)

    def _prune(self, connection: sqlite3.Connection) -> None:
        oldest = self._now_ms() - round(self._maximum_age * 1000)
        connection.execute("DELETE FROM jmsx_deliveries WHERE last_ms < ?", (oldest,))
        connection.execute(
            "DELETE FROM jmsx_deliveries WHERE last_ms <="
            " (SELECT last_ms FROM jmsx_deliveries ORDER BY last_ms DESC LIMIT 1 OFFSET ?)",
            (self._maximum_rows,),
        )

    def _note(self, entries: Iterable[Entry], end: HandOutEnd) -> None:
        with self._file.lock:
            self._note_each(entries, end)

    def _note_each(self, entries: Iterable[Entry], end: HandOutEnd) -> None:
        """Do it under the lock, in a function of its own: tests/packaging/test_exception_tables.py says why."""
        for entry in entries:
            self._note_one(entry, end)
        while len(self._done) > BACKLOG:
            self._done.popitem(last=False)

    def _note_one(self, entry: Entry, end: HandOutEnd) -> None:
        if not self._ends.adds(entry, end):
            return
        self._ends.note(entry, end)
        self._done.setdefault((entry.identity, entry.number), set()).add(end)
        known = self._open_rows.get(entry.identity)
        if known is None or known.deliveries < entry.number:
            return
        if end is HandOutEnd.SETTLED and known.deliveries == entry.number:  # no hand-out since
            del self._open_rows[entry.identity]
        else:
            known.end(entry.number, [end])

    def _now_ms(self) -> int:
        return round(self._clock.wall() * 1000)


def _lacking(connection: sqlite3.Connection) -> list[str]:
    """Return the statements that add the columns which the table lacks."""
    there = {name for _, name, *_ in connection.execute("PRAGMA table_info(jmsx_deliveries)")}
    return [add for name, add in _LATER_COLUMNS.items() if name not in there]


def _reach(connection: sqlite3.Connection, entry: Entry, now_ms: int) -> None:
    """Note that the application gets a hand-out that waited."""
    number = entry.number
    if connection.execute(_REACH, (*entry.identity, number, str(number))).rowcount:
        return
    row = _Row.read(connection, entry.identity)
    if row is not None and number in row.waiting:
        row.waiting.discard(number)
        row.write(connection, entry.identity, now_ms)


class _Shared:
    """Ledgers of this process by file, and how many connections use each."""

    def __init__(self) -> None:
        self.lock = mutex()
        self.ledgers: dict[Path, tuple[DeliveryLedger, int]] = {}
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Forget, in the child of a fork, the connections that use them: they are the parent's."""
        self.lock = mutex()
        self.ledgers.clear()

    def release(self, ledger: Ledger) -> None:
        """Note that one connection uses the file no more; the caller holds the lock."""
        for key, (shared, users) in list(self.ledgers.items()):
            if shared is ledger:
                self.ledgers[key] = (shared, users - 1)
                if users == 1:
                    del self.ledgers[key]
                    shared.close()


_SHARED: Final = _Shared()


class CustomLedger:
    """
    Wraps a ledger that the application wrote: if it raises anything, or answers wrongly, it counts as unusable for now.

    It is told each end of a hand-out once.
    """

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._ends = _Ends()
        self._told: set[type[BaseException]] = set()

    def begin(self, identity: StoreKey) -> Entry | None:
        """Do as `Ledger.begin` does."""
        return self._hand_out("begin()", lambda: self._ledger.begin(identity))

    def take(self, identity: StoreKey) -> Entry | None:
        """Do as `StagedLedger.take` does; a ledger that is no StagedLedger gets `begin` instead."""
        ledger = self._ledger
        if not isinstance(ledger, StagedLedger) or _is_begin_newer(type(ledger)):
            return self.begin(identity)
        return self._hand_out("take()", lambda: ledger.take(identity))

    def reach(self, entries: Iterable[Entry]) -> None:
        """Do as `StagedLedger.reach` does, if the ledger is one."""
        ledger = self._ledger
        if isinstance(ledger, StagedLedger):  # others have counted the hand-out at `begin`
            self._ask("reach()", lambda: ledger.reach(entries))

    def finish(self, entries: Iterable[Entry]) -> None:
        """Do as `Ledger.finish` does; an error of the ledger is logged, and the hand-out counts there as failed."""
        self._tell("finish()", self._ledger.finish, entries, HandOutEnd.FINISHED)

    def fail(self, entries: Iterable[Entry]) -> None:
        """Do as `DoubtingLedger.fail` does, if the ledger is one; an error of the ledger is logged."""
        ledger = self._ledger
        if isinstance(ledger, DoubtingLedger):
            self._tell("fail()", ledger.fail, entries, HandOutEnd.FAILED)

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Do as `DoubtingLedger.give_back` does; a ledger that is no DoubtingLedger gets `finish` instead."""
        ledger = self._ledger
        if isinstance(ledger, DoubtingLedger):
            self._tell("give_back()", ledger.give_back, entries, HandOutEnd.UNSEEN)
        else:
            self.finish(entries)

    def settle(self, entries: Iterable[Entry]) -> None:
        """Do as `Ledger.settle` does; an error of the ledger is logged, and the hand-outs stay in the ledger."""
        self._tell("settle()", self._ledger.settle, entries, HandOutEnd.SETTLED)

    def flush(self) -> None:
        """Do as `Ledger.flush` does."""
        self._ask("flush()", self._ledger.flush)

    @property
    def _name(self) -> str:
        return type(self._ledger).__name__

    def _hand_out(self, what: str, question: Callable[[], Entry | None]) -> Entry | None:
        entry = self._ask(what, question)
        if not isinstance(entry, Entry | None):
            raise StoreError(f"{self._name}.{what} gave {kind_of(entry)}, and no Entry or None")
        if entry is not None:
            self._ends.begin(entry)
        return entry

    def _ask(self, what: str, question: Callable[[], T]) -> T:
        try:
            return question()
        except StoreError:
            raise
        except BaseException as error:
            if from_a_signal(error):  # not the ledger's own error
                raise
            words = f"{type(error).__name__}: {text_of(error)}"
            raise StoreError(f"{self._name}.{what} failed: {words}") from error

    def _tell(
        self,
        what: str,
        step: Callable[[Iterable[Entry]], object],
        entries: Iterable[Entry],
        end: HandOutEnd,
    ) -> None:
        news = [one for one in entries if self._ends.adds(one, end)]
        if not news:
            return
        try:
            self._ask(what, lambda: step(news))
            for one in news:
                self._ends.note(one, end)
        except StoreError as error:
            kind = type(error.__cause__ or error)
            if kind not in self._told:
                self._told.add(kind)
                _log.error(
                    "delivery ledger failed",
                    error=str(error),
                    consequence="deliveries whose end it was not told may count as failed",
                    exc_info=error,
                )


def _is_begin_newer(kind: type) -> bool:
    """Return whether a class has its `begin` from a class before that of its `take`, which would pass it by."""
    begins, takes = (
        next((place for place, one in enumerate(kind.__mro__) if name in vars(one)), 0)
        for name in ("begin", "take")
    )
    return begins < takes


def share(given: Ledger | str | os.PathLike[str]) -> StagedLedger:
    """
    Return the ledger of a file, the same for all connections of this process; `release` it afterwards.

    If `given` is a ledger object, its owner has to close it. Raises StoreError.
    """
    if not isinstance(given, str | os.PathLike):
        return given if type(given) is DeliveryLedger else CustomLedger(given)
    key = Path(given).resolve()
    with _SHARED.lock:
        ledger, users = _SHARED.ledgers.get(key) or (DeliveryLedger(given), 0)
        _SHARED.ledgers[key] = (ledger, users + 1)
        return ledger


def release(ledger: Ledger) -> None:
    """Close a ledger that `share` opened, when its last user releases it."""
    with _SHARED.lock:
        _SHARED.release(ledger)
