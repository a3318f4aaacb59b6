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


#: One queue as `listQueues` returns it: all values are strings.
Queue: TypeAlias = "Mapping[str, str]"


#: The default `management-address`; broker.xml may set another one.
ADDRESS: Final = "activemq.management"

#: Queues or addresses in one answer: more than ever match one name.
_PAGE: Final = 1000


def command(question: Question) -> Frame:
    """Return the SEND that has the broker carry out `question`, without a `reply-to` for the answer."""
    headers = {
        "destination": ADDRESS,
        "_AMQ_ResourceName": question.resource,
        "_AMQ_OperationName": question.operation,
    }
    return Frame("SEND", headers, json.dumps(question.arguments).encode())


def address_settings(address: str) -> Inquiry[AddressSettings]:
    """Ask for the address-setting that holds for `address`."""
    told = yield Question("broker", "getAddressSettingsAsJSON", (address,))
    return AddressSettings.read(address, told)


def queues(field: str, value: str) -> Inquiry[list[Queue]]:
    """Return the queues whose `field` (NAME, ADDRESS) is `value`."""
    told = yield Question("broker", "listQueues", (_filter(field, value), 1, _PAGE))
    found: list[Queue] = json.loads(told)["data"]
    return found


def consumers(queue: str) -> Inquiry[int]:
    """Return how many messages the consumers of a queue hold, unacknowledged or acknowledged in an open transaction."""
    told = yield Question("broker", "listConsumers", (_filter("QUEUE", queue), 1, _PAGE))
    return sum(
        count(one, "messagesInTransit") + count(one, "messagesAcknowledgedAwaitingCommit")
        for one in json.loads(told)["data"]
    )


def count(told: Mapping[str, Any], field: str) -> int:
    """Return a field of a management answer as a number, even if given as text; raises ValueError if it is none."""
    number = whole(str(told[field]))
    if number is None:
        raise ValueError(f"{field} is {told[field]!r}")
    return number


def routing_types(address: str) -> Inquiry[frozenset[str]]:
    """Return the routing types of an address: ANYCAST, MULTICAST or both; an empty set if it does not exist."""
    told = yield Question("broker", "listAddresses", (_filter("NAME", address), 1, _PAGE))
    found = json.loads(told)["data"]
    return frozenset(json.loads(found[0]["routingTypes"])) if found else frozenset()


def make_queue(queue: str, routing_type: str) -> Inquiry[None]:
    """Make a queue on the address of the same name, auto-deleted when empty and unread, as a SEND would make it."""
    wanted = {"name": queue, "address": queue, "routing-type": routing_type, "durable": True}
    options = {**wanted, "auto-create-address": True, "auto-created": True, "auto-delete": True}
    yield Question("broker", "createQueue", (json.dumps(options), True))


def destroy(queue: str) -> Inquiry[None]:
    """Remove a queue that has no consumers, with its messages."""
    yield Question("broker", "destroyQueue", (queue,))


def refilter(queue: str, selector: str) -> Inquiry[None]:
    """Give a queue another filter; its messages stay."""
    yield Question(
        "broker", "updateQueue", (json.dumps({"name": queue, "filter-string": selector}),)
    )


def _filter(field: str, value: str) -> str:
    return json.dumps({"field": field, "operation": "EQUALS", "value": value})
