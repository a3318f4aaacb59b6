"""Durations as people write them: seconds, a timedelta, or a text such as "90s", "1h" or "1h30m"."""

from __future__ import annotations

import functools
import math
import re
from dataclasses import fields
from datetime import timedelta
from typing import Any, Final, Generic, TypeAlias, TypeVar

from jmsx.core.option_checks import wrong_type
from jmsx.errors import ConfigurationError

Duration: TypeAlias = float | timedelta | str

Given = TypeVar("Given")
Held = TypeVar("Held")

#: How a duration may be written, other than as a number.
_WRITTEN: Final = (str, timedelta)

_UNITS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
#: The longest duration, in seconds: added to a point in time, its milliseconds fit in a Java long.
LONGEST: Final = 2**62 / 1000

_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)\s*")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds(name: str, duration: object) -> float:
    """Return the seconds of `duration`, which errors call `name`; raises ConfigurationError if it is no duration."""
    if isinstance(duration, timedelta):
        found = duration.total_seconds()
    elif isinstance(duration, str):
        if _WHOLE.fullmatch(duration) is None:
            raise ConfigurationError(
                f"{name}={duration!r} is no duration; write seconds, a timedelta, or a text such as 90s, 1h or 1h30m"
            )
        parts = _PART.findall(duration)
        found = sum((float(number) * _UNITS[unit] for number, unit in parts), 0.0)
    elif isinstance(duration, int | float) and not isinstance(duration, bool):
        try:
            found = duration + 0.0
        except OverflowError:  # an int that is too large for a float
            found = math.inf if duration > 0 else -math.inf
    else:
        raise wrong_type(name, "seconds, a timedelta, or a text such as 90s", duration)
    if not found >= 0:  # NaN too
        raise ConfigurationError(f"{name} must be 0 s or more, not {duration!r}")
    return found


def as_number(name: str, duration: Any) -> Any:
    """
    Return the seconds of a timedelta or a text, checked as in `bounded`; return anything else as it is.

    It is for options that are numbers of seconds in Java, where 0 or less may have a meaning: they are checked later.
    """
    return bounded(name, duration) if isinstance(duration, _WRITTEN) else duration


def timeout_of(name: str, timeout: object) -> float | None:
    """
    Return the seconds that a caller waits, which may be negative or infinite; None: for ever.

    Raises ConfigurationError for what is no time, such as NaN or an int that is too large for a float.
    """
    if timeout is None:
        return None
    found = as_number(name, timeout)
    shown = ""
    try:
        number = isinstance(found, int | float) and not isinstance(found, bool)
        if number and not math.isnan(found):
            return float(found)
    except OverflowError:
        shown = "a number that no float can say"
    raise ConfigurationError(
        f"{name} must be seconds, or None for ever, not {shown or repr(timeout)}; or a timedelta, or a text such as 2s"
    )


def bounded(name: str, duration: object, *, zero: bool = True) -> float:
    """Do as `seconds` does; raises ConfigurationError also for more than LONGEST, and for 0 unless `zero`."""
    found = seconds(name, duration)
    if found > LONGEST or (not zero and found == 0):
        least = "0 s or more" if zero else "more than 0 s"
        raise ConfigurationError(
            f"{name} must be {least}, and {LONGEST:.0f} s at the most, not {duration!r}"
        )
    return found


class Default(Generic[Given, Held]):
    """
    The default of a field of options that is given as durations, and held as seconds.

    It is for type checkers, which see both types; `read_durations` converts. At run time the slots of the dataclass
    take its place.
    """

    def __init__(self, default: Held) -> None:
        self._default = default

    def __get__(self, options: object, kind: type | None = None) -> Held:
        return self._default

    def __set__(self, options: object, given: Given) -> None:
        raise AttributeError("options cannot be changed; make others, with dataclasses.replace")


Seconds: TypeAlias = Default[Duration, float]
SecondsOrNone: TypeAlias = Default[Duration | None, float | None]


def read_durations(options: Any) -> None:
    """Convert the fields of type Seconds or SecondsOrNone to numbers, so that equal options compare equal."""
    for name in _durations(options.__class__):
        object.__setattr__(options, name, as_number(name, getattr(options, name)))


@functools.cache
def _durations(kind: type) -> tuple[str, ...]:
    """Return the names of the fields of a dataclass that hold durations."""
    return tuple(each.name for each in fields(kind) if each.type in {"Seconds", "SecondsOrNone"})
