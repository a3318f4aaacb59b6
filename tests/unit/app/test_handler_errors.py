"""What the errors of a handler mean, and how long it may take; in virtual time."""

from __future__ import annotations

import asyncio
import gc
import threading
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    App,
    BatchError,
    CircuitBreaker,
    ConfigurationError,
    Discard,
    DrainError,
    Duplicate,
    HealthLimits,
    IllegalStateError,
    MemoryStore,
    Message,
    RedeliveryPolicy,
    Reject,
    Retry,
)
from jmsx.app.loops import Loop, Running
from jmsx.errors import ConnectionFailedError, JmsxError
from jmsx.testing import FakeBrokerServer, harness
from tests.hiding import NamelessError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
URL = "stomp://localhost:61613"
NEVER = RedeliveryPolicy(maximum_redeliveries=0)
MINUTELY = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=60.0, redelivery_delay=60.0
)


def deaths(mq: Any) -> list[tuple[str, str | None]]:
    """Reasons of the dead letters."""
    return [(letter.reason, letter.error_type) for letter in mq.dead_letters()]


def any_handler(message: Message) -> None:
    """Any."""
    del message


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize("batch", [False, True])
def test_retry_on(kind: str, mode: str, batch: bool) -> None:
    """Only those; what jmsx raises because a link is away need not be named, nor what is no Exception."""
    app = App(redelivery_policy=MINUTELY)
    errors: dict[str, BaseException] = {
        "timeout": TimeoutError("slow"),
        "value": ValueError("poison"),
        "link": ConnectionFailedError("gone"),
        "said": Retry(delay=60.0),
        "exit": SystemExit(1),
    }

    def ship(order: Any) -> None:
        text = (order[0] if batch else order).text
        if text in errors:
            raise errors[text]

    options: dict[str, Any] = {"batch": 1} if batch else {}
    app.consumer("queue://orders", name="ship", mode=mode, retry_on=OSError, **options)(ship)
    with harness(app, kind) as mq:
        mq.send("queue://orders", "value")
        assert deaths(mq) == [("rejected", "ValueError")]
        for text in ("timeout", "link", "said", "exit"):
            before = len(mq.handler("ship").calls)
            mq.send("queue://orders", text)
            mq.advance("1h")
            assert len(mq.handler("ship").calls) == before + 3, text


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
def test_policies_for_errors(kind: str, mode: str) -> None:
    """The nearest class counts; others have the consumer's."""
    app, left = App(redelivery_policy=NEVER), {"away": 9}
    patient = RedeliveryPolicy(
        maximum_redeliveries=-1, initial_redelivery_delay=10.0, redelivery_delay=10.0
    )
    once = RedeliveryPolicy(maximum_redeliveries=1, initial_redelivery_delay=0.0)

    @app.consumer(
        "queue://orders",
        name="ship",
        mode=mode,
        redelivery_for={OSError: patient, FileNotFoundError: once},
        give_up_on=KeyError,
    )
    def ship(order: Message) -> None:
        match order.text:
            case "away" if left["away"]:
                left["away"] -= 1
                raise TimeoutError
            case "file":
                raise FileNotFoundError
            case "value":
                raise ValueError
            case "key":
                raise KeyError

    with harness(app, kind) as mq:
        for text, attempts, reason in (
            ("value", 1, "max_redeliveries"),
            ("file", 2, "max_redeliveries"),
            ("key", 1, "rejected"),
        ):
            mq.send("queue://orders", text)
            letter = mq.dead_letters()[-1]
            assert (letter.attempts, letter.reason) == (attempts, reason)
        mq.send("queue://orders", "away")
        mq.advance("45s")
        mq.drop_connections()
        mq.advance("1h")
        assert left["away"] == 0
        assert len(mq.dead_letters()) == 3
        assert mq.messages("queue://orders") == []


@KINDS
@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
@pytest.mark.parametrize("steering", [Discard, Duplicate])
def test_a_discard_that_names_no_message_of_its_batch(
    kind: str, mode: str, steering: type[Exception]
) -> None:
    """Nobody knows which it was for: all come again one by one, and only that one is had away."""
    app, seen = App(redelivery_policy=MINUTELY), []

    def ship(orders: list[Message]) -> None:
        seen.append([order.text for order in orders])
        if any(order.text == "empty" for order in orders):
            raise steering("empty")

    app.consumer("queue://orders", name="ship", mode=mode, batch=3, batch_timeout=1)(ship)
    with harness(app, kind) as mq:
        for text in ("a", "empty", "b"):
            mq.send("queue://orders", text)
        mq.advance("1h")
        assert seen == [["a", "empty", "b"], ["a"], ["empty"], ["b"]]
        assert deaths(mq) == []
        assert mq.messages("queue://orders") == []


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
@pytest.mark.parametrize("settings", [{}, {"breaker": CircuitBreaker(failures=1, pause=1.0)}])
def test_an_exception_that_tells_nothing(kind: str, mode: str, settings: dict[str, Any]) -> None:
    """It has failed all the same: its output is not committed, the breaker opens, and the next message has its turn."""
    app, seen = App(redelivery_policy=NEVER), []

    def ship(order: Message) -> None:
        seen.append(order.text)
        app.send("queue://shipped", order.text)
        if order.text == "bad":
            raise NamelessError

    app.consumer("queue://orders", name="ship", mode=mode, **settings)(ship)
    with harness(app, kind) as mq:
        for text in ("good", "bad", "next"):
            mq.send("queue://orders", text)
        assert app.ready().ok is not bool(settings)
        mq.advance("1min")
        assert seen == ["good", "bad", "next"]
        assert deaths(mq) == [("max_redeliveries", "NamelessError")]
        shipped = [one.text for one in mq.messages("queue://shipped")]
        assert shipped == (["good", "next"] if mode == "transacted" else seen)


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"retry_on": "OSError"}, "retry_on takes classes of errors"),
        ({"redelivery_for": {OSError: 3}}, "redelivery_for of OSError must be a RedeliveryPolicy"),
        ({"redelivery_for": {"OSError": NEVER}}, "redelivery_for takes classes of errors"),
        ({"redelivery_for": NEVER}, "redelivery_for must be policies by classes"),
        ({"timeout": 0}, "timeout must be more than 0 s"),
        ({"rate_limit": "fast"}, "is no rate"),
        ({"rate_limit": "0/s"}, "is no rate"),
        ({"rate_limit": "5/year"}, "no duration"),
        ({"rate_limit": 5}, "rate_limit must be a rate"),
        ({"breaker": 5}, "breaker must be a CircuitBreaker"),
        ({"max_retries": 5}, "did you mean 'redelivery'"),
    ],
)
def test_refused_settings(settings: Any, complaint: str) -> None:
    """At import."""
    with pytest.raises(ConfigurationError, match=complaint):
        App(URL).consumer("queue://a", **settings)(any_handler)


# Timeouts ------------------------------------------------------------------------------------------------------------


@KINDS
def test_an_async_handler_is_cancelled(kind: str) -> None:
    """And has failed; its own TimeoutError is its own."""
    app, ended = App(redelivery_policy=NEVER), list[str]()

    @app.consumer("queue://orders", name="ship", timeout="50ms")
    async def ship(order: Message) -> None:
        if order.text == "own":
            raise TimeoutError("own")
        try:
            await asyncio.sleep(30)
        finally:
            ended.append(order.text)

    with harness(app, kind) as mq:
        mq.send("queue://orders", "slow")
        mq.send("queue://orders", "own")
        first, second = mq.dead_letters()
        assert first.error_type == second.error_type == "TimeoutError"
        assert "did not return in its timeout of 0.05 s, and was cancelled" in str(first)
        assert second.error_message == "own"
    assert ended == ["slow"]


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
@pytest.mark.parametrize("error", [SystemExit, GeneratorExit])
def test_an_exit_ends_no_loop(
    kind: str, mode: str, error: type[BaseException], monkeypatch: pytest.MonkeyPatch
) -> None:
    """As in a plain handler it has failed, and the next message is handled."""
    monkeypatch.setattr("jmsx.app.loops.LOOK", 0.05)  # by which a GeneratorExit is seen
    app, seen = App(redelivery_policy=NEVER), list[str]()

    @app.consumer("queue://orders", mode=mode)
    async def ship(order: Message) -> None:
        seen.append(order.text)
        await asyncio.sleep(0)
        if order.text == "bad":
            raise error

    with harness(app, kind) as mq:
        mq.send("queue://orders", "bad")
        mq.send("queue://orders", "good")
        (dead,) = mq.dead_letters()
        assert dead.error_type == error.__name__
    assert seen == ["bad", "good"]


def _placed(caplog: pytest.LogCaptureFixture) -> list[tuple[str, str]]:
    """What the log tells of failed batches and dead letters: the error, and the file where it was raised."""
    fields = [getattr(record, "jmsx", {}) for record in caplog.records]
    return [
        (one["error"].partition(":")[0], str(one.get("place")).partition(":")[0])
        for one in fields
        if one["event"] in ("batch failed", "dead letter")
    ]


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_where_what_nobody_raised_comes_from(
    kind: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """What a BatchError says of a message comes from where that was raised, and what is wrong with one, too."""
    app = App(redelivery_policy=NEVER)
    here, cause = "test_handler_errors.py", ValueError("of the first")

    @app.consumer("queue://named", mode=mode, batch=1)
    def names(orders: list[Message]) -> None:
        raise BatchError({orders[0]: cause})

    @app.consumer("queue://foreign", mode=mode, batch=1)
    def foreign(orders: list[Message]) -> None:
        del orders
        raise BatchError([Message("of no batch")]) from cause

    @app.consumer("queue://all", mode=mode, batch=2)
    def discards(orders: list[Message]) -> None:
        if len(orders) > 1:
            raise Discard("which one?")

    with harness(app, kind) as mq:
        mq.send("queue://named", "x")
        mq.send("queue://foreign", "x")
        app.send("queue://all", "1")
        mq.send("queue://all", "2")
        mq.advance("1h")
    told = _placed(caplog)
    assert {error for error, _ in told} == {"ValueError", "ConfigurationError"}
    assert {place.rpartition("/")[2] for _, place in told} == {here}, told
    assert "BatchError: 1 message of the batch failed" in caplog.text
    assert "which one?" in caplog.text


async def interrupted() -> None:
    """Raise what asyncio raises out of its loop."""
    raise KeyboardInterrupt


async def exits_in_a_task() -> None:
    """Raise it in a task beside, too."""

    async def leave() -> None:
        raise SystemExit(3)

    await asyncio.create_task(leave())


async def stops_the_loop() -> None:
    """Stop it, and fail."""
    asyncio.get_running_loop().stop()
    await asyncio.sleep(0)
    raise ValueError


@KINDS
@pytest.mark.parametrize(
    ("work", "error"),
    [
        (interrupted, "KeyboardInterrupt"),
        (exits_in_a_task, "SystemExit"),
        (stops_the_loop, "ValueError"),
    ],
)
def test_what_would_end_a_loop_of_ours(
    kind: str, work: Callable[[], Awaitable[None]], error: str
) -> None:
    """It fails one delivery, and the handlers beside it and the next message go on."""
    app, seen = App(redelivery_policy=NEVER), list[str]()
    begun, next_came, others = asyncio.Event(), asyncio.Event(), list[str]()

    @app.consumer("queue://beside")
    async def wait(order: Message) -> None:
        begun.set()
        await next_came.wait()
        others.append(order.text)

    @app.consumer("queue://orders")
    async def ship(order: Message) -> None:
        seen.append(order.text)
        if order.text == "bad":
            await begun.wait()
            await work()
        next_came.set()

    with harness(app, kind) as mq:
        app.send("queue://orders", "bad")
        app.send("queue://beside", "long")
        app.send("queue://orders", "good")
        mq.settle()
        (dead,) = mq.dead_letters()
        assert dead.error_type == error
    assert (seen, others) == (["bad", "good"], ["long"])


def test_an_interrupt_that_was_told_is_not_logged_as_forgotten(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Whoever waits for the handler has heard of it; its task is nobody else's."""
    loop = Loop()
    loop.open()
    with pytest.raises(KeyboardInterrupt):
        loop.begin(interrupted, None).result()
    assert loop.begin(partial(asyncio.sleep, 0, "on"), None).result() == "on"
    gc.collect()
    loop.close()
    assert caplog.text == ""


@pytest.mark.parametrize("begins", [False, True], ids=["", "has-begun-to"])
def test_a_handler_that_is_cancelled_as_its_loop_ends_cleans_up(begins: bool) -> None:
    """As when an app aborts, which cancels and ends the loop at once, or some turns of the loop later."""
    begun, cleaning, cleaned = threading.Event(), threading.Event(), list[str]()

    async def handle() -> None:
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaning.set()
            await asyncio.sleep(0.05)
            cleaned.append("yes")

    loop = Loop()
    loop.open()
    running = loop.begin(handle, None)
    assert begun.wait(10)
    running.cancel()
    assert not begins or cleaning.wait(10)
    loop.close()
    assert cleaned == ["yes"]


def test_what_has_outlived_a_cancellation_of_its_own_is_cancelled_as_its_loop_ends() -> None:
    """Not by us, so that it is not cleaning up: it is told that it has to, now."""
    begun, cleaned = threading.Event(), list[str]()

    async def handle() -> None:
        task = asyncio.current_task()
        assert task is not None
        task.cancel()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        begun.set()
        try:
            await asyncio.sleep(60)
        finally:
            cleaned.append("yes")

    loop = Loop()
    loop.open()
    loop.begin(handle, None)
    assert begun.wait(10)
    loop.close()
    assert cleaned == ["yes"]


@pytest.mark.parametrize("given_up", [False, True], ids=["", "given-up"])
def test_one_that_goes_on_is_told_before_its_loop_ends(given_up: bool) -> None:
    """It has taken its first cancellation for something else, and holds what it is to give back."""
    begun, went_on, freed = threading.Event(), threading.Event(), list[str]()

    async def handle() -> None:
        begun.set()
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(60)
        try:
            went_on.set()
            await asyncio.sleep(60)
        finally:
            freed.append("yes")

    loop = Loop()
    loop.open()
    running = loop.begin(handle, None)
    assert begun.wait(10)
    running.cancel()
    assert went_on.wait(10)
    if given_up:
        loop.give_up(running)
    loop.close()
    assert freed == ["yes"]


def test_an_app_waits_once_for_who_ignores_that_it_is_cancelled() -> None:
    """It has its time before the deadline of the stop, and none behind it: a second would be a hundred rounds."""
    begun, rounds = threading.Event(), list[int]()
    with FakeBrokerServer() as server:
        app = App(server.url)

        @app.consumer("queue://orders")
        async def ignores(_message: Message) -> None:
            begun.set()
            while True:
                with suppress(asyncio.CancelledError):
                    await asyncio.sleep(0.01)
                    rounds.append(1)

        app.start()
        app.send("queue://orders", "x")
        assert begun.wait(10)
        before = len(rounds)
        with pytest.raises(DrainError):
            app.stop(0.2)
    assert len(rounds) - before < 70


def test_one_that_is_cancelled_before_it_begins(monkeypatch: pytest.MonkeyPatch) -> None:
    """Has ended, and whoever waits for it hears of that."""
    monkeypatch.setattr("jmsx.app.loops.LOOK", 0.05)  # by which that is seen
    begun = list[str]()

    async def work() -> None:
        begun.append("yes")

    loop = asyncio.new_event_loop()
    running = Loop(loop).begin(work, None)
    loop.call_soon(lambda: [task.cancel() for task in asyncio.all_tasks(loop)])
    loop.call_later(0.05, loop.stop)
    loop.run_forever()
    with pytest.raises(asyncio.CancelledError):
        running.result()
    loop.close()
    assert begun == []


def test_one_whose_task_cannot_be_made() -> None:
    """Its thread is told, and does not wait for ever; a program may have a task factory of its own."""

    def broken(loop: asyncio.AbstractEventLoop, work: Any, **_options: Any) -> Any:
        del loop, work
        raise MemoryError

    async def work() -> None: ...

    loop = asyncio.new_event_loop()
    loop.set_task_factory(broken)
    loop.set_exception_handler(lambda _loop, _context: None)
    running = Loop(loop).begin(work, None)
    loop.call_soon(loop.stop)
    loop.run_forever()
    ended = threading.Thread(target=pytest.raises, args=(MemoryError, running.result), daemon=True)
    ended.start()
    ended.join(5)
    assert not ended.is_alive()
    loop.close()


@KINDS
@pytest.mark.parametrize("mode", ["auto", "client", "individual", "transacted"])
@pytest.mark.parametrize("judging", [{"retry_on": OSError}, {"give_up_on": Exception}])
def test_a_loop_that_is_closed_under_a_handler(
    kind: str, mode: str, judging: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Is none of the message's faults: it is given back, and no dead letter."""

    def closed(running: Running) -> None:
        running.loop_closed = True
        raise IllegalStateError("the event loop was closed")

    monkeypatch.setattr(Running, "result", closed)
    app = App()

    async def ship(order: Message) -> None:
        del order

    app.consumer("queue://orders", name="ship", mode=mode, **judging)(ship)
    with (  # noqa: PT012 - it is told when the app ends
        pytest.raises(IllegalStateError, match="loop was closed"),
        harness(app, kind) as mq,
    ):
        broker = mq.broker
        mq.send("queue://orders", "x")
    assert len(broker.queue("orders").browse()) == 1


def test_a_plain_handler_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    """It is told, health says so, and what it has done is done."""
    app, go_on, begun = App(), threading.Event(), threading.Event()

    @app.consumer("queue://orders", name="ship", timeout="20ms")
    def ship(order: Message) -> None:
        del order
        begun.set()
        go_on.wait(10)

    with harness(app) as mq:
        sending = threading.Thread(target=partial(mq.send, "queue://orders", "x"))
        sending.start()
        assert begun.wait(5)
        (worker,) = app._service.workers
        assert worker.call is not None
        worker._machine.monotonic = lambda: mq._world._now + 60.0
        worker.tell_late()
        worker.tell_late()
        assert [one for one in app.live().body["reasons"] if "its timeout of 0.02 s" in one]
        go_on.set()
        sending.join(5)
        assert mq.messages("queue://orders") == []
        assert mq.dead_letters() == []
    late = [one for one in caplog.records if "handler late" in one.getMessage()]
    assert len(late) == 1
    assert "go_on.wait" in late[0].getMessage()


@KINDS
def test_a_timeout_is_of_the_handler_alone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """How long a store, an answer and the broker take is none of it."""
    app, states = App(), list[Any]()
    app.health_limits = HealthLimits(handler=3600.0)

    class Slow(MemoryStore):
        """It takes a minute before and after."""

        def once(self, key: Any, handler: Any) -> bool:
            """Look at what a probe would tell."""
            (worker,) = app._service.workers
            clock = worker._machine.monotonic
            now = clock() + 60.0
            worker._machine.monotonic = lambda: now
            try:
                worker.tell_late()
                states.append(app.live().ok)
                done = super().once(key, handler)
                worker._machine.monotonic = lambda: now + 60.0
                worker.tell_late()
                states.append(app.live().ok)
                return done
            finally:
                worker._machine.monotonic = clock

    @app.consumer("queue://orders", name="ship", timeout="1s", dedupe=Slow())
    def ship(order: Message) -> None:
        del order

    with harness(app, kind) as mq:
        mq.send("queue://orders", "x")
        assert states == [True, True]
    assert "handler late" not in caplog.text


def test_errors_of_jmsx_are_known() -> None:
    """The base class is no judgement."""
    app = App(URL)
    app.consumer("queue://a", name="a", retry_on=OSError, give_up_on=KeyError)(any_handler)
    (consumer,) = app.consumers
    assert isinstance(consumer.judged(JmsxError("x")), Reject)
    error = ConnectionFailedError("x")
    assert consumer.judged(error) is error
    stop = SystemExit()
    assert consumer.judged(stop) is stop


@KINDS
@pytest.mark.parametrize("mode", ["auto", "individual", "transacted"])
@pytest.mark.parametrize("batch", [None, 5])
def test_a_handler_that_wipes_its_message(kind: str, mode: str, batch: int | None) -> None:
    """The message is a dead letter like any other that fails, and the consumer goes on."""
    app, seen = App(redelivery_policy=NEVER), list[str]()

    def ship(order: Any) -> None:
        for one in order if batch else [order]:
            seen.append(one.text)
            wipes = one.text == "bad"
            if wipes:
                vars(one).clear()
                assert (one.text, one.reply_to, one.delivery_count) == ("bad", None, 1)
                vars(one).clear()
                raise ValueError("wiped")

    settings: dict[str, Any] = {"batch": batch} if batch else {}
    app.consumer("queue://orders", mode=mode, **settings)(ship)
    with harness(app, kind) as mq:
        mq.send("queue://orders", "bad")
        mq.advance("2s")  # in which a batch is filled
        assert deaths(mq) == [("max_redeliveries", "ValueError")]
        [letter] = mq.dead_letters()
        assert letter.message is not None
        assert letter.message.text == "bad"
        mq.send("queue://orders", "good")
        mq.advance("2s")
        assert (seen, app.ready().ok) == (["bad", "good"], True)


@KINDS
@pytest.mark.parametrize("mode", ["auto", "transacted"])
def test_a_failed_batch_says_which_attempt_it_was_and_when_the_next_comes(
    kind: str, mode: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As the line of a single message that failed does, and with its traceback at the first failure and at death."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=2, initial_redelivery_delay=0.25, redelivery_delay=3
    )
    app = App(redelivery=policy)

    @app.consumer("queue://orders", mode=mode, batch=2, batch_timeout=0.1)
    def ship(orders: list[Message]) -> None:
        if failed := {one: OSError("away") for one in orders if one.text == "bad"}:
            raise BatchError(failed)

    with harness(app, kind) as mq:
        app.send("queue://orders", "good")
        key = mq.send("queue://orders", "bad")
        mq.advance("1h")
    records = [one for one in caplog.records if "batch failed" in one.getMessage()]
    told = [one.jmsx for one in records]  # type: ignore[attr-defined]  # our own extra field
    assert [one["failed"] for one in told] == ["1 of 2", "1 of 1", "1 of 1"]
    assert [one["attempt"] for one in told] == ["1 of 3", "2 of 3", "3 of 3"]
    assert [one["again"] for one in told] == ["in 0.25 s", "in 3 s", "never, dead letter now"]
    assert {one["key"] for one in told} == {key}
    assert [one.exc_info is not None for one in records] == [True, False, True]
