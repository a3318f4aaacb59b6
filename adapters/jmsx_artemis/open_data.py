"""
Reads the lists of messages that the management's `browse` returns: serialized Java objects in Base64.

The stream is only parsed as data: no class is loaded and no code runs.

Source: Java Object Serialization Specification, 6.4; `JsonUtil.addToArray`; BROKER.md A63.
"""

from __future__ import annotations

import base64
import struct
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

#: The key under which the management returns such a list.
_NAME: Final = "javax.management.openmbean.CompositeData"

#: The broker's own fields of a message; `listMessagesAsJSON` has the same names.
_OWN: Final = (
    "messageID", "userID", "address", "type", "durable", "expiration", "priority", "timestamp",
)  # fmt: skip

_HEAD: Final = b"\xac\xed\x00\x05"

#: The number of the first object that may be referred to.
_FIRST: Final = 0x7E0000

_REFERENCE: Final = 0x71
_END: Final = b"\x78"

#: How a primitive is written, by its type in a class.
_PRIMITIVES: Final = {
    "B": ">b", "C": ">H", "D": ">d", "F": ">f", "I": ">i", "J": ">q", "S": ">h", "Z": ">?",
}  # fmt: skip

#: All binary layouts that are read, compiled.
_LAYOUTS: Final = {one: struct.Struct(one) for one in (*_PRIMITIVES.values(), ">B")}

#: Flags of a class: it writes data beside its fields; it writes its fields; it writes everything itself, in blocks.
_WRITES: Final = 0x01
_FIELDS: Final = 0x02
_BLOCKS: Final = 0x0C


def messages(told: Mapping[str, Sequence[str]]) -> list[Mapping[str, Any]]:
    """
    Return each message of an answer as `listMessagesAsJSON` would: properties and the broker's fields in one mapping.

    Raises ValueError if the answer is no such list.
    """
    found: list[Mapping[str, Any]] = []
    types = None
    for text in told[_NAME]:
        stream = _Stream(base64.b64decode(text), types)
        try:
            found.append(_message(stream.contents()))
        except RecursionError:
            raise ValueError("serialized Java objects are too deep in each other") from None
        types = stream.types
    return found


def _message(contents: _Object) -> dict[str, Any]:
    items = dict(_values(contents))
    found: dict[str, Any] = {}
    for name, table in items.items():
        if name.endswith("Properties") and table is not None:
            for _, row in _pairs(table.fields["dataMap"]):
                one = dict(_values(row.fields["contents"]))
                found[one["key"]] = one["value"]
    # the broker's field wins over a property of the same name, as in listMessagesAsJSON
    return {**found, **{name: items[name] for name in _OWN if items.get(name) not in (None, "")}}


def _values(contents: _Object) -> Iterator[tuple[str, Any]]:
    """Yield name and value of each item of a CompositeData; boxed numbers are unboxed."""
    for name, value in _pairs(contents):
        boxed = isinstance(value, _Object) and "value" in value.fields
        yield name, value.fields["value"] if boxed else value


def _pairs(made: _Object) -> Iterator[tuple[Any, Any]]:
    """Yield each key of a TreeMap or HashMap with its value; the map writes them in turns."""
    objects = iter(made.beside)
    return zip(objects, objects, strict=True)


@dataclass(slots=True, eq=False)
class _Class:
    """How objects of a class are written."""

    name: str
    flags: int
    fields: list[tuple[str, str]]  #: type and name
    parent: _Class | None


@dataclass(slots=True, eq=False)
class _Object:
    """A Java object: its fields, and the objects that its class wrote beside them."""

    fields: dict[str, Any] = field(default_factory=dict)
    beside: list[Any] = field(default_factory=list)


class _Stream:
    """
    Reads one CompositeData.

    Each message begins with the same description of its `types`, which is longer than the message itself. So the
    description's bytes, and the objects in it that later data may refer to, are taken over from the message before.
    """

    def __init__(self, data: bytes, types: tuple[bytes, list[Any]] | None = None) -> None:
        if not data.startswith(_HEAD):
            raise ValueError("no serialized Java object")
        self._data = data
        self._at = len(_HEAD)
        self._known: list[Any] = []  #: objects that later references may name, in order
        self._readers: dict[int, Callable[[], Any]] = {
            0x70: lambda: None,
            0x72: self._class,
            0x73: self._object,
            0x74: lambda: self._text(">H"),
            0x75: self._array,
            0x77: lambda: self._block(self._number(">B")),
            0x7A: lambda: self._block(self._number(">i")),
            0x7C: lambda: self._text(">q"),
        }

        self.types = types

    def contents(self) -> _Object:
        """Return the TreeMap that holds the values of the CompositeData."""
        if self.types is not None and self._data.startswith(self.types[0]):
            self._at, self._known = len(self.types[0]), list(self.types[1])
            made = self.read()
        else:
            self.types = None
            made = self.read().fields["contents"]
        if not isinstance(made, _Object):
            raise ValueError("a serialized Java object is not one of a message")  # noqa: TRY004 - what came has the wrong content, not an argument the wrong type
        return made

    def read(self) -> Any:
        """Return the next object, class or text; a block of raw bytes comes as bytes."""
        kind = self._block(1)[0]
        if kind == _REFERENCE:  # the most frequent kind
            return self._known[int.from_bytes(self._block(4), "big") - _FIRST]
        if kind not in self._readers:
            raise ValueError(f"nothing is known of type {kind:#x} in a serialized Java object")
        return self._readers[kind]()

    def _number(self, layout: str) -> Any:
        kind = _LAYOUTS[layout]
        return kind.unpack(self._block(kind.size))[0]

    def _block(self, size: int) -> bytes:
        end = self._at + size
        block = self._data[self._at : end]
        if len(block) != size:
            raise ValueError("a serialized Java object is cut off")
        self._at = end
        return block

    def _utf(self, layout: str) -> str:
        """Read a text in Java's modified UTF-8: NUL takes two bytes, characters beyond 16 bits are two surrogates."""
        raw = self._block(self._number(layout))
        if raw.isascii():
            return raw.decode("ascii")
        text = raw.replace(b"\xc0\x80", b"\0").decode("utf-8", "surrogatepass")
        return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")

    def _text(self, layout: str) -> str:
        text = self._utf(layout)
        self._known.append(text)
        return text

    def _class(self) -> _Class:
        name = self._utf(">H")
        self._number(">q")  # its version
        made = _Class(name, 0, [], None)
        self._known.append(made)
        made.flags = self._number(">B")
        for _ in range(self._number(">H")):
            kind = chr(self._number(">B"))
            made.fields.append((kind, self._utf(">H")))
            if kind not in _PRIMITIVES:
                self.read()  # the name of the field's class
        self._beside()
        parent = self.read()
        if any(one is made for one in _line(parent)):
            raise ValueError("a serialized Java class has itself as a superclass")
        made.parent = parent
        return made

    def _object(self) -> _Object:
        of = self.read()
        made = _Object()
        self._known.append(made)
        for one in reversed(list(_line(of))):
            if one.flags & _FIELDS:
                for kind, name in one.fields:
                    made.fields[name] = self._value(kind)
                    if name == "compositeType" and self.types is None:
                        self.types = self._data[: self._at], list(self._known)
                if one.flags & _WRITES:
                    made.beside += self._beside()
            elif one.flags & _BLOCKS == _BLOCKS:
                made.beside += self._beside()
            else:
                raise ValueError("a serialized Java object cannot be read")
        return made

    def _array(self) -> list[Any]:
        of = self.read()
        made: list[Any] = []
        self._known.append(made)
        kind = of.name[1]  # as in "[B", the body of a bytes message, and "[Ljava.lang.String;"
        made.extend(self._value(kind) for _ in range(self._number(">i")))
        return made

    def _value(self, kind: str) -> Any:
        return self._number(_PRIMITIVES[kind]) if kind in _PRIMITIVES else self.read()

    def _beside(self) -> list[Any]:
        """Return the objects up to the next end mark; raw bytes are dropped."""
        found = []
        while self._data[self._at : self._at + 1] != _END:
            one = self.read()
            if not isinstance(one, bytes):
                found.append(one)
        self._at += 1
        return found


def _line(of: _Class | None) -> Iterator[_Class]:
    """Yield a class and all its superclasses."""
    while of is not None:
        yield of
        of = of.parent
