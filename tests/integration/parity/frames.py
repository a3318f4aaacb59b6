"""What SEND, SUBSCRIBE and the acknowledgements accept, and what MESSAGE shows."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.integration.parity.sides import Side


def connecting(side: Side) -> None:
    """CONNECTED, and who is refused."""
    side.open(client__id="~a", heart__beat="3000,5000")
    side.open(client__id="~a").see_end()
    side.open(heart__beat="a,b").see_end()
    again = side.open()
    again.ask("CONNECT")
    again.ask("FOO")
    again.see_end()
    silent = side.open_silent()
    silent.ask("SEND", destination="/queue/~")
    bye = side.open()
    bye.ask("DISCONNECT")
    bye.see_end()


def send_headers(side: Side) -> None:
    """What a SEND's headers become."""
    client = side.open()
    full = {
        "correlation__id": "c", "priority": "7", "type": "T", "reply__to": "/queue/back", "foo": "b:a\\r",
        "content__type": "text/x", "JMSXGroupID": "g", "ack": "z", "message__id": "mine",
        "redelivered": "true", "subscription": "q", "expires": "0", "timestamp": "1234", "JMSXUserID": "u",
    }  # fmt: skip
    client.put("/queue/~", "full", **full)
    client.put("/queue/~", "abc", content__length="3")
    client.put("/queue/~", "text", content__length="4", amq__msg__type="text")
    client.put("/queue/~", "byte", amq__msg__type="bytes", reply__to="plain")
    client.put("/queue/~", "bare")
    client.subscribe("/queue/~")
    client.ask("SEND", b"np", destination="/queue/~")
    client.ask("SEND", b"no", destination="/queue/~", persistent="no", JMSDestination="odd")
    client.see()  # what is dispatched while Classic writes an ERROR may spoil it (BROKER.md C71)
    client.ask("SEND", b"x", destination="/queue/~", amq__msg__type="map")
    client.ask("SEND", b"x")
    client.see()


def send_jms_properties(side: Side) -> None:
    """Headers that set a field of the message instead of a property."""
    client = side.open()
    client.subscribe("/queue/~", JMSPriority="x")
    for name, value in {
        "JMSPriority": "3", "JMSType": "x", "JMSRedelivered": "true", "JMSReplyTo": "queue://x",
        "JMSTimestamp": "66", "JMSCorrelationID": "u", "JMSDeliveryMode": "2", "JMSMessageID": "2",
        "priority": "99", "JMSXDeliveryCount": "4", "expires": "-1", "activemq___x": "1", "browser": "2",
    }.items():  # fmt: skip
        client.ask("SEND", b"x", destination="/queue/~", **{name: value})
        client.see()
    client.ask("SEND", b"x", destination="/queue/~", priority="-3")
    client.ask("SEND", b"x", destination="/queue/~", JMSXDeliveryCount="0")
    client.see()


def bad_numbers(side: Side) -> None:
    """They close the socket, without a word."""
    for name, value in {
        "expires": "abc", "priority": "x", "JMSXGroupSeq": "y", "AMQ_SCHEDULED_DELAY": "-5",
        "JMSXDeliveryCount": "q", "timestamp": " 5",
    }.items():  # fmt: skip
        client = side.open()
        client.tell("SEND", b"x", destination="/queue/~", **{name: value})
        client.see_end()


def names_without_prefix(side: Side) -> None:
    """They are queues."""
    client = side.open()
    client.put("~plain", "a")
    client.subscribe("/queue/~plain")


def subscribe_errors(side: Side) -> None:
    """What is refused, and that the connection lives on."""
    client = side.open()
    client.ask("SUBSCRIBE", destination="/queue/~")
    client.ask("SUBSCRIBE", id="1")
    client.ask("SUBSCRIBE", id="1", destination="")
    client.ask("SUBSCRIBE", id="bad", destination="/queue/~", selector="a = = b")
    client.ask("UNSUBSCRIBE", id="bad")
    client.ask("UNSUBSCRIBE", id="bad")
    client.ask("UNSUBSCRIBE")
    client.ask("SUBSCRIBE", id="d", destination="/queue/~", activemq___subscriptionName="n")
    client.tell("SUBSCRIBE", id="t", destination="/queue/~", selector="a >")
    client.see()
    client.put("/queue/~", "lives")
    client.subscribe("/queue/~")


def ack_errors(side: Side) -> None:
    """ACK and NACK of what is not there, or not any more."""
    client = side.open()
    client.ask("ACK")
    client.ask("NACK")
    client.ask("ACK", id="nonsense")
    client.ask("NACK", id="nonsense")
    client.ask("ACK", id="nonsense", transaction="none")
    client.put("/queue/~", "a", "b")
    client.subscribe("/queue/~")
    client.ack("a")
    client.ack("a")
    client.ack("b", "NACK")
    client.ack("b", "NACK")


FRAMES: list[Callable[[Side], None]] = [
    connecting,
    send_headers,
    send_jms_properties,
    bad_numbers,
    names_without_prefix,
    subscribe_errors,
    ack_errors,
]
