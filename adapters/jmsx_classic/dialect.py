"""The dialect of ActiveMQ Classic 5.16 and later."""

from __future__ import annotations

from typing import Final

from jmsx.core.dialect import BrokerSettings, Dialect
from jmsx.core.headers import INT, LONG
from jmsx.core.wire import RawHeads
from jmsx_classic.bodies import TEXT_HEADER, TRANSLATION_HEADER
from jmsx_classic.copies import DEAD_LETTER_QUEUE, ClassicCopying
from jmsx_classic.reading import ClassicReading
from jmsx_classic.window import MessageWindow
from jmsx_classic.writing import ClassicWriting

_WRITING: Final = ClassicWriting()
_READING: Final = ClassicReading()


def _origin(session: str) -> str:
    """Return the prefix of a broker's ids with host, port and start time, as in `ID:host-35401-1700000000000-3:1`."""
    before, dash, _ = session.rpartition("-")
    return before + dash


#: How the broker orders the headers of a frame, with property names unescaped (measured on 6.1.8): in the order of a
#: Java HashMap, so a sender can choose between which of the broker's headers its own stand. In maps so large that `ack`
#: follows `subscription`, `priority` or `timestamp` precedes `ack`, except with 49,153 to 98,304 headers.
#: Source: `FrameTranslator.copyStandardHeadersFromMessageToFrame`, `StompSubscription.onMessageDispatch`.
HEADS: Final = RawHeads(
    message=(b"expires", b"priority", b"timestamp"),
    error=(b"message:", b"content-type:text/plain"),
    browser_end=(b"browser", b"end"),
    tell_order=(b"priority", b"timestamp"),
    ordered=24_576,
    origin=_origin,
)

DIALECT: Final = Dialect(
    name="classic",
    server="ActiveMQ/",
    sharing=(
        "ActiveMQ Classic has no shared subscriptions: send to a virtual topic (topic://VirtualTopic.X) and share"
        " queue://Consumer.NAME.VirtualTopic.X"
    ),
    dead_letter_queue=f"queue://{DEAD_LETTER_QUEUE}",
    writing=_WRITING,
    reading=_READING,
    copying=ClassicCopying(_WRITING, _READING),
    settings=BrokerSettings(
        scheduler=" (schedulerSupport)",
        priorities=" (prioritizedMessages, in a policy)",
        frame_size=" (wireFormat.maxFrameSize)",
    ),
    window=MessageWindow,
    header_limit=10_240,  # `StompWireFormat.java:46-50`: a longer line closes the connection
    translation_header=TRANSLATION_HEADER,
    takes_timestamps=True,  # the broker keeps a client's timestamp, as JMS does
    browser_end=("browser", "end"),
    delay_header="AMQ_SCHEDULED_DELAY",
    delay_renews_expiry=True,  # BROKER.md C78
    nack_dead_letters=True,
    nack_needs_room=True,  # BROKER.md C76
    nack_miscounts=True,  # BROKER.md C75
    errors_close=False,
    raw_names=HEADS,
    flags_redelivery=True,
    numbers={
        "AMQ_SCHEDULED_DELAY": (0, LONG),
        "AMQ_SCHEDULED_PERIOD": (0, LONG),
        "AMQ_SCHEDULED_REPEAT": (0, INT),
    },
    reserved=frozenset({"amq-msg-type", "original-destination", TRANSLATION_HEADER, TEXT_HEADER}),
    # The broker sets it on a map that it could not translate; no Java client has such a property.
    internal=frozenset({"transformation-error"}),
)
