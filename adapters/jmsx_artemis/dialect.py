"""
The dialect of ActiveMQ Artemis 2.33 and later.

Its STOMP differs from Classic's in almost everything that matters: an ACK takes effect at once, in a transaction too;
NACK deletes; the window is in bytes; a message id holds for one subscription only; a SEND that no queue takes vanishes
with a RECEIPT. Source: BROKER.md.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.dialect import Dialect
from jmsx.core.headers import LONG
from jmsx_artemis.bodies import TYPE_HEADER
from jmsx_artemis.copies import CLIENT, OPENWIRE, ArtemisCopying
from jmsx_artemis.dead_letter_queues import OWN
from jmsx_artemis.management import ArtemisManagement
from jmsx_artemis.reading import ArtemisReading
from jmsx_artemis.window import ByteWindow
from jmsx_artemis.writing import ArtemisWriting


class _Reserved:
    """
    Header names reserved for the broker or this dialect, with those in which the broker keeps OpenWire fields.

    If an application set `__HDR_MESSAGE_ID`, a JMS client would take its value for the JMSMessageID.
    Source: `OpenWireConstants.java:21-57`, `MessageUtil.getPropertyNames`; probed on 2.44.0.
    """

    _NAMES: Final = frozenset(
        {
            "destination-type", "ingress-timestamp", "receipt-id", TYPE_HEADER, CLIENT,
            "_AMQ_GROUP_SEQUENCE", "_AMQ_ROUTING_TYPE",
        }
    )  # fmt: skip

    def __contains__(self, name: object) -> bool:
        """Return True if no application may set or see this header as a property."""
        return isinstance(name, str) and (name in self._NAMES or name.startswith(OPENWIRE))


_WRITING: Final = ArtemisWriting()
_READING: Final = ArtemisReading()

DIALECT: Final = Dialect(
    name="artemis",
    server="ActiveMQ-Artemis/",
    sharing=(
        "Artemis makes no shared subscriptions over STOMP: let a divert of the broker put the topic's messages into a"
        " queue, and share that"
    ),
    dead_letter_queue=OWN.destination,
    writing=_WRITING,
    reading=_READING,
    copying=ArtemisCopying(_WRITING, _READING),
    window=ByteWindow,
    management=ArtemisManagement(),
    header_limit=64 * 1024,  # a large message's header block of 100 KiB is refused (BROKER.md A52)
    # `message-id` has the same value as `ack`. The broker writes `ack` after the properties, so a property named `ack`
    # would win over it (seen live on 2.44.0); a forwarder that sends on all headers of a MESSAGE makes such a property.
    # Source: `StompFrameHandlerV12.java:53-64`.
    ack_header="message-id",
    duplicate_id_header="_AMQ_DUPL_ID",  # per address, 20,000 ids (BROKER.md A14)
    delay_header="AMQ_SCHEDULED_DELAY",
    always_delays=True,
    transactional_ack=False,
    global_temporaries=True,
    patience=60.0,  # connection-ttl-override, if nobody has lowered it (BROKER.md A3)
    flags_redelivery=False,  # not after UNSUBSCRIBE, and else of the oldest only (BROKER.md A37)
    numbers={"AMQ_SCHEDULED_DELAY": (0, LONG), "AMQ_SCHEDULED_TIME": (0, LONG)},
    reserved=_Reserved(),
    internal=frozenset({"_AMQ_DUPL_ID"}),  # a second message with it would be dropped
)
