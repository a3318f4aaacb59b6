"""The message, as an application writes and reads it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from jmsx.core.delivery import Delivery, MessageIdentity
from jmsx.core.dialect import Body
from jmsx.core.option_checks import kind_of
from jmsx.errors import MessageFormatError, MessageNotReadableError, MessageNotWriteableError
from jmsx.jms.destination import Destination, destination

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping

#: What a property may be; STOMP carries it as text, and between jmsx programs its type as well.
Property = str | int | float | bool | None

#: What to do instead of changing a message that came in.
READ_ONLY: Final = (
    "it came in, and is as it came: send a new one,"
    " Message(message.body, properties={**message.properties, ...})"
)


class Incoming(NamedTuple):
    """What a message that came in has besides its fields; what costs time is worked out when somebody asks."""

    properties: MutableMapping[str, Property]
    decode: Callable[[], Body]  #: reads the body
    size: int | None  #: of the body that came, in bytes; None: it has another one now
    bytes_may_be_text: bool  #: its sender knows no kinds of messages
    identify: Callable[[], MessageIdentity]  #: finds out its key
    acknowledge: Callable[[], None] | None  #: what `acknowledge()` does; None: nothing
    delivery: Delivery | None = None  #: which one it is of


class Message:
    """
    A message to send, or one that came in. Times are epoch seconds.

    One to send may be changed, also between two sends. The properties of one that came in may not, as in JMS: whoever
    tries gets MessageNotWriteableError.

    A body of `str` is a JMS TextMessage, of `bytes` a BytesMessage, None a TextMessage without text; a mapping (of str,
    int, float, bool, bytes and None) is a MapMessage. `reply_to` may be spelt, as `queue://answers`. Raises
    MessageFormatError for properties that are no mapping, InvalidDestinationError for a `reply_to` that is none.
    """

    def __init__(
        self,
        body: Body = None,
        *,
        properties: Mapping[str, Property] | None = None,
        correlation_id: str | None = None,
        type: str | None = None,  # noqa: A002 - JMSType
        reply_to: Destination | str | None = None,
        group_id: str | None = None,
        group_sequence: int | None = None,
    ) -> None:
        self._body = body
        self._came: Incoming | None = None  #: None: it is one to send
        self._unread = False  #: a body came that nobody has looked at
        self._properties: MutableMapping[str, Property] = _copied(properties or {})
        self.correlation_id = correlation_id
        self.type = type
        self.reply_to = None if reply_to is None else destination(reply_to)
        self.group_id = group_id  #: JMSXGroupID; of what came in, if jmsx sent it
        self.group_sequence = group_sequence
        self.message_id: str | None = None
        self.destination: Destination | None = None
        self.original_destination: Destination | None = None  #: of a dead letter
        self.timestamp: float | None = None
        self.expiration = 0.0  #: 0: never
        self.priority = 4
        self.persistent = True
        self.delivery_count = 0  #: which delivery this is, from 1; across crashes at least this
        self.redelivered = False  #: it was, or may have been, delivered before (JMSRedelivered)

    @property
    def key(self) -> str | None:
        """
        The identity that a jmsx sender gave this message, kept over all brokers and queues; else the broker's own.

        A key that was copied from another message counts for nothing. None: it did not come in.
        """
        return None if self._came is None else self._came.identify().key

    @property
    def identity(self) -> str | None:
        """Its key and a digest of its body: what an idempotency store knows it by; None: nothing names it."""
        return None if self._came is None else self._came.identify().name or None

    @property
    def body(self) -> Body:
        """
        The body: text, bytes, the entries of a map, or None.

        Raises MessageNotReadableError if STOMP does not carry what the sender put into it; properties, ids and the rest
        of the message can be read all the same.
        """
        if self._unread and self._came is not None:
            try:
                self._body = self._came.decode()
            except MessageNotReadableError as error:
                raise MessageNotReadableError(f"message {self.message_id}: {error}") from None
            self._unread = False
        return self._body

    @body.setter
    def body(self, body: Body) -> None:
        self._body, self._unread = body, False
        if self._came is not None:
            self._came = self._came._replace(size=None)

    @property
    def properties(self) -> MutableMapping[str, Property]:
        """The application's properties by name."""
        return self._properties

    @properties.setter
    def properties(self, properties: Mapping[str, Property]) -> None:
        if self._came is not None:
            raise MessageNotWriteableError(
                f"properties of message {self.message_id} cannot be changed: {READ_ONLY}"
            )
        self._properties = _copied(properties)

    @property
    def readable(self) -> bool:
        """Whether `body` can be read."""
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
        if isinstance(body, bytes) and self._came is not None and self._came.bytes_may_be_text:
            return self._decoded(body)
        raise self._other(body, "text")

    def json(self) -> Any:
        """What the body says in JSON, as text or as bytes in UTF-8; raises MessageNotReadableError if it is none."""
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

        Nor does it do anything on a message that never came in, as in Java. Raises IllegalStateError if its consumer is
        closed, ConnectionFailedError if the link is gone.
        Source: `ActiveMQMessage.acknowledge`, which calls back only if it has somebody to call.
        """
        if self._came is not None and self._came.acknowledge is not None:
            self._came.acknowledge()

    def __repr__(self) -> str:
        size = None if self._came is None else self._came.size
        if size is None:
            size = len(self._body) if self._body is not None else 0
        return f"<Message {self.message_id or 'unsent'} #{self.delivery_count} [{size}]>"

    def __reduce__(self) -> Any:
        raise TypeError("a Message belongs to its session; pass on its body and properties instead")

    def _come_in(self, came: Incoming) -> None:
        self._came, self._unread, self._properties = came, True, came.properties

    def _delivery(self) -> Delivery:
        if self._came is None or self._came.delivery is None:
            raise MessageNotReadableError("the message did not come in, so it is no delivery")
        return self._came.delivery

    def _is_bodiless(self) -> bool:
        return self._came is not None and self._came.size == 0 and not self.readable


def come_in(message: Message, came: Incoming) -> None:
    """Make `message`, which has its fields, one that came in."""
    message._come_in(came)  # noqa: SLF001 - an application has no use for it


def delivery_of(message: Message) -> Delivery:
    """The delivery that a message came with; raises MessageNotReadableError for one that did not come in."""
    return message._delivery()  # noqa: SLF001 - an application has no use for it


def is_bodiless(message: Message) -> bool:
    """Whether nothing came that could be read: a Java text without characters, or what STOMP does not carry."""
    return message._is_bodiless()  # noqa: SLF001 - an application asks whether it is readable


def _copied(properties: Mapping[str, Property]) -> dict[str, Property]:
    """Names and values; raises MessageFormatError for what has none."""
    try:
        return dict(properties)
    except (TypeError, ValueError) as error:
        raise MessageFormatError(
            f"properties are a mapping of names to values, not {kind_of(properties)}"
        ) from error
