"""What ActiveMQ Artemis says to jmsx. Source: BROKER.md."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx.core.dialect import DOUBTFUL, Addresses, Body, Reading, Sender, unreadable
from jmsx.core.frames import Frame
from jmsx.core.headers import KEY_HEADER, UNREADABLE_HEADER
from jmsx.core.map_body import canonical_map, decode_map
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    ConnectionFailedError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    MessageFormatError,
    ResourceAllocationError,
    SecurityError,
)
from jmsx_artemis.bodies import NO_TEXT, TYPE_HEADER, has_bytes
from jmsx_artemis.copies import CLIENT, OPENWIRE
from jmsx_artemis.destinations import MULTICAST

if TYPE_CHECKING:
    from collections.abc import Mapping


#: How the body of a JMS client's message begins that is no text: the broker shows nothing of it, or, as if it were one,
#: the inside of a map or stream, whose first bytes are those of a length or type (probed on 2.44.0).
_NO_TEXT: Final = re.compile(rb"[\0-\x08\x0b]|\Z")

#: What the broker says with a number at its beginning is its own refusal. Any other text is that of a Java exception,
#: such as `null`; and what follows the number may be anybody's: a queue's name, a plugin's.
_CODE: Final = re.compile(r"AMQ[0-9]{6}\b")

#: How those of its words begin that have no number.
_PLAIN: Final = re.compile(
    "Invalid selector|Selector cannot be empty|Security Error|consumer with ID"
)

#: What such a beginning means; another number is a refusal for another cause.
_ERRORS: Final[Mapping[str, type[JmsxError]]] = {
    "Invalid selector": InvalidSelectorError,
    "Selector cannot be empty": InvalidSelectorError,
    "Security Error": SecurityError,
    "AMQ229020": InvalidSelectorError,
    "AMQ339001": InvalidDestinationError,  # destination does not exist
    "AMQ229017": InvalidDestinationError,  # queue does not exist
    "AMQ119119": ResourceAllocationError,  # disk full
    "AMQ229119": ResourceAllocationError,  # the same, since 2.0
    "AMQ229102": ResourceAllocationError,  # address full
    "AMQ229031": SecurityError,
    "AMQ229032": SecurityError,
    "AMQ229213": SecurityError,
}

#: But these stand for any exception of its sending and committing, and do not tell which: it may come behind the work.
#: Source: `StompProtocolManager.sendServerMessage`, `StompConnection.commitTransaction`.
_UNEXPLAINED: Final = ("AMQ339011", "AMQ339013")

#: Not the frame is at fault, but its connection: the broker had ended that before it looked at it, or ends it for its
#: silence, or because somebody has it close the connection, or remove the queue of a consumer. Of a COMMIT the first is
#: a refusal all the same. Source: `StompConnection.validate`, `StompSession.disconnect`, `ActiveMQMessageBundle`.
_ENDED: Final = (
    "AMQ339010", "AMQ229014",
    "AMQ229005", "AMQ229078", "AMQ229107", "AMQ229108", "AMQ229120", "consumer with ID",
)  # fmt: skip

#: The broker keeps the cause to itself.
_UNTOLD: Final = (
    "; it does not tell why, but for its log: often the user may not send there, or the address is full"
    " (address-full-policy FAIL), or its disk (max-disk-usage)"
)


class ArtemisReading(Reading):
    """
    Understands Artemis' frames.

    They are genuine: the broker's headers stand in front of properties of the same name (measured on 2.44.0). It
    numbers messages together with much else, so that their ids cannot be foreseen.
    """

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """
        Read address and routing type; a sender that gave no type is taken to mean a queue.

        A dead letter that is back where it was still has the routing type of its copy (seen live on 2.44.0).
        """
        address = headers.get("destination", "")
        kind = "topic" if headers.get("destination-type") == MULTICAST else "queue"
        original = headers.get("jmsx_original_destination")
        if original is None and "_AMQ_ORIG_ADDRESS" in headers:
            was = "topic" if headers.get("_AMQ_ORIG_ROUTING_TYPE") == "0" else "queue"
            original = f"{was}://{headers['_AMQ_ORIG_ADDRESS']}"
        elif original is not None and original.partition("://")[2].partition("::")[0] == address:
            kind = original.partition("://")[0]
        reply_to = headers.get("reply-to") or None
        return Addresses(f"{kind}://{address}" if address else None, original, reply_to)

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """Read the body as the sender's header says; without one, bytes are what the broker has as a BytesMessage."""
        kind = headers.get(TYPE_HEADER)
        if not self.carries(headers, body):
            raise unreadable("a StreamMessage, an ObjectMessage or a MapMessage")
        if kind == NO_TEXT and not body:
            return None
        try:
            if kind == "map":
                return decode_map(body)
            if kind == "bytes" or (kind is None and has_bytes(headers)):
                return body
            return body.decode("utf-8", "strict" if kind is None else "replace")
        except (MessageFormatError, UnicodeDecodeError):
            return body

    def carries(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return False for what a JMS client sent as neither text nor bytes: it comes empty, or as other bytes."""
        if UNREADABLE_HEADER in headers:
            return False
        if self.sender(headers) is not Sender.JMS or has_bytes(headers):
            return True
        return _NO_TEXT.match(body) is None

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """
        Return what kind of client sent it: JMS's put their connection's id in, or what OpenWire said of it (2.44.0).

        That counts although there are headers of jmsx, too: a JMS client may have copied them, with all the properties
        of a message, while jmsx sends none of a JMS client's on.
        """
        if CLIENT in headers or f"{OPENWIRE}MESSAGE_ID" in headers:
            return Sender.JMS
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the entries of a map, as on Classic, and the bytes of any other body."""
        return canonical_map(body) if headers.get(TYPE_HEADER) == "map" else body

    def message_id(self, headers: Mapping[str, str]) -> str:
        """Return the part of the message id after the comma; before it stands the subscription's (BROKER.md A31)."""
        return headers.get("message-id", "").rpartition(",")[2]

    def message_key(self, headers: Mapping[str, str]) -> str:
        """
        Return the broker's id of the message and its time.

        Each broker numbers its messages from about 20 on, so a new one, or the other one of two, gives each number once
        more: an idempotency store would take those messages for done.
        """
        number, stamp = self.message_id(headers), headers.get("timestamp", "")
        return f"{number}@{stamp}" if number and stamp else number

    def refuses_subscription(self, text: str) -> bool:
        """Return whether it has the code of a subscription that cannot be made, such as a further one (A81)."""
        return text.startswith("AMQ339016")

    def complaint(self, frame: Frame) -> str:
        """Return the `message` header of an ERROR, or else its body, without the refused message that it repeats."""
        told = frame.headers.get("message") or frame.body.decode("utf-8", "replace").strip()
        return told.partition(" CoreMessage[")[0]

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """Return the typed error for an ERROR; in STOMP 1.2 the broker closes the connection with it."""
        told = self.complaint(frame).partition("\n")[0]
        begin = _CODE.match(told) or _PLAIN.match(told)
        code = begin[0] if begin else ""
        if code in _ENDED and command != "COMMIT":
            return ConnectionFailedError(
                f"{broker} ended the connection before it answered {command} {subject}: {told}"
            )
        unexplained = code in _UNEXPLAINED
        known = bool(code) and not unexplained
        other = BrokerError if known or command not in DOUBTFUL else BrokerFaultError
        kind = _ERRORS.get(code, other)
        advice = _UNTOLD if unexplained else ""
        did = "failed at" if kind is BrokerFaultError else "refused"
        return kind(f"{broker} {did} {command} {subject}: {told}{advice}")
