"""Guards that limit the number of label values, whatever names an application uses."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx_prometheus.series import Tally

if TYPE_CHECKING:
    from collections.abc import Iterable


OTHER: Final = "__other__"  #: every value after the limit
#: Every temporary destination: their names are random and live shortly.
TEMPORARY: Final = "__temp__"

#: How temporary destinations begin, as a URI and on the wire.
_TEMPORARY_PREFIXES: Final = (
    "temp-queue:",
    "temp-topic:",
    "remote-temp-queue:",  # of another connection, as Classic shows a reply-to
    "remote-temp-topic:",
    "/temp-queue/",
    "/temp-topic/",
    "/remote-temp-queue/",
    "/remote-temp-topic/",
)


_WORD: Final = re.compile(r"[a-z][a-z0-9_]{0,39}")


class LabelGuard:
    """
    Admits the first `limit` values of one label; later ones become `__other__`, and are counted.

    The values in `known` are always admitted and need no room.
    """

    __slots__ = ("_admitted", "_limit", "_overflow")

    def __init__(self, limit: int, overflow: Tally, known: Iterable[str] = ()) -> None:
        self._admitted = set(known)
        self._limit = limit + len(self._admitted)
        self._overflow = overflow

    def admit(self, value: str, events: int = 1) -> str:
        """Return `value`, or `__other__` if `limit` other values came first; `events`: how many events have it."""
        if value in self._admitted:
            return value
        if len(self._admitted) < self._limit:
            self._admitted.add(value)
            return value
        self._overflow.value += events
        return OTHER


class DestinationGuard(LabelGuard):
    """A `LabelGuard` that counts all temporary destinations as one."""

    __slots__ = ()

    def admit(self, value: str, events: int = 1) -> str:
        """Return what `LabelGuard.admit` does, but `__temp__` for a temporary destination."""
        if value.startswith(_TEMPORARY_PREFIXES):
            return TEMPORARY
        return super().admit(value, events)


class WordGuard(LabelGuard):
    """A `LabelGuard` that counts values of several words, such as an exception's text, as `__other__`."""

    __slots__ = ()

    def admit(self, value: str, events: int = 1) -> str:
        """Return what `LabelGuard.admit` does, and `__other__` for a sentence."""
        if _WORD.fullmatch(value):
            return super().admit(value, events)
        self._overflow.value += events
        return OTHER
