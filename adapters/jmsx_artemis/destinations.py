"""Destination URIs on Artemis: an address, and the routing type by which it distributes messages to its queues."""

from __future__ import annotations

from typing import Final

from jmsx.core.destination_names import is_composite
from jmsx.errors import InvalidDestinationError, UnsupportedError

ANYCAST: Final = "ANYCAST"  #: each message to one queue
MULTICAST: Final = "MULTICAST"  #: each message to every queue

_ROUTING: Final = {
    "queue": ANYCAST,
    "temp-queue": ANYCAST,
    "topic": MULTICAST,
    "temp-topic": MULTICAST,
}


def parted(uri: str) -> tuple[str, str]:
    """Return routing type and address of a URI; options after `?` are for the client and left out."""
    kind, separator, name = uri.partition("?")[0].partition("://")
    if not separator or kind not in _ROUTING or not name:
        raise InvalidDestinationError(
            f"{uri!r} is not a destination; write queue://NAME or topic://NAME"
        )
    return _ROUTING[kind], name


def single(uri: str) -> str:
    """Return `uri`; raises UnsupportedError if it lists several, which Artemis would take for one odd name."""
    if is_composite(uri):
        raise UnsupportedError(
            f"{uri}: Artemis has no composite destinations over STOMP; name each one, or let a divert of the broker"
            " copy messages from one address to another"
        )
    return uri


def readable(uri: str) -> str:
    """Return `uri` of a consumer; raises InvalidDestinationError for Classic's wildcard `>`, which matches nothing."""
    if uri.partition("?")[0].endswith((".>", "/>")):
        here = f"{uri.partition('?')[0].removesuffix('>')}#"
        raise InvalidDestinationError(
            f"{uri}: Artemis has # for all that follows, and nothing would come to a consumer of >; write {here}"
        )
    return single(uri)


def address_of(uri: str) -> str:
    """Return the address in a URI, also in one that names a queue of it, such as `queue://address::queue`."""
    return parted(uri)[1].partition("::")[0]
