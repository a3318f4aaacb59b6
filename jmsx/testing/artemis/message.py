"""
Addresses, messages and selectors: what a SEND means, and the MESSAGE that shows it.

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
    """STOMP's side of the broker refuses a frame: ERROR, which may have a body, and the end of the connection."""

    def __init__(self, message: str, body: str | None = None) -> None:
        super().__init__(message)
        self.body = body


def numbered(number: int, text: str) -> Refused:
    """Return one of the errors with a number; such lose their colons, and never say the cause."""
    return Refused(f"AMQ{number} {text}".replace(":", ""))


def explained(text: str) -> Refused:
    """Return an exception from deeper down: its text is the message, without colons, and the body."""
    return Refused(text.replace(":", ""), text)


# -- addresses ----------------------------------------------------------------------------------


class Routing(StrEnum):
    """How an address gives out messages."""

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
    address: str  #: as the sender named it, so perhaps with a queue
    routing: Routing | None  #: as the sender said it
    body: bytes
    is_bytes: bool = False  #: the sender gave a content-length
    persistent: bool = False
    priority: int = 0
    timestamp: int = 0  #: when the broker took it
    expires: int = 0  #: 0: never
    properties: Mapping[str, str | int]

    @property
    def scheduled(self) -> int:
        """When it may be given out first; 0: at once. Only a number that the broker itself put there counts."""
        value = self.properties.get(_SCHEDULED, 0)
        return value if isinstance(value, int) else 0

    @property
    def group_id(self) -> str | None:
        """The group whose messages all go to one consumer."""
        return self._text("_AMQ_GROUP_ID")

    @property
    def duplicate_id(self) -> str | None:
        """What the broker knows repeated messages by."""
        return self._text("_AMQ_DUPL_ID")

    def _text(self, name: str) -> str | None:
        value = self.properties.get(name)
        return None if value is None else str(value)

    def is_expired(self, now_ms: int) -> bool:
        """Return whether its time to live is over."""
        return 0 < self.expires <= now_ms

    def copy_for(
        self, address: str, *, message_id: int, queue: str, expired_at: int | None = None
    ) -> CoreMessage:
        """
        Return the copy that the broker moves to a dead letter or expiry address out of `queue`.

        Source: QueueImpl.makeCopy and move: a routing type only if the original was such a copy itself.
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
    Return the message that a SEND means; raises Refused on a bad number or routing type.

    Raises NotImplementedError on a priority that is none: a real broker takes the message and loses it.
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
    """Return a number as Java reads it."""
    number = whole(text, least=~LONG)
    if number is None:
        raise numbered(339031, "Error handling send")
    return number


def to_message_frame(
    message: CoreMessage, *, subscription: str, handle: str, redelivered: bool, acknowledged: bool
) -> MessageFrame:
    """
    Return the MESSAGE that shows `message`, header by header with its repetitions, because the window counts their
    bytes.

    Args:
        message: what is to be shown.
        subscription: its id.
        handle: consumer and message, which is both `message-id` and `ack`.
        redelivered: whether it was given out before.
        acknowledged: whether the client acknowledges it; only then there is an `ack`.
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
    A selector as Artemis reads it: strings stay strings, unless a prefix asks for numbers.

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
        """Return whether `message` fits; one that cannot be evaluated does not (FilterImpl.match)."""
        try:
            return self._selector.matches(message.lookup)
        except SelectorValueError:
            return False
