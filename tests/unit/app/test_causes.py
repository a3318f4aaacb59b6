"""What a handler sends names the message that it had: on both brokers in memory, in virtual time."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import pytest

from jmsx import App, Message
from jmsx.core.events import DeliveryEnded, MessageSent
from jmsx.testing import harness

if TYPE_CHECKING:
    from jmsx.core.events import Event, Source

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])


class Notes:
    """An observer that keeps what was sent, and what was handled."""

    def __init__(self) -> None:
        self.causes: dict[str, str | None] = {}  #: by destination
        self.handled: dict[str, str] = {}  #: keys by destination

    def observe(self, event: Event, _source: Source) -> None:
        """Keep it."""
        if isinstance(event, MessageSent):
            self.causes[event.destination] = event.cause_key
        elif isinstance(event, DeliveryEnded):
            self.handled[event.destination] = event.message_key

    def close(self) -> None:
        """Nothing was opened."""


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_of_a_plain_handler(kind: str, mode: str) -> None:
    """In a transaction and outside, its answer too; what is sent outside of handlers has none."""
    notes = Notes()
    app = App(observers=[notes])

    @app.consumer("queue://orders", mode=mode)
    def ship(_order: Message) -> str:
        app.send("queue://shipped", "x")
        return "done"

    with harness(app, kind) as mq:
        mq.send("queue://orders", "a", reply_to="queue://answers")
        app.send("queue://other", "x")
    key = notes.handled["queue://orders"]
    assert notes.causes == {
        "queue://orders": None,
        "queue://shipped": key,
        "queue://answers": key,
        "queue://other": None,
    }


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_of_a_coroutine(kind: str, mode: str) -> None:
    """Also of a task that it has started."""
    notes = Notes()
    app = App(observers=[notes])

    @app.consumer("queue://orders", mode=mode)
    async def ship(_order: Message) -> None:
        await app.asend("queue://shipped", "x")
        await asyncio.create_task(app.asend("queue://booked", "x"))

    with harness(app, kind) as mq:
        mq.send("queue://orders", "a")
    key = notes.handled["queue://orders"]
    assert notes.causes == {"queue://orders": None, "queue://shipped": key, "queue://booked": key}


@KINDS
def test_of_a_batch(kind: str) -> None:
    """It may come of any of them, so none is named; of one alone that is."""
    notes = Notes()
    app = App(observers=[notes])

    @app.consumer("queue://orders", batch=2, batch_timeout=60.0)
    def ship(orders: list[Message]) -> None:
        app.send(f"queue://shipped.{len(orders)}", "x")

    with harness(app, kind) as mq:
        mq.send("queue://orders", "a")
        mq.send("queue://orders", "b")
        mq.send("queue://orders", "c")
        mq.advance("2min")
    assert notes.causes == {
        "queue://orders": None,
        "queue://shipped.2": None,
        "queue://shipped.1": notes.handled["queue://orders"],
    }


@KINDS
def test_of_a_task_that_goes_on(kind: str) -> None:
    """What it sends after its handler may be for any other, so that none is named."""
    notes = Notes()
    app = App(observers=[notes])
    texts: asyncio.Queue[str] = asyncio.Queue()
    tasks: list[asyncio.Task[None]] = []

    async def write() -> None:
        for _ in range(3):
            await app.asend(f"queue://{await texts.get()}", "x")

    @app.consumer("queue://orders")
    async def ship(order: Message) -> None:
        if not tasks:
            tasks.append(asyncio.create_task(write()))
        texts.put_nowait(order.text)
        if order.text == "last":
            await tasks[0]

    with harness(app, kind) as mq:
        mq.send("queue://orders", "one")
        mq.send("queue://orders", "another")
        mq.send("queue://orders", "last")
    assert notes.causes["queue://last"] is None


@KINDS
def test_of_a_thread(kind: str) -> None:
    """It knows of its handler if it was given the context, as by asyncio.to_thread."""
    notes = Notes()
    app = App(observers=[notes])

    @app.consumer("queue://orders")
    async def ship(_order: Message) -> None:
        await asyncio.to_thread(app.send, "queue://shipped", "x")
        loop = asyncio.get_running_loop()
        await loop.run_in_executor(None, app.send, "queue://other", "x")

    with harness(app, kind) as mq:
        mq.send("queue://orders", "a")
    key = notes.handled["queue://orders"]
    assert notes.causes == {"queue://orders": None, "queue://shipped": key, "queue://other": None}


@KINDS
def test_of_the_message_and_no_later_one(kind: str) -> None:
    """Each delivery has its own; what fails has sent because of it, too."""
    notes = Notes()
    app = App(observers=[notes])

    @app.consumer("queue://orders")
    def ship(order: Message) -> None:
        app.send(f"queue://{order.text}", "x")
        if order.text == "bad":
            raise ValueError

    with harness(app, kind) as mq:
        keys = {text: mq.send("queue://orders", text) for text in ("a", "bad", "b")}
        mq.advance("1d")
    named = {f"queue://{text}": key for text, key in keys.items()}
    assert notes.causes == {"queue://orders": None, **named}
