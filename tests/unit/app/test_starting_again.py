"""An app that another thread ends and starts again: whatever belongs to the first start ends nothing of the second."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, DrainError, MemoryStore, Message
from jmsx.app.registration import Consumer
from jmsx.app.start import Start
from jmsx.app.workers import Workers
from jmsx.errors import IllegalStateError, JmsxError, StoreAwayError
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def app() -> Iterator[App]:
    """One with a consumer, at a broker; nothing of it runs afterwards."""
    with FakeBrokerServer("classic") as server:
        made = App(server.url, health="127.0.0.1:0")
        made.consumer("a", name="first")(lambda _message: None)
        yield made
        made.abort()


def before(monkeypatch: pytest.MonkeyPatch, what: Any, name: str, act: Callable[[], Any]) -> None:
    """Have another thread do `act`, to its end, before `what.name` is called for the first time."""
    step = getattr(what, name)
    done: list[bool] = []

    def late(*given: Any) -> Any:
        if not done:
            done.append(True)
            other = threading.Thread(target=act)
            other.start()
            other.join(10)
            assert not other.is_alive()
        return step(*given)

    monkeypatch.setattr(what, name, late)


def runs_well(app: App) -> bool:
    """Whether it takes messages, and its endpoint is open."""
    return app.ready().ok and len(app._service.workers) == 1 and app.endpoint is not None


def test_between_the_opening_and_the_first_message(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first one finds itself ended, and drops nothing: what is open is the second one's."""

    def restart() -> None:
        app.abort()
        app.start()

    before(monkeypatch, app._service, "begin", restart)
    with pytest.raises(IllegalStateError, match="stopped while it started"):
        app.start()
    assert runs_well(app)


def test_as_the_first_one_has_failed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """It was told nothing, and is ended behind the next start."""
    url, app.url = app.url, "stomp://127.0.0.1:1"
    app.reconnect = False

    def start() -> None:
        app.url = url
        app.start()

    before(monkeypatch, app._service, "abort", start)
    with pytest.raises(JmsxError), app:
        raise AssertionError("there is no broker")
    assert runs_well(app)


def test_as_the_first_one_was_dismissed(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """A quit() has ended it before it began."""
    app.quit()
    before(monkeypatch, app._service, "abort", app.start)
    with pytest.raises(IllegalStateError, match="told to stop before"), app:
        raise AssertionError("it was told to stop")
    assert runs_well(app)


def test_as_the_first_one_says_what_runs(app: App) -> None:
    """Its run() ends, and its wait for idleness does not end the second one."""

    def restart() -> None:
        app.abort()
        app.start()

    def announce(_words: str) -> None:
        if not restarted:
            restarted.append(True)
            other = threading.Thread(target=restart)
            other.start()
            other.join(10)

    restarted: list[bool] = []
    app.run(2, until_idle=0.2, announce=announce)
    time.sleep(0.5)
    assert runs_well(app)


def test_a_stop_of_what_has_ended_does_not_wait_for_the_next_opening(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It has nothing to do."""
    service, first = app._service, Start()
    service.start(first)
    service.stop(5, first)
    opens, on = threading.Event(), threading.Event()
    open_one = Workers._open_one

    def hang(workers: Workers, consumer: Consumer) -> None:
        opens.set()
        assert on.wait(30)
        open_one(workers, consumer)

    monkeypatch.setattr(Workers, "_open_one", hang)
    with ThreadPoolExecutor() as threads:
        second = threads.submit(app.start)
        assert opens.wait(10)
        threads.submit(service.stop, 20, first).result(10)
        on.set()
        second.result(10)
    assert runs_well(app)


def test_an_abort_wakes_who_serves_the_start_that_it_ends(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It woke the one that began meanwhile, which then ended, and the other waited for ever."""
    end, ended, on = app._service._end, threading.Event(), threading.Event()

    def slowly(start: Start, *, for_good: bool) -> None:
        end(start, for_good=for_good)
        if not ended.is_set():
            ended.set()
            assert on.wait(10)

    def serve() -> None:
        asyncio.run(app.serve(2))

    monkeypatch.setattr(app._service, "_end", slowly)
    with ThreadPoolExecutor() as threads:
        first = threads.submit(serve)
        assert eventually(lambda: app.ready().ok)
        aborting = threads.submit(app.abort)
        assert ended.wait(10)
        second = threads.submit(serve)
        assert eventually(lambda: app.ready().ok)
        on.set()
        aborting.result(10)
        first.result(10)
        assert runs_well(app)
        app.quit()
        second.result(10)


def test_a_quit_just_behind_the_beginning_is_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody is to be woken yet, and without consumers nothing asks whether the app is wanted."""
    with FakeBrokerServer("classic") as server:
        app = App(server.url)
        begin = app._service.lifecycle.start

        def told_at_once(start: Start) -> bool:
            begun = begin(start)
            app.quit()
            return begun

        monkeypatch.setattr(app._service.lifecycle, "start", told_at_once)
        asyncio.run(asyncio.wait_for(app.serve(2), 10))
        assert not app._service.lifecycle.runs


def test_a_start_that_gets_no_thread_leaves_the_app_at_rest(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nor does what would drop it then."""

    def refused(thread: threading.Thread) -> None:
        assert thread.name == "jmsx-beside"
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(threading.Thread, "start", refused)
        with pytest.raises(RuntimeError, match="new thread"):
            asyncio.run(app.serve(2))
    assert not app._service.lifecycle.runs
    app.start()
    assert runs_well(app)


def test_an_abort_while_messages_begin_to_flow_ends_the_start(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever started it hears of that: a block would begin with an app that does nothing."""
    before(monkeypatch, app._service, "_count", app.abort)
    with pytest.raises(IllegalStateError, match="aborted while it started"), app:
        raise AssertionError("it was aborted")


def test_handlers_run_on_the_loop_of_the_start_that_they_belong_to(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that was cancelled while it aborted kept its loop, which is closed by then."""
    end = app._service._end

    def slowly(start: Start, *, for_good: bool) -> None:
        time.sleep(0.3)
        end(start, for_good=for_good)

    async def leave_in_a_hurry() -> None:
        async with app:
            task = asyncio.current_task()
            assert task is not None
            asyncio.get_running_loop().call_later(0.1, task.cancel)
            raise ValueError("a test")

    called = threading.Event()

    @app.consumer("b")
    async def handle(_message: Message) -> None:
        called.set()

    monkeypatch.setattr(app._service, "_end", slowly)
    with pytest.raises((ValueError, asyncio.CancelledError)):
        asyncio.run(leave_in_a_hurry())
    assert eventually(lambda: not app._service.lifecycle.runs)
    app.start()
    app.send("queue://b", "x")
    assert called.wait(10)


def test_a_start_beside_one_that_is_served_has_a_loop_of_its_own(app: App) -> None:
    """Its handlers were to run on that of the first one, which ends."""
    called = threading.Event()

    @app.consumer("b")
    async def handle(_message: Message) -> None:
        called.set()

    with ThreadPoolExecutor() as threads:
        first = threads.submit(lambda: asyncio.run(app.serve(2)))
        assert eventually(lambda: app.ready().ok)
        app.abort()
        app.start()
        first.result(10)
    app.send("queue://b", "x")
    assert called.wait(10)


def restarting(app: App) -> Callable[[], None]:
    """Another thread that ends the app and starts it again, the first time it is called, and has sent by then."""
    done: list[bool] = []

    def restart() -> None:
        app.abort()
        app.start()
        app.send("queue://sent", "x")

    def once() -> None:
        if not done:
            done.append(True)
            with ThreadPoolExecutor() as threads:
                threads.submit(restart).result(10)

    return once


@pytest.mark.parametrize("end", [App.abort, App.stop], ids=["abort", "stop"])
def test_of_two_ends_with_a_start_between_them_the_first_leaves_that_alone(
    app: App, monkeypatch: pytest.MonkeyPatch, end: Callable[[App], None]
) -> None:
    """It had looked which start runs, and dropped the next one's consumers, and what that sends by."""
    leave, restart = app._service.lifecycle.leave, restarting(app)

    def late(start: Start | None = None) -> Start:
        left = leave(start)
        restart()
        return left

    app.start()
    monkeypatch.setattr(app._service.lifecycle, "leave", late)
    end(app)
    assert runs_well(app)
    assert app._service.outgoing._sender._shared is not None


def in_with(app: App, error: BaseException | None) -> None:
    """A block in which another thread starts the app anew."""
    with app:
        restarting(app)()
        if error is not None:
            raise error


def in_async_with(app: App, error: BaseException | None) -> None:
    """The same on an event loop."""

    async def main() -> None:
        async with app:
            await asyncio.to_thread(restarting(app))
            if error is not None:
                raise error

    asyncio.run(main())


def in_a_lifespan(app: App, error: BaseException | None) -> None:
    """The same, as a web server has it."""

    async def main() -> None:
        async with app.lifespan():
            await asyncio.to_thread(restarting(app))
            if error is not None:
                raise error

    asyncio.run(main())


@pytest.mark.parametrize("error", [None, LookupError("a test")], ids=["well", "by an error"])
@pytest.mark.parametrize("block", [in_with, in_async_with, in_a_lifespan])
def test_a_block_ends_no_start_but_its_own(
    app: App, block: Callable[[App, BaseException | None], None], error: BaseException | None
) -> None:
    """It stopped, or aborted, whatever ran at its end."""
    with pytest.raises(LookupError) if error else contextlib.nullcontext():
        block(app, error)
    assert runs_well(app)


def test_blocks_in_blocks_end_each_its_own_start(app: App) -> None:
    """The inner one is of the start that runs, and the outer one's has ended."""
    with app:
        app.abort()
        with app:
            assert runs_well(app)
        assert not app._service.lifecycle.runs
        app.start()
    assert runs_well(app)


def test_a_block_that_another_thread_leaves_ends_what_runs(app: App) -> None:
    """As a fixture may be left by another task than has entered it; none is forgotten in what comes later."""
    with ThreadPoolExecutor(1) as other:
        for _ in range(2):
            other.submit(app.__enter__).result(10)
            assert runs_well(app)
            app.__exit__(None, None, None)
            assert not app._service.lifecycle.runs
        with app:
            app.abort()
            other.submit(app.__enter__).result(10)
        assert runs_well(app)
        other.submit(app.__exit__, None, None, None).result(10)
    assert not app._service.lifecycle.runs
    assert app._blocks == []


def test_threads_of_a_start_that_was_interrupted_end_with_it(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They went by the word that an app is told to stop, which nobody had said, and opened what was dropped."""
    store = Away()
    app.change("first", timeout="10s")
    app.consumer("b", dedupe=store, name="second")(lambda _message: None)
    before = set(threading.enumerate())
    with monkeypatch.context() as patched:
        patched.setattr(app._service.lifecycle, "flow", interrupted)
        with pytest.raises(KeyboardInterrupt):
            app.start()
    store.away = False
    assert eventually(lambda: not {one.name for one in set(threading.enumerate()) - before})
    assert store.opened == 0
    app.start()
    assert app.ready().ok


def interrupted(*_: object) -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


class Away(MemoryStore):
    """Is away at first; may hang when it is opened for the second time."""

    def __init__(self) -> None:
        super().__init__()
        self.away, self.hangs = True, False
        self.hanging, self.on = threading.Event(), threading.Event()
        self.opened = 0  #: minus how often it was closed

    def open(self) -> None:
        """Open it, if it is there."""
        if self.away:
            raise StoreAwayError("a test")
        if self.hangs:
            self.hangs = False
            self.hanging.set()
            assert self.on.wait(20)
        super().open()
        self.opened += 1

    def close(self) -> None:
        """Close it."""
        self.opened -= 1
        super().close()


@pytest.mark.parametrize("again", [False, True], ids=["alone", "before another start"])
def test_a_store_that_comes_back_beside_an_abort(app: App, *, again: bool) -> None:
    """It stayed open, and nobody knew; or was open for the next start, too."""
    store = Away()
    app.consumer("b", dedupe=store, name="second")(lambda _message: None)
    app.start()
    store.hangs, store.away = True, False
    assert store.hanging.wait(20)
    with ThreadPoolExecutor() as threads:
        threads.submit(app.abort).result(10)
        second = threads.submit(app.start if again else lambda: None)
        if again:
            assert eventually(lambda: app._service.lifecycle.runs)
        store.on.set()
        second.result(20)
    assert eventually(lambda: store.opened == again)
    time.sleep(0.2)
    assert store.opened == again
    names = [one.consumer.name for one in app._service.workers]
    assert names == (["first", "second"] if again else [])


def test_ctrl_c_between_any_two_steps_of_a_start_leaves_the_app_at_rest(app: App) -> None:
    """It was taken for one that runs, until abort()."""

    def steps(at: int) -> int:
        interrupt = Interrupt(
            at, within=["jmsx/app/service.py", "jmsx/app/lifecycle.py", "jmsx/app/start.py"]
        )
        with contextlib.suppress(Alarm):
            interrupt.run(app.start)
        if not app._service.lifecycle.flows:
            assert not app._service.lifecycle.runs, at
            app.start()
        assert app.ready().ok, at
        app.abort()
        return interrupt.steps

    app.health = None  # whose end takes a while
    app.change("first", timeout="10s")
    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 50


async def abort_with(app: App) -> None:
    """A block that an error ends."""
    async with app:
        raise LookupError("a test")


def test_an_abort_that_raises_is_made_once(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its RuntimeError was taken for the word that there is no thread for it."""
    times: list[Start] = []

    def fail(start: Start) -> None:
        times.append(start)
        raise RuntimeError("of a test")

    with monkeypatch.context() as patched:
        patched.setattr(app._service, "abort", fail)
        with pytest.raises(RuntimeError, match="of a test"):
            asyncio.run(abort_with(app))
    assert len(times) == 1


@pytest.mark.parametrize("how", ["abort", "stop", "start again"])
@pytest.mark.parametrize("awaits", [False, True], ids=["def", "async def"])
def test_a_handler_that_outlives_its_app_sends_nothing_outside_of_its_transaction(
    how: str, *, awaits: bool
) -> None:
    """What it sent went out at once, and again with the message that comes again."""
    called, on, sent = threading.Event(), threading.Event(), []
    over = threading.Event()

    def handle(_message: Message) -> None:
        if called.is_set():
            return
        called.set()
        assert on.wait(20)
        try:
            sent.append(own.send("queue://out", "twice"))
        finally:
            over.set()

    async def ahandle(message: Message) -> None:
        handle(message)

    with FakeBrokerServer("classic") as server:
        own = App(server.url)
        own.consumer("a", mode="transacted")(ahandle if awaits else handle)
        own.start()
        own.send("queue://a", "x")
        assert called.wait(10)
        with contextlib.suppress(DrainError):
            own.stop(0.3) if how == "stop" else own.abort()
        if how == "start again":
            own.start()
        on.set()
        assert over.wait(10)
        assert sent == []
        own.abort()
        with server.broker() as broker:
            assert len(broker.queue("out")) == 0


def test_a_handler_that_outlives_its_start_aborts_no_later_one(app: App) -> None:
    """It means its own, which has ended."""
    called, on, over = threading.Event(), threading.Event(), threading.Event()

    @app.consumer("b", name="second")
    def handle(_message: Message) -> None:
        if called.is_set():
            return
        called.set()
        assert on.wait(20)
        app.abort()
        over.set()

    app.start()
    app.send("queue://b", "x")
    assert called.wait(10)
    app.abort()
    app.start()
    on.set()
    assert over.wait(10)
    assert app.ready().ok
    assert len(app._service.workers) == 2


def test_a_child_that_leaves_the_block_of_its_parent_ends_nothing_there(app: App) -> None:
    """It has none of what its parent has started."""
    called = threading.Event()
    app.consumer("b")(lambda _message: called.set())
    with app:
        child = os.fork()
        if child == 0:
            signal.alarm(20)
            began = time.monotonic()
            with contextlib.suppress(BaseException):
                app.__exit__(None, None, None)
                os._exit(time.monotonic() - began > 5)
            os._exit(2)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        app.send("queue://b", "x")
        assert called.wait(10)
        assert app.ready().ok


def test_a_signal_handler_that_quits_at_any_step_of_a_wait(app: App) -> None:
    """It hung, for the wait had the lock of its event just then."""

    def steps(at: int) -> int:
        app.start()
        within = ["threading.py", "jmsx/app/service.py", "jmsx/drivers/changed.py"]
        interrupt = Interrupt(at, within=within, handler=lambda _alarm: app.quit())
        interrupt.run(lambda: app.wait(0.05))
        told = app._service.lifecycle.told.is_set()
        app.abort()
        assert told == (interrupt.steps >= at)
        return interrupt.steps

    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 10


def test_what_is_sent_at_rest_is_kept_by_no_start_that_has_closed_it(app: App) -> None:
    """An app that only sends may be stopped as often as one likes."""
    for _ in range(3):
        app.send("queue://b", "x")
        app.stop()
        assert app._service.current.sends == []
    app.send("queue://b", "x")
    app.abort()
    assert app._service.current.sends == []
