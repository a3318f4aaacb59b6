"""`app.send()` inside a handler: in a transacted one it is part of the transaction, on both brokers."""

from __future__ import annotations

import asyncio
import sqlite3
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx import Discard, Message, RedeliveryPolicy, Session
from jmsx.app import App
from jmsx.errors import JmsxError, UnsupportedError
from jmsx.stores import DatabaseStore, MemoryStore, SqliteStore
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually
from tests.integration.support import (
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    send_to_the_dead,
    settles,
)

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

QUICK = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.02, redelivery_delay=0.02
)


def test_in_a_transacted_handler(broker: Broker) -> None:
    """What raises has sent nothing, what returns has sent each message once, in order; nested calls, too."""
    queue, out, diary = fresh_queue(), fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    def forward(text: str) -> None:
        app.send(out, text)

    @app.consumer(queue, mode=TRANSACTED)
    def move(message: Message) -> None:
        forward(f"{message.text} 1")
        app.send(out, f"{message.text} 2")
        if message.text == "poison" or (message.text == "twice" and message.delivery_count == 1):
            raise ValueError(message.text)
        if message.text == "discard":
            raise Discard

    with app:
        for text in ("a", "twice", "poison", "discard", "b"):
            app.send(queue, text)
        assert eventually(lambda: len(diary.dead()) == 1, 10)
        assert settles(broker, queue, size=0)
    assert bodies(broker, out) == ["a 1", "a 2", "twice 1", "twice 2", "b 1", "b 2"]


def test_by_an_event_loop_of_the_handlers_own(broker: Broker) -> None:
    """What a plain handler sends with `asyncio.run` is part of its transaction, too; a thread of its own is outside."""
    queue, out = fresh_queue(), fresh_queue()
    app = App(broker.url, redelivery_policy=QUICK)
    done = threading.Event()

    @app.consumer(queue, mode=TRANSACTED)
    def move(message: Message) -> None:
        count = message.delivery_count

        async def work() -> None:
            await app.asend(out, f"awaited {count}")
            async with asyncio.TaskGroup() as group:
                group.create_task(app.asend(out, f"in a group {count}"))

        asyncio.run(work())
        outside = threading.Thread(target=app.send, args=(out, f"outside {count}"))
        outside.start()
        outside.join()
        if count < 3:
            raise ValueError
        done.set()

    with app:
        app.send(queue, "a")
        assert done.wait(10)
    sent = ["awaited 3", "in a group 3", "outside 1", "outside 2", "outside 3"]
    assert sorted(bodies(broker, out)) == sent


def test_from_elsewhere(broker: Broker) -> None:
    """A thread that the handler starts, another app, and the other modes send at once."""
    queue, plain, out = fresh_queue(), fresh_queue(), fresh_queue()
    app = App(broker.url, redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))
    other, diary = App(broker.url), Diary()
    app.observe(diary)

    @app.consumer(queue, mode=TRANSACTED)
    def move(_message: Message) -> None:
        app.send(out, "inside")
        thread = threading.Thread(target=app.send, args=(out, "thread"))
        thread.start()
        thread.join()
        other.send(out, "other")
        raise ValueError

    @app.consumer(plain)
    def auto(_message: Message) -> None:
        app.send(out, "auto")
        raise ValueError

    with other, app:
        app.send(queue, "x")
        app.send(plain, "x")
        assert eventually(lambda: len(diary.dead()) == 2, 10)
    assert sorted(bodies(broker, out)) == ["auto", "other", "thread"]


@pytest.mark.parametrize("in_file", [True, False])
def test_with_a_store_that_is_told_afterwards(
    broker: Broker, tmp_path: Path, *, in_file: bool
) -> None:
    """Committed, then known as done: a failed attempt sends nothing, and a repetition is not handled again."""
    queue, out, diary = fresh_queue(), fresh_queue(), Diary()
    store = SqliteStore(tmp_path / "done.db") if in_file else MemoryStore()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)
    calls: list[str] = []

    @app.consumer(
        queue,
        mode=TRANSACTED,
        dedupe=store,
        dedupe_by=lambda each: each.text,
        give_up_on=(KeyError,),
    )
    def move(message: Message) -> None:
        calls.append(message.text)
        app.send(out, message.text)
        if message.text == "hopeless":
            raise KeyError
        if calls == ["a"]:
            raise ValueError

    with app:
        for text in ("a", "hopeless", "a", "b"):
            app.send(queue, text)
        # Before a broker has counted what was sent, its queue is empty, too.
        assert eventually(lambda: len(calls) == 4, 10)
        assert settles(broker, queue, size=0)
    assert calls == ["a", "a", "hopeless", "b"]
    assert bodies(broker, out) == ["a", "b"]
    assert len(diary.dead()) == 1


def test_a_commit_that_is_refused_is_not_done(classic_broker: Broker) -> None:
    """The store does not know the message, whose next attempt is handled; nor is the refusal the handler's error."""
    queue, out, diary = fresh_queue(), fresh_queue(), Diary()
    app = App(classic_broker.url, observers=[diary], redelivery_policy=QUICK)
    calls: list[int] = []

    @app.consumer(queue, mode=TRANSACTED, dedupe=MemoryStore(), give_up_on=(JmsxError,))
    def move(message: Message, session: Session) -> None:
        calls.append(message.delivery_count)
        app.send(out, message.text)
        # last: a send behind it may be told already that the broker has refused it
        if len(calls) == 1:
            send_to_the_dead(classic_broker, session)

    with app:
        app.send(queue, "x")
        assert settles(classic_broker, queue, size=0)
    assert calls == [1, 2]
    assert bodies(classic_broker, out) == ["x"]
    assert diary.dead() == []


def test_with_a_store_that_would_know_it_as_done(broker: Broker, tmp_path: Path) -> None:
    """A database is committed before the transaction is, so it is an error that says so."""
    queue, diary = fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)
    store = DatabaseStore(lambda: sqlite3.connect(tmp_path / "shop.db"))
    store.create_table()

    @app.consumer(queue, mode=TRANSACTED, dedupe=store)
    def move(message: Message) -> None:
        app.send(fresh_queue(), message.text)

    with app:
        app.send(queue, "x")
        assert eventually(lambda: len(diary.dead()) == 1, 10)
    (dead,) = diary.dead()
    assert dead.error_type == "IllegalStateError"
    assert "a SESSION_TRANSACTED handler cannot send" in str(dead.error_message)


def test_delayed_expiring_and_deduplicated(broker: Broker) -> None:
    """As the broker does it: a delay, an expiry, a group, and on Artemis an id that it takes once."""
    queue, diary = fresh_queue(), Diary()
    app, seen = App(broker.url, observers=[diary]), list[tuple[str, str | None, float]]()

    @app.consumer(queue)
    def note(message: Message) -> None:
        seen.append((message.text, message.group_id, message.expiration))

    with Wire(broker.url) as wire:
        artemis = wire.is_artemis
    with app:
        app.send(queue, "late", delay="1500ms", expires="1min")
        app.send(queue, "now", group="g", timeout=5, confirm=False)
        for _ in range(2 if artemis else 0):
            app.send(queue, "once", dedupe_id="one")
        expected = ["now", *(["once"] if artemis else []), "late"]
        assert eventually(lambda: len(seen) >= len(expected), 20)
        if not artemis:
            with pytest.raises(UnsupportedError, match="dedupe_by="):
                app.send(queue, "once", dedupe_id="one")
    assert [text for text, _, _ in seen] == expected
    assert seen[0][1] == "g"
    assert seen[-1][2] > 0
