"""
MapMessage over STOMP: the broker translates it from and to the XML that XStream writes.

`<map><entry><string>age</string><int>30</int></entry></map>`: key, then value under the name of its Java type. The JSON
form, which the broker offers too, turns the text "007" or "true" into a number or a boolean.
Source: `JmsFrameTranslator.java:67-130` (6.3.1); probed on 6.1.8.
"""

from __future__ import annotations

import base64
import json
import math
import re
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from xml.etree import ElementTree as ET

from jmsx.core.headers import LONG, whole
from jmsx.errors import MessageFormatError

if TYPE_CHECKING:
    from collections.abc import Mapping


#: What a value may be. STOMP carries int as Java's int or long, float as double.
Value: TypeAlias = "str | int | float | bool | bytes | None"


#: The `transformation` header, on SEND, SUBSCRIBE and MESSAGE.
TRANSFORMATION: Final = "jms-map-xml"

#: How a body that may be a map begins.
BEGINNING: Final = re.compile(rb"\s*<map\s*/?>")

_INT: Final = range(-(2**31), 2**31)
_LONG: Final = range(-(2**63), 2**63)

#: A double as Java writes it, or reads it from ASCII. Source: `java.lang.Double.toString` and `.valueOf`.
_REAL: Final = re.compile(r"[+-]?(NaN|Infinity|([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?)")

#: How deep the elements with keys and values are: map, entry, value.
_DEPTH: Final = 3

#: Bytes that are parsed at once: what is no map is refused after so many at the latest.
_CHUNK: Final = 1 << 16

#: Characters that XML 1.0 cannot carry, not even escaped; CR would come out as LF.
_UNFIT: Final = re.compile("[\x00-\x08\x0b-\x1f\ufffe\uffff\ud800-\udfff]")


def encode_map(content: Mapping[str, Value]) -> bytes:
    """Return the body of a SEND for a MapMessage; raises MessageFormatError for what JMS or XML cannot hold."""
    root = ET.Element("map")
    for name, value in content.items():
        if not isinstance(name, str) or not name:
            raise MessageFormatError(f"a map's key must be a text that is not empty, not {name!r}")
        entry = ET.SubElement(root, "entry")
        for kind, text in (("string", name), _typed(name, value)):
            if _UNFIT.search(text):
                raise MessageFormatError(
                    f"map entry {name!r} has a character that XML cannot carry"
                )
            ET.SubElement(entry, kind).text = text
    body: bytes = ET.tostring(root, encoding="us-ascii", xml_declaration=False)
    return body


def decode_map(body: bytes) -> dict[str, Value]:
    """
    Return the content of a MapMessage; raises MessageFormatError for anything else, as soon as that is seen.

    Nothing is kept of it but the entries, so maps within maps, which a Java program can nest by the million, cost no
    memory.
    """
    entries = _Entries()
    parser = ET.XMLParser(target=entries)  # noqa: S314 - expat bounds expansion and fetches nothing
    try:
        for start in range(0, len(body), _CHUNK):
            parser.feed(body[start : start + _CHUNK])
        parser.close()
    except (ET.ParseError, LookupError, ValueError, TypeError) as error:  # Lookup: encoding unknown
        raise MessageFormatError(f"not the XML of a MapMessage: {body[:80]!r}") from error
    return entries.content


class _Entries:
    """Takes what the parser finds: `map`, in it `entry`, in each of those a key and a value."""

    def __init__(self) -> None:
        self.content: dict[str, Value] = {}
        self._depth = 0
        self._pair: list[tuple[str, str]] = []  #: tags and texts of an entry
        self._texts: list[str] = []

    def start(self, tag: str, attributes: Mapping[str, str]) -> None:  # noqa: ARG002 - XMLParser gives them
        """Take the beginning of an element; raises ValueError for one that no flat map has."""
        self._depth += 1
        if self._depth > _DEPTH:
            raise ValueError(f"a {tag} within a value")
        self._texts = []

    def data(self, text: str) -> None:
        """Take a piece of text."""
        if self._depth == _DEPTH:
            self._texts.append(text)

    def end(self, tag: str) -> None:
        """Take the end of an element."""
        if self._depth == _DEPTH:
            self._pair.append((tag, "".join(self._texts)))
        elif self._depth == _DEPTH - 1:
            (_, name), (kind, text) = self._pair
            self.content[name] = _read(kind, text)
            self._pair = []
        self._depth -= 1

    def close(self) -> None:
        """Take the end of the document."""


def canonical_map(body: bytes) -> bytes:
    """Return the same bytes for the same content, however its XML is written; a body that is no map stays as it is."""
    try:
        content = decode_map(body)
        entries = sorted((name, *_typed(name, value)) for name, value in content.items())
    except Exception:  # noqa: BLE001 - whatever is in it, it is no map of ours
        return body
    return json.dumps(entries).encode()


def _typed(name: str, value: Any) -> tuple[str, str]:
    if value is None:
        return "null", ""
    if isinstance(value, str):
        return "string", value
    if isinstance(value, bool):
        return "boolean", "true" if value else "false"
    # int(), float(): `in` searches a range step by step for a member of an enum, and numpy's numbers have another repr.
    if isinstance(value, int) and (number := int(value)) in _LONG:
        return "int" if number in _INT else "long", str(number)
    if isinstance(value, float) and math.isfinite(value):
        return "double", repr(float(value))
    if isinstance(value, bytes):
        return "byte-array", base64.b64encode(value).decode()
    raise MessageFormatError(
        f"map entry {name!r}: {value!r} is nothing that a JMS map can hold; json.dumps(...) makes a text of the whole,"
        " which message.json() reads"
    )


def _read(kind: str, text: str) -> Value:
    match kind:
        case "string" | "char":
            return text
        case "int" | "long" | "short" | "byte":
            number = whole(text.strip(), least=~LONG)
            if number is None:
                raise ValueError(text)
            return number
        case "double" | "float":
            if not _REAL.fullmatch(text.strip()):
                raise ValueError(text)
            return float(text)
        case "boolean":
            return text == "true"
        case "byte-array":
            return base64.b64decode("".join(text.split()), validate=True)
        case "null":
            return None
        case _:
            raise ValueError(kind)
