"""Durations as people write them: seconds, a timedelta, or a text such as "90s", "1h" or "1h30m"."""

from __future__ import annotations

import re
from datetime import timedelta
from typing import Final, TypeAlias

from jmsx.core.option_checks import wrong_type
from jmsx.errors import ConfigurationError

Duration: TypeAlias = float | timedelta | str

_UNITS: Final = {
    "ms": 0.001,
    "s": 1.0,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
    "w": 604800.0,
}
_PART: Final = re.compile(r"\s*(\d+(?:\.\d+)?)\s*(ms|s|min|m|h|d|w)\s*")
_WHOLE: Final = re.compile(rf"(?:{_PART.pattern})+")


def seconds(name: str, duration: object) -> float:
    """The seconds of a duration that is called `name`; raises ConfigurationError for what is none."""
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
        found = duration + 0.0
    else:
        raise wrong_type(name, "seconds, a timedelta, or a text such as 90s", duration)
    if not found >= 0:  # NaN too
        raise ConfigurationError(f"{name} must be 0 s or more, not {duration!r}")
    return found
