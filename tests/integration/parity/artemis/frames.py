"""Connecting, and how headers and bodies come out again."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Side


def connecting(side: Side) -> None:
    """Heart-beats and the other headers of CONNECT."""
    side.open(client__id="~", receipt="r")
    for beats in ("0,0", "100,0", "5000,0", "0,100", "0,7000", "400,9000"):
        side.open(heart__beat=beats)
    for client in side.clients:
        client.see(0.1)


def refused_connections(side: Side) -> None:
    """An ERROR, and the end."""
    for headers in ({"heart-beat": "5"}, {"heart-beat": "a,b"}):
        side.open(**headers).see_end()


def connecting_twice(side: Side) -> None:
    """CONNECT is answered again, STOMP is not."""
    client = side.open()
    client.ask("CONNECT", accept__version="1.2")
    client.ask("STOMP", accept__version="1.2")
    client.ask("DISCONNECT")
    client.see_end()


def one_client_id_for_two(side: Side) -> None:
    """Nobody minds."""
    side.open(client__id="~")
    side.open(client__id="~")


def headers(side: Side) -> None:
    """All that a SEND may say, and what it must not be able to say."""
    client = side.open()
    known = {
        "correlation__id": "c", "type": "T", "reply__to": "answers", "priority": "7", "content__type": "text/plain",
        "JMSXGroupID": "g", "JMSXGroupSeq": "3", "expires": side.now_ms(600), "foo": "a:b\\c\nd", "empty": "",
    }  # fmt: skip
    spoofed = {
        "timestamp": "5", "message__id": "zz", "redelivered": "true", "subscription": "x", "transformation": "y",
        "JMSType": "other", "JMSXUserID": "u", "persistent": "TRUE",
    }  # fmt: skip
    client.put("~", "a", **known)
    client.put("~", "b", **spoofed)
    client.ask("SEND", b"c", destination="~", **{"destination-type": "ANYCAST"})
    client.subscribe("~")


def bodies(side: Side) -> None:
    """Texts, bytes, nothing, and a zero byte inside."""
    client = side.open()
    for body, length in ((b"text", {}), (b"b\0b", {"content-length": "3"}), (b"", {})):
        client.tell("SEND", body, destination="~", **{"destination-type": "ANYCAST"}, **length)
    zero = {"content-length": "0", "destination-type": "ANYCAST"}
    client.tell("SEND", b"", destination="~", **zero)
    client.ask("SEND", "häßlich ✓".encode(), destination="~", **{"destination-type": "ANYCAST"})
    client.subscribe("~")


def bad_frames(side: Side) -> None:
    """Each is the end of its connection."""
    for command, headers_ in (
        ("SEND", {"destination": "~", "destination-type": "anycast"}),
        ("SEND", {"destination": "~", "priority": "x"}),
        ("SEND", {"destination": "~", "priority": "200"}),
        ("SEND", {"destination": "~", "expires": "x"}),
        ("SEND", {"destination": "~", "AMQ_SCHEDULED_DELAY": "x"}),
        ("SUBSCRIBE", {"destination": "~", "subscription-type": "x"}),
        ("SUBSCRIBE", {"destination": "~", "consumer-window-size": "x"}),
        ("SUBSCRIBE", {"destination": "~", "selector": ""}),
        ("SUBSCRIBE", {"destination": "~", "selector": "a = = 1"}),
        ("SUBSCRIBE", {"destination": "~", "durable-subscription-name": "n"}),
        ("UNSUBSCRIBE", {}),
        ("UNSUBSCRIBE", {"id": "s"}),
    ):
        client = side.open()
        client.ask(command, **headers_)
        client.see_end()


FRAMES: list[Callable[[Side], None]] = [
    connecting,
    refused_connections,
    connecting_twice,
    one_client_id_for_two,
    headers,
    bodies,
    bad_frames,
]
