"""What differs from broker to broker: the seam that adapters fill."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum, auto
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Protocol

if TYPE_CHECKING:
    from collections.abc import Container

    from jmsx.core.death_headers import DeathRecord
    from jmsx.core.delivery import Delivery
    from jmsx.core.frames import Frame
    from jmsx.core.management import Management
    from jmsx.core.values import ConsumerSettings, DestinationKind, StompAck
    from jmsx.core.window import Window
    from jmsx.errors import JmsxError

#: What a message's body may be: text, bytes, the entries of a map, or nothing.
Body = str | bytes | Mapping[str, Any] | None


class Addresses(NamedTuple):
    """What a MESSAGE says about destinations, as URIs."""

    destination: str | None
    original: str | None  #: of a dead letter: where it was before
    reply_to: str | None


class Sender(Enum):
    """What kind of program sent a message; it decides how a body is read, and nothing else."""

    JMSX = auto()
    JMS = auto()  #: over a protocol that has kinds of messages which STOMP does not carry
    OTHER = auto()


#: Why the body of a JMS sender's message cannot be read when none has come.
UNREADABLE: Final = (
    "it is a TextMessage without text, or one of a kind that the broker does not carry over STOMP, and it does not tell"
    " which: a StreamMessage, an ObjectMessage, or (on Artemis) a MapMessage; its properties can be read, and"
    " message.readable asks first; let the sender use a TextMessage or a BytesMessage"
)


class Dialect(Protocol):
    """What this broker's STOMP does, and how to live with it. Implementations are pure and stateless."""

    @property
    def name(self) -> str:
        """The kind of broker, such as `classic`."""

    @property
    def header_limit(self) -> int:
        """Bytes of one header line that the broker takes."""

    @property
    def sharing(self) -> str:
        """An error text: why there are no shared subscriptions (JMS 2.0), and what to do instead."""

    @property
    def transactional_ack(self) -> bool:
        """Whether an ACK takes part in a transaction."""

    @property
    def nack_dead_letters(self) -> bool:
        """Whether NACK gives a message to the broker's dead letter strategy."""

    @property
    def global_temporaries(self) -> bool:
        """Whether a temporary queue has one name, on every connection."""

    def holding_headers(self, destination: str) -> Mapping[str, str] | None:
        """
        Headers of a SUBSCRIBE that gets no message, by which a temporary queue (URI) is there before it is read.

        None: it is there without.
        """

    @property
    def patience(self) -> float:
        """Seconds of silence after which the broker drops a client that promised no heart-beats; 0: never."""

    @property
    def errors_close(self) -> bool:
        """Whether the broker closes the connection with each ERROR, and names no receipt of a refused SUBSCRIBE."""

    @property
    def raw_names(self) -> bool:
        """
        Whether the broker writes names of properties without escapes, so that one may look like lines of a head.

        Where it does not, a second header of one name is a property, and the first one counts (STOMP 1.2).
        """

    @property
    def flags_redelivery(self) -> bool:
        """Whether a message that a consumer was handed and did not settle is flagged when it comes again."""

    @property
    def management(self) -> Management | None:
        """What is asked of the broker that STOMP has no frame for; None: nothing."""

    @property
    def reserved(self) -> Container[str]:
        """Headers that are no properties of the application, beyond STOMP's and JMS's."""

    @property
    def internal(self) -> Container[str]:
        """Properties that an application may set, and that a message which came in does not show: they are its own."""

    def speaks(self, server: str) -> bool:
        """Whether CONNECTED's `server` header names this kind of broker."""

    def window(self, settings: ConsumerSettings) -> Window:
        """A new window for one consumer on one link."""

    def send_headers(self, destination: str) -> dict[str, str]:
        """Headers of a SEND that say where it goes, for a URI such as `queue://orders`."""

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Raise UnsupportedError for a property that another ActiveMQ obeys, and that this broker would ignore."""

    def reply_to(self, destination: str) -> str:
        """The `reply-to` header for a URI."""

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """The destinations that a MESSAGE tells."""

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
        Headers of SUBSCRIBE, without id, receipt and window; `options` are `consumer.*` options of the URI.

        Raises UnsupportedError for an option that the broker does not have.
        """

    def untranslated(self, headers: Mapping[str, str]) -> Mapping[str, str]:
        """Headers of the same SUBSCRIBE, without what has the broker look into the bodies of others."""

    def trial(self, destination: str, headers: Mapping[str, str]) -> Mapping[str, str] | None:
        """
        None if a SUBSCRIBE to the URI with `headers` may ask for a receipt, and gets its messages all the same.

        Else the headers of a subscription to try before it: refused for what that is refused for, and given nothing.
        """

    def browse_headers(
        self, *, destination: str, prefetch: int, selector: str | None
    ) -> dict[str, str]:
        """Headers of the SUBSCRIBE of a queue browser, without id and receipt; may raise UnsupportedError."""

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Headers of the UNSUBSCRIBE that removes a durable subscription, without id and receipt."""

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """Headers and bytes of a SEND's body; raises MessageFormatError for a map that cannot be carried."""

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """The body of a MESSAGE; raises MessageNotReadableError if it is, or may be, one that STOMP does not carry."""

    def carries(self, headers: Mapping[str, str], body: bytes) -> bool:
        """Whether a MESSAGE has the body that its sender gave it, so that a copy of it has that too."""

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """What sent a MESSAGE."""

    def sent_id(self, session: str, number: int) -> str | None:
        """
        The message id of the SEND with that number (from 1) on a link without a client id; None: unknown.

        `session` is CONNECTED's.
        """

    def sent_at(self, time: int) -> dict[str, str]:
        """Headers of a SEND that tell its time (epoch milliseconds), where the broker takes it from its sender."""

    def output_headers(self, identity: str) -> dict[str, str]:
        """Headers of a SEND that let the broker drop it, if it has the same from an earlier try."""

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:
        """What a SEND or MESSAGE carries: the same bytes for the same body, however the broker puts it. Never fails."""

    def ack_id(self, headers: Mapping[str, str]) -> str:
        """The id by which a MESSAGE is acknowledged."""

    def genuine(self, delivery: Delivery) -> bool:
        """
        Whether expiry, delivery mode and destination of a MESSAGE are the broker's own words.

        Otherwise a property of the sender's may have overwritten them, and nothing may be deleted because of them.
        """

    def message_id(self, headers: Mapping[str, str]) -> str:
        """What its broker calls a message, the same over redeliveries and links."""

    def message_key(self, headers: Mapping[str, str]) -> str:
        """The stable identity of a message whose sender gave it none: no message of another broker has it."""

    def dead_lettered_by_broker(self, delivery: Delivery, kind: DestinationKind) -> bool:
        """
        Whether NACK puts this message into the broker's dead letter queue, rather than deleting it.

        Of one whose body may not have come, which a copy would lose, it is enough that it says so.
        """

    def dead_letter_destination(self, kind: DestinationKind) -> str:
        """The URI of the queue for copies, where none is named."""

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """The SEND frame (without receipt) of a dead letter's copy to the URI `destination`."""

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """The SEND frame (without receipt) that has the broker deliver a message again in `delay` seconds."""

    def explains_later(self, command: str, text: str) -> bool:
        """Whether the broker, which answers `command` with ERROR `text`, may tell the cause of it in another ERROR."""

    def complaint(self, frame: Frame) -> str:
        """What an ERROR says, without what the application sent: that may hold secrets."""

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """The typed error for the ERROR `frame` in answer to `command` about `subject`."""
