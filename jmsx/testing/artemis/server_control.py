"""
The management of the whole broker: what is set for an address, which queues and addresses there are, and their end.

Source: artemis-server 2.44.0 ActiveMQServerControlImpl, QueueView and AddressView, with the words of a live broker.
All values of a view are texts.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from jmsx.testing.artemis.address import Address
    from jmsx.testing.artemis.house import ArtemisHouse
    from jmsx.testing.artemis.queue import ArtemisQueue


class Failed(Exception):  # noqa: N818 - the broker's answer, not an error of ours
    """The broker did not do it; the text is its answer."""


def call(house: ArtemisHouse, operation: str, arguments: list[Any]) -> object:
    """What the operation returns; raises Failed, and NotImplementedError for one that the fake broker has not."""
    if operation not in _OPERATIONS:
        raise NotImplementedError(f"the fake broker has no management of broker: {operation}")
    return _OPERATIONS[operation](house, *arguments)


def _settings(house: ArtemisHouse, address: str) -> str:
    settings = house.manners.match(address)
    told = {
        "maxDeliveryAttempts": settings.max_delivery_attempts,
        "redeliveryDelay": round(settings.redelivery_delay * 1000),
        "deadLetterAddress": settings.dead_letter_address,
        "expiryAddress": settings.expiry_address,
    }
    return json.dumps({name: value for name, value in told.items() if value is not None})


def _list_queues(house: ArtemisHouse, wanted: str, *_: int) -> str:
    return _page(wanted, (_queue_view(queue) for queue in house.queues.values()))


def _list_addresses(house: ArtemisHouse, wanted: str, *_: int) -> str:
    return _page(wanted, (_address_view(address) for address in house.addresses.values()))


def _page(wanted: str, views: Iterable[Mapping[str, str]]) -> str:
    """The views that a filter for one field lets through; EQUALS is the only operation."""
    told = json.loads(wanted)
    if told["operation"] != "EQUALS":
        raise NotImplementedError(f"the fake broker cannot list by {told['operation']}")
    data = [view for view in views if view[told["field"].lower()] == told["value"]]
    return json.dumps({"data": data, "count": len(data)})


def _queue_view(queue: ArtemisQueue) -> dict[str, str]:
    return {
        "name": queue.name,
        "address": queue.address,
        "filter": queue.selector.header if queue.selector is not None else "",
        "durable": _text(not queue.temporary),
        "temporary": _text(queue.temporary),
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


def _destroy(house: ArtemisHouse, name: str) -> None:
    queue = house.queues.get(name)
    if queue is None:
        raise Failed(f"AMQ229017: Queue {name} does not exist")
    if queue.consumers:
        raise Failed(
            f"AMQ229025: Cannot delete queue {name} on binding {name} - it has consumers ="
            " org.apache.activemq.artemis.core.postoffice.impl.LocalQueueBinding"
        )
    house.delete_queue(queue)


def _text(flag: bool) -> str:  # noqa: FBT001 - a value, not an option
    return str(flag).lower()


_OPERATIONS: Final[Mapping[str, Callable[..., object]]] = {
    "getAddressSettingsAsJSON": _settings,
    "listQueues": _list_queues,
    "listAddresses": _list_addresses,
    "destroyQueue": _destroy,
}
