"""What every idempotency store promises, and what those of jmsx's own add."""

from __future__ import annotations

import contextlib
import gc
import logging
import shutil
import sqlite3
import threading
import time
from functools import partial
from typing import TYPE_CHECKING, Any, cast

import pytest

from jmsx import DeliveryLedger
from jmsx.core.ledger import StoreKey
from jmsx.drivers import locks
from jmsx.errors import ConfigurationError, StoreError
from jmsx.stores import DatabaseStore, IdempotencyStore, MemoryStore, SqliteStore, idempotency
from tests.depth import some
from tests.integration.broker_support import eventually
from tests.unit.interrupts import Alarm, Interrupt
from tests.unit.stores.parts import A, B, Clock, Handler

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path


@pytest.fixture(params=["memory", "sqlite", "database"])
def store(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    clock: Clock,
    connect: Callable[[], sqlite3.Connection],
) -> Iterator[IdempotencyStore]:
    """Each kind, open."""
    made: dict[str, Callable[[], Any]] = {
        "memory": lambda: MemoryStore(clock=clock),
        "sqlite": lambda: SqliteStore(tmp_path / "done.db", clock=clock),
        "database": lambda: DatabaseStore(connect, clock=clock),
    }
    store = made[request.param]()
    if isinstance(store, DatabaseStore):
        store.create_table()
    store.open()
    yield store
    store.close()


# -- all of them ------------------------------------------------------------------------------------------------------


def test_what_was_done_is_not_done_again(store: IdempotencyStore, handler: Handler) -> None:
    """The second time the handler is not called."""
    assert [store.once(A, handler), store.once(A, handler), store.once(A, handler)] == [
        True,
        False,
        False,
    ]
    assert handler.calls == 1


def test_a_batch(store: Any, handler: Handler) -> None:
    """What was done, alone or in a batch, is not new; what is not, is."""
    offered: list[set[StoreKey]] = []

    def work(_connection: object, new: frozenset[StoreKey]) -> list[StoreKey]:
        offered.append(set(new))
        return list(new)

    elsewhere = StoreKey("queue://r", "a")
    assert store.once(A, handler)
    for batch in ([A, B], [B, A, elsewhere], [], [elsewhere]):
        store.once_each(batch, work)
    assert offered == [{B}, {elsewhere}, set(), set()]
    assert not store.once(B, handler)


def test_a_batch_that_failed(store: Any, handler: Handler) -> None:
    """None of it is known as done."""

    def work(_connection: object, _new: frozenset[StoreKey]) -> list[StoreKey]:
        raise KeyError

    with pytest.raises(KeyError):
        store.once_each([A, B], work)
    assert [store.once(A, handler), store.once(B, handler)] == [True, True]


@pytest.mark.parametrize("kind", [MemoryStore, SqliteStore])
def test_a_part_of_a_batch_that_failed(
    kind: Any, tmp_path: Path, clock: Clock, handler: Handler
) -> None:
    """Is not known as done; the other part is."""
    store = kind(clock=clock) if kind is MemoryStore else kind(tmp_path / "done.db", clock=clock)
    store.open()
    store.once_each([A, B], lambda _connection, _new: [B])
    assert [store.once(A, handler), store.once(B, handler)] == [True, False]
    store.close()


def test_two_batches_with_the_same_messages_take_turns(store: Any) -> None:
    """In whatever order they name them: neither waits for the other for ever, and each message is done once."""
    done: list[StoreKey] = []
    gate = threading.Barrier(2)

    def work(_connection: object, new: frozenset[StoreKey]) -> list[StoreKey]:
        done.extend(new)
        return list(new)

    def run(batch: list[StoreKey]) -> None:
        gate.wait(5)
        store.once_each(batch, work)

    threads = [threading.Thread(target=run, args=(batch,)) for batch in ([A, B], [B, A])]
    for each in threads:
        each.start()
    for each in threads:
        each.join(10)
    assert not any(each.is_alive() for each in threads)
    assert sorted(done) == [A, B]


@pytest.mark.parametrize("made", [locks.mutex, locks._Mutex], ids=["this Python's", "3.14's"])
@pytest.mark.parametrize("kind", ["memory", "sqlite"])
@pytest.mark.parametrize("batch", [False, True])
def test_a_turn_keeps_others_off(
    made: Callable[[], Any],
    kind: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    *,
    batch: bool,
) -> None:
    """As long as somebody is at the message: who comes meanwhile is given the same lock, which is held."""
    monkeypatch.setattr(idempotency, "mutex", made)
    store: Any = MemoryStore() if kind == "memory" else SqliteStore(tmp_path / "done.db")
    store.open()
    held: list[bool] = []

    def work(*given: Any) -> Any:
        gc.collect()
        held.append(store._message_locks.lock_of(A).locked())
        return given[-1]

    if batch:
        store.once_each([A, B], work)
    else:
        store.once(A, work)
    store.close()
    assert held == [True]


@pytest.mark.parametrize("batch", [False, True])
def test_what_is_interrupted_anywhere_keeps_nobody_off(*, batch: bool) -> None:
    """
    Also while the exception is looked at, unless that came as the turns of a batch were given back one by one.

    Not in the locks themselves: in Python 3.14 some are ours, in which a signal handler does not run at each step.
    """
    within = ["/jmsx/stores/", "/contextlib.py"]

    def do(store: MemoryStore) -> None:
        if batch:
            store.once_each([A, B], lambda _connection, new: new)
        else:
            store.once(A, lambda _connection: None)

    clean = Interrupt(within=within)
    clean.run(partial(do, MemoryStore()))
    assert clean.steps > 10
    for step in some(range(1, clean.steps + 1)):
        store = MemoryStore()
        with pytest.raises(Alarm) as interrupted:
            Interrupt(step, within=within).run(partial(do, store))
        if batch:
            del interrupted
            gc.collect()
        again = threading.Thread(target=do, args=(store,), daemon=True)
        again.start()
        again.join(10)
        assert not again.is_alive(), step


def test_others_are_done(store: IdempotencyStore, handler: Handler) -> None:
    """Another message, and the same one in another place."""
    elsewhere = StoreKey("queue://r", "a")
    assert [store.once(each, handler) for each in (A, B, elsewhere)] == [True, True, True]


@pytest.mark.parametrize("error", [ValueError("broken"), SystemExit(1)])
def test_what_failed_is_not_done(
    store: IdempotencyStore, handler: Handler, error: BaseException
) -> None:
    """It comes again, and is done then."""
    handler.error = error
    with pytest.raises(type(error)):
        store.once(A, handler)
    handler.error = None
    assert store.once(A, handler)
    assert not store.once(A, handler)


def test_keys_of_any_kind(store: IdempotencyStore, handler: Handler) -> None:
    """Long ones, and such with the marks of SQL in them."""
    for key in ("k" * 5000, "k" * 5000 + "x", "'; --", "%s", ":key", "{place}", "ключ"):
        assert store.once(StoreKey("queue://q", key), handler)
        assert not store.once(StoreKey("queue://q", key), handler)


# -- in memory --------------------------------------------------------------------------------------------------------


def test_memory_is_bounded(handler: Handler, clock: Clock) -> None:
    """What was not seen for the longest time is forgotten first."""
    store = MemoryStore(2, clock=clock)
    keys = [StoreKey("q", key) for key in "aabac"]
    assert [store.once(key, handler) for key in keys] == [True, False, True, False, True]
    assert store.once(StoreKey("q", "b"), handler)
    assert not store.once(StoreKey("q", "c"), handler)


def test_memory_has_an_age(handler: Handler, clock: Clock) -> None:
    """From when it was last seen."""
    store = MemoryStore(ttl=10.0, clock=clock)
    store.once(A, handler)
    clock.now += 10.0
    assert not store.once(A, handler)
    clock.now += 10.1
    assert store.once(A, handler)


@pytest.mark.parametrize("limits", [{"maximum": 0}, {"ttl": 0.0}, {"ttl": float("nan")}])
def test_limits_that_make_no_sense(limits: dict[str, Any]) -> None:
    """An error at the door."""
    with pytest.raises(ConfigurationError, match="must be more than 0"):
        MemoryStore(**limits)


@pytest.mark.parametrize(
    ("make", "complaint"),
    [
        (lambda: MemoryStore(cast("int", "x")), "maximum of a MemoryStore must be a number, not a"),
        (
            lambda: MemoryStore(ttl=cast("float", [])),
            "ttl of a MemoryStore must be a number, not a",
        ),
        (lambda: SqliteStore(cast("str", 5)), "path of an SqliteStore must be a path, not an int"),
        (
            lambda: DatabaseStore(cast("Any", "x.db")),
            "connect of a DatabaseStore must be a func.*, not a",
        ),
        (
            lambda: DatabaseStore(print, table=cast("str", 5)),
            "table of a DatabaseStore must be a str",
        ),
    ],
    ids=["maximum", "ttl", "path", "connect", "table"],
)
def test_what_a_store_is_made_of_is_of_the_wrong_type(
    make: Callable[[], object], complaint: str
) -> None:
    """A TypeError of Python's, or of the first message only."""
    with pytest.raises(ConfigurationError, match=complaint):
        make()


# -- in a file of ours ------------------------------------------------------------------------------------------------


def test_a_file_is_there_for_the_next_process(
    tmp_path: Path, handler: Handler, clock: Clock
) -> None:
    """Until it is too old."""
    for expected in (True, False):
        store = SqliteStore(tmp_path / "x.db", ttl=60.0, clock=clock)
        store.open()
        assert store.once(A, handler) is expected
        store.close()
    clock.now += 61.0
    store = SqliteStore(tmp_path / "x.db", ttl=60.0, clock=clock)
    store.open()
    assert store.once(A, handler)
    store.close()


def test_a_file_that_cannot_be_used(tmp_path: Path) -> None:
    """A clear error when the app starts."""
    with pytest.raises(StoreError, match=r"nowhere/x.db: unable to open .* a folder that exists"):
        SqliteStore(tmp_path / "nowhere" / "x.db").open()
    with pytest.raises(ConfigurationError, match="ttl must be more than 0"):
        SqliteStore(tmp_path / "x.db", ttl=0)


@pytest.mark.parametrize(
    ("ttl", "complaint"),
    [
        (-1, "ttl must be"),
        ("soon", "ttl='soon' is no duration"),
        (None, "ttl must be seconds, a timedelta"),
        (float("inf"), "ttl must be more than 0 s, and 4611686018427388 s at the most"),
    ],
)
def test_an_age_that_is_none(tmp_path: Path, ttl: Any, complaint: str) -> None:
    """Told at the door, of a store and of a ledger."""
    with pytest.raises(ConfigurationError, match=complaint):
        SqliteStore(tmp_path / "x.db", ttl=ttl)
    with pytest.raises(ConfigurationError, match=complaint.replace("ttl", "maximum_age")):
        DeliveryLedger(tmp_path / "y.db", maximum_age=ttl)


def test_ages_as_people_write_them(tmp_path: Path, clock: Clock, handler: Handler) -> None:
    """The same for all."""
    stores = (
        MemoryStore(ttl="1min", clock=clock),
        SqliteStore(tmp_path / "x.db", ttl="1min", clock=clock),
    )
    for store in stores:
        store.open()
        assert store.once(A, handler)
    clock.now += 61.0
    for store in stores:
        assert store.once(A, handler)
        store.close()


def test_a_file_of_another_version(tmp_path: Path) -> None:
    """A clear error at the door: later, messages could only become dead letters."""
    with contextlib.closing(sqlite3.connect(tmp_path / "x.db")) as connection:
        connection.execute("CREATE TABLE jmsx_done (place, done_ms)")
    with pytest.raises(StoreError, match="no such column: message_key; another version of jmsx"):
        SqliteStore(tmp_path / "x.db").open()


def drop_table(path: Path) -> None:
    """Another program spoils the file."""
    with contextlib.closing(sqlite3.connect(path)) as vandal:
        vandal.execute("DROP TABLE jmsx_done")


def test_a_file_that_cannot_be_read(
    tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    """Then nobody knows whether it was done, so it is not; the next try makes the table anew, and the log tells."""
    store = SqliteStore(tmp_path / "x.db")
    store.open()
    drop_table(tmp_path / "x.db")
    with pytest.raises(StoreError, match="nobody can tell whether a message is a duplicate"):
        store.once(A, handler)
    assert handler.calls == 0
    assert caplog.text.count("idempotency store was removed") == 1
    assert store.once(A, handler)
    assert booked(tmp_path / "x.db") == ["a"]
    store.close()


def test_a_table_that_is_dropped_while_a_handler_runs(tmp_path: Path) -> None:
    """What was done is acknowledged and known, and written with the next message."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    store.open()
    assert store.once(A, lambda _: drop_table(path))
    assert "no such table" in str(store.away)
    assert not store.once(A, lambda _: drop_table(path))
    assert store.away is None
    assert booked(path) == ["a"]
    store.close()


def booked(path: Path) -> list[str]:
    """The keys in a file."""
    with contextlib.closing(sqlite3.connect(path)) as connection:
        return [key for (key,) in connection.execute("SELECT message_key FROM jmsx_done")]


def holding(path: Path) -> sqlite3.Connection:
    """Another program that writes, and does not come to an end."""
    blocker = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    blocker.execute("BEGIN IMMEDIATE")
    return blocker


@pytest.mark.usefixtures("impatient")
def test_a_file_that_cannot_be_written(tmp_path: Path, handler: Handler) -> None:
    """What could not be remembered is not begun."""
    store = SqliteStore(tmp_path / "x.db")
    store.open()
    opened = store._file.connection
    blocker = holding(tmp_path / "x.db")
    with pytest.raises(StoreError, match="locked; another program holds it"):
        store.once(A, handler)
    assert handler.calls == 0
    assert store._file.connection is opened  # to open it anew would look through it for old rows
    assert store.away is None  # nothing waits to be written
    blocker.close()
    assert store.once(A, handler)
    store.close()


@pytest.mark.usefixtures("impatient")
def test_a_file_that_cannot_be_written_when_the_work_is_done(
    tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    """Its message may go and is known; nothing is begun until that is written, with the next message or at the end."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    for key, last in ((A, False), (B, True)):
        store.open()
        blockers: list[sqlite3.Connection] = []
        with caplog.at_level(logging.ERROR, "jmsx.stores"):
            assert store.once(key, lambda _: blockers.append(holding(path)))  # noqa: B023 - called before the next turn
        assert "in memory only, until it can be written" in caplog.text
        assert "locked" in str(store.away)
        for other in (A, B, StoreKey("queue://q", "c")):
            with pytest.raises(StoreError, match="locked"):
                store.once(other, handler)
        blockers.pop().close()
        if not last:
            assert not store.once(key, handler)
            assert store.away is None
            assert "idempotency store back" in caplog.text
        store.close()
        assert key.key in booked(path)
    assert handler.calls == 0


@pytest.mark.usefixtures("impatient")
def test_what_is_done_is_written_without_another_message(tmp_path: Path) -> None:
    """A moment after the file can be written again."""
    path, blockers = tmp_path / "x.db", list[sqlite3.Connection]()
    store = SqliteStore(path)
    store.open()
    assert store.once(A, lambda _: blockers.append(holding(path)))
    assert store.away is not None
    blockers.pop().close()
    until = time.monotonic() + 10
    while store.away is not None and time.monotonic() < until:
        time.sleep(0.05)
    assert booked(path) == ["a"]
    store.close()


@pytest.mark.usefixtures("impatient")
def test_what_cannot_be_written_at_the_end(
    tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    """It is told; this process knows it still."""
    path, blockers = tmp_path / "x.db", list[sqlite3.Connection]()
    store = SqliteStore(path)
    store.open()
    assert store.once(A, lambda _: blockers.append(holding(path)))
    store.close()
    assert "messages could be done again" in caplog.text
    blockers.pop().close()
    store.open()
    assert not store.once(A, handler)
    store.close()


def test_what_is_done_behind_the_end(
    tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture
) -> None:
    """By a handler that an app has given up: its message comes again, and is known then."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    store.open()
    assert store.once(A, lambda _: store.close())
    assert (booked(path), store.away, caplog.text) == (["a"], None, "")
    assert store._file.connection is None
    other = SqliteStore(path)
    other.open()
    assert not other.once(A, handler)
    other.close()


@pytest.mark.usefixtures("impatient")
def test_what_is_done_behind_the_end_and_cannot_be_written(tmp_path: Path) -> None:
    """It is written as soon as that can be, and then the file is closed."""
    path, blockers = tmp_path / "x.db", list[sqlite3.Connection]()
    store = SqliteStore(path)
    store.open()

    def work(_connection: object) -> None:
        store.close()
        blockers.append(holding(path))

    assert store.once(A, work)
    assert "locked" in str(store.away)
    blockers.pop().close()
    assert eventually(lambda: store.away is None)
    assert (booked(path), store._file.connection) == (["a"], None)


@pytest.mark.usefixtures("impatient")
def test_what_cannot_be_written_nor_get_a_thread(
    tmp_path: Path, handler: Handler, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is done all the same, and written with what comes next; it counted as a failure of the handler."""
    path, blockers = tmp_path / "x.db", list[sqlite3.Connection]()
    store = SqliteStore(path)
    store.open()

    def refused(_thread: threading.Thread) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        assert store.once(A, lambda _: blockers.append(holding(path)))
    assert "locked" in str(store.away)
    blockers.pop().close()
    assert not store.once(A, handler)
    assert (booked(path), store.away) == (["a"], None)
    store.close()


@pytest.mark.usefixtures("impatient")
def test_an_end_too_many(tmp_path: Path, handler: Handler) -> None:
    """By an app whose end a signal handler has interrupted, just behind it: another one goes on, and loses nothing."""
    path, blockers = tmp_path / "x.db", list[sqlite3.Connection]()
    store = SqliteStore(path)
    store.open()
    store.open()
    store.close()
    store.close()
    assert store.once(A, handler)
    assert store.once(B, lambda _: blockers.append(holding(path)))
    blockers.pop().close()
    store.close()
    assert booked(path) == ["a", "b"]


@pytest.mark.parametrize("left", [("-wal", "-shm"), ()])
def test_a_file_that_was_removed(
    tmp_path: Path, handler: Handler, caplog: pytest.LogCaptureFixture, left: tuple[str, ...]
) -> None:
    """It is made anew before anything else is done, also if it went in the middle; the log tells."""
    path = tmp_path / "x.db"
    store = SqliteStore(path)
    store.open()

    def remove() -> None:
        path.unlink()
        for suffix in {"-wal", "-shm"}.difference(left):
            path.with_name(f"{path.name}{suffix}").unlink()

    assert store.once(A, handler)
    remove()
    assert store.once(B, lambda _: remove())
    assert caplog.text.count("idempotency store was removed") == 2
    assert booked(path) == ["b"]
    assert not store.once(B, handler)
    store.close()


def test_a_folder_that_was_removed(tmp_path: Path, handler: Handler) -> None:
    """It is away until that is there again, and begins with what was done meanwhile."""
    path = tmp_path / "folder" / "x.db"
    path.parent.mkdir()
    store = SqliteStore(path)
    store.open()
    assert store.once(A, lambda _: shutil.rmtree(path.parent))
    assert "unable to open" in str(store.away)
    with pytest.raises(StoreError, match="unable to open"):
        store.once(B, handler)
    path.parent.mkdir()
    assert not store.once(A, handler)
    assert booked(path) == ["a"]
    assert store.once(B, handler)
    store.close()
