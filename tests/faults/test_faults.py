"""The fault bench itself: that its accounts tell losses from kept promises, and two cases of it on a real broker."""

from __future__ import annotations

import json
import os
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import Outcome
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver
from tests.dashboards.stories import DEAD_LETTERED, ENDED, SENT, SOURCE
from tests.faults.__main__ import main
from tests.faults.account import Account, Delivery, Traces
from tests.faults.books import disagreements, numbers
from tests.faults.brokers import KINDS
from tests.faults.settings import Plan, Task, Way
from tests.faults.soak import Soak, Vitals

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx.core.events import Event

#: a, b and c were sent and handled, b twice and flagged.
KEPT = Traces(
    sent={"a", "b", "c"},
    unconfirmed=set(),
    deliveries=[
        Delivery(1.0, redelivered=False, body="a"),
        Delivery(2.0, redelivered=False, body="b"),
        Delivery(7.0, redelivered=True, body="b"),
        Delivery(8.0, redelivered=False, body="c"),
    ],
    left=set(),
    stranded=0,
    dead=[],
    lifted=4.0,
)


@pytest.mark.parametrize(
    "wrong",
    [
        *("--rounds 0", "--rounds x", "--messages -1", "--soak 0", "--soak nan", "--soak x"),
        *("--random 0", "--random x", "--plan x", "--plan []", '--plan {"batches":2}'),
    ],
)
def test_wrong_usage(wrong: str, capsys: pytest.CaptureFixture[str]) -> None:
    """It is told before a broker is started."""
    with pytest.raises(SystemExit) as left:
        main(wrong.split())
    assert left.value.code == 2
    assert f"argument {wrong.split(maxsplit=1)[0]}: must be" in capsys.readouterr().err


def test_a_kept_promise() -> None:
    """Nothing lost, the duplicate flagged; the longest silence since the fault was over is what it took."""
    account = Account("x").add(KEPT)
    assert account == Account(
        "x", rounds=1, sent=3, settled=3, duplicates=1, max_recovery_seconds=3.0
    )
    assert not account.failed


@pytest.mark.parametrize(
    ("traces", "lost", "unflagged", "stuck"),
    [
        (replace(KEPT, deliveries=KEPT.deliveries[:-1]), 1, 0, 0),
        (replace(KEPT, deliveries=[*KEPT.deliveries, KEPT.deliveries[0]]), 0, 1, 0),
        (replace(KEPT, left={"c"}), 0, 0, 1),
    ],
    ids=["lost", "unflagged duplicate", "stuck"],
)
def test_a_broken_promise(traces: Traces, lost: int, unflagged: int, stuck: int) -> None:
    """It is counted, it fails the run, and a kept round after it does not cover it."""
    account = Account("x").add(traces).add(KEPT)
    assert (account.lost, account.unflagged_duplicates, account.stuck) == (lost, unflagged, stuck)
    assert account.failed


@pytest.mark.parametrize(
    "traces",
    [
        replace(KEPT, deliveries=KEPT.deliveries[:-1], dead=["c"]),
        replace(KEPT, deliveries=KEPT.deliveries[:-1], left={"c"}, stranded=1),
        replace(KEPT, sent={"a", "b"}, unconfirmed={"c"}, deliveries=KEPT.deliveries[:-1]),
    ],
    ids=["dead letter", "stranded", "never confirmed"],
)
def test_what_is_no_loss(traces: Traces) -> None:
    """A message that lies somewhere, or that its sender was told to doubt."""
    account = Account("x").add(traces)
    assert not account.failed
    assert account.settled == 2


def test_work_that_is_done_twice() -> None:
    """What a handler sent on counts as its work: neither lost with its input nor there twice."""
    account = Account("x").add(replace(KEPT, outputs=["a", "b", "b"]))
    assert (account.settled, account.lost, account.doubled) == (2, 1, 1)
    assert account.worst == ["c", "b"]


def test_what_a_broker_holds_back() -> None:
    """It could not be delivered, so nothing is owed for it; but nobody tells it from what a consumer left."""
    assert replace(KEPT, left={"c"}, stranded=1).held == {"c"}
    assert replace(KEPT, left={"b", "c"}, stranded=1).held == set()


def test_other_promises() -> None:
    """One that is not kept fails the run."""
    assert Account("x").add(replace(KEPT, broken=["it was slow"])).failed


def booked(folder: Path, *observed: Event, closed: bool = True) -> Task:
    """A task whose program has told all this to its log and its metrics."""
    task = Task(plan=Plan(), way=Way(()), queue="q", folder=folder)
    log, metrics = EventLog(task.events, service="faults"), PrometheusObserver()
    for event in observed:
        log.observe(event, SOURCE)
        metrics.observe(event, SOURCE)
    log.close()
    if closed:
        told = {"pid": os.getpid(), "numbers": numbers(metrics)}
        task.metrics.mkdir()
        task.metrics.joinpath(str(os.getpid())).write_text(json.dumps(told))
    else:
        for segment in task.events.rglob("*.jsonl"):
            segment.write_bytes(segment.read_bytes().rpartition(b"\n{")[0] + b"\n")
    return task


def test_three_books_that_agree(tmp_path: Path) -> None:
    """What is done is gone, what is not is there, and all count the same."""
    done, waits = (
        replace(ENDED, message_key="A"),
        replace(ENDED, message_key="B", outcome=Outcome.ABANDONED),
    )
    task = booked(tmp_path, done, waits, SENT)
    traces = replace(KEPT, left={"b"})
    assert list(disagreements(task, traces, {"a": "A", "b": "B"})) == []


@pytest.mark.parametrize(
    ("left", "words"),
    [
        ({"a", "b"}, "1 are settled by the event log, and in the queue, such as A"),
        (set(), "1 are gone from the queue, and not settled by the event log, such as B"),
    ],
)
def test_a_broker_that_says_otherwise(tmp_path: Path, left: set[str], words: str) -> None:
    """Of a program that was killed nobody knows what its log would have said last."""
    told = (
        replace(ENDED, message_key="A"),
        replace(ENDED, message_key="B", outcome=Outcome.ABANDONED),
    )
    traces, keys = replace(KEPT, left=left), {"a": "A", "b": "B"}
    assert list(disagreements(booked(tmp_path / "ended", *told), traces, keys)) == [words]
    found = list(disagreements(booked(tmp_path / "killed", *told, closed=False), traces, keys))
    assert found == ([words] if left else [])


def test_dead_letters_of_the_log_and_of_the_broker(tmp_path: Path) -> None:
    """What the log says has to lie there; what the broker has put there says no log."""
    task = booked(tmp_path, replace(DEAD_LETTERED, message_key="A"))
    keys = {"a": "A", "b": "B"}
    assert list(disagreements(task, replace(KEPT, dead=["a", "b"]), keys)) == []
    (found,) = disagreements(task, replace(KEPT, dead=["b"], left={"a"}), keys)
    assert found == "1 are dead letters by the event log, and in no dead letter queue, such as A"


def test_metrics_that_say_otherwise(tmp_path: Path) -> None:
    """A line too few in the log, which does not say so."""
    task = booked(tmp_path, ENDED, ENDED)
    (segment,) = task.events.rglob("*.jsonl")
    lines = segment.read_bytes().splitlines(keepends=True)
    segment.write_bytes(b"".join(lines[:1] + lines[2:]))
    (found,) = disagreements(task, replace(KEPT, sent=set(), unconfirmed=set()), {})
    assert found.startswith("jmsx_processed_messages_total is {'acknowledged': 2")


def test_a_program_that_was_ended_before_it_began(tmp_path: Path) -> None:
    """It has counted nothing, and has no log; one that has counted something lacks its log."""
    task = booked(tmp_path)
    assert list(disagreements(task, KEPT, {})) == []
    for segment in task.events.rglob("*.jsonl*"):
        segment.unlink()
    assert list(disagreements(task, KEPT, {})) == []
    (told,) = task.metrics.iterdir()
    counted = {"jmsx_processed_messages_total": {"acknowledged": 1}}
    told.write_text(
        json.dumps(
            {"pid": 1, "numbers": {name: {} for name in numbers(PrometheusObserver())} | counted}
        )
    )
    (found,) = disagreements(task, KEPT, {})
    assert found.startswith(
        "jmsx_processed_messages_total is {'acknowledged': 1}, and the event log has {}"
    )


@pytest.mark.parametrize(
    ("last", "words"),
    [
        (Vitals(60.0, 109 << 20, 9, 20), ""),
        (Vitals(60.0, 111 << 20, 9, 20), "memory went from 100 to 111 MiB"),
        (Vitals(60.0, 100 << 20, 10, 20), "threads were not always the same"),
        (Vitals(60.0, 100 << 20, 9, 21), "files were not always the same"),
    ],
    ids=["steady", "memory", "threads", "files"],
)
def test_what_a_soak_finds(last: Vitals, words: str) -> None:
    """Memory may grow in the first sixth of the time, and then by a tenth; the rest stays as it is."""
    vitals = [Vitals(0.0, 50 << 20, 9, 20), Vitals(10.0, 100 << 20, 9, 20), last]
    found = Soak(account=Account("x"), minutes=1.0, faults=Counter(), vitals=vitals)
    assert found.failed is bool(words)
    assert words in "".join(found.unsteady)


@pytest.mark.broker
@pytest.mark.timeout(120)
@pytest.mark.parametrize("kind", KINDS)
def test_a_random_round(kind: str, capsys: pytest.CaptureFixture[str]) -> None:
    """One that is short, as the command line plays it: all is kept, and it tells how it is played again."""
    plan = {
        "maximum_redeliveries": 1,
        "delay": 0.0,
        "processes": 1,
        "marks": {"raise": 2, "once": 4},
    }
    code = main(["--broker", kind, "--round", "3", "--messages", "40", "--plan", json.dumps(plan)])
    told = capsys.readouterr().out
    assert code == 0, told
    assert told.startswith(f"kept   round 3 {kind} sent=")
    assert "1 rounds, " in told


@pytest.mark.broker
@pytest.mark.timeout(120)
def test_links_that_are_cut(capsys: pytest.CaptureFixture[str]) -> None:
    """The quickest cases, as the command line runs them."""
    cases = ("--case", "connection-cut", "--case", "commit-cut")
    code = main(["--broker", "classic", *cases, "--messages", "200", "--json"])
    told = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    assert code == 0, told
    assert [each["case"] for each in told] == ["connection-cut", "commit-cut"]
    for each in told:
        assert each["sent"] + each["unconfirmed"] >= 200
        assert each["settled"] == each["sent"]
        assert each["lost"] == each["unflagged_duplicates"] == each["doubled"] == 0
