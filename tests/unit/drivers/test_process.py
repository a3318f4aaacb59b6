"""What a child of a fork may do with what its parent has open; each child is a real one."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import AcknowledgeMode
from jmsx.app.signals import Signals
from jmsx.core.events import Event, MessagesAcknowledged, Source
from jmsx.core.ledger import Entry, StoreKey
from jmsx.drivers.link_state import LinkState
from jmsx.errors import IllegalStateError
from jmsx.stores import DatabaseStore, MemoryStore, SqliteStore
from jmsx.stores.ledger import DeliveryLedger
from jmsx.stores.shared_memory import SharedMemory
from tests.benchmarks.one_thread import OneThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

#: Python 3.12 warns of forks in a process with threads, which is what is tested here.
pytestmark = pytest.mark.filterwarnings("ignore:This process:DeprecationWarning")

FIRST = StoreKey("queue://orders", "first")
SECOND = StoreKey("queue://orders", "second")


def in_child(work: Callable[[], object]) -> str:
    """What `work` gives, or raises, in a child; a child that hangs is killed and says nothing."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(10)
        try:
            told = str(work())
        except BaseException as error:  # noqa: BLE001 - told to the parent
            told = f"{type(error).__name__}: {error}"
        os.write(writer, told.encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        told = pipe.read().decode()
    os.waitpid(pid, 0)
    return told


def test_ledger_goes_on_in_the_child_with_a_connection_of_its_own(tmp_path: Path) -> None:
    """What the parent has noted and not written yet stays the parent's, which lives: its hand-out is in doubt."""
    ledger = DeliveryLedger(tmp_path / "ledger.db")
    entry = ledger.begin(FIRST)
    assert entry is not None
    ledger.settle([entry])
    assert in_child(lambda: ledger.begin(FIRST)) == str(Entry(FIRST, 2, in_doubt=1))
    again = ledger.begin(SECOND)
    assert again is not None
    assert again.number == 1
    # the child was handed the first one after the parent had settled it, so its count stands
    assert ledger.begin(FIRST) is not None
    ledger.close()


def test_lock_that_another_thread_held_does_not_stop_the_child() -> None:
    """Nobody in the child would ever let go of it."""
    memory, known = SharedMemory(), MemoryStore()
    locks = [memory._lock, known._lock]
    held, done = threading.Event(), threading.Event()

    def hold() -> None:
        for lock in locks:
            lock.acquire()
        held.set()
        done.wait()
        for lock in locks:
            lock.release()

    holder = threading.Thread(target=hold)
    holder.start()
    held.wait()

    def use() -> bool:
        memory.forget(())
        return known.once(FIRST, lambda _: None)

    told = in_child(use)
    done.set()
    holder.join()
    assert told == "True"


def test_files_are_closed_while_the_process_forks(tmp_path: Path) -> None:
    """SQLite's state in memory, locks of other threads among it, would be the child's, and wrong there."""
    ledger, store = DeliveryLedger(tmp_path / "ledger.db"), SqliteStore(tmp_path / "done.db")
    store.open()
    over = threading.Event()
    counted: list[int] = []

    def write() -> None:
        while not over.is_set():
            number = len(counted)
            assert ledger.begin(StoreKey("queue://orders", f"parent {number}")) is not None
            assert store.once(StoreKey("queue://orders", f"parent {number}"), lambda _: None)
            counted.append(number)

    writer = threading.Thread(target=write)
    writer.start()

    def use() -> str:
        store.open()
        entry, new = ledger.begin(SECOND), store.once(SECOND, lambda _: None)
        return f"{entry.number if entry else None} {new}"

    told = [in_child(use) for _ in range(10)]
    over.set()
    writer.join()
    assert told == [f"{number} {number == 1}" for number in range(1, 11)]
    assert not store.once(SECOND, lambda _: None)
    again = ledger.begin(StoreKey("queue://orders", "parent 0"))
    assert again is not None
    assert again.number == 2
    store.close()
    ledger.close()
    for name, table in (("ledger.db", "jmsx_deliveries"), ("done.db", "jmsx_done")):
        with contextlib.closing(sqlite3.connect(tmp_path / name)) as file:
            assert file.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            count = f"SELECT count(*) FROM {table}"
            assert file.execute(count).fetchone() == (len(counted) + 1,)


def test_message_that_another_thread_is_at_can_be_done_in_the_child() -> None:
    """Nobody in the child is at it."""
    store, begun, done = MemoryStore(), threading.Event(), threading.Event()

    def work(_: object) -> None:
        begun.set()
        done.wait()

    thread = threading.Thread(target=lambda: store.once(FIRST, work))
    thread.start()
    begun.wait()
    told = in_child(lambda: store.once(FIRST, lambda _: None))
    done.set()
    thread.join()
    assert told == "True"


def test_sqlite_store_knows_nothing_of_work_that_returned_in_a_child(tmp_path: Path) -> None:
    """The message is the parent's, whose own handler has not returned."""
    store = SqliteStore(tmp_path / "done.db")
    store.open()
    reader, writer = os.pipe()
    parent = os.getpid()

    def work(_: object) -> None:
        if (pid := os.fork()) != 0:
            os.waitpid(pid, 0)
            raise RuntimeError("failed")

    try:
        with pytest.raises(RuntimeError):
            store.once(FIRST, work)
    except IllegalStateError as error:
        os.write(writer, str(error).encode())
    finally:
        if os.getpid() != parent:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert "before fork()" in pipe.read().decode()
    assert store.once(FIRST, lambda _: None)
    store.close()


def test_database_store_leaves_the_transaction_of_its_parent_alone(tmp_path: Path) -> None:
    """No COMMIT, ROLLBACK or farewell of a child whose handler returned goes to the parent's database."""
    path, spoken = tmp_path / "user.db", tmp_path / "spoken"

    class Told(sqlite3.Connection):
        """Writes down who ends its transaction."""

        def commit(self) -> None:
            self._note("commit")
            super().commit()

        def rollback(self) -> None:
            self._note("rollback")
            super().rollback()

        def close(self) -> None:
            self._note("close")
            super().close()

        def _note(self, word: str) -> None:
            with spoken.open("a") as file:
                file.write(f"{word} {os.getpid()}\n")

    store = DatabaseStore(lambda: sqlite3.connect(path, factory=Told))
    store.create_table()
    spoken.unlink()
    reader, writer = os.pipe()

    def work(_: object) -> None:
        if (pid := os.fork()) != 0:
            os.waitpid(pid, 0)

    parent = os.getpid()
    try:
        assert store.once(FIRST, work)
    except IllegalStateError as error:
        if os.getpid() == parent:
            raise
        os.write(writer, str(error).encode())
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as pipe:
        assert "before fork()" in pipe.read().decode()
    assert {line.split()[1] for line in spoken.read_text().splitlines()} == {str(parent)}
    assert not store.once(FIRST, lambda _: None)


def test_thread_of_a_session_ends_in_the_child() -> None:
    """As where an exception listener forks: nothing will come that it could wait for."""
    engine = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 0).link.engine

    def serve() -> str:
        engine._serve()
        return engine.state.name

    assert in_child(serve) == "FORKED"
    engine.end("a test")
    assert engine.state is LinkState.ENDED


def test_signal_ends_a_child_of_a_running_app() -> None:
    """It goes to whoever had it before, and not to a `wait()` that nobody is in."""
    previous = signal.getsignal(signal.SIGTERM)
    with Signals():
        assert in_child(lambda: signal.getsignal(signal.SIGTERM)) == str(previous)
        assert signal.getsignal(signal.SIGTERM) != previous


def test_child_tells_nothing_of_what_another_thread_was_telling() -> None:
    """An observer would count the parent's messages twice."""
    begun, done, told = threading.Event(), threading.Event(), list[str]()

    class Slow:
        """An observer that is in the middle of a call of another thread while the process forks."""

        def observe(self, event: Event, _source: Source) -> None:
            told.append(type(event).__name__)
            if isinstance(event, MessagesAcknowledged):
                begun.set()
                done.wait(10)

        def close(self) -> None:
            """Hold nothing."""

    one = OneThread(AcknowledgeMode.AUTO_ACKNOWLEDGE, 2, [Slow()])
    consumer = one.consumer()
    thread = threading.Thread(target=lambda: consumer.receive(1))
    thread.start()
    begun.wait(10)
    assert one.link.engine._todo

    def use() -> list[str]:
        told.clear()
        with pytest.raises(IllegalStateError, match="before fork"):
            one.link.engine.call(lambda _core, now: now)
        return told

    heard = in_child(use)
    done.set()
    thread.join()
    assert heard == "[]"
