"""
Conversion between `Message` and STOMP frames.

Source: `FrameTranslator.java:54-159`, `LegacyFrameTranslator.java:45-120`. JMS's default is persistent, STOMP's is not;
a content-length makes a BytesMessage, its absence a TextMessage (jmsx_classic/BROKER.md C47, C48).
"""

from __future__ import annotations

from functools import cached_property, partial
from typing import TYPE_CHECKING

from jmsx.core.delivery import Delivery, MessageIdentity
from jmsx.core.dialect import Body, Dialect, Sender
from jmsx.core.frames import escape
from jmsx.core.headers import (
    GROUP_HEADERS,
    INT,
    TYPES_HEADER,
    UNREADABLE_HEADER,
    sent_ms,
    time_ms,
    whole,
)
from jmsx.core.identity import identify, stamp
from jmsx.errors import MessageFormatError, MessageNotReadableError, MessageNotWriteableError
from jmsx.jms.destination import Destination
from jmsx.jms.message import READ_ONLY, Message, PropertyValue, check_body
from jmsx.jms.properties import RESERVED, ReceivedProperties, property_headers, typed

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, MutableMapping


class PreparedSend:
    """
    The headers that all messages sent to one destination with the same options share; made and checked once.

    Raises the error of the dialect if nothing can be sent to the destination.
    """

    def __init__(
        self, destination: Destination, dialect: Dialect, *, persistent: bool, priority: int
    ) -> None:
        self.uri = destination.uri
        self.what = f"SEND {destination}"  #: the request's name in errors
        self._dialect, self._persistent, self._priority = dialect, persistent, priority
        self._headers = {
            **dialect.writing.send_headers(self.uri),
            "persistent": "true" if persistent else "false",
            "priority": str(int(priority)),
        }
        _check_headers(self._headers, dialect.header_limit)

    def fits(
        self, destination: Destination, dialect: Dialect, *, persistent: object, priority: object
    ) -> bool:
        """Return whether this was made for these arguments; flags and numbers are compared by `is`, for 1 == True."""
        return (
            self._priority is priority
            and self._persistent is persistent
            and self._dialect is dialect
            and self.uri == destination.uri
        )

    def content(
        self, message: Message, key: str, asked: Mapping[str, str] | None = None
    ) -> tuple[dict[str, str], bytes]:
        """
        Return the headers and the body of a SEND of `message`, without times and reply-to, which the producer adds.

        `asked`: headers for options of `send()`, such as a delay; a property of the same name must have the same value.

        A received message whose body could not be read is sent on without a body, and with a header that says so.
        Raises MessageFormatError for a body or property that STOMP cannot carry, MessageNotReadableError if only a part
        of a received body can be read, and UnsupportedError for a property that this broker would ignore.
        """
        dialect = self._dialect
        own = _own_headers(message, asked, dialect)
        bodiless = is_bodiless(message)
        marks, body = _encoded(None if bodiless else message.body, dialect)
        if bodiless:
            marks = {**marks, UNREADABLE_HEADER: "true"}
        headers = {**self._headers, **own, **marks}
        return stamp(headers, body, key, self.uri, dialect.reading), body


def _own_headers(
    message: Message, asked: Mapping[str, str] | None, dialect: Dialect
) -> dict[str, str]:
    """Return the headers that `message` has of its own, and that are `asked` for it."""
    headers: dict[str, str] = {}
    if message.correlation_id is not None:
        headers["correlation-id"] = _text("correlation_id", message.correlation_id)
    if message.type is not None:
        headers["type"] = _text("type", message.type)
    properties = property_headers(message, dialect)
    if properties:
        dialect.writing.check_properties(properties)
        headers.update(properties)
        groups = GROUP_HEADERS.keys() & properties.keys()
        headers.update((GROUP_HEADERS[name], properties[name]) for name in groups)
    if asked:
        for name, text in asked.items():
            if (own := headers.setdefault(name, text)) != text:
                raise MessageFormatError(
                    f"the message has a property {name!r} of {own!r}, where an option of its sending asks for"
                    f" {text!r}; give only one of the two"
                )
    _check_headers(headers, dialect.header_limit)
    return headers


class ReceivedMessage(Message):
    """
    The message of a delivery; each delivery gets a message of its own.

    Its fields are read from the frame only when they are used, so making it cannot fail, whatever the frame contains.
    `acknowledge` is called with the delivery when the message's `acknowledge()` is called; None: that does nothing.
    """

    # Fields that cannot be read from the frame again are in slots, for a handler might clear the instance's `__dict__`.
    __slots__ = (
        "_body", "_came", "_delivery", "_dialect", "_octets", "_unread",
        "acknowledge", "delivery_count", "message_id", "redelivered",
    )  # fmt: skip

    acknowledge: Callable[[], None]  #: as `Message.acknowledge`, with this message's delivery

    def __init__(
        self,
        delivery: Delivery,
        dialect: Dialect,
        acknowledge: Callable[[Delivery], None] | None = None,
    ) -> None:
        # `Message.__init__` is not called, for it would set the fields that are read only when they are used.
        self.message_id = delivery.message_id
        self.delivery_count = delivery.delivery_count
        self.redelivered = delivery.redelivered
        self._delivery = delivery
        self._dialect = dialect
        self._came = delivery.frame
        self._octets: bytes | None = delivery.frame.body  #: None: the body was replaced
        self._unread = True  #: the body was not decoded yet
        self.acknowledge = _nothing if acknowledge is None else partial(acknowledge, delivery)

    @property
    def _identity(self) -> MessageIdentity:
        return identify(self._delivery, self._dialect.reading)

    @property
    def key(self) -> str | None:
        """The identity that a jmsx sender gave this message, else the broker's own; as `Message.key`."""
        return self._identity.key

    @property
    def identity(self) -> str | None:
        """The message's key and a digest of its body, by which idempotency stores know it; None: it has no key."""
        return self._identity.name or None

    @property
    def body(self) -> Body:
        """The body: text, bytes, the entries of a map, or None; raises MessageNotReadableError as `Message.body`."""
        if self._unread and self._octets is not None:
            try:
                self._body = self._dialect.reading.decode_body(self._came.headers, self._octets)
            except MessageNotReadableError as error:
                raise MessageNotReadableError(f"message {self.message_id}: {error}") from None
            self._unread = False
        return self._body

    @body.setter
    def body(self, body: Body) -> None:
        self._body, self._octets = body, None

    @cached_property
    def _properties(self) -> ReceivedProperties:  # type: ignore[override]  # a Message's field, which nobody sets here
        headers, dialect = self._came.headers, self._dialect
        properties: dict[str, PropertyValue] = {
            name: text
            for name, text in headers.items()
            if not (name in RESERVED or name in dialect.reserved or name in dialect.internal)
        }
        if TYPES_HEADER in headers:
            properties = typed(properties, headers[TYPES_HEADER], dialect.reserved)
        properties.update(self._group)
        return ReceivedProperties(properties, self.delivery_count)

    @property
    def properties(self) -> MutableMapping[str, PropertyValue]:
        """The application's properties by name; they cannot be changed."""
        return self._properties

    @properties.setter
    def properties(self, properties: Mapping[str, PropertyValue]) -> None:  # noqa: ARG002 - the setter only refuses
        raise MessageNotWriteableError(
            f"properties of message {self.message_id} cannot be changed: {READ_ONLY}"
        )

    @cached_property
    def correlation_id(self) -> str | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSCorrelationID: the id of the request that it answers, or whatever its sender put there; None: not set."""
        return self._came.headers.get("correlation-id")

    @cached_property
    def type(self) -> str | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSType: the sender's name for this kind of message; None: none."""
        return self._came.headers.get("type")

    @cached_property
    def reply_to(self) -> Destination | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSReplyTo: the destination where its sender expects an answer; None: it expects none."""
        return _destination(self._dialect.reading.addresses(self._came.headers).reply_to)

    @cached_property
    def destination(self) -> Destination | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSDestination: the queue or topic from which it was consumed; None: the broker does not say."""
        return _destination(self._dialect.reading.addresses(self._came.headers).destination)

    @cached_property
    def original_destination(self) -> Destination | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """Of a dead letter: the queue or topic from which it was consumed before; None: the broker does not say."""
        return _destination(self._dialect.reading.addresses(self._came.headers).original)

    @cached_property
    def group_id(self) -> str | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSXGroupID, if jmsx sent it."""
        return self._group.get("JMSXGroupID")

    @cached_property
    def group_sequence(self) -> int | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSXGroupSeq, if jmsx sent it."""
        return whole(self._group.get("JMSXGroupSeq"), least=~INT, most=INT)

    @cached_property
    def timestamp(self) -> float | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSTimestamp: when it was sent, epoch seconds; None: not known."""
        return _seconds(sent_ms(self._came.headers))

    @cached_property
    def expiration(self) -> float:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSExpiration: when it expires, epoch seconds; 0: never."""
        return _seconds(time_ms(self._came.headers.get("expires"))) or 0.0

    @cached_property
    def priority(self) -> int:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSPriority: from 0 to 9 (the highest); 4 if the frame has none."""
        priority = whole(self._came.headers.get("priority"), most=9)
        return 4 if priority is None else priority

    @cached_property
    def persistent(self) -> bool:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSDeliveryMode: whether the broker keeps it on its disk."""
        return self._came.headers.get("persistent") == "true"

    @property
    def _group(self) -> dict[str, str]:
        """What a jmsx sender tells of its group, which Classic would hide."""
        headers = self._came.headers
        return {name: headers[told] for name, told in GROUP_HEADERS.items() if told in headers}

    @property
    def _is_bodiless(self) -> bool:
        return self._octets == b"" and not self.readable

    @property
    def _size(self) -> int:
        return super()._size if self._octets is None else len(self._octets)

    @property
    def _bytes_may_be_text(self) -> bool:
        reading = self._dialect.reading
        sender = reading.sender(self._came.headers)
        if sender is Sender.JMSX:  # or a program that copied jmsx's headers to another body
            return not identify(self._delivery, reading).vouched
        return sender is Sender.OTHER


def _nothing() -> None:
    """Acknowledge nothing."""


def is_bodiless(message: Message) -> bool:
    """Return whether a received message has no readable body: Java's body was empty, or STOMP does not carry it."""
    return isinstance(message, ReceivedMessage) and message._is_bodiless  # noqa: SLF001 - an application asks `readable`


def identity_of(message: Message) -> MessageIdentity | None:
    """Return the identity of a received message; None: it was not received."""
    return message._identity if isinstance(message, ReceivedMessage) else None  # noqa: SLF001 - other modules of jmsx may look into its messages


def delivery_of(message: Message) -> Delivery:
    """Return the delivery of a received message; raises MessageNotReadableError if it was not received."""
    if not isinstance(message, ReceivedMessage):
        raise MessageNotReadableError(
            "the message was made here and not received, so it has no delivery"
        )
    return message._delivery  # noqa: SLF001 - other modules of jmsx may look into its messages


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise MessageFormatError(f"{name} of a message must be a str, not {value!r}")


def _check_headers(headers: Mapping[str, str], limit: int) -> None:
    for name, text in headers.items():
        _check_header(name, text, limit)


def _check_header(name: str, text: str, limit: int) -> None:
    if "\0" in name or "\0" in text:
        raise MessageFormatError(
            f"header {name!r} has a NUL character: programs on the way that split frames there would break"
        )
    if name.isascii() and text.isascii() and 2 * (len(name) + len(text)) < limit:
        return  # short enough, however many characters have to be escaped
    try:
        size = len(escape(f"{name}{text}").encode()) + 1
    except UnicodeEncodeError as error:
        raise MessageFormatError(
            f"header {name!r} has a character that UTF-8 cannot carry"
        ) from error
    if size > limit:
        raise MessageFormatError(
            f"header {name!r} is {size} bytes long; the broker closes the connection over {limit}"
        )


def _encoded(body: object, dialect: Dialect) -> tuple[dict[str, str], bytes]:
    try:
        return dialect.writing.encode_body(checked_body(body))
    except UnicodeEncodeError as error:
        raise MessageFormatError("the text has a character that UTF-8 cannot carry") from error


def checked_body(given: object) -> Body:
    """Return `given` as a body; raises MessageFormatError if it cannot be one, and says what to send instead."""
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    check_body(given)
    return given  # type: ignore[return-value]  # check_body lets nothing else through


def _destination(uri: str | None) -> Destination | None:
    return None if uri is None else Destination.told(uri)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
