"""
Whether the broker still knows a subscription, by its advisory messages.

A broker whose `abortSlowConsumerStrategy` closes a consumer tells the STOMP client nothing: the socket stays,
heart-beats go on, acknowledgements get their RECEIPT and do nothing, and no message comes any more (measured on 6.1.8).
But who subscribes to the advisory topic of a destination is told at once of all consumers that it has.

Source: `AdvisoryBroker.java` (addConsumer: "replay"), `AbortSlowConsumerStrategy.java`; classic.md 2.12.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from jmsx import Topic

if TYPE_CHECKING:
    from collections.abc import Collection

    from jmsx import Destination, Session

_ADVISORY: Final = "ActiveMQ.Advisory"

#: Seconds that advisories may take; they come within some milliseconds.
PATIENCE: Final = 2.0


def missing(session: Session, destination: Destination, links: Collection[str]) -> set[str] | None:
    """
    Those of `links` (CONNECTED's `session`) that have no consumer on `destination`; None if the broker does not tell.

    `session` must be started, and of nobody else's use. Links with a client id are called by that, which advisories do
    not show with consumers; they are taken for alive.
    """
    wanted = {link for link in links if link.startswith("ID:")}
    kind = "Topic" if destination.is_topic else "Queue"
    left = wanted - _told(session, f"{_ADVISORY}.Consumer.{kind}.{destination.name}", wanted)
    if not left:
        return left
    own = session.greeting.get("session", "")
    return left if own in _told(session, f"{_ADVISORY}.Connection", {own}) else None


def _told(session: Session, topic: str, wanted: set[str]) -> set[str]:
    """Those of the connections `wanted` that the advisories of `topic` name."""
    found: set[str] = set()
    deadline = time.monotonic() + PATIENCE
    consumer = session.create_consumer(Topic(topic))
    try:
        while not wanted <= found:
            advisory = consumer.receive(max(deadline - time.monotonic(), 0.0))
            if advisory is None:
                break
            body = advisory.body if isinstance(advisory.body, str) else ""
            if "RemoveInfo" not in body:  # in XML or JSON, as the subscription has it
                found |= {link for link in wanted if f">{link}<" in body or f'"{link}"' in body}
    finally:
        consumer.close()
    return found
