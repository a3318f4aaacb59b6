"""
What the broker itself counts, and what lies in its queues: the outside witness of the library's own numbers.

The counts are ActiveMQ Classic's, asked over STOMP: a message to a reserved destination is answered by the
`statisticsBrokerPlugin` (a broker without the plugin does not answer, and keeps the question as a message). Browsing
looks at messages without taking them.

Source: https://activemq.apache.org/components/classic/documentation/statisticsplugin; behaviour probed on 6.1.8.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, NamedTuple

from jmsx.core.frames import Frame
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ResourceAllocationError,
    UnsupportedError,
)
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping

_QUESTIONS: Final = "/queue/ActiveMQ.Statistics."
_ANSWERS: Final = "/temp-queue/jmsx.statistics"


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueStatistics:
    """
    The broker's counts of one queue.

    What ends in `_count` counts since the broker was started, save inflight and consumers, which are as of now. An ACK
    is counted when the broker has done it: without a receipt the numbers follow a little later.
    """

    queue: str  #: its name, without scheme
    exists: bool  #: False: the broker has no such queue, and every number is 0
    size: int  #: messages that lie in it, in flight or not
    enqueue_count: int  #: messages that came in
    dispatch_count: int  #: messages handed to consumers, again and again included
    dequeue_count: int  #: messages that left: acknowledged, dead-lettered or expired
    inflight_count: int  #: messages at consumers, not acknowledged
    expired_count: int  #: messages whose time was over
    consumer_count: int  #: subscriptions
    memory_usage: int  #: bytes of it in the broker's memory


class BrowsedMessage(NamedTuple):
    """A message that lies in a queue, as the broker would deliver it."""

    headers: Mapping[str, str]
    body: bytes


def queue_statistics(url: str, queue: str) -> QueueStatistics:
    """
    Ask the broker at `url` for its counts of `queue` (a name, or queue://name).

    Raises UnsupportedError when the broker has no statistics plugin, and the errors of `Wire`.
    """
    name = queue_name(queue)
    with Wire(url) as wire:
        return _ask(wire, name)


def browse_queue(url: str, queue: str) -> list[BrowsedMessage]:
    """
    All messages that lie in `queue`, oldest first; those in flight at a consumer too. None is taken or changed.

    The broker shows a browser only what fits into its memory (probed: 416 of 1,000 messages of 500 kB, with 256 MB)
    and then says that this was all. So its own count is asked before and after: ResourceAllocationError
    is raised when messages are missing. Also UnsupportedError without the plugin, and the errors of `Wire`.
    """
    name = queue_name(queue)
    with Wire(url) as wire:
        before = _ask(wire, name)
        messages = _browse(wire, name) if before.exists else []
        least = min(before.size, _ask(wire, name).size)
    if len(messages) < least:
        raise ResourceAllocationError(
            f"{url} showed only {len(messages)} of at least {least} messages in {name}:"
            " they do not fit into its memory; raise its memoryUsage limit"
        )
    return messages


def queue_name(queue: str) -> str:
    """The bare name of a queue; raises ConfigurationError on a topic, a wildcard or a composite."""
    name = queue.removeprefix("queue://").removeprefix("/queue/")
    if not name or "://" in name or name.startswith("/") or any(sign in name for sign in "*>,?"):
        raise ConfigurationError(
            f"{queue!r} does not name one queue, like orders or queue://orders"
        )
    return name


def parse_map(body: bytes) -> dict[str, str | int | float]:
    """
    A MapMessage as the transformation jms-map-json writes it.

    An entry is {"string": [key, text]} or {"string": key, "long": number}.
    """
    values: dict[str, str | int | float] = {}
    for entry in json.loads(body)["map"]["entry"]:
        name = entry.pop("string")
        if isinstance(name, list):
            values[name[0]] = name[1]
        else:
            (values[name],) = entry.values()
    return values


def _ask(wire: Wire, name: str) -> QueueStatistics:
    """
    Ask for the counts of one queue.

    An unknown queue is not answered, so the broker is asked for its own counts next: that answer is the end.
    """
    subscription = {"id": "statistics", "destination": _ANSWERS, "ack": "auto"}
    wire.request(Frame("SUBSCRIBE", {**subscription, "transformation": "jms-map-json"}))
    for topic in (f"Destination.{name}", "Broker"):
        wire.send(Frame("SEND", {"destination": _QUESTIONS + topic, "reply-to": _ANSWERS}))
    told: dict[str, str | int | float] = {}
    try:
        while "destinationName" in (answer := parse_map(wire.receive("MESSAGE").body)):
            told = answer
    except BrokerTimeoutError as error:
        raise UnsupportedError(
            f"{wire.url} does not tell its statistics; add <statisticsBrokerPlugin/> to its plugins"
        ) from error
    wire.request(Frame("UNSUBSCRIBE", {"id": "statistics"}))
    return _statistics(name, told)


def _statistics(name: str, told: Mapping[str, str | int | float]) -> QueueStatistics:
    """The broker's answer as a value; an empty one is of a queue that does not exist."""

    def count(key: str) -> int:
        return int(told[key]) if told else 0

    return QueueStatistics(
        queue=name,
        exists=bool(told),
        size=count("size"),
        enqueue_count=count("enqueueCount"),
        dispatch_count=count("dispatchCount"),
        dequeue_count=count("dequeueCount"),
        inflight_count=count("inflightCount"),
        expired_count=count("expiredCount"),
        consumer_count=count("consumerCount"),
        memory_usage=count("memoryUsage"),
    )


def _browse(wire: Wire, name: str) -> list[BrowsedMessage]:
    """All that the broker shows a browser of one queue, up to the message that says it was all."""
    subscription = {"id": "browser", "destination": f"/queue/{name}", "ack": "auto"}
    wire.send(Frame("SUBSCRIBE", {**subscription, "browser": "true"}))
    messages = []
    while (message := wire.receive("MESSAGE")).headers.get("browser") != "end":
        messages.append(BrowsedMessage(message.headers, message.body))
    wire.request(Frame("UNSUBSCRIBE", {"id": "browser"}))
    return messages
