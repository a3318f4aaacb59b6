"""
The headers of a dead letter's copy.

Names are safe in selectors. Values are cut to what fits a header line: Classic closes the connection over a line longer
than 10,240 bytes (`StompWireFormat.java:46-50`).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.frames import escape

if TYPE_CHECKING:
    from jmsx.core.delivery import Delivery
    from jmsx.core.dialect import DeathCertificate

MESSAGE_LIMIT: Final = 1024  #: bytes of jmsx_exception_message
STACK_LIMIT: Final = 8192  #: bytes of jmsx_stack, the end of it

#: Bytes of a carried header's line: rather a value that is cut than a copy that cannot be sent.
LINE_LIMIT: Final = 10_000

#: MESSAGE headers that a SEND may carry on; what the broker makes itself, and what binds to a connection, stays behind.
_CARRIED: Final = frozenset({"correlation-id", "reply-to", "type", "priority", "timestamp"})

#: Headers of MESSAGE that are not properties of the application.
_BROKER_OWN: Final = frozenset(
    {
        "destination", "message-id", "ack", "subscription", "redelivered", "expires", "persistent", "receipt",
        "receipt-id", "transaction", "content-length", "original-destination", "originalExpiration",
        "originalDeliveryMode", "dlqDeliveryFailureCause", "JMSXUserID", "JMSXDeliveryCount", "scheduledJobId",
        "AMQ_SCHEDULED_DELAY", "AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON",
    }
)  # fmt: skip


def dead_letter_headers(delivery: Delivery, certificate: DeathCertificate) -> dict[str, str]:
    """What the copy carries on, and the certificate; without its destination."""
    given = delivery.headers
    headers = {
        name: cut(value, LINE_LIMIT - len(name))
        for name, value in given.items()
        if name in _CARRIED or (name not in _BROKER_OWN and not name.startswith("jmsx_death"))
    }
    headers["persistent"] = "true"
    if "content-length" in given:
        headers["content-length"] = str(len(delivery.frame.body))
    headers["originalExpiration"] = given.get("expires", "0")
    if given.get("persistent") != "true":
        headers["originalDeliveryMode"] = "NON_PERSISTENT"
    headers.update(
        {
            "dlqDeliveryFailureCause": failure_cause(certificate),
            "jmsx_death_reason": certificate.reason,
            "jmsx_original_destination": certificate.destination,
            "jmsx_original_message_id": delivery.message_id,
            "jmsx_delivery_count": str(certificate.delivery_count),
            "jmsx_consumer": certificate.consumer,
            "jmsx_host": certificate.host,
        }
    )
    for name, epoch_ms in (
        ("jmsx_first_failure", certificate.first_failure),
        ("jmsx_last_failure", certificate.last_failure),
    ):
        if epoch_ms is not None:
            headers[name] = str(epoch_ms)
    if certificate.error_type is not None:
        headers["jmsx_exception"] = certificate.error_type
    if certificate.error_message is not None:
        headers["jmsx_exception_message"] = cut(certificate.error_message, MESSAGE_LIMIT)
    if certificate.stack is not None:
        headers["jmsx_stack"] = cut(certificate.stack, STACK_LIMIT, keep_end=True)
    return headers


def failure_cause(certificate: DeathCertificate) -> str:
    """
    Why the message died, as the Java client words it.

    Source: `ActiveMQMessageConsumer.java:1287-1291`.
    """
    cause = "null"
    if certificate.error_type is not None:
        cause = f"{certificate.error_type}: {certificate.error_message or ''}"
    text = (
        f"java.lang.Throwable: Delivery[{certificate.delivery_count}] exceeds redelivery policy limit:"
        f"RedeliveryPolicy {{maximumRedeliveries = {certificate.limit}}}, cause:{cause}"
    )
    return cut(text, MESSAGE_LIMIT)


def cut(text: str, limit: int, *, keep_end: bool = False) -> str:
    """`text` in at most `limit` bytes of a header line, escapes included, without a broken character."""
    clean = text.encode(
        "utf-8", "replace"
    ).decode()  # an exception may speak of a file that is no UTF-8
    while (size := len(escape(clean).encode())) > limit:
        keep = max(len(clean) * limit // size, len(clean) - size + limit)
        keep = min(keep, len(clean) - 1)
        clean = clean[-keep:] if keep_end and keep else clean[:keep]
    return clean
