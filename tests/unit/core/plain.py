"""A third dialect: a broker of which nothing is known but that it speaks STOMP 1.2."""

from __future__ import annotations

from jmsx.core.death_headers import DeathRecord
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Copying, Dialect, Reading, Writing
from jmsx.core.frames import Frame

#: Headers of one delivery, and not of the message.
_OF_A_DELIVERY = ("ack", "message-id", "subscription", "redelivered", "destination")


class PlainBroker(Writing, Reading, Copying):
    """What a copy carries on is what its sender wrote; all else is as in STOMP 1.2."""

    def copy(self, delivery: Delivery, destination: str, **more: str) -> Frame:
        """Return the SEND of a copy, with `more` headers."""
        told = {name: text for name, text in delivery.headers.items() if name not in _OF_A_DELIVERY}
        return Frame("SEND", told | more | self.send_headers(destination), delivery.frame.body)

    def dead_letter_copy(self, delivery: Delivery, destination: str, death: DeathRecord) -> Frame:
        """Return the SEND of a dead letter's copy, with why it died."""
        return self.copy(delivery, destination, **death.headers(delivery.message_id))


BROKER = PlainBroker()
DIALECT = Dialect(
    name="plain",
    server="",
    sharing="STOMP has no shared subscriptions",
    dead_letter_queue="queue://dead",
    writing=BROKER,
    reading=BROKER,
    copying=BROKER,
)
