"""The delivery ledger on a real broker, with processes that die in their handlers."""

from __future__ import annotations

import signal
import sqlite3
import threading
from contextlib import ExitStack, closing
from typing import TYPE_CHECKING

import pytest

from jmsx import (
    AcknowledgeMode,
    Connection,
    DatabaseStore,
    MemoryStore,
    Message,
    Queue,
    RedeliveryPolicy,
)
from jmsx.app import App
from jmsx.errors import StoreError
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    connect,
    dead_copies,
    empties,
    fresh_queue,
    nothing_left,
    of_an_attempt_that_tells,
    put,
    settles,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker
    from jmsx_broker.statistics import BrowsedMessage

pytestmark = [pytest.mark.broker, pytest.mark.timeout(180)]

#: Consumes until it dies; a message "poison" kills it in its handler.
PROGRAM = """
import os, signal, sys
from jmsx import AcknowledgeMode, RedeliveryPolicy
from jmsx.app import App

url, queue, mode, limit, ledger, dlq = sys.argv[1:]
policy = RedeliveryPolicy(maximum_redeliveries=int(limit))
app = App(url, ledger=ledger, redelivery_policy=policy)

@app.consumer(queue, mode=AcknowledgeMode[mode], dead_letter=dlq)
def desk(message):
    print(message.text, message.delivery_count, message.redelivered, flush=True)
    if message.text == "poison":
        os.kill(os.getpid(), signal.SIGKILL)

app.run()
"""

#: Its messages wait before their handler: for a store, for the rest of a batch, or for their turn; unless it `goes_on`.
WAITS = """
import sqlite3, sys, time
from typing import Any
from jmsx import App, DatabaseStore, Message, RedeliveryPolicy

url, queue, what, ledger, shop, goes_on = sys.argv[1:]
app = App(url, ledger=ledger, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))
ready = False

def tell(line: str) -> None:
    sys.stdout.write(line + chr(10))
    sys.stdout.flush()

def connect() -> sqlite3.Connection:
    if ready and not goes_on:
        if what == "slow store":
            time.sleep(60)
        raise sqlite3.OperationalError("away")
    return sqlite3.connect(shop)

def each(message: Message) -> None:
    tell(f"{message.text} {message.delivery_count}")

def several(messages: list[Message]) -> None:
    for message in messages:
        each(message)

if what == "turn":
    app.consumer(queue, rate_limit="100/s" if goes_on else "1/min")(each)
elif what == "batch":
    app.consumer(queue, batch=2, batch_timeout="10ms" if goes_on else "60s")(several)
else:
    store = DatabaseStore(connect)
    store.create_table()
    app.consumer(queue, dedupe=store)(each)

with app:
    ready = True
    if not goes_on:
        for text in ("first", queue) if what == "turn" else (queue,):
            app.send(queue, text)
        tell("began")
    sys.stdin.read()
"""


def unsettled(path: Path) -> list[tuple[str, int]]:
    """What the ledger has, as another process sees it."""
    with closing(sqlite3.connect(path)) as connection:
        return connection.execute("SELECT place, deliveries FROM jmsx_deliveries").fetchall()


def keys(path: Path, *, finished: bool) -> set[str]:
    """The messages of the ledger all of whose deliveries were finished, or the others."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute("SELECT message_key, deliveries = finished FROM jmsx_deliveries")
        return {key for key, done in rows if bool(done) is finished}


def die(
    broker: Broker,
    queue: Queue,
    path: Path,
    *,
    mode: AcknowledgeMode,
    limit: int,
    dlq: str,
    flags: tuple[bool, ...] = (True,),
) -> None:
    """
    Let processes die of the message "poison", each after the other, as often as they may; the next one does the rest.

    Messages before it are done. Those behind it, prefetched by each that died, come for the first time, with one of
    `flags` of the broker's as redelivered. One that was done and acknowledged just before its process died may keep its
    row, which counts no failure: nobody was left to delete it.
    """
    command = ("-c", PROGRAM, broker.url, queue.uri, mode.name, str(limit), str(path), dlq)
    done: set[str] = set()
    for death in range(1, 2 + limit):
        with python(*command) as process:
            out, errors = process.communicate(timeout=60)
            assert process.returncode == -signal.SIGKILL, errors
            said = out.splitlines()
            assert said[-1] == f"poison {death} {death > 1}"
            assert len(said) <= 2
        assert (queue.uri, death) in unsettled(path)
        done |= keys(path, finished=True)
    with python(*command) as process:
        lines = [read_line(process)]
        while not lines[-1].startswith("after"):
            lines.append(read_line(process))
        assert lines[-1] in [f"after 1 {flag}" for flag in flags]
        assert not [line for line in lines if line.startswith("poison")]
        process.send_signal(signal.SIGTERM)
        assert process.wait(30) == 0, process.communicate()
    assert settles(broker, queue, size=0)
    assert keys(path, finished=False) == set()
    assert keys(path, finished=True) <= done


@pytest.mark.parametrize(
    ("mode", "limit"), [(AUTO, 3), (TRANSACTED, 1), (CLIENT, 1), (INDIVIDUAL, 0)]
)
def test_a_message_that_kills_its_process_is_a_dead_letter(
    classic_broker: Broker, tmp_path: Path, mode: AcknowledgeMode, limit: int
) -> None:
    """After exactly 1 + maximum_redeliveries deaths, each of another process, in every mode."""
    queue = fresh_queue()
    put(classic_broker, queue, "before", "poison", "after", case=queue.name)
    die(classic_broker, queue, tmp_path / "x.db", mode=mode, limit=limit, dlq="safe")
    (copy,) = dead_copies(classic_broker, queue.name)
    assert copy["case"] == queue.name


def test_a_message_that_kills_its_process_on_artemis(
    artemis_broker: Broker, tmp_path: Path
) -> None:
    """As on Classic; the copy says why."""
    paths = iter([tmp_path / "1.db", tmp_path / "2.db", tmp_path / "3.db"])

    def attempt() -> BrowsedMessage:
        queue, dlq = fresh_queue(), fresh_queue()
        with Connection(artemis_broker.url) as connection:
            producer = connection.create_session().create_producer(queue)
            for text in ("before", "poison", "after"):
                producer.send(Message(text))
        # Artemis flags the oldest message of a consumer that died, or all
        flags = (True, False)
        die(artemis_broker, queue, next(paths), mode=AUTO, limit=1, dlq=dlq.uri, flags=flags)
        (copy,) = artemis_broker.browse(dlq.name)
        return copy

    copy = of_an_attempt_that_tells(attempt)
    assert copy.body == b"poison"
    assert copy.headers["jmsx_exception"] == "ConsumerDied"
    assert copy.headers["jmsx_delivery_count"] == "2"


def test_a_ledger_that_is_locked_is_waited_for(classic_broker: Broker, tmp_path: Path) -> None:
    """By all workers; nothing is handed out uncounted, and nothing is left behind."""
    queue, path = fresh_queue(), tmp_path / "ledger.db"
    app = App(f"{classic_broker.url}?jmsx.ledger={path}")
    seen: list[str] = []
    first, last = threading.Event(), threading.Event()

    @app.consumer(queue, concurrency=2)
    def desk(message: Message) -> None:
        seen.append(message.text)
        first.set()
        if len(seen) == 21:
            last.set()

    put(classic_broker, queue, "first")
    with nothing_left(), app:
        assert first.wait(5)
        with closing(sqlite3.connect(path, isolation_level=None)) as blocker:
            blocker.execute("BEGIN EXCLUSIVE")
            put(classic_broker, queue, *map(str, range(20)))
            assert not last.wait(1.5)
            assert seen == ["first"]
        assert last.wait(10)
        assert settles(classic_broker, queue, size=0)


def test_a_ledger_that_cannot_be_opened_is_an_error_at_the_door(
    classic_broker: Broker, tmp_path: Path
) -> None:
    """It names the file, and nothing is left open."""
    with (
        nothing_left(),
        Connection(classic_broker.url, ledger=tmp_path / "no" / "x") as connection,
        pytest.raises(StoreError, match="no/x: unable to open"),
    ):
        connection.create_session()


@pytest.mark.parametrize("mode", [CLIENT, INDIVIDUAL])
def test_links_that_are_lost_bury_nothing_that_is_held(
    broker: Broker, tmp_path: Path, mode: AcknowledgeMode
) -> None:
    """Its process lives, and nothing has failed; with one attempt all told it was a dead letter at the first cut."""
    once = RedeliveryPolicy(maximum_redeliveries=0)

    def attempt() -> list[tuple[str, int]]:
        queue, path = fresh_queue(), tmp_path / f"{fresh_queue().name}.db"
        came: list[tuple[str, int]] = []
        with App(broker.url) as sender:
            for text in "ab":
                sender.send(queue, text, properties={"case": queue.uri, "text": text})
        with (
            Proxy(broker.url) as proxy,
            connect(proxy, ledger=path, redelivery_policy=once) as connection,
        ):
            consumer = connection.create_session(mode).create_consumer(queue)
            for left in (2, 1, 0):
                held = [one for one in (consumer.receive(10), consumer.receive(10)) if one]
                came += [(one.text, one.delivery_count) for one in held]
                if left:
                    proxy.cut()
            for one in held:
                one.acknowledge()
        assert settles(broker, queue, size=0)
        assert dead_copies(broker, queue.uri) == []
        return came

    wanted = [(text, count) for count in (1, 2, 3) for text in "ab"]
    assert of_an_attempt_that_tells(attempt) == wanted


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL])
def test_what_was_done_is_no_dead_letter_because_others_died_with_it(
    broker: Broker, tmp_path: Path, mode: AcknowledgeMode
) -> None:
    """The acknowledgement of who has done it got lost, and it comes back to him, over its limit by then."""
    once = RedeliveryPolicy(maximum_redeliveries=0)

    def attempt() -> None:
        queue, calls = fresh_queue(), list[str]()
        path = tmp_path / f"{queue.name}.db"
        killer = (
            "-c",
            PROGRAM,
            broker.url,
            queue.uri,
            mode.name,
            "0",
            str(path),
            "queue://elsewhere",
        )
        with Proxy(broker.url) as proxy, ExitStack() as away:
            url = f"failover:({proxy.url})?initialReconnectDelay=100&useExponentialBackOff=false"
            app = App(url, ledger=path, redelivery_policy=once)

            @app.consumer(queue, mode=mode, dedupe=MemoryStore())
            def work(message: Message) -> None:
                calls.append(message.text)
                away.enter_context(proxy.closed())

            with app:
                with App(broker.url) as sender:
                    sender.send(queue, "poison", properties={"case": queue.uri})
                assert eventually(lambda: bool(calls), 10)
                with python(*killer) as process:
                    _, errors = process.communicate(timeout=60)
                    assert process.returncode == -signal.SIGKILL, errors
                away.close()
                settled = empties(broker, queue)
        assert settles(broker, queue, size=0)
        assert settled
        assert calls == ["poison"]
        assert dead_copies(broker, queue.uri) == []

    of_an_attempt_that_tells(attempt)


@pytest.mark.parametrize("what", ["store away", "slow store", "batch", "turn"])
def test_what_waits_before_its_handler_is_no_delivery_of_a_killed_process(
    broker: Broker, tmp_path: Path, what: str
) -> None:
    """It was handed out, and nobody has seen it; then it is handled, at the first attempt, and is no dead letter."""

    def attempt() -> None:
        queue = fresh_queue()
        path, shop = (tmp_path / f"{queue.name}{end}" for end in (".db", "-shop.db"))
        arguments = (broker.url, queue.uri, what, str(path), str(shop))
        with python("-c", WAITS, *arguments, "") as process:
            # of two, the first need not wait
            said = {read_line(process) for _ in range(1 + (what == "turn"))}
            assert said <= {"began", "first 1"}
            assert eventually(lambda: (queue.uri, 1) in unsettled(path), 10)
            process.kill()
        with python("-c", WAITS, *arguments, "yes") as process:
            settled = empties(broker, queue)
            told, errors = process.communicate(timeout=30)
        assert settles(broker, queue, size=0)
        assert settled, errors
        # the first may have been handled, and its process have taken its ACK along
        assert told.splitlines() in ([f"{queue.uri} 1"], ["first 2", f"{queue.uri} 1"])
        assert dead_copies(broker, queue.uri) == []

    of_an_attempt_that_tells(attempt)


#: Kills itself when its last attempt has been committed to the database, and before its message is acknowledged.
DONE = """
import os, signal, sqlite3, sys
from jmsx import App, BatchError, DatabaseStore, Message, RedeliveryPolicy

url, queue, mode, batch, ledger, shop, goes_on = sys.argv[1:]
app = App(url, ledger=ledger, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))

class Fatal(sqlite3.Connection):
    def commit(self) -> None:
        rows = self.total_changes
        super().commit()
        if rows and not goes_on:
            os.kill(os.getpid(), signal.SIGKILL)

def book(given: Message | list[Message], *, db: sqlite3.Connection) -> None:
    for message in given if isinstance(given, list) else [given]:
        db.execute("INSERT INTO booked VALUES (?)", (message.text,))

def one(message: Message, *, db: sqlite3.Connection) -> None:
    book(message, db=db)

def several(messages: list[Message], *, db: sqlite3.Connection) -> None:
    book(messages, db=db)

store = DatabaseStore(lambda: sqlite3.connect(shop, factory=Fatal))
if batch:
    app.consumer(queue, mode=mode, dedupe=store, batch=2, batch_timeout="50ms")(several)
else:
    app.consumer(queue, mode=mode, dedupe=store)(one)
app.run()
"""


@pytest.mark.parametrize("batch", ["", "batch"])
@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
def test_what_a_store_has_done_is_no_dead_letter(
    broker: Broker, tmp_path: Path, mode: str, batch: str
) -> None:
    """Though the process died at the last attempt before it could acknowledge: the store knows the message."""

    def attempt() -> None:
        queue = fresh_queue()
        ledger, shop = (tmp_path / f"{queue.name}{end}" for end in (".db", "-shop.db"))
        with closing(sqlite3.connect(shop)) as database:
            database.execute("CREATE TABLE booked (text TEXT)")
            DatabaseStore(lambda: sqlite3.connect(shop)).create_table()
        with App(broker.url) as sender:
            for text in "ab":
                sender.send(queue, text, properties={"case": queue.uri})
        arguments = (broker.url, queue.uri, mode, batch, str(ledger), str(shop))
        for _ in range(1 if batch else 2):
            with python("-c", DONE, *arguments, "") as process:
                assert process.wait(30) == -signal.SIGKILL
        with python("-c", DONE, *arguments, "yes"):
            settled = empties(broker, queue)
        assert settles(broker, queue, size=0)
        assert settled
        assert dead_copies(broker, queue.uri) == []
        with closing(sqlite3.connect(shop)) as database:
            assert sorted(database.execute("SELECT text FROM booked")) == [("a",), ("b",)]

    of_an_attempt_that_tells(attempt)


#: Kills itself when a store knows what succeeded of a batch at its last attempt, and before that is acknowledged.
IN_PART = """
import os, signal, sys
from jmsx import App, BatchError, Message, RedeliveryPolicy, SqliteStore

url, queue, mode, ledger, shop, goes_on = sys.argv[1:]
app = App(url, ledger=ledger, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))

class Fatal(SqliteStore):
    def once_each(self, identities, handle):
        super().once_each(identities, handle)
        if not goes_on:
            os.kill(os.getpid(), signal.SIGKILL)

@app.consumer(queue, mode=mode, dedupe=Fatal(shop), batch=2, batch_timeout="1s")
def several(messages: list[Message]) -> None:
    raise BatchError({one: ValueError("no") for one in messages if one.text == "b"})

app.run()
"""


@pytest.mark.parametrize("mode", ["auto", "individual"])
def test_nor_is_what_has_succeeded_of_a_batch(broker: Broker, tmp_path: Path, mode: str) -> None:
    """Where the handler has told that the other message failed."""

    def attempt() -> None:
        queue = fresh_queue()
        ledger, shop = (tmp_path / f"{queue.name}{end}" for end in (".db", "-shop.db"))
        with App(broker.url) as sender:
            for text in "ab":
                sender.send(queue, text, properties={"case": queue.uri, "text": text})
        arguments = (broker.url, queue.uri, mode, str(ledger), str(shop))
        with python("-c", IN_PART, *arguments, "") as process:
            assert process.wait(30) == -signal.SIGKILL
        with python("-c", IN_PART, *arguments, "yes"):
            settled = empties(broker, queue)
        assert settles(broker, queue, size=0)
        assert settled
        assert [one["text"] for one in dead_copies(broker, queue.uri)] == ["b"]

    of_an_attempt_that_tells(attempt)
