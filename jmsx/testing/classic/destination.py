"""
Destinations: their STOMP names, and their names inside the broker.

Source: activemq-stomp 6.1.8 LegacyFrameTranslator.convertDestination.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import Final


class Kind(StrEnum):
    """The four kinds; the value is the broker's own URI scheme."""

    QUEUE = "queue"
    TOPIC = "topic"
    TEMP_QUEUE = "temp-queue"
    TEMP_TOPIC = "temp-topic"


_PREFIXES: Final = {
    "/queue/": Kind.QUEUE,
    "/topic/": Kind.TOPIC,
    "/remote-temp-queue/": Kind.TEMP_QUEUE,
    "/remote-temp-topic/": Kind.TEMP_TOPIC,
}
_PREFIX_OF: Final = {kind: prefix for prefix, kind in _PREFIXES.items()}

#: STOMP names that stand for a temporary destination of the connection that uses them.
TEMP_ALIASES: Final = {"/temp-queue/": Kind.TEMP_QUEUE, "/temp-topic/": Kind.TEMP_TOPIC}


@dataclass(frozen=True, slots=True)
class Destination:
    """Where messages go: a kind and the broker's physical name."""

    kind: Kind
    name: str

    @property
    def is_queue(self) -> bool:
        """A queue, temporary or not."""
        return self.kind in {Kind.QUEUE, Kind.TEMP_QUEUE}

    @property
    def is_temporary(self) -> bool:
        """It lives as long as the connection that made it."""
        return self.kind in {Kind.TEMP_QUEUE, Kind.TEMP_TOPIC}

    @property
    def stomp_name(self) -> str:
        """As other connections see it in frames."""
        return _PREFIX_OF[self.kind] + self.name

    def __str__(self) -> str:
        return f"{self.kind}://{self.name}"


def parse_stomp_name(name: str) -> Destination | None:
    """The destination behind a STOMP name without aliases; None where the prefix is none of STOMP's."""
    for prefix, kind in _PREFIXES.items():
        if name.startswith(prefix):
            return Destination(kind, name.removeprefix(prefix))
    return None


def parse_broker_name(name: str) -> Destination:
    """The destination behind the broker's own notation, `queue://x` or a bare `x` (a queue)."""
    scheme, separator, rest = name.partition("://")
    if separator and scheme in set(Kind):
        return Destination(Kind(scheme), rest)
    return Destination(Kind.QUEUE, name)
