"""Artemis' frames on a real broker: their sizes are its credits, and they tell bytes from text."""

from __future__ import annotations

import itertools
import queue
from typing import TYPE_CHECKING, Final

import pytest

from jmsx import Connection, Message, Queue, Reject
from jmsx.config.uri import parse_broker_uri
from jmsx.core.frames import Frame, MessageFrame
from jmsx.drivers.link import Inbox, LinkLost, StompLink
from jmsx_broker.wire import Wire
from tests.integration.artemis_support import Console
from tests.integration.support import CLIENT, fresh_queue

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = pytest.mark.broker

#: Seconds without a message after which the broker is taken to send nothing more.
QUIET: Final = 0.4


def put(broker: Broker, to: Queue, *messages: tuple[dict[str, str], bytes]) -> None:
    """Send messages, with nothing of jmsx in them."""
    head = {"destination": to.name, "destination-type": "ANYCAST", "persistent": "true"}
    with Wire(broker.url) as wire:
        for headers, body in messages:
            wire.request(Frame("SEND", {**head, **headers}, body))


def sizes(broker: Broker, source: Queue, window: int) -> list[int]:
    """The sizes of the frames that come through a window of so many bytes, as jmsx counts them."""
    inbox: Inbox = queue.SimpleQueue()
    uri = parse_broker_uri(broker.url)
    link = StompLink(uri.addresses[0], uri.options, inbox)
    link.open(None)
    try:
        headers = {"destination": source.name, "subscription-type": "ANYCAST", "ack": "client"}
        given = {"id": "1", **headers, "consumer-window-size": str(window)}
        link.send(Frame("SUBSCRIBE", given).encode())
        return [frame.size for frame in arrivals(inbox)]
    finally:
        link.send(Frame("UNSUBSCRIBE", {"id": "1"}).encode())
        link.send(Frame("DISCONNECT", {"receipt": "r"}).encode())
        arrivals(inbox)
        link.drop()


def arrivals(inbox: Inbox) -> list[MessageFrame]:
    """The MESSAGEs that come, until nothing comes any more."""
    frames: list[MessageFrame] = []
    while True:
        try:
            arrived = inbox.get(timeout=QUIET)
        except queue.Empty:
            return frames
        assert arrived is not None
        if isinstance(arrived[1], LinkLost):
            return frames
        frames += [frame for frame in arrived[1] if isinstance(frame, MessageFrame)]


def test_sizes_are_the_credits_of_the_broker(artemis_broker: Broker) -> None:
    """
    It sends as long as one byte of the window is left, and no frame more (jmsx_artemis/BROKER.md A16).

    Were a single byte of a frame counted wrong, the windows that end with one, or a byte after it, would show it.
    """
    source = fresh_queue()
    odd = {"colon:name": "a:b\\c\nd", "ü": "ä€😀"}
    messages = [({**odd, "h": "x" * n}, "é".encode() * n) for n in range(6)]
    messages += [({**odd, "content-length": str(n)}, b"\0" * n) for n in range(6)]
    put(artemis_broker, source, *messages)
    seen = sizes(artemis_broker, source, -1)
    assert len(seen) == len(messages)
    for count, beside in itertools.product((1, 5, 9), (0, 1)):
        window = sum(seen[:count]) + beside
        got = sizes(artemis_broker, source, window)
        assert sum(got[:-1]) < window <= sum(got)
        seen[: len(got)] = got  # the number of the subscription is in them, and grows


def test_bytes_of_other_senders_are_told_from_text(artemis_broker: Broker) -> None:
    """And stay what they are when they are dead letters, and come back."""
    source = fresh_queue()
    bodies: list[str | bytes] = ["text", b"bytes", "", b"", "ä€", b"\0\xff"]
    put(
        artemis_broker,
        source,
        *(
            ({"content-length": str(len(body))}, body)
            if isinstance(body, bytes)
            else ({}, body.encode())
            for body in bodies
        ),
    )
    dlq = Queue(f"{source.name}.dead")
    with Connection(artemis_broker.url, dead_letter=dlq.uri) as connection:
        connection.start()
        session = connection.create_session(CLIENT)
        consumer = session.create_consumer(source)
        assert [body_of(consumer.receive(10)) for _ in bodies] == bodies
        session.recover(Reject("no"))
        dead_ones = session.create_consumer(dlq)
        assert [body_of(dead_ones.receive(10)) for _ in bodies] == bodies
        dead_ones.close()
        with Console(artemis_broker) as console:
            assert console.ask(f"queue.{dlq.name}", "retryMessages") == len(bodies)
        assert [body_of(consumer.receive(10)) for _ in bodies] == bodies
        session.recover(Reject("enough"))


def body_of(message: Message | None) -> object:
    """The body of a message that has to be there."""
    assert message is not None
    return message.body
