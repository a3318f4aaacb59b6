"""
The dialect of ActiveMQ Artemis 2.33 and later.

Its STOMP differs from Classic's in almost everything that matters: an ACK takes effect at once, in a transaction too;
NACK deletes; the window is in bytes; a message id holds for one subscription only; a SEND that no queue takes vanishes
with a RECEIPT. Source: BROKER.md.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import UNREADABLE, Addresses, Body, Sender
from jmsx.core.frames import Frame
from jmsx.core.headers import KEY_HEADER, UNREADABLE_HEADER
from jmsx.core.map_body import canonical_map, decode_map, encode_map
from jmsx.core.values import ConsumerSettings, DestinationKind, StompAck
from jmsx.core.window import Window
from jmsx.errors import (
    BrokerError,
    BrokerFaultError,
    InvalidDestinationError,
    InvalidSelectorError,
    JmsxError,
    MessageFormatError,
    MessageNotReadableError,
    ResourceAllocationError,
    SecurityError,
    UnsupportedError,
)
from jmsx_artemis.copies import CLIENT, OPENWIRE, dead_letter_headers, postponed_headers
from jmsx_artemis.dead_letter_queues import OWN
from jmsx_artemis.destinations import MULTICAST, parted, single
from jmsx_artemis.management import ArtemisManagement
from jmsx_artemis.selectors import core_filter
from jmsx_artemis.window import ByteWindow

if TYPE_CHECKING:
    from collections.abc import Mapping


#: Tells maps from texts, and empty bodies apart, which Artemis does not over STOMP (BROKER.md A51).
TYPE_HEADER: Final = "jmsx_type"
NO_TEXT: Final = "none"  #: a message without a body

#: How the body of a JMS client's message begins that is no text: the broker shows nothing of it, or, as if it were one,
#: the inside of a map or stream, whose first bytes are those of a length or type (probed on 2.44.0).
_NO_TEXT: Final = re.compile(rb"[\0-\x08\x0b]|\Z")

#: What a piece of the broker's words means; the first that is found wins.
_ERRORS: Final[tuple[tuple[str, type[JmsxError]], ...]] = (
    ("Invalid selector", InvalidSelectorError),
    ("Selector cannot be empty", InvalidSelectorError),
    ("AMQ229020", InvalidSelectorError),
    ("AMQ339001", InvalidDestinationError),  # destination does not exist
    ("AMQ229017", InvalidDestinationError),  # queue does not exist
    ("AMQ119119", ResourceAllocationError),  # disk full
    ("AMQ229102", ResourceAllocationError),  # address full
    ("AMQ229031", SecurityError),
    ("AMQ229032", SecurityError),
    ("AMQ229213", SecurityError),
    ("Security Error", SecurityError),
)


class _Reserved:
    """
    Names of what is the broker's or the dialect's: of a JMS client's message, what OpenWire said of it, too.

    On another message the JMS client would take `__HDR_MESSAGE_ID` for its JMSMessageID.
    Source: `OpenWireConstants.java:21-57`, `MessageUtil.getPropertyNames`; probed on 2.44.0.
    """

    _NAMES: Final = frozenset(
        {
            "destination-type", "ingress-timestamp", "receipt-id", TYPE_HEADER, CLIENT,
            "_AMQ_GROUP_SEQUENCE", "_AMQ_ROUTING_TYPE",
        }
    )  # fmt: skip

    def __contains__(self, name: object) -> bool:
        """Whether no application may set or see this header as a property."""
        return isinstance(name, str) and (name in self._NAMES or name.startswith(OPENWIRE))


#: What the broker says with a number is its own refusal. Any other text is that of a Java exception, such as `null`.
_CODE: Final = re.compile(r"AMQ[0-9]{6}")

#: But these stand for any exception of its sending and committing, and do not tell which: it may come behind the work.
#: Source: `StompProtocolManager.sendServerMessage`, `StompConnection.commitTransaction`.
_UNEXPLAINED: Final = ("AMQ339011", "AMQ339013")

#: Commands of which it matters whether they were done.
_DOUBTFUL: Final = ("SEND", "COMMIT")

#: Properties that only Classic's scheduler obeys.
_CLASSIC_SCHEDULES: Final = frozenset(
    {"AMQ_SCHEDULED_PERIOD", "AMQ_SCHEDULED_REPEAT", "AMQ_SCHEDULED_CRON"}
)


#: The broker keeps the cause to itself.
_UNTOLD: Final = (
    "; it does not tell why, but for its log: often the user may not send there, or the address is full"
    " (address-full-policy FAIL)"
)


#: A window in which no message has room; 0 is one for one message.
_NOTHING: Final = "-2"


class ArtemisDialect:
    """ActiveMQ Artemis over STOMP 1.2."""

    name: Final = "artemis"
    header_limit: Final = 64 * 1024  # a whole header block of 100 KiB is refused
    transactional_ack: Final = False
    nack_dead_letters: Final = False
    global_temporaries: Final = True
    patience: Final = 60.0  # connection-ttl-override, if nobody has lowered it (BROKER.md A3)
    errors_close: Final = True
    raw_names: Final = False
    flags_redelivery: Final = (
        False  # not after UNSUBSCRIBE, and else of the oldest only (BROKER.md A37)
    )
    sharing: Final = (
        "Artemis makes no shared subscriptions over STOMP: let a divert of the broker put the topic's messages into a"
        " queue, and share that"
    )
    management: Final = ArtemisManagement()
    reserved: Final = _Reserved()
    internal: Final = frozenset({"_AMQ_DUPL_ID"})  # a second message with it would be dropped

    def speaks(self, server: str) -> bool:
        """Whether CONNECTED's `server` header is Artemis', such as `ActiveMQ-Artemis/2.44.0 …`."""
        return server.startswith("ActiveMQ-Artemis/")

    def window(self, settings: ConsumerSettings) -> Window:
        """A window in bytes, for about as many messages as the prefetch says."""
        return ByteWindow(settings)

    def send_headers(self, destination: str) -> dict[str, str]:
        """Address and routing type; without the type a message to a new queue is lost (BROKER.md A7)."""
        routing, address = parted(single(destination))
        return {"destination": address, "destination-type": routing}

    def sent_at(self, time: int) -> dict[str, str]:  # noqa: ARG002 - Classic's affair
        """Return nothing: the broker sets the time of a message itself."""
        return {}

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """No repeated schedules (BROKER.md A13), and over STOMP no end of a group by its sequence."""
        for name in _CLASSIC_SCHEDULES & properties.keys():
            raise UnsupportedError(
                f"Artemis does not know {name}; it has AMQ_SCHEDULED_DELAY and AMQ_SCHEDULED_TIME"
            )
        if properties.get("JMSXGroupSeq", "").startswith("-"):
            raise UnsupportedError(
                "over STOMP Artemis does not close a message group by a negative JMSXGroupSeq"
            )

    def reply_to(self, destination: str) -> str:
        """Return the `reply-to` header: the URI, as Artemis' own JMS client writes it."""
        parted(single(destination))
        return destination.partition("?")[0]

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """
        Address and routing type; a sender that gave none is taken to mean a queue.

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

    def subscribe_headers(
        self,
        *,
        destination: str,
        ack: StompAck,
        selector: str | None,
        durable_name: str | None,
        no_local: bool,
        options: Mapping[str, str],
    ) -> dict[str, str]:
        """Headers of SUBSCRIBE; raises UnsupportedError for any `consumer.X` option: they are Classic's."""
        if options:
            raise UnsupportedError(
                f"{destination}: Artemis has no consumer.{min(options)} over STOMP; leave it out, or set it for"
                " the address on the broker"
            )
        routing, address = parted(single(destination))
        headers = {"destination": address, "subscription-type": routing, "ack": ack.value}
        if selector and no_local:
            raise UnsupportedError(
                f"{destination}: Artemis cannot leave out a session's own messages and obey a selector, over STOMP"
            )
        if selector:
            headers["selector"] = core_filter(selector)
        if durable_name is not None:
            headers["durable-subscription-name"] = durable_name
        if no_local:
            headers["no-local"] = "true"
        return headers

    def holding_headers(self, destination: str) -> Mapping[str, str] | None:
        """A queue is there with its first consumer; one with a window below -1 gets nothing (seen live on 2.44.0)."""
        routing, address = parted(destination)
        own = {"destination": address, "subscription-type": routing, "ack": "client"}
        return {**own, "consumer-window-size": _NOTHING}

    def untranslated(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers unchanged: Artemis translates no bodies."""
        return headers

    def trial(self, destination: str, headers: Mapping[str, str]) -> None:
        """Return None: every SUBSCRIBE may ask for a receipt."""

    def browse_headers(
        self,
        *,
        destination: str,
        prefetch: int,  # noqa: ARG002 - there is nothing to fetch
        selector: str | None,  # noqa: ARG002 - of what cannot be done at all
    ) -> dict[str, str]:
        """Raises UnsupportedError: Artemis has no queue browser over STOMP."""
        raise UnsupportedError(
            f"Artemis cannot show {destination} over STOMP without taking from it; use its console or"
            " its management address"
        )

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Headers of the UNSUBSCRIBE that removes a durable subscription, which must be in use."""
        return {"durable-subscription-name": name}

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """A content-length makes a BytesMessage, its absence a TextMessage (BROKER.md A50)."""
        if isinstance(body, bytes):
            return {TYPE_HEADER: "bytes", "content-length": str(len(body))}, body
        if body is None:
            return {TYPE_HEADER: NO_TEXT}, b""
        if isinstance(body, str):
            data = body.encode()
            length = {"content-length": str(len(data))} if b"\0" in data else {}
            return {TYPE_HEADER: "text", **length}, data
        return {TYPE_HEADER: "map"}, encode_map(body)

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """As the sender's header says; of other senders, bytes are what the broker has as a BytesMessage."""
        kind = headers.get(TYPE_HEADER)
        if not self.carries(headers, body):
            raise MessageNotReadableError(UNREADABLE)
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
        """What a JMS client sent as neither text nor bytes is shown empty, or as some bytes of its inside."""
        if UNREADABLE_HEADER in headers:
            return False
        if self.sender(headers) is not Sender.JMS or has_bytes(headers):
            return True
        return _NO_TEXT.match(body) is None

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """
        A message from a JMS client carries its connection's id, or what OpenWire said of it (probed on 2.44.0).

        It counts although there are marks of jmsx, too: these a JMS client may have copied, with all the properties of
        a message. jmsx sends none of the former on.
        """
        if CLIENT in headers or f"{OPENWIRE}MESSAGE_ID" in headers:
            return Sender.JMS
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def sent_id(self, session: str, number: int) -> str | None:  # noqa: ARG002 - Classic's affair
        """Return None: the broker numbers messages together with much else, so that their ids cannot be foreseen."""
        return None

    def output_headers(self, identity: str) -> dict[str, str]:
        """The broker drops a message whose duplicate id it has seen (per address, 20,000 ids: BROKER.md A14)."""
        return {"_AMQ_DUPL_ID": f"jmsx:{identity}"}

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the entries of a map, as on Classic, and the bytes of any other body."""
        return canonical_map(body) if headers.get(TYPE_HEADER) == "map" else body

    def ack_id(self, headers: Mapping[str, str]) -> str:
        """
        Its message id, which is the same.

        The broker writes `ack` behind the properties, so that one of the name `ack`, as a forwarder makes who sends all
        headers of another MESSAGE, would win over it (seen live on 2.44.0). Source: `StompFrameHandlerV12.java:53-64`.
        """
        return headers.get("message-id", "")

    def genuine(self, delivery: Delivery) -> bool:  # noqa: ARG002 - here it is the same for all
        """Always: the broker's headers stand in front of properties of the same name (measured on 2.44.0)."""
        return True

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

    def dead_lettered_by_broker(self, delivery: Delivery, kind: DestinationKind) -> bool:  # noqa: ARG002 - here NACK is the same for all
        """Return False: NACK makes Artemis delete the message."""
        return False

    def dead_letter_destination(self, kind: DestinationKind) -> str:  # noqa: ARG002 - one for all kinds
        """Return the URI of jmsx's own dead letter queue."""
        return OWN.destination

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """The SEND of a copy that the broker's management can retry."""
        _, address = parted(death.destination)
        headers = dead_letter_headers(delivery, death, address)
        if not self.carries(delivery.headers, delivery.frame.body):
            headers[UNREADABLE_HEADER] = "true"
        return self._copy(delivery, headers, destination)

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """The SEND of a message that the broker shall deliver again in `delay` seconds."""
        headers = postponed_headers(delivery, settings, key, delay)
        return self._copy(delivery, headers, settings.destination)

    def _copy(self, delivery: Delivery, headers: dict[str, str], destination: str) -> Frame:
        body = delivery.frame.body
        if has_bytes(delivery.headers):
            headers["content-length"] = str(len(body))
        elif b"\0" in body:  # it would end there, so it has to become a BytesMessage
            headers = {TYPE_HEADER: "text", **headers, "content-length": str(len(body))}
        return Frame("SEND", headers | self.send_headers(destination), body)

    def explains_later(self, command: str, text: str) -> bool:  # noqa: ARG002 - Classic's affair
        """Return False: an ERROR is the last frame that comes."""
        return False

    def complaint(self, frame: Frame) -> str:
        """Return the `message` header of an ERROR, or else its body, without the refused message that it repeats."""
        told = frame.headers.get("message") or frame.body.decode("utf-8", "replace").strip()
        return told.partition(" CoreMessage[")[0]

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """The typed error for an ERROR; in STOMP 1.2 the broker closes the connection with it."""
        body = frame.body.decode("utf-8", "replace").strip()
        told = self.complaint(frame).partition("\n")[0]
        words = told + body
        unexplained = any(code in words for code in _UNEXPLAINED)
        known = _CODE.search(words) is not None and not unexplained
        other = BrokerError if known or command not in _DOUBTFUL else BrokerFaultError
        kind = next((kind for words_, kind in _ERRORS if words_ in words), other)
        advice = _UNTOLD if unexplained else ""
        did = "failed at" if kind is BrokerFaultError else "refused"
        return kind(f"{broker} {did} {command} {subject}: {told}{advice}")


def has_bytes(headers: Mapping[str, str]) -> bool:
    """
    Whether a MESSAGE shows a BytesMessage: its length stands before its id, a text's at the end.

    Source: `VersionedStompFrameHandler.java:325-365`, from 2.33 to 2.56. An empty one has its sender's length.
    """
    for name in headers:
        if name in ("content-length", "message-id"):
            return name == "content-length" or headers.get("content-length") == "0"
    return False


DIALECT: Final = ArtemisDialect()
