"""An app with an event log writes down what its broker counts; a broker that does not tell does not disturb it."""

from __future__ import annotations

import contextlib
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Connection, Message, Queue, plugins
from jmsx.app import App, service
from jmsx.clock import SystemClock
from jmsx_broker import ClassicBroker, classic_recipe
from jmsx_classic import statistics
from jmsx_eventlog import EventLog
from jmsx_eventlog.schema import fault_of
from tests.integration.broker_support import eventually
from tests.integration.support import Diary, fresh_queue
from tests.pipeline.lines import lines, of_kind

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(120)]


def forwarding(url: str, source: Queue, target: Queue, *observers: Any, **options: Any) -> App:
    """An app that sends on what it gets."""
    app = App(url, observers=observers, **options)

    @app.consumer(source)
    def forward(message: Message) -> None:
        app.send(target, message.text)

    return app


def send(broker: Broker, queue: Queue, *bodies: str) -> None:
    """Put messages into `queue`."""
    with Connection(broker.url) as connection:
        producer = connection.create_session().create_producer(queue)
        for body in bodies:
            producer.send(Message(body))


def counted(folder: Path, queue: Queue) -> list[dict[str, Any]]:
    """What the log says that the broker counts of `queue`, in order."""
    return [line for line in of_kind(lines(folder), "broker.stats") if line["dest"] == queue.uri]


def test_the_brokers_counts_stand_in_the_log(broker: Broker, queue: Queue, tmp_path: Path) -> None:
    """At the start and at the end, of what is read and what is sent to, as the broker itself tells them."""
    target = fresh_queue()
    send(broker, queue, *map(str, range(7)))
    log = EventLog(tmp_path, service="shop")
    with forwarding(broker.url, queue, target, log):
        assert eventually(lambda: broker.statistics(target.name).enqueue_count == 7)
        own = broker.statistics(target.name)

    read, sent = counted(tmp_path, queue), counted(tmp_path, target)
    assert len(read) >= 2
    last = {name: read[-1].get(name) for name in ("enqueued", "dequeued", "expired", "size")}
    assert last == {"enqueued": 7, "dequeued": 7, "expired": 0, "size": 0}
    assert (sent[-1]["enqueued"], sent[-1]["dequeued"], sent[-1]["size"]) == (7, 0, own.size)
    assert [fault_of(line) for line in (*read, *sent) if fault_of(line)] == []
    (clock, *_) = of_kind(lines(tmp_path), "broker.clock")
    assert fault_of(clock) is None
    assert 0 < clock["within_us"] < 1_000_000
    # one host; the broker's are milliseconds
    assert abs(clock["ahead_us"]) <= clock["within_us"] + 2_000
    known = {line["session_id"] for line in of_kind(lines(tmp_path), "conn.up")}
    assert {line["session_id"] for line in (*read, *sent)} <= known


@pytest.mark.parametrize("ahead", [3600, -3600])
def test_a_clock_that_is_wrong_is_told(
    broker: Broker, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ahead: int
) -> None:
    """The broker's own time is compared, and not what a message of ours said, nor is that over as it comes."""
    right = time.time
    monkeypatch.setattr(time, "time", lambda: right() + ahead)
    monkeypatch.setattr(SystemClock, "wall", staticmethod(time.time))
    monkeypatch.setattr(service, "LAST", 30.0)
    with forwarding(broker.url, queue, fresh_queue(), EventLog(tmp_path, service="shop")):
        pass
    (clock, *_) = of_kind(lines(tmp_path), "broker.clock")
    assert abs(clock["ahead_us"] + ahead * 1_000_000) <= clock["within_us"] + 2_000


def test_an_app_that_ends_in_its_first_look_tells_the_clock_too(
    broker: Broker, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A broker may take its time to answer: the app is told to end meanwhile."""
    load = plugins.load
    app = forwarding(broker.url, queue, fresh_queue(), EventLog(tmp_path, service="shop"))
    began = threading.Event()

    def slowly(group: str, name: str) -> Any:
        def count(*asked: Any) -> Any:
            began.set()
            assert app._service.current.counting is not None
            app._service.current.counting._closing.wait()
            return load(group, name)(*asked)

        return count if group == "jmsx.counts" else load(group, name)

    monkeypatch.setattr(plugins, "load", slowly)
    # A busy machine's broker has not answered two looks in the 2 s that an app gives them.
    monkeypatch.setattr(service, "LAST", 30.0)
    with app:
        assert began.wait(60)

    assert len(counted(tmp_path, queue)) == 2
    assert len(of_kind(lines(tmp_path), "broker.clock")) == 1


def test_the_counts_come_again_and_again(broker: Broker, queue: Queue, tmp_path: Path) -> None:
    """Every so often while the app runs; with 0 never."""
    send(broker, queue, "x")
    with forwarding(
        broker.url, queue, fresh_queue(), EventLog(tmp_path / "a", service="a"), broker_stats=0.2
    ):
        time.sleep(2)
    with forwarding(
        broker.url, queue, fresh_queue(), EventLog(tmp_path / "b", service="b"), broker_stats=0
    ):
        time.sleep(0.5)

    assert len(counted(tmp_path / "a", queue)) >= 4
    assert counted(tmp_path / "b", queue) == []


def test_without_a_log_nobody_asks(classic_broker: Broker, queue: Queue, diary: Diary) -> None:
    """An app whose observers keep no counts opens no connection for them."""
    app = forwarding(classic_broker.url, queue, fresh_queue(), diary)
    with app:
        assert app._service.current.counting is None


@pytest.fixture(scope="module")
def taciturn() -> Any:
    """A Classic without the statistics plugin."""
    with contextlib.ExitStack() as stack:
        with pytest.MonkeyPatch.context() as patch:
            template = classic_recipe._TEMPLATE.replace("<statisticsBrokerPlugin/>", "")
            patch.setattr(classic_recipe, "_TEMPLATE", template)
            broker = stack.enter_context(ClassicBroker())
        yield broker


def test_a_broker_that_does_not_tell_is_left_alone(
    taciturn: ClassicBroker, queue: Queue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Asked three times, and no question stays in a queue of it; the app works and ends as ever."""
    monkeypatch.setattr(statistics, "LEISURE", 1.0)  # it never answers
    send(taciturn, queue, "x")
    app = forwarding(
        taciturn.url, queue, fresh_queue(), EventLog(tmp_path, service="shop"), broker_stats=0.1
    )
    with app:
        assert eventually(
            lambda: bool(app._service.current.counting and app._service.current.counting._silent),
            60,
        )
        began = time.monotonic()

    assert time.monotonic() - began < 2
    assert of_kind(lines(tmp_path), "broker.stats") == []
    assert len(of_kind(lines(tmp_path), "delivery")) == 1
    with Connection(taciturn.url) as connection:
        connection.start()
        session = connection.create_session()
        for name in ("Broker", f"Destination.{queue.name}"):
            questions = session.create_consumer(Queue(f"ActiveMQ.Statistics.{name}"))
            assert questions.receive(0.5) is None


def test_a_broker_that_is_gone_at_the_end_costs_little(queue: Queue, tmp_path: Path) -> None:
    """The last look gives up; the app ends."""
    with ClassicBroker() as broker:
        app = forwarding(broker.url, queue, fresh_queue(), EventLog(tmp_path, service="shop"))
        app.start()
        assert eventually(
            lambda: bool(
                app._service.current.counting
                and 0 in app._service.current.counting._unanswered.values()
            )
        )
        broker.kill()
        began = time.monotonic()
        app.abort()

    assert time.monotonic() - began < 5
    assert len(counted(tmp_path, queue)) == 1
