"""FastAPI with an app as its lifespan: its endpoints send and ask, and handlers run on its loop."""

from __future__ import annotations

import asyncio
import threading

import pytest
from fastapi import FastAPI
from fastapi.testclient import TestClient

from jmsx import App, Message
from jmsx.errors import ConnectionFailedError
from jmsx.testing import FakeBrokerServer

pytestmark = pytest.mark.timeout(60)


@pytest.mark.parametrize("kind", ["classic", "artemis"])
def test_endpoints_send_and_ask(kind: str) -> None:
    """What they send is handled on the same loop, and what a handler returns is their answer."""
    with FakeBrokerServer(kind) as server:
        app, loops = App(server.url), list[asyncio.AbstractEventLoop]()
        handled = threading.Event()
        web = FastAPI(lifespan=app.lifespan)

        @app.consumer("queue://orders", mode="transacted")
        async def ship(order: Message) -> None:
            loops.append(asyncio.get_running_loop())
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
            loops.append(asyncio.get_running_loop())
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

        with TestClient(web) as client:
            assert app.ready().ok
            assert client.post("/orders", params={"article": "a book"}).json()["key"]
            assert handled.wait(10)
            assert client.get("/prices/abc").json() == {"cents": 3}
            assert client.get("/plain/abcd").json() == {"cents": 4}
        assert len(loops) == 2
        assert loops[0] is loops[1]
        assert not app.ready().ok


def test_a_broker_that_is_not_there() -> None:
    """The web server does not start, and says why."""
    app = App("stomp://127.0.0.1:1", reconnect=False)
    app.consumer("queue://orders")(lambda _message: None)
    with (
        pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1"),
        TestClient(FastAPI(lifespan=app.lifespan)),
    ):
        pass
