"""
The counts that ActiveMQ Classic keeps, asked over STOMP.

A message to a reserved destination is answered by the `statisticsBrokerPlugin`; a broker without the plugin does not
answer, and stores the question as a message. A queue browser is a subscription that consumes nothing.

Source: https://activemq.apache.org/components/classic/documentation/statisticsplugin; behaviour probed on 6.1.8.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx.errors import BrokerTimeoutError, UnsupportedError
from jmsx_broker.statistics import BrowsedMessage, QueueStatistics
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Mapping


_QUESTIONS: Final = "/queue/ActiveMQ.Statistics."
_ANSWERS: Final = "/temp-queue/jmsx.statistics"


class ClassicWitness:
    """Asks ActiveMQ Classic on a connection that nobody else uses meanwhile."""

    #: Advice for when `browse` shows too few messages: a browser gets only what fits into the broker's memory (probed:
    #: 416 of 1,000 messages of 500 kB, with 256 MB), and is then told that this was all.
    remedy = "they do not fit into its memory; raise its memoryUsage limit"

    def __init__(self, wire: Wire) -> None:
        self._wire = wire

    def count(self, name: str) -> QueueStatistics:
        """
        Return the counts of one queue; raises UnsupportedError when the broker has no statistics plugin.

        A question about an unknown queue gets no answer, so the broker's own counts are asked for next: their answer
        marks the end.
        """
        subscription = {"id": "statistics", "destination": _ANSWERS, "ack": "auto"}
        self._wire.request(Frame("SUBSCRIBE", {**subscription, "transformation": "jms-map-json"}))
        for topic in (f"Destination.{name}", "Broker"):
            question = {"destination": _QUESTIONS + topic, "reply-to": _ANSWERS}
            self._wire.send(Frame("SEND", question))
        told: dict[str, str | int | float] = {}
        try:
            while "destinationName" in (answer := parse_map(self._wire.receive("MESSAGE").body)):
                told = answer
        except BrokerTimeoutError as error:
            raise UnsupportedError(
                f"{self._wire.broker} does not tell its statistics;"
                " add <statisticsBrokerPlugin/> to its plugins"
            ) from error
        self._wire.request(Frame("UNSUBSCRIBE", {"id": "statistics"}))
        return _statistics(name, told)

    def browse(self, name: str) -> list[BrowsedMessage]:
        """Return the messages that a browser of one queue gets, up to the frame that marks the end."""
        subscription = {"id": "browser", "destination": f"/queue/{name}", "ack": "auto"}
        self._wire.send(Frame("SUBSCRIBE", {**subscription, "browser": "true"}))
        messages = []
        while (message := self._wire.receive("MESSAGE")).headers.get("browser") != "end":
            messages.append(BrowsedMessage(message.headers, message.body))
        self._wire.request(Frame("UNSUBSCRIBE", {"id": "browser"}))
        return messages

    def visible(self, told: QueueStatistics) -> int:
        """Return how many messages a browser should see: all, in flight or not."""
        return told.size


def parse_map(body: bytes) -> dict[str, str | int | float]:
    """
    Return the values of a MapMessage that the broker's transformation jms-map-json has written as JSON.

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


def _statistics(name: str, told: Mapping[str, str | int | float]) -> QueueStatistics:
    """Return the broker's answer as a value; an empty one is of a queue that does not exist."""

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
        scheduled_count=0,
        expired_count=count("expiredCount"),
        consumer_count=count("consumerCount"),
        memory_usage=count("memoryUsage"),
    )
