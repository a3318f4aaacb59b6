"""The account of one round: what became of every message, keyed by its body."""

from __future__ import annotations

import itertools
import math
from collections import defaultdict
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final, NamedTuple, Self

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from collections.abc import Set as AbstractSet

#: How many bodies and broken promises an account repeats.
_SOME: Final = 10


class End(StrEnum):
    """How a call of the handler ended for one of its messages."""

    OK = "ok"
    FAILED = "failed"
    UNDONE = "undone"  #: it did not fail, and is not done because others did
    NONE = "none"  #: it did not end


class Delivery(NamedTuple):
    """One message of one call of the handler."""

    moment: float  #: seconds, monotonic, the same clock in all processes of a machine
    redelivered: bool
    body: str
    pid: int = 0  #: of the process
    end: End = End.NONE
    ended: float = math.inf  #: when; the same clock

    @classmethod
    def parse(cls, line: str) -> Self:
        """One line of the journal."""
        moment, pid, redelivered, body = line.split()
        return cls(float(moment), redelivered == "1", body, int(pid))

    def line(self) -> str:
        """One line of the journal."""
        return f"{self.moment} {self.pid} {int(self.redelivered)} {self.body}\n"

    def end_line(self) -> str:
        """One line about its end."""
        return f"{self.moment} {self.pid} {self.body} {self.end} {self.ended}\n"


def with_ends(deliveries: Iterable[Delivery], lines: Iterable[str]) -> list[Delivery]:
    """The deliveries, and how each ended by these lines."""
    ends = {(moment, pid, body): told for moment, pid, body, *told in map(str.split, lines)}

    def ended(one: Delivery) -> Delivery:
        told = ends.get((str(one.moment), str(one.pid), one.body))
        return one if told is None else one._replace(end=End(told[0]), ended=float(told[1]))

    return [ended(one) for one in deliveries]


@dataclass(frozen=True, slots=True, kw_only=True)
class Traces:
    """What was seen of one round; messages by their bodies."""

    sent: AbstractSet[str]  #: confirmed by the broker
    unconfirmed: AbstractSet[str]  #: the broker has them or not, and the producer was told so
    deliveries: Sequence[Delivery]  #: in order
    left: AbstractSet[str]  #: still in the queue when all was over
    stranded: int  #: messages that the broker held for no consumer until it was started again
    dead: Sequence[str]  #: in the dead letter queue
    lifted: float  #: when the fault was over
    until: float = math.inf  #: when brokers began to be stopped for what comes afterwards
    outputs: Sequence[str] | None = None  #: what the handler sent on; None: it was not to
    broken: Sequence[str] = ()  #: what else was promised and not kept

    @property
    def handled(self) -> AbstractSet[str]:
        """Those of which the handler's work is there."""
        if self.outputs is not None:
            return set(self.outputs)
        return {delivery.body for delivery in self.deliveries}

    @property
    def held(self) -> AbstractSet[str]:
        """Those that are in the queue because the broker held them back: none, if there are others as well."""
        return self.left if len(self.left) <= self.stranded else set()


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
    doubled: int = 0  #: what handlers sent on, or dead letters, that are there more than once
    stranded: int = 0  #: in delivery for nobody, until the broker was started again
    stuck: int = 0  #: other messages still in the queue though a consumer was there
    broken: list[str] = field(default_factory=list)  #: what else was promised and not kept
    worst: list[str] = field(default_factory=list)  #: bodies of lost, unflagged or doubled messages

    @property
    def failed(self) -> bool:
        """Whether a promise was broken."""
        return bool(
            self.lost or self.unflagged_duplicates or self.doubled or self.stuck or self.broken
        )

    def add(self, traces: Traces) -> Account:
        """The account with one more round."""
        again = repeats(traces.deliveries)
        unflagged = [delivery.body for delivery in again if not delivery.redelivered]
        gone = traces.handled - traces.left - set(traces.dead)
        lost = traces.sent - traces.handled - traces.left - set(traces.dead)
        doubled = [*beyond_first(traces.outputs or ()), *beyond_first(traces.dead)]
        return Account(
            case=self.case,
            rounds=self.rounds + 1,
            sent=self.sent + len(traces.sent),
            settled=self.settled + len(traces.sent & gone),
            dead_lettered=self.dead_lettered + len(set(traces.dead)),
            lost=self.lost + len(lost),
            duplicates=self.duplicates + len(again),
            unflagged_duplicates=self.unflagged_duplicates + len(unflagged),
            max_recovery_seconds=max(self.max_recovery_seconds, silence(traces)),
            unconfirmed=self.unconfirmed + len(traces.unconfirmed),
            doubled=self.doubled + len(doubled),
            stranded=self.stranded + traces.stranded,
            stuck=self.stuck + max(0, len(traces.left) - traces.stranded),
            broken=[*self.broken, *traces.broken][:_SOME],
            worst=[*self.worst, *sorted(lost), *unflagged, *doubled][:_SOME],
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


def silence(traces: Traces) -> float:
    """The longest time without a delivery since the fault was over, up to the last delivery; seconds."""
    moments = (each.moment for each in traces.deliveries)
    return longest_silence(moments, traces.lifted, traces.until)


def longest_silence(moments: Iterable[float], start: float, end: float = math.inf) -> float:
    """The longest time without one of `moments`, from `start` to the last of them before `end`; seconds."""
    within = sorted([start, *(moment for moment in moments if start < moment < end)])
    return max((after - before for before, after in itertools.pairwise(within)), default=0.0)


def beyond_first(bodies: Iterable[str]) -> list[str]:
    """Each body as often as it is there too often."""
    seen: set[str] = set()
    return [body for body in bodies if body in seen or seen.add(body)]  # type: ignore[func-returns-value]  # add() is None, which is false
