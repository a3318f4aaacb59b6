"""The three books of a round: what the metrics, the event log and the broker say of the same messages has to agree."""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

from jmsx.core.events import SETTLED

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from jmsx_prometheus import PrometheusObserver
    from tests.faults.account import Traces
    from tests.faults.settings import Task

Line = dict[str, Any]

#: Counters and the label that says what became of it; each counts the same as lines of the log do.
_COUNTERS: Final = (
    ("jmsx_processed_messages_total", "outcome"),
    ("jmsx_sent_messages_total", "outcome"),
    ("jmsx_dead_lettered_messages_total", "reason"),
    ("jmsx_transactions_total", "outcome"),
)
#: Kind of line -> that counter, and its word where the line has no field of that name.
_KINDS: Final = {
    "delivery": ("jmsx_processed_messages_total", ""),
    "send": ("jmsx_sent_messages_total", ""),
    "dlq": ("jmsx_dead_lettered_messages_total", ""),
    "tx.commit": ("jmsx_transactions_total", "committed"),
    "tx.rollback": ("jmsx_transactions_total", "rolled_back"),
    "tx.in_doubt": ("jmsx_transactions_total", "in_doubt"),
}


def numbers(observer: PrometheusObserver) -> dict[str, dict[str, float]]:
    """By counter and word, what is not 0."""
    return {
        name: {word: value for (word,), value in observer.totals(name, label).items() if value}
        for name, label in _COUNTERS
    }


def lines_of(task: Task) -> list[Line]:
    """The event log."""
    return [
        json.loads(line)
        for segment in sorted(task.events.rglob("*.jsonl*"))
        for line in segment.read_text("utf-8").splitlines()
        if line.endswith("}")  # of a program that was killed the last may be torn
    ]


def told_of(
    kind: str, task: Task, keys: Mapping[str, str], reason: str = ""
) -> dict[str, list[int]]:
    """By body, the processes whose logs have a line of that kind, and reason, each as often as it has one."""
    lines = lines_of(task)
    pids = {line["writer"]: line["pid"] for line in lines if line["kind"] == "log.open"}
    bodies = {key: body for body, key in keys.items()}
    found: defaultdict[str, list[int]] = defaultdict(list)
    for line in lines:
        if line["kind"] == kind and reason in line["reason"] and line["msg_key"] in bodies:
            found[bodies[line["msg_key"]]].append(pids[line["writer"]])
    return found


def disagreements(task: Task, traces: Traces, keys: Mapping[str, str]) -> Iterator[str]:
    """What two of them say differently; `keys` are those of the messages, by body."""
    lines = lines_of(task)
    for file in task.metrics.glob("*"):
        yield from _metrics_and_log(json.loads(file.read_text("utf-8")), lines)
    yield from _log_and_broker(lines, traces, keys)


def _metrics_and_log(told: Mapping[str, Any], lines: Sequence[Line]) -> Iterator[str]:
    """
    Of a program that ended in order; what the log says that it lacks may be missing there.

    One that was told to end before anything had happened has no log.
    """
    writers = {line["writer"] for line in lines if line.get("pid") == told["pid"]}
    mine = [line for line in lines if line["writer"] in writers]
    lacking = Counter[str]()
    for line in mine:
        if line["kind"] == "log.gap" and line["dropped_kind"] in _KINDS:
            lacking[_KINDS[line["dropped_kind"]][0]] += line["dropped"]
    for name, label in _COUNTERS:
        counted = Counter(told["numbers"][name])
        logged = Counter(
            _KINDS[line["kind"]][1] or line[label]
            for line in mine
            if _KINDS.get(line["kind"], ("",))[0] == name
        )
        if logged - counted or (counted - logged).total() != lacking[name]:
            yield f"{name} is {dict(counted)}, and the event log has {dict(logged)} and lacks {lacking[name]}"


def _log_and_broker(
    lines: Sequence[Line], traces: Traces, keys: Mapping[str, str]
) -> Iterator[str]:
    """What is settled is gone from the queue, and what is gone was settled, unless who did it was killed."""
    deliveries = [line for line in lines if line["kind"] == "delivery"]
    settled = {line["msg_key"] for line in deliveries if line["outcome"] in SETTLED}
    dead = {keys[body] for body in traces.dead if body in keys}
    here = {keys[body] for body in traces.left - traces.held if body in keys}
    if (
        wrong := {line["msg_key"] for line in lines if line["kind"] == "dlq"}
        & {*keys.values()} - dead
    ):
        yield f"{len(wrong)} are dead letters by the event log, and in no dead letter queue, such as {min(wrong)}"
    if wrong := settled & here:
        yield f"{len(wrong)} are settled by the event log, and in the queue, such as {min(wrong)}"
    writers, ended = (
        {line["writer"] for line in lines if line["kind"] == kind}
        for kind in ("log.open", "log.close")
    )
    if writers != ended or any(line["kind"] == "log.gap" for line in lines):
        return
    in_doubt = {(line["writer"], line["tx_id"]) for line in lines if line["kind"] == "tx.in_doubt"}
    doubtful = {
        line["msg_key"] for line in deliveries if (line["writer"], line.get("tx_id")) in in_doubt
    }
    gone = {keys[body] for body in traces.sent - traces.left if body in keys}
    if wrong := gone - settled - doubtful - dead:  # the broker makes dead letters, too
        yield f"{len(wrong)} are gone from the queue, and not settled by the event log, such as {min(wrong)}"
