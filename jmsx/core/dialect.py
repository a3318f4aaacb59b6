"""What differs from broker to broker: the seam that adapters fill."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.core.delivery import Delivery
    from jmsx.core.frames import Frame
    from jmsx.core.values import DestinationKind, StompAck
    from jmsx.errors import JmsxError


@dataclass(frozen=True, slots=True, kw_only=True)
class DeathCertificate:
    """Why a message is a dead letter, for the headers of a copy; times in epoch milliseconds."""

    reason: str  #: `max_redeliveries`, `rejected`, `expired`
    destination: str  #: where it was consumed, as URI
    delivery_count: int
    consumer: str
    error_type: str | None = None
    error_message: str | None = None
    stack: str | None = None
    limit: int | None = None  #: maximum_redeliveries
    host: str = ""
    first_failure: int | None = None  #: of this process
    last_failure: int | None = None


class Dialect(Protocol):
    """What this broker's STOMP does, and how to live with it. Implementations are pure and stateless."""

    name: str  #: such as `classic`
    header_limit: int  #: bytes of one header line that the broker takes

    def speaks(self, server: str) -> bool:
        """Whether CONNECTED's `server` header names this kind of broker."""

    def wire_destination(self, uri: str) -> str:
        """The `destination` header for a URI such as `queue://orders`."""

    def destination_uri(self, wire: str) -> str:
        """The URI for a `destination` header."""

    def subscribe_headers(
        self,
        *,
        destination: str,
        ack: StompAck,
        prefetch: int,
        selector: str | None,
        durable_name: str | None,
        no_local: bool,
        options: Mapping[str, str],
    ) -> dict[str, str]:
        """Headers of SUBSCRIBE, without id and receipt; `options` are `consumer.*` options of the URI."""

    def browse_headers(
        self, *, destination: str, prefetch: int, selector: str | None
    ) -> dict[str, str]:
        """Headers of the SUBSCRIBE of a queue browser, without id and receipt."""

    def unsubscribe_durable_headers(self, name: str) -> dict[str, str]:
        """Headers of the UNSUBSCRIBE that removes a durable subscription, without id and receipt."""

    def map_frame(self, content: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
        """Headers and body of a SEND that becomes a MapMessage; raises MessageFormatError."""

    def read_map(self, headers: Mapping[str, str], body: bytes) -> dict[str, Any] | None:
        """The content of a MESSAGE that is a MapMessage; None for any other."""

    def looks_like_map(self, body: bytes) -> bool:
        """Whether a text could be taken for a MapMessage, so that its sender should mark it as text."""

    def message_key(self, headers: Mapping[str, str]) -> str:
        """The stable identity of a message whose sender gave it none."""

    def buried_by_broker(self, delivery: Delivery, kind: DestinationKind) -> bool:
        """Whether NACK puts this message into the broker's dead letter queue, rather than deleting it."""

    def dead_letter_destination(self, kind: DestinationKind) -> str:
        """The URI of the queue for copies, where none is named."""

    def dead_letter_copy(
        self, delivery: Delivery, destination: str, certificate: DeathCertificate
    ) -> Frame:
        """The SEND frame (without receipt) of a dead letter's copy to the URI `destination`."""

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> JmsxError:
        """The typed error for the ERROR `frame` in answer to `command` about `subject`."""
