"""
What the STOMP converter remembers of one subscription: which ACK fits which message, and which are in a transaction.

The list of what is in a transaction is one for all transactions of the connection: two of them with ACKs on the wire
corrupt each other.
Source: jmsx_classic/BROKER.md; activemq-stomp 6.1.8 StompSubscription.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from jmsx.testing.classic.subscription import (
    Acknowledgement,
    AckType,
    ClassicTransaction,
    ConsumerOptions,
    Subscription,
)
from jmsx.testing.faults import ProtocolFault


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
    """
    One SUBSCRIBE of one connection.

    Args:
        subscription_id: its `id`.
        mode: its `ack`.
        options: what else it asked for.
        pending_acks: all ack ids that are valid on the connection.
    """

    def __init__(
        self,
        subscription_id: str,
        mode: StompAck,
        options: ConsumerOptions,
        pending_acks: dict[str, AckEntry],
    ) -> None:
        self.subscription_id = subscription_id
        self.mode = mode
        self.options = options
        self.subscription: Subscription | None = None  #: None: refused by the broker, or gone
        self._pending_acks = pending_acks
        self._dispatched: dict[str, AckEntry] = {}  #: by message id, in order of dispatch
        self._transacted: list[AckEntry] = []

    def expect_ack(self, message_id: str, ack_id: str) -> None:
        """Note that a MESSAGE is written which the client is to acknowledge."""
        entry = AckEntry(message_id, ack_id, self)
        self._dispatched[message_id] = self._pending_acks[ack_id] = entry

    def pass_on(self, ack: Acknowledgement, transaction: ClassicTransaction | None) -> None:
        """
        Give `ack` to the broker, which ignores it without a word if the consumer is gone.

        Source: TransportConnection.processMessageAck.
        """
        if self.subscription is not None:
            self.subscription.acknowledge(ack, transaction)

    def acknowledge(
        self, message_id: str, transaction: ClassicTransaction | None
    ) -> Acknowledgement | None:
        """Return what an ACK of `message_id` means for the broker; None if it is not known here."""
        entry = self._dispatched.get(message_id)
        if entry is None:
            return None
        if self.mode is StompAck.CLIENT:
            return self._acknowledge_up_to(entry, transaction)
        self._settle(entry, transaction)
        return Acknowledgement(AckType.INDIVIDUAL, message_id, 1)

    def _settle(self, entry: AckEntry, transaction: ClassicTransaction | None) -> None:
        self._pending_acks.pop(entry.ack_id, None)
        if transaction is None:
            del self._dispatched[entry.message_id]
        else:
            self._transacted.append(entry)

    def _acknowledge_up_to(
        self, last: AckEntry, transaction: ClassicTransaction | None
    ) -> Acknowledgement:
        """Cumulative: at once, or in a transaction a DELIVERED now and the rest at COMMIT."""
        count = 0
        for entry in list(self._dispatched.values()):
            if entry not in self._transacted or transaction is None:
                self._settle(entry, transaction)
                count += 1
            if entry is last:
                break
        kind = AckType.STANDARD if transaction is None else AckType.DELIVERED
        return Acknowledgement(kind, last.message_id, count)

    def refuse(
        self, message_id: str, transaction: ClassicTransaction | None
    ) -> Acknowledgement | None:
        """Return what a NACK of `message_id` means for the broker: a POISON of this one, never cumulative."""
        if self.options.browser:
            raise ProtocolFault("Cannot Nack a message on a Queue Browser Subscription.")
        entry = self._dispatched.get(message_id)
        if entry is None:
            return None
        self._settle(entry, transaction)
        return Acknowledgement(AckType.POISON, message_id, 1)

    def commit(self) -> Acknowledgement | None:
        """
        Forget all that is in a transaction, in whichever; returns what to tell the broker first.

        In client-individual mode the list is not cleared, so it grows.
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
        self._pending_acks.update({entry.ack_id: entry for entry in self._transacted})
        self._transacted.clear()
