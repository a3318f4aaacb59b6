"""Connections of the fake Artemis, and the ERRORs that end them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.frames import Frame
from tests.unit.testing.artemis.talk import TX, ArtemisTalk, left

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker


def test_connected(broker: FakeBroker) -> None:
    """It names itself as 2.44.0 does, and nobody else may have a session of that name."""
    one = ArtemisTalk(broker, **{"client-id": "me"}).connected.headers
    two = ArtemisTalk(broker, **{"client-id": "me"}).connected.headers
    assert one["server"] == "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"
    assert one.keys() == {"version", "session", "server"}
    assert one["session"] != two["session"]


@pytest.mark.parametrize(
    ("wanted", "told", "promised"),
    [
        (None, None, (0, 60_000)),
        ("0,0", "0,30000", (0, 60_000)),
        ("100,0", "0,500", (0, 1000)),
        ("5000,0", "0,5000", (0, 10_000)),
        ("0,100", "500,30000", (500, 60_000)),
        ("5000,7000", "7000,5000", (7000, 10_000)),
    ],
)
def test_heart_beats(
    broker: FakeBroker, wanted: str | None, told: str | None, promised: tuple[int, int]
) -> None:
    """Twice the client's interval is its time to live, at least a second; without one it is a minute."""
    client = ArtemisTalk(broker, **({} if wanted is None else {"heart-beat": wanted}))
    assert client.connected.headers.get("heart-beat") == told
    assert client.link.heart_beat == promised


def test_every_error_is_the_end(broker: FakeBroker) -> None:
    """Of a frame that makes no sense, and of bytes that are none."""
    client = ArtemisTalk(broker)
    assert client.ask("ACK", {"id": "1,1"}).startswith("AMQ339025 failed to ack")
    assert client.link.closed
    client = ArtemisTalk(broker)
    client.link.receive(b"SEND\nno colon\n\nx\0", broker.now)
    client.collect()
    assert len(client.errors()) == 1
    assert client.link.closed


def test_refused_subscribe_has_no_receipt_id(broker: FakeBroker) -> None:
    """It does not say whose it is."""
    client = ArtemisTalk(broker)
    client.tell("SUBSCRIBE", {"destination": "q", "selector": "", "receipt": "r"})
    (error,) = client.answers
    assert "receipt-id" not in error.headers
    assert client.link.closed


def test_frames_before_connect_are_not_modelled(broker: FakeBroker) -> None:
    """A real broker takes such a socket for one of another protocol."""
    with pytest.raises(NotImplementedError, match="does not begin with CONNECT"):
        broker.open_link(0.0).feed(Frame("SEND", {"destination": "q"}), 0.0)


# -- faults that a test plans -------------------------------------------------------------------


def test_refused_connect(broker: FakeBroker) -> None:
    """As with wrong credentials."""
    broker.refuse_next("CONNECT", "Security Error occurred")
    client = ArtemisTalk(broker)
    assert client.connected.headers["message"] == "Security Error occurred"
    assert client.link.closed


def test_refused_send(broker: FakeBroker) -> None:
    """An ERROR for its receipt, and the end."""
    client = ArtemisTalk(broker)
    broker.refuse_next("SEND", "no space")
    assert client.ask("SEND", {"destination": "q"}, "a") == "no space"
    assert client.link.closed
    assert left(broker, "q") == []


def test_refused_commit(broker: FakeBroker) -> None:
    """What was sent is lost; what was acknowledged stays so."""
    client = ArtemisTalk(broker)
    client.put("q", "a")
    client.subscribe("q")
    client.ask("BEGIN", TX)
    client.put("out", "o", **TX)
    client.ack("a", **TX)
    broker.refuse_next("COMMIT", "store is broken")
    assert client.ask("COMMIT", TX) == "store is broken"
    assert client.link.closed
    assert left(broker, "out") == left(broker, "q") == []


@pytest.mark.parametrize(("applied", "out"), [(True, ["o"]), (False, [])])
def test_cut_at_commit(broker: FakeBroker, *, applied: bool, out: list[str]) -> None:
    """The client cannot know whether it was done; the broker does."""
    client = ArtemisTalk(broker)
    client.ask("BEGIN", TX)
    client.put("out", "o", **TX)
    broker.cut_next("COMMIT", applied=applied)
    assert client.ask("COMMIT", TX) == "CLOSED"
    assert client.errors() == []
    assert left(broker, "out") == out
