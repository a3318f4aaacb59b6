"""Liveness that means progress: heart-beats beside busy handlers, probes that say what moves, dead subscriptions."""

from __future__ import annotations

import json
import threading
import time
import urllib.error
import urllib.request
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, Queue, RedeliveryPolicy
from jmsx.app import App, HealthLimits
from jmsx.core.events import ErrorReceived, LinkClosed, Outcome
from jmsx.core.frames import Frame
from jmsx.errors import ConfigurationError, TransactionRolledBackError
from jmsx_artemis import stranded
from jmsx_broker.wire import Wire
from jmsx_prometheus import PrometheusObserver
from tests.integration.broker_support import changed_classic, eventually, python, read_line
from tests.integration.support import (
    TRANSACTED,
    Diary,
    bodies,
    fresh_queue,
    nothing_left,
    put,
    settles,
)
from tests.integration.support import Outcome as Call

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from jmsx.app.worker import Worker
    from jmsx.core.management import Inquiry
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]

#: A free port of this machine.
HERE = "127.0.0.1:0"


def ask(app: App, path: str) -> tuple[int, dict[str, Any]]:
    """Status and body of a probe, over HTTP."""
    assert app.endpoint is not None
    url = f"http://127.0.0.1:{app.endpoint.port}{path}"
    try:
        with urllib.request.urlopen(url, timeout=5) as answer:
            return answer.status, json.load(answer)
    except urllib.error.HTTPError as error:
        with error:
            return error.code, json.load(error)


# Heart-beats ---------------------------------------------------------------------------------------------------------


def test_a_handler_that_never_lets_go_starves_no_heart_beat(
    classic_broker: Broker, queue: Queue
) -> None:
    """A handler computes six times as long as the peers may be silent, in pure Python, which holds the interpreter."""
    diary = Diary()
    app = App(classic_broker.url, observers=[diary], heartbeat=(1.0, 1.0))
    done = threading.Event()

    @app.consumer(queue)
    def compute(_message: Message) -> None:
        end = time.monotonic() + 6.0
        while time.monotonic() < end:
            pass
        done.set()

    put(classic_broker, queue, "a")
    with app:
        assert done.wait(20)
        assert settles(classic_broker, queue, size=0)
        assert not [event for event in diary.events if isinstance(event, LinkClosed)]
    assert diary.outcomes() == {Outcome.ACKNOWLEDGED: 1}


# Probes --------------------------------------------------------------------------------------------------------------


def test_probes_of_an_app(classic_broker: Broker, queue: Queue) -> None:
    """Idle, busy, stuck, well again, draining, gone: each as it should be told, with names."""
    limits = HealthLimits(handler=0.5)
    metrics = PrometheusObserver()
    app = App(classic_broker.url, observers=[metrics], health=HERE, health_limits=limits)
    began, free = threading.Event(), threading.Event()

    @app.consumer(queue, name="ship")
    def ship(message: Message) -> None:
        began.set()
        if message.text == "slow":
            free.wait(20)

    with nothing_left():
        app.start()
        assert ask(app, "/readyz")[0] == 200
        status, body = ask(app, "/healthz")
        assert (status, body["status"], body["reasons"]) == (200, "ok", [])
        (row,) = body["workers"]
        assert (row["consumer"], row["destination"]) == ("ship", queue.uri)
        assert (row["connected"], row["subscribed"], row["in_hand"]) == (True, True, 0)
        put(classic_broker, queue, "slow", "next")
        assert began.wait(5)
        assert eventually(lambda: ask(app, "/healthz")[0] == 503, 5)
        status, body = ask(app, "/healthz")
        assert "ship: the handler has been running for" in body["reasons"][0]
        assert body["workers"][0]["message_id"].startswith("ID:")
        assert body["workers"][0]["in_hand"] == 2
        assert ask(app, "/readyz")[0] == 200
        stop = Call(app.stop)
        assert eventually(lambda: ask(app, "/readyz")[0] == 503, 5)
        assert ask(app, "/readyz")[1]["reasons"] == ["draining"]
        assert app.endpoint is not None
        port = app.endpoint.port
        free.set()
        assert stop.join(5).error is None
        assert app.endpoint is None
        with pytest.raises(OSError, match="refused"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5)
    assert bodies(classic_broker, queue) == ["next"]


def test_draining_is_no_reason_to_restart(classic_broker: Broker, queue: Queue) -> None:
    """A worker that has drained beside one that still works is well, for /healthz: a restart would do it twice."""
    app = App(classic_broker.url)
    began, free = threading.Event(), threading.Event()

    @app.consumer(queue)
    def busy(_message: Message) -> None:
        began.set()
        free.wait(20)

    app.consumer(fresh_queue())(lambda _message: None)
    put(classic_broker, queue, "a")
    app.start()
    assert began.wait(5)
    idle = app._service.workers[1]
    stop = Call(app.stop)
    assert eventually(lambda: not idle._link.alive)
    verdict = app.live()
    free.set()
    assert stop.join(10).error is None
    assert verdict.ok, verdict.body


def test_metrics_are_served_beside_the_probes(classic_broker: Broker, queue: Queue) -> None:
    """The observer that has them shows them on the same port; without one there is no such path."""
    for observers in ([PrometheusObserver()], []):
        app = App(classic_broker.url, observers=observers, health=HERE)
        app.consumer(queue, name="ship")(lambda _message: None)
        with app:
            assert app.endpoint is not None
            url = f"http://127.0.0.1:{app.endpoint.port}/metrics"
            if not observers:
                assert ask(app, "/metrics")[0] == 404
                continue
            with urllib.request.urlopen(url, timeout=5) as answer:
                assert b"jmsx_build_info" in answer.read()


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_a_message_that_waits_is_not_stuck(classic_broker: Broker, queue: Queue) -> None:
    """One that is to come again in an hour is healthy; a consumer whose thread has died is not."""
    limits = HealthLimits(stall=0.3)
    hours = RedeliveryPolicy(initial_redelivery_delay=3600.0)
    app = App(classic_broker.url, health=HERE, health_limits=limits, redelivery_policy=hours)
    failed = threading.Event()

    @app.consumer(queue)
    def fails(_message: Message) -> None:
        failed.set()
        raise ValueError

    ending = fresh_queue()
    app.consumer(ending, name="ending")(lambda _message: None)
    put(classic_broker, queue, "a", "b")
    app.start()
    try:
        assert failed.wait(5)
        time.sleep(0.6)  # twice the limit
        status, body = ask(app, "/healthz")
        assert status == 200, body
        assert body["workers"][0]["in_hand"] == 2
        assert body["workers"][0]["redelivery_in_seconds"] > 3000
        _end_thread(app, "ending")
        put(classic_broker, ending, "the last that it handles")
        assert eventually(lambda: ask(app, "/healthz")[0] == 503, 5)
        assert ask(app, "/healthz")[1]["reasons"] == ["ending: its thread has ended"]
    finally:
        app.abort()


def _end_thread(app: App, consumer: str) -> None:
    """Kill the listener's thread as only a fault of ours could."""
    (worker,) = [one for one in app._service.workers if one.consumer.name == consumer]
    dispatcher = worker._link.dispatcher

    def dies(_core: object, _now: float) -> None:
        raise SystemExit

    dispatcher._taking = dies  # how its thread dies


def test_messages_that_nobody_moves(classic_broker: Broker, queue: Queue) -> None:
    """They lie here, no handler runs, and no redelivery is due: that is what a probe is for."""
    app = App(classic_broker.url, health=HERE, health_limits=HealthLimits(stall=0.3))
    app.consumer(queue, name="ship")(lambda _message: None)
    with app:
        app._service.workers[0]._link.pause()  # as a fault of ours would
        put(classic_broker, queue, "a")
        assert eventually(lambda: ask(app, "/healthz")[0] == 503, 5)
        assert (
            "ship: 1 message waits and nothing has moved" in ask(app, "/healthz")[1]["reasons"][0]
        )
        app._service.workers[0]._link.resume()
        assert eventually(lambda: ask(app, "/healthz")[0] == 200, 5)


def test_an_address_that_is_taken(classic_broker: Broker, queue: Queue) -> None:
    """start() says so, and nothing was opened."""
    first = App(classic_broker.url, health=HERE)
    first.consumer(queue)(lambda _message: None)
    with nothing_left(), first:
        assert first.endpoint is not None
        second = App(classic_broker.url, health=f"127.0.0.1:{first.endpoint.port}")
        second.consumer(queue)(lambda _message: None)
        with pytest.raises(ConfigurationError, match="cannot serve health"):
            second.start()
        second.abort()


SHOP = """\
from jmsx.app import App

app = App()

@app.consumer({queue!r})
def handle(message):
    print("handled", flush=True)
"""


def test_the_command(
    classic_broker: Broker, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`jmsx run --health` serves probes, and says where."""
    (tmp_path / "shop.py").write_text(SHOP.format(queue=queue.uri), encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    put(classic_broker, queue, "a")
    command = ("-m", "jmsx.cli", "run", "shop:app", "--health", HERE)
    with python(*command, JMSX_BROKER_URL=classic_broker.url) as process:
        assert read_line(process) == "handled"
        assert process.stderr is not None
        lines = [process.stderr.readline() for _ in range(2)]
        (url,) = [word for line in lines for word in line.split() if word.startswith("http://")]
        with urllib.request.urlopen(f"{url}/readyz", timeout=5) as answer:  # noqa: S310 - our own URL
            assert json.load(answer)["status"] == "ok"


# Dead subscriptions --------------------------------------------------------------------------------------------------

ABORTS_SLOW_CONSUMERS = """
    <destinationPolicy><policyMap><policyEntries><policyEntry queue=">"><slowConsumerStrategy>
      <abortSlowAckConsumerStrategy abortConnection="false" checkPeriod="200" maxTimeSinceLastAck="500"
                                    maxSlowDuration="200"/>
    </slowConsumerStrategy></policyEntry></policyEntries></policyMap></destinationPolicy>
    """


@pytest.fixture
def strict() -> Iterator[Broker]:
    """A broker that closes consumers which have acknowledged nothing for half a second, without a word to them."""
    with changed_classic(("<plugins>", f"{ABORTS_SLOW_CONSUMERS}<plugins>")) as broker:
        yield broker


@pytest.mark.parametrize("watch", [1.0, 0.0])
def test_a_subscription_that_died_in_silence(strict: Broker, queue: Queue, watch: float) -> None:
    """The broker drops a slow consumer and tells it nothing: the watch finds out; without it nobody does."""
    app = App(strict.url, watch=watch, health=HERE)
    handled: list[str] = []

    @app.consumer(queue, name="ship", prefetch=1)
    def ship(message: Message) -> None:
        if not handled:
            time.sleep(3.0)  # too slow for this broker
        handled.append(message.text)

    put(strict, queue, "slow", "next")
    app.start()
    try:
        assert eventually(lambda: handled == ["slow"], 10)
        everything = eventually(lambda: set(handled) == {"slow", "next"}, 10 if watch else 4)
        assert everything is bool(watch)
        if watch:
            assert eventually(lambda: ask(app, "/readyz")[0] == 200, 5)
            assert settles(strict, queue, size=0)
    finally:
        app.abort()


def test_subscriptions_that_live_are_left_alone(classic_broker: Broker, queue: Queue) -> None:
    """Idle ones of every kind are asked about again and again, and stay on their links."""
    diary = Diary()
    app = App(classic_broker.url, watch=0.4, observers=[diary])
    names = [queue.uri, f"{queue.uri}.>", f"topic://{queue.name}", f"{queue.uri}.a,b"]
    for number, name in enumerate(names):
        sessions = 1 if name.startswith("topic") else 2
        app.consumer(name, name=f"idle {number}", concurrency=sessions)(lambda _message: None)
    with nothing_left(), app:
        assert eventually(
            lambda: (
                app._service.current.watch is not None
                and len(app._service.current.watch._asked) == 7
            ),
            10,
        )
        first = (
            dict(app._service.current.watch._asked)
            if app._service.current.watch is not None
            else {}
        )
        assert eventually(lambda: _later(app, first), 20)
        assert not [event for event in diary.events if isinstance(event, LinkClosed)]
        assert app.ready().ok


def test_messages_that_the_broker_keeps_for_nobody(
    artemis_broker: Broker,
    queue: Queue,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    """What another consumer holds is its own; what no consumer has is told of once, and in health."""

    def nobody(_queue: str) -> Inquiry[int]:
        yield from ()
        return 0

    def told() -> list[str]:
        return [line for line in caplog.messages if "messages stranded" in line]

    app = App(artemis_broker.url, watch=0.4)
    app.consumer(queue, name="idle")(lambda _message: None)
    with Wire(artemis_broker.url) as other:
        headers = {"destination": queue.name, "subscription-type": "ANYCAST", "ack": "client"}
        other.request(Frame("SUBSCRIBE", {"id": "s", **headers}))
        for _ in "ab":
            sent = {"destination": queue.name, "destination-type": "ANYCAST"}
            other.send(Frame("SEND", sent, b"x"))
            other.receive("MESSAGE")
        with app:
            watch = app._service.current.watch
            assert watch is not None
            assert eventually(lambda: watch._found == {queue.uri: 0})
            monkeypatch.setattr(stranded, "consumers", nobody)
            assert eventually(lambda: watch.stranded == {queue.uri: 2})
            assert app.live().ok
            assert app.live().body["workers"][0]["stranded_in_broker"] == 2
            assert eventually(lambda: len(told()) == 1)
            (line,) = told()
            assert f"destination='{queue.uri}' count=2" in line
            monkeypatch.undo()
            assert eventually(lambda: watch.stranded == {queue.uri: 0})
            assert "stranded_in_broker" not in app.live().body["workers"][0]
            assert told() == [line]


def _later(app: App, first: dict[Worker, float]) -> bool:
    """Whether every worker was asked about twice more."""
    asked = app._service.current.watch._asked if app._service.current.watch is not None else {}
    return all(at > first[worker] + 0.4 for worker, at in asked.items())


def test_a_consumer_that_artemis_closes(artemis_broker: Broker, queue: Queue) -> None:
    """Its queue is removed under it: Artemis says so, and the consumer is there again, on a queue that is made anew."""
    app = App(artemis_broker.url)
    handled: list[str] = []

    @app.consumer(queue)
    def handle(message: Message) -> None:
        handled.append(message.text)

    with app:
        app.send(queue, "before")
        assert eventually(lambda: handled == ["before"], 10)
        assert settles(artemis_broker, queue, size=0)
        headers = {
            "destination": "activemq.management",
            "_AMQ_ResourceName": "broker",
            "_AMQ_OperationName": "destroyQueue",
        }
        with Wire(artemis_broker.url, timeout=30) as wire:
            wire.request(Frame("SEND", headers, json.dumps([queue.name, True]).encode()))
        assert eventually(lambda: not app.ready().ok or _epoch(app) > 1, 10)
        assert eventually(lambda: app.ready().ok, 10)
        app.send(queue, "after")
        assert eventually(lambda: handled == ["before", "after"], 10)


@pytest.mark.parametrize(
    ("operation", "words"),
    [
        ("closeConsumerConnectionsForAddress", "AMQ229107"),
        ("destroyQueue", "consumer with ID"),
    ],
)
def test_what_is_held_when_somebody_has_artemis_close_the_connection(
    artemis_broker: Broker, queue: Queue, operation: str, words: str
) -> None:
    """It has not failed: the broker says ERROR, and not for what was sent for it (BROKER.md A53)."""
    other, diary = fresh_queue(), Diary()
    policy = RedeliveryPolicy(maximum_redeliveries=0)
    url = f"failover:({artemis_broker.url})?maxReconnectDelay=100"
    with Connection(url, redelivery_policy=policy, observers=[diary]) as connection:
        connection.start()
        session = connection.create_session(TRANSACTED)
        consumer = session.create_consumer(queue)
        session.create_consumer(other)
        connection.create_session().create_producer(queue).send("a")
        assert consumer.receive(10) is not None
        headers = {
            "destination": "activemq.management",
            "_AMQ_ResourceName": "broker",
            "_AMQ_OperationName": operation,
        }
        given = [other.name, True] if operation == "destroyQueue" else [other.name]
        with Wire(artemis_broker.url, timeout=30) as wire:
            wire.request(Frame("SEND", headers, json.dumps(given).encode()))
        assert eventually(lambda: any(isinstance(one, LinkClosed) for one in diary.events), 10)
        with pytest.raises(TransactionRolledBackError):
            session.commit()
        again = consumer.receive(10)
        assert again is not None
        assert again.redelivered
        session.commit()
        (error,) = [one for one in diary.events if isinstance(one, ErrorReceived)]
        assert error.message.startswith(words)
    assert settles(artemis_broker, queue, size=0)


def _epoch(app: App) -> int:
    """Which link the first worker is on."""
    return app._service.workers[0]._link.engine.source.epoch
