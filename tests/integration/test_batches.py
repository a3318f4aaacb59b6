"""Handlers of batches on real brokers: what is settled together, what comes again, and what a crash leaves."""

from __future__ import annotations

import signal
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    BatchError,
    ConfigurationError,
    Connection,
    DatabaseStore,
    DrainError,
    MemoryStore,
    Message,
    RedeliveryPolicy,
    Reject,
    Retry,
    SqliteStore,
)
from jmsx.app import App
from jmsx.core.events import Outcome
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    AUTO,
    QUICK,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    of_an_attempt_that_tells,
    put,
    rest,
    settles,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jmsx import AcknowledgeMode, Queue, Session
    from jmsx.stores import IdempotencyStore
    from jmsx_broker import Broker, ClassicBroker
    from tests.integration.proxy import Proxy

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

BOTH = pytest.mark.parametrize("mode", [AUTO, TRANSACTED])


class Seen:
    """What handlers got."""

    def __init__(self) -> None:
        self.batches: list[list[str]] = []

    def note(self, messages: list[Message]) -> list[str]:
        """One call; its texts."""
        self.batches.append([message.text for message in messages])
        return self.batches[-1]

    @property
    def texts(self) -> Counter[str]:
        """How often each came."""
        return Counter(text for batch in self.batches for text in batch)


def fill(broker: Broker, queue: Queue, *texts: str) -> None:
    """Send texts that both kinds of brokers put into the queue."""
    with Connection(broker.url) as connection:
        session = connection.create_session(TRANSACTED)
        producer = session.create_producer(queue)
        for text in texts:
            producer.send(text)
        session.commit()


def stop_inside(app: App, began: threading.Event, free: threading.Event) -> None:
    """Run the app, and tell it to stop when its handler has `began`, which is `free` to go on then."""
    with nothing_left():
        app.start()
        assert began.wait(5)
        stop = Call(app.stop)
        free.set()
        assert stop.join(10).error is None


def numbers(count: int) -> list[str]:
    """Texts."""
    return [str(number) for number in range(count)]


@BOTH
def test_messages_come_in_batches(broker: Broker, queue: Queue, mode: AcknowledgeMode) -> None:
    """Full ones while there are enough, and what is left when its time is over; each message once, in order."""
    seen, diary = Seen(), Diary()
    app = App(broker.url, observers=[diary])

    @app.consumer(queue, batch=100, batch_timeout="2s", mode=mode)  # a busy broker takes its time
    def store(messages: list[Message]) -> None:
        seen.note(messages)

    fill(broker, queue, *numbers(250))
    with nothing_left(), app:
        assert settles(broker, queue, size=0)
    assert [len(batch) for batch in seen.batches] == [100, 100, 50]
    assert [text for batch in seen.batches for text in batch] == numbers(250)
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED if mode is AUTO else Outcome.COMMITTED: 250}


@BOTH
def test_a_backlog_that_no_window_holds(broker: Broker, mode: AcknowledgeMode) -> None:
    """A batch as large as the prefetch is filled, however the broker pages its backlog in."""
    queue, seen = fresh_queue(), Seen()
    app = App(broker.url)

    @app.consumer(queue, batch=600, prefetch=600, batch_timeout=20.0, mode=mode)
    def store(messages: list[Message]) -> None:
        seen.note(messages)

    fill(broker, queue, *numbers(1200))
    began = time.monotonic()
    with app:
        assert settles(broker, queue, size=0) or settles(broker, queue, size=0)
    assert [len(batch) for batch in seen.batches] == [600, 600]
    assert time.monotonic() - began < 15.0


@BOTH
def test_poison_in_a_batch(broker: Broker, queue: Queue, mode: AcknowledgeMode) -> None:
    """Nobody knows which message it was: they come again one by one, and only the poison is a dead letter."""
    seen, diary = Seen(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    @app.consumer(queue, batch=10, batch_timeout=0.2, mode=mode, name="desk")
    def store(messages: list[Message]) -> None:
        if "poison" in seen.note(messages):
            raise ValueError

    texts = [*numbers(3), "poison", *numbers(9)[4:]]
    fill(broker, queue, *texts, "later")
    with nothing_left(), app:
        assert settles(broker, queue, size=0)
    assert seen.batches[0] == [*texts, "later"]
    assert {len(batch) for batch in seen.batches[1:]} == {1}
    assert seen.texts == {**dict.fromkeys([*texts, "later"], 2), "poison": 3}
    assert [(one.attempts, one.reason) for one in diary.dead()] == [(3, "max_redeliveries")]
    assert diary.dead()[0].error_type == "ValueError"


def test_only_those_that_failed_come_again(broker: Broker, queue: Queue) -> None:
    """Each by what its own failure says; the others are acknowledged."""
    seen, diary = Seen(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    @app.consumer(queue, batch=10, batch_timeout=0.2, give_up_on=KeyError)
    def store(messages: list[Message]) -> None:
        seen.note(messages)
        reasons: dict[str, BaseException] = {
            "never": Reject("no"),
            "hopeless": KeyError("hopeless"),
            "later": Retry(delay=0.3),
            "bad": ValueError("bad"),
        }
        failed = {
            one: reasons[one.text]
            for one in messages
            if one.text in reasons and one.delivery_count == 1
        }
        if failed:
            raise BatchError(failed)

    texts = ["a", "never", "bad", "b", "hopeless", "later", "c"]
    fill(broker, queue, *texts)
    with nothing_left(), app:
        assert settles(broker, queue, size=0)
    assert seen.batches == [texts, ["bad"], ["later"]]
    assert diary.outcomes() == {
        Outcome.ACKNOWLEDGED: 5,
        Outcome.ROLLED_BACK: 2,
        Outcome.DEAD_LETTERED: 2,
    }
    assert Counter(one.error_type for one in diary.dead()) == {"Reject": 1, "KeyError": 1}


def test_part_of_a_transaction_fails(broker: Broker, queue: Queue) -> None:
    """Nothing of it is done or sent; the others go again without those that failed, and their attempts are whole."""
    seen, out = Seen(), fresh_queue()
    counts: dict[str, list[int]] = {}
    app = App(broker.url, redelivery_policy=QUICK)

    @app.consumer(queue, batch=10, batch_timeout=0.2, mode=TRANSACTED)
    def move(messages: list[Message], session: Session) -> None:
        producer = session.create_producer(out)
        for message in messages:
            counts.setdefault(message.text, []).append(message.delivery_count)
            producer.send(message.text)
            app.send(out, f"{message.text} too")
        seen.note(messages)
        bad = [one for one in messages if one.text == "bad" and one.delivery_count == 1]
        if bad:
            raise BatchError(bad) from ValueError("bad")

    fill(broker, queue, "a", "bad", "b", "c")
    with nothing_left(), app:
        assert settles(broker, queue, size=0)
    assert seen.batches == [["a", "bad", "b", "c"], ["a"], ["bad"], ["b", "c"]]
    assert counts == {"a": [1, 2], "bad": [1, 2], "b": [1, 2], "c": [1, 2]}
    assert sorted(bodies(broker, out)) == sorted(
        text for name in ("a", "bad", "b", "c") for text in (name, f"{name} too")
    )


@BOTH
def test_an_error_that_names_no_message_of_the_batch(
    broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """Fails all of it: nothing is taken for done that the handler did not vouch for."""
    seen, kept = Seen(), list[Message]()
    app = App(broker.url, redelivery_policy=QUICK)

    @app.consumer(queue, batch=2, batch_timeout=0.2, mode=mode)
    def store(messages: list[Message]) -> None:
        seen.note(messages)
        kept.extend(messages)
        if len(messages) > 1:
            raise BatchError(Message("another") for _ in "x")
        if len(kept) == 3:
            raise BatchError(kept[:1])

    fill(broker, queue, "a", "b")
    with app:
        assert settles(broker, queue, size=0)
    assert seen.batches == [["a", "b"], ["a"], ["a"], ["b"]]


@BOTH
def test_draining_with_a_batch_that_is_not_full(
    broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """It is handled as it is, at once, and what nobody has taken goes back."""
    seen = Seen()
    app = App(broker.url)

    @app.consumer(queue, batch=10, batch_timeout=3600.0, mode=mode)
    def store(messages: list[Message]) -> None:
        seen.note(messages)

    fill(broker, queue, "a", "b", "c")
    with nothing_left():
        app.start()
        assert eventually(lambda: broker.statistics(queue.name).inflight_count == 3)
        assert not seen.batches
        began = time.monotonic()
        app.stop()
        assert time.monotonic() - began < 5.0
    assert seen.texts in ({}, {"a": 1, "b": 1, "c": 1})
    assert sorted([*seen.texts, *rest(broker, queue)]) == ["a", "b", "c"]


@BOTH
def test_a_handler_that_is_late_for_the_drain(
    broker: Broker, queue: Queue, mode: AcknowledgeMode
) -> None:
    """Its whole batch comes again."""
    began, free = threading.Event(), threading.Event()
    app = App(broker.url)

    @app.consumer(queue, batch=3, batch_timeout=0.5, mode=mode, name="late")
    def store(_messages: list[Message]) -> None:
        began.set()
        free.wait(20)

    fill(broker, queue, "a", "b", "c", "d")
    app.start()
    assert began.wait(5)
    with pytest.raises(DrainError, match="handler of late still ran"):
        app.stop(0.5)
    free.set()
    assert sorted(rest(broker, queue)) == ["a", "b", "c", "d"]


@BOTH
def test_a_crash_before_the_batch_is_settled(broker: Broker, mode: AcknowledgeMode) -> None:
    """All of it comes again: nothing was acknowledged before the handler had returned."""

    def attempt() -> dict[str, int]:
        queue = fresh_queue()
        fill(broker, queue, *numbers(20))
        program = f"""
import time
from jmsx import App
app = App({broker.url!r})
@app.consumer({queue.uri!r}, batch=20, batch_timeout=5.0, mode={mode.label!r})
def store(messages):
    print(len(messages), flush=True)
    time.sleep(60)
app.run()
"""
        with python("-c", program) as process:
            assert read_line(process) == "20"
            process.send_signal(signal.SIGKILL)
            process.wait()
        seen = Seen()
        app = App(broker.url)

        @app.consumer(queue, batch=20, batch_timeout=1.0, mode=mode)
        def store(messages: list[Message]) -> None:
            seen.note(messages)

        with app:
            eventually(lambda: broker.statistics(queue.name).size == 0, 10)
        assert settles(broker, queue, size=0)
        return seen.texts

    assert of_an_attempt_that_tells(attempt) == dict.fromkeys(numbers(20), 1)


def test_a_link_that_is_lost_while_a_batch_is_filled(
    classic_broker: ClassicBroker, proxy: Proxy, queue: Queue
) -> None:
    """What was taken on it comes again on the next one; no handler gets what cannot be settled any more."""
    seen = Seen()
    app = App(proxy.url)

    @app.consumer(queue, batch=4, batch_timeout=1.0)
    def store(messages: list[Message]) -> None:
        seen.note(messages)

    put(classic_broker, queue, "a", "b")
    with nothing_left(), app:
        assert eventually(lambda: classic_broker.statistics(queue.name).inflight_count == 2)
        proxy.cut()
        put(classic_broker, queue, "c", "d")
        assert settles(classic_broker, queue, size=0)
    assert seen.texts == dict.fromkeys("abcd", 1)


def stores(folder: Path) -> dict[str, IdempotencyStore]:
    """One of each kind."""
    database = DatabaseStore(lambda: sqlite3.connect(folder / "shop.db"))
    database.create_table()
    return {
        "memory": MemoryStore(),
        "sqlite": SqliteStore(folder / "done.db"),
        "database": database,
    }


@pytest.mark.parametrize("change", [list.clear, lambda taken: taken.append(Message("of its own"))])
def test_a_handler_that_changes_its_list(
    broker: Broker, tmp_path: Path, change: Callable[[Any], object]
) -> None:
    """What has come is done, with a store and a ledger, too."""
    queue, diary, seen = fresh_queue(), Diary(), Seen()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK, ledger=tmp_path / "ledger")

    @app.consumer(queue, batch=3, batch_timeout=0.2, dedupe=MemoryStore())
    def handle(taken: list[Message]) -> None:
        seen.note(taken)
        change(taken)

    fill(broker, queue, *"123")
    with app:
        assert settles(broker, queue, size=0)
    assert seen.texts == Counter("123")
    assert diary.dead() == []


@pytest.mark.parametrize("kind", ["memory", "sqlite", "database"])
def test_duplicates_in_batches(classic_broker: Broker, tmp_path: Path, kind: str) -> None:
    """Those of an earlier batch are left out, those of the same one wait for it; what failed is not known as done."""
    queue, seen, diary = fresh_queue(), Seen(), Diary()
    app = App(classic_broker.url, observers=[diary], redelivery_policy=QUICK)

    @app.consumer(queue, batch=3, batch_timeout=0.2, dedupe=stores(tmp_path)[kind])
    def store(messages: list[Message]) -> None:
        seen.note(messages)
        bad = [one for one in messages if one.text == "bad" and one.delivery_count == 1]
        if bad:
            raise BatchError(bad)

    for text in ("a", "a", "bad", "a", "b", "bad"):
        put(classic_broker, queue, text, key=text)
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    done_again = {"a": 2} if kind == "database" else {}  # its transaction was rolled back
    assert seen.texts == {"a": 1, "b": 1, "bad": 2} | done_again
    assert diary.outcomes()[Outcome.DUPLICATE] == 3


def test_a_batch_and_its_database_transaction(classic_broker: Broker, tmp_path: Path) -> None:
    """What the handler writes and what is known as done are committed together, or rolled back together."""
    queue, file = fresh_queue(), tmp_path / "shop.db"
    store = DatabaseStore(lambda: sqlite3.connect(file))
    store.create_table()
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("CREATE TABLE lines (text TEXT)")
    app = App(classic_broker.url, redelivery_policy=QUICK)

    @app.consumer(queue, batch=5, batch_timeout=0.2, dedupe=store)
    def book(messages: list[Message], *, db: sqlite3.Connection) -> None:
        db.executemany("INSERT INTO lines VALUES (?)", [(one.text,) for one in messages])
        if any(one.text == "bad" and one.delivery_count == 1 for one in messages):
            raise ValueError

    put(classic_broker, queue, "a", "b", "bad", "c")
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    with closing(sqlite3.connect(file)) as connection:
        lines = [text for (text,) in connection.execute("SELECT text FROM lines")]
        rows = connection.execute("SELECT count(*) FROM jmsx_done").fetchone()
    assert sorted(lines) == ["a", "b", "bad", "c"]
    assert rows == (4,)


def test_a_store_that_is_away_is_waited_for(classic_broker: Broker, tmp_path: Path) -> None:
    """It is no failure of the batch; a drain gives the batch back as it was."""
    queue, seen = fresh_queue(), Seen()
    away = threading.Event()
    away.set()

    def connect() -> sqlite3.Connection:
        if away.is_set():
            raise sqlite3.OperationalError("no route to the database")
        return sqlite3.connect(tmp_path / "shop.db")

    store = DatabaseStore(connect)
    away.clear()
    store.create_table()
    app = App(classic_broker.url, redelivery_policy=QUICK)

    @app.consumer(queue, batch=3, batch_timeout=0.2, dedupe=store)
    def book(messages: list[Message]) -> None:
        seen.note(messages)

    with nothing_left():
        app.start()
        away.set()
        put(classic_broker, queue, "a", "b", "c")
        assert eventually(lambda: "store, which is away" in str(app.ready().body))
        app.stop()
    assert not seen.batches
    assert rest(classic_broker, queue) == ["a", "b", "c"]


def test_a_handler_that_has_not_run(classic_broker: Broker, queue: Queue) -> None:
    """What returns a coroutine has done nothing: the whole batch is dead, and says why."""

    async def later(_messages: list[Message]) -> None:
        pass

    def store(messages: list[Message]) -> Any:
        return later(messages)

    diary = Diary()
    app = App(classic_broker.url, observers=[diary])
    app.consumer(queue, batch=2)(store)
    put(classic_broker, queue, "a", "b")
    with app:
        assert settles(classic_broker, queue, size=0)
    assert [one.reason for one in diary.dead()] == ["rejected", "rejected"]


def test_a_window_that_no_batch_fits_into(classic_broker: Broker, queue: Queue) -> None:
    """Whoever chose it: it is an error at the door, or when the app starts."""
    app = App(f"{classic_broker.url}?jms.prefetchPolicy.queuePrefetch=10")

    @app.consumer(queue, batch=11)
    def store(_messages: list[Message]) -> None:
        pass

    with pytest.raises(ConfigurationError, match="prefetch=10 is less than batch=11"):
        app.start()
    app.abort()


def test_what_fails_while_it_drains(classic_broker: Broker, queue: Queue) -> None:
    """A batch that raises after the app was told to stop goes back whole."""
    began, free = threading.Event(), threading.Event()
    app = App(classic_broker.url, redelivery_policy=RedeliveryPolicy())

    @app.consumer(queue, batch=2, batch_timeout=0.5)
    def store(_messages: list[Message]) -> None:
        began.set()
        free.wait(20)
        raise ValueError

    put(classic_broker, queue, "a", "b")
    stop_inside(app, began, free)
    assert rest(classic_broker, queue) == ["a", "b"]


def test_the_others_of_a_failed_transaction_are_done_before_the_end(
    broker: Broker, queue: Queue
) -> None:
    """Its dead letters are acknowledged behind them: given back, they and those would come again."""
    began, free, seen, dead = threading.Event(), threading.Event(), Seen(), fresh_queue()
    app = App(broker.url, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))

    @app.consumer(queue, mode=TRANSACTED, batch=7, dead_letter=dead.uri)
    def store(messages: list[Message]) -> None:
        texts = seen.note(messages)
        began.set()
        free.wait(20)
        if "2" in texts:
            raise BatchError([message for message in messages if int(message.text) % 2 == 0])

    fill(broker, queue, *numbers(7))
    stop_inside(app, began, free)
    assert seen.batches == [numbers(7), ["1", "3", "5"]]
    assert sorted(bodies(broker, dead)) == ["0", "2", "4", "6"]
    assert rest(broker, queue) == []
