"""The cases: a fault, what the consuming program does meanwhile, and what is promised beside that nothing is lost."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.faults import deeds, promises
from tests.faults.settings import Plan

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from tests.faults.account import Traces
    from tests.faults.scene import Scene

#: Seconds for recovery where the consuming program itself has to start, on a machine that is busy.
_START: Final = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """One fault, and its terms."""

    fault: Callable[[Scene], None]
    plan: Plan = field(default_factory=Plan)
    brokers: int = 1
    afterwards: Callable[[Scene], None] | None = None  #: when all is sent
    aside: bool = False  #: the producer goes round the proxy
    recovery: float = 5.0  #: seconds that it may take at most, from when the fault is over
    promises: Callable[[Scene, Traces], Iterable[str]] = promises.none_dies  #: which are broken


CASES: Final[dict[str, Case]] = {
    "broker-killed": Case(fault=deeds.broker_killed),
    "broker-restarted": Case(fault=deeds.broker_restarted),
    "connection-cut": Case(fault=deeds.connection_cut),
    "half-open": Case(fault=deeds.half_open),
    "broker-paused": Case(fault=deeds.broker_paused),
    # without a ledger Artemis flags only the oldest message of those that its next consumer gets again
    "consumer-killed": Case(fault=deeds.consumer_killed, plan=Plan(ledger=True), recovery=_START),
    "crash-loop": Case(
        fault=deeds.crash_loop,
        # handlers that are at work when their process is killed would share the blame
        plan=Plan(marks={"kill": 2}, maximum_redeliveries=2, work=0.0, ledger=True),
        recovery=_START,
        promises=promises.marked_die,
    ),
    "commit-cut": Case(
        fault=deeds.commit_cut,
        plan=Plan(mode="SESSION_TRANSACTED", forwards=True),
        aside=True,
    ),
    "commit-cut-markers": Case(
        fault=deeds.commit_cut,
        plan=Plan(mode="SESSION_TRANSACTED", forwards=True, markers=True),
        aside=True,
        promises=promises.no_marker_stays,
    ),
    "commit-killed": Case(
        fault=deeds.broker_killed, plan=Plan(mode="SESSION_TRANSACTED", forwards=True)
    ),
    "dlq-refused": Case(
        fault=deeds.dlq_refused,
        plan=Plan(marks={"raise": 6}, maximum_redeliveries=1, dead_letter="dlqs"),
        recovery=10.0,  # a copy that was refused is sent again after 5 s
        promises=promises.marked_are_dead,
    ),
    "slow-handler": Case(fault=deeds.slow_handler, plan=Plan(marks={"slow": 2})),
    "disk-full": Case(fault=deeds.disk_full, promises=promises.events_are_whole),
    "clock-stepped": Case(
        fault=deeds.clock_stepped,
        plan=Plan(marks={"retry": 10}, ledger=True, stepped=True),
        promises=promises.marked_come_twice,
    ),
    "sigterm": Case(
        fault=deeds.sigterm, plan=Plan(work=0.01), promises=promises.nothing_comes_twice
    ),
    "failover": Case(fault=deeds.failover, brokers=2, afterwards=deeds.drain_both),
}
