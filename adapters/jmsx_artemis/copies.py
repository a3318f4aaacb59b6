"""
The headers of a dead letter's copy on Artemis, by which the broker's own tools treat it like a dead letter of its own.

An auto-created dead letter queue filters by `_AMQ_ORIG_ADDRESS`, and management's `retryMessages` sends a message back
to where `_AMQ_ORIG_ADDRESS` and `_AMQ_ORIG_QUEUE` say. Source: BROKER.md A46 and A47.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.death_headers import DEATH_HEADERS, DeathRecord, Room, fitting
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Copying, Reading, Writing
from jmsx.core.frames import Frame
from jmsx.core.headers import COUNT_HEADER, KEY_HEADER, UNREADABLE_HEADER
from jmsx.core.values import ConsumerSettings
from jmsx_artemis.bodies import TYPE_HEADER, has_bytes
from jmsx_artemis.destinations import parted

#: Limits in bytes for what a copy says of the failure: a value is better cut than the copy refused for its size.
ROOM: Final = Room(lines=10_000, line=16_000, total=64_000)

#: Bytes from which a body may become a large message: the broker stores a text with two bytes for each character. It
#: refuses a large message whose headers, stored likewise, exceed 100 KiB (BROKER.md A52), so its copy has less room.
LARGE: Final = 50_000
ROOM_OF_A_LARGE_ONE: Final = Room(lines=500, line=16_000, total=36_000)

#: The property in which a JMS client's message names the connection that sent it.
CLIENT: Final = "__AMQ_CID"

#: The prefix of the properties in which the broker keeps the OpenWire fields of a message.
OPENWIRE: Final = "__HDR_"

#: Headers of MESSAGE that a copy leaves out: those that the broker sets itself, and those that hold for one connection.
_LEFT: Final = frozenset(
    {
        "destination", "destination-type", "message-id", "ack", "subscription", "redelivered", "expires", "persistent",
        "receipt", "receipt-id", "transaction", "content-length", "timestamp", "ingress-timestamp", "JMSXUserID",
        "JMSXDeliveryCount", "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_TIME", "_AMQ_SCHED_DELIVERY", "_AMQ_DUPL_ID",
        "_AMQ_GROUP_ID", "_AMQ_ORIG_ADDRESS", "_AMQ_ORIG_QUEUE", "_AMQ_ORIG_MESSAGE_ID", "_AMQ_ORIG_ROUTING_TYPE",
        "_AMQ_ACTUAL_EXPIRY", "_AMQ_GROUP_SEQUENCE", CLIENT,
    }
)  # fmt: skip


class ArtemisCopying(Copying):
    """Makes the copies that replace a message on Artemis, where a NACK deletes the original (BROKER.md A27)."""

    def __init__(self, writing: Writing, reading: Reading) -> None:
        self._writing = writing
        self._reading = reading

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Return the SEND of a copy that the broker's management can retry."""
        _, address = parted(death.destination)
        headers = dead_letter_headers(delivery, death, address)
        if not self._reading.carries(delivery.headers, delivery.frame.body):
            headers[UNREADABLE_HEADER] = "true"
        return self._copy(delivery, headers, destination)

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """Return the SEND of a copy that the broker is to deliver in `delay` seconds."""
        headers = postponed_headers(delivery, settings, key, delay)
        return self._copy(delivery, headers, settings.destination)

    def _copy(self, delivery: Delivery, headers: dict[str, str], destination: str) -> Frame:
        body = delivery.frame.body
        if has_bytes(delivery.headers):
            headers["content-length"] = str(len(body))
        elif b"\0" in body:  # a text would end at the NUL, so send a BytesMessage
            headers = {TYPE_HEADER: "text", **headers, "content-length": str(len(body))}
        return Frame("SEND", headers | self._writing.send_headers(destination), body)


def dead_letter_headers(delivery: Delivery, death: DeathRecord, address: str) -> dict[str, str]:
    """Return the headers that the copy keeps, and those that say why it is dead; `address` is the original's."""
    headers = _carried(delivery)
    headers["persistent"] = "true"
    headers["_AMQ_ORIG_ADDRESS"] = address.partition("::")[0]
    queue = queue_name(death, address)
    if queue is not None:
        headers["_AMQ_ORIG_QUEUE"] = queue
    headers["_AMQ_ORIG_MESSAGE_ID"] = delivery.message_id
    headers["_AMQ_DUPL_ID"] = f"jmsx-dead:{queue or death.origin}:{delivery.message_id}"
    return headers | death.headers(delivery.message_id)


def postponed_headers(
    delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
) -> dict[str, str]:
    """Return the headers of a message sent back for redelivery in `delay` seconds, without its destination."""
    given = delivery.headers
    headers = _carried(delivery)
    headers["persistent"] = given.get("persistent", "false")
    if given.get("expires", "0") != "0":
        headers["expires"] = given["expires"]
    count = str(delivery.failures)
    identity = f"jmsx-retry:{settings.origin}:{delivery.message_id}:{count}"
    return headers | {
        KEY_HEADER: key,
        COUNT_HEADER: count,
        "AMQ_SCHEDULED_DELAY": str(round(delay * 1000)),
        "_AMQ_DUPL_ID": identity,
    }


def _carried(delivery: Delivery) -> dict[str, str]:
    given = delivery.headers
    names = sorted(given, key=lambda name: not name.startswith("jmsx_"))
    headers = {
        name: given[name]
        for name in names
        if name not in _LEFT and name not in DEATH_HEADERS and not name.startswith(OPENWIRE)
    }
    if "_AMQ_GROUP_ID" in given:
        headers["JMSXGroupID"] = given["_AMQ_GROUP_ID"]
    return fitting(headers, ROOM if len(delivery.frame.body) < LARGE else ROOM_OF_A_LARGE_ONE)


def queue_name(death: DeathRecord, address: str) -> str | None:
    """Return the queue that the message was consumed from; None for a subscription that ends with its consumer."""
    if death.destination.startswith("queue://"):
        return address.rpartition("::")[2]
    _, durable, subscription = death.origin.rpartition("durable:")
    return subscription if durable else None
