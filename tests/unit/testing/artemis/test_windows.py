"""Windows of bytes on the fake Artemis: to the byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.testing.wire import encode
from tests.unit.testing.artemis.talk import INDIVIDUAL, ONE_BY_ONE, ArtemisTalk

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

WINDOW = "consumer-window-size"


def size(broker: FakeBroker) -> int:
    """The bytes on the wire of one message of `full`, which is then as if it had never been delivered."""
    client = ArtemisTalk(broker)
    client.subscribe("q", **ONE_BY_ONE)
    client.ask("UNSUBSCRIBE", {"id": "s"})
    return len(encode(client.messages[0], client.link.end_of_frame))


def full(broker: FakeBroker, count: int) -> ArtemisTalk:
    """A client, and messages that all make frames of one length."""
    client = ArtemisTalk(broker)
    for number in range(count):
        client.tell("SEND", {"destination": "q", "destination-type": "ANYCAST"}, f"{number:03}")
    return client


@pytest.mark.parametrize(
    ("frames", "more", "came"), [(1, 0, 1), (2, -1, 2), (2, 0, 2), (2, 1, 3), (3, 1, 4)]
)
def test_to_the_byte(broker: FakeBroker, frames: int, more: int, came: int) -> None:
    """While a byte is left of the window another frame comes, however long."""
    client = full(broker, 9)
    window = frames * size(broker) + more
    assert len(client.subscribe("q", **{WINDOW: str(window)})) == came


@pytest.mark.parametrize(
    ("window", "came"), [("0", 1), ("1", 1), ("-1", 50), ("-2", 0), ("-7", 0), ("1000000", 50)]
)
@pytest.mark.parametrize("header", [WINDOW, "activemq.prefetchSize"])
def test_special_windows(broker: FakeBroker, header: str, window: str, came: int) -> None:
    """RECEIPT for all of them, also for those that never let anything come."""
    client = full(broker, 50)
    assert len(client.subscribe("q", **{header: window})) == came


def test_default(broker: FakeBroker) -> None:
    """10,240 bytes."""
    client = full(broker, 90)
    assert len(client.subscribe("q")) == -(-10_240 // size(broker))


@pytest.mark.parametrize("mode", ["client", "client-individual"])
def test_only_what_is_acknowledged_comes_back(broker: FakeBroker, mode: str) -> None:
    """By its own bytes: one for one, in mode client for all that it covers."""
    client = full(broker, 20)
    got = client.subscribe("q", ack=mode, **{WINDOW: str(3 * size(broker))})
    assert len(got) == 3
    client.ack(got[1])
    assert len(client.bodies()) == (2 if mode == "client" else 1)


def test_nack_gives_back_too(broker: FakeBroker) -> None:
    """It settles as ACK does."""
    client = full(broker, 3)
    client.subscribe("q", **ONE_BY_ONE)
    client.ack("000", "NACK")
    assert client.bodies() == ["001"]


def test_unacknowledged_messages_stall(broker: FakeBroker) -> None:
    """New messages stay where they are, until an acknowledgement."""
    client = full(broker, 2)
    client.subscribe("q", **ONE_BY_ONE)
    client.put("q", "new")
    assert client.bodies() == []
    client.ack("000")
    assert client.bodies() == ["001"]


def test_auto_never_renews(broker: FakeBroker) -> None:
    """Without a window all come, with one only what fits in it, ever."""
    client = full(broker, 9)
    assert client.subscribe("q", ack="auto", **ONE_BY_ONE) == ["000"]
    client.put("q", "new")
    assert client.bodies() == []
    client.ask("UNSUBSCRIBE", {"id": "s"})
    assert len(client.subscribe("q", ack="auto")) == 9


def test_repeated_headers_count(broker: FakeBroker) -> None:
    """All bytes on the wire, also those that a parser drops."""
    client = ArtemisTalk(broker)
    client.put("q", "a", "b", redelivered="." * 1000)
    assert client.subscribe("q", **{WINDOW: "1000"}) == ["a"]


def test_windows_of_two_subscriptions(broker: FakeBroker) -> None:
    """Each has its own; what one cannot take the other gets."""
    client = full(broker, 4)
    assert client.subscribe("q", "one", **ONE_BY_ONE) == ["000"]
    assert client.subscribe("q", "two", **INDIVIDUAL) == ["001", "002", "003"]
