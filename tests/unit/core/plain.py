"""A third dialect: a broker of which nothing is known but that it speaks STOMP 1.2."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Addresses, Copying, Dialect, Reading, Writing
from jmsx.core.frames import Frame
from jmsx.core.headers import COUNT_HEADER, KEY_HEADER
from jmsx.core.values import ConsumerSettings, StompAck
from jmsx.errors import UnsupportedError

if TYPE_CHECKING:
    from collections.abc import Mapping

#: What belongs to one delivery, and not to the message.
_OF_A_DELIVERY = ("ack", "message-id", "subscription", "redelivered", "destination")


class PlainWriting(Writing):
    """STOMP 1.2 leaves the names of destinations to the broker; here `queue://a` is `/queue/a`."""

    def send_headers(self, destination: str) -> dict[str, str]:
        """Where it goes."""
        return {"destination": self.reply_to(destination)}

    def reply_to(self, destination: str) -> str:
        """As a destination."""
        return "/" + destination.partition("?")[0].replace("://", "/", 1)

    def check_properties(self, properties: Mapping[str, str]) -> None:
        """Nothing is known of them."""

    def subscribe_headers(
        self, *, destination: str, ack: StompAck, selector: str | None, durable_name: str | None,
        no_local: bool, options: Mapping[str, str],
    ) -> dict[str, str]:  # fmt: skip
        """STOMP 1.2 has no more than these."""
        if selector or durable_name or no_local or options:
            raise UnsupportedError(f"{destination}: all that STOMP has is a destination")
        return {**self.send_headers(destination), "ack": ack.value}


class PlainReading(Reading):
    """Takes frames at their word."""

    def addresses(self, headers: Mapping[str, str]) -> Addresses:
        """Where it is, where it was before, and where an answer goes."""
        told, reply_to = (_uri(headers.get(name)) for name in ("destination", "reply-to"))
        return Addresses(told, headers.get("jmsx_original_destination"), reply_to)


class PlainCopying(Copying):
    """What a copy carries on is what its sender wrote."""

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Persistent, and with the reason."""
        more = {**death.headers(delivery.message_id), "persistent": "true"}
        return _copy(delivery, more, destination)

    def scheduled_copy(
        self, delivery: Delivery, settings: ConsumerSettings, key: str, delay: float
    ) -> Frame:
        """As RabbitMQ's delayed exchange has it."""
        more = {
            KEY_HEADER: key,
            COUNT_HEADER: str(delivery.failures),
            "x-delay": f"{delay * 1000:.0f}",
        }
        return _copy(delivery, more, settings.destination)


def _uri(wire: str | None) -> str | None:
    return wire.removeprefix("/").replace("/", "://", 1) if wire else None


def _copy(delivery: Delivery, more: Mapping[str, str], to: str) -> Frame:
    kept = {name: value for name, value in delivery.headers.items() if name not in _OF_A_DELIVERY}
    return Frame("SEND", {**kept, **more, **WRITING.send_headers(to)}, delivery.frame.body)


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
