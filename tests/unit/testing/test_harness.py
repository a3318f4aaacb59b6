"""Applications against the broker in memory, in virtual time."""

from __future__ import annotations

import asyncio
import math
import sqlite3
import threading
import time
from collections import Counter
from contextlib import closing
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    AcknowledgeMode,
    App,
    BatchError,
    ConfigurationError,
    Discard,
    DrainError,
    IllegalStateError,
    MemoryStore,
    Message,
    RedeliveryPolicy,
    Reject,
    Retry,
    Session,
    SqliteStore,
    UnansweredError,
)
from jmsx.app.overview import overview
from jmsx.testing import BlockedError, harness

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

KINDS = ["classic", "artemis"]

pytestmark = pytest.mark.parametrize("kind", KINDS)

TWICE = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=3600.0, redelivery_delay=3600.0
)


@pytest.fixture(autouse=True)
def no_thread_is_left() -> Iterator[None]:
    """Whatever happens in a test: its threads end, but for one whose handler never returns."""
    before = set(threading.enumerate())
    yield
    deadline = time.monotonic() + 5
    while time.monotonic() < deadline:
        left = [one for one in threading.enumerate() if one not in before]
        if not [one for one in left if "blocked" not in one.name]:
            return
        time.sleep(0.01)
    assert left == []


def shop(mode: AcknowledgeMode = AcknowledgeMode.AUTO_ACKNOWLEDGE) -> App:
    """An app whose handler fails for "bad", and sends the rest on."""
    app = App()

    @app.consumer("queue://orders", mode=mode, redelivery=TWICE)
    def ship(order: Message) -> None:
        app.send("queue://ledger", order.text.upper())
        if order.text == "bad":
            raise ValueError("no such article")

    return app


def texts(messages: Iterable[Message]) -> list[str]:
    """Their bodies."""
    return [message.text for message in messages]


def test_what_follows_is_done_when_the_step_returns(kind: str) -> None:
    """No waiting, no looking again."""
    with harness(shop(), kind) as mq:
        key = mq.send("queue://orders", "a", properties={"region": "EU"})
        call = mq.handler("shop.<locals>.ship").calls[0]
        assert (call.message.text, call.message.key, call.attempt, call.at, call.error) == (
            "a",
            key,
            1,
            0.0,
            None,
        )
        assert call.message.properties["region"] == "EU"
        assert texts(mq.messages("queue://ledger")) == ["A"]
        assert mq.messages("queue://orders") == []
        assert mq.dead_letters() == []


def test_hours_of_back_off_take_no_time(kind: str) -> None:
    """Three attempts in two hours, and then a dead letter with its reason."""
    began = time.process_time()
    app = shop()
    app.consumer("queue://others")(lambda _message: None)
    with harness(app, kind) as mq:
        mq.send("queue://orders", "bad")
        calls = mq.handler("shop.<locals>.ship").calls
        assert len(calls) == 1
        mq.advance("59m")
        assert len(calls) == 1
        mq.advance(timedelta(minutes=1))
        assert len(calls) == 2
        assert mq.dead_letters() == []
        mq.advance(3600)
        assert [(call.attempt, call.at) for call in calls] == [(1, 0.0), (2, 3600.0), (3, 7200.0)]
        assert str(calls[-1].error) == "no such article"
        [dead] = mq.dead_letters("queue://orders")
        assert dead.message is not None
        assert dead.message.text == "bad"
        assert (dead.reason, dead.attempts, dead.error_type, dead.error_message) == (
            *("max_redeliveries", 3, "ValueError"),
            "no such article",
        )
        assert dead.queue == {"classic": "queue://ActiveMQ.DLQ", "artemis": "queue://DLQ"}[kind]
        assert mq.dead_letters("queue://others") == []
    assert time.process_time() - began < 2.0


def test_the_same_run_twice_is_the_same(kind: str) -> None:
    """With several consumers, sessions and delays: the order of all calls repeats."""
    runs = []
    for _ in range(3):
        app, order = App(), list[tuple[str, str, int]]()

        @app.consumer("queue://a", concurrency=3, redelivery=TWICE)
        def first(
            message: Message, app: App = app, order: list[tuple[str, str, int]] = order
        ) -> None:
            order.append(("a", message.text, message.delivery_count))
            if int(message.text) % 3 == 0 and message.delivery_count < 2:
                raise ValueError
            app.send("queue://b", message.text)

        @app.consumer("queue://b", concurrency=2)
        def second(message: Message, order: list[tuple[str, str, int]] = order) -> None:
            order.append(("b", message.text, message.delivery_count))

        with harness(app, kind) as mq:
            for number in range(12):
                mq.send("queue://a", str(number))
            mq.advance("5h")
        assert len(order) == 12 + 4 + 12
        runs.append(order)
    assert runs[0] == runs[1] == runs[2]


def test_two_consumers_share_a_queue(kind: str) -> None:
    """Each message goes to one of them."""
    app = App()
    got: dict[str, list[str]] = {"one": [], "two": []}

    @app.consumer("queue://q", name="one", prefetch=1)
    def one(message: Message) -> None:
        got["one"].append(message.text)

    @app.consumer("queue://q", name="two", prefetch=1)
    def two(message: Message) -> None:
        got["two"].append(message.text)

    with harness(app, kind) as mq:
        for number in range(10):
            mq.send("queue://q", str(number))
    assert sorted(got["one"] + got["two"]) == sorted(map(str, range(10)))


def test_transacted_handler(kind: str) -> None:
    """What it sends is there when it has returned, and not if it raises."""
    with harness(shop(AcknowledgeMode.SESSION_TRANSACTED), kind) as mq:
        mq.send("queue://orders", "good")
        mq.send("queue://orders", "bad")
        mq.advance("3h")
        assert texts(mq.messages("queue://ledger")) == ["GOOD"]
        assert [dead.attempts for dead in mq.dead_letters("queue://orders")] == [3]


def test_other_modes(kind: str) -> None:
    """Each settles what its handler has done."""
    for mode in ("client", "individual", "dups_ok"):
        app = App()

        @app.consumer("queue://q", mode=mode, redelivery=TWICE)
        def handle(message: Message) -> None:
            if message.delivery_count == 1:
                raise ValueError(message.text)

        with harness(app, kind) as mq:
            mq.send("queue://q", mode)
            mq.advance("1h")
            assert [call.attempt for call in mq.handler(handle).calls] == [1, 2]
            assert mq.messages("queue://q") == []


@pytest.mark.parametrize("durable", ["books", None])
def test_a_handler_of_a_topic_that_raises_in_dups_ok(kind: str, durable: str | None) -> None:
    """Its message comes again by the policy, though Java's listener would lose it, and becomes a dead letter."""
    app = App(client_id="shop")

    @app.consumer("topic://prices", durable=durable, mode="dups_ok", redelivery=TWICE)
    def handle(price: Message) -> None:
        if price.text == "never" or (price.text == "later" and price.delivery_count == 1):
            raise ValueError(price.text)

    with harness(app, kind) as mq:
        for text in ("at once", "later", "never"):
            mq.send("topic://prices", text)
        mq.advance("4h")
        attempts = Counter(texts(mq.handler(handle).messages))
        assert attempts == {"at once": 1, "later": 2, "never": 3}
        assert [dead.attempts for dead in mq.dead_letters("topic://prices")] == [3]


def test_what_a_handler_may_raise(kind: str) -> None:
    """Discard, Reject and Retry, and an error that is given up at once."""
    app = App()

    @app.consumer("queue://q", redelivery=TWICE, give_up_on=KeyError)
    def handle(message: Message) -> None:
        match message.text:
            case "discard":
                raise Discard
            case "reject":
                raise Reject("nonsense")
            case "retry" if message.delivery_count == 1:
                raise Retry(delay=60.0)
            case "give up":
                raise KeyError("x")

    with harness(app, kind) as mq:
        for text in ("discard", "reject", "give up", "retry"):
            mq.send("queue://q", text)
        assert len(mq.handler(handle).calls) == 4
        mq.advance(59)
        assert len(mq.handler(handle).calls) == 4
        mq.advance("1s")
        assert [call.message.text for call in mq.handler(handle).calls[4:]] == ["retry"]
        dead = mq.dead_letters("queue://q")
        assert [(one.message and one.message.text, one.reason) for one in dead] == [
            ("reject", "rejected"),
            ("give up", "rejected"),
        ]


def test_dead_letter_copies_to_a_queue_of_ones_own(kind: str) -> None:
    """They carry the reason as properties, and can be read by a consumer of the app."""
    app = App()
    seen: list[object] = []

    @app.consumer("queue://q", dead_letter="queue://dead", redelivery=TWICE)
    def handle(_message: Message) -> None:
        raise ValueError("why not")

    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        mq.advance("2h")
        [dead] = mq.dead_letters("queue://q")
        assert dead.queue == "queue://dead"
        assert dead.message is not None
        assert dead.message.properties["jmsx_exception_message"] == "why not"
        assert texts(mq.messages("queue://dead")) == ["x"]

    @app.consumer("queue://dead")
    def fail(message: Message) -> None:
        seen.append(message.properties["jmsx_delivery_count"])

    with harness(app, kind) as mq:
        mq.send("queue://q", "y")
        mq.advance("2h")
        assert [dead.message for dead in mq.dead_letters()] == [None]
    assert seen == ["3"]


def test_scheduled_redelivery(kind: str) -> None:
    """The broker in memory keeps the message meanwhile, by the same clock."""
    app = App()
    policy = RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=86400.0, mode="scheduled"
    )

    @app.consumer("queue://q", redelivery=policy)
    def handle(message: Message) -> None:
        if message.delivery_count == 1:
            raise ValueError("not yet")

    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        mq.advance("23h")
        assert len(mq.handler(handle).calls) == 1
        mq.advance("1h")
        assert [call.attempt for call in mq.handler(handle).calls] == [1, 2]
        mq.advance("10d")
        assert len(mq.handler(handle).calls) == 2
        assert (app.live().ok, app.live().body["workers"][0]["in_hand"]) == (True, 0)
        assert app._service.workers[0].idle_since(math.inf, app._service.progress)


def test_dedupe_store(kind: str) -> None:
    """What is sent again is done once."""
    app = App()

    @app.consumer("queue://q", dedupe=MemoryStore(), dedupe_by=lambda message: message.text)
    def handle(message: Message) -> None:
        pass

    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        mq.send("queue://q", "x")
        mq.send("queue://q", "y")
        assert texts(mq.handler(handle).messages) == ["x", "y"]
        assert mq.messages("queue://q") == []


@pytest.mark.parametrize("named", [object(), ["x"], b"x", True])
def test_what_names_no_message(kind: str, named: Any) -> None:
    """Two messages are not taken for one because an object was where another had been."""
    app = App()

    @app.consumer("queue://q", dedupe=MemoryStore(), dedupe_by=lambda _message: named)
    def handle(message: Message) -> None:
        pass

    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        mq.send("queue://q", "y")
        mq.advance("1min")
        dead = mq.dead_letters()
        assert sorted(one.message.text for one in dead if one.message) == ["x", "y"]
        assert "return a text, a finite number, a UUID" in (dead[0].error_message or "")


def test_a_store_in_a_file(kind: str, tmp_path: Path) -> None:
    """A real file may be used."""
    app = App()

    @app.consumer(
        "queue://q", dedupe=SqliteStore(f"{tmp_path}/{kind}.db"), dedupe_by=lambda m: m.text
    )
    def handle(message: Message) -> None:
        pass

    for _ in range(2):
        with harness(app, kind) as mq:
            mq.send("queue://q", "x")
    with closing(sqlite3.connect(f"{tmp_path}/{kind}.db")) as connection:
        assert connection.execute("select 1").fetchone() == (1,)
    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        assert mq.handler(handle).calls == []


def test_selectors(kind: str) -> None:
    """They select here too, and what nobody wants stays."""
    app = App()

    @app.consumer("queue://q", selector="region = 'EU'")
    def handle(message: Message) -> None:
        pass

    with harness(app, kind) as mq:
        mq.send("queue://q", "a", properties={"region": "EU"})
        mq.send("queue://q", "b", properties={"region": "US"})
        assert texts(mq.handler(handle).messages) == ["a"]
        assert texts(mq.messages("queue://q")) == ["b"]


def test_topics(kind: str) -> None:
    """Every subscriber gets them."""
    app = App()

    @app.consumer("topic://t", name="one")
    def one(message: Message) -> None:
        pass

    @app.consumer("topic://t", name="two")
    def two(message: Message) -> None:
        pass

    with harness(app, kind) as mq:
        mq.send("topic://t", "x")
        assert texts(mq.handler("one").messages) == texts(mq.handler(two).messages) == ["x"]
        told = [line for line in overview(app._service.workers) if line.startswith(("one", "two"))]
        assert [("each process that runs it gets every" in line) for line in told] == [True, True]


def test_places_in_which_nothing_can_lie(kind: str) -> None:
    """A test that looks for dead letters under another name would find none, and pass."""
    with harness(shop(), kind) as mq:
        with pytest.raises(
            ConfigurationError, match="'queue://order'; did you mean 'queue://orders'"
        ):
            mq.dead_letters("queue://order")
        with pytest.raises(ConfigurationError, match="topic://orders keeps no messages"):
            mq.messages("topic://orders")


def test_handlers_that_share_a_queue(kind: str) -> None:
    """Each message goes to one of them, which is told, unless selectors part them."""
    app = App()
    for name, selector in (("ship", None), ("bill", None), ("eu", "region = 'EU'")):
        app.consumer("queue://q", name=name, selector=selector)(lambda _message: None)
    app.consumer("queue://other", name="other")(lambda _message: None)
    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        assert sum(len(mq.handler(name).calls) for name in ("ship", "bill")) == 1
        told = [line for line in overview(app._service.workers) if "one of" in line]
    assert told == ["queue://q: each message goes to one of ship, bill, not to each of them"]


def test_expiry_follows_virtual_time(kind: str) -> None:
    """A message that is sent after hours lives as long as it says from then on."""
    app = shop()
    with harness(app, kind) as mq:
        mq.advance("10h")
        mq.send("queue://orders", "a", expires=60)
        assert len(mq.messages("queue://ledger")) == 1
        mq.send("queue://nobody", "b", expires=60)
        assert len(mq.messages("queue://nobody")) == 1


def test_handler_with_a_session(kind: str) -> None:
    """It has JMS's API, which waits in virtual time."""
    app = App()
    got: list[str] = []

    @app.consumer("queue://q")
    def handle(_message: Message, session: Session) -> None:
        session.create_producer().send(Message("sent"), destination="queue://other")

    with harness(app, kind) as mq, app.connect() as connection:
        mq.send("queue://q", "x")
        connection.start()
        consumer = connection.create_session().create_consumer("queue://other")
        message = consumer.receive(timeout=3600.0)
        assert message is not None
        got.append(message.text)
        began = time.monotonic()
        assert consumer.receive(timeout=3600.0) is None
        assert time.monotonic() - began < 5
        assert mq.now == 3600.0
    assert got == ["sent"]


def test_lost_connections(kind: str) -> None:
    """The app connects again, and what was not settled comes again."""
    with harness(shop(), kind) as mq:
        mq.send("queue://orders", "bad")
        mq.drop_connections()
        mq.advance("5s")
        mq.send("queue://orders", "good")
        mq.advance("3h")
        attempts = [
            (call.message.text, call.attempt) for call in mq.handler("shop.<locals>.ship").calls
        ]
        assert ("good", 1) in attempts
        assert [one[1] for one in attempts if one[0] == "bad"][-1] >= 3
        assert len(mq.dead_letters("queue://orders")) == 1


def test_a_handler_that_blocks_is_named(kind: str) -> None:
    """With the line that it is in, and after that the test ends."""
    app, never = App(), threading.Event()

    @app.consumer("queue://q")
    def wait_for_godot(_message: Message) -> None:
        threading.current_thread().name = "blocked"
        never.wait()

    began = time.monotonic()
    with (
        pytest.raises(
            BlockedError, match=r"wait_for_godot\(\) at .*test_harness.py:\d+ \(never.wait\(\)\)"
        ),
        harness(app, kind, patience=0.2) as mq,
    ):
        mq.send("queue://q", "x")
    assert time.monotonic() - began < 10
    never.set()


def test_a_handler_on_a_loop_that_does_not_return_is_named(kind: str) -> None:
    """By the line that it awaits in, whichever function of its own that is."""
    app = App()

    async def wait_for_godot() -> None:
        await asyncio.sleep(3600)

    @app.consumer("queue://a")
    async def handle(_message: Message) -> None:
        await wait_for_godot()

    with (
        pytest.raises(BlockedError, match=r"wait_for_godot\(\) at .*:\d+ \(await asyncio.sleep\("),
        harness(app, kind, patience=0.5) as mq,
    ):
        mq.send("queue://a", "x")


def test_a_handler_that_waits_for_what_nobody_sends(kind: str) -> None:
    """It is waited for until the end, where it is late."""
    app = App()

    @app.consumer("queue://q")
    def ask(_message: Message) -> None:
        with app.connect() as connection:
            connection.start()
            connection.create_session().create_consumer("queue://answers").receive(timeout=60.0)

    with harness(app, kind) as mq:
        mq.send("queue://q", "x")
        assert mq.handler(ask).calls == []
        mq.advance("1m")
        assert len(mq.handler(ask).calls) == 1
    with pytest.raises(DrainError, match="ask still ran"), harness(app, kind) as mq:
        mq.send("queue://q", "x")


def test_an_error_in_the_body_goes_through(kind: str) -> None:
    """And the app can be used again."""
    app = shop()
    with pytest.raises(ZeroDivisionError), harness(app, kind) as mq:  # noqa: PT012 - the error is the body's
        mq.send("queue://orders", "bad")
        raise ZeroDivisionError
    with harness(app, kind) as mq:
        mq.send("queue://orders", "good")
        assert texts(mq.messages("queue://ledger")) == ["GOOD"]
        assert mq.dead_letters() == []


def test_the_app_is_afterwards_as_it_was(kind: str) -> None:
    """URL, handlers, observers and all that it was given."""

    class Notes:
        closed = 0
        seen = 0

        def observe(self, _event: object, _source: object) -> None:
            self.seen += 1

        def close(self) -> None:
            self.closed += 1

    notes = Notes()
    app = App("stomp://production:61613", observers=[notes], health="127.0.0.1:0")

    @app.consumer("queue://q")
    def handle(message: Message) -> None:
        pass

    before = vars(app).copy()
    consumers = app.consumers
    for _ in range(2):
        with harness(app, kind) as mq:
            mq.send("queue://q", "x")
            assert app.ready().ok
            assert app.live().ok
            assert app.endpoint is None
    assert app.consumers == consumers
    assert app.consumers[0].handler is handle
    changed = {
        name
        for name, value in vars(app).items()
        if before[name] is not value and before[name] != value
    }
    assert changed == set()
    assert (notes.closed, notes.seen > 10) == (0, True)
    with pytest.raises(IllegalStateError, match="harness is over"):
        mq.send("queue://q", "x")


def test_from_a_loop(kind: str) -> None:
    """The steps can be awaited; the loop goes on meanwhile."""
    app, ticks = shop(), list[float]()

    async def tick() -> None:
        while True:
            ticks.append(1)
            await asyncio.sleep(0)

    async def steps() -> None:
        ticking = asyncio.create_task(tick())
        async with harness(app, kind) as mq:
            await mq.asend("queue://orders", "bad")
            await mq.aadvance("2h")
            await mq.asettle()
            assert [call.attempt for call in mq.handler("shop.<locals>.ship").calls] == [1, 2, 3]
        ticking.cancel()
        with pytest.raises(ZeroDivisionError):
            async with harness(app, kind):
                raise ZeroDivisionError

    asyncio.run(steps())
    assert len(ticks) > 10


def test_async_handlers(kind: str) -> None:
    """On a loop of ours, or on that of the test; what they send is there when a step returns."""
    app, loops = App(), list[asyncio.AbstractEventLoop]()

    @app.consumer("queue://orders", mode="transacted", redelivery=TWICE)
    async def ship(order: Message) -> None:
        loops.append(asyncio.get_running_loop())
        await asyncio.sleep(0)
        await app.asend("queue://ledger", order.text)
        if order.text == "bad":
            raise ValueError

    with harness(app, kind) as mq:
        mq.send("queue://orders", "good")
        mq.send("queue://orders", "bad")
        mq.advance("2h")
        assert [call.attempt for call in mq.handler(ship).calls] == [1, 1, 2, 3]
        assert texts(mq.messages("queue://ledger")) == ["good"]
        assert len(mq.dead_letters("queue://orders")) == 1

    async def steps() -> None:
        loops.clear()
        async with harness(app, kind) as mq:
            await mq.asend("queue://orders", "bad")
            await mq.aadvance("2h")
            assert [call.attempt for call in mq.handler(ship).calls] == [1, 2, 3]
        assert set(loops) == {asyncio.get_running_loop()}

    asyncio.run(steps())


def test_a_step_that_would_hold_up_the_loop_of_the_handlers(kind: str) -> None:
    """It says how it is awaited; it stood still for five seconds, and blamed the handler."""
    app, got = App(), list[str]()

    @app.consumer("queue://orders")
    async def ship(order: Message) -> None:
        got.append(order.text)

    async def steps() -> None:
        async with harness(app, kind) as mq:
            for step, awaited in (
                (lambda: mq.send("queue://orders", "x"), "asend"),
                (lambda: mq.advance(1), "aadvance"),
                (mq.settle, "asettle"),
                (mq.drop_connections, "adrop_connections"),
            ):
                with pytest.raises(IllegalStateError, match=rf"await mq\.{awaited}\("):
                    step()
            await mq.asend("queue://orders", "a")
            await mq.adrop_connections()
            await mq.asend("queue://orders", "b")
        assert got == ["a", "b"]

    asyncio.run(steps())


def test_an_async_handler_that_waits_for_time(kind: str) -> None:
    """What it awaits takes as long as it would, in virtual time; here nobody answers it."""
    app, ends = App(), list[tuple[str, int]]()

    async def ask(name: str, seconds: float) -> None:
        with pytest.raises(UnansweredError):
            await app.arequest("queue://nobody", name, timeout=seconds)
        ends.append((name, round(mq.now)))

    @app.consumer("queue://orders", name="ship")
    async def ship(order: Message) -> None:
        match order.text:
            case "one":
                await ask("one", 60)
            case "several":
                await asyncio.gather(ask("short", 30), ask("long", 90))
        ends.append((f"{order.text} done", round(mq.now)))

    with harness(app, kind, patience="2s") as mq:
        mq.send("queue://orders", "one")
        assert ends == []
        mq.advance("1h")
        assert ends == [("one", 60), ("one done", 60)]
        mq.send("queue://orders", "several")
        mq.advance("40s")
        assert ends[2:] == [("short", 3630)]
        mq.advance("1h")
        assert ends[3:] == [("long", 3690), ("several done", 3690)]

    async def steps() -> None:
        nonlocal mq
        async with harness(app, kind, patience="2s") as mq:
            ends.clear()
            await mq.asend("queue://orders", "one")
            await mq.aadvance("1h")
            assert ends == [("one", 60), ("one done", 60)]

    asyncio.run(steps())


def test_batches(kind: str) -> None:
    """One that is not full waits for its time, which is virtual."""
    app = App()

    @app.consumer("queue://q", batch=3, batch_timeout=60.0, redelivery=TWICE)
    def handle(messages: list[Message]) -> None:
        failed = [message for message in messages if message.text == "bad"]
        if failed:
            raise BatchError(failed=failed)

    def batches() -> list[list[str]]:
        return [texts(call.arguments[0]) for call in mq.handler(handle).calls]

    with harness(app, kind) as mq:
        for text in ("a", "b", "c", "d"):
            mq.send("queue://q", text)
        assert batches() == [["a", "b", "c"]]
        mq.advance("61s")
        assert batches()[1:] == [["d"]]
        mq.send("queue://q", "bad")
        mq.send("queue://q", "e")
        mq.advance("4h")
        assert batches()[2:] == [["bad", "e"], ["bad"], ["bad"]]
        record = mq.handler(handle)
        assert [texts(call.messages) for call in record.calls] == batches()
        assert texts(record.messages) == ["a", "b", "c", "d", "bad", "e", "bad", "bad"]
        assert [
            (dead.message and dead.message.text, dead.attempts) for dead in mq.dead_letters()
        ] == [("bad", 3)]


def test_a_batch_that_is_filled_in_no_time_waits_for_it(kind: str) -> None:
    """Each `send` would else hand over a batch of one, and nothing would test what comes together."""
    app = App()

    @app.consumer("queue://q", batch=3, batch_timeout=0.05)
    def handle(_messages: list[Message]) -> None: ...

    with harness(app, kind) as mq:
        for text in ("a", "b", "c", "d"):
            mq.send("queue://q", text)
        assert [texts(call.messages) for call in mq.handler(handle).calls] == [["a", "b", "c"]]
        mq.advance("50ms")
        assert texts(mq.handler(handle).messages) == ["a", "b", "c", "d"]


def test_what_a_batch_undoes_is_told_when_it_comes_again(kind: str) -> None:
    """The handler had it before, so it is flagged; it did not fail, and so it has all of its attempts."""
    app = App()
    told: list[tuple[str, bool, int]] = []

    @app.consumer("queue://q", mode="transacted", batch=3, batch_timeout=60.0, redelivery=TWICE)
    def handle(messages: list[Message]) -> None:
        told.extend((one.text, one.redelivered, one.delivery_count) for one in messages)
        failed = [one for one in messages if one.text == "bad"]
        if failed:
            raise BatchError(failed=failed)

    with harness(app, kind) as mq:
        for text in ("a", "bad", "c"):
            mq.send("queue://q", text)
        mq.advance("10h")
        assert told == [
            ("a", False, 1),
            ("bad", False, 1),
            ("c", False, 1),
            ("a", True, 2),
            ("bad", True, 2),
            ("bad", True, 3),
            ("c", True, 2),
        ]


def test_what_it_is_given_is_checked(kind: str) -> None:
    """At once, and in words."""
    app = shop()
    with pytest.raises(ConfigurationError, match="takes an App"):
        harness(kind)  # type: ignore[arg-type]  # the wrong value is what is tested
    with pytest.raises(
        ConfigurationError, match="broker must be classic, artemis or a profile, not a"
    ):
        harness(app, None)  # type: ignore[arg-type]  # the refusal is what is tested
    with pytest.raises(ConfigurationError, match="no profile is called 'rabbit'"):
        harness(app, "rabbit")
    with harness(app, kind) as mq:
        with pytest.raises(
            ConfigurationError, match="no consumer 'other' in this app; there are shop"
        ):
            mq.handler("other")
        for wrong in ("soon", "1x", "", "1h soon"):
            with pytest.raises(ConfigurationError, match="is no duration"):
                mq.advance(wrong)
        with pytest.raises(IllegalStateError, match="is running"), harness(app, kind):
            pass


def test_what_the_broker_in_memory_cannot_do(kind: str) -> None:
    """Is an error of the test, not of the handler."""
    app = App()

    @app.consumer("queue://a,queue://b" if kind == "classic" else "queue://a")
    def handle(message: Message) -> None:
        pass

    if kind == "classic":
        with pytest.raises(NotImplementedError, match="composite"), harness(app, kind):
            pass
