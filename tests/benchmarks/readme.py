"""The README of the benchmarks, made of a full run."""

from __future__ import annotations

import cProfile
import os
import platform
import pstats
import statistics
import subprocess
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx_broker.java import find_java
from jmsx_broker.products import ARTEMIS, CLASSIC
from tests.benchmarks.bounds import KINDS, Miss, Results, misses, sentences
from tests.benchmarks.goals import GOALS, Runs, ratio
from tests.benchmarks.growth import shown
from tests.benchmarks.hand_overs import Figures
from tests.benchmarks.one_thread import WAYS
from tests.benchmarks.ways import SUITES, counterparts

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: Functions that are shown of where the time goes.
_SHOWN: Final = 15

_HOW: Final = (
    "All ways take turns on one broker with a normal Java machine, forwards and backwards. Ratios are taken within"
    " one turn, and their median is shown; CPU is that of the client's process, *kernel* the part of it that calls of"
    " the system took, and *waits* how often one of its threads went to wait, a message. Messages are persistent, with"
    " bodies of 256 bytes, and the prefetch is 1000; a run has {messages:,} messages, and there are {repeats} turns."
)

_ALONE: Final = (
    "CPU microseconds a message with recorded frames of Classic's, without sockets, other threads and wake-ups: the"
    " least of all rounds. *Observed*: by metrics and an event log. *Lone*: each message comes a millisecond after the"
    " one before it was done, by which time the processor has forgotten much of the code. Commit {commit}."
)

_BOUND: Final = (
    "Of each way that misses its goal, the ratio that there would be if jmsx did only what it does on one thread"
    " (below): no socket, no other thread, no wake-up. Beside it the same with what a bare socket costs in Python"
    " (*raw*, in the same mode); that one writes the ACKs of all that one read brought together, and `receive()` has to"
    " write each by itself. Where one thread alone misses the goal, it is the work of jmsx itself in Python that bounds"
    " it; where only the sum does, the calls of the system; where neither does, the hand-over between threads and the"
    " broker. *Processors full*: the ratio if client and broker, at what they take now, kept the machine's processors"
    " busy all the time; where that misses the goal, no better overlap of the two helps, and one of them has to take"
    " less."
)

_BEYOND: Final = (
    "The same with a real socket and all threads: another process plays Classic, and sends a hundred messages at a"
    " time, or one for each ACK, so that the client's threads are woken more often. `uv run python -m"
    " tests.benchmarks.hand_overs` measures it."
)

_HERE: Final = Path(__file__).parent


def made(
    results: Results,
    alone: Mapping[str, tuple[float, float]],
    of: Sequence[str],
    *,
    handed: Sequence[Figures] = (),
    profiled: int = 5_000,
) -> str:
    """
    The README's text; `of` is what was told of the results when they were measured.

    `alone` are the costs on one thread, and `handed` those with hand-overs between threads, measured now, as are those
    of the functions, with `profiled` messages.
    """
    missed = list(misses(results, alone))
    parts = [
        "# How fast jmsx is beside its rivals",
        *of,
        "## Goals",
        _goals(results),
        "### What bounds the others",
        sentences(missed) or "All are met.",
        _BOUND,
        _bounds(missed),
    ]
    for (kind, suite), runs in results.items():
        title = "Growth" if suite == "growth" else suite.capitalize()
        parts.append(f"## {title}, {kind}")
        parts.append(_growth(runs) if suite == "growth" else _table(runs, suite, kind))
    parts += [
        "## On one thread",
        _ALONE.format(commit=_commit()),
        _rows(
            ["way", "alone", "observed"],
            [[way, f"{a:.1f}", f"{b:.1f}"] for way, (a, b) in alone.items()],
        ),
        "## Beyond one thread",
        _BEYOND,
        _rows(
            ["way", "messages at once", "CPU µs", "kernel µs", "waits"],
            [
                [label, str(step), f"{us:.1f}", f"{kernel:.1f}", f"{waits:.2f}"]
                for label, step, us, kernel, waits in handed
            ],
        ),
        "## Where the time goes",
        *(
            part
            for way in ("listener auto", "receive auto", "receive individual", "send tx100")
            for part in (f"{way}:", _functions(way, profiled))
        ),
        "## What was tried and did not help",
        (_HERE / "tried.md").read_text().strip(),
    ]
    return "\n\n".join(parts) + "\n"


def of(messages: int, repeats: int) -> list[str]:
    """Of what the results are that have just been measured, in paragraphs."""
    command = f"uv run python -m tests.benchmarks --full --messages {messages} --repeats {repeats}"
    return [
        f"Made by `{command}` from its last run; not written by hand.",
        _machine(),
        _HOW.format(messages=messages, repeats=repeats),
    ]


def _machine() -> str:
    model = next(
        (
            line.partition(":")[2].strip()
            for line in Path("/proc/cpuinfo").read_text().splitlines()
            if line.startswith("model name")
        ),
        platform.processor(),
    )
    java = subprocess.run(
        [find_java(), "-version"], capture_output=True, text=True, check=True
    ).stderr.partition("\n")[0]
    return (
        f"{time.strftime('%d %B %Y', time.gmtime())}, commit {_commit()}; {os.cpu_count()} processors ({model}),"
        f" {platform.system()} {platform.release()}, Python {platform.python_version()}, {java};"
        f" Classic {CLASSIC.version}, Artemis {ARTEMIS.version}; load at the end {os.getloadavg()[0]:.1f}."
    )


def _commit() -> str:
    return subprocess.run(
        ["git", "rev-parse", "--short", "HEAD"], capture_output=True, text=True, check=False
    ).stdout.strip()


def _rows(head: list[str], rows: list[list[str]]) -> str:
    lines = [head, ["---"] * len(head), *rows]
    return "\n".join(f"| {' | '.join(cells)} |" for cells in lines)


def _goals(results: Results) -> str:
    rows = []
    for goal in GOALS:
        cells = [goal.text]
        for kind in KINDS:
            runs = results.get((kind, goal.suite), {})
            found = [(ratio(runs, pair, goal.figure), pair[0]) for pair in goal.pairs]
            known = [(one, label) for one, label in found if one is not None]
            if not known:
                cells.append("not measured")
                continue
            worst, label = (max if goal.most else min)(known)
            met = sum(goal.met(one, kind) for one, _ in known)
            sign = "≤" if goal.most else "≥"
            cells.append(
                f"{sign} {goal.bound(kind):g}: {met} of {len(known)} met; worst {worst:.2f} ({label})"
            )
        rows.append(cells)
    return _rows(["goal", "Classic", "Artemis"], rows)


def _bounds(missed: list[Miss]) -> str:
    """What misses its goal, and the ratios that are as good as it could be."""
    rows = []
    for one in missed:
        sign = "≤" if one.goal.most else "≥"
        costs = (None, None) if one.cost is None else (one.cost.alone, one.cost.least)
        best = [*map(one.best, costs), one.full(os.cpu_count() or 1)]
        rows.append(
            [
                one.kind,
                f"{one.pair[0]} to {one.pair[1]}, {one.goal.figure}",
                f"{sign} {one.goal.bound(one.kind):g}",
                f"{one.found:.2f}",
                *("" if ratio is None else f"{ratio:.2f}" for ratio in best),
            ]
        )
    head = ["broker", "what", "goal", "reached", "one thread", "and a socket", "processors full"]
    return _rows(head, rows)


def _table(runs: Runs, suite: str, kind: str) -> str:
    rows = []
    for way in SUITES[suite](kind):
        done = [run for run in runs.get(way.label, []) if run]
        told = []
        for other in counterparts(way, kind) if way.who == "jmsx" else ():
            both = [ratio(runs, (way.label, other.label), one) for one in ("rate", "us")]
            if any(one is not None for one in both):
                shown_ = " / ".join("-" if one is None else f"{one:.2f}" for one in both)
                told.append(f"{other.label} {shown_}")
        rows.append(
            [
                way.label,
                *(_median(done, name, scale) for name, scale in _FIGURES),
                "; ".join(told) if done else _FAILED.get((kind, way.label), "failed"),
            ]
        )
    head = ["way", "k/s", "CPU µs", "kernel µs", "waits", "p50 µs", "p99 µs", "broker's CPU µs"]
    return _rows([*head, "throughput / CPU to"], rows)


_FIGURES: Final = (
    ("rate", 1000), ("us", 1), ("kernel_us", 1), ("waits", 1), ("p50", 1), ("p99", 1), ("broker_us", 1)
)  # fmt: skip

#: Why a way fails each time.
_FAILED: Final = {
    ("classic", "java receive optimized"): (
        "failed: it stalls at 200 messages, with its ACKs held back; Classic hands out one page of 200 of a backlog,"
        " and the next when an ACK comes ([BROKER.md](../../adapters/jmsx_classic/BROKER.md), C10). What jmsx holds"
        " back it sends when its consumer has run dry"
    )
}


def _median(done: list[dict[str, float]], name: str, scale: float) -> str:
    values = [run[name] / scale for run in done if name in run]
    return f"{statistics.median(values):.1f}" if values else ""


def _growth(runs: Runs) -> str:
    return _rows(["what", "figures"], [[what, shown(one[0])] for what, one in runs.items()])


def _functions(way: str, messages: int) -> str:
    """The functions with the most time of their own, what is built in among it, in a run on one thread."""
    profile = cProfile.Profile(time.thread_time, builtins=False)
    WAYS[way](100, [])
    profile.runcall(WAYS[way], messages, [])
    stats = pstats.Stats(profile).stats  # type: ignore[attr-defined]  # what every reader of profiles uses
    total = sum(one[2] for one in stats.values())
    most = sorted(stats.items(), key=lambda item: -item[1][2])[:_SHOWN]
    rows = [
        [f"`{_place(*where)}`", f"{own / total * 100:.0f} %", f"{calls / messages:.1f}"]
        for where, (_, calls, own, _, _) in most
    ]
    together = sum(own for _, (_, _, own, _, _) in most) / total
    rest = (
        f"Together they take {together:.0%}; the rest is spread over {len(stats) - len(most)} more."
    )
    return "\n\n".join([_rows(["function", "own time", "calls a message"], rows), rest])


def _place(file: str, _line: int, name: str) -> str:
    if file == "~":
        return name
    path = Path(file)
    return f"{'/'.join(path.parts[-2:])}:{name}"
