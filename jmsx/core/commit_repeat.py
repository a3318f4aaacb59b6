"""
Repeats a commit that the broker refused because it has a part of it already, or that it did not answer.

Where ACKs take no part in transactions, a message can come again although what was sent for it is committed: the crash
was between COMMIT and ACK. What is sent for it now carries the identities of the first time, so Artemis refuses the
whole COMMIT, does not say why, and closes the connection (BROKER.md A34). Then everything is sent once more on the next
link, one by one: the broker drops what it has and takes what it has not. What was received is acknowledged, without
being handed out, when it comes on that link.

With `commit_markers` a COMMIT whose answer was lost with its link is repeated in the same way, whatever became of it.

A barrier goes before the first of the SENDs (journal_barrier.py): the broker may still be writing the commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame
from jmsx.core.lost_deliveries import LostDeliveries
from jmsx.core.requests import Request
from jmsx.core.transaction import TxSend

if TYPE_CHECKING:
    from collections.abc import Sequence


@dataclass(frozen=True, slots=True)
class CommitRepeat:
    """
    A failed commit that is repeated on the next link: what it sent and received, and the request that waits for its
    end.
    """

    sends: Sequence[TxSend]
    batches: Sequence[tuple[ConsumerCore, Sequence[Delivery]]]  #: what it received
    whole: Request
    broker: str  #: the one that may have it, and knows what it has

    def frames(self, receipt_id: str) -> list[Frame]:
        """Return the SENDs outside any transaction, in their order; the receipt of the last one confirms them all."""
        *others, last = [sent.frame for sent in self.sends]
        return [*others, Frame("SEND", {**last.headers, "receipt": receipt_id}, last.body)]

    def settle(self, lost_deliveries: LostDeliveries) -> None:
        """Mark what the commit received as processed: when it comes again, only its ACK is owed."""
        for consumer, batch in self.batches:
            lost_deliveries.note(consumer, batch, handed_out=False, processed=True)
            for delivery in consumer.waiting:
                lost_deliveries.recall(consumer, delivery)


def repeatable(sends: Sequence[TxSend], dialect: Dialect) -> bool:
    """Return whether the broker recognises each of `sends` when it is sent again."""
    names = dialect.output_headers("").keys()
    return bool(names) and all(names <= sent.frame.headers.keys() for sent in sends)
