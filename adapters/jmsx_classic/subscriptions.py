"""
Whether the broker still knows a subscription, by its advisory messages.

A broker whose `abortSlowConsumerStrategy` closes a consumer tells the STOMP client nothing: the socket stays,
heart-beats go on, acknowledgements get their RECEIPT and do nothing, and no message comes any more (measured on 6.1.8).
But a new subscriber of a destination's advisory topic at once gets an advisory for each consumer that exists.

Source: `AdvisoryBroker.java` (addConsumer: "replay"), `AbortSlowConsumerStrategy.java`; BROKER.md C19 and
C20.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from jmsx import Destination, MessageConsumer, Session, Topic
from jmsx.core.destination_names import is_pattern
from jmsx.jms.session import link_of

if TYPE_CHECKING:
    from collections.abc import Collection


_ADVISORY: Final = "ActiveMQ.Advisory"


#: Seconds that advisories may take; they come within some milliseconds.
PATIENCE: Final = 2.0


def missing(session: Session, destination: Destination, links: Collection[str]) -> set[str] | None:
    """
    Return which of `links` (CONNECTED's `session`) have no consumer on `destination`; None if the broker does not
    tell.

    `session` must be started and not in use by others. Links with a client id bear that as their name, which the
    advisories of consumers do not show; they count as alive, as do consumers of wildcard or composite destinations.
    """
    left = {link for link in links if link.startswith("ID:")}
    if is_pattern(destination.uri):
        return set()
    kind = "Topic" if destination.is_topic else "Queue"
    consumers = _subscribe(session, f"{_ADVISORY}.Consumer.{kind}.{destination.name}")
    left -= _told(consumers, left, PATIENCE)
    if not left:
        return left
    # The advisory of our own connection comes after the others, on the same socket: it marks the end.
    own = link_of(session).greeting.get("session", "")
    if own not in _told(_subscribe(session, f"{_ADVISORY}.Connection"), {own}, PATIENCE):
        return None
    return left - _told(consumers, left, 0.0)


def _subscribe(session: Session, topic: str) -> MessageConsumer:
    return session.create_consumer(Topic(topic))


def _told(advisories: MessageConsumer, wanted: set[str], patience: float) -> set[str]:
    """Return which of the connections `wanted` the advisories tell of, as soon as that is all of them."""
    found: set[str] = set()
    deadline = time.monotonic() + patience
    while not wanted <= found:
        advisory = advisories.receive(max(deadline - time.monotonic(), 0.0))
        if advisory is None:
            break
        body = advisory.body if advisory.readable and isinstance(advisory.body, str) else ""
        if "RemoveInfo" not in body:  # in XML or JSON, as the subscription has it
            found |= {link for link in wanted if f">{link}<" in body or f'"{link}"' in body}
    return found
