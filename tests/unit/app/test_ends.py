"""The end of an app: interrupted anywhere, beside another one, and held up by what is the application's own."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import socket
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Final

import pytest

from jmsx import App, MemoryStore, Message
from jmsx.app.loops import Loop
from jmsx.app.start import Start
from jmsx.errors import IllegalStateError, JmsxError, StoreAwayError
from jmsx.jms.connection import Connection
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.core.events import Event, Source

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def server() -> Iterator[FakeBrokerServer]:
    """A broker."""
    with FakeBrokerServer("classic") as made:
        yield made


@pytest.fixture
def app(server: FakeBrokerServer) -> Iterator[App]:
    """One with a consumer; nothing of it runs afterwards."""
    made = App(server.url)
    made.consumer("a", name="first")(lambda _message: None)
    yield made
    made.abort()


class Held:
    """A place where somebody may hang."""

    def __init__(self) -> None:
        self.reached, self.on = threading.Event(), threading.Event()

    def __call__(self) -> None:
        """Hang."""
        self.reached.set()
        assert self.on.wait(20)


class Store(MemoryStore):
    """Counts how often it is open; `opening` and `closing` are called in the middle."""

    def __init__(self) -> None:
        super().__init__()
        self.open_now = 0
        self.opening: Callable[[], object] = lambda: None
        self.closing: Callable[[], object] = lambda: None

    def open(self) -> None:
        """Open it."""
        self.opening()
        super().open()
        self.open_now += 1

    def close(self) -> None:
        """Close it."""
        self.closing()
        super().close()
        self.open_now -= 1


class Closed:
    """An observer that counts how often it was closed."""

    def __init__(self, closing: Callable[[], object] = lambda: None) -> None:
        self.closing = closing
        self.times = 0

    def observe(self, event: Event, source: Source) -> None:
        """See nothing."""

    def close(self) -> None:
        """Close it."""
        self.closing()
        self.times += 1


def once(act: Callable[[], object]) -> Callable[[], object]:
    """`act`, the first time."""
    left = [act]
    return lambda: left.pop()() if left else None


def interrupted() -> None:
    """Ctrl-C."""
    raise KeyboardInterrupt


# What hangs ----------------------------------------------------------------------------------------------------------


def away() -> None:
    """Nobody has the database."""
    raise StoreAwayError("a test")


def test_a_store_that_hangs_as_it_is_opened_holds_up_no_drain(app: App) -> None:
    """The other consumers were told to rest when the time to drain was over, and took messages until then."""
    store, held = Store(), Held()
    store.opening = away
    app.consumer("b", dedupe=store, name="second")(lambda _message: None)
    app.start()
    store.opening = held
    assert held.reached.wait(20)
    began = time.monotonic()
    app.stop(10)
    assert time.monotonic() - began < 5
    held.on.set()
    assert eventually(lambda: not any(one.name == "jmsx-stores" for one in threading.enumerate()))
    assert store.open_now == 0


#: Is told twice to end, while its store hangs in `open` or `close`.
_HANGS: Final = """
import asyncio, os, signal, sys, threading
from jmsx import App, MemoryStore
from jmsx.testing import FakeBrokerServer

class Store(MemoryStore):
    def hang(self):
        os.kill(os.getpid(), signal.SIGTERM)
        threading.Timer(0.5, os.kill, (os.getpid(), signal.SIGTERM)).start()
        threading.Event().wait(60)

setattr(Store, sys.argv[1], Store.hang)
with FakeBrokerServer("classic") as server:
    app = App(server.url)

    @app.consumer("a", dedupe=Store())
    async def handle(message):
        pass

    async def serve():
        if sys.argv[1] == "close":
            asyncio.get_running_loop().call_later(0.5, app.quit)
        await app.serve(drain_timeout=1)

    try:
        asyncio.run(serve())
    except asyncio.CancelledError:
        print("left")
"""


@pytest.mark.parametrize("hangs", ["open", "close"])
def test_a_program_ends_that_has_left_what_hangs_behind(hangs: str) -> None:
    """Behind `serve()` it waited for the thread that did so, and only SIGKILL helped."""
    ended = subprocess.run(
        [sys.executable, "-c", _HANGS, hangs], stdout=subprocess.PIPE, timeout=30, check=True
    )
    assert ended.stdout == b"left\n"


@pytest.mark.parametrize("hangs", ["observer", "store"])
def test_an_abort_beside_what_hangs_as_it_is_closed(server: FakeBrokerServer, hangs: str) -> None:
    """The second signal of run() waited for the first one's stop; what does not hang is closed."""
    store, held = Store(), Held()
    last, other = Closed(), Closed()
    app = App(server.url, observers=[last, other])
    if hangs == "observer":
        last.closing = held
    else:
        store.closing = held
    app.consumer("a", dedupe=store)(lambda _message: None)
    app.start()
    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(app.stop)
        assert held.reached.wait(10)
        began = time.monotonic()
        app.abort()
        assert time.monotonic() - began < 5
        assert other.times == 1
        assert not app._service.lifecycle.runs
        held.on.set()
        stopping.result(10)
    assert (last.times, other.times, store.open_now) == (1, 1, 0)


# Starts, and what they end -------------------------------------------------------------------------------------------


def test_a_block_closes_what_was_sent_where_nothing_runs_any_more(app: App) -> None:
    """Another start had failed in it, so that the sends were nobody's, and not flushed."""
    url = app.url
    with app:
        app.abort()
        app.url, app.reconnect = "stomp://127.0.0.1:1", False
        with pytest.raises(JmsxError):
            app.start()
        app.url = url
        app.send("queue://b", "x", confirm=False)
    assert app._service.outgoing._sender._shared is None


def test_a_start_that_is_refused_ends_nothing(server: FakeBrokerServer) -> None:
    """What an app sends at rest, after its end, was cut off by whoever entered it once more, in vain."""
    app = App(server.url, observers=[Closed()])
    with app:
        pass
    app.send("queue://b", "x", confirm=False)
    sending = app._service.outgoing._sender._shared
    with pytest.raises(IllegalStateError, match="its observers are closed"), app:
        pass
    assert app._service.outgoing._sender._shared is sending
    app.abort()


def test_a_start_that_begins_as_sends_are_taken_has_them(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may have sent by them."""
    service, first = app._service, Start()
    service.start(first)
    app.abort()
    app.send("queue://b", "x")
    take = service.outgoing.take

    def late(ended: list[Connection]) -> None:
        take(ended)
        app.start()

    with monkeypatch.context() as patched:
        patched.setattr(service.outgoing, "take", late)
        service.stop(5, first)
    assert len(service.current.sends) == 1
    assert first.sends == []


def test_a_start_beside_an_abort_that_closes_a_store_raises(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It returned, with no consumer."""
    store, held = Store(), Held()
    store.closing = held
    app.change("first", dedupe=store)
    begin = app._service.begin
    with ThreadPoolExecutor() as threads:

        def late(start: Start) -> None:
            threads.submit(app.abort)
            assert held.reached.wait(10)
            threading.Timer(0.2, held.on.set).start()
            begin(start)

        monkeypatch.setattr(app._service, "begin", late)
        with pytest.raises(IllegalStateError, match="aborted while it started"):
            app.start()
    assert app._service.current.up == []
    assert not any(one.name == "jmsx-watch" for one in threading.enumerate())


@pytest.mark.parametrize("again", [False, True], ids=["at rest", "before another start"])
def test_a_handler_of_a_dropped_start_quits_that_one(app: App, *, again: bool) -> None:
    """It ended the next start."""
    held, over = Held(), threading.Event()

    @app.consumer("b")
    def handle(_message: Message) -> None:
        if not held.reached.is_set():  # it comes again to the next one
            held()
            app.quit()
            over.set()

    app.start()
    app.send("queue://b", "x")
    assert held.reached.wait(10)
    app.abort()
    if again:
        app.start()
    held.on.set()
    assert over.wait(10)
    if not again:
        app.start()
    assert app.ready().ok
    assert not app._service.lifecycle.told.is_set()


def test_a_handler_of_a_dropped_start_may_stop_another(app: App) -> None:
    """That waits for handlers, but not for this one; its own start it may not stop."""
    held, over, told = Held(), threading.Event(), []

    @app.consumer("b")
    def handle(_message: Message) -> None:
        if held.reached.is_set():  # it comes again to the next one
            return
        with pytest.raises(IllegalStateError, match="wait for its own"):
            app.stop()
        held()
        try:
            app.stop(5)
        except JmsxError as error:
            told.append(error)
        over.set()

    app.start()
    app.send("queue://b", "x")
    assert held.reached.wait(10)
    app.abort()
    app.start()
    held.on.set()
    assert over.wait(10)
    assert told == []
    assert not app._service.lifecycle.runs


@pytest.mark.parametrize("awaits", [False, True], ids=["with", "async with"])
def test_a_block_says_that_another_start_runs_behind_it(
    app: App, caplog: pytest.LogCaptureFixture, *, awaits: bool
) -> None:
    """Whoever starts an app in its own block has to stop it, too."""

    async def main() -> None:
        async with app:
            await asyncio.to_thread(app.abort)
            await asyncio.to_thread(app.start)

    if awaits:
        asyncio.run(main())
    else:
        with app:
            app.stop()
            app.start()
    assert [one.message for one in caplog.records if "after its block" in one.message]
    assert app.ready().ok


# Ctrl-C --------------------------------------------------------------------------------------------------------------


def test_ctrl_c_as_a_block_looks_for_what_it_has_started(
    app: App, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The app went on behind it."""
    find, interrupt = app._start_of_block, once(interrupted)

    def look() -> Start:
        interrupt()
        return find()

    monkeypatch.setattr(app, "_start_of_block", look)
    with pytest.raises(KeyboardInterrupt), app:
        pass
    assert not app._service.lifecycle.runs
    assert app._blocks == []


def test_ctrl_c_in_an_abort_wakes_who_serves(app: App, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever serves it waited for ever, with nothing that ran."""
    end, aborting = app._service._end, threading.current_thread()

    def interrupt(start: Start, *, for_good: bool) -> None:
        end(start, for_good=for_good)
        # whoever serves is woken meanwhile, and ends it too
        if threading.current_thread() is aborting:
            raise KeyboardInterrupt

    with ThreadPoolExecutor() as threads:
        serving = threads.submit(lambda: asyncio.run(app.serve(1)))
        assert eventually(lambda: app.ready().ok)
        with monkeypatch.context() as patched:
            patched.setattr(app._service, "_end", interrupt)
            with pytest.raises(KeyboardInterrupt):
                app.abort()
        serving.result(10)


def test_ctrl_c_as_an_observer_is_closed_leaves_none_open(server: FakeBrokerServer) -> None:
    """The abort that follows closed none, and an event log was not written to its end."""
    observers = [Closed(), Closed(once(interrupted)), Closed()]
    app = App(server.url, observers=observers)
    app.consumer("a")(lambda _message: None)
    with pytest.raises(KeyboardInterrupt), app:
        pass
    assert [one.times for one in observers] == [1, 1, 1]


def test_ctrl_c_between_any_two_steps_of_a_stop_loses_nothing(server: FakeBrokerServer) -> None:
    """The abort that follows ends what is left: stores, what was sent by, observers."""

    def steps(at: int) -> int:
        eye, stores = Closed(), (Store(), Store())
        app = App(server.url, observers=[eye], watch=0)
        for number, store in enumerate(stores):
            app.consumer("a", name=f"c{number}", dedupe=store)(lambda _message: None)
        app.start()
        app.send("queue://b", "x")
        interrupt = Interrupt(at, within=within)
        with contextlib.suppress(Alarm):
            interrupt.run(app.stop)
        app.abort()
        assert not app._service.lifecycle.runs, at
        # what was closed as the alarm came may be closed again, as its protocol says
        assert [max(one.open_now, 0) for one in stores] == [0, 0], at
        assert eye.times >= 1, at
        assert eventually(lambda: not left()), (at, left())
        return interrupt.steps

    def left() -> list[str]:
        return [one.name for one in set(threading.enumerate()) - before if "jmsx" in one.name]

    within = [
        f"jmsx/{name}.py"
        for name in ("app/service", "app/start", "app/outgoing", "app/workers", "app/availability")
    ]
    before = set(threading.enumerate())
    step = 1
    while steps(step) >= step:
        step += 1
    assert step > 50


# Python itself ignores what is raised as it ends a generator, and frees a socket that was bound to nothing yet.
@pytest.mark.filterwarnings(
    "ignore::pytest.PytestUnraisableExceptionWarning", "ignore::ResourceWarning"
)
@pytest.mark.parametrize("whole", [False, True], ids=["start", "stop"])
def test_ctrl_c_leaves_no_port_bound(server: FakeBrokerServer, *, whole: bool) -> None:
    """The next start failed, for nobody knew any more what had it; nor whose a thread was."""
    # on an address that nothing else connects from
    with socket.create_server(("127.0.0.9", 0)) as taken:
        port = taken.getsockname()[1]
    before = set(threading.enumerate())

    async def handle(_message: Message) -> None:
        """Have the app make a loop."""

    def steps(at: int) -> int:
        app = App(server.url, health=f"127.0.0.9:{port}")
        app.consumer("a")(handle)
        if whole:
            app.start()
        interrupt = Interrupt(at, within=begins)
        with contextlib.suppress(Alarm):
            interrupt.run(app.stop if whole else app.start)
        app.abort()
        left = [one.name for one in set(threading.enumerate()) - before if "jmsx" in one.name]
        assert not {"jmsx-health", "jmsx-watch", "jmsx-loop"} & set(left), (at, left)
        with socket.create_server(("127.0.0.9", port)):
            return interrupt.steps

    names = ("app/service", "app/start", "app/endpoint", "app/watch", "drivers/web")
    begins = [f"jmsx/{one}.py" for one in names]
    step = 1
    while steps(step) >= step:
        step += 1
    gc.collect()  # here, for it may warn
    assert step > 20


def test_ctrl_c_as_a_loop_ends_leaves_its_tasks_their_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The close that follows stopped it again, in the middle of what a handler cleans up."""
    loop, began, cleaned = Loop(), threading.Event(), threading.Event()
    loop.open()

    async def handle() -> None:
        began.set()
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.2)
            cleaned.set()

    asyncio.run_coroutine_threadsafe(handle(), loop._loop)
    assert began.wait(5)
    thread = loop._thread
    assert thread is not None
    with monkeypatch.context() as patched:
        patched.setattr(thread, "join", lambda _seconds: interrupted())
        with pytest.raises(KeyboardInterrupt):
            loop.close()
    loop.close()
    assert cleaned.wait(5)
    thread.join(5)
    assert not thread.is_alive()
