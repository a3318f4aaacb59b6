"""
Repeats a commit that the broker refused because it has a part of it already, or that it did not answer.

Where ACKs take no part in transactions, a message can come again although what was sent for it is committed: the crash
was between COMMIT and ACK. What is sent for it now carries the identities of the first time, so Artemis refuses the
whole COMMIT, does not say why, and closes the connection (BROKER.md A34). Then everything is sent once more on the next
link, one by one: the broker drops what it has and takes what it has not, and what was received is acknowledged.

With `commit_markers` a COMMIT whose answer was lost with its link is repeated in the same way, whatever became of it.

That is only safe for who holds what was received: while somebody else has it, he may have sent the same in a
transaction that is still open, and the broker, which looks for identities when a SEND comes in, would take both
(BROKER.md A69). So it is repeated when all of that has come again to this session; what has come is not handed out
meanwhile. If it does not come in time, somebody else has it, and the commit is in doubt; if it comes to this session
later, what is sent for it then is sent singly at once, because another COMMIT would be refused like the first one.

A barrier goes before the first of the SENDs (journal_barrier.py): the broker may still be writing another commit.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.core.consumer import ConsumerCore
from jmsx.core.delivery import Delivery
from jmsx.core.dialect import Dialect
from jmsx.core.frames import Frame
from jmsx.core.requests import Continuation, Request
from jmsx.core.transaction import TxSend
from jmsx.core.values import DestinationKind

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence


#: Seconds that a link is given to bring again what was received.
PATIENCE: Final = 5.0


@dataclass(slots=True)
class CommitRepeat:
    """A failed commit that is repeated on the next link: what it sent and received, and who waits for its end."""

    sends: Sequence[TxSend]
    batches: Sequence[tuple[ConsumerCore, Sequence[Delivery]]]  #: what it received
    whole: Request
    broker: str  #: the one that has a part of it
    then: Callable[[float], None]  #: to be run if it ends on a link that stays
    failed: bool  #: the broker has said so; else its answer is lost
    until: float | None = None  #: how long it waits for what was received, once there is a link
    running: bool = False  #: that is held, and it is sent
    here: Continuation | None = None  #: settles it, if that is held on the link on which it is sent

    def is_held(self, consumers: Iterable[ConsumerCore]) -> bool:
        """Return whether all that it received waits in `consumers` again; what no other session can get need not."""
        here = {one.memory.name(each) for one in consumers for each in one.waiting}
        return all(
            consumer.settings.kind is DestinationKind.TOPIC
            or all(consumer.memory.name(each) in here for each in batch)
            for consumer, batch in self.batches
        )

    def frames(self, receipt_id: str) -> list[Frame]:
        """Return the SENDs outside any transaction, in their order; the receipt of the last one confirms them all."""
        *others, last = [sent.frame for sent in self.sends]
        return [*others, Frame("SEND", {**last.headers, "receipt": receipt_id}, last.body)]


def repeatable(sends: Sequence[TxSend], dialect: Dialect) -> bool:
    """Return whether the broker recognises each of `sends` when it is sent again."""
    names = dialect.output_headers("").keys()
    return bool(names) and all(names <= sent.frame.headers.keys() for sent in sends)
