"""A real broker's own counts, and the messages that lie in it, as `jmsx_broker` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.frames import Frame
from jmsx.errors import ConnectionFailedError, ResourceAllocationError
from jmsx_broker import ClassicBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import send

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker


def test_statistics_count_what_happens(classic_broker: Broker) -> None:
    """The broker's numbers follow a message from its arrival to its acknowledgement."""
    assert not classic_broker.statistics("counted").exists
    send(classic_broker, "counted", [b"a", b"b", b"c"])
    with Wire(classic_broker.url) as wire:
        subscription = {"id": "1", "destination": "/queue/counted", "ack": "client-individual"}
        wire.send(Frame("SUBSCRIBE", {**subscription, "activemq.prefetchSize": "2"}))
        first, _ = wire.receive("MESSAGE"), wire.receive("MESSAGE")
        wire.request(Frame("ACK", {"id": first.headers["ack"]}))
        wire.receive("MESSAGE")
        told = classic_broker.statistics("queue://counted")
    assert told.exists
    assert (told.enqueue_count, told.dispatch_count, told.dequeue_count) == (3, 3, 1)
    assert (told.size, told.inflight_count, told.consumer_count) == (2, 2, 1)


def test_browse_shows_a_deep_queue_and_takes_nothing(classic_broker: Broker) -> None:
    """More messages than the broker's page (200) and browse page (400) come whole, in order, again and again."""
    expected = [b"%d" % number for number in range(1000)]
    send(classic_broker, "deep", expected)
    for _ in range(2):
        assert expected == [message.body for message in classic_broker.browse("/queue/deep")]
    assert classic_broker.statistics("deep").size == len(expected)


def test_browse_shows_messages_in_flight_and_headers(classic_broker: Broker) -> None:
    """A message at a consumer still lies in the queue; what its producer said of it is shown."""
    send(classic_broker, "flying", [b"a:b\n\0"], {"colour": "a:b\\c", "content-length": "5"})
    with Wire(classic_broker.url) as wire:
        wire.send(Frame("SUBSCRIBE", {"id": "1", "destination": "/queue/flying", "ack": "client"}))
        wire.receive("MESSAGE")
        (message,) = classic_broker.browse("flying")
    assert message.body == b"a:b\n\0"
    assert message.headers["colour"] == "a:b\\c"


def test_browse_of_an_unknown_queue_is_empty_and_creates_none(classic_broker: Broker) -> None:
    """Looking into a queue that is not there does not make it."""
    assert classic_broker.browse("nowhere") == []
    assert not classic_broker.statistics("nowhere").exists


def test_browse_that_the_broker_cuts_off_is_an_error() -> None:
    """More bytes than the broker's memory are not shown, and that is said instead of hidden."""
    with ClassicBroker() as broker:
        send(broker, "heavy", [b"x" * 5_000_000] * 70, {"content-length": "5000000"})
        with pytest.raises(ResourceAllocationError, match="of at least 70 messages in heavy"):
            broker.browse("heavy")


def test_absent_broker_is_a_connection_error() -> None:
    """Nobody at the address is told with the address."""
    with pytest.raises(ConnectionFailedError, match=r"127\.0\.0\.1:1"):
        Wire("stomp://127.0.0.1:1")
