"""A third dialect: a broker of which nothing is known but that it speaks STOMP 1.2."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Never

from jmsx.core.dialect import Addresses, Body, Dialect, Sender
from jmsx.core.frames import Frame
from jmsx.core.headers import COUNT_HEADER, KEY_HEADER
from jmsx.errors import BrokerError, MessageFormatError, UnsupportedError

if TYPE_CHECKING:
    from jmsx.core.death_headers import DeathRecord
    from jmsx.core.delivery import Delivery
    from jmsx.core.values import ConsumerSettings, DestinationKind, StompAck


class PlainWriting:
    """STOMP 1.2 leaves the names of destinations to the broker; here `queue://a` is `/queue/a`."""

    def send_headers(self, destination: str) -> dict[str, str]:
        """Where it goes."""
        return {"destination": "/" + destination.partition("?")[0].replace("://", "/", 1)}

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Nothing is known of them."""

    def reply_to(self, destination: str) -> str:
        """As a destination."""
        return self.send_headers(destination)["destination"]

    def subscribe_headers(
        self, *, destination: str, ack: StompAck, selector: str | None, durable_name: str | None,
        no_local: bool, options: Mapping[str, str],
    ) -> dict[str, str]:  # fmt: skip
        """STOMP 1.2 has no more than these."""
        if selector or durable_name or no_local or options:
            raise UnsupportedError(f"{destination}: all that STOMP has is a destination")
        return {**self.send_headers(destination), "ack": ack.value}

    def trial(self, destination: str, headers: Mapping[str, str]) -> None:
        """A SUBSCRIBE with a receipt is answered."""

    def browse_headers(self, *, destination: str, prefetch: int, selector: str | None) -> Never:  # noqa: ARG002 - refused
        """There are no browsers."""
        raise UnsupportedError(f"{destination}: STOMP has no browsers")

    def unsubscribe_durable_headers(self, name: str) -> Never:
        """There are no durable subscriptions."""
        raise UnsupportedError(f"{name}: STOMP has no durable subscriptions")

    def holding_headers(self, destination: str) -> None:
        """A queue is there with its first message."""

    def encode_body(self, body: Body) -> tuple[dict[str, str], bytes]:
        """Text, or bytes with their length."""
        if isinstance(body, Mapping):
            raise MessageFormatError("STOMP has no maps")
        if isinstance(body, bytes):
            return {"content-length": str(len(body))}, body
        return {}, (body or "").encode()


class PlainReading:
    """Takes frames at their word."""

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """Where it is, where it was before, and where an answer goes."""
        told, reply_to = (_uri(headers.get(name)) for name in ("destination", "reply-to"))
        return Addresses(told, headers.get("jmsx_original_destination"), reply_to)

    def decode_body(self, headers: Mapping[str, str], body: bytes) -> Body:
        """Bytes if it has a length, else text."""
        return body if "content-length" in headers else body.decode("utf-8", "replace")

    def carries(self, headers: Mapping[str, str], body: bytes) -> bool:  # noqa: ARG002 - all bodies come
        """Always."""
        return True

    def sender(self, headers: Mapping[str, str]) -> Sender:
        """By the key that jmsx writes."""
        return Sender.JMSX if KEY_HEADER in headers else Sender.OTHER

    def content(self, headers: Mapping[str, str], body: bytes) -> bytes:  # noqa: ARG002 - it is left alone
        """The body."""
        return body

    def genuine(self, delivery: Delivery) -> bool:  # noqa: ARG002 - properties are headers, and the first one counts
        """Always."""
        return True

    def message_id(self, headers: Mapping[str, str]) -> str:
        """In its own header."""
        return headers.get("message-id", "")

    message_key = message_id

    def sent_id(self, session: str, number: int) -> None:
        """Unknown."""

    def explains_later(self, command: str, text: str) -> bool:  # noqa: ARG002 - an ERROR is the last frame
        """Never."""
        return False

    def complaint(self, frame: Frame) -> str:
        """In its own header."""
        return frame.headers.get("message", "")

    def error(self, command: str, subject: str, frame: Frame, broker: str) -> BrokerError:
        """STOMP has one kind."""
        return BrokerError(f"{broker} refused {command} {subject}: {self.complaint(frame)}")


class PlainCopying:
    """What a copy carries on is what its sender wrote."""

    def dead_lettered_by_broker(self, delivery: Delivery, kind: DestinationKind) -> bool:  # noqa: ARG002 - unknown
        """STOMP does not say what becomes of a message after NACK."""
        return False

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Persistent, and with the reason."""
        headers = {**_carried(delivery), **death.headers(delivery.message_id), "persistent": "true"}
        return Frame("SEND", headers | WRITING.send_headers(destination), delivery.frame.body)

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """As RabbitMQ's delayed exchange has it."""
        headers = {**_carried(delivery), KEY_HEADER: key, COUNT_HEADER: str(delivery.failures)}
        headers |= {
            "x-delay": str(round(delay * 1000)),
            **WRITING.send_headers(settings.destination),
        }
        return Frame("SEND", headers, delivery.frame.body)


def _uri(wire: str | None) -> str | None:
    return wire.removeprefix("/").replace("/", "://", 1) if wire else None


def _carried(delivery: Delivery) -> dict[str, str]:
    left = ("ack", "message-id", "subscription", "redelivered", "destination")
    return {name: value for name, value in delivery.headers.items() if name not in left}


WRITING = PlainWriting()
DIALECT = Dialect(
    name="plain",
    server="",
    sharing="STOMP has no shared subscriptions",
    dead_letter_queue="queue://dead",
    writing=WRITING,
    reading=PlainReading(),
    copying=PlainCopying(),
)
