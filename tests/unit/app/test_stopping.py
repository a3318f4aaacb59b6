"""`app.stop()` beside another one: in another thread, in a signal handler, and while the app starts."""

from __future__ import annotations

import asyncio
import copy
import signal
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx import (
    App,
    ConnectionFailedError,
    DrainError,
    JmsxError,
    MemoryStore,
    Message,
    ReconnectPolicy,
)
from jmsx.app import service
from jmsx.app.availability import Stores
from jmsx.app.endpoint import Endpoint
from jmsx.app.start import Start
from jmsx.app.workers import Workers
from jmsx.core.events import Event, LinkClosed, Source, SubscriptionClosed
from jmsx.errors import IllegalStateError
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.ledger import StoreKey

pytestmark = pytest.mark.timeout(60)

#: Seconds that the handler takes.
TAKES: Final = 0.4


@pytest.fixture
def left() -> Callable[[], list[str]]:
    """The names of jmsx's threads that a test has begun and that run; those of others may be about to end."""
    before = set(threading.enumerate())
    return lambda: [
        one.name for one in set(threading.enumerate()) - before if one.name.startswith("jmsx")
    ]


class Eyes:
    """Sees what an app does, the end of a consumer slowly, and whether it does something when that is over."""

    def __init__(self) -> None:
        self.links_closed = 0
        self.closed = False
        self.late: list[Event] = []

    def observe(self, event: Event, _source: Source) -> None:
        """See it."""
        if isinstance(event, SubscriptionClosed):
            time.sleep(0.3)
        self.links_closed += isinstance(event, LinkClosed)
        if self.closed:
            self.late.append(event)

    def close(self) -> None:
        """See that the app is done."""
        self.closed = True


def busy(server: FakeBrokerServer, eyes: Eyes, takes: float = TAKES) -> App:
    """Return an app that runs, and whose handler has just been called."""
    app, called = App(server.url, observers=[eyes]), threading.Event()

    @app.consumer("a")
    def handle(_message: Message) -> None:
        called.set()
        time.sleep(takes)

    app.start()
    app.send("queue://a", "x")
    assert called.wait(5)
    return app


def test_each_of_two_stops_returns_when_the_app_has_stopped(server: FakeBrokerServer) -> None:
    """And not while the other one still tells observers of the end, which it closes."""
    eyes = Eyes()
    app = busy(server, eyes)
    closed: list[int] = []

    def stop() -> None:
        app.stop()
        closed.append(eyes.links_closed)

    with ThreadPoolExecutor() as threads:
        for stopping in [threads.submit(stop) for _ in range(2)]:
            stopping.result(10)
    assert closed == [2, 2]  # the consumer's, and that of app.send()
    assert eyes.late == []


def test_a_stop_with_less_time_waits_no_longer_than_that(server: FakeBrokerServer) -> None:
    """Then it cuts off what the other one still waits for."""
    app = busy(server, Eyes(), takes=4.0)
    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(app.stop, 20.0)
        began = time.monotonic()
        with pytest.raises(DrainError, match="still ran"):
            app.stop(0.2)
        assert time.monotonic() - began < 3
        with pytest.raises(DrainError, match="did not confirm"):
            stopping.result(10)


@pytest.mark.parametrize("after", [0.1, TAKES])
def test_a_stop_by_a_signal_handler_in_the_middle_of_another(
    server: FakeBrokerServer, after: float
) -> None:
    """Does nothing: the one that it interrupts goes on. It said of what was done that it comes again."""
    eyes = Eyes()
    app = busy(server, eyes)
    previous = signal.signal(signal.SIGALRM, lambda *_: app.stop())
    try:
        signal.setitimer(signal.ITIMER_REAL, after)
        app.stop()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert eyes.links_closed == 2
    assert eyes.late == []


def test_an_abort_by_a_signal_handler_while_a_stop_closes_the_observers(
    server: FakeBrokerServer,
) -> None:
    """Is what a second Ctrl-C may do; it waited for itself, for ever."""

    class Interrupted(Eyes):
        def close(self) -> None:
            super().close()
            signal.raise_signal(signal.SIGALRM)

    app = busy(server, Interrupted())
    aborted: list[int] = []

    def handler(number: int, _frame: object) -> None:
        app.abort()
        aborted.append(number)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        app.stop()
    finally:
        signal.signal(signal.SIGALRM, previous)
    assert aborted == [signal.SIGALRM]


def test_a_stop_by_a_signal_handler_in_the_middle_of_the_start() -> None:
    """Waits no time for the start, which goes on only when it has returned."""
    app = App("stomp://127.0.0.1:1")
    app.consumer("a")(lambda _message: None)
    took: list[float] = []

    def handler(*_: object) -> None:
        began = time.monotonic()
        app.stop()
        took.append(time.monotonic() - began)

    previous = signal.signal(signal.SIGALRM, handler)
    try:
        signal.setitimer(signal.ITIMER_REAL, 0.3)
        with pytest.raises(JmsxError):
            app.start()
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, previous)
    assert len(took) == 1
    assert took[0] < 5


def test_a_stop_between_the_opening_and_the_first_message(
    server: FakeBrokerServer, monkeypatch: pytest.MonkeyPatch, left: Callable[[], list[str]]
) -> None:
    """Ends the start, and leaves nothing that runs."""
    app = App(server.url)
    app.consumer("a")(lambda _message: None)
    begin = app._service.begin

    def late(start: Start) -> None:
        app.stop()
        begin(start)

    monkeypatch.setattr(app._service, "begin", late)
    with pytest.raises(IllegalStateError, match="stopped while it started"):
        app.start()
    assert not left()
    assert not app.ready().ok


def test_an_abort_as_the_last_consumer_has_been_opened(
    server: FakeBrokerServer, monkeypatch: pytest.MonkeyPatch, left: Callable[[], list[str]]
) -> None:
    """It is dropped as the others are: it ran on, and nobody knew of it."""
    app = App(server.url)
    app.consumer("a")(lambda _message: None)
    connected, aborted = threading.Event(), threading.Event()
    availability, leave_opening = Stores.availability, Workers.leave_opening

    def once_aborted(stores: Stores, store: Any) -> Any:
        connected.set()
        assert aborted.wait(10)
        return availability(stores, store)

    def once_opened(workers: Workers) -> None:
        # the start drops what it has opened, too, where it hears of the abort
        if not aborted.is_set():
            aborted.set()
            assert eventually(lambda: len(workers) == 1 and workers._opening is None)
        leave_opening(workers)

    monkeypatch.setattr(Stores, "availability", once_aborted)
    monkeypatch.setattr(Workers, "leave_opening", once_opened)
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(app.start)
        assert connected.wait(10)
        app.abort()
        starting.exception(10)  # it may have begun, and is over
    assert eventually(lambda: not left())


def start_again_while_it_hangs(
    app: App, first: Callable[[], object], hangs: threading.Event, again: threading.Event
) -> None:
    """Have `first` start the app, abort that when it `hangs`, and start the app again; then let the first go on."""
    with ThreadPoolExecutor() as threads:
        starting = threads.submit(first)
        assert hangs.wait(10)
        app.abort()
        second = threads.submit(app.start)
        assert eventually(lambda: app._service.lifecycle.runs)
        again.set()
        with pytest.raises(JmsxError):
            starting.result(10)
        second.result(10)


@pytest.mark.parametrize("enters", [False, True], ids=["start", "with"])
def test_a_start_that_hung_and_was_aborted_does_not_go_on_beside_the_next_one(
    server: FakeBrokerServer,
    monkeypatch: pytest.MonkeyPatch,
    left: Callable[[], list[str]],
    *,
    enters: bool,
) -> None:
    """It took the next one's word that it runs for its own, and opened its consumers as well, or ended it."""
    app = App(server.url)
    app.consumer("a")(lambda _message: None)
    hangs, again = threading.Event(), threading.Event()
    availability = Stores.availability

    def hang_once(stores: Stores, store: Any) -> Any:
        if not hangs.is_set():
            hangs.set()
            assert again.wait(10)
        return availability(stores, store)

    monkeypatch.setattr(Stores, "availability", hang_once)
    start_again_while_it_hangs(app, app.__enter__ if enters else app.start, hangs, again)
    assert len(app._service.workers) == 1
    assert app.ready().ok
    app.stop()
    assert eventually(lambda: not left())


def test_what_an_aborted_start_puts_up_yet_is_taken_down(
    server: FakeBrokerServer, monkeypatch: pytest.MonkeyPatch, left: Callable[[], list[str]]
) -> None:
    """The abort knew nothing of it, and the next start of no other than its own."""
    app = App(server.url, health="127.0.0.1:0")
    app.consumer("a")(lambda _message: None)
    hangs, again, made = threading.Event(), threading.Event(), []

    class Slow(Endpoint):
        """Hangs the first time."""

        def __init__(self, *given: Any) -> None:
            made.append(self)
            if not hangs.is_set():
                hangs.set()
                assert again.wait(10)
            super().__init__(*given)

    monkeypatch.setattr(service, "Endpoint", Slow)
    start_again_while_it_hangs(app, app.start, hangs, again)
    assert app.endpoint is made[1]
    app.stop()
    assert eventually(lambda: not left())


def test_of_two_that_serve_one_is_told_that_the_app_runs(server: FakeBrokerServer) -> None:
    """Both had looked whether it runs before either had started, and the one that came late ended the other."""
    app = App(server.url)
    app.consumer("a")(lambda _message: None)

    async def serve_twice() -> None:
        first, second = (asyncio.create_task(app.serve()) for _ in range(2))
        with pytest.raises(IllegalStateError, match="the app is running"):
            await second
        assert await asyncio.to_thread(eventually, lambda: app.ready().ok)
        app.quit()
        await asyncio.wait_for(first, 10)

    asyncio.run(serve_twice())


async def _in_async_with(app: App) -> None:
    async with app:
        raise AssertionError("it ran already")


def _in_with(app: App) -> None:
    with app:
        raise AssertionError("it ran already")


@pytest.mark.parametrize(
    "again",
    [
        App.start,
        _in_with,
        App.run,
        lambda app: asyncio.run(app.serve()),
        lambda app: asyncio.run(_in_async_with(app)),
    ],
    ids=["start", "with", "run", "serve", "async with"],
)
def test_who_starts_an_app_that_runs_leaves_it_alone(
    server: FakeBrokerServer, again: Callable[[App], object]
) -> None:
    """It is told that the app runs; all but start() aborted it."""
    app, called = App(server.url), threading.Event()

    @app.consumer("a")
    async def handle(_message: Message) -> None:
        called.set()

    with app:
        with pytest.raises(IllegalStateError, match="the app is running"):
            again(app)
        app.send("queue://a", "x")
        assert called.wait(10)
        assert app.ready().ok


@pytest.mark.parametrize("serves", [False, True], ids=["run", "serve"])
def test_a_stop_in_another_thread_ends_what_waits_for_a_signal(
    server: FakeBrokerServer, *, serves: bool
) -> None:
    """It waited for ever, for an app that did nothing any more."""
    app, called = App(server.url), threading.Event()
    app.consumer("a")(lambda _message: called.set())

    def stop() -> None:
        with App(server.url) as sender:
            sender.send("queue://a", "x")
        assert called.wait(10)
        app.stop()

    with ThreadPoolExecutor() as threads:
        stopping = threads.submit(stop)
        if serves:
            asyncio.run(app.serve())
        else:
            app.run()
        stopping.result(10)


def test_an_abort_by_the_first_handler_while_others_begin(
    server: FakeBrokerServer, monkeypatch: pytest.MonkeyPatch, left: Callable[[], list[str]]
) -> None:
    """Ends run() as a later one does, which is no error."""
    app, aborted = App(server.url), threading.Event()

    @app.consumer("a")
    def handle(_message: Message) -> None:
        app.abort()
        aborted.set()

    monkeypatch.setattr(app._service, "_count", lambda _start: aborted.wait(10))
    with App(server.url) as sender:
        sender.send("queue://a", "x")
    app.run()
    assert aborted.is_set()
    assert not left()


@pytest.mark.parametrize("gathers", [False, True])
def test_what_is_handled_while_its_link_is_lost_is_told(
    server: FakeBrokerServer, *, gathers: bool
) -> None:
    """Also of a batch that is handled because the app stops: it comes again, and the stop went well."""
    called, goes_on = threading.Event(), threading.Event()

    def work(_taken: Message | list[Message]) -> None:
        called.set()
        assert goes_on.wait(10)

    def batch(messages: list[Message]) -> None:
        work(messages)

    def single(message: Message) -> None:
        work(message)

    with Proxy(server.url) as proxy, ThreadPoolExecutor() as threads:
        app = App(proxy.url, reconnect=ReconnectPolicy(initial_delay=0.01))
        if gathers:
            app.consumer("a", batch=10, batch_timeout=30.0)(batch)
        else:
            app.consumer("a")(single)
        app.start()
        [worker] = app._service.workers
        app.send("queue://a", "x")
        if gathers:
            assert eventually(lambda: worker.state(app._service.progress, 0).in_hand == 1)
            time.sleep(0.3)
        else:
            assert called.wait(10)
        first = worker.greeting
        stopping = threads.submit(app.stop)
        assert called.wait(10)
        proxy.cut()
        assert eventually(lambda: worker.connected and worker.greeting is not first)
        goes_on.set()
        with pytest.raises(DrainError, match=r"was lost while message .* was handled"):
            stopping.result(20)


def test_what_no_handler_had_when_its_link_was_lost_is_not_told(server: FakeBrokerServer) -> None:
    """Its store was waited for: the message comes again, and nothing was done."""
    asked, goes_on = threading.Event(), threading.Event()
    handled: list[str] = []

    class Slow(MemoryStore):
        def once(self, identity: StoreKey, work: Callable[[Any], object]) -> bool:
            asked.set()
            assert goes_on.wait(10)
            return super().once(identity, work)

    with Proxy(server.url) as proxy, ThreadPoolExecutor() as threads:
        app = App(proxy.url, reconnect=ReconnectPolicy(initial_delay=0.01))
        app.consumer("a", dedupe=Slow())(lambda message: handled.append(message.text))
        app.start()
        [worker] = app._service.workers
        app.send("queue://a", "x")
        assert asked.wait(10)
        first = worker.greeting
        stopping = threads.submit(app.stop)
        assert eventually(worker._leaving.is_set)
        proxy.cut()
        assert eventually(lambda: worker.connected and worker.greeting is not first)
        goes_on.set()
        stopping.result(20)
    assert handled == []
    with server.broker() as broker:
        assert len(broker.queue("a")) == 1


def test_a_commit_that_the_app_waits_for_when_it_stops_is_told_as_lost(
    server: FakeBrokerServer,
) -> None:
    """Its handler had returned before: the message comes again all the same."""
    with Proxy(server.url) as proxy, ThreadPoolExecutor() as threads:
        app = App(proxy.url, reconnect=ReconnectPolicy(initial_delay=0.01))
        app.consumer("a", mode="transacted")(lambda _message: None)
        proxy.silence_at("COMMIT\n|ACK\n", 1)
        app.start()
        [worker] = app._service.workers
        app.send("queue://a", "x")
        assert eventually(lambda: not proxy.silencing and worker.called is not None)
        stopping = threads.submit(app.stop)
        assert eventually(worker._leaving.is_set)
        proxy.thaw()
        with pytest.raises(DrainError, match=r"was lost while message .* was handled"):
            stopping.result(20)
    with server.broker() as broker:
        assert len(broker.queue("a")) == 1


@pytest.mark.parametrize("consumers", [0, 1])
def test_an_app_that_is_told_to_stop_before_it_starts(
    server: FakeBrokerServer, consumers: int
) -> None:
    """As by a signal that is quicker than `run()`, which then ends at once; so does one start, and no second."""
    app = App(server.url)
    for number in range(consumers):
        app.consumer(f"a{number}")(lambda _message: None)
    for stop in (app.stop, app.abort):  # not what is over before it begins
        app.quit()
        stop()
    app.quit()
    with pytest.raises(IllegalStateError, match="told to stop before it started"):
        app.start()
    with app:
        assert app.ready().ok
    app.quit()
    app.run()


def test_an_app_that_is_told_to_stop_before_it_serves(server: FakeBrokerServer) -> None:
    """It ends at once, too, and its observers are closed."""
    eyes = Eyes()
    app = App(server.url, observers=[eyes])
    app.quit()
    asyncio.run(asyncio.wait_for(app.serve(), 5))
    assert eyes.closed


WAYS: Final = [App.run, lambda app: asyncio.run(app.serve())]


@pytest.mark.parametrize("stay", WAYS, ids=["run", "serve"])
def test_an_app_that_was_stopped_with_its_observers(
    server: FakeBrokerServer, stay: Callable[[App], None]
) -> None:
    """It returned at once, as if all had been done."""
    app = App(server.url, observers=[Eyes()])
    with app:
        pass
    with pytest.raises(IllegalStateError, match="its observers are closed"):
        stay(app)


@pytest.mark.parametrize("stay", WAYS, ids=["run", "serve"])
def test_an_app_that_finds_no_broker(stay: Callable[[App], None]) -> None:
    """Says so; serve() returned as if it had been told to stop."""
    app = App("stomp://127.0.0.1:1", reconnect=False)
    app.consumer("a")(lambda _message: None)
    for _ in range(2):
        with pytest.raises(ConnectionFailedError, match="cannot connect"):
            stay(app)


def test_an_app_that_runs_already_does_not_serve(server: FakeBrokerServer) -> None:
    """It returned as if it had been told to stop."""

    async def main() -> None:
        async with App(server.url) as app:
            with pytest.raises(IllegalStateError, match="the app is running"):
                await app.serve()

    asyncio.run(main())


def test_a_consumer_that_fails_when_its_app_has_ended(server: FakeBrokerServer) -> None:
    """Ends no start that comes later, which said that it was told to stop."""
    app = App(server.url)
    app.consumer("a")(lambda _message: None)
    with app:
        [worker] = app._service.workers
        failing = worker._failing
    failing(ConnectionFailedError("lost"))
    app.wait(0)
    with app:
        assert app.ready().ok


def test_an_app_is_not_copied() -> None:
    """What says so says what to do."""
    with pytest.raises(TypeError, match=r"an App is not copied.*make another one"):
        copy.copy(App())
