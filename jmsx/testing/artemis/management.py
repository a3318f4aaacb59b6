"""
The management address, as far as jmsx asks: an address's settings, which queues and addresses there are, their end.

Source: jmsx_artemis/BROKER.md; artemis-server 2.44.0 ManagementServiceImpl, ActiveMQServerControlImpl, QueueView and
AddressView, with the words of a live broker. All values of a view are texts.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from jmsx.testing.artemis.message import CoreMessage, Refused
from jmsx.testing.artemis.post_office import Address, PostOffice
from jmsx.testing.artemis.queue import ArtemisQueue

ADDRESS: Final = "activemq.management"


class _FailedError(Exception):
    """The broker did not do it; the text is its answer."""


def ask(office: PostOffice, question: CoreMessage) -> None:
    """
    Answer `question` to where it wants to be answered.

    Raises NotImplementedError for what the fake broker has not, and Refused for a call without a JSON array.
    """
    resource = question.properties.get("_AMQ_ResourceName")
    name = str(question.properties.get("_AMQ_OperationName"))
    if resource != "broker" or name not in _OPERATIONS:
        raise NotImplementedError(f"the fake broker has no management of {resource}: {name}")
    try:
        told = _OPERATIONS[name](office, *_arguments(question))
        text, succeeded = "" if told is None else json.dumps([told]), True
    except _FailedError as error:
        text, succeeded = json.dumps([str(error)]), False
    reply_to = str(question.properties.get("JMSReplyTo", ""))
    if reply_to not in office.addresses:
        return
    properties = {
        "JMSCorrelationID": question.properties.get("JMSCorrelationID", "null"),
        "JMSReplyTo": reply_to,
        "_AMQ_OperationSucceeded": str(succeeded).lower(),
    }
    answer = CoreMessage(
        message_id=office.runtime.next_id(),
        address=reply_to,
        routing=None,
        body=text.encode(),
        properties=properties,
    )
    office.route(answer)


def _arguments(question: CoreMessage) -> list[Any]:
    try:
        arguments = json.loads(question.body)
    except ValueError:
        arguments = None
    if not isinstance(arguments, list):
        raise Refused("AMQ339011 Error sending message (its arguments must be a JSON array)")
    return arguments


def _settings(office: PostOffice, _: str) -> str:
    profile = office.profile
    told = {
        "maxDeliveryAttempts": profile.max_delivery_attempts,
        "redeliveryDelay": 0,
        "deadLetterAddress": profile.dead_letter_address,
        "expiryAddress": profile.expiry_address,
    }
    return json.dumps({name: value for name, value in told.items() if value is not None})


def _list_queues(office: PostOffice, wanted: str, *_: int) -> str:
    return _page(wanted, map(_queue_view, office.queues.values()))


def _list_addresses(office: PostOffice, wanted: str, *_: int) -> str:
    return _page(wanted, map(_address_view, office.addresses.values()))


def _page(wanted: str, views: Iterable[Mapping[str, str]]) -> str:
    """Return the views that a filter for one field lets through; EQUALS is the only operation."""
    told = json.loads(wanted)
    if told["operation"] != "EQUALS":
        raise NotImplementedError(f"the fake broker cannot list by {told['operation']}")
    data = [view for view in views if view[told["field"].lower()] == told["value"]]
    return json.dumps({"data": data, "count": len(data)})


def _queue_view(queue: ArtemisQueue) -> dict[str, str]:
    return {
        "name": queue.name,
        "address": queue.address,
        "filter": queue.selector.text if queue.selector is not None else "",
        "durable": str(not queue.temporary).lower(),
        "temporary": str(queue.temporary).lower(),
        "autoDelete": "false",
        "routingType": str(queue.routing),
        "messageCount": str(len(queue)),
        "consumerCount": str(len(queue.consumers)),
        "purgeOnNoConsumers": "false",
        "lastValue": "false",
        "ringSize": "-1",
        "enabled": "true",
        "internalQueue": "false",
    }


def _address_view(address: Address) -> dict[str, str]:
    routings = sorted(str(routing) for routing in address.routings)
    return {"name": address.name, "routingTypes": json.dumps(routings)}


def _destroy(office: PostOffice, name: str) -> None:
    queue = office.queues.get(name)
    if queue is None:
        raise _FailedError(f"AMQ229017: Queue {name} does not exist")
    if queue.consumers:
        raise _FailedError(
            f"AMQ229025: Cannot delete queue {name} on binding {name} - it has consumers ="
            " org.apache.activemq.artemis.core.postoffice.impl.LocalQueueBinding"
        )
    office.delete_queue(queue)


_OPERATIONS: Final[Mapping[str, Callable[..., object]]] = {
    "getAddressSettingsAsJSON": _settings,
    "listQueues": _list_queues,
    "listAddresses": _list_addresses,
    "destroyQueue": _destroy,
}
