"""The counts that ActiveMQ Artemis keeps of its queues, read through its management."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx import Session
from jmsx.core.management import Inquiry
from jmsx.core.values import QueueCounts
from jmsx_artemis.asking import ask_if_it_answers
from jmsx_artemis.questions import count, queues

if TYPE_CHECKING:
    from collections.abc import Sequence


def counts(session: Session, uris: Sequence[str]) -> dict[str, QueueCounts] | None:
    """Return the counts of the queues `uris` that exist; None if the broker cannot be asked. Raises JmsxError."""
    return ask_if_it_answers(session, inquiry(uris))


def inquiry(uris: Sequence[str]) -> Inquiry[dict[str, QueueCounts]]:
    """Return the counts of each queue that exists, by URI; for `queue://address::queue` the counts of that queue."""
    found = {}
    for uri in uris:
        listed = yield from queues("NAME", uri.removeprefix("queue://").rpartition("::")[2])
        if listed:
            told = listed[0]
            left = ("messagesAcked", "messagesKilled", "messagesExpired")
            found[uri] = QueueCounts(
                enqueued=count(told, "messagesAdded"),
                dequeued=sum(count(told, name) for name in left),
                expired=count(told, "messagesExpired"),
                size=count(told, "messageCount"),
            )
    return found
