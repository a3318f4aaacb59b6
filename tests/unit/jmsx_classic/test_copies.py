"""The headers of a dead letter's copy."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.death_headers import DeathRecord, cut
from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.wire import Splitter
from jmsx_classic import DIALECT
from jmsx_classic.dialect import HEADS


def death_record(**fields: Any) -> DeathRecord:
    """Died of a ValueError after three deliveries."""
    given: dict[str, Any] = {
        "reason": "max_redeliveries",
        "destination": "queue://orders",
        "delivery_count": 3,
        "consumer": "billing",
        "error_type": "ValueError",
        "error_message": "no such order",
        "stack": "Traceback",
        "limit": 2,
        "host": "shop-7",
        "first_failure": 1_700_000_000_123,
        "last_failure": 1_700_000_009_000,
        **fields,
    }
    return DeathRecord(**given)


def copied(body: bytes = b"x", /, death: DeathRecord | None = None, **headers: str) -> Frame:
    """The copy of a message that came with these headers, `_` for `-`."""
    given = {"message-id": "ID:1", "destination": "/queue/orders", "ack": "7", "subscription": "1"}
    given.update({name.replace("__", "-"): text for name, text in headers.items()})
    frame = MessageFrame.of(given, body)
    delivery = Delivery.of(frame, 1, frame.headers["message-id"], epoch=1, now=0.0, wall=0.0)
    return DIALECT.copying.dead_letter_copy(delivery, "queue://dead", death or death_record())


def test_copy_stays_in_its_group() -> None:
    """The broker does not show the group itself, so the sender's copy of it counts."""
    headers = copied(jmsx_group_id="g", jmsx_group_seq="2").headers
    assert (headers["JMSXGroupID"], headers["JMSXGroupSeq"]) == ("g", "2")
    assert headers["jmsx_group_id"] == "g"
    assert "JMSXGroupID" not in copied().headers


def test_copy_says_why_the_message_died() -> None:
    """In headers that selectors can name."""
    frame = copied()
    assert (frame.command, frame.headers["destination"], frame.body) == (
        "SEND",
        "/queue/dead",
        b"x",
    )
    told = {name: text for name, text in frame.headers.items() if name.startswith("jmsx_")}
    assert told == {
        "jmsx_death_reason": "max_redeliveries",
        "jmsx_original_destination": "queue://orders",
        "jmsx_original_message_id": "ID:1",
        "jmsx_delivery_count": "3",
        "jmsx_consumer": "billing",
        "jmsx_exception": "ValueError",
        "jmsx_exception_message": "no such order",
        "jmsx_stack": "Traceback",
        "jmsx_host": "shop-7",
        "jmsx_first_failure": "1700000000123",
        "jmsx_last_failure": "1700000009000",
    }


def test_failures_that_this_process_did_not_see_are_not_dated() -> None:
    """Over its limit on arrival: it failed elsewhere."""
    headers = copied(death=death_record(first_failure=None, last_failure=None)).headers
    assert not {"jmsx_first_failure", "jmsx_last_failure"} & headers.keys()


def test_cause_is_worded_as_the_java_client_does() -> None:
    """The parts that upstream rows 8 and 22 look for."""
    cause = copied().headers["dlqDeliveryFailureCause"]
    for part in ("Throwable", "Delivery[3]", "RedeliveryPolicy", "maximumRedeliveries = 2"):
        assert part in cause
    assert cause.endswith("cause:ValueError: no such order")


def test_without_an_error_there_is_none() -> None:
    """A rollback of the application's own."""
    headers = copied(death=death_record(error_type=None, error_message=None, stack=None)).headers
    assert not {"jmsx_exception", "jmsx_exception_message", "jmsx_stack"} & headers.keys()
    assert headers["dlqDeliveryFailureCause"].endswith("cause:null")


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("correlation__id", "c"),
        ("reply__to", "/queue/answers"),
        ("type", "t"),
        ("priority", "7"),
        ("timestamp", "1700000000000"),
        ("colour", "red"),
        ("jmsx_key", "k"),
    ],
)
def test_what_the_sender_said_is_carried_on(name: str, text: str) -> None:
    """Its properties, and what JMS names."""
    given: dict[str, Any] = {name: text}
    assert copied(**given).headers[name.replace("__", "-")] == text


@pytest.mark.parametrize(
    "name",
    [
        "message__id", "ack", "subscription", "redelivered", "receipt", "receipt__id", "transaction",
        "original__destination", "JMSXUserID", "JMSXDeliveryCount", "scheduledJobId", "AMQ_SCHEDULED_DELAY",
        "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON", "expires",
    ],
)  # fmt: skip
def test_what_the_broker_makes_stays_behind(name: str) -> None:
    """A copy that expires, is scheduled, or is in a transaction would be lost or late."""
    given: dict[str, Any] = {name: "1"}
    assert name.replace("__", "-") not in copied(**given).headers


def test_copy_is_persistent_and_says_if_the_original_was_not() -> None:
    """As the broker's own dead letters do (BROKER.md C42)."""
    headers = copied(expires="99").headers
    assert headers["persistent"] == "true"
    assert headers["originalDeliveryMode"] == "NON_PERSISTENT"
    assert headers["originalExpiration"] == "99"
    headers = copied(persistent="true").headers
    assert "originalDeliveryMode" not in headers
    assert headers["originalExpiration"] == "0"


def test_bytes_stay_bytes_and_text_stays_text() -> None:
    """By the content-length, which is that of the body (BROKER.md C48)."""
    assert copied(b"a\0b", content__length="3").headers["content-length"] == "3"
    assert "content-length" not in copied(b"text").headers


def test_what_an_earlier_death_told_is_replaced() -> None:
    """A copy of a copy tells of its own."""
    headers = copied(
        jmsx_death_reason="rejected",
        jmsx_original_destination="queue://first",
        jmsx_exception="OldError",
        dlqDeliveryFailureCause="old",
    ).headers
    assert headers["jmsx_death_reason"] == "max_redeliveries"
    assert headers["jmsx_original_destination"] == "queue://orders"
    assert headers["jmsx_exception"] == "ValueError"
    assert headers["dlqDeliveryFailureCause"] != "old"


@pytest.mark.parametrize(
    ("text", "limit", "start", "end"),
    [
        ("abc", 3, "abc", "abc"),
        ("abcd", 3, "abc", "bcd"),
        ("aäb", 2, "a", "b"),
        ("aäb", 3, "aä", "äb"),
        ("😀😀", 7, "😀", "😀"),
        ("", 0, "", ""),
    ],
)
def test_text_is_cut_between_characters(text: str, limit: int, start: str, end: str) -> None:
    """From the start, or keeping the end, where a traceback has its point."""
    assert cut(text, limit) == start
    assert cut(text, limit, keep_end=True) == end


def test_texts_that_utf8_cannot_carry_are_carried_as_well_as_they_can_be() -> None:
    """An exception may speak of a file name that is no UTF-8; its copy must still be written."""
    headers = copied(
        death=death_record(error_message="no file \udcff", stack="stack \udcff")
    ).headers
    assert headers["jmsx_exception_message"] == "no file ?"
    assert headers["jmsx_stack"] == "stack ?"
    assert headers["dlqDeliveryFailureCause"].endswith("cause:ValueError: no file ?")


def test_long_texts_are_cut() -> None:
    """1 KiB of message and 8 KiB of stack, of which the end is kept."""
    headers = copied(
        death=death_record(error_message="m" * 5000, stack="x" * 20000 + "end")
    ).headers
    assert headers["jmsx_exception_message"] == "m" * 1024
    assert len(headers["jmsx_stack"]) <= 8192
    assert headers["jmsx_stack"].endswith("end")
    assert len(headers["dlqDeliveryFailureCause"]) <= 1024


@pytest.mark.parametrize(
    "text",
    [
        b"MESSAGE\nack:ID\\cbroker-1\\c7\nsubscription:1\n\na\0b",
        b"MESSAGE\nack:ID\\cbroker-1\\c7\n\na\0\nMESSAGE\nack:ID\\cbroker-1\\c5\n\nb",
    ],
)
def test_the_copy_of_a_truncated_message_can_be_read(text: bytes) -> None:
    """Also as the first message of a link, where any lower number of an `ack` might be its own."""
    told = {
        "ack": "ID:broker-1:7",
        "subscription": "1",
        "message-id": "m",
        "destination": "/queue/q",
    }
    bare = MessageFrame.of(told).truncated("no end", text).bare()
    delivery = Delivery.of(bare, 1, "m", epoch=1, now=0.0, wall=0.0)
    death = death_record(reason="undecodable")
    copy = DIALECT.copying.dead_letter_copy(delivery, "queue://dead", death)
    length = copy.headers["content-length"]
    splitter = Splitter(heads=HEADS)
    splitter.feed(b"CONNECTED\nversion:1.2\n\n\0\n")
    splitter.mark = b"~0123456789abcdef"
    head = {**told, "ack": "ID:broker-1:12", "content-length": length}
    frame = MessageFrame.of(head).block.replace(
        b"subscription:1", b"subscription:1" + splitter.mark
    )
    # A body with the beginning of a frame in it is believed when the next one comes, which a session asks for.
    behind = b"RECEIPT\nreceipt-id:s-1%s\n\n\0\n" % splitter.mark
    message, _ = splitter.feed(b"MESSAGE\n%s\n\n%s\0\n" % (frame, copy.body) + behind)
    assert isinstance(message, MessageFrame)
    assert (message.broken, message.headers["ack"]) == ("", "ID:broker-1:12")
    assert message.body.replace(b"\n ack:", b"\nack:") == text
