"""
The management address with the operations that jmsx calls: read an address's settings, list queues and addresses,
and delete them.

Source: jmsx_artemis/BROKER.md; artemis-server 2.44.0 ManagementServiceImpl, ActiveMQServerControlImpl, QueueView and
AddressView; error texts are those of a live broker. All values in a listed row are strings.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final, TypeVar

from jmsx.testing.artemis.message import CoreMessage, Refused
from jmsx.testing.artemis.post_office import Address, PostOffice
from jmsx.testing.artemis.queue import ArtemisQueue

ADDRESS: Final = "activemq.management"

_T = TypeVar("_T")


class _FailedError(Exception):
    """A management operation failed; the exception's text is the broker's answer."""


def ask(office: PostOffice, question: CoreMessage) -> None:
    """
    Carry out the management request `question`, and send the answer to its reply address.

    Raises NotImplementedError for an operation that the fake broker lacks, and Refused if its body is no JSON array.
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
    return _page(wanted, office.queues.values(), _QUEUE_VIEW)


def _list_addresses(office: PostOffice, wanted: str, *_: int) -> str:
    return _page(wanted, office.addresses.values(), _ADDRESS_VIEW)


def _page(wanted: str, all_of_them: Iterable[_T], view: Mapping[str, Callable[[_T], str]]) -> str:
    """Return the rows whose field equals the wanted value, as JSON; EQUALS is the only filter operation."""
    told = json.loads(wanted)
    if told["operation"] != "EQUALS":
        raise NotImplementedError(f"the fake broker cannot list by {told['operation']}")
    field = view[told["field"].lower()]
    found = [one for one in all_of_them if field(one) == told["value"]]
    data = [{name: tell(one) for name, tell in view.items()} for one in found]
    return json.dumps({"data": data, "count": len(data)})


#: How to read each field of a listed queue.
_QUEUE_VIEW: Final[Mapping[str, Callable[[ArtemisQueue], str]]] = {
    "name": lambda queue: queue.name,
    "address": lambda queue: queue.address,
    "filter": lambda queue: queue.selector.text if queue.selector is not None else "",
    "durable": lambda queue: str(not queue.temporary).lower(),
    "temporary": lambda queue: str(queue.temporary).lower(),
    "autoDelete": lambda _: "false",
    "routingType": lambda queue: str(queue.routing),
    "messageCount": lambda queue: str(len(queue)),
    "consumerCount": lambda queue: str(len(queue.consumers)),
    "purgeOnNoConsumers": lambda _: "false",
    "lastValue": lambda _: "false",
    "ringSize": lambda _: "-1",
    "enabled": lambda _: "true",
    "internalQueue": lambda _: "false",
}

#: How to read each field of a listed address.
_ADDRESS_VIEW: Final[Mapping[str, Callable[[Address], str]]] = {
    "name": lambda address: address.name,
    "routingTypes": lambda address: json.dumps(sorted(map(str, address.routings))),
}


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
