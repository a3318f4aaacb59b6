"""What ActiveMQ Classic's STOMP does, and how to live with it."""

from __future__ import annotations

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import destination_uri, wire_destination
from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.identity import stamp
from jmsx.core.requests import unanswered
from jmsx.core.values import DestinationKind, StompAck
from jmsx.errors import (
    BrokerError,
    InvalidClientIdError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    ResourceAllocationError,
    SecurityError,
    UnsupportedError,
)
from jmsx_classic import DIALECT

QUEUE, TOPIC, DURABLE = DestinationKind.QUEUE, DestinationKind.TOPIC, DestinationKind.DURABLE


def delivery(body: bytes = b"", /, **headers: str) -> Delivery:
    """A delivery with these headers, `_` for `-`."""
    given = {name.replace("_", "-"): text for name, text in headers.items()}
    return delivered(given, body)


def delivered(headers: dict[str, str], body: bytes = b"") -> Delivery:
    """A delivery with these headers."""
    frame = MessageFrame.of(headers, body)
    message_id = frame.headers.get("message-id", "")
    return Delivery.of(frame, 1, message_id, epoch=1, now=0.0, wall=0.0)


@pytest.mark.parametrize(
    ("server", "expected"),
    [
        ("ActiveMQ/6.1.8", True),
        ("ActiveMQ/5.17.2", True),
        ("ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine", False),
        ("RabbitMQ/3.13", False),
        ("", False),
    ],
)
def test_it_knows_classic(server: str, *, expected: bool) -> None:
    """By CONNECTED's `server`."""
    assert DIALECT.speaks(server) is expected


@pytest.mark.parametrize(
    ("uri", "wire"),
    [
        ("queue://a", "/queue/a"),
        ("topic://a.b", "/topic/a.b"),
        ("temp-queue://a", "/temp-queue/a"),
        ("temp-topic://a", "/temp-topic/a"),
        ("remote-temp-queue://ID:x-1", "/remote-temp-queue/ID:x-1"),
        ("remote-temp-topic://ID:x-1", "/remote-temp-topic/ID:x-1"),
        ("queue://a/b", "/queue/a/b"),
    ],
)
def test_destinations_go_both_ways(uri: str, wire: str) -> None:
    """Source: BROKER.md C8 and C63."""
    assert wire_destination(uri) == wire
    assert destination_uri(wire) == uri


def test_options_of_a_destination_stay_here() -> None:
    """They are for SUBSCRIBE headers."""
    assert wire_destination("queue://a?consumer.prefetchSize=1") == "/queue/a"


@pytest.mark.parametrize("uri", ["", "a", "queue://", "http://a", "queue:/a"])
def test_what_is_no_destination_is_refused(uri: str) -> None:
    """Classic would make a queue of any name without a prefix."""
    with pytest.raises(InvalidDestinationError, match="not a destination"):
        wire_destination(uri)


def test_unknown_form_of_a_destination_stays_as_it_is() -> None:
    """A foreign one is better shown than lost."""
    assert destination_uri("weird") == "weird"


def test_subscribe_says_only_what_was_asked_for() -> None:
    """Prefetch always, because the broker's default is not ours."""
    assert DIALECT.writing.subscribe_headers(
        destination="queue://a",
        ack=StompAck.CLIENT,
        selector=None,
        durable_name=None,
        no_local=False,
        options={},
    ) == {
        "destination": "/queue/a",
        "ack": "client",
        "transformation": "jms-map-xml",
    }


def test_subscribe_says_all_that_was_asked_for() -> None:
    """Source: BROKER.md C15, C17, C50, C60 and C61."""
    assert DIALECT.writing.subscribe_headers(
        destination="topic://a",
        ack=StompAck.CLIENT_INDIVIDUAL,
        selector="x = 1",  # in another text the broker would begin it anew
        durable_name="d",
        no_local=True,
        options={"exclusive": "true", "priority": "5", "transformation": "jms-map-xml"},
    ) == {
        "destination": "/topic/a",
        "ack": "client-individual",
        "transformation": "jms-map-xml",
        "activemq.exclusive": "true",
        "activemq.priority": "5",
        "selector": "x = 1",
        "activemq.subscriptionName": "d",
        "activemq.noLocal": "true",
    }


@pytest.mark.parametrize(
    ("destination", "asked", "told"),
    [
        ("queue://a", {}, "jms-map-xml"),
        ("queue://a", {"transformation": "none"}, None),
        ("temp-queue://a", {}, "jms-map-xml"),
        ("topic://a", {}, None),
        ("topic://a.>,b", {}, None),
        ("temp-topic://a", {}, None),
        ("topic://a", {"transformation": "jms-map-xml"}, "jms-map-xml"),
    ],
)
def test_who_has_bodies_translated(
    destination: str, asked: dict[str, str], told: str | None
) -> None:
    """Not who reads topics, unless he asks for it. Source: BROKER.md C80."""
    headers = DIALECT.writing.subscribe_headers(
        destination=destination,
        ack=StompAck.CLIENT,
        selector=None,
        durable_name=None,
        no_local=False,
        options=asked,
    )
    assert headers.get("transformation") == told


@pytest.mark.parametrize("destination", ["queue://a", "topic://a"])
def test_another_translation_is_refused(destination: str) -> None:
    """What would come then nobody here reads."""
    with pytest.raises(UnsupportedError, match="may only be none or jms-map-xml"):
        DIALECT.writing.subscribe_headers(
            destination=destination,
            ack=StompAck.CLIENT,
            selector=None,
            durable_name=None,
            no_local=False,
            options={"transformation": "jms-map-json"},
        )


@pytest.mark.parametrize(("prefetch", "told"), [(5, "5"), (0, "1")])
def test_browsing_takes_nothing(prefetch: int, told: str) -> None:
    """`auto` is right for a browser; with prefetch 0 nothing ever comes (BROKER.md C9)."""
    headers = DIALECT.writing.browse_headers(
        destination="queue://a", prefetch=prefetch, selector=None
    )
    assert headers == {
        "destination": "/queue/a",
        "ack": "auto",
        "browser": "true",
        "activemq.prefetchSize": told,
        "transformation": "jms-map-xml",
    }
    headers = DIALECT.writing.browse_headers(destination="queue://a", prefetch=1, selector="x = 1")
    assert headers["selector"] == "x = 1.0"


def test_durable_subscription_is_removed_by_its_name() -> None:
    """Source: BROKER.md C60."""
    assert DIALECT.writing.unsubscribe_durable_headers("d") == {"activemq.subscriptionName": "d"}


@pytest.mark.parametrize(
    ("headers", "kind", "expected"),
    [
        pytest.param({"persistent": "true", "destination": "/queue/a"}, QUEUE, True, id="queue"),
        pytest.param(
            {"persistent": "true", "destination": "/topic/a"}, DURABLE, True, id="durable"
        ),
        pytest.param({"persistent": "true", "destination": "/topic/a"}, TOPIC, False, id="topic"),
        pytest.param({"destination": "/queue/a"}, QUEUE, False, id="not persistent"),
        pytest.param(
            {"persistent": "false", "destination": "/queue/a"}, QUEUE, False, id="said not to be"
        ),
        pytest.param(
            {"persistent": "true", "destination": "/queue/ActiveMQ.DLQ"}, QUEUE, False, id="DLQ"
        ),
        pytest.param(
            {"persistent": "true", "destination": "/queue/ActiveMQ.DLQ.Queue.a"},
            QUEUE,
            False,
            id="individual DLQ",
        ),
    ],
)
def test_who_is_dead_lettered_by_nack(
    headers: dict[str, str], kind: DestinationKind, *, expected: bool
) -> None:
    """Everybody else would be deleted (`AbstractDeadLetterStrategy.java:44-60`)."""
    where = headers["destination"].replace("/queue/", "queue://").replace("/topic/", "topic://")
    sent = {**headers, "message-id": "ID:h-1-2-3:4:-1:1:5"}
    one = delivered(stamp(sent, b"x", "k", where, DIALECT.reading), b"x")
    assert DIALECT.copying.dead_lettered_by_broker(one, kind) is expected


@pytest.mark.parametrize(
    "message_id", ["ID:h-1-2-3:4:1:1:5", "77", "", "ID:h-1-2-3:4:-1:1:5x", "ID:h-1-2-3:4:-1:1:5"]
)
def test_another_programs_message_is_dead_lettered_by_copy(message_id: str) -> None:
    """Its `persistent` may be a property, and so may its message id."""
    one = delivery(b"x", message_id=message_id, persistent="true", destination="/queue/a")
    assert not DIALECT.copying.dead_lettered_by_broker(one, QUEUE)


def test_headers_that_were_copied_are_not_believed() -> None:
    """All those of a message of jmsx's, on another body or in another queue."""
    made = {"persistent": "true", "destination": "/queue/a", "message-id": "ID:h:4:-1:1:5"}
    given = stamp(made, b"x", "k", "queue://a", DIALECT.reading)
    assert DIALECT.reading.genuine(delivered(given, b"x"))
    assert not DIALECT.reading.genuine(delivered(given, b"y"))
    assert not DIALECT.reading.genuine(delivered({**given, "destination": "/queue/b"}, b"x"))


@pytest.mark.parametrize(("persistent", "expected"), [("true", True), ("false", False)])
def test_what_came_without_a_body_is_left_to_the_broker(persistent: str, *, expected: bool) -> None:
    """It may have one that STOMP does not carry, and a copy of it would have none."""
    one = delivery(message_id="ID:h:4:1:1:5", persistent=persistent, destination="/queue/a")
    assert DIALECT.copying.dead_lettered_by_broker(one, QUEUE) is expected


def test_copies_go_to_the_shared_dead_letter_queue() -> None:
    """Source: `SharedDeadLetterStrategy.java:36`."""
    assert DIALECT.dead_letter_queue == "queue://ActiveMQ.DLQ"


def test_key_is_the_message_id() -> None:
    """It is stable over redelivery, restart and dead letter queue."""
    assert DIALECT.reading.message_key({"message-id": "ID:1"}) == "ID:1"
    assert DIALECT.reading.message_key({}) == ""


@pytest.mark.parametrize(
    ("trace", "kind"),
    [
        ("jakarta.jms.InvalidSelectorException: x = =", InvalidSelectorError),
        ("javax.jms.InvalidSelectorException: x = =", InvalidSelectorError),
        ("jakarta.jms.JMSException: Couldn't create TopicSubscription", InvalidSelectorError),
        ("jakarta.jms.InvalidClientIDException: c", InvalidClientIdError),
        ("jakarta.jms.InvalidDestinationException: x", InvalidDestinationError),
        ("jakarta.jms.ResourceAllocationException: x", ResourceAllocationError),
        ("org.apache.activemq.DestinationDoesNotExistException: x", InvalidDestinationError),
        ("java.lang.SecurityException: x", SecurityError),
        ("java.lang.IllegalStateException: x", BrokerError),
        ("jakarta.jms.JMSException: SecurityException of a plugin", BrokerError),
    ],
)
def test_errors_are_typed(trace: str, kind: type[JmsxError]) -> None:
    """By the name of the exception in the body or by the words; they say who, what and why."""
    message = trace.partition(": ")[2]
    frame = Frame("ERROR", {"message": message}, f"{trace}\n\tat org.x.Y(Z.java:1)".encode())
    error = DIALECT.reading.error("SUBSCRIBE", "queue://q", frame, "h:61613")
    assert type(error) is kind
    assert str(error) == f"h:61613 refused SUBSCRIBE queue://q: {message}"


@pytest.mark.parametrize(
    "told",
    [
        "User clerk is not authorized to write to: queue://no.a",
        "User name [clerk] or password is invalid.",
    ],
)
def test_a_lack_of_rights_is_told_without_a_stack_trace(told: str) -> None:
    """Then the body is the message alone, as the broker sent it (BROKER.md C73)."""
    frame = Frame("ERROR", {"message": told}, told.encode())
    for command in ("SEND", "COMMIT", "CONNECT", "SUBSCRIBE"):
        error = DIALECT.reading.error(command, "queue://no.a", frame, "h:61613")
        assert type(error) is SecurityError
        assert str(error) == f"h:61613 refused {command} queue://no.a: {told}"


def test_a_lack_of_rights_in_a_plugin_s_words() -> None:
    """It has no stack trace either; but a COMMIT that failed behind its work may be told so, too."""
    told = "Client shop may not do this"
    frame = Frame("ERROR", {"message": told}, told.encode())
    for command in ("SEND", "CONNECT", "SUBSCRIBE"):
        error = DIALECT.reading.error(command, "queue://no.a", frame, "h:61613")
        assert type(error) is SecurityError
    assert unanswered(DIALECT.reading.error("COMMIT", "t", frame, "h:61613"))
    traced = Frame("ERROR", {"message": told}, f"java.io.IOException: {told}\n\tat x".encode())
    assert unanswered(DIALECT.reading.error("SEND", "queue://a", traced, "h:61613"))


def test_error_may_have_no_message() -> None:
    """Then the body tells (BROKER.md C54)."""
    frame = Frame("ERROR", {}, b"java.lang.NullPointerException\n\tat x")
    error = DIALECT.reading.error("SEND", "queue://q", frame, "h:61613")
    assert str(error).endswith("failed at SEND queue://q: java.lang.NullPointerException")


@pytest.mark.parametrize(
    ("trace", "known"),
    [
        ("java.util.ConcurrentModificationException", False),
        ("java.io.IOException: No space left on device", False),
        ("java.lang.NullPointerException: null", False),
        ("javax.jms.JMSException: a plugin's own", False),
        ("java.io.IOException: java.lang.SecurityException: denied", False),
        ("java.io.IOException: User x is not authorized to write to: queue://q", False),
        ("java.lang.RuntimeException: queue://SecurityException", False),
        ("javax.jms.JMSException: no store for queue://ResourceAllocationException", False),
        ("com.shop.AuditFailure: COMMIT FAILED: Transaction marked rollback only", False),
        ("javax.transaction.xa.XAException: STORE COMMIT FAILED: Transaction rolled back", False),
        ("javax.transaction.xa.XAException: POST COMMIT FAILED xaErrorCode:-3", False),
        ("javax.jms.JMSException: of 'User name': Usage Manager is ProtocolException", False),
        ("java.lang.SecurityException: User x is not authorized to write to: queue://q", True),
        (
            "javax.transaction.xa.XAException: COMMIT FAILED: Transaction marked rollback only x:1",
            True,
        ),
        ("javax.jms.TransactionRolledBackException: no", True),
        ("org.apache.activemq.transport.stomp.ProtocolException: Invalid transaction id: x", True),
        ("javax.jms.ResourceAllocationException: Persistent store is Full", True),
        ("javax.jms.InvalidDestinationException: Cannot publish to a deleted Destination", True),
    ],
)
def test_only_a_known_refusal_of_a_send_or_commit_is_certain(trace: str, known: bool) -> None:
    """After any other exception nobody knows what was done; of a SUBSCRIBE that does not matter."""
    message = trace.partition(": ")[2]
    frame = Frame("ERROR", {"message": message} if message else {}, f"{trace}\n\tat x".encode())
    for command in ("SEND", "COMMIT"):
        error = DIALECT.reading.error(command, "queue://q", frame, "h:61613")
        assert unanswered(error) != known
        assert known or trace in str(error)
    assert not unanswered(DIALECT.reading.error("SUBSCRIBE", "queue://q", frame, "h:61613"))


@pytest.mark.parametrize(
    ("trace", "certain"),
    [
        ("jakarta.jms.ResourceAllocationException: Usage Manager Memory Limit reached", False),
        ("org.apache.activemq.DestinationDoesNotExistException: temp-queue://x", False),
        ("org.apache.activemq.transport.stomp.ProtocolException: Invalid transaction id: x", True),
        ("java.lang.SecurityException: User x is not authorized to write to: a,queue://b", True),
    ],
)
def test_what_one_of_several_queues_does_not_take_others_may_have(
    trace: str,
    certain: bool,
) -> None:
    """The broker sends to one after the other, and asks for rights before (BROKER.md C74)."""
    frame = Frame("ERROR", {"message": trace.partition(": ")[2]}, f"{trace}\n\tat x".encode())
    error = DIALECT.reading.error("SEND", "queue://a,b", frame, "h:61613")
    assert unanswered(error) != certain
    assert not unanswered(DIALECT.reading.error("COMMIT", "a,b", frame, "h:61613"))


@pytest.mark.parametrize(
    ("subject", "certain"),
    [("topic://VirtualTopic.a", False), ("queue://Consumer.b.VirtualTopic.a", True)],
)
def test_what_a_queue_behind_a_virtual_topic_does_not_take(
    subject: str,
    certain: bool,
) -> None:
    """Others behind it may have; the broker's words name the queue (BROKER.md C74)."""
    told = "Usage Manager Memory Limit reached on queue://Consumer.b.VirtualTopic.a. See http://activemq.apache.org/x.html"
    trace = f"jakarta.jms.ResourceAllocationException: {told}\n\tat x"
    frame = Frame("ERROR", {"message": told}, trace.encode())
    assert unanswered(DIALECT.reading.error("SEND", subject, frame, "h:61613")) != certain
