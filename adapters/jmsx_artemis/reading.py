"""How jmsx reads the frames of ActiveMQ Artemis. Source: BROKER.md."""

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


#: Matches the body of a JMS client's message that is not a text: STOMP gets it empty, or gets the encoding of a map or
#: stream as if it were text, which begins with a length or type byte (probed on 2.44.0).
_NO_TEXT: Final = re.compile(rb"[\0-\x08\x0b]|\Z")

#: An error text that begins with such a number is a refusal by the broker itself; any other is the text of a Java
#: exception, such as `null`. What follows the number proves nothing: it may be a queue's name, or a plugin's text.
_CODE: Final = re.compile(r"AMQ[0-9]{6}\b")

#: How refusals by the broker itself begin that have no number.
_PLAIN: Final = re.compile(
    "Invalid selector|Selector cannot be empty|Security Error|consumer with ID"
)

#: The error class for each such beginning; any other number is a refusal, too, and raises BrokerError.
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

#: These numbers are no refusals: they stand for any exception while the broker sends or commits, which may already
#: have taken effect.
#: Source: `StompProtocolManager.sendServerMessage`, `StompConnection.commitTransaction`.
_UNEXPLAINED: Final = ("AMQ339011", "AMQ339013")

#: The broker had ended the connection before it looked at the frame (BROKER.md A74). So a COMMIT is not done, and
#: counts as refused, for it cannot be sent again on another connection. Source: `StompConnection.validate`.
_NOT_LOOKED_AT: Final = "AMQ339010"

#: Errors that concern the connection and not the frame: the broker had ended it, or ends it because the client was
#: silent, or because an administrator closed it or removed the queue of a consumer. They leave a COMMIT in doubt.
#: Source: `StompSession.disconnect`, `ActiveMQMessageBundle`.
_ENDED: Final = (
    _NOT_LOOKED_AT, "AMQ229014",
    "AMQ229005", "AMQ229078", "AMQ229107", "AMQ229108", "AMQ229120", "consumer with ID",
)  # fmt: skip

#: What is added to an error for which the broker gives no cause.
_UNTOLD: Final = (
    "; it does not tell why, but for its log: often the user may not send there, or the address is full"
    " (address-full-policy FAIL), or its disk (max-disk-usage)"
)


class ArtemisReading(Reading):
    """
    Reads the frames of Artemis.

    The broker's headers can be trusted: they precede properties of the same name (measured on 2.44.0). Message ids
    cannot be predicted, as the broker draws them from one sequence with many other ids.
    """

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """
        Read address and routing type; without a type the destination counts as a queue.

        A dead letter that was moved back still has the routing type of its copy (seen live on 2.44.0).
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
        """Decode the body by the sender's type header; without one, as bytes if the broker has a BytesMessage."""
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
        """Return False if a JMS client sent neither text nor bytes: its body arrives empty or in another encoding."""
        if UNREADABLE_HEADER in headers:
            return False
        if self.sender(headers) is not Sender.JMS or has_bytes(headers):
            return True
        return _NO_TEXT.match(body) is None

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """
        Return what kind of client sent the message: one of a JMS client has its connection's id or OpenWire fields.

        These count even if there are headers of jmsx, too: a JMS client may have copied all properties of a message,
        while jmsx never sends on a JMS client's own headers. Probed on 2.44.0.
        """
        if CLIENT in headers or f"{OPENWIRE}MESSAGE_ID" in headers:
            return Sender.JMS
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the entries of a map, as on Classic, and the bytes of any other body."""
        return canonical_map(body) if headers.get(TYPE_HEADER) == "map" else body

    def message_id(self, headers: Mapping[str, str]) -> str:
        """Return the message's number: what follows the comma in `message-id`, after the consumer's (BROKER.md A31)."""
        return headers.get("message-id", "").rpartition(",")[2]

    def message_key(self, headers: Mapping[str, str]) -> str:
        """
        Return the broker's number of the message together with its timestamp.

        Every broker numbers its messages from about 20 on, so a reinstalled or second broker repeats the numbers: by
        the number alone, an idempotency store would take new messages for done.
        """
        number, stamp = self.message_id(headers), headers.get("timestamp", "")
        return f"{number}@{stamp}" if number and stamp else number

    def refuses_subscription(self, text: str) -> bool:
        """Return whether an ERROR's text has the code of a refused subscription, such as a further one (A81)."""
        return text.startswith("AMQ339016")

    def complaint(self, frame: Frame) -> str:
        """Return the `message` header of an ERROR, or else its body, without the refused message quoted in it."""
        told = frame.headers.get("message") or frame.body.decode("utf-8", "replace").strip()
        return told.partition(" CoreMessage[")[0]

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """Return the typed error for an ERROR; after one the broker closes the connection, as STOMP 1.2 demands."""
        told = self.complaint(frame).partition("\n")[0]
        begin = _CODE.match(told) or _PLAIN.match(told)
        code = begin[0] if begin else ""
        if code in _ENDED and (command, code) != ("COMMIT", _NOT_LOOKED_AT):
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
