"""What is to be reached: ratios to the others, medians of the ratios within turns."""

from __future__ import annotations

import statistics
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.benchmarks.ways import APP_MODES, MODES, SAME_ACKS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

#: The runs of each way of a suite, by label, turn by turn; a run that failed is empty.
Runs = dict[str, list[dict[str, float]]]


@dataclass(frozen=True, slots=True)
class Goal:
    """Of some of our ways, one figure to that of another way."""

    text: str
    suite: str
    pairs: tuple[tuple[str, str], ...]  #: labels: ours, and the other's
    figure: str  #: `rate`, `us` (CPU a message) or `p50`
    classic: float
    artemis: float
    bounded: str  #: what bounds it where it is missed, in a sentence

    @property
    def most(self) -> bool:
        """Whether the ratio may be at most that, and not at least."""
        return self.figure != "rate"

    def bound(self, broker: str) -> float:
        """What is to be reached at a kind of broker."""
        return self.classic if broker == "classic" else self.artemis

    def met(self, ratio: float, broker: str) -> bool:
        """Whether it is."""
        return ratio <= self.bound(broker) if self.most else ratio >= self.bound(broker)


def ratio(
    runs: Mapping[str, Sequence[dict[str, float]]], pair: tuple[str, str], figure: str
) -> float | None:
    """The median of the ratios within turns; None if no turn has both. Java tells its CPU in steps, the first is 0."""
    ours, other = (runs.get(label, []) for label in pair)
    turns = [
        (a[figure], b[figure])
        for a, b in zip(ours, other, strict=False)
        if figure in a and b.get(figure)
    ]
    return statistics.median(a / b for a, b in turns) if turns else None


def _java(face: str, *modes: str) -> tuple[tuple[str, str], ...]:
    return tuple((f"jmsx {face} {mode}", f"java receive {mode}") for mode in modes)


def _plain(who: str, face: str, *modes: str) -> tuple[tuple[str, str], ...]:
    few = {"tx100": "cumulative"}
    return tuple(
        (f"jmsx {face} {mode}", f"{who} {few.get(mode, SAME_ACKS[mode])}") for mode in modes
    )


_BATCHED: Final = tuple(mode for mode in MODES if mode != "tx1")
_FACES: Final = ("receive", "listener", "app")


def _all(who: str) -> tuple[tuple[str, str], ...]:
    return tuple(
        pair
        for face in _FACES
        for pair in _plain(who, face, *(APP_MODES if face == "app" else _BATCHED))
    )


GOALS: Final = (
    Goal(
        "listener and app, AUTO: throughput to Java",
        "consume",
        _java("listener", "auto") + _java("app", "auto"),
        "rate",
        1.0,
        0.9,
        (
            "An app does more with a message than a listener: it fills the handler's parameters, runs"
            " middleware, answers, and keeps its health and pace."
        ),
    ),
    Goal(
        "receive, AUTO: throughput to Java",
        "consume",
        _java("receive", "auto"),
        "rate",
        1.0,
        0.9,
        (
            "`receive()` writes the ACK of a message before it returns it, which is a call of the system and a"
            " release of Python's interpreter lock for each one; a listener's ACKs are written together. The broker"
            " takes each by itself, too, so that client and broker are short of processors (*processors full*)."
        ),
    ),
    Goal(
        "INDIVIDUAL, DUPS_OK: throughput to Java",
        "consume",
        _java("receive", "individual", "dups_ok"),
        "rate",
        1.0,
        0.9,
        (
            "Each message is a write of its own, as in `receive()` in AUTO, and the broker takes each by itself."
        ),
    ),
    Goal(
        "CLIENT/100, TRANSACTED/100: throughput to Java",
        "consume",
        _java("receive", "client100", "tx100"),
        "rate",
        0.8,
        0.6,
        (
            "The reader's thread, the engine's and the application's take turns at Python's one interpreter"
            " lock, and a commit is answered before the next message is handed out; CLIENT/100 has no such wait."
        ),
    ),
    Goal(
        "optimizeAck: throughput to the raw socket's cumulative ACKs",
        "consume",
        _plain("raw", "receive", "optimized"),
        "rate",
        0.85,
        0.5,
        (
            "The raw socket looks for the ends of frames, and keeps nothing of a message; what jmsx does with"
            " it on one thread takes longer."
        ),
    ),
    Goal(
        "any mode: throughput to stomp.py with the same acks",
        "consume",
        _all("stomp.py"),
        "rate",
        1.3,
        1.5,
        (
            "stomp.py calls its listener on the thread that reads, keeps nothing of a message, and acknowledges"
            " it there; jmsx hands it from the reader's thread to the engine's and to the application's."
        ),
    ),
    Goal(
        "any mode: throughput to stompman with the same acks",
        "consume",
        _all("stompman"),
        "rate",
        3.0,
        3.0,
        (
            "Three times its throughput leaves little more than jmsx needs on one thread; writes and hand-overs"
            " between threads come on top."
        ),
    ),
    Goal(
        "any mode: CPU a message to stomp.py",
        "consume",
        _all("stomp.py"),
        "us",
        0.6,
        0.6,
        (
            "0.6 of what stomp.py needs is less than jmsx needs on one thread, where it keeps the state of each"
            " delivery and merges what is known of it."
        ),
    ),
    Goal(
        "AUTO with metrics and event log: CPU a message to stomp.py",
        "observers",
        tuple((f"jmsx {face} auto + both", "stomp.py each") for face in _FACES),
        "us",
        1.0,
        1.0,
        (
            "Both observers count or write several events a message in Python, on top of the same way without"
            " them. To make the events takes longer than to count them."
        ),
    ),
    Goal(
        "metrics and event log: throughput to none",
        "observers",
        tuple((f"jmsx {face} auto + both", f"jmsx {face} auto") for face in _FACES),
        "rate",
        0.9,
        0.9,
        (
            "Events are told under the session's lock, so between two messages, and the event log's writer"
            " takes turns with the application at the interpreter lock. To make and tell the events takes most of"
            " a tenth already. An app with an event log also asks the broker for its counts at its start and its"
            " end, however few the messages are."
        ),
    ),
    Goal(
        "send, TRANSACTED/100: throughput to Java",
        "produce",
        (("jmsx tx100", "java tx100"),),
        "rate",
        0.8,
        0.8,
        (
            "Most of it is what jmsx does with a message on one thread: its identity and digest, its frame, and"
            " the record that tells how the transaction ended."
        ),
    ),
    Goal(
        "send, TRANSACTED/100: CPU a message to stomp.py",
        "produce",
        (("jmsx tx100", "stomp.py tx100"),),
        "us",
        1.5,
        1.5,
        (
            "stomp.py writes the frame and keeps nothing; jmsx gives the message an identity with a digest, and"
            " keeps what it has sent until the commit is answered."
        ),
    ),
    Goal(
        "lone messages at 1,000/s: CPU a message to stomp.py",
        "latency",
        tuple((f"jmsx {face}", "stomp.py") for face in _FACES),
        "us",
        2.0,
        2.0,
        (
            "A millisecond after the last message the processor has forgotten much of jmsx's code, and what jmsx does"
            " with a message on one thread costs several times what it does with a backlog. A lone message wakes the"
            " reader's thread, the engine's and the application's, one after the other, and stomp.py's wakes one."
        ),
    ),
    Goal(
        "lone messages at 1,000/s: half of the delays to stomp.py",
        "latency",
        tuple((f"jmsx {face}", "stomp.py") for face in _FACES),
        "p50",
        1.5,
        1.5,
        "Three threads are woken one after the other, and stomp.py's handler runs on the first.",
    ),
    Goal(
        "async handler to sync handler: CPU a message",
        "consume",
        (("jmsx app auto async", "jmsx app auto"),),
        "us",
        1.5,
        1.5,
        "Each message goes to the thread of the event loop and back, which are two hand-overs more.",
    ),
)
