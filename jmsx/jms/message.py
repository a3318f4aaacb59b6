"""Messages, as an application creates and reads them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final, Never

from jmsx.core.dialect import Body
from jmsx.core.option_checks import check_names, check_properties, kind_of
from jmsx.errors import MessageFormatError, MessageNotReadableError
from jmsx.jms.destination import Destination, destination

if TYPE_CHECKING:
    from collections.abc import MutableMapping

#: The types of a property. A STOMP header carries its value as text; a further header tells jmsx the type.
PropertyValue = str | int | float | bool | None

#: The types that a body may have, apart from None.
_BODIES: Final = (str, bytes, Mapping, bytearray, memoryview)

#: The arguments of `Message`.
_FIELDS: Final = [
    *("body", "properties", "correlation_id", "type", "reply_to", "group_id", "group_sequence"),
]

#: Names that are no arguments of `Message`, and where to give such a value instead.
_ELSEWHERE: Final = {
    "persistent": "send(message, persistent=...)",
    "priority": "send(message, priority=...)",
    "time_to_live": "send(message, time_to_live=...)",
    "ttl": "send(message, time_to_live=...)",
    "expires": "send(message, time_to_live=...)",
    "expiration": "send(message, time_to_live=...)",
    "delay": "send(message, delivery_delay=...)",
    "destination": "send(message, destination=...)",
}

#: The advice to whoever tries to change a received message.
READ_ONLY: Final = (
    "it came in, and is as it came: send a new one,"
    " Message(message.body, properties={**message.properties, ...})"
)


class Message:
    """
    A message to send, or one that was received. Times are epoch seconds.

    A message to send may be changed, also between two sends. The properties of a received one are read-only, as in
    JMS: setting one raises MessageNotWriteableError.

    A body of `str` makes a JMS TextMessage, `bytes` a BytesMessage, None a TextMessage without text, and a mapping (of
    names to str, int, float, bool, bytes and None) a MapMessage. `reply_to` may be a text such as `queue://answers`.
    Raises MessageFormatError for any other body and for properties that are no mapping, InvalidDestinationError for a
    `reply_to` that is no destination, and ConfigurationError for a field that does not exist; its text names the
    nearest one that does.

    Attributes:
        body: text, bytes, the entries of a map, or None.
        properties: the application's, by name.
        correlation_id: JMSCorrelationID: the request that it answers, or whatever it belongs to; None: nothing.
        type: JMSType, the application's name for this kind of message; None: none.
        reply_to: JMSReplyTo, the destination where an answer is awaited; None: nowhere.
        group_id: JMSXGroupID: messages with the same id go to the same consumer, in order; None: none. On a received
            message it is known only if jmsx sent it.
        group_sequence: JMSXGroupSeq, its number in the group.
        message_id: JMSMessageID, as `send` or the broker told it; None: not sent yet, or not known.
        destination: JMSDestination, where it was sent to; None: not sent yet.
        original_destination: of a dead letter, the destination from which it was consumed before; None: it is no dead
            letter, or its original destination is not known.
        timestamp: JMSTimestamp, when it was sent; None: not sent yet, or not known.
        expiration: JMSExpiration, when it expires; 0: never.
        priority: JMSPriority, from 0 to 9 (the highest); 4 by default.
        persistent: JMSDeliveryMode: whether the message survives a restart of the broker; True by default.
        delivery_count: JMSXDeliveryCount: the number of this delivery, from 1; after a crash the true number may be
            higher. 0: it was not received.
        redelivered: JMSRedelivered: whether it was, or may have been, delivered before.

    """

    def __init__(
        self,
        body: Body = None,
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        type: str | None = None,  # noqa: A002 - JMSType
        reply_to: Destination | str | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        **others: Never,
    ) -> None:
        check_names("field of a message", others, _FIELDS, _ELSEWHERE)
        check_body(body)
        self._body = body
        self._properties: MutableMapping[str, PropertyValue] = (
            {} if properties is None else copied(properties)
        )
        self.correlation_id = correlation_id
        self.type = type
        self.reply_to = None if reply_to is None else destination(reply_to)
        self.group_id = group_id
        self.group_sequence = group_sequence
        self.message_id: str | None = None
        self.destination: Destination | None = None
        self.original_destination: Destination | None = None
        self.timestamp: float | None = None
        self.expiration = 0.0
        self.priority = 4
        self.persistent = True
        self.delivery_count = 0
        self.redelivered = False

    @property
    def key(self) -> str | None:
        """
        The identity that jmsx gave this message when it was sent; if jmsx did not send it, the broker's message id.

        It stays the same when the message is moved to another queue or broker. A key that was merely copied from
        another message is ignored. None: the message was not received.
        """
        return None

    @property
    def identity(self) -> str | None:
        """The message's key and a digest of its body, by which idempotency stores know it; None: it has no key."""
        return None

    @property
    def body(self) -> Body:
        """
        The body: text, bytes, the entries of a map, or None.

        Raises MessageNotReadableError if the sender's body is of a kind that STOMP does not carry; properties, ids and
        the rest of the message can be read all the same.
        """
        return self._body

    @body.setter
    def body(self, body: Body) -> None:
        check_body(body)
        self._body = body

    @property
    def properties(self) -> MutableMapping[str, PropertyValue]:
        """The application's properties by name."""
        return self._properties

    @properties.setter
    def properties(self, properties: Mapping[str, PropertyValue]) -> None:
        self._properties = copied(properties)

    @property
    def readable(self) -> bool:
        """Whether `body` can be read; False if the sender's body is of a kind that STOMP does not carry."""
        try:
            self.body  # noqa: B018 - it is the reading that may fail
        except MessageNotReadableError:
            return False
        return True

    @property
    def text(self) -> str:
        """
        The body as text, "" if there is none; raises MessageNotReadableError if it is something else.

        A BytesMessage is decoded as UTF-8 if a STOMP client such as stomp.py sent it: such clients send every body with
        a content-length, from which the broker makes a BytesMessage. Bytes that jmsx or a JMS client sent are not
        decoded.
        """
        body = self.body
        if body is None or isinstance(body, str):
            return body or ""
        if isinstance(body, bytes) and self._bytes_may_be_text:
            return self._decoded(body)
        raise self._other(body, "text")

    def json(self) -> Any:
        """Parse the body, text or bytes in UTF-8, as JSON; raises MessageNotReadableError if it is no JSON."""
        body = self.body
        if body is None or not isinstance(body, str | bytes):
            raise self._other(body, "JSON")
        text = body if isinstance(body, str) else self._decoded(body)
        try:
            return json.loads(text)
        except (ValueError, RecursionError) as error:
            take = "message.text" if isinstance(body, str) else "message.body"
            raise MessageNotReadableError(
                f"message {self.message_id} is not JSON: {error or 'nested too deeply'}; take {take}"
            ) from error

    def _decoded(self, body: bytes) -> str:
        try:
            return body.decode()
        except UnicodeDecodeError as error:
            raise MessageNotReadableError(
                f"message {self.message_id} carries bytes that are not UTF-8; take message.body"
            ) from error

    def _other(self, body: Body, wanted: str) -> MessageNotReadableError:
        if body is None:
            return MessageNotReadableError(f"message {self.message_id} has no body, so no {wanted}")
        kind = "bytes" if isinstance(body, bytes) else "a map"
        return MessageNotReadableError(
            f"message {self.message_id} carries {kind}, not {wanted}; take message.body"
        )

    def acknowledge(self) -> None:
        """
        Acknowledge, in CLIENT mode, every message that its session has delivered; in INDIVIDUAL mode, this message.

        In the other modes, and on a message that was not received, this does nothing, as in Java. Raises
        IllegalStateError if the message's consumer is closed, ConnectionFailedError if the link is lost.
        Source: `ActiveMQMessage.acknowledge`, which calls back only if it has somebody to call.
        """

    def __repr__(self) -> str:
        return f"<Message {self.message_id or 'unsent'} #{self.delivery_count} [{self._size}]>"

    def __reduce__(self) -> Any:
        raise TypeError("a Message belongs to its session; pass on its body and properties instead")

    @property
    def _size(self) -> int:
        return len(self._body) if self._body is not None else 0

    @property
    def _bytes_may_be_text(self) -> bool:
        """Whether its sender knows no kinds of messages."""
        return False


class MapMessage(Message):
    """
    A JMS MapMessage to send: its body is a mapping of names to str, int, float, bool, bytes or None.

    `app.send(to, {...})` would send a dict as JSON text; use this class if the receiver expects a MapMessage.
    """

    def __init__(
        self,
        body: Mapping[str, str | int | float | bool | bytes | None],
        *,
        properties: Mapping[str, PropertyValue] | None = None,
        correlation_id: str | None = None,
        type: str | None = None,  # noqa: A002 - JMSType
        reply_to: Destination | str | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
        **others: Never,
    ) -> None:
        if not isinstance(body, Mapping):
            raise MessageFormatError(f"the body of a MapMessage is a mapping, not {kind_of(body)}")
        super().__init__(
            body,
            properties=properties,
            correlation_id=correlation_id,
            type=type,
            reply_to=reply_to,
            group_id=group_id,
            group_sequence=group_sequence,
            **others,
        )


def copied(properties: Mapping[str, PropertyValue]) -> dict[str, PropertyValue]:
    """Return a copy of `properties`; raises MessageFormatError unless it is a mapping of names to values."""
    check_properties(properties, MessageFormatError)
    return dict(properties)


def check_body(given: object) -> None:
    """Raise MessageFormatError if `given` cannot be a body; the error says what to send instead."""
    if given is not None and not isinstance(given, _BODIES):
        raise MessageFormatError(
            f"no message can have a body of {type(given).__name__}; send str, bytes, a mapping or None:"
            " json.dumps(...) makes a text of lists and the like, which message.json() reads"
        )
