"""
How jmsx reads the frames of ActiveMQ Classic.

Source: `ProtocolConverter.java:334-698` and `FrameTranslator.java:54-159`, at 6.3.1.
"""

from __future__ import annotations

import re
from contextlib import suppress
from typing import TYPE_CHECKING, Final

from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import destination_uri
from jmsx.core.dialect import DOUBTFUL, Addresses, Body, Reading, Sender, unreadable
from jmsx.core.frames import Frame
from jmsx.core.headers import KEY_HEADER, UNREADABLE_HEADER
from jmsx.core.identity import identify
from jmsx.core.map_body import BEGINNING, TRANSFORMATION, canonical_map, decode_map
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    InvalidClientIdError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    MessageFormatError,
    ResourceAllocationError,
    SecurityError,
)
from jmsx_classic.bodies import A_MAP, NO_TEXT, TEXT_HEADER, TRANSLATION_HEADER, looks_like_map

if TYPE_CHECKING:
    from collections.abc import Mapping


#: How the message id of a JMS client's message ends: its session, its producer, and a number.
_OF_JMS: Final = re.compile(r":[0-9]+:[0-9]+:[0-9]+\Z")

#: The end of the ids that the broker gives messages of its STOMP clients.
_OF_STOMP: Final = re.compile(":-1:1:[0-9]+$")

#: Matches the exception at the beginning of a stack trace, the body of an ERROR. What follows the name proves nothing:
#: it may be a queue's name, or the text of a plugin or of another exception.
_NAME: Final = re.compile(r"(?:[\w$]+\.)*(?P<name>[\w$]+(?:Exception|Error))(?::[ ]|(?=\s|\Z))")

#: The exceptions that are refusals: the broker has done nothing.
_REFUSALS: Final[Mapping[str, type[JmsxError]]] = {
    "InvalidSelectorException": InvalidSelectorError,
    "InvalidClientIDException": InvalidClientIdError,
    "InvalidDestinationException": InvalidDestinationError,
    "DestinationDoesNotExistException": InvalidDestinationError,
    "ResourceAllocationException": ResourceAllocationError,
    "SecurityException": SecurityError,  # with a stack trace before 5.16
    "TransactionRolledBackException": BrokerError,
    "MessageFormatException": BrokerError,
    "ProtocolException": BrokerError,  # STOMP's own: the broker behind it has not seen the frame
}

#: Refusals that the exception's name alone does not prove, and how their texts begin. A lack of rights is reported
#: without a stack trace, and so without a name (BROKER.md C73).
_WORDS: Final[tuple[tuple[str, re.Pattern[str], type[JmsxError]], ...]] = (
    (
        "",
        re.compile(r"User (?:.* )?is not auth(?:orized to|enticated)|User name \["),
        SecurityError,
    ),
    ("JMSException", re.compile("Couldn't create TopicSubscription"), InvalidSelectorError),
    ("XAException", re.compile("COMMIT FAILED: Transaction marked rollback only"), BrokerError),
)

#: Refusals by one of several destinations, after others may have the message; rights are checked before all sends.
_OF_ONE: Final = (ResourceAllocationError, InvalidDestinationError)

#: Matches the destination that such a refusal names.
_NAMED: Final = re.compile(r"(?:temp-)?(?:queue|topic)://\S+")


class ClassicReading(Reading):
    """
    Reads the frames of Classic.

    A message id stays the same over redelivery, broker restart, dead letter queue and retry, and is unique among
    brokers: it contains host, port and start time of the producer or broker.
    """

    written_anew = BEGINNING  # the XML of a map

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """Read the addresses; of a dead letter that the broker moved, its own header has the original one."""
        told = super().addresses(headers)
        moved_from = destination_uri(headers.get("original-destination"))
        return told if moved_from is None else told._replace(original=moved_from)

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """
        Return a map, bytes or text.

        The broker puts the subscription's `transformation` on texts too, so the form decides what is a map.
        """
        if not self.carries(headers, body):
            raise unreadable(
                "a StreamMessage, an ObjectMessage, or, on a topic that is read without"
                " ?consumer.transformation=jms-map-xml, a MapMessage"
            )
        marked = headers.get(TEXT_HEADER)
        if marked == NO_TEXT and not body:
            return None
        if marked != "true":
            if headers.get(TRANSLATION_HEADER) == TRANSFORMATION and looks_like_map(body):
                with suppress(MessageFormatError):
                    return decode_map(body)
            if "content-length" in headers:
                return body
        return body.decode("utf-8", "replace")

    def carries(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return False also for a JMS client's message without body and length: its type may be one STOMP hides."""
        if UNREADABLE_HEADER in headers or (headers.get(TEXT_HEADER) == A_MAP and not body):
            return False
        return bool(body) or "content-length" in headers or self.sender(headers) is not Sender.JMS

    def may_hide_body(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return True for an empty body with a map's `transformation`: it may be a STOMP client's map (C50)."""
        return TRANSLATION_HEADER in headers and not body and "content-length" not in headers

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """
        Recognize JMS clients by the session in the message id: it counts from 0, while STOMP clients have -1.

        Source: `ProtocolConverter.java:95-109` (`new SessionId(connectionId, -1)`); probed on 6.1.8.
        """
        if _OF_JMS.search(self.message_id(headers)):
            return Sender.JMS
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the entries of a map, because the broker writes its XML anew, and the bytes of any other body."""
        if (
            headers.get(TEXT_HEADER) != "true"
            and headers.get(TRANSLATION_HEADER) == TRANSFORMATION
            and looks_like_map(body)
        ):
            return canonical_map(body)
        return body

    def genuine(self, delivery: Delivery) -> bool:
        """
        Return whether jmsx sent the message, so that its headers are the broker's: over STOMP `expires` and
        `persistent` are never properties.

        The broker copies properties of other protocols' messages over the headers of the MESSAGE, those of JMS too
        (`FrameTranslator.java:70-159`; all that jmsx reads but `ack` and `subscription`, measured on 6.1.8), so a
        Java program that sends a message under all the headers of another one gives it the message id of a STOMP
        client. But the digest of the client's key then speaks of another body or queue.
        """
        message_id = delivery.headers.get("message-id", "")
        return _OF_STOMP.search(message_id) is not None and identify(delivery, self).vouched

    def sent_id(self, session: str, number: int) -> str | None:
        """
        Return the message id of the connection's SEND number `number`, as the broker makes it. CONNECTED tells the
        connection's id in `session`, unless the connection has a client id (BROKER.md C2).

        Source: `ProtocolConverter.java:334-378`.
        """
        return f"{session}:-1:1:{number}" if session else None

    def explains_later(self, command: str, text: str) -> bool:
        """
        Return True for a COMMIT that is refused because a frame before it failed without a receipt.

        The thread that reads refuses the COMMIT; the complaint about the frame is written by another thread, in 1 of 8
        cases after the refusal (measured).
        Source: `TransportConnection.serviceException` and `.dispatchAsync`.
        """
        return command == "COMMIT" and "rollback only" in text

    def breaks_limit(self, text: str) -> bool:
        """Return whether an ERROR's text says that a frame exceeds a limit of the wire format (C53)."""
        return text.startswith("The maximum ")

    def complaint(self, frame: Frame) -> str:
        """Return the `message` header of an ERROR, or else its body."""
        return frame.headers.get("message") or frame.body.decode("utf-8", "replace").strip()

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """
        Return the typed error for an ERROR, by the exception's own name at the beginning of its stack trace.

        A message that one queue of a list or virtual topic refuses may be in the queues before it (BROKER.md C74).
        """
        told = frame.headers.get("message") or ""
        trace = frame.body.decode("utf-8", "replace").strip() or told
        first = trace.partition("\n")[0]
        kind = _refusal(trace)
        # A lack of rights, perhaps in a plugin's words; a COMMIT may get such an answer for other causes.
        if kind is None and _is_bare(trace, told) and frame.body and command != "COMMIT":
            kind = SecurityError
        in_part = command == "SEND" and kind in _OF_ONE and not _is_whole(subject, first)
        if kind is None or in_part:
            kind = BrokerFaultError if command in DOUBTFUL else BrokerError
        if kind is BrokerFaultError:
            return kind(f"{broker} failed at {command} {subject}: {first}")
        return kind(f"{broker} refused {command} {subject}: {told or first}")


def _is_whole(subject: str, words: str) -> bool:
    """Return whether `subject` is a single destination, and the refusal's text `words` names no other one."""
    own = subject.removeprefix("remote-")
    return "," not in subject and all(
        named.rstrip(".,;)") == own for named in _NAMED.findall(words)
    )


def _is_bare(trace: str, told: str) -> bool:
    """Return whether the body has no stack trace, but the message alone, as when the client lacks rights."""
    return bool(told) and trace == told.strip() and _NAME.match(trace) is None


def _refusal(trace: str) -> type[JmsxError] | None:
    """Return the error class if the exception proves that the broker refused the frame; None: it proves nothing."""
    found = _NAME.match(trace)
    name, words = (found["name"], trace[found.end() :]) if found else ("", trace)
    if name in _REFUSALS:
        return _REFUSALS[name]
    return next((kind for of, begin, kind in _WORDS if of == name and begin.match(words)), None)
