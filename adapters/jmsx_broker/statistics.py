"""A broker's own counts of a queue, and its messages: independent evidence against which jmsx's numbers are checked."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """
    The broker's counts of one queue.

    Fields that end in `_count` count since the start of the broker, except `inflight_count`, `scheduled_count` and
    `consumer_count`, which are as of now. An ACK is counted when the broker has processed it: without a receipt the
    numbers follow a little later. When Artemis deletes a queue it forgets its counts, and by default it deletes
    auto-created queues that are empty and have no consumers.
    """

    queue: str  #: its name, without scheme
    exists: bool  #: False: the broker has no such queue, and every number is 0
    size: int  #: messages in the queue: waiting, in flight or scheduled
    enqueue_count: int  #: messages that came in
    #: Messages sent to consumers, with redeliveries; None: Artemis does not tell.
    dispatch_count: int | None
    dequeue_count: int  #: messages that left: acknowledged, dead-lettered or expired
    inflight_count: int  #: messages at consumers, not acknowledged
    #: Messages in the queue that are scheduled for later; 0 on Classic, which keeps them elsewhere.
    scheduled_count: int
    expired_count: int  #: messages whose time was over
    consumer_count: int  #: subscriptions
    memory_usage: int | None  #: bytes of it in the broker's memory; None: Artemis does not tell


class BrowsedMessage(NamedTuple):
    """A message in a queue, as the broker would deliver it."""

    headers: Mapping[str, str]
    body: bytes


def queue_name(queue: str) -> str:
    """Return the bare name of a queue; raises ConfigurationError on a topic, a wildcard or a composite."""
    name = queue.removeprefix("queue://").removeprefix("/queue/")
    if not name or "://" in name or name.startswith("/") or any(sign in name for sign in "*>,?"):
        raise ConfigurationError(
            f"{queue!r} does not name one queue, like orders or queue://orders"
        )
    return name
