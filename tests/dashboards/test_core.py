"""What the core really reports, over a socket: the metrics are the events, and the gauges come down again."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jmsx.core.events import (
    ConnectFailed,
    DeliveryEnded,
    LinkMeasured,
    MessagesAcknowledged,
    RedeliveryScheduled,
)
from jmsx.core.modes import AcknowledgeMode
from jmsx.drivers import epoch
from jmsx.jms.connection import Connection
from jmsx.jms.message import Message
from jmsx.testing.server import FakeBrokerServer
from jmsx_prometheus import PrometheusObserver
from tests.dashboards.live import free_port
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    import pytest

    from jmsx.core.events import Event, Source


class _Log:
    """Keeps every event."""

    def __init__(self) -> None:
        self.events: list[Event] = []

    def observe(self, event: Event, _source: Source) -> None:
        self.events.append(event)

    def close(self) -> None:
        """Nothing to do."""


def test_metrics_are_the_events_of_a_session() -> None:
    """Send 50, take 20, acknowledge 10, recover 10, take 1 of them again, close."""
    observer, log = PrometheusObserver(), _Log()
    with FakeBrokerServer() as broker:
        with Connection(broker.url, observers=[observer, log]) as connection:
            connection.start()
            session = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
            queue = session.create_queue("orders")
            producer = session.create_producer(queue)
            for number in range(50):
                producer.send(Message(f"order {number}"))
            consumer = session.create_consumer(queue)
            for number in range(1, 21):
                message = consumer.receive(5)
                assert message is not None
                if number == 10:
                    message.acknowledge()
            assert observer.value("jmsx_connection_up") == 1
            assert observer.value("jmsx_open_subscriptions") == 1
            assert observer.value("jmsx_unsettled_messages") == 40
            session.recover()
            assert consumer.receive(5) is not None
        assert observer.value("jmsx_unsettled_messages") == 0
        assert observer.value("jmsx_open_subscriptions") == 0
    counted = observer.totals("jmsx_processed_messages_total", "outcome")
    told = Counter((one.outcome.value,) for one in log.events if isinstance(one, DeliveryEnded))
    assert {outcome: count for outcome, count in counted.items() if count} == told
    assert told["acknowledged",] == 10
    assert told["rolled_back",] == 10
    assert observer.value("jmsx_sent_messages_total", outcome="confirmed") == 50
    assert observer.value("jmsx_received_messages_total") == 50
    assert observer.value("jmsx_redeliveries_total") == _count(log, RedeliveryScheduled) == 10
    assert observer.value("jmsx_ack_frames_total") == _count(log, MessagesAcknowledged)
    assert observer.value("jmsx_label_overflow_total") == 0


def test_what_goes_over_sockets_is_told_when_they_end() -> None:
    """Attempts, frames and bytes of a real socket; one that nobody listened to, and one who would not answer."""
    observer, log = PrometheusObserver(), _Log()
    with FakeBrokerServer() as broker:
        port = free_port()
        uri = f"failover:(stomp://127.0.0.1:{port},{broker.url})?randomize=false"
        with Connection(uri, observers=[observer, log]) as connection:
            session = connection.create_session()
            session.create_producer(session.create_queue("orders")).send(Message("x" * 1000))
    assert observer.totals("jmsx_connection_attempts_total", "result")["refused",] == 1
    assert observer.value("jmsx_connection_attempts_total", result="ok") == 1
    (failed,) = [one for one in log.events if isinstance(one, ConnectFailed)]
    assert str(port) in failed.detail
    measured = [one for one in log.events if isinstance(one, LinkMeasured)][-1]
    # CONNECTED and receipts of SEND, DISCONNECT
    assert (measured.frames_in, measured.frames_out) == (3, 2)
    assert measured.bytes_out > 1000 > measured.bytes_in > 0
    assert observer.totals("jmsx_frames_total", "direction") == {("in",): 3, ("out",): 2}


def test_what_waits_here_is_told_while_it_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 30 messages one is in work and 29 wait for it; when all is acknowledged, none does either."""
    monkeypatch.setattr(epoch, "MEASURE_EVERY", 0.05)
    observer = PrometheusObserver()

    def here(buffered: int, in_process: int) -> bool:
        names = ("jmsx_buffered_messages", "jmsx_in_process_messages")
        return [observer.value(name) for name in names] == [buffered, in_process]

    with FakeBrokerServer() as broker, Connection(broker.url, observers=[observer]) as connection:
        connection.start()
        session = connection.create_session(AcknowledgeMode.CLIENT_ACKNOWLEDGE)
        queue = session.create_queue("orders")
        producer = session.create_producer(queue)
        for number in range(30):
            producer.send(Message(f"order {number}"))
        consumer = session.create_consumer(queue)
        message = consumer.receive(5)
        assert message is not None
        assert eventually(lambda: here(29, 1))
        message.acknowledge()
        while (message := consumer.receive_no_wait()) is not None:
            message.acknowledge()
        assert eventually(lambda: here(0, 0))
        assert observer.value("jmsx_unanswered_frames") == 0


def _count(log: _Log, kind: type[Event]) -> int:
    return sum(isinstance(event, kind) for event in log.events)
