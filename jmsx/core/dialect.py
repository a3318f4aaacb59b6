"""
What differs from broker to broker: the interface that adapters implement.

A dialect is a value: what the broker can do, and three objects that know its frames. The defaults of its fields, and of
the methods of the three protocols, are those of a broker that does what STOMP 1.2 says, and no more.
"""
# ruff: noqa: ARG002 - the protocols' default methods do not need all of their arguments

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import Delivery
from jmsx.core.destination_names import destination_uri, wire_destination
from jmsx.core.frames import Frame
from jmsx.core.headers import KEY_HEADER
from jmsx.core.management import Management
from jmsx.core.values import ConsumerSettings, DestinationKind, StompAck
from jmsx.core.window import Unlimited, Window
from jmsx.core.wire import RawHeads
from jmsx.errors import (
    BrokerError,
    JmsxError,
    MessageFormatError,
    MessageNotReadableError,
    UnsupportedError,
)

if TYPE_CHECKING:
    import re
    from collections.abc import Callable, Container, Sequence


#: What a message's body may be: text, bytes, the entries of a map, or nothing.
Body = str | bytes | Mapping[str, Any] | None


class Addresses(NamedTuple):
    """The destinations that a MESSAGE names, as URIs."""

    destination: str | None
    original: str | None  #: of a dead letter: where it was before
    reply_to: str | None


class BrokerSettings(NamedTuple):
    """The broker's names of settings that an error text advises to change, each as ` (NAME)`; empty: it has none."""

    scheduler: str = ""  #: the setting by which it delivers messages later
    priorities: str = ""  #: the setting by which it looks at priorities
    frame_size: str = ""  #: the setting of the largest frame that it takes


_NO_SETTINGS: Final = BrokerSettings()


class Sender(Enum):
    """The kind of program that sent a message; it decides how a body is read, and nothing else."""

    JMSX = auto()
    JMS = auto()  #: over a protocol that has kinds of messages which STOMP does not carry
    OTHER = auto()


#: Commands of which it matters whether they were done: of a broker's errors, only a known refusal says that.
DOUBTFUL: Final = ("SEND", "COMMIT")


def unreadable(kinds: str) -> MessageNotReadableError:
    """Return the error for the body of a JMS sender's message that has not come; `kinds`: those that never come."""
    return MessageNotReadableError(
        "it is a TextMessage without text, or one of a kind that the broker does not carry over STOMP, and it does not"
        f" tell which: {kinds}; its properties can be read, and message.readable asks first; let the sender use a"
        " TextMessage or a BytesMessage"
    )


class Writing(Protocol):
    """How frames to this broker are written. Implementations are pure and stateless."""

    def send_headers(self, destination: str) -> dict[str, str]:
        """Return the headers of a SEND that say where it goes, for a URI such as `queue://orders`."""
        return {"destination": wire_destination(destination)}

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """
        Raise UnsupportedError for a property that another broker obeys and this one would ignore, and
        MessageFormatError for a value that it could not read.
        """
        return

    def reply_to(self, destination: str) -> str:
        """Return the `reply-to` header for a URI."""
        return self.send_headers(destination)["destination"]

    def queue_name(self, name: str) -> str:
        """Return the name that the broker has for the queue `name` of a URI."""
        return name

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
        """
        Return the headers of SUBSCRIBE, without id, receipt and window; `options` are `consumer.*` options of the URI.

        Raises UnsupportedError for an option that the broker does not have.
        """
        if selector or durable_name or no_local or options:
            raise UnsupportedError(
                f"{destination}: this broker has no selectors, durable subscriptions, no_local or consumer.* options"
            )
        return {**self.send_headers(destination), "ack": ack.value}

    def trial(self, destination: str, headers: Mapping[str, str]) -> Mapping[str, str] | None:
        """
        Return the headers of a subscription to try before a SUBSCRIBE to the URI with `headers`, or None.

        None: the SUBSCRIBE itself may ask for a receipt, and gets its messages nevertheless. Else the broker refuses
        the trial for the same reasons as the SUBSCRIBE, and gives it no messages.
        """
        return None

    def narrowed(
        self, headers: Mapping[str, str], wanted: Sequence[Delivery]
    ) -> Mapping[str, str] | None:
        """
        Return the headers of a SUBSCRIBE like one with `headers`, which gets only the messages `wanted`.

        It may get a few others. None: the messages cannot be told from others.
        """
        return None

    def browse_headers(
        self, *, destination: str, prefetch: int, selector: str | None
    ) -> dict[str, str]:
        """Return the headers of a queue browser's SUBSCRIBE, without id and receipt; may raise UnsupportedError."""
        raise UnsupportedError(f"{destination}: this broker has no queue browsers")

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Return the headers of the UNSUBSCRIBE that removes a durable subscription, without id and receipt."""
        raise UnsupportedError(f"{name}: this broker has no durable subscriptions")

    def holding_headers(self, destination: str) -> Mapping[str, str] | None:
        """
        Return the headers of a SUBSCRIBE that gets no message, by which a temporary queue (URI) is made before it is
        read.

        None: the queue is there without it.
        """
        return None

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """Return headers and bytes of a SEND's body; raises MessageFormatError for a map that cannot be carried."""
        if isinstance(body, Mapping):
            raise MessageFormatError("this broker carries no maps; send a text, such as JSON")
        if isinstance(body, bytes):
            return {"content-length": str(len(body))}, body
        return {}, (body or "").encode()


class Reading(Protocol):
    """What the frames of this broker mean. Implementations are pure and stateless."""

    #: The beginning of bodies that the broker writes anew for each delivery, so that only their `content` stays the
    #: same; None: there are no such bodies.
    written_anew: re.Pattern[bytes] | None = None

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """Return the destinations that a MESSAGE names; a copy that jmsx made tells in a header where it was before."""
        told, reply_to = (
            destination_uri(headers.get(name)) for name in ("destination", "reply-to")
        )
        return Addresses(told, headers.get("jmsx_original_destination"), reply_to)

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """
        Return the body of a MESSAGE; raises MessageNotReadableError if it is, or may be,
        one that STOMP does not carry.
        """
        return body if "content-length" in headers else body.decode("utf-8", "replace")

    def carries(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether a MESSAGE has the body that its sender gave it, so that a copy of it has that too."""
        return True

    def may_hide_body(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Return whether the body with which an untranslated MESSAGE came may not be all of its body."""
        return False

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """Return the kind of program that sent a MESSAGE."""
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """Return the same bytes for the same body of a SEND or MESSAGE, however the broker writes it. Never fails."""
        return body

    def genuine(self, delivery: Delivery) -> bool:
        """
        Return whether expiry, delivery mode and destination of a MESSAGE are the broker's own words.

        Otherwise a property of the sender's may have overwritten them, and nothing may be deleted because of them.
        """
        return True

    def message_id(self, headers: Mapping[str, str]) -> str:
        """Return the broker's id of a message, which is the same over redeliveries and links."""
        return headers.get("message-id", "")

    def message_key(self, headers: Mapping[str, str]) -> str:
        """Return the stable identity of a message whose sender gave it none: no message of another broker has it."""
        return self.message_id(headers)

    def sent_id(self, session: str, number: int) -> str | None:
        """
        Return the message id of the SEND with that number (from 1) on a link without a client id; None: unknown.

        `session` is that header of CONNECTED.
        """
        return None

    def explains_later(self, command: str, text: str) -> bool:
        """Return whether the broker, which answers `command` with ERROR `text`, may tell its cause in another ERROR."""
        return False

    def breaks_limit(self, text: str) -> bool:
        """Return whether ERROR `text` says that the link ends because a frame is beyond a limit of the broker."""
        return False

    def refuses_subscription(self, text: str) -> bool:
        """Return whether ERROR `text`, which answers no request, refuses a SUBSCRIBE, and so no message of ours."""
        return False

    def complaint(self, frame: Frame) -> str:
        """Return what an ERROR says, without what the application sent, which may hold secrets."""
        return frame.headers.get("message", "")

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """Return the typed error for the ERROR `frame` in answer to `command` about `subject`."""
        return BrokerError(f"{broker} refused {command} {subject}: {self.complaint(frame)}")


class Copying(Protocol):
    """How copies of messages that leave their queue are made. Implementations are pure and stateless."""

    def dead_lettered_by_broker(
        self, delivery: Delivery, kind: DestinationKind, *, asked: bool = False
    ) -> bool:
        """
        Return whether NACK puts this message into the broker's dead letter queue, rather than deleting it.

        Headers that the sender may have written are enough to say so if the body may not have come, for a copy would
        lose it, or if the broker is `asked` before.
        """
        return False

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Return the SEND frame (without receipt) of a dead letter's copy to the URI `destination`."""

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """Return the SEND frame (without receipt) that has the broker deliver a message again in `delay` seconds."""
        raise UnsupportedError(f"{settings.destination}: this broker delivers nothing later")


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """What this kind of broker's STOMP does, and how to live with it."""

    name: str  #: the kind of broker, such as `classic`
    server: str  #: how CONNECTED's `server` header begins
    sharing: str  #: an error text: why there are no shared subscriptions (JMS 2.0), and what to do instead
    dead_letter_queue: str  #: the queue (URI) for copies of dead letters, where none is named
    writing: Writing
    reading: Reading
    copying: Copying
    settings: BrokerSettings = _NO_SETTINGS  #: for texts that people read
    #: Makes a new window for one consumer on one link.
    window: Callable[[ConsumerSettings], Window] = Unlimited
    #: The inquiries for which STOMP has no frame; None: nothing can be asked.
    management: Management | None = None
    #: Bytes of one header line that the broker takes.
    header_limit: int = 10_000
    #: Header of a MESSAGE that tells the id by which it is acknowledged.
    ack_header: str = "ack"
    #: Header of a SEND by which the broker drops what it has from an earlier try; None: it does not.
    duplicate_id_header: str | None = None
    #: Header that asks the broker to translate bodies which STOMP does not carry, and tells that it did; None: none.
    translation_header: str | None = None
    #: Whether the broker takes the time of a message from its sender's `timestamp` header.
    takes_timestamps: bool = False
    #: Header, with its value, of the MESSAGE that ends what a queue browser is shown; None: there are no browsers.
    browser_end: tuple[str, str] | None = None
    #: Header of a SEND that has the broker deliver it after so many milliseconds, if its scheduler is on.
    delay_header: str | None = None
    #: Whether the broker delays messages without a scheduler that may be off.
    always_delays: bool = False
    #: Whether a delayed message's time to live begins anew after the delay, unless its `timestamp` is sent as 0.
    delay_renews_expiry: bool = False
    #: Whether an ACK takes part in a transaction.
    transactional_ack: bool = True
    #: Whether NACK gives a message to the broker's dead letter strategy.
    nack_dead_letters: bool = False
    #: Whether the broker deletes a message at its NACK if it has no room for the dead letter.
    nack_needs_room: bool = False
    #: Whether the broker may miscount after a NACK what a cumulative ACK covers, and refuse all outside transactions.
    nack_miscounts: bool = False
    #: Whether a temporary queue has one name, on every connection.
    global_temporaries: bool = False
    #: Seconds of silence after which the broker drops a client that promised no heart-beats; 0: never.
    patience: float = 0.0
    #: Whether the broker closes the connection with each ERROR, and names no receipt of a refused SUBSCRIBE.
    errors_close: bool = True
    #: How the broker writes heads, if it does not escape names of properties, so that a name may look like header
    #: lines; then its frames have a mark (drivers/epoch.py). None: it escapes them; then it must state the true length
    #: of each body, and of several headers with one name the first one counts (STOMP 1.2), the others are properties.
    raw_names: RawHeads | None = None
    #: Whether a message that a consumer was handed and did not settle is flagged when it comes again.
    flags_redelivery: bool = False
    #: Headers that are no properties of the application, beyond STOMP's and JMS's.
    reserved: Container[str] = frozenset()
    #: Properties that the broker reads as whole numbers, beyond JMS's: the least and the greatest.
    numbers: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    #: Properties that an application may set, but that received messages do not show: there they are the broker's own.
    internal: Container[str] = frozenset()

    def speaks(self, server: str) -> bool:
        """Return whether CONNECTED's `server` header names this kind of broker."""
        return server.startswith(self.server)

    def untranslated(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Return the headers of the same SUBSCRIBE without the request to translate bodies."""
        return {name: value for name, value in headers.items() if name != self.translation_header}

    def ends_browsing(self, headers: Mapping[str, str]) -> bool:
        """Return whether a MESSAGE is the one that ends what a queue browser is shown."""
        return self.browser_end is not None and self.browser_end in headers.items()

    def output_headers(self, identity: str) -> dict[str, str]:
        """Return the headers of a SEND that let the broker drop it, if it has the same from an earlier try."""
        return (
            {}
            if self.duplicate_id_header is None
            else {self.duplicate_id_header: f"jmsx:{identity}"}
        )

    def duplicate_id(self, headers: Mapping[str, str], identity: str) -> str | None:
        """Return by which id the broker drops a second SEND with these headers; None: none, or that of `identity`."""
        name = self.duplicate_id_header
        if name is None:
            return None
        told = headers.get(name)
        return None if told == self.output_headers(identity)[name] else told

    def sent_at(self, time: int) -> dict[str, str]:
        """Return the headers of a SEND that tell its time (epoch milliseconds); none if the broker sets it itself."""
        return {"timestamp": str(time)} if self.takes_timestamps else {}
