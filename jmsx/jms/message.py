"""The message, as an application writes and reads it."""

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

#: What a property may be; STOMP carries it as text, and between jmsx programs its type as well.
PropertyValue = str | int | float | bool | None

#: What a body may be, but for None.
_BODIES: Final = (str, bytes, Mapping, bytearray, memoryview)

#: What a message is made of.
_FIELDS: Final = [
    *("body", "properties", "correlation_id", "type", "reply_to", "group_id", "group_sequence"),
]

#: Where what `send()` decides is said.
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

#: What to do instead of changing a message that came in.
READ_ONLY: Final = (
    "it came in, and is as it came: send a new one,"
    " Message(message.body, properties={**message.properties, ...})"
)


class Message:
    """
    A message to send, or one that was received. Times are epoch seconds.

    A message to send may be changed, also between two sends. The properties of a received one are read-only, as in
    JMS: setting one raises MessageNotWriteableError.

    A body of `str` is a JMS TextMessage, of `bytes` a BytesMessage, None a TextMessage without text; a mapping (of str,
    int, float, bool, bytes and None) is a MapMessage. `reply_to` may be a text, as `queue://answers`. Raises
    MessageFormatError for another body and for properties that are no mapping, InvalidDestinationError for a `reply_to`
    that is no destination, and ConfigurationError for a field that does not exist, naming the nearest.

    Attributes:
        body: text, bytes, the entries of a map, or None.
        properties: the application's, by name.
        correlation_id: JMSCorrelationID: the request that it answers, or whatever it belongs to; None: nothing.
        type: JMSType, the application's word for its kind; None: it has none.
        reply_to: JMSReplyTo, the destination where an answer is awaited; None: nowhere.
        group_id: JMSXGroupID: messages with the same one go to the same consumer, in order; None: none, and on a
            received message also where jmsx did not send it.
        group_sequence: JMSXGroupSeq, its number in the group.
        message_id: JMSMessageID, as `send` or the broker told it; None: not sent yet, or not known.
        destination: JMSDestination, where it was sent to; None: not sent yet.
        original_destination: of a dead letter, the destination that it was read from before; None: it is no dead
            letter, or that is not known.
        timestamp: JMSTimestamp, when it was sent; None: not sent yet, or not known.
        expiration: JMSExpiration, when it expires; 0: never.
        priority: JMSPriority, from 0 to 9, the highest; 4.
        persistent: JMSDeliveryMode: whether it outlives the broker's process; True.
        delivery_count: JMSXDeliveryCount: which delivery this is, counted from 1, and after a crash at least that; 0:
            it was not received.
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
        The identity that a jmsx sender gave this message, kept over all brokers and queues; else the broker's own.

        A key that was copied from another message counts for nothing. None: it did not come in.
        """
        return None

    @property
    def identity(self) -> str | None:
        """Its key and a digest of its body: what an idempotency store knows it by; None: nothing names it."""
        return None

    @property
    def body(self) -> Body:
        """
        The body: text, bytes, the entries of a map, or None.

        Raises MessageNotReadableError if STOMP does not carry what the sender put into it; properties, ids and the rest
        of the message can be read all the same.
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
        """Whether `body` can be read: not if STOMP does not carry what the sender put into it."""
        try:
            self.body  # noqa: B018 - it is the reading that may fail
        except MessageNotReadableError:
            return False
        return True

    @property
    def text(self) -> str:
        """
        The body as text, "" if there is none; raises MessageNotReadableError if it is something else.

        Bytes are text in UTF-8 if their sender knows no kinds of messages, as stomp.py's and other STOMP clients: those
        send every body with its length, which makes a BytesMessage of it. What jmsx or JMS sent as bytes stays bytes.
        """
        body = self.body
        if body is None or isinstance(body, str):
            return body or ""
        if isinstance(body, bytes) and self._bytes_may_be_text:
            return self._decoded(body)
        raise self._other(body, "text")

    def json(self) -> Any:
        """Return the value of a body that is JSON, as text or bytes in UTF-8; raises MessageNotReadableError else."""
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
        Settle it: in CLIENT mode all that its session has delivered, in INDIVIDUAL mode this one, else nothing.

        It does nothing on a message that never came in, as in Java. Raises IllegalStateError if its consumer is
        closed, ConnectionFailedError if the link is gone.
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

    `app.send(to, {...})` sends JSON; this is for programs that read a map.
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
    """Return a copy of `properties`; raises MessageFormatError for what is no mapping of names to values."""
    check_properties(properties, MessageFormatError)
    return dict(properties)


def check_body(given: object) -> None:
    """Raise MessageFormatError if `given` can be no body; the error says what to send in its place."""
    if given is not None and not isinstance(given, _BODIES):
        raise MessageFormatError(
            f"no message can have a body of {type(given).__name__}; send str, bytes, a mapping or None:"
            " json.dumps(...) makes a text of lists and the like, which message.json() reads"
        )
