"""Points in time and durations, as they are written on the command line."""

from __future__ import annotations

import re
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Final

from jmsx.core import durations
from jmsx.errors import ConfigurationError

_NUMBER: Final = re.compile(r"[0-9]+(?:\.[0-9]*)?|\.[0-9]+")


def instant(option: str, text: str | None, now: datetime) -> datetime | None:
    """Parse a point in time, in UTC unless a zone is given, or a duration, which is taken as so long before `now`."""
    if text is None:
        return None
    if text[-1:].isalpha():
        with suppress(ConfigurationError, OverflowError):
            return now - timedelta(seconds=seconds(option, text))
    try:
        moment = datetime.fromisoformat(text)
        return moment.replace(tzinfo=UTC) if moment.tzinfo is None else moment.astimezone(UTC)
    except (
        ValueError,
        OverflowError,
    ) as error:  # OverflowError: in UTC its year is not from 1 to 9999
        raise ConfigurationError(
            f"{option} {text!r} is no time: write 2026-11-22T10:00 (UTC), 2026-11-22T10:00+01:00,"
            " or how long ago: 30m, 24h, 7d"
        ) from error


def seconds(option: str, text: str) -> float:
    """Parse a duration, in seconds or with units, such as "5min"."""
    if _NUMBER.fullmatch(text):
        return float(text)
    try:
        return durations.seconds(option, text)
    except ConfigurationError as error:
        raise ConfigurationError(
            f"{option} {text!r} is no duration: write seconds, as 300, or 5m, 2h, 1d"
        ) from error
