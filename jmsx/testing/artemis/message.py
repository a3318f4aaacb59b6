"""
A message inside Artemis: made from a SEND, copied to a dead letter or expiry address, seen by selectors.

Source: artemis-stomp-protocol 2.44.0 StompUtils and VersionedStompFrameHandler.onSend, artemis-core-client 2.44.0
Message.referenceOriginalMessage, artemis-server 2.44.0 FilterImpl.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from jmsx.core.headers import LONG, whole
from jmsx.testing.artemis.faults import bundled
from jmsx.testing.artemis.names import Routing

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.core.frames import Frame
    from jmsx.testing.selector_values import Value

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
SCHEDULED: Final = "_AMQ_SCHED_DELIVERY"
DUPLICATE_ID: Final = "_AMQ_DUPL_ID"
SENDER: Final = "__AMQ_CID"


@dataclass(frozen=True, slots=True, eq=False, kw_only=True)
class CoreMessage:
    """One message; the same one in all the queues that it is routed to. Times are epoch milliseconds."""

    message_id: int
    address: str  #: as the sender named it, so perhaps with a queue
    routing: Routing | None  #: as the sender said it
    body: bytes
    is_bytes: bool  #: the sender gave a content-length
    persistent: bool
    priority: int
    timestamp: int  #: when the broker took it
    expires: int  #: 0: never
    properties: Mapping[str, str | int]

    @property
    def scheduled(self) -> int:
        """When it may be given out first; 0: at once. Only a number that the broker itself put there counts."""
        value = self.properties.get(SCHEDULED, 0)
        return value if isinstance(value, int) else 0

    @property
    def group_id(self) -> str | None:
        """The group whose messages all go to one consumer."""
        value = self.properties.get("_AMQ_GROUP_ID")
        return None if value is None else str(value)

    @property
    def ends_group(self) -> bool:
        """Whether the next message of its group may go to another consumer; `JMSXGroupSeq` cannot say so."""
        return str(self.properties.get("_AMQ_GROUP_SEQUENCE")) == "-1"

    @property
    def duplicate_id(self) -> str | None:
        """What the broker knows repeated messages by."""
        value = self.properties.get(DUPLICATE_ID)
        return None if value is None else str(value)

    def is_expired(self, now_ms: int) -> bool:
        """Whether its time to live is over."""
        return 0 < self.expires <= now_ms

    def copy_for(
        self, address: str, *, message_id: int, queue: str, expired_at: int | None = None
    ) -> CoreMessage:
        """
        The copy that the broker moves to a dead letter or expiry address out of `queue`.

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
            routing={0: Routing.MULTICAST, 1: Routing.ANYCAST}.get(before)
            if isinstance(before, int)
            else None,
            expires=0,
            properties={**self.properties, **told},
        )

    def lookup(self, name: str) -> Value:
        """What a selector sees under `name`; None if there is nothing."""
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


def from_send(
    frame: Frame, *, address: str, routing: Routing | None, message_id: int, now_ms: int
) -> CoreMessage:
    """
    The message that a SEND means; raises Refused on a bad number.

    Raises NotImplementedError on a priority that is none: a real broker takes the message and loses it.
    """
    headers = dict(frame.headers)
    priority = _number(headers.pop("priority", "4"))
    if priority not in _BYTE:
        raise bundled(339031, "Error handling send")
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
        properties[SCHEDULED] = now_ms + delay
    if (moment := _number(headers.pop("AMQ_SCHEDULED_TIME", "0"))) > 0:
        properties[SCHEDULED] = moment
    return CoreMessage(
        message_id=message_id,
        address=address,
        routing=routing,
        body=frame.body,
        is_bytes="content-length" in headers,
        persistent=persistent,
        priority=priority,
        timestamp=now_ms,
        expires=expires,
        properties={**properties, **headers},
    )


def _number(text: str) -> int:
    """A number as Java reads it."""
    number = whole(text, least=~LONG)
    if number is None:
        raise bundled(339031, "Error handling send")
    return number
