"""What ActiveMQ Artemis' STOMP does, and how to live with it."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame, MessageFrame, parse_headers
from jmsx.core.values import DestinationKind, StompAck
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    ConnectionFailedError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    MessageNotReadableError,
    ResourceAllocationError,
    SecurityError,
    UnsupportedError,
)
from jmsx_artemis import DIALECT
from jmsx_artemis.destinations import address_of, parted
from jmsx_artemis.selectors import NUMBERS, core_filter

QUEUE, TOPIC, DURABLE = DestinationKind.QUEUE, DestinationKind.TOPIC, DestinationKind.DURABLE


def subscribe(**given: Any) -> dict[str, str]:
    """The headers of a SUBSCRIBE to queue://a, unless told otherwise."""
    asked: dict[str, Any] = {
        "destination": "queue://a",
        "ack": StompAck.CLIENT,
        "selector": None,
        "durable_name": None,
        "no_local": False,
        "options": {},
    }
    return DIALECT.writing.subscribe_headers(**{**asked, **given})


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine", True),
        ("ActiveMQ-Artemis/2.33.0", True),
        ("ActiveMQ/6.1.8", False),
        ("RabbitMQ/3.13", False),
        ("", False),
    ],
)
def test_it_knows_artemis(server: str, *, expected: bool) -> None:
    """By CONNECTED's `server`."""
    assert DIALECT.speaks(server) is expected


# Destinations --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("uri", "routing", "address"),
    [
        ("queue://a", "ANYCAST", "a"),
        ("topic://a.b", "MULTICAST", "a.b"),
        ("temp-queue://a", "ANYCAST", "a"),
        ("temp-topic://a", "MULTICAST", "a"),
        ("queue://a::b", "ANYCAST", "a::b"),
        ("topic://a::b", "MULTICAST", "a::b"),
        ("queue:///queue/a", "ANYCAST", "/queue/a"),
        ("queue://a?consumer.prefetchSize=1", "ANYCAST", "a"),
    ],
)
def test_destination_is_an_address_and_a_routing_type(uri: str, routing: str, address: str) -> None:
    """Without the type what is sent to a new queue is lost, with a RECEIPT (BROKER.md A7)."""
    assert parted(uri) == (routing, address)
    assert DIALECT.writing.send_headers(uri) == {
        "destination": address,
        "destination-type": routing,
    }
    assert address_of(uri) == address.partition("::")[0]


@pytest.mark.parametrize(
    "uri", ["", "a", "queue://", "http://a", "queue:/a", "remote-temp-queue://a"]
)
def test_what_is_no_destination_is_refused(uri: str) -> None:
    """Before anything is on the wire."""
    for use in (DIALECT.writing.send_headers, DIALECT.writing.reply_to, parted):
        with pytest.raises(InvalidDestinationError, match="not a destination"):
            use(uri)


def test_reply_to_is_a_uri() -> None:
    """As Artemis' own JMS client writes it; options stay here."""
    assert DIALECT.writing.reply_to("topic://a?consumer.prefetchSize=1") == "topic://a"


@pytest.mark.parametrize(
    ("headers", "destination", "original"),
    [
        ({"destination": "a", "destination-type": "ANYCAST"}, "queue://a", None),
        ({"destination": "a", "destination-type": "MULTICAST"}, "topic://a", None),
        ({"destination": "a"}, "queue://a", None),
        ({}, None, None),
        (
            {"destination": "DLQ", "_AMQ_ORIG_ADDRESS": "a", "_AMQ_ORIG_ROUTING_TYPE": "0"},
            "queue://DLQ",
            "topic://a",
        ),
        (
            {"destination": "DLQ", "_AMQ_ORIG_ADDRESS": "a", "_AMQ_ORIG_ROUTING_TYPE": "1"},
            "queue://DLQ",
            "queue://a",
        ),
        ({"destination": "DLQ", "_AMQ_ORIG_ADDRESS": "a"}, "queue://DLQ", "queue://a"),
        (
            {
                "destination": "DLA::DLQ.a",
                "destination-type": "MULTICAST",
                "_AMQ_ORIG_ADDRESS": "a",
                "jmsx_original_destination": "queue://a::b",
            },
            "topic://DLA::DLQ.a",
            "queue://a::b",
        ),
        (
            {
                "destination": "a",
                "destination-type": "MULTICAST",
                "jmsx_original_destination": "queue://a::b",
            },
            "queue://a",
            "queue://a::b",
        ),
        (
            {
                "destination": "a",
                "destination-type": "ANYCAST",
                "jmsx_original_destination": "topic://a",
            },
            "topic://a",
            "topic://a",
        ),
    ],
    ids=[
        "queue", "topic", "untold", "nothing", "dead of a topic", "dead of a queue", "dead", "our copy",
        "back at a queue", "back at a topic",
    ],
)  # fmt: skip
def test_addresses_of_a_message(
    headers: dict[str, str], destination: str | None, original: str | None
) -> None:
    """Where it lies, and where it was before it died; what was retried has its copy's routing type (seen live)."""
    told = DIALECT.reading.addresses(headers)
    assert (told.destination, told.original, told.reply_to) == (destination, original, None)


@pytest.mark.parametrize(("given", "told"), [("queue://b", "queue://b"), ("", None)])
def test_reply_to_of_a_message(given: str, told: str | None) -> None:
    """As it was sent."""
    assert DIALECT.reading.addresses({"destination": "a", "reply-to": given}).reply_to == told


# Subscriptions -------------------------------------------------------------------------------------------------------


def test_subscribe_says_only_what_was_asked_for() -> None:
    """The window comes from elsewhere."""
    assert subscribe() == {"destination": "a", "subscription-type": "ANYCAST", "ack": "client"}


def test_subscribe_says_all_that_was_asked_for() -> None:
    """Source: BROKER.md A21, A28 and A56."""
    given = subscribe(
        destination="topic://a",
        ack=StompAck.CLIENT_INDIVIDUAL,
        selector="x = 1",  # in another text the broker would begin it anew
        durable_name="d",
    )
    assert given == {
        "destination": "a",
        "subscription-type": "MULTICAST",
        "ack": "client-individual",
        "selector": f"{NUMBERS}x = 1",
        "durable-subscription-name": "d",
    }
    assert subscribe(selector="x = 1")["selector"] == f"{NUMBERS}x = 1.0"
    assert subscribe(destination="topic://a", no_local=True)["no-local"] == "true"


def test_no_local_with_selector_is_refused() -> None:
    """The broker puts its condition around the prefix of ours: `AMQ224006: Invalid filter` (seen live on 2.44.0)."""
    with pytest.raises(UnsupportedError, match="own messages"):
        subscribe(destination="topic://a", selector="x = '1'", no_local=True)


def test_options_are_classic_s() -> None:
    """Rather an error than an option that does nothing."""
    with pytest.raises(UnsupportedError, match=r"consumer\.exclusive"):
        subscribe(options={"priority": "1", "exclusive": "true"})


def test_browsing_is_refused() -> None:
    """Every subscription takes (BROKER.md A24)."""
    with pytest.raises(UnsupportedError, match="queue://a"):
        DIALECT.writing.browse_headers(destination="queue://a", prefetch=1, selector=None)


def test_durable_subscription_is_removed_by_its_name() -> None:
    """Source: BROKER.md A58."""
    assert DIALECT.writing.unsubscribe_durable_headers("d") == {"durable-subscription-name": "d"}


@pytest.mark.parametrize(
    ("selector", "core"),
    [
        ("a = 'b'", "a = 'b'"),
        ("JMSPriority > 4", "AMQPriority > 4.0"),
        ("JMSTimestamp > 1 AND JMSExpiration = 0", "AMQTimestamp > 1.0 AND AMQExpiration = 0.0"),
        ("JMSXGroupID = 'g'", "_AMQ_GROUP_ID = 'g'"),
        ("JMSType = 'JMSPriority'", "JMSType = 'JMSPriority'"),
        ("JMSCorrelationID = 'c'", "JMSCorrelationID = 'c'"),
        ("JMSDeliveryMode = 'PERSISTENT'", "AMQDurable = 'DURABLE'"),
        ("JMSDeliveryMode <> 'NON_PERSISTENT'", "AMQDurable <> 'NON_DURABLE'"),
        ("state = 'PERSISTENT'", "state = 'PERSISTENT'"),
        ("a = 'it''s JMSPriority'", "a = 'it''s JMSPriority'"),
        ("myJMSPriority = '1'", "myJMSPriority = '1'"),
        ("-x < -5", "(-1.0*x) < -5.0"),
    ],
)
def test_selectors_in_artemis_words(selector: str, core: str) -> None:
    """Headers have other names; what stands in quotes is left alone (SelectorTranslator.java)."""
    assert core_filter(selector) == NUMBERS + core


# Bodies --------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "headers", "data"),
    [
        ("text", {"jmsx_type": "text"}, b"text"),
        ("", {"jmsx_type": "text"}, b""),
        (None, {"jmsx_type": "none"}, b""),
        ("ä\0b", {"jmsx_type": "text", "content-length": "4"}, b"\xc3\xa4\0b"),
        (b"\0\xff", {"jmsx_type": "bytes", "content-length": "2"}, b"\0\xff"),
        (b"", {"jmsx_type": "bytes", "content-length": "0"}, b""),
    ],
)
def test_body_of_a_send(body: str | bytes | None, headers: dict[str, str], data: bytes) -> None:
    """A content-length makes a BytesMessage (BROKER.md A50); a text with NUL has to have one."""
    assert DIALECT.writing.encode_body(body) == (headers, data)


@pytest.mark.parametrize(
    "body", ["text", "", None, "ä\0b", b"\0\xff", b"text", b"", {"a": 1, "b": b"x"}]
)
def test_bodies_go_both_ways(body: str | bytes | dict[str, object] | None) -> None:
    """Between jmsx programs, as they were sent."""
    headers, data = DIALECT.writing.encode_body(body)
    assert DIALECT.reading.decode_body(headers, data) == body


@pytest.mark.parametrize("body", [b"", b"\0", b"\0\xe0\xa0\x80ke", b"\x06"])
@pytest.mark.parametrize("mark", ["__AMQ_CID", "__HDR_MESSAGE_ID"])
def test_what_jms_sent_as_neither_text_nor_bytes_is_told(body: bytes, mark: str) -> None:
    """Seen on 2.44.0: nothing, or some of the inside of a map or stream, as if it were a text."""
    headers = {"message-id": "5,4", mark: "x"}
    if body:
        headers["content-length"] = str(len(body))
    with pytest.raises(MessageNotReadableError, match="MapMessage"):
        DIALECT.reading.decode_body(headers, body)
    assert DIALECT.reading.decode_body({"message-id": "5,4"}, body) == body.decode()
    assert DIALECT.reading.decode_body({"content-length": "9", **headers}, b"") == b""


#: A MESSAGE as a live broker writes it, without what does not matter here.
TEXT = b"subscription:1\nmessage-id:5,4\ndestination:a\nack:5,4\ncontent-length:5"
BYTES = b"subscription:1\ncontent-length:5\nmessage-id:5,4\ndestination:a\nack:5,4"
NOTHING = b"subscription:1\nmessage-id:5,4\ndestination:a\nack:5,4"
NO_BYTES = b"subscription:1\nmessage-id:5,4\ndestination:a\ncontent-length:0\nack:5,4"


@pytest.mark.parametrize(
    ("block", "body", "decoded"),
    [
        (TEXT, b"hello", "hello"),
        (BYTES, b"hello", b"hello"),
        (TEXT, b"nu\0ll", "nu\0ll"),
        (TEXT, b"\xff\xfe...", b"\xff\xfe..."),
        (NOTHING, b"", ""),
        (NO_BYTES, b"", b""),
    ],
    ids=["text", "bytes", "text with NUL", "no UTF-8", "empty text", "empty bytes"],
)
def test_body_of_a_foreign_sender(block: bytes, body: bytes, decoded: object) -> None:
    """The length of a BytesMessage stands before its id (`VersionedStompFrameHandler.java:325-365`)."""
    assert DIALECT.reading.decode_body(parse_headers(block), body) == decoded


#: XML whose encoding Python does not know.
OF_NO_ENCODING = b'<?xml version="1.0" encoding="foo"?><map></map>'


@pytest.mark.parametrize(
    ("kind", "body", "decoded"),
    [
        ("map", b"no map", b"no map"),
        ("map", OF_NO_ENCODING, OF_NO_ENCODING),
        ("text", b"\xff", "�"),
        ("bytes", b"hello", b"hello"),
        ("newer", b"hello", "hello"),
    ],
)
def test_decoding_never_fails(kind: str, body: bytes, decoded: object) -> None:
    """Whatever came in."""
    assert DIALECT.reading.decode_body({"jmsx_type": kind}, body) == decoded


# Messages ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("given", "id_"), [("4149,4136", "4136"), ("4136", "4136"), ("", "")])
def test_the_id_is_what_stands_after_the_comma(given: str, id_: str) -> None:
    """Before it stands the subscription's number (BROKER.md A31); before 2.33 there was no comma."""
    assert DIALECT.reading.message_id({"message-id": given}) == id_
    assert DIALECT.reading.message_key({"message-id": given}) == id_


def test_another_broker_has_the_same_ids_and_not_the_same_keys() -> None:
    """Each counts from about 20 on: a store that outlives a broker, or serves two, would take new messages for done."""
    old, new = ({"message-id": "4149,21", "timestamp": stamp} for stamp in ("1000", "2000"))
    assert DIALECT.reading.message_id(old) == DIALECT.reading.message_id(new)
    assert DIALECT.reading.message_key(old) != DIALECT.reading.message_key(new)
    assert DIALECT.reading.message_key(old) == DIALECT.reading.message_key(
        {**old, "message-id": "9,21"}
    )
    assert DIALECT.reading.message_key({"timestamp": "1000"}) == ""  # nothing to know it by


def test_output_has_the_broker_s_duplicate_id() -> None:
    """So that the broker drops what it has from an earlier try (BROKER.md A14)."""
    assert DIALECT.output_headers("queue://a:7:1") == {"_AMQ_DUPL_ID": "jmsx:queue://a:7:1"}


@pytest.mark.parametrize(
    ("told", "duplicate_id"), [(None, None), ("jmsx:k", None), ("jmsx:of k:1", "jmsx:of k:1")]
)
def test_a_duplicate_id_is_told_where_it_is_not_the_key(
    told: str | None, duplicate_id: str | None
) -> None:
    """A message that is sent again on the next link has its own key for one."""
    headers = {} if told is None else {"_AMQ_DUPL_ID": told}
    assert DIALECT.duplicate_id(headers, "k") == duplicate_id


@pytest.mark.parametrize("kind", [QUEUE, TOPIC, DURABLE])
def test_broker_dead_letters_nothing(kind: DestinationKind) -> None:
    """NACK deletes (BROKER.md A27); where nothing is known, a queue of our own is safe."""
    frame = MessageFrame.of({"message-id": "1,2", "persistent": "true"})
    delivery = Delivery.of(frame, 1, "2", epoch=1, now=0.0, wall=0.0)
    assert not DIALECT.nack_dead_letters
    assert not DIALECT.copying.dead_lettered_by_broker(delivery, kind)
    assert DIALECT.dead_letter_queue == "queue://jmsx.DLQ"


@pytest.mark.parametrize(
    "properties",
    [{"AMQ_SCHEDULED_CRON": "* * * * *"}, {"AMQ_SCHEDULED_REPEAT": "1"}, {"AMQ_SCHEDULED_PERIOD": "1"},
     {"JMSXGroupSeq": "-1"}],
)  # fmt: skip
def test_properties_that_do_nothing_are_refused(properties: dict[str, str]) -> None:
    """Artemis would take them for the application's own (BROKER.md A48 and A51)."""
    with pytest.raises(UnsupportedError):
        DIALECT.writing.check_properties(properties)


def test_properties_that_do_something_are_not() -> None:
    """One delay, and a group."""
    DIALECT.writing.check_properties({"AMQ_SCHEDULED_DELAY": "5", "JMSXGroupSeq": "1", "any": "x"})


# Errors: the words are those of 2.44.0, as it sent them ---------------------------------------------------------------


@pytest.mark.parametrize(
    ("message", "body", "kind"),
    [
        ('Invalid selector "= ="', "= =", InvalidSelectorError),
        ("Selector cannot be empty", "", InvalidSelectorError),
        ("AMQ339001 Destination does not exist noauto.a", "", InvalidDestinationError),
        (
            "AMQ229032 User guest does not have permission='CREATE_ADDRESS' on address a",
            "AMQ229032: User: guest does not have permission='CREATE_ADDRESS' on address a",
            SecurityError,
        ),
        ("AMQ339001 Destination does not exist my.selector", "", InvalidDestinationError),
        ("AMQ339031 Error handling send", "", BrokerError),
        ("AMQ339016 Error creating subscription 1", "", BrokerError),
        ("AMQ339025 failed to ack because no message with id 9,9", "", BrokerError),
        ("AMQ119119 Disk Capacity is Low, cannot produce more messages.", "", ResourceAllocationError),
        ("", "AMQ229031: Unable to validate user", SecurityError),
    ],
)  # fmt: skip
def test_errors_are_typed_by_the_broker_s_words(
    message: str, body: str, kind: type[JmsxError]
) -> None:
    """With broker, command, subject and those words in the text."""
    frame = Frame("ERROR", {"message": message} if message else {}, body.encode())
    error = DIALECT.reading.error("SUBSCRIBE", "queue://a", frame, "shop:61613")
    assert type(error) is kind
    assert str(error) == f"shop:61613 refused SUBSCRIBE queue://a: {message or body}"


@pytest.mark.parametrize(
    ("command", "told", "kind"),
    [
        ("SEND", "AMQ339010 Connection is not valid.", ConnectionFailedError),
        (
            "SUBSCRIBE",
            "AMQ229014: Did not receive data from /127.0.0.1",
            ConnectionFailedError,
        ),
        ("SEND", "AMQ229120: connection with ID 1 closed by management", ConnectionFailedError),
        ("COMMIT", "AMQ339010 Connection is not valid.", BrokerError),
        ("COMMIT", "AMQ229120: connection with ID 1 closed by management", ConnectionFailedError),
    ],
)
def test_the_end_of_the_connection_is_no_refusal(
    command: str, told: str, kind: type[JmsxError]
) -> None:
    """Of a frame that was not looked at any more (BROKER.md A74); it may be sent on another one. A COMMIT may not."""
    frame = Frame("ERROR", {"message": told})
    error = DIALECT.reading.error(command, "queue://a", frame, "shop:61613")
    assert type(error) is kind
    assert told in str(error)
    ended = f"shop:61613 ended the connection before it answered {command} queue://a"
    assert (ended in str(error)) == (kind is ConnectionFailedError)


def test_error_does_not_repeat_the_message_that_was_sent() -> None:
    """It may hold secrets, and words that would be taken for the cause."""
    told = (
        "AMQ339011 Error sending message CoreMessage[messageID=1, durable=true,"
        " properties=TypedProperties[pin=1234, hint=selector]]@1"
    )
    frame = Frame("ERROR", {"message": told})
    error = DIALECT.reading.error("SEND", "queue://a", frame, "shop:61613")
    assert "AMQ339011 Error sending message; it does not tell why" in str(error)
    assert "1234" not in str(error)
    assert DIALECT.reading.complaint(frame) == "AMQ339011 Error sending message"


@pytest.mark.parametrize(
    ("command", "told", "kind"),
    [
        ("SEND", "AMQ339011 Error sending message CoreMessage[x]@1", BrokerFaultError),
        ("COMMIT", "AMQ339013 Error committing t", BrokerFaultError),
        ("SEND", "AMQ339031 Error handling send", BrokerError),
        (
            "SEND",
            "AMQ229032 User guest does not have permission='SEND' on address a",
            SecurityError,
        ),
        ("SEND", "AMQ339001 Destination does not exist AMQ339011", InvalidDestinationError),
        ("COMMIT", "AMQ339013 Error committing AMQ229032", BrokerFaultError),
        ("SEND", "Error sending reply", BrokerFaultError),
        ("SEND", "null of AMQ229102", BrokerFaultError),
        ("SEND", "a plugin's: AMQ339001 Destination does not exist", BrokerFaultError),
        ("SEND", "a Security Error of queue AMQ229213", BrokerFaultError),
    ],
)
def test_what_stands_for_any_exception_is_no_refusal(
    command: str, told: str, kind: type[JmsxError]
) -> None:
    """The broker wraps whatever sending or committing raises, also what comes behind the work."""
    inside = b'AMQ229102: Address "a" is full.'
    for body in (b"", inside):
        frame = Frame("ERROR", {"message": told}, body)
        error = DIALECT.reading.error(command, "queue://a", frame, "shop:61613")
        assert type(error) is kind
