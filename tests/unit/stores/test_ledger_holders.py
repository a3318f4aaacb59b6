"""A ledger that processes share: what it says of a message that one of them had, and has said nothing more of."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.ledger import Entry, StoreKey
from jmsx.drivers import living
from jmsx.errors import StoreError
from jmsx.stores.ledger import MOST_UNSEEN, CustomLedger, DeliveryLedger, share
from tests.unit.interrupts import Alarm, Interrupt
from tests.unit.stores.parts import A, B

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: Is handed the message A, and then waits to be killed.
PROGRAM = """
import sys
from jmsx.core.ledger import StoreKey
from jmsx.stores.ledger import DeliveryLedger

ledger = DeliveryLedger(sys.argv[1])
print(ledger.begin(StoreKey(*sys.argv[2:])).number, flush=True)
sys.stdin.read()
"""

#: Takes the message A as often as it is told to, has some of these reach the application, and then waits to be killed.
TAKES = """
import sys
from jmsx.core.ledger import StoreKey
from jmsx.stores.ledger import DeliveryLedger

ledger = DeliveryLedger(sys.argv[1])
taken = [ledger.take(StoreKey(*sys.argv[2:4])) for _ in range(int(sys.argv[4]))]
ledger.reach(taken[int(one) - 1] for one in sys.argv[5:])
print(len(taken), flush=True)
sys.stdin.read()
"""


#: Where signal handlers raise.
LEDGER = ["/jmsx/stores/ledger.py", "/jmsx/stores/sqlite_file.py"]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where no file is yet."""
    return tmp_path / "ledger.db"


@pytest.fixture
def ledger(path: Path) -> Iterator[DeliveryLedger]:
    """A new one."""
    with contextlib.closing(DeliveryLedger(path)) as ledger:
        yield ledger


@pytest.fixture
def holder(path: Path) -> Iterator[subprocess.Popen[str]]:
    """A process that has A."""
    with subprocess.Popen(
        [sys.executable, "-c", PROGRAM, str(path), *A],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "1\n"
        yield process
        process.kill()


def test_a_living_process_is_no_death(
    holder: subprocess.Popen[str], ledger: DeliveryLedger
) -> None:
    """Its link may be lost, and it may not have noticed."""
    assert holder.poll() is None
    entry = ledger.begin(A)
    assert entry == Entry(A, 2, in_doubt=1)
    assert entry.failures == 0


@pytest.mark.parametrize("collected", [True, False])
def test_a_dead_process_is_one(
    holder: subprocess.Popen[str], ledger: DeliveryLedger, *, collected: bool
) -> None:
    """Whether or not its parent has heard of it."""
    holder.kill()
    if collected:
        holder.wait()
    else:
        os.waitid(os.P_PID, holder.pid, os.WEXITED | os.WNOWAIT)
    entry = ledger.begin(A)
    assert entry == Entry(A, 2)
    assert entry.failures == 1


def test_a_process_that_is_stopped_lives(
    holder: subprocess.Popen[str], ledger: DeliveryLedger
) -> None:
    """It may go on, and be done with the message."""
    holder.send_signal(signal.SIGSTOP)
    assert ledger.begin(A) == Entry(A, 2, in_doubt=1)


def test_each_hand_out_is_in_doubt_by_itself(
    holder: subprocess.Popen[str], ledger: DeliveryLedger
) -> None:
    """A message may go from one lost link to the next; only what has failed, or died, counts."""
    assert [ledger.begin(A) for _ in range(3)] == [Entry(A, n, in_doubt=n - 1) for n in (2, 3, 4)]
    ledger.fail([Entry(A, 3)])
    assert ledger.begin(A) == Entry(A, 5, in_doubt=3)
    ledger.finish([Entry(A, 2)])
    assert ledger.begin(A) == Entry(A, 6, finished=1, in_doubt=3)
    holder.kill()
    holder.wait()
    last = ledger.begin(A)
    assert last == Entry(A, 7, finished=1, in_doubt=3)
    assert last.failures == 2


def test_what_is_given_back_is_no_delivery(path: Path, ledger: DeliveryLedger) -> None:
    """Nobody has seen it; who was handed it before or after that has."""
    entries = [ledger.begin(A) for _ in range(3)]
    assert entries[1] is not None
    ledger.give_back([entries[1]])
    ledger.flush()
    other = DeliveryLedger(path)
    again = other.begin(A)
    assert again == Entry(A, 4, in_doubt=2, unseen=1)
    assert (again.deliveries, again.failures) == (2, 0)
    other.close()


@contextlib.contextmanager
def takes(path: Path, times: int, *reached: int) -> Iterator[subprocess.Popen[str]]:
    """A process that has A, several times, which waits there but where it has `reached` the application."""
    with subprocess.Popen(
        [sys.executable, "-c", TAKES, str(path), *A, str(times), *map(str, reached)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == f"{times}\n"
        yield process
        process.kill()


@pytest.mark.parametrize(
    ("times", "reached", "failures"), [(1, (), 0), (1, (1,), 1), (3, (2,), 1), (3, (3,), 1)]
)
def test_what_waits_in_a_process_that_dies_was_no_delivery(
    path: Path, ledger: DeliveryLedger, times: int, reached: tuple[int, ...], failures: int
) -> None:
    """Nobody has seen it; while the process lives it is in doubt, as what is seen."""
    with takes(path, times, *reached) as process:
        assert ledger.begin(A) == Entry(A, times + 1, in_doubt=times)
        process.kill()
        process.wait()
        unseen = times - len(reached)
        again = ledger.begin(A)
        assert again == Entry(A, times + 2, in_doubt=1, unseen=unseen)
        assert again.failures == failures
        assert again.deliveries == failures + 1
    (last,) = [ledger.begin(A)]
    assert last == Entry(A, times + 3, in_doubt=2, unseen=unseen)  # and it stays so


def test_a_hand_out_that_waits_has_ends_as_others(ledger: DeliveryLedger, path: Path) -> None:
    """It is settled as a duplicate, or fails before the application has it; then it is not told as unseen later."""
    first = ledger.take(A)
    assert first is not None
    ledger.settle([first])
    ledger.flush()
    second = ledger.take(A)
    assert second == Entry(A, 1)
    ledger.fail([second])
    ledger.flush()
    with contextlib.closing(DeliveryLedger(path)) as other:
        third = other.begin(A)
    assert third == Entry(A, 2)
    assert third.failures == 1


def test_what_is_reached_is_written_once(ledger: DeliveryLedger, path: Path) -> None:
    """A handler that is called again for one hand-out costs no further commit; nor one without a ledger's entry."""
    entries = [ledger.take(A), ledger.take(B), ledger.begin(StoreKey("queue://q", "c"))]
    with contextlib.closing(sqlite3.connect(path)) as other:
        waiting = "SELECT waiting FROM jmsx_deliveries ORDER BY message_key"
        version = "PRAGMA data_version"
        assert other.execute(waiting).fetchall() == [("1",), ("1",), (None,)]
        ledger.reach(one for one in entries if one is not None)
        assert other.execute(waiting).fetchall() == [(None,)] * 3
        (before,) = other.execute(version).fetchone()
        ledger.reach(one for one in entries if one is not None)
        ledger.reach([])
        assert other.execute(version).fetchone() == (before,)


def test_what_has_waited_very_often_counts(ledger: DeliveryLedger, path: Path) -> None:
    """It may be what kills its processes, before their handler: then it would come for ever."""
    with contextlib.closing(sqlite3.connect(path)) as other:
        for number in range(1, MOST_UNSEEN + 2):
            entry = ledger.take(A)
            assert entry == Entry(A, number, unseen=number - 1)
            (waiting,) = other.execute("SELECT waiting FROM jmsx_deliveries").fetchone()
            assert waiting == (None if number > MOST_UNSEEN else str(number))
            assert ledger._that_may_wait([entry]) == ([entry] if waiting else [])
            ledger.give_back([entry])


def test_what_cannot_be_written_is_not_reached(ledger: DeliveryLedger, path: Path) -> None:
    """So that nobody sees it uncounted; it may be reached later."""
    entry = ledger.take(A)
    assert entry is not None
    with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as blocker:
        blocker.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreError, match="locked"):
            ledger.reach([entry])
        blocker.execute("ROLLBACK")
        assert blocker.execute("SELECT waiting FROM jmsx_deliveries").fetchone() == ("1",)


@pytest.mark.parametrize("reached", [True, False])
def test_what_waits_stands_in_a_file_that_is_made_anew(
    path: Path, ledger: DeliveryLedger, *, reached: bool
) -> None:
    """As what is handed out does, whether it had reached the application before or does now."""
    entry = ledger.take(A)
    other = ledger.take(B)
    assert entry is not None
    assert other is not None
    if reached:
        ledger.reach([entry])
    path.unlink()
    ledger.reach([entry, other])
    ledger.begin(StoreKey("queue://q", "c"))
    with contextlib.closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT message_key, deliveries, waiting FROM jmsx_deliveries")
        assert rows.fetchall() == [("a", 1, None), ("b", 1, None), ("c", 1, None)]


def test_a_ledger_of_the_applications_may_know_what_waits(ledger: DeliveryLedger) -> None:
    """One that does not counts it as handed out."""
    custom = CustomLedger(ledger)
    entry = custom.take(A)
    assert entry == Entry(A, 1)
    assert not ledger._that_may_wait([Entry(A, 2)])
    assert ledger._that_may_wait([entry])
    custom.reach([entry])
    assert not ledger._that_may_wait([entry])


def test_who_has_what_stands_in_a_file_that_is_made_anew(
    holder: subprocess.Popen[str], path: Path, ledger: DeliveryLedger
) -> None:
    """Else what is in the hands of living processes would count as failed."""
    assert holder.poll() is None
    entries = [ledger.begin(A), ledger.begin(A), ledger.begin(B)]
    assert entries[0] is not None
    ledger.fail([entries[0]])
    path.unlink()
    other = DeliveryLedger(path)
    ledger.flush()
    assert ledger.begin(StoreKey("queue://q", "c")) is not None
    again = other.begin(A)
    assert again == Entry(A, 4, in_doubt=1)
    assert again.failures == 2  # of the process that has not noticed yet, too
    assert other.begin(B) == Entry(B, 2, in_doubt=1)
    other.close()


def test_what_its_process_says(path: Path, ledger: DeliveryLedger) -> None:
    """Then nothing is in doubt; what is said of a hand-out before the last says nothing of that."""
    other = DeliveryLedger(path)
    for tell, expected in (
        (ledger.fail, Entry(A, 2)),
        (ledger.finish, Entry(B, 2, finished=1)),
    ):
        first = ledger.begin(expected.identity)
        assert first is not None
        tell([first])
        ledger.flush()
        assert other.begin(expected.identity) == expected
        tell([first])
        ledger.flush()
        again = other.begin(expected.identity)
        assert again is not None
        assert again.in_doubt
    other.close()


def test_failed_and_then_done_after_all(path: Path, ledger: DeliveryLedger) -> None:
    """Its link was lost, and later its handler has ended well."""
    first = ledger.begin(A)
    assert first is not None
    ledger.fail([first])
    ledger.finish([first])
    ledger.flush()
    other = DeliveryLedger(path)
    assert other.begin(A) == Entry(A, 2, finished=1)
    other.close()


@pytest.mark.parametrize("flushed", [True, False])
@pytest.mark.parametrize(
    ("first", "then", "finished", "unseen"),
    [
        ("finish", "finish", 1, 0),
        ("finish", "give_back", 1, 0),
        ("give_back", "give_back", 0, 1),
        ("give_back", "finish", 0, 1),
        ("finish", "fail", 1, 0),
        ("fail", "finish", 1, 0),
        ("fail", "give_back", 0, 1),
    ],
)
def test_a_hand_out_has_one_end(
    ledger: DeliveryLedger, first: str, then: str, finished: int, unseen: int, *, flushed: bool
) -> None:
    """The first that is told; only what has failed may be done, or unseen, after all."""
    entry = ledger.begin(A)
    assert entry is not None
    getattr(ledger, first)([entry])
    if flushed:
        ledger.flush()
    getattr(ledger, then)([entry])
    again = ledger.begin(A)
    assert again == Entry(A, 2, finished=finished, unseen=unseen)


@pytest.mark.parametrize("late", ["finish", "give_back", "fail", "settle"])
def test_an_end_behind_the_last(path: Path, ledger: DeliveryLedger, late: str) -> None:
    """Is none of the hand-out that another process has made since, of a message that has come anew."""
    entry = ledger.begin(A)
    assert entry is not None
    ledger.settle([entry])
    ledger.flush()
    with contextlib.closing(DeliveryLedger(path)) as other:
        assert other.begin(A) == Entry(A, 1)
        getattr(ledger, late)([entry])
        ledger.flush()
        assert other.begin(A) == Entry(A, 2, in_doubt=1)


def test_a_message_that_comes_anew_has_ends_of_its_own(ledger: DeliveryLedger) -> None:
    """Though its hand-outs are numbered from 1 again."""
    for _ in range(2):
        entry = ledger.begin(A)
        assert entry == Entry(A, 1)
        ledger.finish([entry])
        ledger.settle([entry])
        ledger.flush()
    entry = ledger.begin(A)
    assert entry is not None
    ledger.finish([entry])
    assert ledger.begin(A) == Entry(A, 2, finished=1)


def test_each_process_is_looked_at_once(
    path: Path, holder: subprocess.Popen[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """However many hand-outs it has: each look reads three files."""
    looks: list[str] = []
    lives = living.lives

    def look(name: str) -> bool:
        looks.append(name)
        return lives(name)

    monkeypatch.setattr(living, "lives", look)
    with contextlib.closing(DeliveryLedger(path)) as ledger:
        for _ in range(20):
            ledger.begin(A)
        assert ledger.begin(A) == Entry(A, 22, in_doubt=21)
    assert holder.poll() is None
    assert len(looks) == 1 + 20 * 2  # the other one, and this one as soon as it has some


def test_a_ledger_of_the_applications_may_know_it_too(ledger: DeliveryLedger) -> None:
    """It is told of failures, and of what nobody has seen, if it asks for that."""
    custom = CustomLedger(ledger)
    first = custom.begin(A)
    assert first is not None
    custom.fail([first])
    second = custom.begin(A)
    assert second == Entry(A, 2)
    custom.give_back([second])
    assert custom.begin(A) == Entry(A, 3, unseen=1)


def test_a_ledger_of_the_applications_that_knows_ends_only() -> None:
    """What nobody has seen has not failed, and it knows no other word for that."""

    class Plain:
        def __init__(self) -> None:
            self.finished: list[Entry] = []

        def begin(self, identity: StoreKey) -> Entry | None:
            return Entry(identity, 1)

        def finish(self, entries: Iterable[Entry]) -> None:
            self.finished += entries

        def settle(self, entries: Iterable[Entry]) -> None: ...
        def flush(self) -> None: ...

    plain = Plain()
    CustomLedger(plain).give_back([Entry(A, 1)])
    assert plain.finished == [Entry(A, 1)]


class Ends:
    """A ledger of an application's that knows ends only, and writes down what it is told."""

    def __init__(self) -> None:
        self.told: list[tuple[str, Entry]] = []
        self.handed_out = 0
        self.broken = False

    def begin(self, identity: StoreKey) -> Entry | None:
        """Each is another one."""
        self.handed_out += 1
        return Entry(identity, self.handed_out)

    def finish(self, entries: Iterable[Entry]) -> None:
        """Done."""
        if self.broken:
            raise StoreError("away")
        self.told += [("finish", one) for one in entries]

    def settle(self, entries: Iterable[Entry]) -> None:
        """Gone."""
        self.told += [("settle", one) for one in entries]

    def flush(self) -> None:
        """Nothing is put off."""


class Doubts(Ends):
    """One that knows failures, too."""

    def fail(self, entries: Iterable[Entry]) -> None:
        """Failed."""
        self.told += [("fail", one) for one in entries]

    def give_back(self, entries: Iterable[Entry]) -> None:
        """Unseen."""
        self.told += [("give_back", one) for one in entries]


def test_a_ledger_of_the_applications_is_told_each_end_once() -> None:
    """One that counts what it is told would take an attempt that succeeded for two, and hide one that failed."""
    ends = Ends()
    custom = CustomLedger(ends)
    first = custom.begin(A)
    assert first is not None
    custom.finish([first])  # before a store remembers it
    custom.finish([first])  # with its ACK
    custom.give_back([first])
    custom.settle([first])
    custom.settle([first])
    custom.finish([first])
    assert ends.told == [("finish", first), ("settle", first)]
    ends.handed_out, ends.told = 0, []
    again = custom.begin(A)  # its row is a new one, and it may have the same number
    assert again == first
    custom.finish([first])
    assert ends.told == [("finish", first)]


def test_an_end_that_could_not_be_told_is_told_again() -> None:
    """When it has another occasion."""
    ends = Ends()
    custom = CustomLedger(ends)
    entry = Entry(A, 1)
    ends.broken = True
    custom.finish([entry])
    ends.broken = False
    custom.finish([entry])
    assert ends.told == [("finish", entry)]


def test_one_that_failed_may_be_done_after_all() -> None:
    """As where its process was taken for dead; what it failed at is told once."""
    doubts = Doubts()
    custom = CustomLedger(doubts)
    entry = Entry(A, 1)
    custom.fail([entry])
    custom.fail([entry])
    custom.finish([entry])
    custom.fail([entry])
    assert doubts.told == [("fail", entry), ("finish", entry)]


def earlier_file(path: Path, *, holder: bool) -> sqlite3.Connection:
    """A ledger of an earlier version, which knew at most who has the last hand-out."""
    connection = sqlite3.connect(path, isolation_level=None)
    connection.execute("PRAGMA journal_mode=WAL")
    connection.execute(
        "CREATE TABLE jmsx_deliveries (place TEXT NOT NULL, message_key TEXT NOT NULL,"
        " deliveries INTEGER NOT NULL, finished INTEGER NOT NULL, last_ms INTEGER NOT NULL,"
        f"{' holder TEXT,' if holder else ''} PRIMARY KEY (place, message_key)) WITHOUT ROWID"
    )
    return connection


def test_a_file_of_a_version_that_knew_no_holders(path: Path) -> None:
    """It is used on, and counts; what was handed out before it was known to whom failed with its process."""
    with contextlib.closing(earlier_file(path, holder=False)) as connection:
        connection.execute("INSERT INTO jmsx_deliveries VALUES (?, ?, 1, 0, ?)", (*A, 2**42))
    for number in (2, 3):
        ledger = DeliveryLedger(path)
        assert ledger.begin(A) == Entry(A, number, in_doubt=number - 2)
        ledger.close()


def test_a_file_of_a_version_that_knew_one_holder(path: Path) -> None:
    """It is made like new ones where it lies, and a process of that version that still has it open goes on."""
    insert = (
        "INSERT INTO jmsx_deliveries (place, message_key, deliveries, finished, last_ms, holder)"
        " VALUES (?, ?, 1, 0, ?, ?) ON CONFLICT DO NOTHING"
    )
    with contextlib.closing(earlier_file(path, holder=True)) as old:
        old.execute(insert, (*A, 2**42, living.name()))
        with contextlib.closing(DeliveryLedger(path)) as ledger:
            assert [ledger.begin(A), ledger.begin(A)] == [
                Entry(A, 2, in_doubt=1),
                Entry(A, 3, in_doubt=2),
            ]
            assert old.execute(insert, (*B, 2**42, living.name())).rowcount == 1
            assert ledger.begin(B) == Entry(B, 2, in_doubt=1)
            old.execute(
                "UPDATE jmsx_deliveries SET deliveries = deliveries + 1, holder = ?"
                " WHERE place = ? AND message_key = ?",
                (living.name(), *B),
            )
            again = ledger.begin(B)
            assert again == Entry(B, 4, in_doubt=2)  # the earlier version has forgotten one


def test_lines_that_are_none(path: Path, ledger: DeliveryLedger) -> None:
    """Whatever stands in the file, the message is handed out."""
    ledger.begin(A)
    with contextlib.closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE jmsx_deliveries SET earlier = ?", ("x\n\n1\n-2 y\n9" * 3,))
        connection.commit()
    assert ledger.begin(A) == Entry(A, 2, in_doubt=1)


@pytest.mark.parametrize("name", ["", "nonsense", "-1 2 3", "1 2", "99999999999 1 here"], ids=repr)
def test_what_is_no_name_of_a_living_process(name: str) -> None:
    """Whoever wrote it."""
    assert not living.lives(name)


def test_a_number_that_is_given_again() -> None:
    """Another process that was started at another time, or before the host was, or in another container."""
    mine = living.name()
    assert mine is not None
    assert living.lives(mine)
    number, started, boot, container = mine.split(" ")
    for other in (
        (number, str(int(started) - 1), boot, container),
        (number, started, "elsewhere", container),
        (number, started, boot, "pid:[1]"),
        (str(os.getppid()), str(int(started) + 1), boot, container),  # who starts us begins before
    ):
        assert not living.lives(" ".join(other))


@pytest.mark.parametrize("mixed_in", [False, True])
@pytest.mark.parametrize("with_take", [False, True])
def test_a_begin_of_somebody_s_own_is_called(
    tmp_path: Path, *, with_take: bool, mixed_in: bool
) -> None:
    """Also for a message that waits, unless its class says what it does with those."""
    called: list[str] = []

    class Counting:
        def begin(self, identity: StoreKey) -> Entry | None:
            called.append("begin")
            entry: Entry | None = super().begin(identity)  # type: ignore[misc]  # of the class beside it
            return entry

    class Mixed(Counting, DeliveryLedger):
        pass

    class Own(DeliveryLedger):
        def begin(self, identity: StoreKey) -> Entry | None:
            called.append("begin")
            return super().begin(identity)

    beginning: Any = Mixed if mixed_in else Own

    class Both(beginning):  # type: ignore[misc]  # which of them is the case
        def take(self, identity: StoreKey) -> Entry | None:
            called.append("take")
            entry: Entry | None = super().take(identity)
            return entry

    with contextlib.closing((Both if with_take else beginning)(tmp_path / "ledger.db")) as ledger:
        shared = share(ledger)
        entry = shared.take(A)
        assert entry is not None
        shared.reach([entry])
        assert called == ["take" if with_take else "begin"]
        assert entry.number == 1


@pytest.mark.parametrize("staged", [False, True], ids=["begin", "take"])
def test_a_hand_out_that_is_interrupted_is_none(path: Path, *, staged: bool) -> None:
    """Also where its transaction is committed: nobody has got the message, and nobody would say how that went."""
    ledger = DeliveryLedger(path)

    def hand_out() -> Entry | None:
        return ledger.take(A) if staged else ledger.begin(A)

    clean = Interrupt(within=LEDGER)
    clean.run(lambda: ledger.begin(B))
    for step in range(1, clean.steps - 1):  # the last ones are behind all that it does
        with pytest.raises(Alarm):
            Interrupt(step, within=LEDGER).run(hand_out)
        entry = hand_out()
        assert entry is not None
        assert (entry.deliveries, entry.in_doubt) == (0, 0), step
        ledger.settle([entry])
    ledger.close()


def test_an_interrupted_hand_out_is_not_taken_for_another_process_s(path: Path) -> None:
    """What was not committed has a number that somebody else may have by now."""
    clean = Interrupt(within=LEDGER)
    with contextlib.closing(DeliveryLedger(path)) as ledger:
        clean.run(partial(ledger.begin, B))
    for step in range(1, clean.steps - 1):
        one, other = DeliveryLedger(path), DeliveryLedger(path)
        other._me = "1 another 0"  # a process that is not there any more
        with pytest.raises(Alarm):
            Interrupt(step, within=LEDGER).run(partial(one.begin, A))
        begun = other.begin(A)
        assert begun is not None
        entry = one.begin(A)
        assert entry is not None
        assert entry.deliveries == 1, step
        one.settle([entry])
        one.close()
        other.close()
