"""
What the STOMP converter remembers of one subscription: which ACK fits which message, and which are in a transaction.

`transacted` is one list for all transactions of the connection: two of them with ACKs on the wire corrupt each other.
Source: activemq-stomp 6.1.8 StompSubscription; jmsx_classic/BROKER.md C30.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from jmsx.core.frames import MessageFrame
from jmsx.testing.classic.message import StoredMessage, to_message_frame
from jmsx.testing.classic.subscription import Acknowledgement, AckType
from jmsx.testing.faults import ProtocolFault

if TYPE_CHECKING:
    from jmsx.testing.classic.link import ClassicLink
    from jmsx.testing.classic.subscription import ConsumerOptions, Subscription
    from jmsx.testing.classic.transaction import FakeTransaction


class StompAck(StrEnum):
    """The `ack` header of SUBSCRIBE; anything else means AUTO."""

    AUTO = "auto"
    CLIENT = "client"
    INDIVIDUAL = "client-individual"


@dataclass(frozen=True, slots=True, eq=False)
class AckEntry:
    """One MESSAGE that was written and may be acknowledged."""

    message_id: str
    ack_id: str
    consumer: StompConsumer


class StompConsumer:
    """One SUBSCRIBE of one connection."""

    def __init__(
        self,
        link: ClassicLink,
        subscription_id: str | None,
        mode: StompAck,
        options: ConsumerOptions,
    ) -> None:
        self.link = link
        self.subscription_id = subscription_id
        self.mode = mode
        self.options = options
        self.subscription: Subscription | None = None  #: None: refused by the broker, or gone
        self._dispatched: dict[str, AckEntry] = {}  #: by message id, in order of dispatch
        self._transacted: list[AckEntry] = []

    def deliver(self, message: StoredMessage) -> None:
        """Write `message` on the link; in AUTO it is acknowledged even before the client can see it."""
        ack_id = None
        if self.mode is StompAck.AUTO:
            if not self.options.browser:
                ack = Acknowledgement(AckType.STANDARD, message.message_id, 1)
                self.link.broker.later(lambda: self.pass_on(ack, None))
        else:
            entry = AckEntry(message.message_id, self.link.house.next_ack_id(), self)
            self._dispatched[message.message_id] = entry
            if self.link.version == "1.2":
                ack_id = entry.ack_id
                self.link.pending_acks[ack_id] = entry
        self.link.write(
            to_message_frame(
                message,
                name_of=self.link.name_of,
                subscription=self.subscription_id,
                ack_id=ack_id,
                transformation=self.options.transformation,
            )
        )

    def end_browse(self) -> None:
        """Write the frame that ends a queue browser's messages."""
        headers = {
            "browser": "end",
            "destination": self.link.name_of(self.options.destination),
            "message-id": "0",
        }
        if self.subscription_id is not None:
            headers["subscription"] = self.subscription_id
        self.link.write(MessageFrame.of(headers))

    def pass_on(self, ack: Acknowledgement, transaction: FakeTransaction | None) -> None:
        """
        Give `ack` to the broker, which ignores it without a word if the consumer is gone.

        Source: TransportConnection.processMessageAck; jmsx_classic/BROKER.md C23.
        """
        if self.subscription is not None:
            self.subscription.acknowledge(ack, transaction)

    def acknowledge(
        self, message_id: str, transaction: FakeTransaction | None
    ) -> Acknowledgement | None:
        """What an ACK of `message_id` means for the broker; None if it is not known here."""
        entry = self._dispatched.get(message_id)
        if entry is None or self.mode is StompAck.AUTO:
            return None
        if self.mode is StompAck.CLIENT:
            return self._acknowledge_up_to(entry, transaction)
        self.link.pending_acks.pop(entry.ack_id, None)
        if transaction is None:
            del self._dispatched[message_id]
        else:
            self._transacted.append(entry)
        return Acknowledgement(AckType.INDIVIDUAL, message_id, 1)

    def _acknowledge_up_to(
        self, last: AckEntry, transaction: FakeTransaction | None
    ) -> Acknowledgement:
        """Cumulative: at once, or in a transaction a DELIVERED now and the rest at COMMIT."""
        count = 0
        for entry in list(self._dispatched.values()):
            self.link.pending_acks.pop(entry.ack_id, None)
            if transaction is None:
                del self._dispatched[entry.message_id]
                count += 1
            elif entry not in self._transacted:
                self._transacted.append(entry)
                count += 1
            if entry is last:
                break
        kind = AckType.STANDARD if transaction is None else AckType.DELIVERED
        return Acknowledgement(kind, last.message_id, count)

    def refuse(
        self, message_id: str, transaction: FakeTransaction | None
    ) -> Acknowledgement | None:
        """What a NACK of `message_id` means for the broker: a POISON of this one, never cumulative."""
        if self.options.browser:
            raise ProtocolFault("Cannot Nack a message on a Queue Browser Subscription.")
        entry = self._dispatched.get(message_id)
        if entry is None:
            return None
        self.link.pending_acks.pop(entry.ack_id, None)
        if transaction is None:
            del self._dispatched[message_id]
        else:
            self._transacted.append(entry)
        return Acknowledgement(AckType.POISON, message_id, 1)

    def commit(self) -> Acknowledgement | None:
        """
        Forget all that is in a transaction, in whichever; returns what to tell the broker first.

        In client-individual mode the list is not cleared, so it grows (jmsx_classic/BROKER.md C68).
        """
        transacted = set(self._transacted)
        for message_id in [i for i, entry in self._dispatched.items() if entry in transacted]:
            del self._dispatched[message_id]
        if not self._transacted or self.mode is not StompAck.CLIENT:
            return None
        ack = Acknowledgement(
            AckType.STANDARD, self._transacted[-1].message_id, len(self._transacted)
        )
        self._transacted.clear()
        return ack

    def abort(self) -> None:
        """Make the ack ids of all that is in a transaction, in whichever, valid again."""
        if self.link.version == "1.2":
            self.link.pending_acks.update({entry.ack_id: entry for entry in self._transacted})
        self._transacted.clear()
