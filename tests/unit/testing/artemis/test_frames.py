"""MESSAGE as the fake Artemis writes it, byte by byte."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.testing.wire import encode
from tests.unit.testing.artemis.talk import ANYCAST, ArtemisTalk

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker


def shown(broker: FakeBroker, body: str, **headers: str) -> bytes:
    """The bytes of the MESSAGE that shows a SEND; ids and times are those of an empty broker."""
    client = ArtemisTalk(broker)
    client.tell("SEND", {"destination": "q", **headers}, body)
    client.subscribe("q")
    (message,) = client.messages
    return encode(message, client.link.end_of_frame)


def lines(frame: bytes) -> list[str]:
    """The header lines, without what says when and where."""
    told = frame.decode().partition("\n\n")[0].split("\n")[1:]
    return [line for line in told if not line.startswith(("timestamp:1", "message-id:", "ack:"))]


def test_what_every_message_has(broker: FakeBroker) -> None:
    """Also `expires` and `redelivered`, and the length of any body; the frame ends with a line feed."""
    broker.queue("q")
    frame = shown(broker, "hi")
    assert lines(frame) == [
        "subscription:s", "destination:q", "expires:0", "redelivered:false", "priority:4", "persistent:false",
        "content-length:2",
    ]  # fmt: skip
    assert frame.endswith(b"\n\nhi\0\n")


def test_headers_of_the_request_come_back(broker: FakeBroker) -> None:
    """After the broker's own, so the first one is the true one."""
    frame = shown(broker, "", receipt="r", redelivered="true", **{"message-id": "x"}, **ANYCAST)
    told = lines(frame)
    assert told[:6] == [
        "subscription:s", "destination:q", "expires:0", "redelivered:false", "priority:4", "persistent:false",
    ]  # fmt: skip
    assert sorted(told[6:]) == [
        "destination-type:ANYCAST", "destination-type:ANYCAST", "receipt:r", "redelivered:true",
    ]  # fmt: skip
    assert b"message-id:x" in frame


def test_names_that_change(broker: FakeBroker) -> None:
    """JMSXGroupID comes back under the broker's name; the others as they were."""
    kept = {"correlation-id": "c", "type": "T", "reply-to": "r", "content-type": "t"}
    told = lines(shown(broker, "", JMSXGroupID="g", **kept, **ANYCAST))
    assert "_AMQ_GROUP_ID:g" in told
    assert "JMSXGroupID:g" not in told
    assert {f"{name}:{value}" for name, value in kept.items()} <= set(told)


@pytest.mark.parametrize(
    ("length", "body", "told"),
    [
        ({}, "", 0),
        ({}, "text", 1),
        ({"content-length": "4"}, "text", 1),
        ({"content-length": "0"}, "", 1),
    ],
)
def test_content_length(broker: FakeBroker, length: dict[str, str], body: str, told: int) -> None:
    """Once, and only with a body or if the sender gave it: a text cannot be told from bytes."""
    frame = shown(broker, body, **length, **ANYCAST)
    assert frame.count(f"content-length:{len(body)}\n".encode()) == told


def test_escaping(broker: FakeBroker) -> None:
    """Headers are escaped as STOMP 1.2 says."""
    assert b"\nfoo:a\\cb\n" in shown(broker, "", foo="a:b", **ANYCAST)


@pytest.mark.parametrize(("mode", "told"), [("client", 1), ("auto", 0)])
def test_ack_header(broker: FakeBroker, mode: str, told: int) -> None:
    """The same as the message id, for what is to be acknowledged."""
    client = ArtemisTalk(broker)
    client.put("q", "a")
    client.subscribe("q", ack=mode)
    (message,) = client.messages
    assert [message.headers.get("ack")] == [message.headers["message-id"]] * told or [None]
    assert message.block.count(b"\nack:") == told
