"""MapMessage as XML: tables both ways, what is refused, and what is no map."""

from __future__ import annotations

import enum
import math
from typing import Any

import pytest

from jmsx.core.map_body import TRANSFORMATION, decode_map, encode_map
from jmsx.errors import MessageFormatError, MessageNotReadableError
from jmsx_classic import DIALECT
from jmsx_classic.bodies import TEXT_HEADER

#: A value, and the element that carries it; both ways (`JmsFrameTranslator.java:67-130`, probed on 6.1.8).
BOTH_WAYS = [
    ("text", "<string>text</string>"),
    ("", "<string />"),
    ("007", "<string>007</string>"),
    ("true", "<string>true</string>"),
    (" two  blanks ", "<string> two  blanks </string>"),
    ("a\tb\nc", "<string>a\tb\nc</string>"),
    ("<&>\"'", "<string>&lt;&amp;&gt;\"'</string>"),
    ("ä€😀", "<string>&#228;&#8364;&#128512;</string>"),
    (0, "<int>0</int>"),
    (-7, "<int>-7</int>"),
    (2**31 - 1, "<int>2147483647</int>"),
    (-(2**31), "<int>-2147483648</int>"),
    (2**31, "<long>2147483648</long>"),
    (-(2**31) - 1, "<long>-2147483649</long>"),
    (2**63 - 1, "<long>9223372036854775807</long>"),
    (-(2**63), "<long>-9223372036854775808</long>"),
    (0.1, "<double>0.1</double>"),
    (-0.0, "<double>-0.0</double>"),
    (1e300, "<double>1e+300</double>"),
    (True, "<boolean>true</boolean>"),
    (False, "<boolean>false</boolean>"),
    (b"", "<byte-array />"),
    (b"\0\xff", "<byte-array>AP8=</byte-array>"),
    (None, "<null />"),
]


def entry(element: str, name: str = "k") -> bytes:
    """The map of one entry."""
    return f"<map><entry><string>{name}</string>{element}</entry></map>".encode()


@pytest.mark.parametrize(("value", "element"), BOTH_WAYS)
def test_value_has_its_element(value: Any, element: str) -> None:
    """In ASCII, so that no declaration of an encoding is needed."""
    assert encode_map({"k": value}) == entry(element)


class Level(enum.IntEnum):
    """Whole numbers with names."""

    LOW = 1
    FAR = 2**62


class Colour(str, enum.Enum):  # noqa: UP042 - StrEnum prints as the text that it is, and most programs have this
    """A text with a name."""

    RED = "red & hot"


class Real(float):
    """A float that prints as numpy's do."""

    def __repr__(self) -> str:
        return f"np.float64({float(self)!r})"


@pytest.mark.timeout(10)
@pytest.mark.parametrize(
    ("value", "element"),
    [
        (Level.LOW, "<int>1</int>"),
        (Level.FAR, f"<long>{2**62}</long>"),
        (Colour.RED, "<string>red &amp; hot</string>"),
        (Real(2.5), "<double>2.5</double>"),
    ],
)
def test_value_of_a_subclass_is_the_plain_one(value: Any, element: str) -> None:
    """And found at once: `in` goes through a range step by step for what is only derived from int."""
    assert encode_map({"k": value}) == entry(element)


@pytest.mark.parametrize(("value", "element"), BOTH_WAYS)
def test_element_has_its_value(value: Any, element: str) -> None:
    """Equal, and of the same type: 1 is not True, 0.0 is not 0."""
    (read,) = decode_map(entry(element)).values()
    assert (type(read), repr(read)) == (type(value), repr(value))


@pytest.mark.parametrize(
    ("element", "value"),
    [
        ("<short>3</short>", 3),
        ("<byte>-1</byte>", -1),
        ("<char>x</char>", "x"),
        ("<float>1.5</float>", 1.5),
        ("<double>1.0E10</double>", 1e10),
        ("<double>NaN</double>", math.nan),
        ("<string></string>", ""),
        ("<null/>", None),
        ("<byte-array>\n  AP8=\n</byte-array>", b"\0\xff"),
    ],
)
def test_what_only_java_writes_is_read(element: str, value: Any) -> None:
    """Python has one type for each of them."""
    (read,) = decode_map(entry(element)).values()
    assert (type(read), repr(read)) == (type(value), repr(value))


def test_entries_keep_their_order_and_the_last_of_a_name_wins() -> None:
    """As putting them into a map one after the other does."""
    assert list(decode_map(encode_map({"b": 1, "a": 2, "ä <&>": 3}))) == ["b", "a", "ä <&>"]
    twice = "<entry><string>k</string><int>%d</int></entry>"
    assert decode_map(f"<map>{twice % 1}{twice % 2}</map>".encode()) == {"k": 2}


def test_empty_map() -> None:
    """Both spellings."""
    assert encode_map({}) == b"<map />"
    for body in (b"<map />", b"<map/>", b"<map></map>", b"\n <map>\n</map>\n"):
        assert decode_map(body) == {}


def test_layout_does_not_matter() -> None:
    """XStream indents."""
    body = b"<map>\n  <entry>\n    <string>k</string>\n    <int>1</int>\n  </entry>\n</map>"
    assert decode_map(body) == {"k": 1}


@pytest.mark.parametrize(
    "value",
    [
        2**63, -(2**63) - 1, math.nan, math.inf, -math.inf, [1], (1,), {"a": 1}, {1}, 1j, object(), bytearray(b"x"),
    ],
)  # fmt: skip
def test_value_that_no_map_holds_is_refused(value: Any) -> None:
    """By the name of its entry."""
    with pytest.raises(MessageFormatError, match=r"map entry 'k': .* nothing that a JMS map"):
        encode_map({"k": value})


@pytest.mark.parametrize("text", ["\0", "\x0b", "\x1f", "\r", "\ud800", "\ufffe", "\uffff"])
def test_character_that_xml_cannot_carry_is_refused(text: str) -> None:
    """Rather than lost, changed, or a body that nobody can read; in values and in names."""
    with pytest.raises(MessageFormatError, match="XML cannot carry"):
        encode_map({"k": f"a{text}b"})
    with pytest.raises(MessageFormatError, match="XML cannot carry"):
        encode_map({f"a{text}b": 1})


@pytest.mark.parametrize("name", ["", 1, None, b"k"])
def test_name_that_is_no_text_is_refused(name: Any) -> None:
    """As `MapMessage.setObject` does."""
    with pytest.raises(MessageFormatError, match="a map's key"):
        encode_map({name: 1})


NO_MAPS = [
    b"",
    b"plain",
    b"<map>",
    b"<map>oops",
    b'{"map": 3}',
    b"<map><entry/></map>",
    b"<map><entry><string>k</string></entry></map>",
    b"<map><entry><string>k</string><int>1</int><int>2</int></entry></map>",
    b"<map><entry><string>k</string><int>x</int></entry></map>",
    b"<map><entry><string>k</string><double></double></entry></map>",
    b"<map><entry><string>k</string><byte-array>A</byte-array></entry></map>",
    b"<map><entry><string>k</string><list/></entry></map>",
    b"<map>\xff</map>",
]


@pytest.mark.parametrize("body", NO_MAPS)
def test_what_is_no_map_is_refused(body: bytes) -> None:
    """With its beginning in the error."""
    with pytest.raises(MessageFormatError, match="not the XML of a MapMessage"):
        decode_map(body)


@pytest.mark.parametrize("body", NO_MAPS)
def test_what_is_no_map_is_left_to_others(body: bytes) -> None:
    """The broker says `transformation` of texts too, so a consumer must not fail over one."""
    assert isinstance(DIALECT.reading.decode_body({"transformation": TRANSFORMATION}, body), str)


def test_map_is_told_by_header_and_form() -> None:
    """Neither alone is enough."""
    body = encode_map({"k": 1})
    assert DIALECT.reading.decode_body({"transformation": TRANSFORMATION}, body) == {"k": 1}
    assert DIALECT.reading.decode_body({}, body) == body.decode()
    assert DIALECT.reading.decode_body({"transformation": "jms-map-json"}, body) == body.decode()


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (b"<map/>", True),
        (b"<map />", True),
        (b" \n<map>", True),
        (b"<map>oops", True),
        (b"<m", False),
        (b"<mapping>", False),
        (b"x<map>", False),
        (b"", False),
    ],
)
def test_text_that_its_sender_must_mark(body: bytes, *, expected: bool) -> None:
    """One too many does no harm."""
    headers, _ = DIALECT.writing.encode_body(body.decode())
    assert (headers == {TEXT_HEADER: "true"}) is expected


def test_sent_map_is_what_is_read() -> None:
    """Header and body of a SEND."""
    headers, body = DIALECT.writing.encode_body({"k": None})
    assert headers == {"jmsx_text": "map", "transformation": TRANSFORMATION}
    assert DIALECT.reading.decode_body(headers, body) == {"k": None}


def test_a_map_that_nothing_translated_is_unreadable() -> None:
    """It comes without its body, and is no empty text."""
    headers, _ = DIALECT.writing.encode_body({"a": 1})
    with pytest.raises(MessageNotReadableError):
        DIALECT.reading.decode_body(headers, b"")
