"""
The names and values that the properties of a message may have.

JMS's properties are typed, and STOMP's headers are text. Moreover, some names are no properties at all: the broker
reads them as fields of the message, and closes the connection if it cannot parse the value. So names and values are
checked here.

Source: JMS 3.1 section 3.5; `ActiveMQMessage.java:353-482,517-577`; jmsx_classic/BROKER.md C47 and C55.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, MutableMapping
from decimal import Decimal
from typing import TYPE_CHECKING, Final

from jmsx.core.dialect import Dialect
from jmsx.core.headers import (
    COUNT_HEADER,
    DIGEST_HEADER,
    GROUP_HEADERS,
    INT,
    KEY_HEADER,
    LONG,
    SENDER_HEADER,
    TIME_HEADER,
    TYPES_HEADER,
    UNREADABLE_HEADER,
    whole,
)
from jmsx.core.option_checks import kind_of, plain_text
from jmsx.errors import MessageFormatError, MessageNotWriteableError
from jmsx.jms.message import READ_ONLY, Message, PropertyValue

if TYPE_CHECKING:
    from collections.abc import Container, Iterator

#: The property with the number of the delivery, as in Java.
DELIVERY_COUNT: Final = "JMSXDeliveryCount"

#: Headers of MESSAGE or SEND frames that are not properties of the application.
RESERVED: Final = frozenset(
    {
        "ack", "content-length", "correlation-id", "destination", "expires", "id", "message-id", "persistent",
        "priority", "receipt", "redelivered", "reply-to", "subscription", "timestamp", "transaction", "type",
        KEY_HEADER, DIGEST_HEADER, COUNT_HEADER, SENDER_HEADER, TIME_HEADER, TYPES_HEADER,
        UNREADABLE_HEADER, DELIVERY_COUNT, *GROUP_HEADERS.values(),
    }
)  # fmt: skip

#: Names that the broker takes for JMS header fields, which only `send()` may set; in Java, send() overwrites them.
_SET_BY_SEND: Final = frozenset(
    {
        "JMSDeliveryMode", "JMSDestination", "JMSExpiration", "JMSMessageID", "JMSPriority", "JMSRedelivered",
        "JMSReplyTo", "JMSTimestamp",
    }
)  # fmt: skip

#: Properties that the broker parses as whole numbers: the least and the greatest value that it accepts.
_NUMBERS: Final = {"JMSXGroupSeq": (~INT, INT)}

#: Names that the broker takes for JMS header fields, and the attribute of `Message` for each.
_FIELDS: Final = {
    "JMSCorrelationID": "correlation_id",
    "JMSType": "type",
    "JMSXGroupID": "group_id",
    "JMSXGroupSeq": "group_sequence",
}

#: Java writes a floating-point number without an exponent if its size is at least the first and below the second.
_PLAIN: Final = (1e-3, 1e7)

#: A property's name: a Java identifier, in which STOMP programs also use dots and hyphens.
_NAME: Final = re.compile(r"(?:[^\W\d]|\$)[\w$.-]*\Z")
_FLOAT: Final = re.compile(r"-?[0-9]{1,20}(?:\.[0-9]{1,20})?(?:E-?[0-9]{1,3})?|-?Infinity|NaN")

#: The letters that stand for types in `TYPES_HEADER`, subclasses first (bool before int).
_LETTERS: Final[Mapping[str, type]] = {
    "b": bool,
    "i": int,
    "f": float,
    "n": type(None),
}

#: Characters that `TYPES_HEADER` may have; if it needs more, it is left out, and all properties arrive as text.
_TYPES_LIMIT: Final = 8000

_NUMBER: Final = re.compile(r"[+-]?[0-9]{1,19}")


def property_headers(message: Message, dialect: Dialect) -> dict[str, str]:
    """
    Return the headers that carry the properties and the group of `message`.

    Raises MessageFormatError for a name or value that no property can have, before anything is sent.
    """
    properties = message.properties
    if not properties and message.group_id is None and message.group_sequence is None:
        return {}
    given: dict[str, object] = dict(properties)
    given.pop(DELIVERY_COUNT, None)  # of a received message; a sent one has no delivery count
    for name, field in (("JMSXGroupID", "group_id"), ("JMSXGroupSeq", "group_sequence")):
        own = getattr(message, field)
        if field == "group_id" and not isinstance(own, str | None):
            raise MessageFormatError(f"group_id of a message must be a str, not {own!r}")
        if own is not None:
            given.setdefault(name, own)
    if not given:
        return {}
    reserved, numbers = dialect.reserved, {**_NUMBERS, **dialect.numbers}
    headers = {
        _checked(name, reserved): property_text(name, value)
        for name, value in given.items()
        if value is not None
    }
    types = _types({name: value for name, value in given.items() if name not in numbers}, reserved)
    for name in headers.keys() & _FIELDS.keys():
        own = getattr(message, _FIELDS[name])
        if own is not None and property_text(name, own) != headers[name]:
            raise MessageFormatError(
                f"property {name!r} is {headers[name]!r}, and {_FIELDS[name]} of the message is {own!r}; set one"
            )
    for name in headers.keys() & numbers.keys():
        headers[name] = _number(name, given[name], *numbers[name])
    return {**headers, TYPES_HEADER: types} if types else headers


def _types(given: Mapping[str, object], reserved: Container[str]) -> str:
    """
    Return what `TYPES_HEADER` tells of the properties; the values themselves are the texts that selectors and Java see.

    None has no text: the property is in this header alone, so that for selectors it IS NULL.
    """
    by_letter: dict[str, list[str]] = {}
    for name, value in given.items():
        if not isinstance(value, str):
            letter = next(one for one, kind in _LETTERS.items() if isinstance(value, kind))
            by_letter.setdefault(letter, []).append(_checked(name, reserved))
    text = " ".join(f"{letter}={','.join(names)}" for letter, names in by_letter.items())
    return text if len(text) <= _TYPES_LIMIT else ""


class ReceivedProperties(MutableMapping[str, "PropertyValue"]):
    """
    The properties of a received message; changing them raises MessageNotWriteableError.

    `JMSXDeliveryCount` can always be read, and is listed among the names from the second delivery on, as in Java
    (`ActiveMQMessage.getPropertyNames`).
    """

    __slots__ = ("_count", "_own")

    def __init__(self, own: dict[str, PropertyValue], count: int) -> None:
        self._own = own
        self._count = count

    def __getitem__(self, name: str) -> PropertyValue:
        return self._count if name == DELIVERY_COUNT else self._own[name]

    def __setitem__(self, name: str, value: PropertyValue) -> None:
        raise MessageNotWriteableError(f"property {name!r} cannot be set: {READ_ONLY}")

    def __delitem__(self, name: str) -> None:
        raise MessageNotWriteableError(f"property {name!r} cannot be removed: {READ_ONLY}")

    def __iter__(self) -> Iterator[str]:
        yield from self._own
        if self._count > 1:
            yield DELIVERY_COUNT

    def __len__(self) -> int:
        return len(self._own) + (self._count > 1)

    def __repr__(self) -> str:
        return repr(dict(self))


def typed(
    texts: Mapping[str, PropertyValue], types: str, reserved: Container[str]
) -> dict[str, PropertyValue]:
    """
    Return the properties `texts`, with the types that `types`, the value of `TYPES_HEADER`, gives them.

    Any program may have written that header, or changed a value afterwards: a value that does not fit its type stays
    text.
    """
    properties: dict[str, PropertyValue] = dict(texts)
    for part in types.split(" "):
        letter, _, names = part.partition("=")
        for name in names.split(","):
            if letter == "n":
                if (
                    name not in texts
                    and name not in RESERVED
                    and name not in reserved
                    and _NAME.match(name)
                ):
                    properties[name] = None
            elif name in texts:
                properties[name] = _value(letter, str(texts[name]))
    return properties


def _value(letter: str, text: str) -> PropertyValue:
    """Return a property's value of the type that `letter` stands for; the text if it is none."""
    match letter:
        case "b" if text in ("true", "false"):
            return text == "true"
        case "i":
            number = whole(text, least=~LONG, most=LONG)
            return text if number is None else number
        case "f" if _FLOAT.fullmatch(text):
            return float(text)
        case _:
            return text


def property_text(name: str, value: object) -> str:
    """
    Return a property's value as text; raises MessageFormatError for a type that JMS properties do not have.

    A value of a subclass, such as a member of an enum or a number of numpy, becomes the text of the plain value that
    it equals.
    """
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _float_text(float(value))
    if isinstance(value, int) and not ~LONG <= value <= LONG:
        raise MessageFormatError(
            f"property {name} must be a whole number of at most 64 bits, as Java's long; or send it as str"
        )
    if isinstance(value, int):
        return str(int(value))
    if isinstance(value, str):
        return plain_text(value)
    raise MessageFormatError(
        f"property {name!r} is {kind_of(value)}; JMS knows str, int, float and bool"
    )


def _float_text(value: float) -> str:
    """Return the number as Java writes it, so that texts can be compared. Source: `java.lang.Double.toString`."""
    if not math.isfinite(value):
        return {math.inf: "Infinity", -math.inf: "-Infinity"}.get(value, "NaN")
    low, high = _PLAIN
    if value == 0 or low <= abs(value) < high:
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).normalize().as_tuple()
    first, *rest = map(str, digits)
    power = int(exponent) + len(rest)
    return f"{'-' if sign else ''}{first}.{''.join(rest) or '0'}E{power}"


def _checked(name: str, reserved: Container[str]) -> str:
    if name in RESERVED or name in reserved:
        raise MessageFormatError(f"property {name!r} would overwrite the STOMP header of that name")
    if name in _SET_BY_SEND:
        raise MessageFormatError(
            f"{name!r} is no property; it is set by send(), from its arguments and the message"
        )
    if not isinstance(name, str) or not _NAME.match(name):
        raise MessageFormatError(
            f"{name!r} is not a property name: a letter, _ or $, then letters, digits, _, $, . and -"
        )
    return name


def _number(name: str, value: object, low: int, high: int) -> str:
    """Return a whole number within its bounds, also one that is written as text, as Java takes it."""
    number = int(value) if isinstance(value, str) and _NUMBER.fullmatch(value) else value
    if isinstance(number, int) and not isinstance(number, bool) and low <= number <= high:
        return str(int(number))
    raise MessageFormatError(f"{name} must be a whole number from {low} to {high}, not {value!r}")
