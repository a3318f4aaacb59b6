"""What is found in the account of a random round: what was planted, and nothing where nothing was."""

from __future__ import annotations

from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import AcknowledgeMode
from jmsx_prometheus import PrometheusObserver
from tests.faults.account import Delivery, End, Traces, with_ends
from tests.faults.brokers import KINDS
from tests.faults.consumer import application
from tests.faults.findings import Record, find
from tests.faults.rounds import draw
from tests.faults.settings import Plan, Task, Way

if TYPE_CHECKING:
    from pathlib import Path

PLAN = Plan(maximum_redeliveries=1)


def call(
    moment: float,
    body: str,
    end: End = End.OK,
    *,
    flagged: bool = False,
    pid: int = 1,
) -> Delivery:
    """One that took half a second."""
    return Delivery(moment, flagged, body, pid, end, moment + 0.5)


#: a is done, b failed once and is done, c failed twice and is a dead letter.
KEPT = Traces(
    sent={"a", "b", "c"},
    unconfirmed=set(),
    deliveries=[
        call(1, "a"),
        call(2, "b", End.FAILED),
        call(3, "b", flagged=True),
        call(4, "c", End.FAILED),
        call(5, "c", End.FAILED, flagged=True),
    ],
    left=set(),
    stranded=0,
    dead=["c"],
    lifted=0.0,
)


def found(traces: Traces, plan: Plan = PLAN, **known: Any) -> list[tuple[str, str]]:
    """What nothing excuses: kinds and bodies."""
    record = Record(**{"broker": "classic", "plan": plan, "traces": traces, **known})
    return [(each.kind, each.body) for each in find(record) if not each.excuse]


@pytest.mark.parametrize("kind", KINDS)
def test_a_round_that_was_kept(kind: str) -> None:
    """Nothing is found in it, and nothing has to be excused."""
    assert find(Record(broker=kind, plan=PLAN, traces=KEPT)) == []


@pytest.mark.parametrize(
    ("traces", "what"),
    [
        (replace(KEPT, sent={*"abcd"}), ("lost", "d")),
        (replace(KEPT, dead=[]), ("lost", "c")),
        (replace(KEPT, left={"c"}, dead=[]), ("stuck", "c")),
        (replace(KEPT, dead=["c", "c"]), ("dead letter twice", "c")),
        (
            replace(KEPT, dead=["b", "c"], deliveries=[*KEPT.deliveries[:2], *KEPT.deliveries[3:]]),
            ("dead early", "b"),
        ),
        (replace(KEPT, sent={*"abcd"}, dead=["c", "d"]), ("dead unseen", "d")),
        (
            replace(KEPT, deliveries=[*KEPT.deliveries, call(6, "c", flagged=True)]),
            ("done and dead", "c"),
        ),
        (replace(KEPT, deliveries=[*KEPT.deliveries, call(6, "a")]), ("unflagged", "a")),
        (replace(KEPT, broken=["it was slow"]), ("broken", "")),
    ],
    ids=lambda given: given[0] if isinstance(given, tuple) else "",
)
def test_what_is_planted(traces: Traces, what: tuple[str, str]) -> None:
    """It is found, and nothing beside it."""
    assert found(traces) == [what]


def test_outputs_and_bookings_are_the_work() -> None:
    """Where they tell, calls that ended well prove nothing; what is missing there is lost."""
    sends = replace(PLAN, mode="SESSION_TRANSACTED", forwards=True)
    assert found(replace(KEPT, outputs=["a", "b"]), sends) == []
    assert found(replace(KEPT, outputs=["a"]), sends) == [("lost", "b")]
    assert found(replace(KEPT, outputs=["a", "b", "b"]), sends) == [("output twice", "b")]
    assert found(replace(KEPT, outputs=["a", "b", "c"]), sends) == [("done and dead", "c")]
    books = replace(PLAN, store="database")
    assert found(KEPT, books, booked=["a", "b"]) == []
    assert found(KEPT, books, booked=["b"]) == [("lost", "a")]
    assert found(KEPT, books, booked=["a", "b", "a"]) == [("booking twice", "a")]


def test_what_a_store_knew() -> None:
    """It is not done again, unless its process was killed, or another one was at it at the same moment."""
    again = replace(KEPT, deliveries=[*KEPT.deliveries, call(6, "a", flagged=True)])
    elsewhere = replace(KEPT, deliveries=[*KEPT.deliveries, call(6, "a", flagged=True, pid=2)])
    at_once = replace(KEPT, deliveries=[*KEPT.deliveries, call(1.2, "a", flagged=True, pid=2)])
    file, memory = (replace(PLAN, store=store) for store in ("sqlite", "memory"))
    assert found(again) == []
    assert found(again, memory) == found(again, file) == [("done twice", "a")]
    assert found(elsewhere, file) == [("done twice", "a")]
    assert found(elsewhere, memory) == found(at_once, file) == []
    assert found(elsewhere, file, killed={1: 4.2}) == []


def test_what_a_killed_process_had() -> None:
    """A ledger counts it as a failure, and nothing else does."""
    calls = [call(4, "c", End.NONE), call(5, "c", End.FAILED, flagged=True, pid=2)]
    traces = replace(KEPT, deliveries=[*KEPT.deliveries[:3], *calls])
    assert found(traces, killed={1: 4.2}) == [("dead early", "c")]
    assert found(traces, replace(PLAN, ledger=True), killed={1: 4.2}) == []
    assert found(traces, replace(PLAN, ledger=True)) == [("dead early", "c")]
    booked = replace(
        traces, deliveries=[*KEPT.deliveries[:3], calls[0]._replace(end=End.OK), calls[1]]
    )
    ledger = replace(PLAN, ledger=True, store="database")
    assert found(booked, ledger, killed={1: 4.2}, booked=["a", "b"]) == []


@pytest.mark.parametrize("waits", [{"batch": 2}, {"store": "sqlite"}])
def test_what_waited_before_its_handler_in_a_killed_process(waits: dict[str, Any]) -> None:
    """A ledger does not count it: for the rest of a batch, or for a store."""
    dead = replace(KEPT, sent={*"abcd"}, dead=["c", "d"])
    plan = replace(PLAN, ledger=True, maximum_redeliveries=0, **waits)
    assert found(dead, plan, killed={1: 9.0, 2: 9.0}) == [("dead unseen", "d")]
    elsewhere = replace(KEPT, deliveries=[*KEPT.deliveries[:3], call(4, "c", End.FAILED, pid=3)])
    twice = replace(plan, maximum_redeliveries=1)
    assert found(elsewhere, twice, killed={1: 3.9, 2: 4.6}) == [("dead early", "c")]


def test_what_a_killed_process_was_about_to_call() -> None:
    """A ledger is written before that: one for each consumer of a process that was killed when it was in no call."""
    dead = replace(KEPT, sent={*"abcd"}, dead=["c", "d"])
    once = replace(PLAN, ledger=True, maximum_redeliveries=0, concurrency=1)
    assert found(dead, once, killed={1: 9.0}) == []
    assert found(dead, once) == [("dead unseen", "d")]
    assert found(dead, once, killed={1: 9.0}, sent_at={"d": 9.5}) == [("dead unseen", "d")]
    assert found(dead, replace(once, ledger=False), killed={1: 9.0}) == [("dead unseen", "d")]
    more = replace(dead, sent={*"abcde"}, dead=["c", "d", "e"])
    assert found(more, once, killed={1: 9.0}) == [("dead unseen", "e")]
    assert found(more, once, killed={1: 9.0, 2: 9.0}) == []
    own = replace(KEPT, deliveries=[*KEPT.deliveries[:3], call(4, "c", End.NONE, pid=3)])
    twice = replace(once, maximum_redeliveries=1)
    assert found(own, twice, killed={3: 4.2}) == [("dead early", "c")]
    assert found(own, twice, killed={1: 3.9, 3: 4.2}) == []


def test_what_came_again_although_it_was_done() -> None:
    """Its ACK was lost with its link, and a later call may fail; where a store knows it, it is not called again."""
    calls = [call(2.6, "c", End.OK), call(4, "c", End.FAILED, flagged=True)]
    again = replace(KEPT, deliveries=[*KEPT.deliveries[:3], *calls])
    once = replace(PLAN, maximum_redeliveries=0)
    assert found(again, once) == []
    assert found(again, replace(once, store="memory")) == [("done and dead", "c")]
    dead = replace(KEPT, deliveries=[*KEPT.deliveries, call(6, "c", flagged=True)])
    assert found(dead) == [("done and dead", "c")]


def test_a_copy_beside_older_messages() -> None:
    """Classic: of who was killed or lost its link, in a batch with older ones; nowhere else."""
    batch = [
        call(4, "a", End.UNDONE),
        call(4, "c", End.FAILED),
        call(6, "a", pid=2),
    ]
    plan = replace(PLAN, mode="SESSION_TRANSACTED", forwards=True, batch=2, dead_letter="dead")
    plan = replace(plan, maximum_redeliveries=0)
    twice = replace(KEPT, deliveries=batch, dead=["c", "c"], outputs=["a", "b"])
    told: dict[str, Any] = {"killed": {1: 4.6}, "deaths": {"c": [1, 2]}}
    broken = [("dead letter twice", "c")]
    assert found(twice, plan, **told) == []
    assert found(twice, plan, **told | {"killed": {}}) == broken
    assert found(twice, plan, **told | {"deaths": {"c": [2, 2]}}) == broken
    cut = {"deaths": {"c": [2]}, "unanswered": {"c": [2]}}
    assert found(twice, plan, **cut) == []
    assert found(replace(twice, dead=["c", "c", "c"]), plan, **cut) == broken * 2
    assert found(twice, replace(plan, dead_letter="safe"), **cut) == broken
    assert found(twice, replace(plan, dead_letter="safe"), **told) == broken
    assert found(twice, replace(plan, non_blocking=True), **told) == broken
    behind = replace(twice, deliveries=[batch[1], batch[0], batch[2]])
    assert found(behind, plan, **told) == broken
    died = call(4, "c", End.NONE, pid=3)
    unseen = replace(twice, deliveries=[died, batch[0], batch[2]])
    limit = replace(plan, ledger=True)
    told["killed"][3] = 4.2
    assert found(unseen, limit, **told) == []
    assert found(unseen, limit, **told | {"deaths": {"c": [2, 4]}}) == broken


def test_whose_flag_is_promised() -> None:
    """Of another process only one that began when somebody had had the message; Artemis flags the oldest only."""
    traces = replace(KEPT, deliveries=[*KEPT.deliveries, call(6, "a", pid=2)])
    assert found(traces, started={1: 0.0, 2: 0.0}) == []
    assert found(traces, started={1: 0.0, 2: 3.0}) == [("unflagged elsewhere", "a")]
    assert found(traces, started={1: 0.0, 2: 3.0}, broker="artemis") == []
    calls = [call(1, "a", End.NONE), *KEPT.deliveries[1:], call(6, "a", pid=2)]
    unsettled = replace(KEPT, deliveries=calls)
    told: dict[str, Any] = {"started": {1: 0.0, 2: 3.0}, "broker": "artemis"}
    assert found(unsettled, **told) == []
    assert found(unsettled, replace(PLAN, ledger=True), **told) == [("unflagged", "a")]


@pytest.mark.parametrize(
    ("traces", "plan", "kind"),
    [
        (replace(KEPT, left={"c"}, dead=[], stranded=1), PLAN, "stranded"),
        (replace(KEPT, dead=["c", "c"]), PLAN, "dead letter twice"),
        (
            replace(KEPT, outputs=["a", "b", "b"]),
            replace(PLAN, forwards=True, scheduled=True),
            "output twice",
        ),
    ],
)
def test_what_the_guide_excepts(traces: Traces, plan: Plan, kind: str) -> None:
    """It is found, with the words that excuse it; on Classic it is not excused."""
    record = Record(broker="artemis", plan=plan, traces=traces, killed={7: 1.0})
    (excused,) = find(record)
    assert (excused.kind, bool(excused.excuse)) == (kind, True)
    (plain,) = find(replace(record, broker="classic"))
    assert (plain.kind, plain.excuse) == (kind, "")


def test_the_journal_and_the_ends() -> None:
    """Their lines say the same as what was written; a call without an end has none."""
    done, open_ = call(1.25, "q/1"), call(2.5, "q/2!raise", End.NONE, flagged=True, pid=7)
    read = [Delivery.parse(each.line()) for each in (done, open_)]
    assert with_ends(read, [done.end_line().strip()]) == [done, open_._replace(ended=read[1].ended)]


def test_every_drawn_consumer_is_taken(tmp_path: Path) -> None:
    """By `@app.consumer`, which refuses what makes no sense; its name tells its handler."""
    names = set()
    for seed in range(100):
        task = Task(
            plan=draw(Random(seed), "classic"),
            way=Way(("stomp://127.0.0.1:1",)),
            queue="q",
            folder=tmp_path,
        )
        app = application(task, PrometheusObserver())
        names |= {consumer.name for consumer in app.consumers}
        app.abort()
    assert len(names) == 8


@pytest.mark.parametrize("kind", KINDS)
def test_settings_make_sense_and_are_drawn_again(kind: str) -> None:
    """The same seed draws the same; every mode comes, and a batch only where it may."""
    plans = [draw(Random(seed), kind) for seed in range(300)]
    assert plans == [draw(Random(seed), kind) for seed in range(300)]
    assert {plan.mode for plan in plans} == {*AcknowledgeMode.__members__}
    plans += [draw(Random(seed), kind, mode="AUTO_ACKNOWLEDGE", batch=10) for seed in range(50)]
    for plan in plans:
        assert plan.batch is None or AcknowledgeMode[plan.mode].does.in_batches is not None
        assert plan.prefetch is None or plan.prefetch >= (plan.batch or 1)
        task = Task(plan=plan, way=Way(()), queue="q")
        assert Task.loads(task.dumps()) == task
