"""What is asked of all texts of a column at once is what a look at each of them tells."""

from __future__ import annotations

import string

import polars as pl
import pytest

from jmsx_report.flows import key_us
from jmsx_report.texts import are_hexadecimal, are_plain

_GOOD = ["", "key", "caf\u00e9 \U0001f600", "\x7f\x85\u2028", " !#[]", None]


def _column(*texts: str | None) -> pl.Series:
    return pl.Series(texts, dtype=pl.String)


@pytest.mark.parametrize("texts", [[], [None], ["", ""], _GOOD], ids=str)
def test_texts_without_what_json_escapes_are_plain(texts: list[str | None]) -> None:
    """Whatever else they have, and where there is none."""
    assert are_plain(_column(*texts))


@pytest.mark.parametrize("odd", ['"', "\\", *map(chr, range(32))], ids=ascii)
def test_a_single_character_that_json_escapes_is_found(odd: str) -> None:
    """Wherever it is."""
    assert not are_plain(_column(*_GOOD, odd, "key"))
    assert not are_plain(_column(f"{odd}key"))
    assert not are_plain(_column(f"key{odd}"))


def test_only_small_hexadecimal_digits_are_digits() -> None:
    """All others are none, at the bounds of the two ranges and beyond ASCII."""
    digits = string.digits + "abcdef"
    assert are_hexadecimal(_column(*digits, None, ""))
    others = {chr(number) for number in range(256)} - set(digits)
    assert not [one for one in others if are_hexadecimal(_column(digits, one))]


def test_the_time_of_a_key_is_read_of_those_of_jmsx_only() -> None:
    """Among keys of jmsx alone, and beside one that is none."""
    made = 1_795_132_800_000
    ours = f"{made:012x}" + "0123456789abcdef0123"
    foreign = [
        ours.upper(),
        f"+{ours[1:]}",
        ours[:-1],
        f"{ours}0",
        f"{ours[:-1]}\u00e9",
        "ID:1",
        "",
    ]
    assert _column(ours, None, ours).to_frame("key").select(
        key_us(pl.col("key"))
    ).to_series().to_list() == [
        made * 1000,
        None,
        made * 1000,
    ]
    for key in foreign:
        found = _column(key, ours).to_frame("key").select(key_us(pl.col("key"))).to_series()
        assert found.to_list() == [None, made * 1000], key
