"""
Between `Message` and STOMP frames.

Source: `FrameTranslator.java:54-159`, `LegacyFrameTranslator.java:45-120`. JMS's default is persistent, STOMP's is not;
a content-length makes a BytesMessage, its absence a TextMessage (jmsx_classic/BROKER.md C47, C48).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Body, Dialect, Sender
from jmsx.core.frames import Frame, escape
from jmsx.core.headers import GROUP_HEADERS, INT, TYPES_HEADER, UNREADABLE_HEADER, time_ms, whole
from jmsx.core.identity import identify, stamp
from jmsx.errors import MessageFormatError
from jmsx.jms.destination import Destination
from jmsx.jms.message import Incoming, Message, Property, come_in, is_bodiless
from jmsx.jms.properties import RESERVED, ReceivedProperties, property_headers, typed

if TYPE_CHECKING:
    from collections.abc import Callable


def send_frame(
    message: Message, destination: Destination, dialect: Dialect, key: str, *, persistent: bool
) -> Frame:
    """
    The SEND frame of `message`, without expiry, priority and reply-to, which are the session's affair.

    A message that came in without a body that could be read is sent on without one, and says so to whoever reads it.

    Raises MessageFormatError for a body or property that STOMP cannot carry, MessageNotReadableError for a part of a
    body that came, and UnsupportedError for a property that this broker would ignore.
    """
    headers = {
        **dialect.send_headers(destination.uri),
        "persistent": "true" if persistent else "false",
    }
    if message.correlation_id is not None:
        headers["correlation-id"] = _text("correlation_id", message.correlation_id)
    if message.type is not None:
        headers["type"] = _text("type", message.type)
    properties = property_headers(message, dialect.reserved)
    dialect.check_properties(properties)
    headers.update(properties)
    headers.update(
        (GROUP_HEADERS[name], headers[name]) for name in GROUP_HEADERS.keys() & properties.keys()
    )
    for name, text in headers.items():
        _check_header(name, text, dialect.header_limit)
    bodiless = is_bodiless(message)
    more, body = _encoded(None if bodiless else message.body, dialect)
    if bodiless:
        more = {**more, UNREADABLE_HEADER: "true"}
    headers = stamp({**headers, **more}, body, key, destination.uri, dialect)
    return Frame("SEND", headers, body)


def received(
    delivery: Delivery, dialect: Dialect, acknowledge: Callable[[], None] | None = None
) -> Message:
    """
    The message of a delivery; each delivery gets a message of its own. Never fails, whatever came in.

    `acknowledge` is what the message's `acknowledge()` does; None: nothing.
    """
    headers = delivery.headers
    addresses = dialect.addresses(headers)
    properties: dict[str, Property] = {
        name: text
        for name, text in headers.items()
        if not (name in RESERVED or name in dialect.reserved or name in dialect.internal)
    }
    if TYPES_HEADER in headers:
        properties = typed(properties, headers[TYPES_HEADER], dialect.reserved)
    group = {name: headers[told] for name, told in GROUP_HEADERS.items() if told in headers}
    properties.update(group)
    message = Message(
        correlation_id=headers.get("correlation-id"),
        type=headers.get("type"),
        reply_to=_destination(addresses.reply_to),
        group_id=group.get("JMSXGroupID"),
        group_sequence=whole(group.get("JMSXGroupSeq"), least=~INT, most=INT),
    )
    body = delivery.frame.body
    came = Incoming(
        properties=ReceivedProperties(properties, delivery.delivery_count),
        decode=lambda: dialect.decode_body(headers, body),
        size=len(body),
        bytes_may_be_text=dialect.sender(headers) is Sender.OTHER,
        identify=lambda: identify(delivery, dialect),
        acknowledge=acknowledge,
        delivery=delivery,
    )
    come_in(message, came)
    message.message_id = delivery.message_id
    message.destination = _destination(addresses.destination)
    message.original_destination = _destination(addresses.original)
    message.timestamp = _seconds(headers.get("timestamp"))
    message.expiration = _seconds(headers.get("expires")) or 0.0
    priority = whole(headers.get("priority"), most=9)
    message.priority = 4 if priority is None else priority
    message.persistent = headers.get("persistent") == "true"
    message.delivery_count = delivery.delivery_count
    message.redelivered = delivery.redelivered
    return message


def _text(name: str, value: object) -> str:
    if isinstance(value, str):
        return value
    raise MessageFormatError(f"{name} of a message must be a str, not {value!r}")


def _check_header(name: str, text: str, limit: int) -> None:
    if "\0" in name or "\0" in text:
        raise MessageFormatError(
            f"header {name!r} has a NUL character: programs on the way that split frames there would break"
        )
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
        return dialect.encode_body(checked_body(body))
    except UnicodeEncodeError as error:
        raise MessageFormatError("the text has a character that UTF-8 cannot carry") from error


def checked_body(given: object) -> Body:
    """`given`, if it can be a body; raises MessageFormatError, which says what to make of anything else."""
    if isinstance(given, bytearray | memoryview):
        return bytes(given)
    if given is None or isinstance(given, str | bytes | Mapping):
        return given
    raise MessageFormatError(
        f"a body of {type(given).__name__}; send str, bytes, a mapping or None: json.dumps(...) makes a text of lists"
        " and the like, which message.json() reads"
    )


def _destination(uri: str | None) -> Destination | None:
    return None if uri is None else Destination.told(uri)


def _seconds(text: str | None) -> float | None:
    ms = time_ms(text)
    return None if ms is None else ms / 1000
