"""
The STOMP converter's state of one subscription: which ACK belongs to which message, and which are in a transaction.

A subscription has one list of transacted messages for all transactions of the connection: two open transactions that
both contain ACKs corrupt each other.
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
        subscription_id: the `id` header of the SUBSCRIBE.
        mode: its `ack` header.
        options: what else the SUBSCRIBE asked for.
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
        """Note that a MESSAGE is being written that the client has to acknowledge."""
        entry = AckEntry(message_id, ack_id, self)
        self._dispatched[message_id] = self._pending_acks[ack_id] = entry

    def pass_on(self, ack: Acknowledgement, transaction: ClassicTransaction | None) -> None:
        """
        Give `ack` to the broker, which silently ignores it if the consumer is gone.

        Source: TransportConnection.processMessageAck.
        """
        if self.subscription is not None:
            self.subscription.acknowledge(ack, transaction)

    def acknowledge(
        self, message_id: str, transaction: ClassicTransaction | None
    ) -> Acknowledgement | None:
        """Return what an ACK of `message_id` means for the broker; None if this subscription does not know the id."""
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
        """Acknowledge all up to `last`: at once, or in a transaction with a DELIVERED now and the rest at COMMIT."""
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
        """Return what a NACK of `message_id` means for the broker: a POISON of this message only, never cumulative."""
        if self.options.browser:
            raise ProtocolFault("Cannot Nack a message on a Queue Browser Subscription.")
        entry = self._dispatched.get(message_id)
        if entry is None:
            return None
        self._settle(entry, transaction)
        return Acknowledgement(AckType.POISON, message_id, 1)

    def commit(self) -> Acknowledgement | None:
        """
        Forget all transacted messages, of whichever transaction; returns what the broker must be told first, or None.

        In client-individual mode the list is not cleared (as in the real converter), so it grows.
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
        """Make the ack ids of all transacted messages valid again, whichever transaction they are in."""
        self._pending_acks.update({entry.ack_id: entry for entry in self._transacted})
        self._transacted.clear()
