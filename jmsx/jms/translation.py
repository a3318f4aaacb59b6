"""
Between `Message` and STOMP frames.

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
    What is the same in all messages that go to one destination in the same way: it is made and checked once.

    Raises what the dialect says against the destination.
    """

    def __init__(
        self, destination: Destination, dialect: Dialect, *, persistent: bool, priority: int
    ) -> None:
        self.uri = destination.uri
        self.what = f"SEND {destination}"  #: as errors call it
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
        """Return whether it was made for just this; flags and numbers are told by identity, for 1 equals True."""
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
        Return the headers and the body of the SEND of `message`, without times and reply-to, which the producer adds.

        `asked`: headers that ask this broker for something, and that the message must not have, too.

        A message that came in without a body that could be read is sent on without one, and says so to whoever reads
        it. Raises MessageFormatError for a body or property that STOMP cannot carry, MessageNotReadableError for a part
        of a body that came, and UnsupportedError for a property that this broker would ignore.
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

    Nothing of it is worked out before somebody looks, and nothing fails, whatever came in. `acknowledge` is called with
    the delivery when the message's `acknowledge()` is; None: that does nothing.
    """

    # What cannot be worked out again is in no dictionary, which a handler might clear.
    __slots__ = (
        "_body", "_came", "_delivery", "_dialect", "_octets", "_unread",
        "acknowledge", "delivery_count", "message_id", "redelivered",
    )  # fmt: skip

    acknowledge: Callable[[], None]  #: as `Message.acknowledge`, made by whoever took the delivery

    def __init__(
        self,
        delivery: Delivery,
        dialect: Dialect,
        acknowledge: Callable[[Delivery], None] | None = None,
    ) -> None:
        # Not Message's own, which would give each field a value.
        self.message_id = delivery.message_id
        self.delivery_count = delivery.delivery_count
        self.redelivered = delivery.redelivered
        self._delivery = delivery
        self._dialect = dialect
        self._came = delivery.frame
        self._octets: bytes | None = delivery.frame.body  #: None: it has another body now
        self._unread = True  #: nobody has looked at the body that came
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
        """Its key and a digest of its body, by which an idempotency store knows it; None: nothing names it."""
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
        """JMSCorrelationID: which message it answers, or whatever its sender put there; None: nothing."""
        return self._came.headers.get("correlation-id")

    @cached_property
    def type(self) -> str | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSType: what kind of message its sender calls it; None: nothing."""
        return self._came.headers.get("type")

    @cached_property
    def reply_to(self) -> Destination | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSReplyTo: where its sender waits for an answer; None: nowhere."""
        return _destination(self._dialect.reading.addresses(self._came.headers).reply_to)

    @cached_property
    def destination(self) -> Destination | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """JMSDestination: the queue or topic that it was read from; None if the broker does not say."""
        return _destination(self._dialect.reading.addresses(self._came.headers).destination)

    @cached_property
    def original_destination(self) -> Destination | None:  # type: ignore[override]  # made when it is first read; a Message has it as a plain field
        """Of a dead letter: the queue or topic that it was read from before; None: the broker does not say."""
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
        """JMSPriority: from 0 to 9, the highest; 4 if nothing is said."""
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
        if sender is Sender.JMSX:  # or its headers were sent on with another body
            return not identify(self._delivery, reading).vouched
        return sender is Sender.OTHER


def _nothing() -> None:
    """Acknowledge nothing."""


def is_bodiless(message: Message) -> bool:
    """Return whether nothing came that could be read: a Java text without characters, or what STOMP does not carry."""
    return isinstance(message, ReceivedMessage) and message._is_bodiless  # noqa: SLF001 - an application asks `readable`


def identity_of(message: Message) -> MessageIdentity | None:
    """Return what a message that came in is known by; None of one to send."""
    return message._identity if isinstance(message, ReceivedMessage) else None  # noqa: SLF001 - other modules of jmsx may look into its messages


def delivery_of(message: Message) -> Delivery:
    """Return the delivery that a message came with; raises MessageNotReadableError for one that did not come in."""
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
        return  # short, whatever of it is escaped
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
    """Return `given`, if it can be a body; raises MessageFormatError, which says what to make of anything else."""
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    check_body(given)
    return given  # type: ignore[return-value]  # check_body lets nothing else through


def _destination(uri: str | None) -> Destination | None:
    return None if uri is None else Destination.told(uri)


def _seconds(ms: int | None) -> float | None:
    return None if ms is None else ms / 1000
