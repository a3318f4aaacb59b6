"""
Async handlers in AUTO: their loop goes on with what is here, and the session's thread is woken for the rest.

On sockets of their own, and with threads as in production; the broker is in memory.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, Message, RedeliveryPolicy
from jmsx.app.loops import Loop
from jmsx.app.start import Start
from jmsx.core.events import DeliveryEnded, Event, MessageSent, Outcome, Source
from jmsx.errors import JmsxError
from jmsx.jms.dispatcher import Dispatcher
from jmsx.jms.session import link_of
from jmsx.testing import FakeBrokerServer
from tests.depth import some
from tests.integration.broker_support import eventually
from tests.unit.interrupts import Interrupt

if TYPE_CHECKING:
    from collections.abc import Iterator


pytestmark = pytest.mark.timeout(60)

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
QUICK = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.01, redelivery_delay=0.01
)
MANY = 40
NUMBERS = [str(number) for number in range(MANY)]

#: Of engine.py some lines are steps at which Python runs no signal handler.
WITHIN = ("/jmsx/jms/", "/jmsx/drivers/calls.py", "/jmsx/core/")

LEFT = contextvars.ContextVar("left", default="nothing")


class Diary:
    """What ended, and what was sent because of what."""

    def __init__(self) -> None:
        self.ended: list[DeliveryEnded] = []
        self.sent: list[MessageSent] = []

    def observe(self, event: Event, _source: Source) -> None:
        """Note it."""
        if isinstance(event, DeliveryEnded):
            self.ended.append(event)
        elif isinstance(event, MessageSent):
            self.sent.append(event)

    def close(self) -> None:
        """Nothing is open."""

    def outcomes(self, outcome: Outcome) -> int:
        """How many ended so."""
        return sum(1 for one in self.ended if one.outcome is outcome)


@pytest.fixture
def begun(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """Each time that a session's thread has handed something over to a loop."""
    times: list[object] = []
    real = Loop.begin

    def begin(self: Loop, work: Any, call: object, *more: Any) -> Any:
        times.append(call)
        return real(self, work, call, *more)

    monkeypatch.setattr(Loop, "begin", begin)
    return times


@contextlib.contextmanager
def filled(
    kind: str, *, texts: list[str] = NUMBERS, **properties: str
) -> Iterator[FakeBrokerServer]:
    """A broker with a backlog."""
    with FakeBrokerServer(kind) as server:
        with App(server.url) as sender:
            for text in texts:
                sender.send("queue://in", text, properties={"number": text, **properties})
        yield server


def left(server: FakeBrokerServer) -> list[str]:
    """What lies in the queue, taken out of it."""
    texts: list[str] = []
    app = App(server.url)
    app.consumer("queue://in")(lambda message: texts.append(message.text))
    with app:
        app.send("queue://in", "last")
        assert eventually(lambda: "last" in texts, 10)
    texts.remove("last")
    return texts


@KINDS
@pytest.mark.parametrize("mode", ["auto", "dups_ok"])
def test_a_backlog_wakes_the_thread_seldom(kind: str, mode: str, begun: list[object]) -> None:
    """All of it is handled once, in order, each in a task and a context of its own."""
    seen: list[str] = []
    tasks = []
    with filled(kind) as server:
        diary = Diary()
        app = App(server.url, observers=[diary])

        @app.consumer("queue://in", mode=mode)
        async def handle(message: Message) -> None:
            tasks.append(asyncio.current_task())
            assert LEFT.get() == "nothing"
            LEFT.set(message.text)
            seen.append(message.text)

        with app:
            assert eventually(lambda: diary.outcomes(Outcome.ACKNOWLEDGED) == MANY, 10)
        assert seen == NUMBERS
        assert len(set(tasks)) == MANY
        assert len(begun) < MANY / 2
        assert left(server) == []


def old(loop: asyncio.AbstractEventLoop, work: Any) -> Any:
    """A task factory as they were before Python 3.11."""
    return asyncio.Task(work, loop=loop)


def eager(loop: asyncio.AbstractEventLoop, work: Any, **_options: Any) -> Any:
    """One that runs at once what waits for nothing, as `asyncio.eager_task_factory` of Python 3.12 does."""
    if work.__qualname__ != "Running._run":
        return asyncio.Task(work, loop=loop)
    try:
        contextvars.copy_context().run(work.send, None)
    except StopIteration as end:
        done = loop.create_future()
        done.set_result(end.value)
        return done
    raise AssertionError


@KINDS
@pytest.mark.parametrize("factory", [old, getattr(asyncio, "eager_task_factory", eager)])
def test_a_task_factory_of_the_programs(kind: str, factory: Any) -> None:
    """Also one that knows no contexts, or runs a call inside of the one before it, hundreds of times."""
    seen: list[str] = []
    texts = [str(number) for number in range(500)]
    complete = threading.Event()

    async def serve(app: App) -> None:
        asyncio.get_running_loop().set_task_factory(factory)
        async with app, asyncio.timeout(20):
            await asyncio.to_thread(complete.wait, 20)

    with filled(kind, texts=texts) as server:
        app = App(server.url)

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            assert LEFT.get() == "nothing"
            LEFT.set(message.text)
            seen.append(message.text)
            if len(seen) == len(texts):
                complete.set()

        asyncio.run(serve(app))
        assert seen == texts
        assert left(server) == []


@KINDS
@pytest.mark.parametrize("mode", ["client", "individual", "transacted"])
def test_other_modes_settle_each_message_first(kind: str, mode: str, begun: list[object]) -> None:
    """What is written, or waited for, for each message is the session's thread's affair."""
    seen: list[str] = []
    with filled(kind) as server:
        app = App(server.url)

        @app.consumer("queue://in", mode=mode)
        async def handle(message: Message) -> None:
            seen.append(message.text)

        with app:
            assert eventually(lambda: len(seen) == MANY, 10)
        assert (seen, len(begun)) == (NUMBERS, MANY)
        assert left(server) == []


@KINDS
def test_one_that_fails_comes_again_in_its_place(
    kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    """By its own count; the log names it, and nobody else has failed."""
    seen: list[tuple[str, int]] = []
    with filled(kind) as server:
        diary = Diary()
        app = App(server.url, observers=[diary], redelivery_policy=QUICK)

        @app.consumer("queue://in", name="desk")
        async def handle(message: Message) -> None:
            seen.append((message.text, message.delivery_count))
            if message.text == "7" or (message.text == "9" and message.delivery_count == 1):
                await asyncio.sleep(0)
                raise ValueError(message.text)

        with app:
            assert eventually(lambda: diary.outcomes(Outcome.ACKNOWLEDGED) == MANY - 1, 10)
        assert diary.outcomes(Outcome.DEAD_LETTERED) == 1
        assert left(server) == []
    wanted = [(text, 1) for text in NUMBERS]
    wanted[9:10] = [("9", 1), ("9", 2)]
    wanted[7:8] = [("7", 1), ("7", 2), ("7", 3)]
    assert seen == wanted
    told = [one.getMessage() for one in caplog.records if "handler failed" in one.getMessage()]
    assert len(told) == 4
    keys = {one.message_key for one in diary.ended if one.outcome is Outcome.DEAD_LETTERED}
    assert all(str(key) in line for key in keys for line in told[:3])


@KINDS
def test_what_is_sent_names_its_cause(kind: str) -> None:
    """The message that the handler was called with, and no other."""
    with filled(kind) as server:
        diary = Diary()
        app = App(server.url, observers=[diary])

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            await app.asend("queue://out", message.text, correlation_id=message.key)

        causes: dict[str | None, str | None] = {}

        @app.consumer("queue://out")
        async def note(message: Message) -> None:
            causes[message.key] = message.correlation_id

        with app:
            assert eventually(lambda: len(causes) == MANY, 20)
        assert {one.message_key: one.cause_key for one in diary.sent} == causes


@KINDS
def test_an_answer_goes_to_who_has_asked(kind: str) -> None:
    """What a handler returns in the middle of a backlog is the answer to its own message."""
    with filled(kind) as server:
        app = App(server.url)

        @app.consumer("queue://in")
        async def double(number: int) -> int | None:
            return number * 2 or None

        asking = App(server.url)
        with asking, app:
            assert [asking.request("queue://in", number).json() for number in (3, 4)] == [6, 8]


@KINDS
def test_other_tasks_of_the_loop_go_on_meanwhile(kind: str) -> None:
    """A backlog does not have the loop for itself."""
    turns = 0
    seen: list[int] = []

    async def take_turns() -> None:
        nonlocal turns
        while len(seen) < MANY:
            turns += 1
            await asyncio.sleep(0)

    async def main(server: FakeBrokerServer) -> None:
        app = App(server.url)

        @app.consumer("queue://in")
        async def handle(_message: Message) -> None:
            seen.append(turns)

        others = asyncio.create_task(take_turns())
        async with app:
            await asyncio.wait_for(others, 20)

    with filled(kind) as server:
        asyncio.run(main(server))
    assert len(set(seen)) == MANY


@KINDS
def test_what_is_not_begun_goes_back(kind: str) -> None:
    """Draining in the middle of a backlog: what is begun is done, and the rest is there, in its order."""
    seen: list[str] = []
    with filled(kind) as server:
        app = App(server.url)
        reached = threading.Event()

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            seen.append(message.text)
            if message.text == "5":
                reached.set()
                await asyncio.sleep(0.3)

        app.start()
        assert reached.wait(10)
        app.stop()
        assert seen == NUMBERS[:6]
        assert left(server) == NUMBERS[6:]


@KINDS
def test_one_that_is_cancelled_has_failed_alone(kind: str) -> None:
    """By whomever; those behind it are handled as if nothing were."""
    seen: list[tuple[str, int]] = []
    with filled(kind) as server:
        diary = Diary()
        app = App(server.url, observers=[diary], redelivery_policy=QUICK)

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            seen.append((message.text, message.delivery_count))
            if seen[-1] == ("6", 1):
                task = asyncio.current_task()
                assert task is not None
                task.cancel()
                await asyncio.sleep(10)

        with app:
            assert eventually(lambda: diary.outcomes(Outcome.ACKNOWLEDGED) == MANY, 10)
    wanted = [(text, 1) for text in NUMBERS]
    wanted[6:7] = [("6", 1), ("6", 2)]
    assert seen == wanted


def test_a_loop_that_is_closed_under_it(recwarn: pytest.WarningsRecorder) -> None:
    """The app ends; what was not handled to its end is there."""
    seen: list[str] = []
    with filled("classic") as server:
        app = App(server.url, redelivery_policy=QUICK)
        reached = threading.Event()

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            seen.append(message.text)
            if message.text == "5":
                reached.set()
                asyncio.get_running_loop().stop()
                await asyncio.sleep(10)

        loop = asyncio.new_event_loop()
        thread = threading.Thread(target=loop.run_forever)
        thread.start()
        app._service.start(Start(loop=loop))
        assert reached.wait(10)
        thread.join(10)
        loop.close()
        with contextlib.suppress(JmsxError):
            app.wait(10)
        with contextlib.suppress(JmsxError):
            app.stop(5)
        assert seen == NUMBERS[:6]
        again = left(server)
        assert again[-MANY + 5 :] == NUMBERS[5:]
        assert len(again) <= MANY
    recwarn.clear()  # Python tells of the coroutine that was left behind


@KINDS
def test_who_has_the_session_is_not_waited_for(kind: str) -> None:
    """The loop waits for no lock: the session's thread does."""
    seen: list[str] = []
    with filled(kind) as server:
        app = App(server.url)
        entered, locked, free = (threading.Event() for _ in "123")

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            seen.append(message.text)
            if message.text == "3":
                engine = link_of(app._service.workers[0]._session).engine

                def hold() -> None:
                    with engine.lock:
                        locked.set()
                        free.wait(10)

                await asyncio.to_thread(entered.wait, 10)  # for that takes the lock, too
                threading.Thread(target=hold).start()
                await asyncio.to_thread(locked.wait, 10)

        with app:
            entered.set()
            assert locked.wait(10)
            loop = app._service.current.loop
            assert loop is not None
            turn = asyncio.run_coroutine_threadsafe(asyncio.sleep(0, "free"), loop._loop)
            assert turn.result(10) == "free"
            assert seen == NUMBERS[:4]
            free.set()
            assert eventually(lambda: len(seen) == MANY, 10)
        assert seen == NUMBERS
        assert left(server) == []


@KINDS
def test_a_link_that_is_lost_in_a_backlog(kind: str) -> None:
    """Nothing is lost, and what comes again is flagged."""
    seen: list[tuple[str, bool]] = []
    with filled(kind) as server:
        app = App(server.url, redelivery_policy=QUICK)

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            seen.append((message.text, message.redelivered))
            if message.text in ("9", "20") and not message.redelivered:
                worker = app._service.workers[0]
                await asyncio.to_thread(worker.renew, "a test")

        with app:
            assert eventually(lambda: {text for text, _ in seen} == set(NUMBERS), 20)
            assert eventually(lambda: seen[-1][0] == NUMBERS[-1], 10)
    first: dict[str, bool] = {}
    for text, flagged in seen:
        if text in first:
            assert flagged
        first.setdefault(text, flagged)
    assert list(first) == NUMBERS


@pytest.mark.parametrize("at", some(range(1, 300, 7)))
def test_an_interrupt_on_the_loop(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """A signal handler's exception in the middle of going on: the link is made anew, and nothing is lost."""
    seen: list[str] = []
    interrupt = Interrupt(at, within=WITHIN)
    real = Dispatcher.go_on

    def go_on(self: Dispatcher) -> Message | None:
        message: Message | None = interrupt.run(lambda: real(self))
        return message

    with filled("classic", texts=NUMBERS[:12]) as server:
        monkeypatch.setattr(Dispatcher, "go_on", go_on)
        app = App(server.url, redelivery_policy=QUICK)

        @app.consumer("queue://in")
        async def handle(message: Message) -> None:
            seen.append(message.text)

        with app:
            assert eventually(lambda: set(seen) == set(NUMBERS[:12]), 20)
            assert not link_of(app._service.workers[0]._session).engine.changed.owned
        monkeypatch.undo()
        assert set(left(server)) <= set(NUMBERS[:12])
    assert list(dict.fromkeys(seen)) == NUMBERS[:12]
