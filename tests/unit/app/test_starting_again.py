"""An app that another thread ends and starts again: whatever belongs to the first start ends nothing of the second."""

from __future__ import annotations

import asyncio
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, Message
from jmsx.app import foreground
from jmsx.app.lifecycle import Start
from jmsx.errors import IllegalStateError, JmsxError
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.timeout(60)


@pytest.fixture
def app() -> Iterator[App]:
    """One with a consumer, at a broker; nothing of it runs afterwards."""
    with FakeBrokerServer("classic") as server:
        made = App(server.url, health="127.0.0.1:0")
        made.consumer("a")(lambda _message: None)
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
    availability = service.workers._stores.availability

    def hang(store: Any) -> Any:
        opens.set()
        assert on.wait(30)
        return availability(store)

    monkeypatch.setattr(service.workers._stores, "availability", hang)
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

    def slowly(start: Start) -> None:
        end(start)
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

    async def refused(*_: object) -> None:
        raise RuntimeError("can't start new thread")

    with monkeypatch.context() as patched:
        patched.setattr(foreground, "beside", refused)
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

    def slowly(start: Start) -> None:
        time.sleep(0.3)
        end(start)

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
