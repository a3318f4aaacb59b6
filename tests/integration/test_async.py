"""Handlers that are `async def` on real brokers: where they run, what settles a message, and how everything ends."""

from __future__ import annotations

import asyncio
import contextvars
import signal
import sqlite3
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode, BatchError, DatabaseStore, DrainError, Message
from jmsx.app import App
from jmsx.core.events import Outcome
from jmsx.errors import IllegalStateError
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    AUTO,
    CLIENT,
    INDIVIDUAL,
    QUICK,
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    rest,
    settles,
)

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from jmsx import Queue, Session
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

MODES = pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])


async def until(holds: Callable[[], bool], seconds: float = 10.0) -> None:
    """Wait for it, while the loop goes on."""
    async with asyncio.timeout(seconds):
        while not holds():  # noqa: ASYNC110 - what it waits for happens in other threads
            await asyncio.sleep(0.02)


@MODES
def test_on_the_programs_loop(broker: Broker, mode: AcknowledgeMode) -> None:
    """One message is settled when the coroutine has ended; what raises comes again, and at last is a dead letter."""
    queue, diary = fresh_queue(), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)
    seen: list[tuple[str, int]] = []
    loops = set()

    @app.consumer(queue, mode=mode)
    async def desk(message: Message) -> None:
        await asyncio.sleep(0.001)
        loops.add(asyncio.get_running_loop())
        seen.append((message.text, message.delivery_count))
        if message.text == "bad":
            raise ValueError

    async def main() -> None:
        async with app:
            for text in ("a", "bad", "b"):
                await app.asend(queue, text)
            await until(lambda: len(diary.dead()) == 1 and ("b", 1) in seen)
        assert loops == {asyncio.get_running_loop()}

    with nothing_left():
        asyncio.run(main())
    assert seen == [("a", 1), ("bad", 1), ("bad", 2), ("bad", 3), ("b", 1)]
    assert settles(broker, queue, size=0)


def test_on_a_loop_of_ours(broker: Broker, queue: Queue) -> None:
    """As `jmsx run` and `with app:` have it, and beside a plain handler; nothing is left of it."""
    other, threads = fresh_queue(), set()
    app = App(broker.url)

    @app.consumer(queue)
    async def desk(message: Message, session: Session) -> None:
        await asyncio.sleep(0)
        threads.add(threading.current_thread().name)
        await asyncio.to_thread(session.create_producer(other).send, message.text)

    @app.consumer(other)
    def plain(message: Message) -> None:
        threads.add(message.text)

    with nothing_left(), app:
        app.send(queue, "x")
        assert eventually(lambda: threads == {"jmsx-loop", "x"}, 10)
    assert settles(broker, other, size=0)


def test_its_sends_are_part_of_its_transaction(broker: Broker, queue: Queue) -> None:
    """Also those in tasks that it awaits; a task that outlives it is outside."""
    out, tasks = fresh_queue(), set[asyncio.Task[str]]()
    app = App(broker.url, redelivery_policy=QUICK)

    async def afterwards() -> str:
        await asyncio.sleep(0.5)
        return await app.asend(out, "afterwards")

    @app.consumer(queue, mode=TRANSACTED)
    async def move(message: Message) -> None:
        await app.asend(out, f"direct {message.delivery_count}")
        await asyncio.wait_for(app.asend(out, f"waited for {message.delivery_count}"), 5)
        async with asyncio.TaskGroup() as group:
            group.create_task(app.asend(out, f"in a group {message.delivery_count}"))
        app.send(out, f"plainly {message.delivery_count}")
        if message.delivery_count < 3:
            raise ValueError
        tasks.add(asyncio.create_task(afterwards()))

    async def main() -> None:
        async with app:
            await app.asend(queue, "x")
            await until(lambda: bool(tasks))
            await asyncio.gather(*tasks)

    asyncio.run(main())
    assert sorted(bodies(broker, out)) == [
        "afterwards",
        "direct 3",
        "in a group 3",
        "plainly 3",
        "waited for 3",
    ]


@MODES
def test_one_that_is_cancelled_has_failed(broker: Broker, mode: AcknowledgeMode) -> None:
    """By whomever; its message comes again by the policy."""
    queue, seen = fresh_queue(), list[int]()
    app = App(broker.url, redelivery_policy=QUICK)

    @app.consumer(queue, mode=mode)
    async def desk(message: Message) -> None:
        seen.append(message.delivery_count)
        task = asyncio.current_task()
        assert task is not None
        if message.delivery_count == 1:
            task.cancel()
            await asyncio.sleep(0)
        if message.delivery_count == 2:
            async with asyncio.timeout(0.01):
                await asyncio.sleep(30)

    with app:
        app.send(queue, "x")
        # Artemis may count what was sent a moment later
        assert eventually(lambda: seen == [1, 2, 3])
        assert settles(broker, queue, size=0)
    assert seen == [1, 2, 3]


def test_draining_cancels_what_is_late(broker: Broker) -> None:
    """When its time is nearly over; the message goes back as it was, in each mode, and the drain is a good one."""
    queues = {mode: fresh_queue() for mode in (AUTO, CLIENT, INDIVIDUAL, TRANSACTED)}
    said = {mode: list[str]() for mode in queues}
    app = App(broker.url)

    def consume(mode: AcknowledgeMode) -> None:
        @app.consumer(queues[mode], name=mode.name, mode=mode)
        async def slow(_message: Message) -> None:
            said[mode].append("began")
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                await asyncio.sleep(0.1)
                said[mode].append("cleaned up")
                raise

    for mode in queues:
        consume(mode)
    with nothing_left():
        app.start()
        for queue in queues.values():
            app.send(queue, "x")
        assert eventually(lambda: all(one == ["began"] for one in said.values()))
        began = time.monotonic()
        app.stop(4.0)  # a quarter of which is for cleaning up, and for the broker to answer
        assert 2.0 < time.monotonic() - began < 10.0
    assert all(one == ["began", "cleaned up"] for one in said.values())
    assert all(rest(broker, queue) == ["x"] for queue in queues.values())


def test_draining_waits_for_what_ends(broker: Broker, queue: Queue) -> None:
    """Its message is settled, and its loop goes on meanwhile."""
    began, ended = asyncio.Event(), list[str]()
    app = App(broker.url)

    @app.consumer(queue)
    async def slow(message: Message) -> None:
        began.set()
        await asyncio.sleep(0.5)
        ended.append(message.text)

    async def main() -> None:
        async with app:
            await app.asend(queue, "x")
            await began.wait()

    asyncio.run(main())
    assert ended == ["x"]
    assert settles(broker, queue, size=0)


def test_one_that_swallows_its_cancellation(broker: Broker, queue: Queue) -> None:
    """Is late: the drain says whose it was, and the message comes again."""
    free, began = threading.Event(), threading.Event()
    app = App(broker.url)

    @app.consumer(queue, name="deaf")
    async def deaf(_message: Message) -> None:
        began.set()
        while not free.is_set():
            try:  # noqa: SIM105 - as somebody writes it
                await asyncio.sleep(0.05)
            except asyncio.CancelledError:
                pass

    app.start()
    app.send(queue, "x")
    assert began.wait(10)
    with pytest.raises(DrainError, match="handler of deaf still ran"):
        app.stop(1.0)
    free.set()
    assert rest(broker, queue) == ["x"]


def test_one_that_swallows_it_and_ends(broker: Broker, queue: Queue) -> None:
    """Has done its work: the message is settled."""
    began = threading.Event()
    app = App(broker.url)

    @app.consumer(queue)
    async def stubborn(_message: Message) -> None:
        began.set()
        try:  # noqa: SIM105 - as somebody writes it
            await asyncio.sleep(60)
        except asyncio.CancelledError:
            pass

    app.start()
    app.send(queue, "x")
    assert began.wait(10)
    app.stop(2.0)
    assert settles(broker, queue, size=0)


@MODES
def test_a_loop_that_is_closed_under_it(broker: Broker, mode: AcknowledgeMode) -> None:
    """The app ends and says why; nothing is lost of what was not done, and nobody goes round in circles."""
    queue, seen = fresh_queue(), list[str]()
    app = App(broker.url)

    @app.consumer(queue, mode=mode)
    async def desk(message: Message) -> None:
        seen.append(message.text)
        await asyncio.sleep(60 if message.text == "b" else 0)

    loop = asyncio.new_event_loop()

    async def begin() -> None:
        await app.__aenter__()
        for text in "abc":
            await app.asend(queue, text)
        await until(lambda: seen == ["a", "b"])

    loop.run_until_complete(begin())
    left = asyncio.all_tasks(loop)
    loop.close()
    with pytest.raises(IllegalStateError, match="event loop"):
        app.wait(10)
    with pytest.raises(IllegalStateError, match="event loop"):
        app.stop(5.0)
    for task in left:  # or Python warns that it is pending
        task.get_coro().close()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # there is no other way
    assert seen == ["a", "b"]
    assert rest(broker, queue) == ["b", "c"]


def test_context_variables(broker: Broker, queue: Queue) -> None:
    """What one call sets is its own."""
    mine = contextvars.ContextVar[str]("mine", default="nothing")
    found: list[str] = []
    app = App(broker.url)

    @app.consumer(queue)
    async def desk(message: Message) -> None:
        found.append(mine.get())
        mine.set(message.text)
        await asyncio.sleep(0)
        found.append(mine.get())

    with app:
        app.send(queue, "a")
        app.send(queue, "b")
        assert eventually(lambda: len(found) == 4, 10)
    assert found == ["nothing", "a", "nothing", "b"]


def test_handlers_wait_side_by_side(broker: Broker, queue: Queue) -> None:
    """As many as `concurrency` says; each session has one at a time."""
    now, most = 0, 0
    app = App(broker.url)

    @app.consumer(queue, concurrency=4, prefetch=1)
    async def desk(_message: Message) -> None:
        nonlocal now, most
        now += 1
        most = max(most, now)
        await asyncio.sleep(0.3)
        now -= 1

    with app:
        for number in range(8):
            app.send(queue, str(number))
        assert settles(broker, queue, size=0)
    assert most == 4


def test_batches(broker: Broker, queue: Queue) -> None:
    """The same as of a plain handler."""
    seen, diary = list[list[str]](), Diary()
    app = App(broker.url, observers=[diary], redelivery_policy=QUICK)

    @app.consumer(queue, batch=3, batch_timeout=5.0)
    async def store(messages: list[Message]) -> None:
        await asyncio.sleep(0)
        seen.append([message.text for message in messages])
        bad = [one for one in messages if one.text == "bad" and one.delivery_count == 1]
        if bad:
            raise BatchError(bad)

    for text in ("a", "bad", "b"):
        app.send(queue, text)
    with app:
        assert settles(broker, queue, size=0)
    assert seen == [["a", "bad", "b"], ["bad"]]
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 3, Outcome.ROLLED_BACK: 1}


def test_a_batch_that_draining_cancels(broker: Broker, queue: Queue) -> None:
    """Goes back whole, and as it was."""
    began = threading.Event()
    app = App(broker.url)

    @app.consumer(queue, batch=2, batch_timeout=5.0)
    async def slow(_messages: list[Message]) -> None:
        began.set()
        await asyncio.sleep(60)

    app.start()
    app.send(queue, "a")
    app.send(queue, "b")
    assert began.wait(10)
    app.stop(1.0)
    assert rest(broker, queue) == ["a", "b"]


def test_it_is_done_once(classic_broker: Broker, queue: Queue, tmp_path: Path) -> None:
    """With a database, too, whose connection it gets."""
    file = tmp_path / "shop.db"
    store = DatabaseStore(lambda: sqlite3.connect(file, check_same_thread=False))
    store.create_table()
    app, seen = App(classic_broker.url), list[str]()

    @app.consumer(queue, dedupe=store, dedupe_by=lambda message: message.text)
    async def book(message: Message, *, db: sqlite3.Connection) -> None:
        await asyncio.sleep(0)
        seen.append(message.text)
        db.execute("SELECT 1")

    with app:
        for _ in range(2):
            app.send(queue, "x")
        assert settles(classic_broker, queue, size=0)
    assert seen == ["x"]


def test_serving_until_sigterm(broker: Broker, queue: Queue) -> None:
    """`await app.serve()`: what runs finishes, is settled, and the program ends well."""
    program = f"""
import asyncio
from jmsx import App
app = App({broker.url!r})
@app.consumer({queue.uri!r})
async def desk(message):
    print("began", flush=True)
    await asyncio.sleep(1.0)
    print("ended", flush=True)
asyncio.run(app.serve())
print("over", flush=True)
"""
    App(broker.url).send(queue, "x")
    with python("-c", program) as process:
        assert read_line(process) == "began"
        process.send_signal(signal.SIGTERM)
        assert [read_line(process), read_line(process)] == ["ended", "over"]
        assert process.wait(10) == 0
    assert settles(broker, queue, size=0)


def test_serving_until_it_is_cancelled(broker: Broker, queue: Queue) -> None:
    """It drains; a handler may end it, too."""
    app, seen = App(broker.url), list[str]()

    @app.consumer(queue)
    async def desk(message: Message) -> None:
        await asyncio.sleep(0.2)
        seen.append(message.text)
        if message.text == "quit":
            app.quit()

    async def main() -> None:
        await app.asend(queue, "x")
        serving = asyncio.create_task(app.serve())
        await until(lambda: seen == ["x"])
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await serving
        await app.asend(queue, "quit")
        await app.serve()

    with nothing_left():
        asyncio.run(main())
    assert seen == ["x", "quit"]


def test_lifespan(broker: Broker, queue: Queue) -> None:
    """As Starlette and FastAPI call it; stop() on that loop would wait for itself, and says so."""
    app, seen = App(broker.url), list[Any]()

    @app.consumer(queue)
    async def desk(message: Message) -> None:
        seen.append(message.text)
        with pytest.raises(IllegalStateError, match=r"in a handler call quit\(\)"):
            app.stop()

    async def main() -> None:
        async with app.lifespan(object()):
            await app.asend(queue, "x")
            await until(lambda: seen == ["x"])
            with pytest.raises(IllegalStateError, match="leave `async with app`"):
                app.stop()

    asyncio.run(main())
    assert settles(broker, queue, size=0)
