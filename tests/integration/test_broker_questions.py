"""A real broker's own counts, and the messages that lie in it, as `jmsx_broker` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.frames import Frame
from jmsx.errors import BrokerError, ConnectionFailedError, ResourceAllocationError
from jmsx_broker import ArtemisBroker, ClassicBroker, ExternalBroker
from jmsx_broker.wire import Wire
from tests.integration.broker_support import eventually, queue_headers, send

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


def test_statistics_of_artemis_count_what_happens(artemis_broker: Broker) -> None:
    """The same of the other broker, which counts what is scheduled, and does not count hand-outs."""
    assert not artemis_broker.statistics("counted").exists
    send(artemis_broker, "counted", [b"a", b"b", b"c"])
    send(artemis_broker, "counted", [b"later"], {"AMQ_SCHEDULED_DELAY": "60000"})
    with Wire(artemis_broker.url) as wire:
        head = {**queue_headers(wire, "counted"), "ack": "client-individual", "id": "1"}
        wire.send(Frame("SUBSCRIBE", head))
        first, _, _ = wire.receive("MESSAGE"), wire.receive("MESSAGE"), wire.receive("MESSAGE")
        wire.request(Frame("ACK", {"id": first.headers["ack"]}))
        told = artemis_broker.statistics("queue://counted")
        assert artemis_broker.browse("counted") == []
    assert told.exists
    assert (told.enqueue_count, told.dispatch_count, told.dequeue_count) == (4, None, 1)
    assert (told.size, told.inflight_count, told.scheduled_count) == (3, 2, 1)
    assert told.consumer_count == 1


def test_browse_of_artemis_shows_a_deep_queue_and_takes_nothing(artemis_broker: Broker) -> None:
    """All that waits, in order, with its own headers and ids, again and again; not even a redelivery is counted."""
    expected = [b"%d" % number for number in range(500)]
    send(artemis_broker, "deep", expected)
    send(artemis_broker, "deep", [b"a:b\n\0"], {"colour": "a:b\\c", "content-length": "5"})
    first, again = artemis_broker.browse("/queue/deep"), artemis_broker.browse("deep")
    assert [message.body for message in first] == [*expected, b"a:b\n\0"]
    assert first == again
    assert (first[-1].headers["colour"], first[-1].headers["destination"]) == ("a:b\\c", "deep")
    with Wire(artemis_broker.url) as wire:
        head = {**queue_headers(wire, "deep"), "ack": "client-individual", "id": "1"}
        wire.send(Frame("SUBSCRIBE", head))
        message = wire.receive("MESSAGE")
    assert message.headers["message-id"].endswith("," + first[0].headers["message-id"])
    assert (message.body, message.headers["redelivered"]) == (b"0", "false")


def test_artemis_does_as_it_is_told() -> None:
    """Users, settings of addresses and the store: the broker has what its constructor was given."""
    settings = {
        "once.#": {"max-delivery-attempts": 1},
        "shown.#": {"management-browse-page-size": 3},
    }
    with ArtemisBroker(
        users={"ann": "p:@/ö"}, address_settings=settings, persistent=False
    ) as broker:
        with pytest.raises(BrokerError):
            Wire(broker.url)
        own = ExternalBroker(broker.url.replace("//", "//ann:p%3A%40%2F%C3%B6@"))
        send(own, "once.only", [b"poison"])
        with Wire(own.url) as wire:
            head = {**queue_headers(wire, "once.only"), "ack": "client", "id": "1"}
            wire.send(Frame("SUBSCRIBE", head))
            wire.receive("MESSAGE")
            wire.request(Frame("DISCONNECT", {}))
        assert eventually(lambda: broker.statistics("DLQ").size == 1)
        (dead,) = broker.browse("DLQ")
        assert (dead.headers["_AMQ_ORIG_QUEUE"], dead.body) == ("once.only", b"poison")
        send(own, "shown.partly", [b"a", b"b", b"c", b"d"])
        with pytest.raises(ResourceAllocationError, match=r"only 3 of at least 4 .*page-size"):
            broker.browse("shown.partly")
        broker.kill()
        broker.start()
        assert not broker.statistics("shown.partly").exists


def test_classic_lets_only_its_users_in() -> None:
    """Whoever has no password is refused; the broker's own questions are asked as one of the users."""
    with ClassicBroker(users={"ann": "p:@/ö", "bob": "b"}) as broker:
        assert eventually(lambda: _is_told_why_not(broker.url))
        send(ExternalBroker(broker.url.replace("//", "//bob:b@")), "secret", [b"a"])
        assert broker.statistics("secret").size == 1


def _is_told_why_not(url: str) -> bool:
    """Nobody is let in; but the broker may close the connection before its ERROR is written (BROKER.md C54)."""
    with pytest.raises((BrokerError, ConnectionFailedError)) as refused:
        Wire(url)
    return refused.type is BrokerError


def test_browse_of_an_unknown_queue_is_empty_and_creates_none(
    classic_broker: Broker, artemis_broker: Broker
) -> None:
    """Looking into a queue that is not there does not make it."""
    for broker in (classic_broker, artemis_broker):
        assert broker.browse("nowhere") == []
        assert not broker.statistics("nowhere").exists


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
