"""
The counts that ActiveMQ Artemis keeps, asked of its management over STOMP.

A question is a message to `activemq.management` that names a resource and an operation; the answer is a message with a
JSON array of one value. The user needs the permission to `manage`, and to create an address for the answers.

Source: https://activemq.apache.org/components/artemis/documentation/latest/management.html; behaviour probed on 2.44.0.
"""

from __future__ import annotations

import json
import uuid
from typing import TYPE_CHECKING, Any, Final

from jmsx.core.frames import Frame
from jmsx.errors import BrokerError
from jmsx_broker.statistics import BrowsedMessage, QueueStatistics
from jmsx_broker.wire import Wire

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_MANAGEMENT: Final = "activemq.management"

#: How many copies are asked for before their answers are read, so that no buffer must hold a deep queue.
_BATCH: Final = 200


class ArtemisWitness:
    """Asks ActiveMQ Artemis on a connection that nobody else uses meanwhile."""

    #: Advice for when `browse` shows too few messages: the broker lists at most as many ids as this setting allows.
    remedy = "raise management-browse-page-size, 200 by default, in its address-setting"

    def __init__(self, wire: Wire) -> None:
        self._wire = wire
        self._answers = f"jmsx.answers.{uuid.uuid4().hex}"
        _subscribe(wire, self._answers)

    def count(self, name: str) -> QueueStatistics:
        """Return the counts of one queue; raises BrokerError when the broker does not answer this user."""
        wanted = json.dumps({"field": "NAME", "operation": "EQUALS", "value": name})
        (found,) = self._ask("broker", "listQueues", [wanted, 1, 1])
        queues = json.loads(found)["data"]
        return _statistics(name, queues[0] if queues else {})

    def browse(self, name: str) -> list[BrowsedMessage]:
        """
        Return the messages that wait in one queue; Artemis does not show messages in flight or scheduled ones.

        Over STOMP there is no queue browser. So the broker is asked for the ids, and to copy each message to a topic
        that only this witness reads; each copy is then given the id of its original.
        """
        (listed,) = self._ask(f"queue.{name}", "listMessagesAsJSON", [""])
        ids = [message["messageID"] for message in json.loads(listed)]
        topic = f"jmsx.copies.{uuid.uuid4().hex}"
        with Wire(self._wire.url) as copies:
            _subscribe(copies, topic)
            ((target,),) = self._ask(f"address.{topic}", "getQueueNames", [])
            return list(self._copies(name, ids, target, copies))

    def visible(self, told: QueueStatistics) -> int:
        """Return how many messages `browse` should see."""
        return told.size - told.inflight_count - told.scheduled_count

    def _copies(
        self, name: str, ids: list[int], target: str, copies: Wire
    ) -> Iterator[BrowsedMessage]:
        """Yield the messages with these ids as they come to `copies`; not those that have left their queue by now."""
        for start in range(0, len(ids), _BATCH):
            batch = ids[start : start + _BATCH]
            for number in batch:
                self._send(f"queue.{name}", "copyMessage", [number, target])
            copied = [number for number in batch if self._answer() == [True]]
            for number in copied:
                message = copies.receive("MESSAGE")
                given = {"destination": name, "message-id": str(number)}
                headers = {**message.headers, **given}
                del headers["subscription"]
                yield BrowsedMessage(headers, message.body)

    def _ask(self, resource: str, operation: str, arguments: list[Any]) -> list[Any]:
        """Return the answer to one question."""
        self._send(resource, operation, arguments)
        return self._answer()

    def _send(self, resource: str, operation: str, arguments: list[Any]) -> None:
        """Ask, and leave the answer for `_answer`."""
        headers = {
            "destination": _MANAGEMENT,
            "reply-to": self._answers,
            "_AMQ_ResourceName": resource,
            "_AMQ_OperationName": operation,
        }
        self._wire.send(Frame("SEND", headers, json.dumps(arguments).encode()))

    def _answer(self) -> list[Any]:
        """Return the next answer; raises BrokerError if the broker could not do what it was asked for."""
        answer = self._wire.receive("MESSAGE")
        value: list[Any] = json.loads(answer.body)
        if answer.headers["_AMQ_OperationSucceeded"] != "true":
            raise BrokerError(f"{self._wire.broker} does not tell its statistics: {value}")
        return value


def _subscribe(wire: Wire, topic: str) -> None:
    """Subscribe to a topic that the broker creates for this subscription and deletes with it."""
    subscription = {"id": topic, "destination": topic, "subscription-type": "MULTICAST"}
    wire.request(Frame("SUBSCRIBE", {**subscription, "ack": "auto"}))


def _statistics(name: str, told: Mapping[str, str]) -> QueueStatistics:
    """Return the broker's answer as a value; an empty one is of a queue that does not exist."""

    def count(*keys: str) -> int:
        return sum(int(told[key]) for key in keys) if told else 0

    return QueueStatistics(
        queue=name,
        exists=bool(told),
        size=count("messageCount"),
        enqueue_count=count("messagesAdded"),
        dispatch_count=None,
        dequeue_count=count("messagesAcked", "messagesKilled", "messagesExpired"),
        inflight_count=count("deliveringCount"),
        scheduled_count=count("scheduledCount"),
        expired_count=count("messagesExpired"),
        consumer_count=count("consumerCount"),
        memory_usage=None,
    )
