"""
Where a copy of a dead letter is safe on Artemis.

The broker answers a SEND with RECEIPT even when no queue takes the message, and a dead letter address may have no
queue, or one with a filter, or one that is removed when it is empty (BROKER.md A7 and A46). So a copy goes by its full
name to a queue that keeps what it gets, or if there is none to a queue of jmsx's own. The queue that the broker makes
for the dead letters of one address is removed when it is empty, and a SEND would make it anew without its filter: it
would then take the dead letters of other addresses, too. So before each copy the broker is told to make that queue as
the broker itself would.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from jmsx.core.management import DeadLetterQueue, Inquiry, Question
from jmsx_artemis.destinations import ANYCAST, MULTICAST
from jmsx_artemis.questions import Queue, address_settings, command, queues
from jmsx_artemis.settings import AddressSettings

if TYPE_CHECKING:
    from collections.abc import Sequence


#: Where copies go when no safe queue is known: an anycast queue of jmsx's own, made at its first use.
DEAD_LETTER_QUEUE: Final = "jmsx.DLQ"

OWN: Final = DeadLetterQueue(f"queue://{DEAD_LETTER_QUEUE}")


def choose_dead_letter_queue(
    settings: AddressSettings, lying: Sequence[Queue]
) -> Inquiry[DeadLetterQueue]:
    """Return the queue for copies of an address's dead letters; `lying` are the queues of its dead letter address."""
    address = settings.dead_letter_address
    if not address:
        return OWN
    if settings.auto_create_dead_letter_resources and address != settings.address:
        made = yield from _made_by_broker(settings, lying)
        if made is not None:
            return made
    safe = sorted((queue for queue in lying if _safe(queue, settings)), key=_preference)
    return DeadLetterQueue(_uri(safe[0], lying)) if safe else OWN


def _made_by_broker(
    settings: AddressSettings, lying: Sequence[Queue]
) -> Inquiry[DeadLetterQueue | None]:
    """Return the queue that the broker makes for the dead letters of one address; None if it cannot be relied on."""
    name, address = settings.dead_letter_queue, settings.dead_letter_address
    if "'" in settings.address or "::" in name:
        return None
    known = next((queue for queue in lying if queue["name"] == name), None)
    if known is None and (yield from queues("NAME", name)):
        return None  # a queue of that name belongs to another address
    if known is not None:
        ours = known["filter"] in ("", settings.dead_letter_filter)
        if not ours or not keeps(known, internal="false"):  # such a queue is not internal
            return None
        routing = known["routingType"]
    else:
        there = yield from address_settings(str(address))
        routing = there.default_queue_routing_type
    configuration = {
        "name": name,
        "address": address,
        "routing-type": routing,
        "filter-string": settings.dead_letter_filter,
        "auto-created": True,
        "auto-create-address": True,
    }
    make = Question("broker", "createQueue", (json.dumps(configuration), True))
    kind = "queue" if routing == ANYCAST else "topic"
    return DeadLetterQueue(f"{kind}://{address}::{name}", before=(command(make),))


def _safe(queue: Queue, settings: AddressSettings) -> bool:
    """Return whether a copy that is sent to this queue gets into it and stays there."""
    ours = queue["filter"] in ("", settings.dead_letter_filter)
    lasting = queue["routingType"] == ANYCAST or queue["autoDelete"] == "false"
    return ours and lasting and keeps(queue)


def keeps(queue: Queue, internal: str = "unknown") -> bool:
    """
    Return whether a queue keeps every message until somebody takes it.

    `internal`: what to assume where the broker does not tell whether the queue is an internal one (BROKER.md A73).
    """
    return (
        queue["durable"] == "true"
        and queue["temporary"] == "false"
        and queue.get("internalQueue", internal) == "false"
        and queue["enabled"] == "true"
        and queue["purgeOnNoConsumers"] == "false"
        and queue["lastValue"] == "false"
        and queue["ringSize"] == "-1"
    )


def _preference(queue: Queue) -> tuple[bool, bool, bool, str]:
    """Return a key to sort by: queues for this address first, then those called like the address, then anycast ones."""
    return (
        not queue["filter"],
        queue["name"] != queue["address"],
        queue["routingType"] == MULTICAST,
        queue["name"],
    )


def _uri(queue: Queue, lying: Sequence[Queue]) -> str:
    """Return the URI of the queue: with its full name, or only its address if that has no other anycast queue."""
    anycast = [one for one in lying if one["routingType"] == ANYCAST]
    name, address = queue["name"], queue["address"]
    if queue not in anycast:
        return f"topic://{address}::{name}"
    return (
        f"queue://{address}"
        if anycast == [queue] and name == address
        else f"queue://{address}::{name}"
    )
