"""
Destinations and messages: how a SEND frame becomes a message, and a message becomes a MESSAGE frame.

Source: jmsx_classic/BROKER.md; activemq-stomp 6.1.8 FrameTranslator and LegacyFrameTranslator, activemq-client 6.1.8
ActiveMQMessage (the property setters).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.headers import LONG, whole
from jmsx.testing.faults import ProtocolFault, SocketFault
from jmsx.testing.selector import Value

_HIGHEST_PRIORITY: Final = 9

#: SEND headers that never become message properties.
_STRIPPED: Final = frozenset(
    {"receipt", "transaction", "message-id", "redelivered", "subscription", "JMSXUserID"}
)

#: The only `transformation` that is modelled: a MapMessage as XML, whose text is kept unparsed.
MAP_XML: Final = "jms-map-xml"


class Kind(StrEnum):
    """The four kinds of destination; the value is the broker's own URI scheme."""

    QUEUE = "queue"
    TOPIC = "topic"
    TEMP_QUEUE = "temp-queue"
    TEMP_TOPIC = "temp-topic"


_PREFIXES: Final = {
    "/queue/": Kind.QUEUE,
    "/topic/": Kind.TOPIC,
    "/remote-temp-queue/": Kind.TEMP_QUEUE,
    "/remote-temp-topic/": Kind.TEMP_TOPIC,
}
_PREFIX_OF: Final = {kind: prefix for prefix, kind in _PREFIXES.items()}

#: STOMP names that stand for a temporary destination of the connection that uses them.
TEMP_ALIASES: Final = {"/temp-queue/": Kind.TEMP_QUEUE, "/temp-topic/": Kind.TEMP_TOPIC}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where messages go: a kind and the broker's physical name."""

    kind: Kind
    name: str

    @property
    def is_queue(self) -> bool:
        """Whether it is a queue, temporary or not."""
        return self.kind in {Kind.QUEUE, Kind.TEMP_QUEUE}

    @property
    def is_temporary(self) -> bool:
        """Whether it is temporary: deleted with the connection that created it."""
        return self.kind in {Kind.TEMP_QUEUE, Kind.TEMP_TOPIC}

    @property
    def stomp_name(self) -> str:
        """The name that other connections see in frames."""
        return _PREFIX_OF[self.kind] + self.name

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}"


def parse_stomp_name(name: str) -> Destination | None:
    """Return the destination that a STOMP name (not an alias) stands for; None if it has no known prefix."""
    for prefix, kind in _PREFIXES.items():
        if name.startswith(prefix):
            return Destination(kind, name.removeprefix(prefix))
    return None


def parse_broker_name(name: str) -> Destination:
    """Return the destination behind the broker's own notation, `queue://x` or a bare `x` (a queue)."""
    scheme, separator, rest = name.partition("://")
    if separator and scheme in set(Kind):
        return Destination(Kind(scheme), rest)
    return Destination(Kind.QUEUE, name)


@dataclass(slots=True, eq=False, kw_only=True)
class StoredMessage:
    """One message as the broker keeps it; times are epoch milliseconds."""

    message_id: str
    destination: Destination
    connection_id: str  #: of the sender, for noLocal
    body: bytes = b""
    is_bytes: bool = False  #: a BytesMessage, whose MESSAGE says content-length; else text
    correlation_id: str | None = None
    expires: int = 0  #: 0: never
    timestamp: int = 0
    priority: int = 4  #: 0 to 9
    type: str | None = None
    reply_to: Destination | None = None
    persistent: bool = False
    redelivery_counter: int = 0  #: 0 before the first redelivery; JMSXDeliveryCount is one more
    group_id: str | None = None
    group_sequence: int = 0
    original_destination: Destination | None = None  #: where a dead letter came from
    properties: dict[str, str] = field(default_factory=dict)
    sequence: int = 0  #: order of arrival in its destination
    acked: bool = False  #: acknowledged, perhaps in a transaction that is still open
    dropped: bool = False  #: gone from its queue

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the message's time to live is over."""
        return 0 < self.expires < now_ms

    def dead_letter(self, destination: Destination, cause: str | None) -> StoredMessage:
        """
        Return the copy that goes to the dead letter queue: same id and headers, counter reset, never expires.

        Source: activemq-broker 6.1.8 RegionBroker.sendToDeadLetterQueue; jmsx_classic/BROKER.md C42.
        """
        properties = {**self.properties, "originalExpiration": str(self.expires)}
        if cause is not None:
            properties["dlqDeliveryFailureCause"] = cause
        return replace(
            self,
            destination=destination,
            original_destination=self.destination,
            expires=0,
            redelivery_counter=0,
            properties=properties,
            acked=False,
            dropped=False,
        )

    def lookup(self, name: str) -> Value:
        """Return what a selector sees under `name`; None if there is nothing."""
        if name in _SELECTABLE:
            return _SELECTABLE[name](self)
        return self.properties.get(name)


_SELECTABLE: Final[dict[str, Callable[[StoredMessage], Value]]] = {
    "JMSDestination": lambda m: str(m.original_destination or m.destination),
    "JMSReplyTo": lambda m: None if m.reply_to is None else str(m.reply_to),
    "JMSType": lambda m: m.type,
    "JMSDeliveryMode": lambda m: "PERSISTENT" if m.persistent else "NON_PERSISTENT",
    "JMSPriority": lambda m: m.priority,
    "JMSMessageID": lambda m: m.message_id,
    "JMSTimestamp": lambda m: m.timestamp,
    "JMSCorrelationID": lambda m: m.correlation_id,
    "JMSExpiration": lambda m: m.expires,
    "JMSRedelivered": lambda m: m.redelivery_counter > 0,
    "JMSXDeliveryCount": lambda m: m.redelivery_counter + 1,
    "JMSXGroupID": lambda m: m.group_id,
    "JMSXGroupSeq": lambda m: m.group_sequence,
}


def integer(text: str) -> int:
    """Return `text` read as a Java long; raises SocketFault if it is none, as the broker then closes the socket."""
    number = whole(text, least=~LONG)
    if number is None:
        raise SocketFault(f'For input string: "{text}"', "java.lang.NumberFormatException")
    return number


def _set_priority(message: StoredMessage, text: str) -> None:
    message.priority = min(max(integer(text), 0), _HIGHEST_PRIORITY)


def _set_delivery_mode(message: StoredMessage, text: str) -> None:
    message.persistent = text.upper() in {"PERSISTENT", "2", "TRUE"}


#: Properties that set a field of the message instead. Source: ActiveMQMessage.java, JMS_PROPERTY_SETERS.
_SETTERS: Final[dict[str, Callable[[StoredMessage, str], None]]] = {
    "JMSXDeliveryCount": lambda m, v: setattr(m, "redelivery_counter", integer(v) - 1),
    "JMSXGroupID": lambda m, v: setattr(m, "group_id", v),
    "JMSXGroupSeq": lambda m, v: setattr(m, "group_sequence", integer(v)),
    "JMSRedelivered": lambda m, v: setattr(m, "redelivery_counter", int(v.lower() == "true")),
    "JMSCorrelationID": lambda m, v: setattr(m, "correlation_id", v),
    "JMSType": lambda m, v: setattr(m, "type", v),
    "JMSReplyTo": lambda m, v: setattr(m, "reply_to", parse_broker_name(v)),
    "JMSExpiration": lambda m, v: setattr(m, "expires", integer(v)),
    "JMSTimestamp": lambda m, v: setattr(m, "timestamp", integer(v)),
    "JMSPriority": _set_priority,
    "JMSDeliveryMode": _set_delivery_mode,
}


def from_send(
    frame: Frame, destination: Destination, *, message_id: str, connection_id: str, now_ms: int
) -> StoredMessage:
    """
    Return the message that a SEND carries, without its `reply-to` (only the link knows its temporary destinations).

    Raises ProtocolFault on an unknown message type and SocketFault on a bad number.
    """
    headers = dict(frame.headers)
    message = StoredMessage(
        message_id=message_id, destination=destination, connection_id=connection_id, body=frame.body
    )
    message.is_bytes = _is_bytes(headers)
    message.correlation_id = headers.pop("correlation-id", None)
    message.expires = integer(headers.pop("expires", "0"))
    message.timestamp = integer(headers.pop("timestamp", str(now_ms)))
    _set_priority(message, headers.pop("priority", "4"))
    message.type = headers.pop("type", None)
    message.persistent = headers.pop("persistent", None) == "true"
    for name in ("destination", "reply-to", *_STRIPPED):
        headers.pop(name, None)
    for name, value in headers.items():
        _set_property(message, name, value)
    return message


def _is_bytes(headers: dict[str, str]) -> bool:
    """Return whether the body is bytes; removes `content-length` from `headers` where the real broker does."""
    wanted = headers.get("amq-msg-type")
    if wanted is None:
        return headers.pop("content-length", None) is not None
    if wanted.lower() not in {"text", "bytes"}:
        raise ProtocolFault(f"Unsupported message type '{wanted}'")
    return wanted.lower() == "bytes"


def _set_property(message: StoredMessage, name: str, value: str) -> None:
    if not name:
        raise SocketFault("Property name cannot be empty or null")
    if name.startswith("AMQ_SCHEDULED_") and name != "AMQ_SCHEDULED_CRON" and integer(value) < 0:
        raise SocketFault(f"{name} must not be a negative value")
    if name in _SETTERS:
        _SETTERS[name](message, value)
    else:
        message.properties[name] = value


def to_message_frame(
    message: StoredMessage,
    *,
    name_of: Callable[[Destination], str],
    subscription: str | None,
    ack_id: str | None,
    transformation: str | None,
) -> MessageFrame:
    """
    Return the MESSAGE frame for `message`; `name_of` returns a destination's STOMP name on the receiving link.

    All but BytesMessages get the subscription's `transformation` header; without one a MapMessage has an empty body.
    """
    optional = {
        "correlation-id": message.correlation_id,
        "reply-to": None if message.reply_to is None else name_of(message.reply_to),
        "type": message.type,
        "redelivered": "true" if message.redelivery_counter > 0 else None,
        "persistent": "true" if message.persistent else None,
        "original-destination": (
            None if message.original_destination is None else name_of(message.original_destination)
        ),
    }
    headers = {
        "destination": name_of(message.destination),
        "message-id": message.message_id,
        "expires": str(message.expires),
        "priority": str(message.priority),
        "timestamp": str(message.timestamp),
        **{name: value for name, value in optional.items() if value is not None},
        **message.properties,
    }
    body = message.body
    if message.is_bytes:
        headers["content-length"] = str(len(body))
    elif transformation is not None:
        headers["transformation"] = transformation
    elif "transformation" in headers:
        body = b""
    if subscription is not None:
        headers["subscription"] = subscription
    if ack_id is not None:
        headers["ack"] = ack_id
    return MessageFrame.of(headers, body)
