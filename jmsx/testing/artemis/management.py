"""
The management address: counts of queues (`MessageCount` and its kin, `countMessages`), and what `server_control` has.

Source: artemis-server 2.44.0 ManagementServiceImpl and QueueControlImpl; jmsx_artemis/BROKER.md A62.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from jmsx.testing.artemis.faults import Refused
from jmsx.testing.artemis.message import CoreMessage
from jmsx.testing.artemis.selecting import parse_selector, suits
from jmsx.testing.artemis.server_control import Failed, call

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.testing.artemis.house import ArtemisHouse
    from jmsx.testing.artemis.queue import ArtemisQueue

ADDRESS: Final = "activemq.management"
_QUEUE: Final = "queue."

_ATTRIBUTES: Final[Mapping[str, Callable[[ArtemisQueue], int]]] = {
    "MessageCount": len,
    "DeliveringCount": lambda queue: len(queue.in_flight),
    "ConsumerCount": lambda queue: len(queue.consumers),
    "MessagesAdded": lambda queue: queue.enqueued,
}


def ask(house: ArtemisHouse, question: CoreMessage) -> None:
    """
    Answer `question` to where it wants to be answered.

    Raises NotImplementedError for what the fake broker has not, and Refused for a call without a JSON array.
    """
    text, succeeded = _answer(house, question)
    reply_to = str(question.properties.get("JMSReplyTo", ""))
    if reply_to not in house.addresses:
        return
    properties = {
        "JMSCorrelationID": question.properties.get("JMSCorrelationID", "null"),
        "JMSReplyTo": reply_to,
        "_AMQ_OperationSucceeded": str(succeeded).lower(),
    }
    answer = CoreMessage(
        message_id=house.next_id(),
        address=reply_to,
        routing=None,
        body=text.encode(),
        is_bytes=False,
        persistent=False,
        priority=0,
        timestamp=0,
        expires=0,
        properties=properties,
    )
    house.route(answer)


def _answer(house: ArtemisHouse, question: CoreMessage) -> tuple[str, bool]:
    resource = str(question.properties.get("_AMQ_ResourceName", ""))
    attribute = question.properties.get("_AMQ_Attribute")
    operation = question.properties.get("_AMQ_OperationName")
    queue = house.queues.get(resource.removeprefix(_QUEUE))
    if resource.startswith(_QUEUE) and isinstance(attribute, str):
        count = _ATTRIBUTES.get(attribute)
        if queue is None:
            return json.dumps([f"Problem while retrieving attribute {attribute}"]), False
        if count is not None:
            return json.dumps([count(queue)]), True
    if resource == "broker" and isinstance(operation, str):
        return _broker(house, operation, _arguments(question))
    if operation == "countMessages" and queue is not None:
        return json.dumps([_count(queue, _arguments(question))]), True
    raise NotImplementedError(
        f"the fake broker has no management of {resource or 'nothing'}: {attribute or operation}"
    )


def _broker(house: ArtemisHouse, operation: str, arguments: list[Any]) -> tuple[str, bool]:
    try:
        told = call(house, operation, arguments)
    except Failed as error:
        return json.dumps([str(error)]), False
    return "" if told is None else json.dumps([told]), True


def _arguments(question: CoreMessage) -> list[Any]:
    try:
        arguments = json.loads(question.body)
    except ValueError:
        arguments = None
    if not isinstance(arguments, list):
        raise Refused("AMQ339011 Error sending message (its arguments must be a JSON array)")
    return arguments


def _count(queue: ArtemisQueue, arguments: list[Any]) -> int:
    """All messages; with a selector only those that wait."""
    selector = parse_selector(arguments[0]) if arguments else None
    if selector is None:
        return len(queue)
    return sum(suits(selector, message) for message in queue.waiting)
