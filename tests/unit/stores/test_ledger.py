"""The ledger's file: what it remembers over processes, and what it does when it cannot be written."""

from __future__ import annotations

import contextlib
import itertools
import logging
import shutil
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx.core.ledger import Entry, StoreKey
from jmsx.errors import StoreError
from jmsx.stores import SqliteStore
from jmsx.stores.ledger import DeliveryLedger, release, share
from jmsx.stores.pauses import FIRST_PAUSE, LONGEST_PAUSE
from tests.depth import some
from tests.unit.interrupts import Alarm, Interrupt
from tests.unit.stores.parts import A, B, Clock

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def dead(monkeypatch: pytest.MonkeyPatch) -> None:
    """To a ledger of these tests whoever had a message before is dead; test_ledger_holders.py is about others."""
    monkeypatch.setattr("jmsx.drivers.living.lives", lambda _name: False)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where no file is yet."""
    return tmp_path / "ledger.db"


@pytest.fixture
def clock() -> Clock:
    """Goes when told to."""
    return Clock()


@pytest.fixture
def ledger(path: Path, clock: Clock) -> Iterator[DeliveryLedger]:
    """A new one."""
    ledger = DeliveryLedger(path, clock=clock)
    yield ledger
    ledger.close()


def rows(path: Path) -> dict[str, tuple[int, int]]:
    """What another process sees in the file."""
    connection = sqlite3.connect(path)
    try:
        found = connection.execute("SELECT message_key, deliveries, finished FROM jmsx_deliveries")
        return {key: (deliveries, finished) for key, deliveries, finished in found}
    finally:
        connection.close()


def test_each_hand_out_is_committed_at_once(ledger: DeliveryLedger, path: Path) -> None:
    """Another process sees it before the application sees the message."""
    assert [ledger.begin(A), ledger.begin(A)] == [Entry(A, 1), Entry(A, 2)]
    assert rows(path) == {"a": (2, 0)}


def test_another_process_goes_on_counting(ledger: DeliveryLedger, path: Path, clock: Clock) -> None:
    """Also while the first one still has the file open, and never closed it."""
    ledger.begin(A)
    other = DeliveryLedger(path, clock=clock)
    assert other.begin(A) == Entry(A, 2)
    assert ledger.begin(A) == Entry(A, 3)
    other.close()


def test_places_do_not_mix(ledger: DeliveryLedger) -> None:
    """One message may lie in many queues."""
    ledger.begin(A)
    assert ledger.begin(StoreKey("queue://r", "a")) == Entry(StoreKey("queue://r", "a"), 1)


def test_settled_is_forgotten_with_the_next_hand_out(ledger: DeliveryLedger, path: Path) -> None:
    """One transaction for both."""
    first = ledger.begin(A)
    assert first is not None
    ledger.settle([first])
    assert rows(path) == {"a": (1, 0)}
    ledger.begin(B)
    assert rows(path) == {"b": (1, 0)}


def test_finished_is_no_failure(ledger: DeliveryLedger, path: Path) -> None:
    """It is in the file before the next message is handed out."""
    first = ledger.begin(A)
    assert first is not None
    ledger.finish([first])
    ledger.begin(B)
    assert rows(path)["a"] == (1, 1)
    again = ledger.begin(A)
    assert again == Entry(A, 2, finished=1)
    assert again.failures == 0


def test_settled_after_finished_is_forgotten(ledger: DeliveryLedger, path: Path) -> None:
    """The last word counts; `flush` and `close` write it too."""
    for write in (ledger.flush, ledger.close):
        entry = ledger.begin(A)
        assert entry is not None
        ledger.finish([entry])
        ledger.settle([entry])
        write()
        assert rows(path) == {}


def test_what_somebody_else_was_handed_since_is_not_forgotten(
    ledger: DeliveryLedger, path: Path, clock: Clock
) -> None:
    """An ACK was lost with its link, the message came to another process, and that one died; only that has failed."""
    entry = ledger.begin(A)
    assert entry is not None
    other = DeliveryLedger(path, clock=clock)
    other.begin(A)
    other.close()
    for tell in (ledger.finish, ledger.settle):
        tell([entry])
        ledger.flush()
        assert rows(path) == {"a": (2, 1)}


def test_what_is_told_at_once_counts_as_what_is_told_one_by_one(
    ledger: DeliveryLedger, path: Path, clock: Clock
) -> None:
    """That it is settled does not take back that it did not fail, where somebody else was handed it since."""
    entry = ledger.begin(A)
    assert entry is not None
    other = DeliveryLedger(path, clock=clock)
    other.begin(A)
    for tell in (ledger.finish, ledger.settle):
        tell([entry])
    ledger.flush()
    assert rows(path) == {"a": (2, 1)}
    assert other.begin(A) == Entry(A, 3, finished=1)
    other.close()


# -- growing old ------------------------------------------------------------------------------------------------------


def test_old_rows_are_deleted(path: Path, clock: Clock) -> None:
    """Somebody else settled them, and nobody will ever say so."""
    with_limit = DeliveryLedger(path, maximum_age=60.0, clock=clock)
    with_limit.begin(A)
    clock.now += 59.0
    with_limit.begin(B)
    with_limit.close()
    clock.now += 2.0
    DeliveryLedger(path, maximum_age=60.0, clock=clock).close()
    assert rows(path) == {"b": (1, 0)}


def test_too_many_rows_are_deleted(path: Path, clock: Clock) -> None:
    """The oldest go first."""
    with_limit = DeliveryLedger(path, clock=clock)
    for key in "abcd":
        clock.now += 1.0
        with_limit.begin(StoreKey("queue://q", key))
    with_limit.close()
    DeliveryLedger(path, maximum_rows=2, clock=clock).close()
    assert set(rows(path)) == {"c", "d"}


# -- trouble ----------------------------------------------------------------------------------------------------------


def test_a_locked_file_is_away(
    ledger: DeliveryLedger, path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """One short wait, then every hand-out is refused at once for a while; the log tells when it went and came back."""
    ledger.begin(A)
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    with caplog.at_level(logging.WARNING, "jmsx.stores.ledger"):
        for identity in (A, B):
            with pytest.raises(StoreError, match="locked"):
                ledger.begin(identity)
        with pytest.raises(StoreError, match="locked"):
            ledger.flush()
    assert [record.levelname for record in caplog.records] == ["ERROR"]
    blocker.close()
    with pytest.raises(StoreError, match="locked"):
        ledger.begin(A)
    clock.now += FIRST_PAUSE
    with caplog.at_level(logging.WARNING, "jmsx.stores.ledger"):
        assert ledger.begin(A) == Entry(A, 2)
    assert "delivery ledger back" in caplog.text


def open_file(ledger: DeliveryLedger) -> sqlite3.Connection:
    """What the ledger writes with."""
    connection = ledger._file.connection
    assert connection is not None
    return connection


def test_it_is_tried_less_and_less(
    ledger: DeliveryLedger, path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After 1, 2, 4 … seconds, and 30 at the most; said once."""
    path.unlink()
    for suffix in ("-wal", "-shm"):
        path.with_name(f"{path.name}{suffix}").unlink()
    path.mkdir()
    tried: list[float] = []
    opened = ledger._file.open

    def noting() -> sqlite3.Connection:
        tried.append(clock.now)
        return opened()

    monkeypatch.setattr(ledger._file, "open", noting)
    for _ in range(100):
        with pytest.raises(StoreError, match="unable to open"):
            ledger.begin(A)
        clock.now += 1.0
    gaps = [later - earlier for earlier, later in itertools.pairwise(tried)]
    assert gaps == [FIRST_PAUSE, 2.0, 4.0, 8.0, 16.0, LONGEST_PAUSE, LONGEST_PAUSE]


def test_a_full_disk_is_away(ledger: DeliveryLedger, path: Path, clock: Clock) -> None:
    """What was done meanwhile is written when there is room again."""
    entry = ledger.begin(A)
    assert entry is not None
    ledger.settle([entry])
    (pages,) = open_file(ledger).execute("PRAGMA page_count").fetchone()
    open_file(ledger).execute(f"PRAGMA max_page_count={pages}")
    big = StoreKey("queue://q", "k" * 100_000)
    with pytest.raises(StoreError, match="full; make room"):
        ledger.begin(big)
    clock.now += FIRST_PAUSE  # it is opened anew, without that limit
    assert ledger.begin(big) == Entry(big, 1)
    assert "a" not in rows(path)


def test_a_broken_file_is_away_until_it_is_removed(path: Path, clock: Clock) -> None:
    """Somebody wrote over it while it was in use; nobody knows what it had counted."""
    ledger = DeliveryLedger(path, clock=clock)
    for number in range(100):
        ledger.begin(StoreKey("queue://q", str(number)))
    open_file(ledger).execute("PRAGMA wal_checkpoint(TRUNCATE)")
    with path.open("r+b") as file:
        file.seek(1024)
        file.write(b"x" * 50_000)
    open_file(ledger).execute("PRAGMA shrink_memory")
    for _ in range(2):
        with pytest.raises(StoreError, match="remove it, and begin anew"):
            ledger.begin(A)
        clock.now += LONGEST_PAUSE
    path.unlink()
    assert ledger.begin(A) == Entry(A, 1)
    ledger.close()


def test_what_is_done_while_it_is_away_is_written_at_the_end(
    ledger: DeliveryLedger, path: Path
) -> None:
    """Closing tries it once more, whatever the pause."""
    entry = ledger.begin(A)
    assert entry is not None
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    ledger.settle([entry])
    with pytest.raises(StoreError, match="locked"):
        ledger.flush()
    blocker.close()
    ledger.close()
    assert rows(path) == {}


@pytest.mark.parametrize("left", [("-wal", "-shm"), ("-shm",), ()])
def test_a_file_that_was_removed(
    ledger: DeliveryLedger,
    path: Path,
    clock: Clock,
    caplog: pytest.LogCaptureFixture,
    left: tuple[str, ...],
) -> None:
    """Whoever opens it next begins anew, whatever lies beside it, and who had it open joins that at once."""
    ledger.begin(A)
    path.unlink()
    for suffix in {"-wal", "-shm"}.difference(left):
        path.with_name(f"{path.name}{suffix}").unlink()
    other = DeliveryLedger(path, clock=clock)
    with caplog.at_level(logging.WARNING, "jmsx.stores.ledger"):
        assert [each.begin(A) for each in (other, ledger, ledger, other, ledger)] == [
            Entry(A, number) for number in (1, 2, 3, 4, 5)
        ]
    assert caplog.text.count("delivery ledger was removed") == 1
    other.close()
    assert rows(path) == {"a": (5, 0)}


def test_what_is_handed_out_when_the_file_is_removed(ledger: DeliveryLedger, path: Path) -> None:
    """It keeps its count in the new one; what is settled is gone, and who had finished has not failed."""
    c, d = (StoreKey("queue://q", key) for key in "cd")
    entries = [ledger.begin(each) for each in (A, A, B, c)]
    ledger.finish([entry for entry in entries if entry is not None and entry.identity == B])
    path.unlink()
    ledger.settle([entry for entry in entries if entry is not None and entry.identity == c])
    assert ledger.begin(d) == Entry(d, 1)
    assert rows(path) == {"a": (2, 0), "b": (1, 1), "d": (1, 0)}
    assert ledger.begin(A) == Entry(A, 3)
    assert ledger.begin(B) == Entry(B, 2, 1)
    assert ledger.begin(c) == Entry(c, 1)


def test_a_table_that_was_dropped(ledger: DeliveryLedger, path: Path, clock: Clock) -> None:
    """It is made anew at the next try, with what is handed out."""
    assert [ledger.begin(A), ledger.begin(A)] == [Entry(A, 1), Entry(A, 2)]
    with contextlib.closing(sqlite3.connect(path)) as vandal:
        vandal.execute("DROP TABLE jmsx_deliveries")
    with pytest.raises(StoreError, match="no such table"):
        ledger.begin(A)
    clock.now += FIRST_PAUSE
    assert ledger.begin(A) == Entry(A, 3)
    assert rows(path) == {"a": (3, 0)}


def test_a_folder_that_was_removed(
    tmp_path: Path, clock: Clock, caplog: pytest.LogCaptureFixture
) -> None:
    """It is away until that is there again."""
    path = tmp_path / "folder" / "ledger.db"
    path.parent.mkdir()
    ledger = DeliveryLedger(path, clock=clock)
    shutil.rmtree(path.parent)
    for _ in range(2):
        with pytest.raises(StoreError, match="unable to open"):
            ledger.begin(A)
        clock.now += LONGEST_PAUSE
    assert caplog.text.count("delivery ledger away") == 1
    path.parent.mkdir()
    assert ledger.begin(A) == Entry(A, 1)
    ledger.close()


@pytest.mark.parametrize("columns", ["place, message_key, deliveries, last_ms", "place"])
def test_a_file_of_another_version(path: Path, columns: str) -> None:
    """A clear error at the door, and not a line in the log for each message."""
    connection = sqlite3.connect(path)
    connection.execute(f"CREATE TABLE jmsx_deliveries ({columns})")
    connection.close()
    with pytest.raises(StoreError, match=r"no such column: \w+; another version of jmsx made it"):
        DeliveryLedger(path)


def test_a_file_that_is_no_ledger(path: Path) -> None:
    """A clear error at the door, and the file is left alone."""
    path.write_text("notes " * 500)
    with pytest.raises(StoreError, match=r"ledger\.db: file is not a database; name another"):
        DeliveryLedger(path)
    assert path.read_text().startswith("notes")


def test_a_folder_that_is_not_there(tmp_path: Path) -> None:
    """A clear error at the door."""
    with pytest.raises(StoreError, match=r"unable to open .* a folder that exists"):
        DeliveryLedger(tmp_path / "nowhere" / "ledger.db")


# SQLite itself waits for the former only
@pytest.mark.parametrize("lock", ["EXCLUSIVE", "IMMEDIATE"])
@pytest.mark.parametrize("store", [DeliveryLedger, SqliteStore])
def test_a_file_that_another_process_is_making(
    path: Path, store: type, lock: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Processes that start together wait for each other, also where that takes as long as on a busy host."""
    monkeypatch.setattr("jmsx.stores.sqlite_file.PATIENCE", 0.1)
    blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    blocker.execute(f"BEGIN {lock}")
    end = threading.Timer(0.2, blocker.close)
    end.start()
    opened = store(path)
    if isinstance(opened, SqliteStore):
        opened.open()
    opened.close()
    end.join()


def test_a_file_that_somebody_holds(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A clear error at the door, at last."""
    monkeypatch.setattr("jmsx.stores.ledger.OPENING", 0.1)
    DeliveryLedger(path).close()
    blocker = sqlite3.connect(path, isolation_level=None)
    blocker.execute("BEGIN EXCLUSIVE")
    with pytest.raises(StoreError, match="database is locked; another program holds it"):
        DeliveryLedger(path)
    blocker.close()


def test_memory_is_no_place_for_it() -> None:
    """It would die with the process, which is what it is for."""
    with pytest.raises(StoreError, match="log does not work there; name a file on a local disk"):
        DeliveryLedger(":memory:")


def test_after_close_nothing_is_handed_out(ledger: DeliveryLedger) -> None:
    """Nobody would count it."""
    ledger.close()
    ledger.close()
    with pytest.raises(StoreError, match="the delivery ledger is closed"):
        ledger.begin(A)


# -- sharing ----------------------------------------------------------------------------------------------------------


def test_one_file_one_ledger(path: Path) -> None:
    """All connections of a process share it, and the last one closes it."""
    first, second = share(path), share(str(path))
    assert first is second
    release(first)
    assert second.begin(A) == Entry(A, 1)
    release(second)
    with pytest.raises(StoreError, match="closed"):
        second.begin(A)
    third = share(path)
    assert third.begin(A) == Entry(A, 2)
    release(third)


def test_a_given_ledger_stays_its_givers(ledger: DeliveryLedger) -> None:
    """It is not closed by a connection that used it."""
    assert share(ledger) is ledger
    release(ledger)
    assert ledger.begin(A) == Entry(A, 1)


def test_a_ledger_of_the_application_s_is_away_whatever_it_raises(path: Path) -> None:
    """Also one that is made of jmsx's own."""

    class Broken(DeliveryLedger):
        def begin(self, identity: StoreKey) -> Entry | None:
            raise TypeError(str(identity))

    with (
        contextlib.closing(Broken(path)) as broken,
        pytest.raises(StoreError, match=r"Broken.begin\(\) failed: TypeError"),
    ):
        share(broken).begin(A)


def test_who_is_interrupted_while_it_writes_leaves_no_transaction_open(path: Path) -> None:
    """Whatever step a signal handler raises at, the next hand-out is counted."""
    within = ["/jmsx/stores/ledger.py", "/jmsx/stores/sqlite_file.py"]
    clean = Interrupt(within=within)
    ledger = DeliveryLedger(path)
    clean.run(lambda: ledger.begin(A))
    steps = some(range(1, clean.steps + 1))
    for step in steps:
        with pytest.raises(Alarm):
            Interrupt(step, within=within).run(lambda: ledger.begin(A))
        assert ledger.begin(B) is not None, step
    ledger.close()
    assert rows(path)["b"][0] == len(steps)
