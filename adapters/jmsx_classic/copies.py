"""
Copies of messages on Classic: dead letters, and messages that are sent back for a later redelivery.

Source: `AbstractDeadLetterStrategy.java:44-60`, at 6.3.1.
"""

from __future__ import annotations

import re
from typing import Final

from jmsx.core.death_headers import DEATH_HEADERS, MESSAGE_LIMIT, DeathRecord, Room, cut, fitting
from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import destination_uri
from jmsx.core.dialect import Copying, Reading, Writing
from jmsx.core.frames import Frame
from jmsx.core.headers import (
    COUNT_HEADER,
    GROUP_HEADERS,
    INT,
    KEY_HEADER,
    LONG,
    TIME_HEADER,
    UNREADABLE_HEADER,
    sent_ms,
    time_ms,
    whole,
)
from jmsx.core.values import ConsumerSettings, DestinationKind
from jmsx_classic.bodies import TEXT_HEADER, TRANSLATION_HEADER, looks_like_map

#: The shared dead letter queue (`SharedDeadLetterStrategy.java:36`) and the beginning of every individual one.
DEAD_LETTER_QUEUE: Final = "ActiveMQ.DLQ"

#: Limits for the headers of a copy, whose values are cut to fit: the broker closes the connection over more than 1,000
#: headers, or a line of more than 10,240 bytes (`StompWireFormat.java:46-48`).
ROOM: Final = Room(lines=950, line=10_000, total=4_000_000)

#: MESSAGE headers that a copy keeps; those that the broker sets itself, or that hold for one connection, are left out.
_CARRIED: Final = frozenset({"correlation-id", "reply-to", "type", "priority", "timestamp"})

#: Headers of MESSAGE that are not properties of the application.
_BROKER_OWN: Final = frozenset(
    {
        "destination", "message-id", "ack", "subscription", "redelivered", "expires", "persistent", "receipt",
        "receipt-id", "transaction", "content-length", "original-destination", "originalExpiration",
        "originalDeliveryMode", "dlqDeliveryFailureCause", "JMSXUserID", "JMSXDeliveryCount", "scheduledJobId",
        "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON",
        "transformation-error",
    }
)  # fmt: skip


#: The body of a truncated message's dead letter is all that was read of the message. In it a line "ack:…" gets a blank
#: in front: it could not be told from the header by which the dead letter itself is acknowledged (BROKER.md C49).
_ACK_LINE: Final = b"\nack:"
_QUOTED_ACK_LINE: Final = b"\n ack:"

#: Matches a destination as the broker writes it in STOMP headers.
_DESTINATION: Final = re.compile("/(remote-)?(temp-)?(queue|topic)/.")


class ClassicCopying(Copying):
    """Makes the copies that replace a message on Classic."""

    def __init__(self, writing: Writing, reading: Reading) -> None:
        self._writing = writing
        self._reading = reading

    def dead_lettered_by_broker(
        self, delivery: Delivery, kind: DestinationKind, *, asked: bool = False
    ) -> bool:
        """
        Return whether a NACK moves this message to a dead letter queue; otherwise a NACK deletes it.

        Deleted are non-persistent messages, those of a topic without a durable subscription, and those from a dead
        letter queue. If jmsx did not send the message, its headers may be forged by the sender, so the result is False
        and a copy is made. But the headers are believed if no body came, since the broker may have a body that a copy
        would lack, and if the broker is to be `asked` in any case.
        Source: `AbstractDeadLetterStrategy.java:44-60`, `RegionBroker.sendToDeadLetterQueue`.
        """
        headers = delivery.headers
        whole = bool(delivery.frame.body) or "content-length" in headers
        if whole and not asked and not self._reading.genuine(delivery):
            return False
        if headers.get("persistent") != "true" or kind is DestinationKind.TOPIC:
            return False
        if "original-destination" in headers:
            return False  # fanned out: the shared dead letter queue keeps only one of the copies (its audit)
        places = (destination_uri(headers.get("destination")) or "", delivery.arrival.subscribed)
        return not any(one.startswith(f"queue://{DEAD_LETTER_QUEUE}") for one in places)

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Return the SEND of a copy with the original's headers and body, and with the reason of its death."""
        headers = dead_letter_headers(delivery, death)
        headers.update(self._writing.send_headers(destination))
        if not self._reading.carries(delivery.headers, delivery.frame.body):
            headers[UNREADABLE_HEADER] = "true"
        body = delivery.frame.body
        if delivery.frame.raw:  # of a truncated message, for people
            body = delivery.frame.raw.replace(_ACK_LINE, _QUOTED_ACK_LINE)
            headers["content-length"] = str(len(body))
        return Frame("SEND", headers, body)

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """Return the SEND of a copy that the broker is to deliver in `delay` seconds."""
        headers = postponed_headers(delivery, key, delay)
        headers.update(self._writing.send_headers(settings.destination))
        return Frame("SEND", headers, delivery.frame.body)


def dead_letter_headers(delivery: Delivery, death: DeathRecord) -> dict[str, str]:
    """Return the headers that the copy keeps, and those that say why it is dead, without its destination."""
    given = delivery.headers
    headers = _carried(delivery)
    headers["persistent"] = "true"
    headers["originalExpiration"] = given.get("expires", "0")
    if given.get("persistent") != "true":
        headers["originalDeliveryMode"] = "NON_PERSISTENT"
    headers["dlqDeliveryFailureCause"] = failure_cause(death)
    return headers | death.headers(delivery.message_id)


def postponed_headers(delivery: Delivery, key: str, delay: float) -> dict[str, str]:
    """Return the headers of a message sent back for redelivery in `delay` seconds, without its destination."""
    given = delivery.headers
    headers = _carried(delivery)
    headers["persistent"] = given.get("persistent", "false")
    if time_ms(given.get("expires")) is not None:
        headers |= {"expires": given["expires"], "timestamp": "0"}  # BROKER.md C78
        if (sent := sent_ms(given)) is not None:
            headers[TIME_HEADER] = str(sent)
    return headers | {
        KEY_HEADER: key,
        COUNT_HEADER: str(delivery.failures),
        "AMQ_SCHEDULED_DELAY": str(round(delay * 1000)),
    }


def replayed_headers(delivery: Delivery) -> dict[str, str]:
    """Return the headers of a dead letter that is sent back, without those of its death, expiry and destination."""
    return {**_carried(delivery), "persistent": "true"}


def _carried(delivery: Delivery) -> dict[str, str]:
    given = delivery.headers
    left = _BROKER_OWN | DEATH_HEADERS
    names = sorted(given, key=lambda name: not (name in _CARRIED or name.startswith("jmsx_")))
    headers = {name: given[name] for name in names if name in _CARRIED or name not in left}
    headers |= {name: given[told] for name, told in GROUP_HEADERS.items() if told in given}
    headers = {name: value for name, value in headers.items() if _is_taken(name, value)}
    if given.get(TEXT_HEADER) == "true" or not looks_like_map(delivery.frame.body):
        # it came from the subscription: on a SEND it would have the broker parse a text as a map
        headers.pop(TRANSLATION_HEADER, None)
    headers = fitting(headers, ROOM)
    if "content-length" in given:
        headers["content-length"] = str(len(delivery.frame.body))
    return headers


def _is_taken(name: str, value: str) -> bool:
    """
    Return whether the broker accepts this header on a SEND: because of some invalid values it refuses the message or
    closes the connection.

    Source: `FrameTranslator.java:94-159`, `LegacyFrameTranslator.java:45-120`.
    """
    match name:
        case "priority" | "JMSXGroupSeq":
            return whole(value, least=~INT, most=INT) is not None
        case "timestamp":
            return whole(value, least=~LONG) is not None
        case "reply-to":
            return _DESTINATION.match(value) is not None
        case "amq-msg-type":
            return value in {"text", "bytes"}
        case _:
            return True


def failure_cause(death: DeathRecord) -> str:
    """
    Return why the message died, as the Java client words it.

    Source: `ActiveMQMessageConsumer.java:1287-1291`.
    """
    cause = "null"
    if death.error_type is not None:
        cause = f"{death.error_type}: {death.error_message or ''}"
    text = (
        f"java.lang.Throwable: Delivery[{death.delivery_count}] exceeds redelivery policy limit:"
        f"RedeliveryPolicy {{maximumRedeliveries = {death.limit}}}, cause:{cause}"
    )
    return cut(text, MESSAGE_LIMIT)
