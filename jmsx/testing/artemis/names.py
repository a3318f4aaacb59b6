"""
Addresses, routing types and fully qualified queue names.

Source: artemis-commons 2.44.0 CompositeAddress; jmsx_artemis/BROKER.md A9.
"""

from __future__ import annotations

from enum import StrEnum

from jmsx.testing.artemis.faults import Refused


class Routing(StrEnum):
    """How an address gives out messages."""

    MULTICAST = "MULTICAST"  #: a copy to each queue: a topic
    ANYCAST = "ANYCAST"  #: to one queue

    @property
    def number(self) -> int:
        """As it stands in `_AMQ_ORIG_ROUTING_TYPE`."""
        return 1 if self is Routing.ANYCAST else 0


def routing_of(text: str) -> Routing:
    """
    The routing type that a header names, in this case only.

    Raises ValueError with Java's words on another text.
    """
    try:
        return Routing(text)
    except ValueError:
        kind = "org.apache.activemq.artemis.api.core.RoutingType"
        raise ValueError(f"No enum constant {kind}.{text}") from None


def split(destination: str) -> tuple[str, str | None]:
    """Address and queue of `address::queue`; the queue is None if only an address is named."""
    address, separator, queue = destination.partition("::")
    return address, (queue if separator else None)


def no_destination() -> Refused:
    """What a SEND or SUBSCRIBE without a destination runs into."""
    text = 'Cannot invoke "Object.hashCode()" because "key" is null'
    return Refused(text, body=text)
