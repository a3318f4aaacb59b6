"""`app.request`, and what may happen before its answer comes: on both brokers in memory, in virtual time."""

from __future__ import annotations

import asyncio
import logging
import threading
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import (
    App,
    ConfigurationError,
    ConnectionFailedError,
    IllegalStateError,
    Message,
    MessageFormatError,
    RedeliveryPolicy,
    UnansweredError,
)
from jmsx.app.answers import PendingRequest
from jmsx.app.sender import Sending
from jmsx.jms.connection import Connection
from jmsx.testing import FakeBrokerServer, harness

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.testing import Harness

KINDS = pytest.mark.parametrize("kind", ["classic", "artemis"])
ONCE = RedeliveryPolicy(maximum_redeliveries=0)


def shop(**options: Any) -> App:
    """It doubles numbers, but for 0, to which it has no answer, and at once save for those above 1000."""
    app = App(**options)

    @app.consumer("queue://double", name="double", concurrency=4)
    def double(number: int, message: Message) -> int | None:
        if number > 1000 and message.delivery_count == 1:
            raise ValueError
        return number * 2 or None

    return app


@KINDS
def test_a_request(kind: str) -> None:
    """Returns the answer."""
    app = shop()
    with harness(app, kind):
        answer = app.request("queue://double", 21, properties={"region": "EU"})
        assert (answer.json(), answer.properties["content-type"]) == (42, "application/json")
        question = Message("4", type="question")
        assert app.request("queue://double", question, timeout="5s").json() == 8
        assert (question.reply_to, question.correlation_id) == (None, None)
        assert app.request("queue://double", 5, correlation_id="mine").correlation_id == "mine"


@KINDS
def test_no_answer(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """In time; nobody knows what became of it. One that comes later is dropped, with a line in the log."""
    app = shop(redelivery_policy=RedeliveryPolicy(initial_redelivery_delay=60.0))
    with harness(app, kind) as mq:
        began = mq.now
        with pytest.raises(
            UnansweredError, match=r"to queue://double: no answer came in time; whe"
        ) as caught:
            app.request("queue://double", 0, timeout=5)
        assert mq.now - began == pytest.approx(5)
        assert not caught.value.retriable
        with pytest.raises(UnansweredError):
            app.request("queue://double", 0)
        assert mq.now - began == pytest.approx(35)
        with pytest.raises(UnansweredError):
            app.request("queue://double", 1001, timeout=59)
        with caplog.at_level(logging.INFO):
            mq.advance("1min")
        assert "answer dropped: nobody waits for it" in caplog.text
        assert app.request("queue://double", 4).json() == 8


@KINDS
def test_many_at_once(kind: str) -> None:
    """Each gets its own answer, over one queue."""
    app = shop()
    got: dict[int, Any] = {}

    @app.consumer("queue://ask", name="ask", concurrency=8)
    def ask(number: int) -> None:
        got[number] = app.request("queue://double", number).json()

    with harness(app, kind) as mq:
        for number in range(1, 41):
            mq.send("queue://ask", number)
        assert got == {number: number * 2 for number in range(1, 41)}


@KINDS
def test_many_from_a_loop(kind: str) -> None:
    """While it goes on; who is cancelled waits no longer."""
    app = shop()
    got: list[Any] = []

    @app.consumer("queue://ask", name="ask", redelivery=ONCE)
    async def ask(numbers: list[int]) -> None:
        asking = [asyncio.create_task(app.arequest("queue://double", one)) for one in numbers]
        got.extend([answer.json() for answer in await asyncio.gather(*asking)])
        late = asyncio.create_task(app.arequest("queue://double", 0, timeout="1h"))
        await asyncio.sleep(0.05)
        late.cancel()
        with pytest.raises(asyncio.CancelledError):
            await late

    with harness(app, kind) as mq:
        mq.send("queue://ask", list(range(1, 21)))
        assert got == [number * 2 for number in range(1, 21)]
        assert mq.dead_letters() == []


def _beside() -> int:
    """How many threads do something beside a loop."""
    return sum(1 for one in threading.enumerate() if one.name.startswith("jmsx-beside"))


async def _soon(check: Callable[[], bool]) -> bool:
    for _ in range(1000):
        if check():
            return True
        await asyncio.sleep(0.01)
    return False


@pytest.mark.timeout(60)
@KINDS
def test_who_waits_on_a_loop_has_no_thread(kind: str) -> None:
    """Not when all is sent; each gets its own answer, is told that there is none, or is cancelled."""

    async def main(url: str) -> None:
        asking, answering = App(url), shop(url=url)
        tasks = [
            asyncio.ensure_future(asking.arequest("queue://double", number, timeout="50s"))
            for number in range(1, 41)
        ]
        late = asyncio.ensure_future(asking.arequest("queue://nobody", 1, timeout=0.2))
        cancelled = asyncio.ensure_future(asking.arequest("queue://nobody", 1, timeout="50s"))
        with pytest.raises(UnansweredError, match="no answer came in time"):
            await late
        queue = asking._service.outgoing.requests.opened()
        assert await _soon(lambda: len(queue._pending) == 41 and not _beside())
        cancelled.cancel()
        assert await _soon(lambda: len(queue._pending) == 40)
        assert not any(task.done() for task in tasks)
        async with answering:
            answers = await asyncio.gather(*tasks)
        assert [answer.json() for answer in answers] == [2 * number for number in range(1, 41)]
        assert queue._pending == {}
        last = asyncio.ensure_future(asking.arequest("queue://nobody", 1, timeout="50s"))
        assert await _soon(lambda: len(queue._pending) == 1 and not _beside())
        asking.stop()
        with pytest.raises(UnansweredError, match=r"is gone \(closed\)"):
            await last

    with FakeBrokerServer(kind) as broker:
        asyncio.run(main(broker.url))


@pytest.mark.timeout(60)
def test_a_loop_that_is_closed_before_the_answer_comes() -> None:
    """Whoever waited there is gone; the others get theirs."""
    asked = list[object]()

    async def leave(app: App) -> None:
        asked.append(asyncio.ensure_future(app.arequest("queue://double", 1001, timeout="50s")))
        assert await _soon(
            lambda: app._service.outgoing.requests._shared is not None and not _beside()
        )

    with FakeBrokerServer() as broker:
        asking, answering = App(broker.url), shop(url=broker.url)
        loop = asyncio.new_event_loop()
        loop.run_until_complete(leave(asking))
        (task,) = asyncio.all_tasks(loop)
        loop.close()
        with answering:
            assert asking.request("queue://double", 4, timeout="30s").json() == 8
        asking.stop()
        task._log_destroy_pending = False  # type: ignore[attr-defined]  # an attribute of asyncio.Task that typeshed leaves out


@KINDS
def test_a_handler_on_the_loop_does_not_hold_it_up(kind: str) -> None:
    """It is told to await."""
    app, got = App(), list[Any]()

    @app.consumer("queue://a", redelivery=ONCE)
    async def handle(body: str) -> None:
        try:
            app.request("queue://b", body)
        except IllegalStateError as error:
            got.append(str(error))

    with harness(app, kind) as mq:
        mq.send("queue://a", "x")
    assert "await app.arequest() there" in got[0]


@KINDS
def test_a_request_in_a_transaction_is_none_of_it(kind: str) -> None:
    """Or its answer would never come."""
    app = shop()
    got: list[Any] = []

    @app.consumer("queue://ask", mode="transacted")
    def ask(number: int) -> None:
        got.append(app.request("queue://double", number).json())

    with harness(app, kind) as mq:
        mq.send("queue://ask", 4)
        assert got == [8]


def ask_for_ever(app: App, mq: Harness) -> tuple[threading.Thread, list[UnansweredError]]:
    """Who has asked for the double of 0, which nobody answers, and the error, once there is one."""
    told: list[UnansweredError] = []

    def ask() -> None:
        try:
            app.request("queue://double", 0, timeout=3600)
        except UnansweredError as error:
            told.append(error)

    asking = mq._world.thread(ask, "asking")
    asking.start()
    mq.settle()
    return asking, told


@KINDS
def test_a_lost_connection(kind: str) -> None:
    """Whoever waits is told at once, and the next request has a new queue."""
    app = shop()
    with harness(app, kind) as mq:
        assert app.request("queue://double", 1).json() == 2
        _, told = ask_for_ever(app, mq)
        assert told == []
        mq.drop_connections()
        began = mq.now
        mq.advance("10s")
        assert "is gone" in str(told)
        assert mq.now - began < 60
        assert app.request("queue://double", 4).json() == 8


@contextmanager
def away(mq: Any) -> Iterator[None]:
    """No link to the broker is opened meanwhile."""

    def refused(*_: object) -> None:
        raise ConnectionFailedError("away")

    dial = mq._world.dial
    mq._world.dial = refused
    try:
        yield
    finally:
        mq._world.dial = dial


@KINDS
@pytest.mark.parametrize("opened", [False, True])
@pytest.mark.parametrize("what", ["send", "request"])
def test_a_timeout_while_the_broker_is_away(kind: str, what: str, opened: bool) -> None:
    """It bounds the opening of the connection too, and what was given up is not sent later."""
    app = App()
    with harness(app, kind) as mq:
        if opened:
            app.send("queue://a", "first")
            with pytest.raises(UnansweredError):
                app.request("queue://a", "second", timeout=1)
        before, began = len(mq.messages("queue://a")), mq.now
        with away(mq):
            mq.drop_connections()
            with pytest.raises(ConnectionFailedError):
                getattr(app, what)("queue://a", "late", timeout="2s")
            assert mq.now - began == pytest.approx(2, abs=0.5)
        mq.advance("10min")
        assert len(mq.messages("queue://a")) == before
        app.send("queue://a", "next", timeout="2s")
        assert [one.text for one in mq.messages("queue://a")[before:]] == ["next"]


@KINDS
@pytest.mark.parametrize("applied", [False, True])
def test_a_connection_that_is_lost_while_it_is_sent(kind: str, applied: bool) -> None:
    """It is in doubt like any other that was sent, and there is one error for that."""
    app = App()
    with harness(app, kind) as mq:
        with pytest.raises(UnansweredError):
            app.request("queue://a", "opens it", timeout=1)
        mq.broker.cut_next("SEND", applied=applied)
        with pytest.raises(
            UnansweredError,
            match=r"request \w+ to queue://a: the connection to .* (is gone|was lost)",
        ):
            app.request("queue://a", "x", timeout="10s")
        sent_again = kind == "artemis"  # which knows it, if it has it
        assert len(mq.messages("queue://a")) == 1 + (applied or sent_again)


@KINDS
@pytest.mark.parametrize("opened", [False, True])
def test_a_cancelled_request_is_not_sent_later(kind: str, opened: bool) -> None:
    """Its connection comes when nobody waits any more."""
    app = App()
    with harness(app, kind) as mq:
        if opened:
            with pytest.raises(UnansweredError):
                app.request("queue://a", "first", timeout=1)
        before = len(mq.messages("queue://a"))

        async def main() -> None:
            asking = asyncio.create_task(app.arequest("queue://a", "late", timeout=3600))
            await asyncio.sleep(0.2)
            asking.cancel()
            with pytest.raises(asyncio.CancelledError):
                await asking

        with away(mq):
            mq.drop_connections()
            with mq._world._moves():  # time stands still
                asyncio.run(main())
        mq.advance("10min")
        for thread in threading.enumerate():
            if thread.name.startswith("jmsx-beside"):
                thread.join(5)
        assert len(mq.messages("queue://a")) == before


@KINDS
def test_who_gives_up_leaves_the_connection_to_others(kind: str) -> None:
    """The one that is restored is still of use, and whoever waits for it longer is served."""
    app = App(request_timeout=600.0)
    with harness(app, kind) as mq:
        app.send("queue://a", "first")
        told: list[object] = []
        with away(mq):
            mq.drop_connections()
            sending = mq._world.thread(lambda: told.append(app.send("queue://a", "patient")), "x")
            sending.start()
            mq.settle()
            with pytest.raises(ConnectionFailedError):
                app.send("queue://a", "hasty", timeout="2s")
        mq.advance("10min")
        sending.join(5)
        assert [type(one) for one in told] == [str]
        assert [one.text for one in mq.messages("queue://a")] == ["first", "patient"]


@KINDS
def test_a_queue_that_was_replaced(kind: str) -> None:
    """Whoever waits at it is told, too, when its link is gone."""
    app = shop()
    with harness(app, kind) as mq:
        _, told = ask_for_ever(app, mq)
        replaced: list[Connection] = []
        app._service.outgoing.requests.take(replaced)
        assert app.request("queue://double", 1).json() == 2
        replaced[0].abort()
        mq.settle()
        assert "is gone" in str(told)


@KINDS
def test_a_handler_that_asks_while_the_app_drains(kind: str) -> None:
    """The app's own consumers take nothing more: it fails in its timeout, and its message comes again."""
    app, told = shop(), list[BaseException]()

    @app.consumer("queue://orders", name="ship")
    def ship(order: str) -> None:
        del order
        app._service.machine.event().wait(2.0)
        try:
            app.request("queue://double", 1, timeout="5s")
        except UnansweredError as error:
            told.append(error)
            raise

    with harness(app, kind) as mq:
        broker = mq.broker
        app.send("queue://orders", "x")
        mq.settle()
    assert "no answer came in time" in str(told)
    assert len(broker.queue("orders").browse()) == 1


@KINDS
def test_the_app_is_stopped(kind: str) -> None:
    """Whoever waits is told so."""
    app = shop()
    with harness(app, kind) as mq:
        assert app.request("queue://double", 1).json() == 2
        asking, told = ask_for_ever(app, mq)
    asking.join(5)
    assert "is gone (closed)" in str(told)


def test_a_stop_that_makes_no_sense() -> None:
    """Stops nothing."""
    app = shop()
    with harness(app):
        with pytest.raises(ConfigurationError, match="drain_timeout='30 secs' is no duration"):
            app.stop("30 secs")
        assert app.ready().ok


def test_what_a_request_refuses() -> None:
    """Before it connects."""
    app = App("stomp://localhost:1")
    with pytest.raises(ConfigurationError, match="waits for the answer at a queue of its own"):
        app.request("queue://a", "x", reply_to="queue://b")
    with pytest.raises(ConfigurationError, match="waits for the answer at a queue of its own"):
        app.request("queue://a", Message("x", reply_to="queue://b"))
    with pytest.raises(ConfigurationError, match="timeout"):
        app.request("queue://a", "x", timeout="soon")
    with pytest.raises(MessageFormatError):
        app.request("queue://a", object())  # type: ignore[arg-type]  # the refusal is what is tested


@KINDS
def test_one_correlation_id_twice(kind: str) -> None:
    """Nobody could tell whose the answer is."""
    app = shop()
    with harness(app, kind) as mq:

        def ask() -> None:
            with pytest.raises(UnansweredError):
                app.request("queue://double", 0, correlation_id="same", timeout=10)

        asking = mq._world.thread(ask, "asking")
        asking.start()
        mq.settle()
        with pytest.raises(IllegalStateError, match="an answer to 'same' is awaited already"):
            app.request("queue://double", 1, correlation_id="same")
        mq.advance(10)


@KINDS
def test_the_next_one_with_that_correlation_id(kind: str) -> None:
    """Gets its answer, also if who asked before has not quite taken his own."""
    app, told = shop(), list[object]()

    @app.consumer("queue://slow", name="slow")
    def slow(number: int) -> int:
        app._service.machine.event().wait(5.0)
        return number

    class Dawdling(PendingRequest):
        def answer(self) -> Message:
            found = super().answer()
            asking.start()
            app._service.machine.event().wait(1.0)
            return found

    def ask() -> None:
        told.append(app.request("queue://slow", 7, correlation_id="same").json())

    with harness(app, kind) as mq:
        asking = mq._world.thread(ask, "asking")
        first = Sending.of({"correlation_id": "same"})
        pending = Dawdling(app._service.machine)
        assert app._service.outgoing.requests.ask(first, "queue://double", 1, pending).json() == 2
        assert told == []
        mq.advance(10)
        assert told == [7]


@KINDS
def test_who_asked_is_gone(kind: str, caplog: pytest.LogCaptureFixture) -> None:
    """The work is done all the same, and no dead letter."""
    app = App()

    @app.consumer("queue://a")
    def handle(body: str) -> str:
        return body

    with harness(app, kind) as mq:
        with app.connect() as connection:
            session = connection.create_session()
            queue = session.create_temporary_queue()
            consumer = session.create_consumer(queue)
            connection.start()
            app.send("queue://hold", Message("x", reply_to=queue))
            (held,) = mq.messages("queue://hold")
            consumer.close()
        with caplog.at_level(logging.WARNING):
            mq.send("queue://a", "x", reply_to=held.reply_to)
        assert mq.dead_letters() == []
        assert mq.messages("queue://a") == []
