"""Between `Message` and STOMP frames."""

from __future__ import annotations

import time
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame, MessageFrame, escape
from jmsx.core.headers import DIGEST_HEADER, KEY_HEADER
from jmsx.errors import (
    InvalidSelectorError,
    MessageFormatError,
    MessageNotReadableError,
    MessageNotWriteableError,
)
from jmsx.jms.destination import Destination, Queue, Topic
from jmsx.jms.message import Message
from jmsx.jms.subscribing import stated
from jmsx.jms.translation import PreparedSend, ReceivedMessage, is_bodiless
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT
from jmsx_classic.bodies import TEXT_HEADER

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.jms.message import PropertyValue

#: Headers that Classic does not show to consumers (jmsx_classic/BROKER.md C47 and C51).
_NOT_SHOWN = {"amq-msg-type", "JMSXGroupID", "JMSXGroupSeq", "receipt", "transaction"}


def sent(message: Message, *, persistent: bool = True) -> Frame:
    """The SEND of `message` to a queue."""
    prepared = PreparedSend(Queue("q"), DIALECT, persistent=persistent, priority=4)
    return Frame("SEND", *prepared.content(message, "key"))


def seen(frame: Frame, **more: str) -> Message:
    """What a consumer sees of a SEND."""
    headers = {name: text for name, text in frame.headers.items() if name not in _NOT_SHOWN}
    return came(frame.body, **headers, **more)


def came(body: bytes = b"", **headers: str) -> Message:
    """The message of a MESSAGE of Classic."""
    return came_from(DIALECT, body, headers)


def came_from(dialect: Dialect, body: bytes, headers: dict[str, str]) -> Message:
    """The message of a MESSAGE."""
    given = {name.replace("__", "-"): text for name, text in headers.items()}
    frame = MessageFrame.of(given, body)
    message_id = given.get("message-id", "")
    delivery = Delivery.of(frame, 1, message_id, epoch=1, now=0.0, wall=0.0)
    return ReceivedMessage(delivery, dialect)


def test_a_body_that_nobody_could_read_is_not_sent_on_as_another() -> None:
    """Without a byte of it the message says so; with a part of it it is refused."""
    headers: dict[str, Any] = {"message__id": "ID:java-1-1:1:1:1:1", "kind": "x"}
    unread = came(**headers)
    assert is_bodiless(unread)
    frame = sent(unread)
    assert (frame.body, frame.headers["jmsx_unreadable"], frame.headers["kind"]) == (
        b"",
        "true",
        "x",
    )
    assert not seen(frame).readable
    part = came(b"\0", **headers, jmsx_unreadable="true")
    with pytest.raises(MessageNotReadableError):
        sent(part)
    unread.body = "found elsewhere"
    assert "jmsx_unreadable" not in sent(unread).headers


# -- bodies -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "body",
    ["", "text", "ä€😀", "a\nb\r\n", "a\0b", "\0", b"", b"bytes", b"\0\xff\n", "a:b\\c"],
)
def test_body_arrives_as_it_was_sent(body: str | bytes) -> None:
    """Text as text, bytes as bytes, with NULs in either (jmsx_classic/BROKER.md C48)."""
    assert seen(sent(Message(body))).body == body


@pytest.mark.parametrize("body", [bytearray(b"x\0"), memoryview(b"x\0")])
def test_body_may_be_any_bytes(body: Any) -> None:
    """They arrive as bytes."""
    assert seen(sent(Message(body))).body == b"x\0"


def test_no_body_is_none() -> None:
    """A header tells a message without a body from one with an empty text, as which it came before."""
    message = seen(sent(Message()))
    assert (message.body, message.text) == (None, "")


@pytest.mark.parametrize(
    ("body", "length"),
    [("text", None), ("a\0b", "3"), (b"bytes", "5"), (b"", "0")],
)
def test_content_length_makes_bytes(body: str | bytes, length: str | None) -> None:
    """Its absence makes a TextMessage; a text with a NUL needs it, and says that it is a text."""
    headers = sent(Message(body)).headers
    assert headers.get("content-length") == length
    assert headers.get("amq-msg-type") == ("text" if body == "a\0b" else None)


def test_text_of_bytes_that_jmsx_or_jms_sent_is_refused() -> None:
    """As `getText` of a BytesMessage; the error says what to take."""
    length = {"content-length": "1"}
    of_jmsx = {**sent(Message(b"x")).headers, "destination": "/queue/q"}
    for sender in ({"message-id": "ID:h-1-2-1:1:1:1:1"}, of_jmsx):
        with pytest.raises(MessageNotReadableError, match=r"carries bytes.*take message\.body"):
            _ = came(b"x", **{**length, **sender}).text


#: The message id of what a STOMP client sent, and of what a JMS client did (both seen on 6.1.8).
OF_STOMP = {"message-id": "ID:vm-40825-1795322310880-6:7:-1:1:1"}
OF_JMS = {"message-id": "ID:vm-37133-1795322377889-1:1:1:1:2"}


def test_text_of_a_stomp_client_that_sends_all_with_a_length() -> None:
    """stomp.py does: the broker has a BytesMessage, the sender meant a text."""
    message = came("Zürich".encode(), **OF_STOMP, **{"content-length": "7"})
    assert (message.text, message.body) == ("Zürich", b"Z\xc3\xbcrich")
    with pytest.raises(MessageNotReadableError, match=r"not UTF-8; take message\.body"):
        _ = came(b"\xff", **OF_STOMP, **{"content-length": "1"}).text


@pytest.mark.parametrize("body", ['{"a": [1, "ü"]}', b'{"a": [1, "\\u00fc"]}'])
def test_json(body: str | bytes) -> None:
    """Text, or bytes in UTF-8, whoever sent them."""
    assert seen(sent(Message(body))).json() == {"a": [1, "ü"]}


@pytest.mark.parametrize(
    ("body", "words"),
    [
        ("{", r"is not JSON: .*take message\.text"),
        (b"{", r"is not JSON: .*take message\.body"),
        (b"\xff", r"not UTF-8; take message\.body"),
        ("[" * 100_000, r"take message\.text"),
        ({"a": 1}, r"carries a map, not JSON; take message\.body"),
        (None, "has no body, so no JSON"),
    ],
)
def test_what_is_not_json_is_told(body: Any, words: str) -> None:
    """With what to take instead."""
    with pytest.raises(MessageNotReadableError, match=words):
        seen(sent(Message(body))).json()


def test_a_body_that_stomp_does_not_carry_is_no_empty_text() -> None:
    """A StreamMessage or ObjectMessage of a Java program: the message can be read, but not its body."""
    message = came(b"", **OF_JMS, order="7")
    assert (message.properties, message.readable) == ({"order": "7"}, False)
    assert "[0]" in repr(message)
    for _ in range(2):
        with pytest.raises(MessageNotReadableError, match=r"ID:vm-37133.*StreamMessage"):
            _ = message.body
    with pytest.raises(MessageNotReadableError):
        _ = message.text
    with pytest.raises(MessageNotReadableError):
        message.json()


@pytest.mark.parametrize("body", ["a;b", b"a;b"])
def test_a_stomp_client_may_send_on_what_jmsx_has_sent(body: str | bytes) -> None:
    """Under all of its headers: the digest shows that the body is another one, so UTF-8 is text; bytes stay bytes."""
    headers = dict(sent(Message(body)).headers)
    headers |= {"destination": "/queue/q", "content-length": "1", "message-id": "ID:b-1-2:3:-1:1:1"}
    assert came(b"a", **headers).text == "a"
    if isinstance(body, bytes):
        with pytest.raises(MessageNotReadableError, match="carries bytes, not text"):
            _ = came(body, **headers).text


def test_a_stomp_client_may_send_an_empty_text() -> None:
    """Nothing is hidden then."""
    assert came(b"", **OF_STOMP).text == ""
    assert came(b"", **OF_JMS, **{"content-length": "0"}).body == b""


def test_a_body_is_decoded_when_it_is_asked_for() -> None:
    """Nobody pays for what nobody reads; three million nested elements are refused at the first of them."""
    nested = b"<map><entry><string>a</string>" + b"<map>" * 3_000_000
    message = came(nested, **OF_JMS, transformation="jms-map-xml")
    began = time.process_time()
    assert message.text == nested.decode()  # no map of ours: as the broker writes it
    assert time.process_time() - began < 1.0


def test_text_that_is_no_utf8_is_shown_as_well_as_it_can_be() -> None:
    """A foreign sender does not stop the consumer."""
    assert came(b"a\xffb").body == "a\ufffdb"


@pytest.mark.parametrize("body", [1, ["x"], {"x"}, object()])
def test_other_bodies_are_refused(body: Any) -> None:
    """STOMP carries text, bytes and, by the broker's translation, maps."""
    with pytest.raises(MessageFormatError, match="send str, bytes, a mapping or None"):
        sent(Message(body))


@pytest.mark.parametrize(
    "body", [{}, {"a": 1}, {"text": "007", "bytes": b"\0", "truth": True, "nothing": None}]
)
def test_mapping_is_a_map_message(body: dict[str, Any]) -> None:
    """The broker makes it from XML, and writes it as XML again (jms-map-xml)."""
    frame = sent(Message(MappingProxyType(body)))
    assert frame.headers["transformation"] == "jms-map-xml"
    assert "content-length" not in frame.headers
    assert seen(frame).body == body


@pytest.mark.parametrize(
    ("body", "words"),
    [({"a": [1]}, "map entry 'a'"), ({"": 1}, "a map's key"), ({"a": "\ud800"}, "'a' has a char")],
)
def test_what_no_map_can_hold_is_refused(body: dict[str, Any], words: str) -> None:
    """The error names the entry."""
    with pytest.raises(MessageFormatError, match=words):
        sent(Message(body))


@pytest.mark.parametrize("text", ["<map/>", " <map>", "<map><entry/></map>"])
def test_text_like_a_map_stays_a_text(text: str) -> None:
    """It is marked, because the broker says `transformation` of texts too."""
    frame = sent(Message(text))
    assert frame.headers[TEXT_HEADER] == "true"
    assert seen(frame, transformation="jms-map-xml").body == text


def test_xml_of_a_stranger_that_is_no_map_is_a_text() -> None:
    """Only its form can tell."""
    assert came(b"<map>oops", transformation="jms-map-xml").body == "<map>oops"
    assert came(b"plain", transformation="jms-map-xml").body == "plain"


# -- what the wire cannot carry ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "message",
    [
        Message("x", properties={"p": "a\0b"}),
        Message("x", correlation_id="\0"),
        Message("x", type="\0"),
        Message("x", group_id="\0"),
    ],
    ids=["property", "correlation id", "type", "group"],
)
def test_a_nul_in_a_header_is_refused(message: Message) -> None:
    """STOMP 1.2 allows it, and whoever splits frames at NUL takes the rest for a frame of its own."""
    with pytest.raises(MessageFormatError, match="NUL"):
        sent(message)


def test_a_nul_in_a_selector_is_refused() -> None:
    """The same of SUBSCRIBE; a selector of blanks is none."""
    with pytest.raises(InvalidSelectorError, match="NUL"):
        stated("a = 'x\0'")
    assert stated(" ") is None


@pytest.mark.parametrize(
    "message",
    [
        Message("x", properties={"p": "\ud800"}),
        Message("x", correlation_id="\udcff"),
        Message("x", type="\udcff"),
        Message("x", group_id="\udcff"),
        Message("a\udcffb"),
    ],
    ids=["property", "correlation id", "type", "group", "body"],
)
def test_what_utf8_cannot_carry_is_refused(message: Message) -> None:
    """Before anything is written, so that neither transaction nor link suffers."""
    with pytest.raises(MessageFormatError, match="UTF-8 cannot carry"):
        sent(message)


@pytest.mark.parametrize("letter", ["x", "ä", "\n"])
def test_header_line_of_the_greatest_length(letter: str) -> None:
    """Classic closes the connection over 10,240 bytes, counted as they stand on the wire."""
    room = DIALECT.header_limit - len("p:")
    count = room // len(escape(letter).encode())
    frame = sent(Message("x", properties={"p": letter * count + "y" * (room % 2)}))
    line = frame.encode().split(b"\np:")[1].split(b"\n")[0]
    assert DIALECT.header_limit == 10_240
    assert len(b"p:" + line) <= DIALECT.header_limit
    for message in (
        Message("x", properties={"p": letter * (count + 1)}),
        Message("x", correlation_id=letter * count),
    ):
        with pytest.raises(MessageFormatError, match="the broker closes the connection over 10240"):
            sent(message)


# -- headers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("persistent", "word"), [(True, "true"), (False, "false")])
def test_persistence_is_always_said(*, persistent: bool, word: str) -> None:
    """JMS's default is persistent, STOMP's is not (jmsx_classic/BROKER.md C47)."""
    assert sent(Message("x"), persistent=persistent).headers["persistent"] == word


def test_plain_message_says_no_more_than_it_must() -> None:
    """Destination, persistence, priority and its key."""
    frame = sent(Message("x"))
    digest = frame.headers[DIGEST_HEADER]
    assert frame == Frame(
        "SEND",
        {
            "destination": "/queue/q",
            "persistent": "true",
            KEY_HEADER: "key",
            "priority": "4",
            DIGEST_HEADER: digest,
        },
        b"x",
    )
    assert len(digest) == 32


def test_what_jms_names_is_carried() -> None:
    """Correlation, type and group."""
    frame = sent(Message("x", correlation_id="c:1", type="order", group_id="g", group_sequence=2))
    headers = frame.headers
    assert (headers["correlation-id"], headers["type"]) == ("c:1", "order")
    assert (headers["JMSXGroupID"], headers["JMSXGroupSeq"]) == ("g", "2")
    message = seen(frame)
    assert (message.correlation_id, message.type, message.key) == ("c:1", "order", "key")
    assert (message.group_id, message.group_sequence) == ("g", 2)
    assert message.properties == {"JMSXGroupID": "g", "JMSXGroupSeq": "2"}


def test_a_group_that_a_broker_hides_is_told_besides() -> None:
    """Classic keeps the two properties to itself (jmsx_classic/BROKER.md C51)."""
    message = came(b"x", jmsx_group_id="g", jmsx_group_seq="-1")
    assert (message.group_id, message.group_sequence) == ("g", -1)
    assert message.properties == {"JMSXGroupID": "g", "JMSXGroupSeq": "-1"}
    stranger = came(b"x", jmsx_group_seq="many")
    assert (stranger.group_id, stranger.group_sequence) == (None, None)


@pytest.mark.parametrize("name", ["correlation_id", "type"])
def test_headers_are_texts(name: str) -> None:
    """A number would be written, and come back as a text."""
    with pytest.raises(MessageFormatError, match=f"{name} of a message must be a str, not 5"):
        sent(Message("x", **{name: 5}))  # type: ignore[arg-type]  # the refusal is what is tested


def test_received_message_knows_where_it_comes_from() -> None:
    """Ids, places, times in seconds, priority, and which delivery it is."""
    message = came(
        b"x",
        **{
            "message-id": "ID:1",
            "destination": "/queue/ActiveMQ.DLQ",
            "original-destination": "/topic/prices",
            "reply-to": "/queue/answers",
            "timestamp": "1700000000123",
            "expires": "1700000009000",
            "priority": "7",
            "persistent": "true",
            "redelivered": "true",
        },
    )
    assert message.message_id == "ID:1"
    assert message.destination == Queue("ActiveMQ.DLQ")
    assert message.original_destination == Topic("prices")
    assert message.reply_to == Queue("answers")
    assert (message.timestamp, message.expiration) == (1_700_000_000.123, 1_700_000_009.0)
    assert (message.priority, message.persistent) == (7, True)
    assert (message.redelivered, message.delivery_count) == (True, 2)


def test_received_message_has_defaults() -> None:
    """Priority 4, never expires, not persistent, first delivery; the broker's id is the key."""
    message = came(b"x", **{"message-id": "ID:1", "expires": "0"})
    assert (message.priority, message.expiration, message.persistent) == (4, 0.0, False)
    assert (message.redelivered, message.delivery_count, message.key) == (False, 1, "ID:1")
    assert (message.timestamp, message.reply_to, message.correlation_id) == (None, None, None)


# -- what is no property -----------------------------------------------------------------------------------------------


def test_headers_are_no_properties() -> None:
    """What the application sent, and what the broker adds for it to see."""
    message = came(
        b"x",
        **{
            "message-id": "1",
            "ack": "1",
            "subscription": "1",
            "destination": "/queue/q",
            "content-length": "1",
            "colour": "red",
            "dlqDeliveryFailureCause": "why",
        },
    )
    assert dict(message.properties) == {"colour": "red", "dlqDeliveryFailureCause": "why"}


def test_what_the_broker_adds_is_seen_as_in_java() -> None:
    """
    What is a property there; what only its STOMP has is not.

    Source: `ActiveMQMessage.getPropertyNames`, `SchedulerBroker.scheduledJob`, `FrameTranslator.Helper` of Classic, and
    `MessageUtil.getPropertyNames` of Artemis.
    """
    job = {"scheduledJobId": "ID:1", "transformation-error": "of a map", "colour": "red"}
    assert dict(came(b"x", **job).properties) == {"scheduledJobId": "ID:1", "colour": "red"}
    scheduled = {"_AMQ_SCHED_DELIVERY": "1", "_AMQ_ORIG_ADDRESS": "q", "_AMQ_ROUTING_TYPE": "1"}
    theirs = came_from(ARTEMIS, b"x", scheduled)
    assert set(theirs.properties) == {"_AMQ_SCHED_DELIVERY", "_AMQ_ORIG_ADDRESS"}


def test_what_came_in_is_as_it_came() -> None:
    """Its properties are read-only, as in JMS; the error says what to do instead. No other delivery sees a change."""
    frame = sent(Message("x", properties={"p": "v"}))
    message, other = seen(frame), seen(frame)
    with pytest.raises(MessageNotWriteableError, match=r"properties of message .* send a new one"):
        message.properties = {"p": "changed"}
    changes: list[Callable[[Any], object]] = [
        lambda properties: properties.update(p="changed"),
        lambda properties: properties.update(new="x"),
        lambda properties: properties.pop("p"),
        lambda properties: properties.clear(),
        lambda properties: properties.setdefault("new", 1),
    ]
    for change in changes:
        with pytest.raises(MessageNotWriteableError, match=r"Message\(message.body, properties="):
            change(message.properties)
    message.body = "changed"
    assert (other.body, dict(message.properties)) == ("x", {"p": "v"})


def test_what_is_to_be_sent_may_be_changed() -> None:
    """Also between two sends; who made its properties keeps a mapping of his own."""
    mine = {"p": "v"}
    message = Message("x", properties=mine)
    message.properties["p"] = "changed"
    message.properties["new"] = 1
    message.body = "y"
    assert mine == {"p": "v"}
    again = seen(sent(message))
    assert (again.body, dict(again.properties)) == ("y", {"p": "changed", "new": 1})
    message.properties = {}
    assert dict(seen(sent(message)).properties) == {}


def test_destination_options_stay_here() -> None:
    """They are for the consumer's SUBSCRIBE."""
    to = Destination("q?consumer.prefetchSize=1")
    headers, _ = PreparedSend(to, DIALECT, persistent=True, priority=4).content(Message("x"), "k")
    assert headers["destination"] == "/queue/q"


# -- properties that jmsx reads ---------------------------------------------------------------------------------------


def test_the_delivery_count_is_a_property() -> None:
    """It can be asked for, and is listed once it says something, as in Java."""
    message = came(b"x", a="b", JMSXDeliveryCount="77")
    assert message.properties["JMSXDeliveryCount"] == 1
    assert message.properties == {"a": "b"}


def test_properties_keep_their_types() -> None:
    """Between jmsx programs."""
    properties: dict[str, PropertyValue] = {"b": True, "i": 13, "f": 1.5, "s": "13", "n": None}
    assert dict(seen(sent(Message("x", properties=properties))).properties) == properties
