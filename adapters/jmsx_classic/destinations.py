"""How Classic's STOMP names destinations, and the URIs that jmsx calls them by."""

from __future__ import annotations

from typing import Final

from jmsx.core.destination_names import is_composite, parts
from jmsx.errors import InvalidDestinationError

_PREFIXES: Final = {
    "queue": "/queue/",
    "topic": "/topic/",
    "temp-queue": "/temp-queue/",
    "temp-topic": "/temp-topic/",
    "remote-temp-queue": "/remote-temp-queue/",
    "remote-temp-topic": "/remote-temp-topic/",
}


def wire_destination(uri: str) -> str:
    """`queue://orders` as `/queue/orders`, each of several; options after `?` are for the client and stay here."""
    whole = bare(uri)
    kind, separator, name = whole.partition("://")
    if not separator or kind not in _PREFIXES or not name:
        raise InvalidDestinationError(
            f"{uri!r} is not a destination; write queue://NAME or topic://NAME"
        )
    if not is_composite(whole):
        return _PREFIXES[kind] + name
    return ",".join(_PREFIXES[kind] + name for kind, name in parts(whole))


def destination_uri(wire: str | None) -> str | None:
    """`/queue/orders` as `queue://orders`; an unknown form stays as it is."""
    for kind, prefix in _PREFIXES.items():
        if wire and wire.startswith(prefix):
            return f"{kind}://{wire.removeprefix(prefix)}"
    return wire or None


def bare(uri: str) -> str:
    """Return the URI without the options after `?`."""
    return uri.partition("?")[0]
