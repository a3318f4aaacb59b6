"""The text of what names a message: of one type, one for equal keys, another one for each other key; or none."""

from __future__ import annotations

import datetime as dt
import enum
import uuid
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as some

from jmsx.stores.idempotency import key_text

ORDER = uuid.UUID("12345678-1234-5678-1234-567812345678")


class Word(str):
    """A text with words of its own."""

    __slots__ = ()

    def __str__(self) -> str:
        """The same of each."""
        return "a word"


class Region(str, enum.Enum):  # noqa: UP042 - its words are its name's, unlike a StrEnum's
    """Whose texts are its values."""

    NORTH = "n"
    SOUTH = "s"


class Plain(enum.Enum):
    """Whose texts are their names."""

    A = "a"


class Desk(enum.IntEnum):
    """Whose texts are its numbers."""

    ONE = 1


@pytest.mark.parametrize(
    ("key", "text"),
    [
        ("a", "a"),
        (17, "17"),
        (2.5, "2.5"),
        (ORDER, str(ORDER)),
        (Word("b"), "b"),
        (Region.NORTH, "n"),
        (Desk.ONE, "1"),
        (Decimal("1.00"), "1e0"),
        (Decimal(100), "1e2"),
        (Decimal("-0.0"), "0"),
        (Decimal("1.10e400"), "11e399"),
    ],
)
def test_it_has_one_text(key: object, text: str) -> None:
    """Whatever its class says."""
    assert key_text(key) == text


@pytest.mark.parametrize(
    "key",
    [
        True,
        b"a",
        ("a", 1),
        ["a"],
        {"a": 1},
        object(),
        float("nan"),
        float("inf"),
        Decimal("NaN"),
        Decimal("Infinity"),
        dt.datetime(2026, 11, 27, tzinfo=dt.UTC),
        dt.date(2026, 11, 27),
        Plain.A,
    ],
    ids=lambda key: type(key).__name__,
)
def test_what_is_no_key(key: object) -> None:
    """One moment has a text in each time zone, bytes look like other texts, and an object's words may be anybody's."""
    assert key_text(key) is None


@given(some.decimals(allow_nan=False, allow_infinity=False), some.integers(-40, 40))
def test_equal_numbers_have_equal_texts(number: Decimal, zeros: int) -> None:
    """However many zeros they were written with, and however many digits they have."""
    sign, digits, exponent = number.as_tuple()
    longer = Decimal((sign, (*digits, *([0] * abs(zeros))), int(exponent) - abs(zeros)))
    assert key_text(longer) == key_text(number)


@given(
    some.tuples(
        some.decimals(allow_nan=False, allow_infinity=False),
        some.decimals(allow_nan=False, allow_infinity=False),
    )
)
def test_other_numbers_have_other_texts(numbers: tuple[Decimal, Decimal]) -> None:
    """Nothing is rounded."""
    one, other = numbers
    assert (key_text(one) == key_text(other)) == (one == other)


def test_digits_beyond_the_precision() -> None:
    """Which `normalize()` would cut."""
    digits = "1" * 40
    assert key_text(Decimal(f"{digits}1")) != key_text(Decimal(f"{digits}2"))
