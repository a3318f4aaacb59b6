"""
The dialect of ActiveMQ Classic 5.16 and later.

Source: `ProtocolConverter.java:334-698`, `FrameTranslator.java:54-159`, `AbstractDeadLetterStrategy.java:44-60`, at
6.3.1.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import is_composite, is_pattern, parts
from jmsx.core.dialect import UNREADABLE, Addresses, Body, Sender
from jmsx.core.frames import Frame
from jmsx.core.headers import KEY_HEADER, UNREADABLE_HEADER
from jmsx.core.identity import identify
from jmsx.core.map_body import BEGINNING, TRANSFORMATION, canonical_map, decode_map, encode_map
from jmsx.core.selectors import check_arithmetic, spelled_out
from jmsx.core.values import ConsumerSettings, DestinationKind, StompAck
from jmsx.core.window import Window
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    InvalidClientIdError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    MessageFormatError,
    MessageNotReadableError,
    ResourceAllocationError,
    SecurityError,
    UnsupportedError,
)
from jmsx_classic.copies import dead_letter_headers, postponed_headers
from jmsx_classic.window import MessageWindow

if TYPE_CHECKING:
    from collections.abc import Mapping


#: The shared dead letter queue (`SharedDeadLetterStrategy.java:36`) and the beginning of every individual one.
DEAD_LETTER_QUEUE: Final = "ActiveMQ.DLQ"

_PREFIXES: Final = {
    "queue": "/queue/",
    "topic": "/topic/",
    "temp-queue": "/temp-queue/",
    "temp-topic": "/temp-topic/",
    "remote-temp-queue": "/remote-temp-queue/",
    "remote-temp-topic": "/remote-temp-topic/",
}

#: Marks a text that would be taken for something else: one with a NUL in it, of the form of a map, or none at all.
TEXT_HEADER: Final = "jmsx_text"
NO_TEXT: Final = "none"  #: a message without a body, which would come as a text without characters
A_MAP: Final = "map"  #: a map, which comes without a body where nothing transforms it

#: The option of a destination URI that is about the `transformation` of maps.
TRANSFORMS: Final = "transformation"

#: How the message id of a JMS client's message ends: its session, its producer, and a number.
_OF_JMS: Final = re.compile(r":[0-9]+:[0-9]+:[0-9]+\Z")

#: The end of the ids that the broker gives messages of its STOMP clients.
_OF_STOMP: Final = re.compile(":-1:1:[0-9]+$")

#: What a piece of the broker's words means; the first that is found wins. These are refusals: it has done nothing.
_ERRORS: Final[tuple[tuple[str, type[JmsxError]], ...]] = (
    ("InvalidSelectorException", InvalidSelectorError),
    ("Couldn't create TopicSubscription", InvalidSelectorError),  # a topic's, which hides the cause
    ("InvalidClientIDException", InvalidClientIdError),
    ("already connected from", InvalidClientIdError),
    ("InvalidDestinationException", InvalidDestinationError),
    ("DestinationDoesNotExistException", InvalidDestinationError),
    ("No durable subscription exists", InvalidDestinationError),
    ("destination that does not exist", InvalidDestinationError),
    ("ResourceAllocationException", ResourceAllocationError),
    ("Usage Manager", ResourceAllocationError),
    ("SecurityException", SecurityError),
    ("not authorized", SecurityError),
    ("User name", SecurityError),
    ("rollback only", BrokerError),
    ("TransactionRolledBackException", BrokerError),
    ("MessageFormatException", BrokerError),
    ("Invalid transaction id", BrokerError),
    ("Unexpected ACK", BrokerError),
    ("ProtocolException", BrokerError),  # STOMP's own: the broker behind it has not seen the frame
)

#: Commands of which it matters whether they were done: what else is answered to them leaves that open.
_DOUBTFUL: Final = ("SEND", "COMMIT")


class ClassicDialect:
    """ActiveMQ Classic over STOMP 1.2."""

    name: Final = "classic"
    header_limit: Final = (
        10_240  # `StompWireFormat.java:46-50`: a longer line closes the connection
    )

    sharing: Final = (
        "ActiveMQ Classic has no shared subscriptions: send to a virtual topic (topic://VirtualTopic.X) and share"
        " queue://Consumer.NAME.VirtualTopic.X"
    )
    management: Final = None  # STOMP has a frame for all that is needed
    transactional_ack: Final = True
    nack_dead_letters: Final = True
    patience: Final = 0.0
    errors_close: Final = False
    raw_names: Final = True  # of Java's properties (measured on 6.1.8)
    flags_redelivery: Final = True
    global_temporaries: Final = False  # `/temp-queue/x` means something on one connection only
    reserved: Final = frozenset(
        {"amq-msg-type", "original-destination", "transformation", TEXT_HEADER}
    )
    internal: Final = frozenset[str]()

    def speaks(self, server: str) -> bool:
        """Whether CONNECTED's `server` header is Classic's, such as `ActiveMQ/6.1.8`."""
        return server.startswith("ActiveMQ/") and "Artemis" not in server

    def window(self, settings: ConsumerSettings) -> Window:
        """Return a window of as many messages as the prefetch says."""
        return MessageWindow(settings)

    def send_headers(self, destination: str) -> dict[str, str]:
        """Return the `destination` header of a SEND."""
        return {"destination": wire_destination(destination)}

    def sent_at(self, time: int) -> dict[str, str]:
        """The header that the broker takes for the time of a message, as it takes a Java client's."""
        return {"timestamp": str(time)}

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Refuse properties that only Artemis obeys, such as a point in time for delivery."""
        if "AMQ_SCHEDULED_TIME" in properties:
            raise UnsupportedError(
                "ActiveMQ Classic does not know AMQ_SCHEDULED_TIME; it has AMQ_SCHEDULED_DELAY"
            )

    def reply_to(self, destination: str) -> str:
        """Return the `reply-to` header, which is written as the destination of a SEND."""
        return wire_destination(destination)

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """The three headers that tell them; a copy that jmsx made tells in one of its own where it was before."""
        names = ("destination", "original-destination", "reply-to")
        told, original, reply_to = (destination_uri(headers.get(name)) for name in names)
        return Addresses(told, original or headers.get("jmsx_original_destination"), reply_to)

    def subscribe_headers(
        self,
        *,
        destination: str,
        ack: StompAck,
        selector: str | None,
        durable_name: str | None,
        no_local: bool,
        options: Mapping[str, str],
    ) -> dict[str, str]:
        """
        Headers of SUBSCRIBE; each `consumer.X` option of a destination URI becomes `activemq.X`.

        But for `consumer.transformation=none`: then maps have no body, and the broker does not read Java's
        ObjectMessages, at one of whose classes it does not trust it closes the connection.
        Source: `JmsFrameTranslator.convertMessage`; measured on 6.1.8.
        """
        if is_composite(destination) and len({kind for kind, _ in parts(_bare(destination))}) > 1:
            raise UnsupportedError(
                f"{destination}: ActiveMQ Classic gives a consumer of queues and topics those of the first kind only;"
                " make a consumer for each kind"
            )
        headers = {
            "destination": wire_destination(destination),
            "ack": ack.value,
            "transformation": TRANSFORMATION,  # without it the body of a MapMessage would be empty
        }
        headers.update(
            (f"activemq.{name}", value) for name, value in options.items() if name != TRANSFORMS
        )
        if TRANSFORMS in options:
            if options[TRANSFORMS] != "none":
                raise UnsupportedError(
                    f"{destination}: consumer.{TRANSFORMS} can be none, and no other"
                )
            del headers["transformation"]
        if selector:
            headers["selector"] = _selector(selector)
        if durable_name is not None:
            headers["activemq.subscriptionName"] = durable_name
        if no_local:
            headers["activemq.noLocal"] = "true"
        return headers

    def untranslated(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers without `transformation`: maps then come without a body, and ObjectMessages do come."""
        return {name: value for name, value in headers.items() if name != "transformation"}

    def trial(self, destination: str, headers: Mapping[str, str]) -> Mapping[str, str] | None:
        """
        A consumer with prefetch 0, for what stands for several destinations.

        With a receipt the broker adds a consumer with prefetch 0, and opens it for the destination of the literal name
        only: a backlog lay still until a message came, or for 30 s. Without one its refusal is written by another
        thread than the receipts are, before or behind those of later frames (both measured on 6.1.8).
        Source: `ProtocolConverter.onStompSubscribe`, `AbstractRegion.processConsumerControl`,
        `TransportConnection.serviceException` and `.dispatchAsync`.
        """
        if not is_pattern(destination):
            return None
        tried = {name: value for name, value in headers.items() if name != "browser"}
        return {**tried, "activemq.prefetchSize": "0"}

    def browse_headers(
        self, *, destination: str, prefetch: int, selector: str | None
    ) -> dict[str, str]:
        """Headers of the SUBSCRIBE of a queue browser; STOMP `auto` is right here, for nothing is taken."""
        headers = {
            "destination": wire_destination(destination),
            "ack": "auto",
            "browser": "true",
            "transformation": TRANSFORMATION,
            "activemq.prefetchSize": str(max(prefetch, 1)),
        }
        return headers if not selector else {**headers, "selector": _selector(selector)}

    def holding_headers(self, destination: str) -> None:
        """None: it is there as soon as somebody says its name on the connection that made it."""

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Headers of the UNSUBSCRIBE that removes a durable subscription."""
        return {"activemq.subscriptionName": name}

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """A content-length makes a BytesMessage, its absence a TextMessage (`LegacyFrameTranslator.java:45-120`)."""
        if isinstance(body, bytes):
            return {"content-length": str(len(body))}, body
        if isinstance(body, str):
            data = body.encode()
            if b"\0" in data:
                length = str(len(data))
                return {"amq-msg-type": "text", TEXT_HEADER: "true", "content-length": length}, data
            return ({TEXT_HEADER: "true"} if _looks_like_map(data) else {}), data
        return (
            ({TEXT_HEADER: NO_TEXT}, b"")
            if body is None
            else ({TEXT_HEADER: A_MAP, "transformation": TRANSFORMATION}, encode_map(body))
        )

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """
        A map, bytes or text.

        The broker puts the subscription's `transformation` on texts too, so the form decides what is a map.
        """
        if not self.carries(headers, body):
            raise MessageNotReadableError(UNREADABLE)
        marked = headers.get(TEXT_HEADER)
        if marked == NO_TEXT and not body:
            return None
        if marked != "true":
            if headers.get("transformation") == TRANSFORMATION and _looks_like_map(body):
                with suppress(MessageFormatError):
                    return decode_map(body)
            if "content-length" in headers:
                return body
        return body.decode("utf-8", "replace")

    def carries(self, headers: Mapping[str, str], body: bytes) -> bool:
        """A JMS client's message without a body or a length may be of a kind that the broker shows nothing of."""
        if UNREADABLE_HEADER in headers or (headers.get(TEXT_HEADER) == A_MAP and not body):
            return False
        return bool(body) or "content-length" in headers or self.sender(headers) is not Sender.JMS

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """
        What a STOMP client sends is numbered as of session -1, and a JMS client's sessions have numbers from 0 on.

        Source: `ProtocolConverter.java:95-109` (`new SessionId(connectionId, -1)`); probed on 6.1.8.
        """
        if _OF_JMS.search(self.message_id(headers)):
            return Sender.JMS
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def sent_id(self, session: str, number: int) -> str | None:
        """
        The broker numbers the SENDs of a connection, which CONNECTED names unless it has a client id (BROKER.md C2).

        Source: `ProtocolConverter.java:334-378`.
        """
        return f"{session}:-1:1:{number}" if session else None

    def output_headers(self, identity: str) -> dict[str, str]:  # noqa: ARG002 - here they cannot be told
        """None: receives and sends of a transaction are one on Classic."""
        return {}

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the entries of a map, because the broker writes its XML anew, and the bytes of any other body."""
        if (
            headers.get(TEXT_HEADER) != "true"
            and headers.get("transformation") == TRANSFORMATION
            and _looks_like_map(body)
        ):
            return canonical_map(body)
        return body

    def ack_id(self, headers: Mapping[str, str]) -> str:
        """The header `ack`, which no property overwrites (seen live on 6.1.8)."""
        return headers.get("ack", "")

    def genuine(self, delivery: Delivery) -> bool:
        """
        Whether jmsx sent it: over STOMP `expires` and `persistent` are never properties.

        The broker copies properties of other protocols' messages over the headers of the MESSAGE, those of JMS too
        (`FrameTranslator.java:70-159`; all that jmsx reads but `ack` and `subscription`, measured on 6.1.8), so a
        Java program that sends a message under all the headers of another one gives it the message id of a STOMP
        client. But the digest of that one's key then speaks of another body or queue.
        """
        message_id = delivery.headers.get("message-id", "")
        return _OF_STOMP.search(message_id) is not None and identify(delivery, self).vouched

    def message_id(self, headers: Mapping[str, str]) -> str:
        """Classic's message id is stable: over redelivery, restart, dead letter queue and retry."""
        return headers.get("message-id", "")

    def message_key(self, headers: Mapping[str, str]) -> str:
        """Its message id: host, port and start of the producer or the broker are in it."""
        return self.message_id(headers)

    def dead_lettered_by_broker(self, delivery: Delivery, kind: DestinationKind) -> bool:
        """
        Whether NACK moves this message to a dead letter queue; otherwise it deletes it.

        Deleted are non-persistent messages, those of a topic without durable subscription, and those that come from
        a dead letter queue. Whether it is one of them cannot be told of a message that jmsx did not send, whose headers
        need not be the broker's; but where no body came, the broker may have one that no copy has.
        Source: `AbstractDeadLetterStrategy.java:44-60`, `RegionBroker.sendToDeadLetterQueue`.
        """
        headers = delivery.headers
        whole = bool(delivery.frame.body) or "content-length" in headers
        if whole and not self.genuine(delivery):
            return False
        if headers.get("persistent") != "true" or kind is DestinationKind.TOPIC:
            return False
        if "original-destination" in headers:
            return False  # fanned out: the audit of the shared queue keeps one of the copies only
        places = (destination_uri(headers.get("destination")) or "", delivery.subscribed)
        return not any(one.startswith(f"queue://{DEAD_LETTER_QUEUE}") for one in places)

    def dead_letter_destination(self, kind: DestinationKind) -> str:  # noqa: ARG002 - one for all kinds here
        """Return the URI of the broker's shared dead letter queue."""
        return f"queue://{DEAD_LETTER_QUEUE}"

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """The SEND of a copy that carries what the original did, and why it died."""
        headers = dead_letter_headers(delivery, death)
        headers.update(self.send_headers(destination))
        if not self.carries(delivery.headers, delivery.frame.body):
            headers[UNREADABLE_HEADER] = "true"
        raw = delivery.frame.raw
        if raw:  # of a truncated message, for people
            headers["content-length"] = str(len(raw))
        return Frame("SEND", headers, raw or delivery.frame.body)

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """The SEND of a message that the broker shall deliver again in `delay` seconds."""
        headers = postponed_headers(delivery, key, delay)
        headers.update(self.send_headers(settings.destination))
        return Frame("SEND", headers, delivery.frame.body)

    def explains_later(self, command: str, text: str) -> bool:
        """
        A COMMIT after a frame that failed without a receipt is refused by the thread that reads.

        The complaint about that frame is written by another one, after the refusal in 1 of 8 (measured).
        Source: `TransportConnection.serviceException` and `.dispatchAsync`.
        """
        return command == "COMMIT" and "rollback only" in text

    def complaint(self, frame: Frame) -> str:
        """Return the `message` header of an ERROR, or else its body."""
        return frame.headers.get("message") or frame.body.decode("utf-8", "replace").strip()

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """The typed error for an ERROR, whose body is a Java stack trace that begins with the exception's name."""
        trace = frame.body.decode("utf-8", "replace").strip()
        first = trace.partition("\n")[0]
        told = frame.headers.get("message") or first
        words = told + first
        other = BrokerFaultError if command in _DOUBTFUL else BrokerError
        kind = next((kind for words_, kind in _ERRORS if words_ in words), other)
        if kind is BrokerFaultError:
            return kind(f"{broker} failed at {command} {subject}: {first or told}")
        return kind(f"{broker} refused {command} {subject}: {told}")


def _selector(selector: str) -> str:
    check_arithmetic(selector)
    return spelled_out(selector)


def _bare(uri: str) -> str:
    return uri.partition("?")[0]


def wire_destination(uri: str) -> str:
    """`queue://orders` as `/queue/orders`, each of several; options after `?` are for the client and stay here."""
    bare = _bare(uri)
    kind, separator, name = bare.partition("://")
    if not separator or kind not in _PREFIXES or not name:
        raise InvalidDestinationError(
            f"{uri!r} is not a destination; write queue://NAME or topic://NAME"
        )
    if not is_composite(bare):
        return _PREFIXES[kind] + name
    return ",".join(_PREFIXES[kind] + name for kind, name in parts(bare))


def destination_uri(wire: str | None) -> str | None:
    """`/queue/orders` as `queue://orders`; an unknown form stays as it is."""
    for kind, prefix in _PREFIXES.items():
        if wire and wire.startswith(prefix):
            return f"{kind}://{wire.removeprefix(prefix)}"
    return wire or None


def _looks_like_map(body: bytes) -> bool:
    """Whether a text could be taken for a MapMessage, so that its sender should mark it as text."""
    return BEGINNING.match(body) is not None


DIALECT: Final = ClassicDialect()
