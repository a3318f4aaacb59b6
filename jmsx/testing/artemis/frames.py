"""
How Artemis writes a message as MESSAGE: header by header, with its repetitions, because the window counts their bytes.

Source: artemis-stomp-protocol 2.44.0 StompUtils.copyStandardHeadersFromMessageToFrame,
VersionedStompFrameHandler.createMessageFrame, StompFrame and StompFrameV11; jmsx_artemis/BROKER.md A16.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.frames import MessageFrame, escape

if TYPE_CHECKING:
    from jmsx.testing.artemis.message import CoreMessage

END_OF_FRAME: Final = b"\0\n"

#: Properties that are shown under a name of STOMP's, or not at all.
_SHOWN_ELSEWHERE: Final = frozenset(
    {"JMSReplyTo", "_AMQ_CONTENT_TYPE", "JMSType", "JMSCorrelationID", "destination"}
)


def to_message_frame(
    message: CoreMessage,
    *,
    version: str,
    subscription: str,
    handle: str,
    redelivered: bool,
    acknowledged: bool,
) -> MessageFrame:
    """
    The MESSAGE that shows `message`.

    Args:
        version: of STOMP; in 1.0 nothing is escaped and a property takes the place of the broker's header.
        subscription: its id.
        handle: consumer and message, which is both `message-id` and `ack`.
        redelivered: whether it was given out before.
        acknowledged: whether the client acknowledges it; only then there is an `ack`.
    """
    pairs = _pairs(message, subscription, handle, redelivered=redelivered)
    if acknowledged and version == "1.2":
        pairs.append(("ack", handle))
    names = {name for name, _ in pairs}
    if message.body and "content-length" not in names and version != "1.0":
        pairs.append(("content-length", str(len(message.body))))
    if version == "1.0":
        lines = [f"{name}:{value}" for name, value in dict(pairs).items()]
    else:
        lines = [f"{escape(name)}:{escape(value)}" for name, value in pairs]
    return MessageFrame("\n".join(lines).encode(), message.body)


def encoded_size(frame: MessageFrame) -> int:
    """The bytes that `frame` takes of its consumer's window."""
    return len(b"MESSAGE\n") + len(frame.block) + len(b"\n\n") + len(frame.body) + len(END_OF_FRAME)


def _pairs(
    message: CoreMessage, subscription: str, handle: str, *, redelivered: bool
) -> list[tuple[str, str]]:
    """The broker's own headers, then all properties; a name may stand there twice."""
    properties = message.properties
    given = [
        ("subscription", subscription),
        ("content-length", str(len(message.body)) if message.is_bytes and message.body else None),
        ("message-id", handle),
        ("destination", message.address),
        ("correlation-id", properties.get("JMSCorrelationID")),
        ("expires", message.expires),
        ("redelivered", str(redelivered).lower()),
        ("priority", message.priority),
        ("persistent", str(message.persistent).lower()),
        ("reply-to", properties.get("JMSReplyTo")),
        ("timestamp", message.timestamp),
        ("type", properties.get("JMSType")),
        ("content-type", properties.get("_AMQ_CONTENT_TYPE")),
        ("destination-type", message.routing),
    ]
    pairs = [(name, str(value)) for name, value in given if value is not None]
    names = {name for name, _ in pairs}
    for name, value in properties.items():
        is_repeated_length = name == "content-length" and name in names
        if name not in _SHOWN_ELSEWHERE and not is_repeated_length:
            pairs.append((name, str(value)))
    return pairs
