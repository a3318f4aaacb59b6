"""What `app.send(...)` takes, on both brokers in memory, in virtual time; and what it refuses before it connects."""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    AcknowledgeMode,
    App,
    ConfigurationError,
    Layer,
    Message,
    RedeliveryPolicy,
    UnsupportedError,
)
from jmsx.app import outgoing
from jmsx.errors import BrokerTimeoutError, ConnectionFailedError, MessageFormatError
from jmsx.testing import FakeBrokerServer, harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

URL = "stomp://localhost:61613"
KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])


def reader() -> App:
    """An app that reads `orders`."""
    app = App()

    @app.consumer("queue://orders", redelivery=RedeliveryPolicy(maximum_redeliveries=0))
    def ship(order: Message) -> None:
        del order

    return app


@KINDS
def test_what_a_message_is_given(kind: str) -> None:
    """By keyword, for a body."""
    app = reader()
    with harness(app, kind) as mq:
        mq.send(
            "queue://orders",
            "x",
            properties={"region": "EU", "rank": 3},
            priority=7,
            persistent=False,
            group="g1",
            correlation_id="c1",
            reply_to="queue://answers",
            expires="1h",
            timeout="5s",
        )
        (message,) = mq.handler("reader.<locals>.ship").messages
        assert dict(message.properties)["region"] == "EU"
        assert message.properties["rank"] == 3
        assert (message.priority, message.persistent) == (7, False)
        assert (message.group_id, message.correlation_id) == ("g1", "c1")
        assert str(message.reply_to) == "queue://answers"
        assert message.expiration == pytest.approx((message.timestamp or 0) + 3600, abs=1)


@KINDS
@pytest.mark.parametrize("delay", [60, timedelta(minutes=1), "1min"])
def test_a_delay(kind: str, delay: Any) -> None:
    """Is kept by the broker; what expires does so counted from the send."""
    app = reader()
    with harness(app, kind) as mq:
        calls = mq.handler("reader.<locals>.ship").calls
        mq.send("queue://orders", "late", delay=delay)
        mq.send("queue://orders", "at once", delay=0)
        mq.advance("59s")
        assert [call.message.text for call in calls] == ["at once"]
        mq.advance("1s")
        assert [call.message.text for call in calls] == ["at once", "late"]


@KINDS
def test_a_delay_in_a_transaction(kind: str) -> None:
    """Is part of it: what is rolled back is not sent."""
    app = App(redelivery_policy=RedeliveryPolicy(maximum_redeliveries=0))

    @app.consumer("queue://orders", mode="transacted")
    def ship(order: Message) -> None:
        app.send("queue://later", order.text, delay="1min", group="g", confirm=False)
        if order.text == "bad":
            raise ValueError

    @app.consumer("queue://later")
    def later(message: Message) -> None:
        del message

    with harness(app, kind) as mq:
        mq.send("queue://orders", "bad")
        mq.send("queue://orders", "good")
        mq.advance("59s")
        assert mq.handler(later).messages == []
        mq.advance("1s")
        assert [one.text for one in mq.handler(later).messages] == ["good"]


def test_a_dedupe_id_on_artemis() -> None:
    """The broker takes it once, also in transactions, and other messages of such a transaction all the same."""
    app = App()

    @app.consumer("queue://orders", mode="transacted")
    def ship(order: Message) -> None:
        app.send("queue://bills", order.text, dedupe_id=f"bill-{order.text}")
        app.send("queue://log", order.text)

    with harness(app, "artemis") as mq:
        for _ in range(2):
            mq.send("queue://orders", "a", dedupe_id="order-a")
        mq.send("queue://orders", "a", dedupe_id="order-a-2")
        mq.send("queue://orders", "b")
        mq.advance("1min")
        assert [one.text for one in mq.messages("queue://bills")] == ["a", "b"]
        assert [one.text for one in mq.messages("queue://log")] == ["a", "a", "b"]


def test_a_dedupe_id_on_classic() -> None:
    """Would be ignored there, so it is refused, with what to do."""
    with harness(reader()) as mq, pytest.raises(UnsupportedError, match="dedupe_by="):
        mq.send("queue://orders", "a", dedupe_id="a")


@KINDS
def test_a_property_that_says_it_already(kind: str) -> None:
    """One of the two would be ignored."""
    with (
        harness(reader(), kind) as mq,
        pytest.raises(MessageFormatError, match="only one of the two"),
    ):
        mq.send("queue://orders", "a", properties={"AMQ_SCHEDULED_DELAY": 5}, delay=1)


@KINDS
def test_without_confirmation(kind: str) -> None:
    """It is on its way."""
    app = reader()
    with harness(app, kind) as mq:
        assert mq.send("queue://orders", "a", confirm=False)
        assert len(mq.handler("reader.<locals>.ship").calls) == 1


@KINDS
def test_asend_takes_the_same(kind: str) -> None:
    """On the loop."""
    app = App()

    @app.consumer("queue://orders", mode="transacted")
    async def ship(order: Message) -> None:
        await app.asend("queue://later", order.text, delay=timedelta(seconds=5), priority=9)

    async def main() -> None:
        async with harness(app, kind) as mq:
            await mq.asend("queue://orders", "a", expires=60)
            await mq.aadvance("6s")
            assert [one.priority for one in mq.messages("queue://later")] == [9]

    asyncio.run(main())


class Silent:
    """Swallows what goes to the broker from now on."""

    def __init__(self, mq: Any) -> None:
        mq._world.transmit = lambda *_: None


def test_a_timeout_of_one_send() -> None:
    """Is its own; others wait as long as the app says."""
    app = App(request_timeout=20.0)
    with harness(app) as mq:
        mq.send("queue://a", "x")
        started = mq.now
        transmit = mq._world.transmit
        Silent(mq)
        with pytest.raises(BrokerTimeoutError, match=r"in 2 s"):
            mq.send("queue://a", "x", timeout="2s")
        assert mq.now - started == pytest.approx(2)
        mq._world.transmit = transmit  # type: ignore[method-assign]  # puts back what was there


@pytest.mark.parametrize(
    ("options", "complaint"),
    [
        ({"priority": 10}, "priority must be a whole number from 0 to 9"),
        ({"priority": True}, "priority must be"),
        ({"delay": "soon"}, "delay='soon' is no duration"),
        ({"delay": -1}, "delay must be 0 s or more"),
        ({"delay": float("inf")}, "delay must be 0 s or more, and 4611686018427388 s at the most"),
        ({"expires": 0}, "expires must be more than 0 s"),
        ({"expires": float("nan")}, "expires must be"),
        ({"timeout": 0}, "timeout must be more than 0 s"),
        ({"timeout": b"1s"}, "timeout must be seconds, a timedelta"),
        ({"delay": "1h", "expires": "1h"}, "it expires before it is delivered"),
        ({"group": 5}, "group must be a str"),
        ({"group": ""}, "group is empty"),
        ({"correlation_id": 5}, "correlation_id must be a str"),
        ({"dedupe_id": ""}, "dedupe_id is empty"),
        ({"confirm": 1}, "confirm must be True or False"),
        ({"persistent": "no"}, "persistent must be True or False"),
        ({"time_to_live": 5}, "did you mean 'expires'"),
    ],
)
def test_refused_at_the_door(options: dict[str, Any], complaint: str) -> None:
    """Before there is a connection: this app has no broker."""
    with pytest.raises(ConfigurationError, match=complaint):
        App().send("queue://a", "x", **options)


@pytest.mark.parametrize(
    ("options", "written"),
    [
        ({"properties": {"a": 1}}, "properties="),
        ({"correlation_id": "c"}, "correlation_id="),
        ({"reply_to": "queue://b"}, "reply_to="),
        ({"group": "g"}, "group_id="),
    ],
)
def test_a_message_has_its_own(options: Any, written: str) -> None:
    """What is given beside it would be ignored."""
    with pytest.raises(ConfigurationError, match=rf"write Message\(body, {written}"):
        App().send("queue://a", Message("x"), **options)


def test_who_awaits_a_broker_that_is_away_keeps_no_thread_from_others() -> None:
    """The event loop's pool is everybody's: it looks up names, too, as long as a thread of it is free."""
    app = App("stomp://127.0.0.1:1")

    async def send() -> str:
        asyncio.get_running_loop().set_default_executor(ThreadPoolExecutor(1))
        sending = [asyncio.create_task(app.asend("queue://orders", "x")) for _ in range(100)]
        await asyncio.sleep(0.01)
        try:
            return await asyncio.wait_for(asyncio.to_thread(lambda: "looked up"), 10)
        finally:
            for one in sending:
                one.cancel()
            await asyncio.wait(sending)
            app.abort()

    assert asyncio.run(send()) == "looked up"


@pytest.mark.parametrize("end", [App.stop, App.abort])
def test_what_waits_for_a_thread_is_not_sent_once_the_app_is_stopped(
    end: Callable[[App], None],
) -> None:
    """It opened a connection behind the stop, and waited for the broker for ever; the program did not end."""
    app = App("stomp://127.0.0.1:1")

    async def send() -> list[str | BaseException]:
        sending = [asyncio.create_task(app.asend("queue://orders", "x")) for _ in range(40)]
        await asyncio.sleep(0.01)
        end(app)
        return await asyncio.wait_for(asyncio.gather(*sending, return_exceptions=True), 10)

    ended = asyncio.run(send())
    assert {type(error) for error in ended} == {ConnectionFailedError}
    assert "nothing was sent to queue://orders" in str(ended[-1])


def test_a_handler_does_not_wait_for_the_sends_of_others() -> None:
    """These may wait for it, as where it reads the queue that is full."""
    free = threading.Event()

    @contextlib.contextmanager
    def full(_message: Message, to: str) -> Iterator[None]:
        if to == "queue://full":
            assert free.wait(10)
        yield

    async def awaited(message: Message, call_next: Any) -> None:
        await call_next(message)

    async def run(app: App) -> None:
        @app.consumer("queue://in", mode=AcknowledgeMode.SESSION_TRANSACTED)
        async def forward(_message: Message) -> None:
            await app.asend("queue://out", "x")
            free.set()

        async with app:
            sending = [asyncio.create_task(app.asend("queue://full", "x")) for _ in range(40)]
            await asyncio.to_thread(app.send, "queue://in", "x")
            await asyncio.gather(*sending)

    with FakeBrokerServer("classic") as server:
        around = Layer(lambda message, go_on: go_on(message), awaited, full)
        asyncio.run(run(App(server.url, middleware=[around])))


def test_a_thread_of_the_loops_pool_may_wait_for_an_asend() -> None:
    """As code does that is not async, and has a loop to call: it must not wait for its own thread."""

    async def send(app: App) -> str:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(1))

        def work() -> str:
            return asyncio.run_coroutine_threadsafe(app.asend("queue://a", "x"), loop).result(10)

        return await asyncio.to_thread(work)

    with FakeBrokerServer("classic") as server:
        app = App(server.url)
        assert asyncio.run(send(app))
        app.stop()


@pytest.fixture
def one_thread(monkeypatch: pytest.MonkeyPatch) -> ThreadPoolExecutor:
    """What apps have for `asend`."""
    pool = ThreadPoolExecutor(1)
    monkeypatch.setattr(outgoing, "ThreadPoolExecutor", lambda **_: pool)
    return pool


def test_a_timeout_counts_from_the_call_of_asend(one_thread: ThreadPoolExecutor) -> None:
    """Also where no thread of the app's pool is free: then nothing was sent."""
    app, free = App(URL), threading.Event()

    async def send() -> str:
        loop = asyncio.get_running_loop()
        busy = loop.run_in_executor(one_thread, free.wait, 10)
        sending = asyncio.create_task(app.asend("queue://orders", "x", timeout=0.001))
        await asyncio.sleep(0.01)
        free.set()
        await busy
        return await sending

    with pytest.raises(ConnectionFailedError, match=r"no thread .* free in the 0\.001 s"):
        asyncio.run(send())


def test_a_timeout_counts_from_the_call_of_asend_in_a_transaction(
    one_thread: ThreadPoolExecutor,
) -> None:
    """As everywhere."""

    async def run(app: App) -> None:
        loop, free, over = asyncio.get_running_loop(), threading.Event(), asyncio.Event()

        @app.consumer("queue://in", mode=AcknowledgeMode.SESSION_TRANSACTED)
        async def forward(_message: Message) -> None:
            busy = loop.run_in_executor(one_thread, free.wait, 10)
            sending = asyncio.create_task(app.asend("queue://late", "x", timeout=0.001))
            await asyncio.sleep(0.01)
            free.set()
            await busy
            with pytest.raises(ConnectionFailedError, match=r"no thread .* free in the 0\.001 s"):
                await sending
            await app.asend("queue://patient", "x", timeout=60)
            over.set()

        async with app:
            await app.asend("queue://in", "x")
            await asyncio.wait_for(over.wait(), 10)

    with FakeBrokerServer("classic") as server:
        asyncio.run(run(App(server.url)))
        with server.broker() as broker:
            assert [len(broker.queue(name)) for name in ("late", "patient")] == [0, 1]


def test_what_is_around_a_send_takes_no_time_from_asend() -> None:
    """As from `send`: its timeout is for the connection and the confirmation."""

    async def awaited(message: Message, call_next: Any) -> None:
        await call_next(message)

    @contextlib.contextmanager
    def slow(_message: Message, _to: str) -> Iterator[None]:
        time.sleep(1.0)
        yield

    with FakeBrokerServer("classic") as server:
        app = App(
            server.url, middleware=[Layer(lambda message, go_on: go_on(message), awaited, slow)]
        )
        app.send("queue://orders", "x", timeout=0.9)
        asyncio.run(app.asend("queue://orders", "y", timeout=0.9))
        with server.broker() as broker:
            assert len(broker.queue("orders")) == 2
        app.abort()
