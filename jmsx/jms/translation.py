"""
Between `Message` and STOMP frames.

Source: classic.md 2.3 and 2.4 (`FrameTranslator.java:54-159`, `LegacyFrameTranslator.java:45-120`). JMS's default is
persistent, STOMP's is not; a content-length makes a BytesMessage, its absence a TextMessage.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import KEY_HEADER
from jmsx.core.frames import Frame, escape
from jmsx.errors import MessageFormatError
from jmsx.jms.destination import Destination
from jmsx.jms.message import Message

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import Dialect
    from jmsx.jms.message import Body

#: Marks a text that would be taken for something else: one with a NUL in it, or of the form of a map.
TEXT_HEADER: Final = "jmsx_text"

#: Headers that are not the application's properties, on MESSAGE or SEND.
_RESERVED: Final = frozenset(
    {
        "ack", "amq-msg-type", "content-length", "correlation-id", "destination", "expires", "id", "message-id",
        "original-destination", "persistent", "priority", "receipt", "redelivered", "reply-to", "subscription",
        "timestamp", "transaction", "transformation", "type", KEY_HEADER, TEXT_HEADER,
    }
)  # fmt: skip

_NAME: Final = re.compile(r"[A-Za-z_$][\w$.-]*\Z")


def send_frame(
    message: Message, destination: Destination, dialect: Dialect, key: str, *, persistent: bool
) -> Frame:
    """
    The SEND frame of `message`, without expiry, priority and reply-to, which are the session's affair.

    Raises MessageFormatError for a body or property that STOMP cannot carry.
    """
    headers = {
        "destination": dialect.wire_destination(destination.uri),
        "persistent": "true" if persistent else "false",
        KEY_HEADER: key,
    }
    if message.correlation_id is not None:
        headers["correlation-id"] = message.correlation_id
    if message.type is not None:
        headers["type"] = message.type
    if message.group_id is not None:
        headers["JMSXGroupID"] = message.group_id
    if message.group_sequence is not None:
        headers["JMSXGroupSeq"] = str(message.group_sequence)
    for name, value in message.properties.items():
        headers[_property_name(name)] = property_text(name, value)
    for name, text in headers.items():
        _check_header(name, text, dialect.header_limit)
    return Frame("SEND", headers, _body(message, headers, dialect))


def received(delivery: Delivery, dialect: Dialect) -> Message:
    """The message of a delivery; each delivery gets a message of its own. Never fails, whatever came in."""
    headers = delivery.headers
    message = Message(
        _read_body(delivery, dialect),
        properties={name: text for name, text in headers.items() if name not in _RESERVED},
        correlation_id=headers.get("correlation-id"),
        type=headers.get("type"),
        reply_to=_destination(headers.get("reply-to"), dialect),
    )
    message.message_id = delivery.message_id
    message.key = headers.get(KEY_HEADER) or dialect.message_key(headers)
    message.destination = _destination(headers.get("destination"), dialect)
    message.original_destination = _destination(headers.get("original-destination"), dialect)
    message.timestamp = _seconds(headers.get("timestamp"))
    message.expiration = _seconds(headers.get("expires")) or 0.0
    priority = headers.get("priority", "")
    message.priority = int(priority) if priority.isdigit() else 4
    message.persistent = headers.get("persistent") == "true"
    message.delivery_count = delivery.delivery_count
    return message


def property_text(name: str, value: object) -> str:
    """A property's value as text; raises MessageFormatError for a type that JMS does not know."""
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    if isinstance(value, str | int | float):
        return str(value)
    raise MessageFormatError(
        f"property {name!r} is a {type(value).__name__}; JMS knows str, int, float and bool"
    )


def _check_header(name: str, text: str, limit: int) -> None:
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


def _property_name(name: str) -> str:
    if name in _RESERVED:
        raise MessageFormatError(f"property {name!r} would overwrite the STOMP header of that name")
    if not _NAME.match(name):
        raise MessageFormatError(f"{name!r} is not a property name")
    return name


def _body(message: Message, headers: dict[str, str], dialect: Dialect) -> bytes:
    body = message.body
    if body is None:
        return b""
    if isinstance(body, str):
        try:
            data = body.encode()
        except UnicodeEncodeError as error:
            raise MessageFormatError("the text has a character that UTF-8 cannot carry") from error
        if b"\0" in data:
            headers["amq-msg-type"] = "text"
            headers[TEXT_HEADER] = "true"
            headers["content-length"] = str(len(data))
        elif dialect.looks_like_map(data):
            headers[TEXT_HEADER] = "true"
        return data
    if isinstance(body, bytes | bytearray | memoryview):
        data = bytes(body)
        headers["content-length"] = str(len(data))
        return data
    if isinstance(body, Mapping):
        more, data = dialect.map_frame(body)
        headers.update(more)
        return data
    raise MessageFormatError(f"a body of {type(body).__name__}; send str, bytes, a mapping or None")


def _read_body(delivery: Delivery, dialect: Dialect) -> Body:
    headers, body = delivery.headers, delivery.frame.body
    if headers.get(TEXT_HEADER) != "true":
        content = dialect.read_map(headers, body)
        if content is not None:
            return content
        if "content-length" in headers:
            return body
    return body.decode("utf-8", "replace")


def _destination(wire: str | None, dialect: Dialect) -> Destination | None:
    return None if not wire else Destination.told(dialect.destination_uri(wire))


def _seconds(ms: str | None) -> float | None:
    return int(ms) / 1000 if ms is not None and ms.isdigit() and ms != "0" else None
