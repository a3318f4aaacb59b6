"""FastAPI with an app as its lifespan: its endpoints send and ask, and handlers run on its loop."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import App, Message, ReconnectPolicy
from jmsx.app import loops
from jmsx.errors import ConnectionFailedError
from jmsx.testing import FakeBrokerServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from fastapi import FastAPI
    from fastapi.testclient import TestClient

pytestmark = pytest.mark.timeout(60)


def web_of(app: App) -> FastAPI:
    """A web application that lives as long as `app`."""
    from fastapi import FastAPI  # noqa: PLC0415 - each worker process would load it to collect tests

    return FastAPI(lifespan=app.lifespan)


def client_of(web: FastAPI) -> TestClient:
    """A client that starts it."""
    from fastapi.testclient import TestClient  # noqa: PLC0415 - see web_of()

    return TestClient(web)


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_endpoints_send_and_ask(kind: str) -> None:
    """What they send is handled on the same loop, and what a handler returns is their answer."""
    with FakeBrokerServer(kind) as server:
        app, used = App(server.url), list[asyncio.AbstractEventLoop]()
        handled = threading.Event()
        web = web_of(app)

        @app.consumer("queue://orders", mode="transacted")
        async def ship(order: Message) -> None:
            used.append(asyncio.get_running_loop())
            await app.asend("queue://shipped", order.text)

        @app.consumer("queue://shipped")
        def note(order: str) -> None:
            assert order == "a book"
            handled.set()

        @app.consumer("queue://prices")
        async def price(article: str) -> dict[str, int]:
            return {"cents": len(article)}

        @web.post("/orders")
        async def place(article: str) -> dict[str, str]:
            used.append(asyncio.get_running_loop())
            return {"key": await app.asend("queue://orders", article)}

        @web.get("/prices/{article}")
        async def ask(article: str) -> dict[str, int]:
            answer = await app.arequest("queue://prices", article, timeout="10s")
            found: dict[str, int] = answer.json()
            return found

        @web.get("/plain/{article}")
        def plain(article: str) -> dict[str, int]:
            found: dict[str, int] = app.request("queue://prices", article, timeout="10s").json()
            return found

        with client_of(web) as client:
            assert app.ready().ok
            assert client.post("/orders", params={"article": "a book"}).json()["key"]
            assert handled.wait(10)
            assert client.get("/prices/abc").json() == {"cents": 3}
            assert client.get("/plain/abcd").json() == {"cents": 4}
        assert len(used) == 2
        assert used[0] is used[1]
        assert not app.ready().ok


def test_a_broker_that_is_not_there() -> None:
    """The web server does not start, and says why."""
    app = App("stomp://127.0.0.1:1", reconnect=False)
    app.consumer("queue://orders")(lambda _message: None)
    with (
        pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1"),
        client_of(web_of(app)),
    ):
        pass


@contextlib.contextmanager
def nothing_left() -> Iterator[None]:
    """All threads of ours end that begin meanwhile; those of a pool are not waited for where it is left."""
    before, deadline = set(threading.enumerate()), time.monotonic() + 10
    yield
    while left := [
        one.name for one in set(threading.enumerate()) - before if one.name.startswith("jmsx")
    ]:
        assert time.monotonic() < deadline, left
        time.sleep(0.01)


def test_a_broker_that_comes_later(monkeypatch: pytest.MonkeyPatch) -> None:
    """The web server serves meanwhile, says that the app is not ready, and consumers begin when it is there."""
    monkeypatch.setattr(loops, "ENTERING", 0.2)
    server = FakeBrokerServer("classic")  # it listens, and answers nobody yet
    app, handled = App(server.url), threading.Event()
    web = web_of(app)

    @app.consumer("queue://orders")
    async def ship(order: str) -> None:
        assert order == "a book"
        handled.set()

    @web.get("/ready")
    async def ready() -> bool:
        return app.ready().ok

    with client_of(web) as client:
        assert client.get("/ready").json() is False
        server.start()
        app.send("queue://orders", "a book")
        assert handled.wait(20)
        deadline = time.monotonic() + 10
        # A handler may run while the last step is taken.
        while client.get("/ready").json() is not True:
            assert time.monotonic() < deadline
    server.stop()


@pytest.mark.parametrize("fault", [None, ValueError])
def test_a_web_server_that_ends_before_the_broker_comes(
    fault: type[Exception] | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ends at once, and well, or with its own error."""
    monkeypatch.setattr(loops, "ENTERING", 0.1)
    app = App("stomp://127.0.0.1:1")
    app.consumer("queue://orders")(lambda _message: None)

    async def main() -> None:
        async with app.lifespan():
            if fault is not None:
                raise fault

    began = time.monotonic()
    raises = contextlib.nullcontext() if fault is None else pytest.raises(fault)
    with nothing_left(), raises:
        asyncio.run(main())
    assert time.monotonic() - began < 5


def test_a_start_that_fails_later(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Is told at once, and raised at the end."""
    monkeypatch.setattr(loops, "ENTERING", 0.1)
    policy = ReconnectPolicy(startup_timeout=0.5)
    app = App("stomp://127.0.0.1:1", reconnect=policy)
    app.consumer("queue://orders")(lambda _message: None)

    async def main() -> None:
        async with app.lifespan():
            while not any("did not start" in one.getMessage() for one in caplog.records):  # noqa: ASYNC110 - nothing can be awaited that tells of a log line
                await asyncio.sleep(0.05)

    with pytest.raises(ConnectionFailedError):
        asyncio.run(main())


def test_a_start_of_a_web_server_that_is_cancelled(monkeypatch: pytest.MonkeyPatch) -> None:
    """Leaves nothing behind."""
    monkeypatch.setattr(loops, "ENTERING", 30.0)
    app = App("stomp://127.0.0.1:1")
    app.consumer("queue://orders")(lambda _message: None)

    async def main() -> None:
        async with asyncio.timeout(0.3), app.lifespan():
            pass

    with nothing_left(), pytest.raises(TimeoutError):
        asyncio.run(main())


def test_a_web_server_that_is_cancelled_just_when_the_app_has_started() -> None:
    """What has started ends."""
    with FakeBrokerServer("classic") as server:
        app = App(server.url)
        app.consumer("queue://orders")(lambda _message: None)

        async def main() -> None:
            serving = asyncio.current_task()
            assert serving is not None
            start = app.__aenter__

            async def started() -> App:
                entered = await start()
                serving.cancel()
                return entered

            async with loops.beside_a_server(Entering(started, app.__aexit__), app.quit):
                pytest.fail("it was cancelled before")

        with nothing_left(), pytest.raises(asyncio.CancelledError):
            asyncio.run(main())


class Entering:
    """What is entered and left by these."""

    def __init__(self, enter: Any, leave: Any) -> None:
        self._enter, self._leave = enter, leave

    async def __aenter__(self) -> App:
        entered: App = await self._enter()
        return entered

    async def __aexit__(self, *error: object) -> None:
        await self._leave(*error)
