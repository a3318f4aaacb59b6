"""What bounds the ways that miss their goals: what they cost on one thread, at a bare socket, and beyond both."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from tests.benchmarks.goals import GOALS, Goal, Runs, ratio
from tests.benchmarks.ways import SAME_ACKS

#: The runs of each suite on each kind of broker.
Results = dict[tuple[str, str], Runs]

#: Of each way on one thread CPU microseconds a message: without observers, and with both.
Alone = Mapping[str, tuple[float, float]]

KINDS: Final = {"classic": "Classic", "artemis": "Artemis"}


@dataclass(frozen=True, slots=True)
class Cost:
    """CPU microseconds of one way a message; None where a part is not measured."""

    whole: float
    alone: float | None  #: with recorded frames, on one thread
    socket: float | None  #: what a bare socket takes to do the same
    waits: float | None  #: how often a thread goes to wait, a message
    #: What the broker takes meanwhile, where nothing else is in its figure
    broker: float | None = None

    @property
    def least(self) -> float | None:
        """One thread and a bare socket."""
        return None if self.alone is None or self.socket is None else self.alone + self.socket

    def __str__(self) -> str:
        told = [f"takes {self.whole:.0f} µs of CPU a message"]
        if self.alone is not None:
            told[0] += f", {self.alone:.0f} on one thread"
        if self.socket is not None:
            told.append(f"a bare socket takes {self.socket:.0f}")
        if self.waits is not None:
            told.append(f"its threads go to wait {self.waits:.1f} times")
        if self.broker is not None:
            told.append(f"the broker takes {self.broker:.0f}")
        return "; ".join(told)


@dataclass(frozen=True, slots=True)
class Miss:
    """One of our ways that misses a goal on a kind of broker."""

    kind: str
    goal: Goal
    pair: tuple[str, str]
    found: float
    cost: Cost | None
    other: float | None  #: the median of the other's figure

    def best(self, cost: float | None) -> float | None:
        """The ratio if ours took so many CPU microseconds, and nothing else; None where that says nothing."""
        if cost is None or self.other is None or self.goal.figure == "p50":
            return None
        return (1e6 / cost if self.goal.figure == "rate" else cost) / self.other

    def full(self, processors: int) -> float | None:
        """The ratio if client and broker kept all `processors` busy, at what they take; None where nothing tells."""
        if self.cost is None or self.cost.broker is None or self.goal.figure != "rate":
            return None
        return self.best((self.cost.whole + self.cost.broker) / processors)


def misses(results: Results, alone: Alone) -> Iterator[Miss]:
    """All that miss their goals, the brokers one after the other."""
    for kind, goal in ((kind, goal) for kind in KINDS for goal in GOALS):
        runs = results.get((kind, goal.suite), {})
        for pair in goal.pairs:
            found = ratio(runs, pair, goal.figure)
            if found is not None and not goal.met(found, kind):
                cost = _cost(results, kind, goal.suite, pair[0], alone)
                other = _median(runs, pair[1], goal.figure)
                yield Miss(kind, goal, pair, found, cost, other)


def sentences(missed: list[Miss]) -> str:
    """Of each goal that is missed what bounds it, and where the CPU of the worst way goes."""
    told = []
    for goal in GOALS:
        costs = []
        for kind, name in KINDS.items():
            ours = [one for one in missed if one.goal is goal and one.kind == kind]
            if not ours:
                continue
            worst = (max if goal.most else min)(ours, key=lambda one: one.found)
            if worst.cost is not None:
                costs.append(f"{name}: `{worst.pair[0]}` {worst.cost}.")
        if any(one.goal is goal for one in missed):
            told.append(" ".join([f"- **{goal.text}.** {goal.bounded}", *costs]))
    return "\n".join(told)


def _cost(results: Results, kind: str, suite: str, label: str, alone: Alone) -> Cost | None:
    whole = _median(results[kind, suite], label, "us")
    if whole is None:
        return None
    name = label.removeprefix("jmsx ").replace(" + both", "").replace(" async", "")
    if suite == "latency":
        name += ", lone"
    costs = alone.get(name, alone.get(f"send {name}"))
    mode = name.rpartition(" ")[2]
    # Observers do not read the socket: what it costs is measured where nobody observes.
    where, bare = {
        "observers": ("consume", f"raw {SAME_ACKS.get(mode, mode)}"),
        "consume": ("consume", f"raw {SAME_ACKS.get(mode, mode)}"),
        "latency": ("latency", "raw"),
    }.get(suite, (suite, f"raw {mode}"))
    return Cost(
        whole,
        None if costs is None else costs["+ both" in label],
        _median(results.get((kind, where), {}), bare, "us"),
        _median(results[kind, suite], label, "waits"),
        # of the other suites the broker's figure has in it that the queue is emptied
        _median(results[kind, suite], label, "broker_us") if where == "consume" else None,
    )


def _median(runs: Runs, label: str, figure: str) -> float | None:
    values = [run[figure] for run in runs.get(label, []) if run.get(figure) is not None]
    return statistics.median(values) if values else None
