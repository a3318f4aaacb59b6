"""Copies: what dead letters and postponed messages carry on, such that the broker's own tools know them."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame, MessageFrame, escape
from jmsx_artemis import DIALECT
from jmsx_artemis.copies import queue_name
from tests.unit.core.harness import AUTO, Talk

#: What a live broker told of a message of another client, and what it made of it itself.
CAME = {
    "subscription": "1",
    "message-id": "5,4",
    "destination": "orders",
    "expires": "99999",
    "redelivered": "true",
    "priority": "7",
    "persistent": "true",
    "timestamp": "1795268667776",
    "destination-type": "ANYCAST",
    "receipt": "done",
    "ack": "5,4",
}


def death_record(**fields: Any) -> DeathRecord:
    """Died of a ValueError after three deliveries from the queue orders."""
    given: dict[str, Any] = {
        "reason": "max_redeliveries",
        "destination": "queue://orders",
        "origin": "queue://orders",
        "delivery_count": 3,
        "consumer": "billing",
        "error_type": "ValueError",
        **fields,
    }
    return DeathRecord(**given)


def delivery(frame: MessageFrame) -> Delivery:
    """As the session has it."""
    key = DIALECT.reading.message_id(frame.headers)
    return Delivery.of(frame, 1, key, epoch=1, now=0.0, wall=0.0)


def copied(
    headers: dict[str, str] | None = None,
    body: bytes = b"x",
    dlq: str = "queue://DLQ",
    **died: Any,
) -> Frame:
    """The copy of a message that came with these headers, too."""
    frame = MessageFrame.of({**CAME, **(headers or {})}, body)
    return DIALECT.copying.dead_letter_copy(delivery(frame), dlq, death_record(**died))


def test_copy_says_where_it_was_as_the_broker_does() -> None:
    """Filters of dead letter queues and `retryMessages` go by it (BROKER.md A46 and A47)."""
    headers = copied().headers
    assert {name: text for name, text in headers.items() if name.startswith("_AMQ")} == {
        "_AMQ_ORIG_ADDRESS": "orders",
        "_AMQ_ORIG_QUEUE": "orders",
        "_AMQ_ORIG_MESSAGE_ID": "4",
        "_AMQ_DUPL_ID": "jmsx-dead:orders:4",
    }


@pytest.mark.parametrize(
    ("died", "address", "queue"),
    [
        ({}, "orders", "orders"),
        (
            {"destination": "queue://orders::north", "origin": "queue://orders::north"},
            "orders",
            "north",
        ),
        (
            {"destination": "topic://prices", "origin": "topic://prices:durable:shop.sub"},
            "prices",
            "shop.sub",
        ),
        (
            {"destination": "topic://prices", "origin": "topic://prices:durable:a:durable:b.sub"},
            "prices",
            "b.sub",
        ),
    ],
    ids=["queue", "full name", "durable", "odd name"],
)
def test_copy_names_the_queue_that_it_was_in(
    died: dict[str, Any], address: str, queue: str
) -> None:
    """For a durable subscription the queue that is called after client and subscription."""
    headers = copied(**died).headers
    assert (headers["_AMQ_ORIG_ADDRESS"], headers["_AMQ_ORIG_QUEUE"]) == (address, queue)
    assert headers["_AMQ_DUPL_ID"] == f"jmsx-dead:{queue}:4"


def test_queue_of_a_subscriber_that_is_gone_is_not_named() -> None:
    """It ended with its consumer; two subscribers' copies are told apart all the same."""
    topic = "topic://prices"
    one, two = (copied(destination=topic, origin=f"{topic}:{session}") for session in "12")
    assert "_AMQ_ORIG_QUEUE" not in one.headers
    assert one.headers["_AMQ_DUPL_ID"] != two.headers["_AMQ_DUPL_ID"]
    assert queue_name(death_record(destination=topic, origin=f"{topic}:1"), "prices") is None


def test_copy_goes_where_it_is_told() -> None:
    """Address and routing type of the dlq, not of the original."""
    frame = copied(dlq="topic://DLA::DLQ.orders")
    assert frame.command == "SEND"
    assert frame.headers["destination"] == "DLA::DLQ.orders"
    assert frame.headers["destination-type"] == "MULTICAST"


def test_copy_carries_what_the_application_gave() -> None:
    """Properties, identity, and the headers of JMS; a group under the name that a SEND has for it."""
    given = {
        "correlation-id": "c",
        "type": "t",
        "reply-to": "queue://answers",
        "colour": "red",
        "jmsx_key": "k",
        "content-type": "text/plain",
        "JMSXGroupSeq": "2",
    }
    headers = copied({**given, "_AMQ_GROUP_ID": "g"}).headers
    assert {name: headers[name] for name in given} == given
    assert headers["JMSXGroupID"] == "g"
    assert headers["priority"] == "7"
    assert headers["persistent"] == "true"


def test_copy_of_a_message_that_was_not_persistent_is() -> None:
    """A dead letter shall outlive the broker."""
    assert copied({"persistent": "false"}).headers["persistent"] == "true"


def test_copy_leaves_what_binds_or_hurts() -> None:
    """What the broker would echo, obey or refuse (BROKER.md A48)."""
    bad = {
        "receipt": "other",
        "transaction": "t",
        "expires": "1",
        "AMQ_SCHEDULED_DELAY": "5000",
        "AMQ_SCHEDULED_TIME": "5000",
        "_AMQ_SCHED_DELIVERY": "5000",
        "_AMQ_ORIG_ROUTING_TYPE": "0",
        "_AMQ_ACTUAL_EXPIRY": "1",
        "JMSXUserID": "u",
        "ingress-timestamp": "1",
        "__AMQ_CID": "x",
        "jmsx_exception_message": "of an earlier death",
    }
    assert not bad.keys() & copied(bad).headers.keys()
    assert not {"ack", "subscription", "redelivered", "message-id"} & copied().headers.keys()


def test_duplicate_id_of_the_original_is_not_carried_on() -> None:
    """The broker would drop the copy of a copy, with a RECEIPT (BROKER.md A14)."""
    given = {"_AMQ_DUPL_ID": "jmsx-dead:orders:4", "message-id": "9,8"}
    assert copied(given).headers["_AMQ_DUPL_ID"] == "jmsx-dead:orders:8"


def test_endless_header_is_cut() -> None:
    """Rather a value that is cut than a copy that cannot be sent."""
    line = "long" + copied({"long": "é\n" * 40_000}).headers["long"]
    assert 15_000 < len(escape(line).encode()) <= 16_000


@pytest.mark.parametrize(
    ("block", "body", "length"),
    [
        ("message-id:5,4\ncontent-length:1", b"x", None),
        ("content-length:1\nmessage-id:5,4", b"x", "1"),
        ("message-id:5,4", b"", None),
        ("message-id:5,4\ncontent-length:0", b"", "0"),
        ("message-id:5,4\njmsx_type:map\ncontent-length:5", b"<map>", None),
        ("message-id:5,4\ncontent-length:3", b"a\0b", "3"),
        ("content-length:3\nmessage-id:5,4\njmsx_type:text", b"a\0b", "3"),
    ],
    ids=["text", "bytes", "empty text", "empty bytes", "map", "Java's text with NUL", "ours with NUL"],
)  # fmt: skip
def test_copy_is_of_the_original_s_type(block: str, body: bytes, length: str | None) -> None:
    """With a content-length it is a BytesMessage, and only a BytesMessage has one; a NUL needs one on the wire."""
    frame = DIALECT.copying.dead_letter_copy(
        delivery(MessageFrame(block.encode(), body)), "queue://DLQ", death_record()
    )
    assert (frame.body, frame.headers.get("content-length")) == (body, length)


def test_text_with_nul_stays_text_for_us() -> None:
    """Java's TextMessage may hold one; its copy has to be a BytesMessage, and says what it was."""
    frame = MessageFrame(b"message-id:5,4\ncontent-length:3", b"a\0b")
    copy = DIALECT.copying.dead_letter_copy(delivery(frame), "queue://DLQ", death_record())
    assert DIALECT.reading.decode_body(copy.headers, copy.body) == "a\0b"


# Postponed -----------------------------------------------------------------------------------------------------------


def scheduled_copy(headers: dict[str, str] | None = None, delay: float = 1.5) -> Frame:
    """The message sent back to its queue, for its second redelivery."""
    settings = Talk(AUTO, dialect=DIALECT).settings(destination="queue://orders")
    again = delivery(MessageFrame.of({**CAME, **(headers or {})}, b"x"))
    again.continue_after_sending_back(2)
    return DIALECT.copying.scheduled_copy(again, settings, "k", delay)


def test_postponed_message_comes_back_once() -> None:
    """To its queue, after the delay; what a crash would send twice, the broker drops."""
    headers = scheduled_copy().headers
    assert (headers["destination"], headers["destination-type"]) == ("orders", "ANYCAST")
    assert headers["AMQ_SCHEDULED_DELAY"] == "1500"
    assert headers["jmsx_key"] == "k"
    first = headers["_AMQ_DUPL_ID"]
    assert first.endswith(":4:2")
    assert first != scheduled_copy({"message-id": "9,8"}).headers["_AMQ_DUPL_ID"]


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_postponed_message_is_as_it_was(persistent: str) -> None:
    """It is no dead letter: persistence and expiry stay."""
    headers = scheduled_copy({"persistent": persistent, "colour": "red"}).headers
    assert (headers["persistent"], headers["expires"]) == (persistent, "99999")
    assert headers["colour"] == "red"
    assert "jmsx_death_reason" not in headers
    assert "_AMQ_ORIG_ADDRESS" not in headers
    assert "expires" not in scheduled_copy({"expires": "0"}).headers
