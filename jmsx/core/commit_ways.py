"""The ways of committing a transaction, and the value that each of them is given: a commit that is under way."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, TypeAlias

from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery
from jmsx.core.frames import Frame
from jmsx.core.requests import Request
from jmsx.core.transaction import Transaction

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


#: What a transaction settles, consumer by consumer, each oldest first.
Batches: TypeAlias = "Sequence[tuple[ConsumerCore, Sequence[Delivery]]]"


class Way(Enum):
    """How a transaction is committed; DESIGN.md has a table of them."""

    ONE_BURST = auto()  #: its ACKs and COMMIT together (unit_of_work.py)
    #: As ONE_BURST, with a marker that tells on the next link what became of the commit (commit_markers.py)
    MARKED = auto()
    TWO_STEPS = auto()  #: COMMIT for what was sent, then ACKs (two_steps.py)
    REPEATED = auto()  #: what was sent once more, message by message, then ACKs (commit_repeat.py)


@dataclass(frozen=True, slots=True, eq=False)
class Commit:
    """A commit that is under way."""

    transaction: Transaction
    batches: Batches  #: the messages that it settles
    whole: Request  #: answered when the commit has ended; its continuation ends all that is in the transaction
    broker: str  #: the address of the broker that is asked to commit
    then: Callable[[float], None]  #: called if the commit ends on a link that stays
    begun: bool  #: BEGIN was on the wire before


def plain_acks(batches: Batches, receipt_id: str) -> list[Frame]:
    """Return the ACKs that settle `batches` outside a transaction, with a receipt on the last of them."""
    frames = []
    for consumer, batch in batches:
        frames += consumer.ack_frames(batch)
        consumer.settled(batch)
    *others, last = frames
    return [*others, Frame("ACK", {**last.headers, "receipt": receipt_id})]
