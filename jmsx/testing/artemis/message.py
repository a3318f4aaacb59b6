"""
Addresses, messages and selectors: how a SEND frame becomes a message, and a message becomes a MESSAGE frame.

Source: jmsx_artemis/BROKER.md; artemis-stomp-protocol 2.44.0 StompUtils, VersionedStompFrameHandler and
ActiveMQStompException, artemis-core-client 2.44.0 Message.referenceOriginalMessage, artemis-selector 2.44.0
SelectorParser.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Final

from jmsx.core.frames import Frame, MessageFrame, escape
from jmsx.core.headers import LONG, whole
from jmsx.testing.faults import Fault
from jmsx.testing.selector import Selector, SelectorSyntaxError, SelectorValueError, Value


class Refused(Fault):
    """The broker's STOMP protocol handler refuses a frame: an ERROR, perhaps with a body, ends the connection."""

    def __init__(self, message: str, body: str | None = None) -> None:
        super().__init__(message)
        self.body = body


def numbered(number: int, text: str) -> Refused:
    """Return an error with an AMQ number; the broker strips colons from its text and leaves out the cause."""
    return Refused(f"AMQ{number} {text}".replace(":", ""))


def explained(text: str) -> Refused:
    """Return the ERROR for an exception inside the broker: `message` is its text without colons, the body all of it."""
    return Refused(text.replace(":", ""), text)


# -- addresses ----------------------------------------------------------------------------------


class Routing(StrEnum):
    """How an address routes messages to its queues."""

    MULTICAST = "MULTICAST"  #: each queue gets a copy, as of a topic
    ANYCAST = "ANYCAST"  #: one queue gets the message

    @property
    def number(self) -> int:
        """The number that `_AMQ_ORIG_ROUTING_TYPE` has for it."""
        return 1 if self is Routing.ANYCAST else 0


def split(destination: str) -> tuple[str, str | None]:
    """Return address and queue of `address::queue`; the queue is None if only an address is named."""
    address, separator, queue = destination.partition("::")
    return address, (queue if separator else None)


def destination_of(headers: Mapping[str, str]) -> str:
    """Return the destination that a SEND or SUBSCRIBE names; raises Refused if it names none."""
    if "destination" not in headers:
        raise explained('Cannot invoke "Object.hashCode()" because "key" is null')
    return headers["destination"]


# -- messages -----------------------------------------------------------------------------------

_BYTE: Final = range(-128, 128)
_PRIORITIES: Final = range(10)

#: STOMP headers that are kept as properties of another name.
PROPERTY_OF: Final[Mapping[str, str]] = {
    "correlation-id": "JMSCorrelationID",
    "type": "JMSType",
    "reply-to": "JMSReplyTo",
    "content-type": "_AMQ_CONTENT_TYPE",
    "JMSXGroupID": "_AMQ_GROUP_ID",
}
#: Properties that are shown under a name of STOMP's, or not at all.
_SHOWN_ELSEWHERE: Final = frozenset(
    {"JMSReplyTo", "_AMQ_CONTENT_TYPE", "JMSType", "JMSCorrelationID", "destination"}
)
SENDER: Final = "__AMQ_CID"
_SCHEDULED: Final = "_AMQ_SCHED_DELIVERY"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CoreMessage:
    """One message; the same one in all the queues that it is routed to. Times are epoch milliseconds."""

    message_id: int
    address: str  #: as the sender wrote it, so perhaps `address::queue`
    routing: Routing | None  #: the sender's `destination-type`; None if it gave none
    body: bytes
    is_bytes: bool = False  #: the sender gave a content-length
    persistent: bool = False
    priority: int = 0
    timestamp: int = 0  #: when the broker took it
    expires: int = 0  #: 0: never
    properties: Mapping[str, str | int]

    @property
    def scheduled(self) -> int:
        """The earliest delivery time; 0: at once. Only a number that the broker itself put there counts."""
        value = self.properties.get(_SCHEDULED, 0)
        return value if isinstance(value, int) else 0

    @property
    def group_id(self) -> str | None:
        """The group whose messages all go to one consumer."""
        return self._text("_AMQ_GROUP_ID")

    @property
    def duplicate_id(self) -> str | None:
        """The id by which the broker detects duplicates; None if the sender gave none."""
        return self._text("_AMQ_DUPL_ID")

    def _text(self, name: str) -> str | None:
        value = self.properties.get(name)
        return None if value is None else str(value)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether the message's time to live is over."""
        return 0 < self.expires <= now_ms

    def copy_for(
        self, address: str, *, message_id: int, queue: str, expired_at: int | None = None
    ) -> CoreMessage:
        """
        Return the copy of this message that the broker moves from `queue` to a dead letter or expiry address.

        The copy has a routing type only if the original was such a copy itself. Source: QueueImpl.makeCopy and move.
        """
        told: dict[str, str | int] = {
            "_AMQ_ORIG_QUEUE": queue,
            "_AMQ_ORIG_ADDRESS": self.address,
            "_AMQ_ORIG_MESSAGE_ID": self.message_id,
        }
        if self.routing is not None:
            told["_AMQ_ORIG_ROUTING_TYPE"] = self.routing.number
        if expired_at is not None:
            told["_AMQ_ACTUAL_EXPIRY"] = expired_at
        before = self.properties.get("_AMQ_ORIG_ROUTING_TYPE")
        return replace(
            self,
            message_id=message_id,
            address=address,
            routing=next((each for each in Routing if each.number == before), None),
            expires=0,
            properties={**self.properties, **told},
        )

    def lookup(self, name: str) -> Value:
        """Return what a selector sees under `name`; None if there is nothing."""
        if name in _SELECTABLE:
            return _SELECTABLE[name](self)
        return self.properties.get(name)


_SELECTABLE: Final[Mapping[str, Callable[[CoreMessage], Value]]] = {
    "AMQPriority": lambda m: m.priority,
    "AMQTimestamp": lambda m: m.timestamp,
    "AMQDurable": lambda m: "DURABLE" if m.persistent else "NON_DURABLE",
    "AMQExpiration": lambda m: m.expires,
    "AMQAddress": lambda m: m.address,
    "AMQGroupID": lambda m: m.group_id,
}


def from_send(frame: Frame, *, message_id: int, now_ms: int) -> CoreMessage:
    """
    Return the message that a SEND frame carries; raises Refused on a bad number or routing type.

    Raises NotImplementedError on a priority outside 0 to 9: a real broker takes such a message and loses it.
    """
    headers = dict(frame.headers)
    routing = headers.get("destination-type")
    if routing is not None and routing not in set(Routing):
        raise numbered(339031, "Error handling send")
    address = destination_of(headers)
    priority = _number(headers.pop("priority", "4"))
    if priority not in _BYTE:
        raise numbered(339031, "Error handling send")
    if priority not in _PRIORITIES:
        raise NotImplementedError(
            f"the fake broker has no way to lose a message as one with priority {priority} would be"
        )
    persistent = headers.pop("persistent", "").lower() == "true"
    expires = _number(headers.pop("expires", "0"))
    properties: dict[str, str | int] = {
        PROPERTY_OF[name]: headers.pop(name) for name in PROPERTY_OF if name in headers
    }
    if (delay := _number(headers.pop("AMQ_SCHEDULED_DELAY", "0"))) > 0:
        properties[_SCHEDULED] = now_ms + delay
    if (moment := _number(headers.pop("AMQ_SCHEDULED_TIME", "0"))) > 0:
        properties[_SCHEDULED] = moment
    return CoreMessage(
        message_id=message_id,
        address=address,
        routing=None if routing is None else Routing(routing),
        body=frame.body,
        is_bytes="content-length" in headers,
        persistent=persistent,
        priority=priority,
        timestamp=now_ms,
        expires=expires,
        properties={**properties, **headers},
    )


def _number(text: str) -> int:
    """Return `text` read as a Java long; raises Refused if it is none."""
    number = whole(text, least=~LONG)
    if number is None:
        raise numbered(339031, "Error handling send")
    return number


def to_message_frame(
    message: CoreMessage, *, subscription: str, handle: str, redelivered: bool, acknowledged: bool
) -> MessageFrame:
    """
    Return the MESSAGE frame for `message`, with every header that the real broker writes, even repeated ones, because
    the consumer's window counts their bytes.

    Args:
        message: the message to deliver.
        subscription: the id of the subscription.
        handle: consumer number and message id together, the value of both `message-id` and `ack`.
        redelivered: whether the message was delivered before.
        acknowledged: whether the client has to acknowledge it; only then the frame has an `ack` header.
    """
    properties = message.properties
    length = str(len(message.body)) if message.body else None
    given = [
        ("subscription", subscription),
        ("content-length", length if message.is_bytes else None),
        ("message-id", handle),
        ("destination", message.address),
        ("correlation-id", properties.get("JMSCorrelationID")),
        ("expires", message.expires),
        ("redelivered", str(redelivered).lower()),
        ("priority", message.priority),
        ("persistent", str(message.persistent).lower()),
        ("reply-to", properties.get("JMSReplyTo")),
        ("timestamp", message.timestamp),
        ("type", properties.get("JMSType")),
        ("content-type", properties.get("_AMQ_CONTENT_TYPE")),
        ("destination-type", message.routing),
    ]
    pairs = [(name, str(value)) for name, value in given if value is not None]
    is_length_told = message.is_bytes and length is not None
    for name, value in properties.items():
        is_repeated_length = name == "content-length" and is_length_told
        if name not in _SHOWN_ELSEWHERE and not is_repeated_length:
            pairs.append((name, str(value)))
    if acknowledged:
        pairs.append(("ack", handle))
    if length is not None and "content-length" not in dict(pairs):
        pairs.append(("content-length", length))
    lines = (f"{escape(name)}:{escape(value)}" for name, value in pairs)
    return MessageFrame("\n".join(lines).encode(), message.body)


# -- selectors ----------------------------------------------------------------------------------

_PREFIXES: Final = {
    "convert_string_expressions:": {"convert": True},
    "hyphenated_props:": {"hyphens": True},
    "no_convert_string_expressions:": {"convert": False},
    "no_hyphenated_props:": {"hyphens": False},
}


class Filter:
    """
    A selector as Artemis reads it: string properties are not converted to numbers, unless a prefix asks for that.

    Raises Refused if `text` is empty or makes no sense.
    """

    def __init__(self, text: str) -> None:
        self.text = text  #: with its prefixes
        if not text:
            raise Refused("Selector cannot be empty")
        rest = text
        options = {"convert": False, "hyphens": False}
        while prefix := next((p for p in _PREFIXES if rest.startswith(p)), None):
            options |= _PREFIXES[prefix]
            rest = rest.removeprefix(prefix)
        try:
            self._selector = Selector(rest, **options)
        except SelectorSyntaxError as error:
            raise Refused(f'Invalid selector "{text}"'.replace(":", ""), rest) from error

    def wants(self, message: CoreMessage) -> bool:
        """Return whether `message` matches; False if the selector cannot be evaluated on it (FilterImpl.match)."""
        try:
            return self._selector.matches(message.lookup)
        except SelectorValueError:
            return False
