"""Bodies and headers arrive as they were sent."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Message, Queue

if TYPE_CHECKING:
    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


BODIES: dict[str, str | bytes] = {
    "every byte": bytes(range(256)) * 4,
    "only NULs": b"\0" * 5000,
    "empty bytes": b"",
    "empty text": "",
    "text with NUL": "before\0after\0",
    "looks like frames": "\n\n\0MESSAGE\nsubscription:1\n\n",
    "bytes like frames": b"\0\n\nRECEIPT\nreceipt-id:x\n\n\0",
    "line ends": "\r\n\n\r a \n",
    "beyond the plane": "\U0001f600 \u20ac \u00e4 \u4e2d",
}


def test_bodies_arrive_as_they_were_sent(classic_broker: Broker, queue: Queue) -> None:
    """Text stays text and bytes stay bytes, whatever is in them; two in one chunk do not mix."""
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        for body in BODIES.values():
            producer.send(Message(body))
        connection.start()
        consumer = session.create_consumer(queue)
        for name, body in BODIES.items():
            message = consumer.receive(5)
            assert message is not None, name
            assert message.body == body, name
            assert type(message.body) is type(body), name


def test_headers_arrive_as_they_were_sent(classic_broker: Broker, queue: Queue) -> None:
    """Values with every escape, colons, blanks and all planes of Unicode, twice around through a DLQ as well."""
    values = {
        "colon": "a:b::c",
        "backslash": "\\ \\n \\c \\\\ \\r",
        "lines": "one\ntwo\r\nthree\r",
        "blanks": "  leading and trailing  ",
        "unicode": "\U0001f600\u20ac\u00e4",
        "empty": "",
        "controls": "".join(chr(number) for number in range(1, 32)),
    }
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        session.create_producer(queue).send(
            Message("x", properties=values, correlation_id="a:b\n\\c", type="t:\\")
        )
        connection.start()
        message = session.create_consumer(queue).receive(5)
        assert message is not None
        assert {name: message.properties[name] for name in values} == values
        assert message.correlation_id == "a:b\n\\c"
        assert message.type == "t:\\"


@pytest.mark.parametrize("body", [b"\0\1" * 10_000_000, "text" * 5_000_000], ids=["nuls", "text"])
def test_a_huge_body(classic_broker: Broker, queue: Queue, body: str | bytes) -> None:
    """20 MB, all NULs and ones or all text, in a few seconds, and the next message behind it."""
    with Connection(classic_broker.url) as connection:
        session = connection.create_session()
        producer = session.create_producer(queue)
        producer.send(Message(body))
        producer.send(Message("next"))
        connection.start()
        consumer = session.create_consumer(queue)
        began = time.monotonic()
        message = consumer.receive(20)
        assert message is not None
        assert message.body == body
        assert time.monotonic() - began < 10
        behind = consumer.receive(5)
        assert behind is not None
        assert behind.text == "next"
