"""The app on a real broker: what settles a message, what brings it again, and how everything ends."""

from __future__ import annotations

import socket
import threading
import time
from collections import Counter
from typing import TYPE_CHECKING

import pytest

from jmsx import Discard, Message, Queue, RedeliveryPolicy, Reject, Retry
from jmsx.app import App
from jmsx.core.events import Outcome
from jmsx.errors import ConnectionFailedError, IllegalStateError, InvalidSelectorError, JmsxError
from tests.integration.broker_support import eventually, python, read_line
from tests.integration.support import (
    TRANSACTED,
    Diary,
    bodies,
    dead_copies,
    fresh_queue,
    nothing_left,
    put,
    settles,
    within,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx import Session
    from jmsx_broker import Broker, ClassicBroker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: Redelivers after a moment, three deliveries in all.
QUICK = RedeliveryPolicy(
    maximum_redeliveries=2, initial_redelivery_delay=0.02, redelivery_delay=0.02
)


# What a handler says -------------------------------------------------------------------------------------------------


def test_what_a_handler_says(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """Return, raise, Retry, Reject, Discard and give_up_on: each message ends as its handler says, exactly once."""
    app = App(classic_broker.url, observers=[diary], redelivery_policy=QUICK)
    seen: Counter[str] = Counter()
    came: dict[str, list[float]] = {}

    @app.consumer(queue, give_up_on=(KeyError,), name="desk")
    def desk(message: Message) -> None:
        seen[message.text] += 1
        came.setdefault(message.text, []).append(time.monotonic())
        match message.text:
            case "fails once" if message.delivery_count == 1:
                raise ValueError(message.text)
            case "poison":
                raise ValueError(message.text)
            case "later" if message.delivery_count == 1:
                raise Retry(delay=0.5)
            case "reject":
                raise Reject(message.text)
            case "discard":
                raise Discard(message.text)
            case "hopeless":
                raise KeyError(message.text)
            case _:
                pass

    texts = ["fine", "fails once", "poison", "later", "reject", "discard", "hopeless", "last"]
    put(classic_broker, queue, *texts, case=queue.name)
    with nothing_left(), app:
        assert settles(classic_broker, queue, size=0)
    deliveries = dict.fromkeys(texts, 1) | {"fails once": 2, "poison": 3, "later": 2}
    assert seen == deliveries
    first, second = came["later"]
    assert second - first >= 0.5
    assert diary.outcomes() == {
        Outcome.ACKNOWLEDGED: 4,
        Outcome.ROLLED_BACK: 4,
        Outcome.DEAD_LETTERED: 3,
        Outcome.DISCARDED: 1,
    }
    assert Counter(one.reason for one in diary.dead()) == {"max_redeliveries": 1, "rejected": 2}
    assert len(dead_copies(classic_broker, queue.name)) == 3
    assert diary.closed == 1


def test_dead_letters_where_the_application_wants_them(
    classic_broker: Broker, queue: Queue
) -> None:
    """dead_letter="queue://…": a copy with the cause in its headers, and nothing in the broker's own DLQ."""
    dead = fresh_queue()
    put(classic_broker, queue, queue.name, case=queue.name, **{"correlation-id": "c:1"})
    app = App(classic_broker.url)

    @app.consumer(queue, dead_letter=dead.uri, redelivery=QUICK, name="desk")
    def desk(_message: Message) -> None:
        raise ValueError("no such article:\n42")

    with app:
        assert settles(classic_broker, queue, size=0)
    (copy,) = classic_broker.browse(dead.name)
    wanted = {
        "case": queue.name,
        "correlation-id": "c:1",
        "persistent": "true",
        "jmsx_consumer": "desk",
        "jmsx_death_reason": "max_redeliveries",
        "jmsx_delivery_count": "3",
        "jmsx_exception": "ValueError",
        "jmsx_exception_message": "no such article:\n42",
        "jmsx_original_destination": queue.uri,
    }
    assert {name: copy.headers[name] for name in wanted} == wanted
    assert "no such article" in copy.headers["jmsx_stack"]
    assert "Delivery[3] exceeds redelivery policy limit" in copy.headers["dlqDeliveryFailureCause"]
    assert dead_copies(classic_broker, queue.name) == []


def test_a_transacted_handler(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """What it sent before it raised is undone; what it sent when it returned is there once."""
    out = fresh_queue()
    app = App(classic_broker.url, observers=[diary])

    @app.consumer(queue, mode=TRANSACTED, redelivery=QUICK)
    def move(message: Message, session: Session) -> None:
        session.create_producer(out).send(Message(f"{message.text} {message.delivery_count}"))
        if message.text == "poison" or message.delivery_count < 2:
            raise ValueError(message.text)

    put(classic_broker, queue, "a", "poison", "b", case=queue.name)
    with app:
        assert settles(classic_broker, queue, size=0)
    assert bodies(classic_broker, out) == ["a 2", "b 2"]
    assert len(dead_copies(classic_broker, queue.name)) == 1
    assert diary.outcomes()[Outcome.COMMITTED] == 2
    assert diary.outcomes()[Outcome.DEAD_LETTERED] == 1


def test_workers_run_side_by_side(classic_broker: Broker, queue: Queue) -> None:
    """concurrency=3: three handlers run at the same time, and each message is handled once."""
    barrier = threading.Barrier(3)
    seen: list[str] = []
    app = App(classic_broker.url)

    @app.consumer(queue, concurrency=3, prefetch=1)
    def handle(message: Message) -> None:
        barrier.wait(10)
        seen.append(message.text)

    with nothing_left(), app:
        put(classic_broker, queue, *map(str, range(12)))
        assert settles(classic_broker, queue, size=0)
    assert sorted(seen, key=int) == [str(number) for number in range(12)]


def test_batched_acknowledgements(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """optimize_acknowledge: fewer ACKs than messages, all of them settled, also those that a stop finds unsettled."""
    app = App(classic_broker.url, observers=[diary])
    seen: list[str] = []

    @app.consumer(queue, optimize_acknowledge=True, prefetch=100)
    def handle(message: Message) -> None:
        seen.append(message.text)

    put(classic_broker, queue, *map(str, range(300)))
    with app:
        assert eventually(lambda: len(seen) == 300)
    assert settles(classic_broker, queue, size=0)
    acks = sum(1 for event in diary.events if type(event).__name__ == "MessagesAcknowledged")
    assert acks <= 30
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 300}


# Failing -------------------------------------------------------------------------------------------------------------


def test_a_start_that_fails_closes_everything(
    classic_broker: Broker, queue: Queue, diary: Diary
) -> None:
    """The second consumer cannot subscribe: the first is gone too, nothing was handled, and start() may be repeated."""
    app = App(classic_broker.url, observers=[diary])
    seen: list[str] = []

    @app.consumer(queue)
    def first(message: Message) -> None:
        seen.append(message.text)

    @app.consumer(queue, selector="= nonsense", name="second")
    def second(message: Message) -> None:
        seen.append(message.text)

    put(classic_broker, queue, "a")
    with nothing_left():
        with pytest.raises(InvalidSelectorError):
            app.start()
        assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 0)
        assert not seen
        assert diary.closed == 0
        app.change("second", selector=None)
        with app:
            assert settles(classic_broker, queue, size=0)
    assert seen == ["a"]
    assert diary.closed == 1
    with pytest.raises(IllegalStateError, match="make a new one"):
        app.start()


def test_nobody_to_connect_to() -> None:
    """start() without a broker is an error, at once, with nothing left."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
    app = App(f"stomp://127.0.0.1:{port}", reconnect=False)
    app.consumer("queue://x")(lambda _message: None)
    with nothing_left():
        assert isinstance(within(5, app.start).error, ConnectionFailedError)


def test_the_broker_dies(mortal: ClassicBroker, queue: Queue) -> None:
    """wait() raises, whether a handler runs or not; stop() and abort() still end, and leave nothing."""
    with nothing_left():
        app = App(mortal.url, reconnect=False)
        began = threading.Event()

        @app.consumer(queue)
        def handle(_message: Message) -> None:
            began.set()
            time.sleep(0.5)

        app.consumer("queue://idle", name="idle")(lambda _message: None)
        put(mortal, queue, "a", "b")
        app.start()
        assert began.wait(5)
        call = Call(app.wait)
        mortal.kill()
        assert isinstance(call.join(5).error, ConnectionFailedError)
        within(5, app.abort)
        mortal.start()
        assert bodies(mortal, queue) == ["a", "b"]


def test_the_broker_dies_under_a_transacted_handler(mortal: ClassicBroker, queue: Queue) -> None:
    """A commit that nobody answers ends the app with an error, and the message comes again."""
    with nothing_left():
        app = App(mortal.url, reconnect=False, request_timeout=1.0, connect_timeout=1.0)
        paused = threading.Event()

        @app.consumer(queue, mode=TRANSACTED)
        def handle(_message: Message) -> None:
            mortal.pause()
            paused.set()

        put(mortal, queue, "a")
        app.start()
        try:
            assert paused.wait(5)
            call = within(10, lambda: app.wait(8))
            assert isinstance(call.error, JmsxError), call.error
            within(10, app.abort)
        finally:
            mortal.kill()


# As a process --------------------------------------------------------------------------------------------------------

SHOP = """\
import sys, time
import jmsx
from jmsx.app import App

app = App(redelivery_policy=jmsx.RedeliveryPolicy(maximum_redeliveries=0), reconnect=False)

@app.consumer({queue!r})
def handle(message):
    print("began", message.text, flush=True)
    time.sleep({seconds})
    print("done", message.text, flush=True)
"""


def shop(folder: Path, queue: Queue, seconds: float) -> None:
    """An application in a file: each message takes `seconds`."""
    text = SHOP.format(queue=queue.uri, seconds=seconds)
    (folder / "shop.py").write_text(text, encoding="utf-8")


def test_the_broker_dies_under_a_process(
    mortal: ClassicBroker, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without reconnect, `jmsx run` ends with a clear error and exit code 1, soon."""
    shop(tmp_path, queue, 0.1)
    monkeypatch.chdir(tmp_path)
    put(mortal, queue, "a")
    command = ("-m", "jmsx.cli", "run", "shop:app")
    with python(*command, JMSX_BROKER_URL=mortal.url) as process:
        assert read_line(process) == "began a"
        assert read_line(process) == "done a"
        mortal.kill()
        _, errors = process.communicate(timeout=10)
        assert process.returncode == 1
        assert "is gone" in errors
        assert "Traceback" not in errors
