"""The operations of Artemis' management that jmsx uses, each as a question and what its answer means."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, TypeAlias

from jmsx.core.frames import Frame
from jmsx.core.headers import whole
from jmsx.core.management import Inquiry, Question
from jmsx_artemis.settings import AddressSettings

if TYPE_CHECKING:
    from collections.abc import Mapping


#: One queue as `listQueues` tells it: all values are texts.
Queue: TypeAlias = "Mapping[str, str]"


#: `management-address`, as long as nobody has given it another name in broker.xml.
ADDRESS: Final = "activemq.management"

#: Queues or addresses in one answer; nobody has so many of one name.
_PAGE: Final = 1000


def command(question: Question) -> Frame:
    """Return the SEND that has the broker do it, without a place for the answer."""
    headers = {
        "destination": ADDRESS,
        "_AMQ_ResourceName": question.resource,
        "_AMQ_OperationName": question.operation,
    }
    return Frame("SEND", headers, json.dumps(question.arguments).encode())


def address_settings(address: str) -> Inquiry[AddressSettings]:
    """Return what is set for an address."""
    told = yield Question("broker", "getAddressSettingsAsJSON", (address,))
    return AddressSettings.read(address, told)


def queues(field: str, value: str) -> Inquiry[list[Queue]]:
    """Return the queues whose `field` (NAME, ADDRESS) is `value`."""
    told = yield Question("broker", "listQueues", (_filter(field, value), 1, _PAGE))
    found: list[Queue] = json.loads(told)["data"]
    return found


def consumers(queue: str) -> Inquiry[int]:
    """Return how many messages the consumers of a queue have, unsettled or acknowledged in an open transaction."""
    told = yield Question("broker", "listConsumers", (_filter("QUEUE", queue), 1, _PAGE))
    return sum(
        count(one, "messagesInTransit") + count(one, "messagesAcknowledgedAwaitingCommit")
        for one in json.loads(told)["data"]
    )


def count(told: Mapping[str, Any], field: str) -> int:
    """Return a number that the management tells, as a text or not; raises ValueError for what is none."""
    number = whole(str(told[field]))
    if number is None:
        raise ValueError(f"{field} is {told[field]!r}")
    return number


def routing_types(address: str) -> Inquiry[frozenset[str]]:
    """Return how an address spreads messages over its queues: ANYCAST, MULTICAST, both; none if it does not exist."""
    told = yield Question("broker", "listAddresses", (_filter("NAME", address), 1, _PAGE))
    found = json.loads(told)["data"]
    return frozenset(json.loads(found[0]["routingTypes"])) if found else frozenset()


def make_queue(queue: str, routing_type: str) -> Inquiry[None]:
    """Make a queue of its own address, as a sender would have it made: it goes when it is empty and nobody reads it."""
    wanted = {"name": queue, "address": queue, "routing-type": routing_type, "durable": True}
    options = {**wanted, "auto-create-address": True, "auto-created": True, "auto-delete": True}
    yield Question("broker", "createQueue", (json.dumps(options), True))


def destroy(queue: str) -> Inquiry[None]:
    """Remove a queue that nobody reads, with what lies in it."""
    yield Question("broker", "destroyQueue", (queue,))


def refilter(queue: str, selector: str) -> Inquiry[None]:
    """Give a queue another filter; what lies in it stays."""
    yield Question(
        "broker", "updateQueue", (json.dumps({"name": queue, "filter-string": selector}),)
    )


def _filter(field: str, value: str) -> str:
    return json.dumps({"field": field, "operation": "EQUALS", "value": value})
