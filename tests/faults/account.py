"""The account of one round: what became of every message, keyed by its body."""

from __future__ import annotations

import itertools
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable
    from collections.abc import Set as AbstractSet


class Delivery(NamedTuple):
    """One call of the handler."""

    moment: float  #: seconds, monotonic, the same clock in all processes of a machine
    redelivered: bool
    body: str

    @classmethod
    def parse(cls, line: str) -> Self:
        """One line of the consumer's journal."""
        moment, redelivered, body = line.split()
        return cls(float(moment), redelivered == "1", body)


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What was seen of one round; messages by their bodies."""

    sent: AbstractSet[str]  #: confirmed by the broker
    unconfirmed: AbstractSet[str]  #: the broker has them or not, and the producer was told so
    deliveries: list[Delivery]  #: in order
    left: AbstractSet[str]  #: still in the queue when all was over
    stranded: int  #: messages that the broker held for no consumer until it was started again
    dead: AbstractSet[str]  #: in the dead letter queue
    lifted: float  #: when the fault was over


@dataclass(frozen=True, slots=True)
class Account:
    """The sums of one or more rounds; messages, save where it says seconds."""

    case: str
    rounds: int = 0
    sent: int = 0  #: confirmed by the broker
    settled: int = 0  #: of those: handled, and gone from the queue
    dead_lettered: int = 0
    lost: int = 0  #: sent, never handled, and neither in the queue nor in the dead letter queue
    duplicates: int = 0  #: deliveries after a message's first
    unflagged_duplicates: int = 0  #: of those, without JMSRedelivered
    max_recovery_seconds: float = 0.0  #: longest time without a delivery after the fault was over
    unconfirmed: int = 0  #: sends that raised SendUnconfirmedError
    stranded: int = 0  #: in delivery for nobody, until the broker was started again
    stuck: int = 0  #: other messages still in the queue though a consumer was there
    worst: list[str] = field(default_factory=list)  #: some bodies of lost or unflagged messages

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        return bool(self.lost or self.unflagged_duplicates or self.stuck)

    def add(self, traces: Traces) -> Account:
        """The account with one more round."""
        handled = {delivery.body for delivery in traces.deliveries}
        again = repeats(traces.deliveries)
        unflagged = [delivery.body for delivery in again if not delivery.redelivered]
        lost = traces.sent - handled - traces.left - traces.dead
        return Account(
            case=self.case,
            rounds=self.rounds + 1,
            sent=self.sent + len(traces.sent),
            settled=self.settled + len((traces.sent & handled) - traces.left - traces.dead),
            dead_lettered=self.dead_lettered + len(traces.dead),
            lost=self.lost + len(lost),
            duplicates=self.duplicates + len(again),
            unflagged_duplicates=self.unflagged_duplicates + len(unflagged),
            max_recovery_seconds=max(self.max_recovery_seconds, _silence(traces)),
            unconfirmed=self.unconfirmed + len(traces.unconfirmed),
            stranded=self.stranded + traces.stranded,
            stuck=self.stuck + max(0, len(traces.left) - traces.stranded),
            worst=[*self.worst, *sorted(lost), *unflagged][:10],
        )

    def as_json(self) -> dict[str, Any]:
        """Plain values, with seconds to the millisecond."""
        return {**asdict(self), "max_recovery_seconds": round(self.max_recovery_seconds, 3)}


def repeats(deliveries: Iterable[Delivery]) -> list[Delivery]:
    """All deliveries of a message after its first."""
    seen: defaultdict[str, list[Delivery]] = defaultdict(list)
    for delivery in deliveries:
        seen[delivery.body].append(delivery)
    return [each for same in seen.values() for each in same[1:]]


def _silence(traces: Traces) -> float:
    """The longest time without a delivery since the fault was over, up to the last delivery."""
    later = (each.moment for each in traces.deliveries if each.moment > traces.lifted)
    moments = sorted([traces.lifted, *later])
    return max((after - before for before, after in itertools.pairwise(moments)), default=0.0)
