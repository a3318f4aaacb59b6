"""What a crash, or leaving by an error, repeats of what handlers have done; the broker is in memory."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
import time
from typing import Final

import anyio
import pytest

from jmsx import App, DrainError, Message
from jmsx.app import loops
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

pytestmark = pytest.mark.timeout(60)

MANY: Final = 60
FATAL: Final = 40

#: Notes each message, with a call that a kill cannot undo, and kills itself in the middle of one.
PROGRAM: Final = f"""
import os, signal, sys
from jmsx import App, Message

app = App(sys.argv[1])

@app.consumer("queue://in", mode=sys.argv[2])
{{kind}}def handle(message: Message) -> None:
    os.write(1, message.body.encode() + b"\\n")
    if message.body == "{FATAL}":
        os.kill(os.getpid(), signal.SIGKILL)

app.run()
"""


@pytest.mark.parametrize("kind", ["", "async "])
@pytest.mark.parametrize(("mode", "most"), [("auto", FATAL + 1), ("transacted", 1)])
def test_what_a_crash_repeats(mode: str, most: int, kind: str) -> None:
    """In AUTO what was done in the last milliseconds; in a transaction the one message whose handler ran."""
    numbers = [str(number) for number in range(MANY)]
    with FakeBrokerServer("classic") as server:
        with App(server.url) as sender:
            for number in numbers:
                sender.send("queue://in", number)
        ended = subprocess.run(
            [sys.executable, "-c", PROGRAM.format(kind=kind), server.url, mode],
            stdout=subprocess.PIPE,
            text=True,
            check=False,
        )
        handled = ended.stdout.split()
        assert handled == numbers[: FATAL + 1]
        again: list[str] = []
        app = App(server.url)
        app.consumer("queue://in")(lambda message: again.append(message.text))
        with app:
            assert eventually(lambda: numbers[-1] in again, 10)
    assert again == numbers[-len(again) :]  # nothing is missing, and all is in its order
    assert 1 <= len(set(again) & set(handled)) <= most


def read_to_the_end(server: FakeBrokerServer) -> list[str]:
    """What another app gets of the queue, up to a last message."""
    again = list[str]()
    reader = App(server.url)
    reader.consumer("queue://in")(lambda message: again.append(message.text))
    with reader:
        reader.send("queue://in", "end")
        assert eventually(lambda: "end" in again, 10)
    return again


@pytest.mark.parametrize("way", ["with", "async with"])
@pytest.mark.parametrize(
    ("error", "repeats"),
    [(KeyboardInterrupt, 0), (SystemExit, 0), (asyncio.CancelledError, 0), (ValueError, 1)],
)
def test_leaving_by_an_error(way: str, error: type[BaseException], repeats: int) -> None:
    """What ends a program in good order drains; any other error aborts, and what runs comes again."""
    began = threading.Event()

    def handle(_message: Message) -> None:
        began.set()
        threading.Event().wait(0.3)

    def run(app: App) -> None:
        with app:
            began.wait()
            raise error

    async def arun(app: App) -> None:
        async with app:
            await asyncio.to_thread(began.wait)
            raise error

    with FakeBrokerServer("classic") as server:
        app = App(server.url)
        app.consumer("queue://in")(handle)
        with App(server.url) as sender:
            sender.send("queue://in", "x")
        with pytest.raises(error):
            run(app) if way == "with" else asyncio.run(arun(app))
        again = read_to_the_end(server)
    assert again == ["x"] * repeats + ["end"]


@pytest.mark.parametrize("way", ["async with", "serve"])
def test_a_cancelled_scope_of_anyio_drains(way: str) -> None:
    """Such a scope cancels again at each step, which is one cancellation, and no second one that aborts."""

    async def main(app: App, began: anyio.Event) -> None:
        async def leave() -> None:
            while not app.ready().ok:  # noqa: ASYNC110 - nothing else tells it
                await anyio.sleep(0.01)
            await app.asend("queue://in", "x")
            await began.wait()
            tasks.cancel_scope.cancel()

        async with anyio.create_task_group() as tasks:
            tasks.start_soon(leave)
            if way == "serve":
                await app.serve()
            else:
                async with app:
                    await anyio.sleep_forever()

    with FakeBrokerServer("classic") as server:
        app, began = App(server.url), anyio.Event()

        @app.consumer("queue://in")
        async def handle(_message: Message) -> None:
            began.set()
            await asyncio.sleep(0.3)

        anyio.run(main, app, began)
        again = read_to_the_end(server)
    assert again == ["end"]


@pytest.mark.parametrize("way", ["async with", "serve"])
def test_cancelled_while_it_starts_it_drains(way: str) -> None:
    """Messages flow before the start has returned, and what their handlers do is not done twice."""
    began = threading.Event()

    async def arun(app: App) -> None:
        async with app:
            raise AssertionError  # it never comes so far

    async def main(app: App) -> None:
        starting = asyncio.create_task(app.serve() if way == "serve" else arun(app))
        for _ in range(5):
            await asyncio.sleep(0)  # it begins, beside this loop, which is held up from here on
        began.wait()
        starting.cancel()
        with pytest.raises(asyncio.CancelledError):
            await starting
        assert not app.ready().ok

    with FakeBrokerServer("classic") as server:
        app = App(server.url)

        @app.consumer("queue://in")
        def handle(_message: Message) -> None:
            began.set()
            time.sleep(0.3)

        with App(server.url) as sender:
            sender.send("queue://in", "x")
        asyncio.run(main(app))
        again = read_to_the_end(server)
    assert again == ["end"]


def test_cancelled_while_it_waits_for_its_broker_it_ends() -> None:
    """Nothing flows, so there is nothing to drain."""

    async def main() -> None:
        app = App("tcp://127.0.0.1:1")
        app.consumer("queue://in")(lambda _message: None)
        serving = asyncio.create_task(app.serve())
        await asyncio.sleep(0.3)
        serving.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asyncio.wait_for(serving, 10)

    asyncio.run(main())


def test_a_handler_that_blocks_the_loop_holds_up_no_end(monkeypatch: pytest.MonkeyPatch) -> None:
    """It has had its time when the app drained; that of the loop, for what runs on it besides, is not added."""
    monkeypatch.setattr(loops, "ENDING", 60.0)
    began, let_go = threading.Event(), threading.Event()
    with FakeBrokerServer("classic") as server:
        app = App(server.url)

        @app.consumer("queue://in")
        async def handle(_message: Message) -> None:
            began.set()
            let_go.wait()

        app.start()
        try:
            app.send("queue://in", "x")
            assert began.wait(10)
            since = time.monotonic()
            with pytest.raises(DrainError):
                app.stop(0.2)
            assert time.monotonic() - since < 30
        finally:
            let_go.set()
