"""How values are worded for people: instants in UTC, durations, and names that anybody may have chosen."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Final

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_LONGEST: Final = 120  #: characters of a name


def name(text: object, longest: int = _LONGEST) -> str:
    """Return `text` with unprintable characters escaped as in Python; long texts are cut in the middle."""
    words = str(text)
    if not words.isprintable():
        words = "".join(
            one if one.isprintable() else one.encode("unicode_escape").decode("ascii")
            for one in words
        )
    if len(words) <= longest:
        return words
    return f"{words[: longest // 2]}…{words[-(longest - longest // 2 - 1) :]}"


def moment(microseconds: int | None) -> str:
    """Word an instant (microseconds since the epoch) as date and time in UTC, to the second."""
    if microseconds is None:
        return "-"
    try:
        return f"{_EPOCH + timedelta(microseconds=microseconds):%Y-%m-%d %H:%M:%S}"
    except OverflowError:
        return f"{microseconds:,} us since 1970"


def until(first_us: int | None, last_us: int | None) -> str:
    """Word a period; if both ends are on one day, the date is written once."""
    first, last = moment(first_us), moment(last_us)
    day, space, _ = first.partition(" ")
    return f"{first} to {last.removeprefix(f'{day} ') if space else last} UTC"


def duration(microseconds: float | None) -> str:
    """Word a duration with three digits and the unit that suits it."""
    if microseconds is None:
        return "-"
    shown = _rounded(microseconds)  # 999.6 ms are 1 s, and not 1e+03 ms
    for unit, size in (("h", 3.6e9), ("min", 6e7), ("s", 1e6), ("ms", 1e3)):
        if abs(shown) >= size * (10 if unit == "min" else 1):
            return f"{_rounded(microseconds / size):,.12g} {unit}"
    return f"{shown:g} us"


def _rounded(number: float) -> float:
    return float(f"{number:.3g}")
