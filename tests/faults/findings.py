"""What is wrong with the account of a random round, by what the guide promises for its settings."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from tests.faults.account import Delivery, End, Traces, beyond_first

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from collections.abc import Set as AbstractSet

    from tests.faults.settings import Plan


class Finding(NamedTuple):
    """Something that was not as it is promised, or only by an exception that the guide names."""

    kind: str
    body: str  #: of the message; "": it is none of one message
    words: str = ""
    excuse: str = ""  #: the exception; "": there is none


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """All that is known of a round when it is over."""

    broker: str  #: its kind
    plan: Plan
    traces: Traces
    booked: Sequence[str] = ()  #: what handlers wrote into the database
    started: Mapping[int, float] = field(default_factory=dict)  #: when, by process; monotonic
    killed: Mapping[int, float] = field(default_factory=dict)  #: when, by process; likewise
    sent_at: Mapping[str, float] = field(default_factory=dict)  #: by body; likewise
    #: By body, the processes whose event log tells of its dead letter.
    deaths: Mapping[str, Sequence[int]] = field(default_factory=dict)
    #: By body, the processes whose event log tells of a dead letter that lost its link unanswered.
    unanswered: Mapping[str, Sequence[int]] = field(default_factory=dict)

    @property
    def calls(self) -> Mapping[str, Sequence[Delivery]]:
        """The deliveries of each message, in their order."""
        calls: defaultdict[str, list[Delivery]] = defaultdict(list)
        for delivery in sorted(self.traces.deliveries):
            calls[delivery.body].append(delivery)
        return calls

    @property
    def done(self) -> AbstractSet[str]:
        """Messages of which the handler's work is there, be it outputs, rows of the database, or a call that ended."""
        if self.traces.outputs is not None:
            return set(self.traces.outputs)
        if self.plan.store == "database":
            return set(self.booked)
        return {call.body for call in self.traces.deliveries if call.end is End.OK}

    @property
    def transacted(self) -> bool:
        """Whether a call that ended may be undone all the same."""
        return self.plan.mode == "SESSION_TRANSACTED"


def find(record: Record) -> list[Finding]:
    """What is wrong, and what is excused."""
    return [_excused(finding, record) for look in _LOOKS for finding in look(record)]


def _lost(record: Record) -> Iterator[Finding]:
    """Neither done, nor a dead letter, nor there."""
    traces = record.traces
    for body in sorted(traces.sent - record.done - traces.left - set(traces.dead)):
        yield Finding("lost", body, _told(record, body))


def _stuck(record: Record) -> Iterator[Finding]:
    """In the queue though consumers were there; those that the broker held for nobody are told apart."""
    for body in sorted(record.traces.left):
        kind = "stranded" if body in record.traces.held else "stuck"
        yield Finding(kind, body, _told(record, body))


def _doubled(record: Record) -> Iterator[Finding]:
    """Work that is there twice, where outputs or rows tell, and dead letters."""
    kinds = {"output": record.traces.outputs or (), "booking": record.booked}
    for kind, bodies in {**kinds, "dead letter": record.traces.dead}.items():
        for body in beyond_first(bodies):
            yield Finding(f"{kind} twice", body, _told(record, body))


def _done_twice(record: Record) -> Iterator[Finding]:
    """Done again although a store knew it: unless the process died in between, or two had it at the same moment."""
    if record.plan.store not in {"memory", "sqlite"} or record.transacted:
        return
    for body, calls in record.calls.items():
        done: list[Delivery] = []
        for call in calls:
            if call.end is not End.OK:
                continue
            known = [
                one
                for one in done
                if one.ended < call.moment
                and one.pid not in record.killed
                and (one.pid == call.pid or record.plan.store == "sqlite")
            ]
            if known:
                yield Finding("done twice", body, _told(record, body))
                break
            done.append(call)


def _done_and_dead(record: Record) -> Iterator[Finding]:
    """Its work is there, and it is a dead letter."""
    if record.transacted and record.traces.outputs is None and record.plan.store != "database":
        return  # nobody can tell which of its calls was committed
    for body in sorted(record.done & set(record.traces.dead)):
        yield Finding("done and dead", body, _told(record, body))


def _dead_early(record: Record) -> Iterator[Finding]:
    """A dead letter that had not all its attempts: as far as processes that were killed have used none up."""
    limit = 1 + record.plan.maximum_redeliveries
    calls = record.calls
    begun = Counter[int]()
    for body in sorted(set(record.traces.dead)):
        mine = calls.get(body, ())
        missing = limit - sum(_blames(call, record) for call in mine)
        if missing > 0 and not _just_begun(record, body, missing, begun):
            yield Finding("dead early" if mine else "dead unseen", body, _told(record, body))


def _blames(call: Delivery, record: Record) -> bool:
    """
    Whether it counts as a failure; with a ledger one that its process did not live to settle does, too.

    What is to be committed, to the broker or a database, has not ended with the handler's own end.
    """
    if call.end is End.FAILED:
        return True
    cut_short = call.end is End.NONE or record.transacted or record.plan.store == "database"
    return record.plan.ledger and call.pid in record.killed and cut_short


def _just_begun(record: Record, body: str, times: int, begun: Counter[int]) -> bool:
    """
    Whether a message was so many times on its way from the ledger, which is written first, into a handler that no
    process lived to call.

    Each time was of a process that was killed when the message had been sent, and was in no call. `begun` is how many
    each process has had of those before, which is one a consumer. Where messages wait before their handler the ledger
    is told when that is called, so none is excused.
    """
    plan = record.plan
    if not plan.ledger or plan.store or plan.batch:
        return False
    calls = record.calls.get(body, ())
    mine = [
        pid
        for pid, at in record.killed.items()
        if record.sent_at.get(body, 0.0) < at
        and begun[pid] < plan.concurrency
        and not any(_in_call(call, at, record) for call in calls)
    ]
    begun.update(mine[:times])
    return len(mine) >= times


def _in_call(call: Delivery, at: float, record: Record) -> bool:
    """Whether the message was in this call at that moment."""
    return call.moment <= at <= min(call.ended, record.killed.get(call.pid, math.inf))


def _came_again(record: Record, body: str) -> bool:
    """Whether a message came again although it was done, because its link was lost before its ACK was written."""
    calls = record.calls.get(body, ())
    return any(call.end is End.OK for call in calls[:-1])


def _unflagged(record: Record) -> Iterator[Finding]:
    """
    Not the first time, and not flagged so.

    Who gave the message back unseen before another process had it is not told; so only processes count that had it
    themselves, or that began when another one had had it.
    """
    for body, calls in record.calls.items():
        for number, call in enumerate(calls):
            if call.redelivered:
                continue
            own = any(one.pid == call.pid for one in calls[:number])
            began = record.started.get(call.pid, 0.0)
            others = any(one.moment < began for one in calls[:number])
            if own or others:
                unsettled = any(one.end is End.NONE for one in calls[:number])
                by_ledger = record.plan.ledger and unsettled
                kind = "unflagged" if own or by_ledger else "unflagged elsewhere"
                yield Finding(kind, body, _told(record, body))
                break


def _other(record: Record) -> Iterator[Finding]:
    """What was found beside the messages."""
    for words in record.traces.broken:
        yield Finding("broken", "", words)


_LOOKS: Final[tuple[Callable[[Record], Iterator[Finding]], ...]] = (
    _lost,
    _stuck,
    _doubled,
    _done_twice,
    _done_and_dead,
    _dead_early,
    _unflagged,
    _other,
)


def _copied_in_two_steps(record: Record, body: str) -> bool:
    """
    Whether all copies of a message but one may be of who was killed, or lost its link, before it could acknowledge it.

    A cumulative ACK would have settled older messages, and a NACK goes to the broker's own queue. So in a batch with
    older messages, or in one that was still gathered, a copy comes first.
    """
    plan = record.plan
    if not (plan.dead_letter == "dead" and plan.cumulative and (plan.batch or 1) > 1):
        return False
    if record.traces.dead.count(body) - 1 <= len(record.unanswered.get(body, ())):
        return True
    makers = record.deaths.get(body, ())
    lived = sum(pid not in record.killed for pid in makers)
    return lived <= 1 and any(_copied_beside_older(record, body, pid) for pid in record.killed)


def _copied_beside_older(record: Record, body: str, pid: int) -> bool:
    """Whether a process has copied a message when it was not done with older ones of the same batch."""
    mine = [call for call in record.calls.get(body, ()) if call.pid == pid]
    if not mine:
        return pid in record.deaths.get(body, ())
    failed = mine[-1]
    batch = [
        call for call in record.traces.deliveries if (call.moment, call.pid) == (failed.moment, pid)
    ]
    older = batch[: batch.index(failed)]
    return failed.end is End.FAILED and any(call.end is End.UNDONE for call in older)


#: What the guide excepts (examples/guarantees): kind of finding, its words, and where they hold.
_EXCEPTIONS: Final[tuple[tuple[str, str, Callable[[Record, str], bool]], ...]] = (
    (
        "stranded",
        "Artemis may keep a message in delivery for nobody (jmsx_artemis/BROKER.md A66)",
        lambda record, _: record.broker == "artemis",
    ),
    (
        "output twice",
        "who dies between scheduling and acknowledging leaves two",
        lambda record, _: (
            record.broker == "artemis" and record.plan.scheduled and bool(record.killed)
        ),
    ),
    (
        "dead letter twice",
        "Artemis: never none, perhaps a second one",
        lambda record, _: record.broker == "artemis",
    ),
    (
        "dead letter twice",
        "a second one may be left where older messages of the consumer are not settled",
        lambda record, body: record.broker == "classic" and _copied_in_two_steps(record, body),
    ),
    (
        "done and dead",
        "an input whose acknowledgement got lost comes again, and may fail then",
        lambda record, body: (
            record.broker == "artemis"
            or (not (record.transacted or record.plan.store) and _came_again(record, body))
        ),
    ),
    (
        "unflagged elsewhere",
        "Artemis flags the oldest, or all; a ledger what was not settled",
        lambda record, _: record.broker == "artemis",
    ),
)


def _excused(finding: Finding, record: Record) -> Finding:
    for kind, words, holds in _EXCEPTIONS:
        if kind == finding.kind and holds(record, finding.body):
            return finding._replace(excuse=words)
    return finding


def _told(record: Record, body: str) -> str:
    """The calls of a message: when after the first, by which process, flagged or not, and how each ended."""
    calls = record.calls.get(body, ())
    if not calls:
        return "no call"
    began = calls[0].moment
    return ", ".join(
        f"+{call.moment - began:.3f} s {call.pid}{' killed' if call.pid in record.killed else ''}"
        f"{' flagged' if call.redelivered else ''} {call.end}"
        for call in calls
    )
