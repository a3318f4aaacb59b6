"""Points in time and durations, as they are written on the command line."""

from __future__ import annotations

import math
import re
from datetime import UTC, datetime, timedelta
from typing import Final

from jmsx.errors import ConfigurationError

_UNITS: Final = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_DURATION: Final = re.compile(r"(\d+(?:\.\d*)?|\.\d+)([smhdw]?)")


def instant(option: str, text: str | None, now: datetime) -> datetime | None:
    """Read an instant, in UTC where no zone is said, or so long before `now`."""
    if text is None:
        return None
    if (length := _duration(text)) is not None and text[-1:].isalpha():
        try:
            return now - timedelta(seconds=length)
        except OverflowError:
            pass
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise ConfigurationError(
            f"{option} {text!r} is no time: write 2026-11-22T10:00 (UTC), 2026-11-22T10:00+01:00,"
            " or how long ago: 30m, 24h, 7d"
        ) from error
    return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)


def seconds(option: str, text: str) -> float:
    """Read a duration in seconds, or with its unit."""
    length = _duration(text)
    if length is None or not math.isfinite(length):
        raise ConfigurationError(
            f"{option} {text!r} is no duration: write seconds, as 300, or 5m, 2h, 1d"
        )
    return length


def _duration(text: str) -> float | None:
    """Read seconds, or a number with one of the units s, m, h, d, w; None: it is neither."""
    found = _DURATION.fullmatch(text.strip())
    return None if found is None else float(found[1]) * _UNITS[found[2]]
