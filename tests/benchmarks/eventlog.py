"""
What observers cost: `uv run python -m tests.benchmarks.eventlog [--deliveries N] [--rounds R]`.

One thread tells the three events of each delivery (received, acknowledged, ended), to nobody, to metrics, to an event
log, and to both, in turns. Printed are CPU microseconds of the whole process a delivery, the writer thread's among
them, less what telling nobody costs in the same round: the median, the least and the most of all rounds. Then how many
events an event log takes in a second when four threads tell it all they can, what of it was dropped, and the longest
that one call took.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

from jmsx.core.events import (
    AckTrigger,
    LinkOpened,
    MessagesAcknowledged,
    MessagesReceived,
    SubscriptionOpened,
)
from jmsx.observe import Observers
from jmsx_eventlog import EventLog
from jmsx_prometheus import PrometheusObserver
from tests.pipeline.lines import lines, of_kind
from tests.pipeline.simulator import SOURCE, delivery, seeded

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.events import Event
    from jmsx.observe import Observer

#: How many threads tell all they can.
THREADS = 4


def told(deliveries: int) -> list[Event]:
    """The events of so many deliveries on an open link, each message by itself and with a key of its own."""
    chance, now = seeded(1), time.monotonic()
    first = delivery("", "queue://orders", now, chance)
    events: list[Event] = [
        LinkOpened(at=now, server="", seconds=0.0),
        SubscriptionOpened(
            at=now,
            consumer=first.consumer,
            destination=first.destination,
            ack_mode=first.ack_mode,
            prefetch=first.prefetch,
            maximum_redeliveries=6,
            optimize_acknowledge=False,
        ),
    ]
    for number in range(deliveries):
        key = f"01a0c5a4f5b2{number:020x}"
        story = delivery(key, "queue://orders", now, chance, correlation_id=f"order {number}")
        who = {"consumer": story.consumer, "destination": story.destination}
        events += [
            MessagesReceived(at=story.received_at, messages=1, redelivered=0, **who),
            MessagesAcknowledged(at=story.at, messages=1, trigger=AckTrigger.EACH, **who),
            story,
        ]
    return events


def cost(events: list[Event], make: Callable[[Path], list[Observer]]) -> float:
    """CPU seconds of this process until all is counted, written and closed."""
    with tempfile.TemporaryDirectory() as folder:
        observers = Observers(make(Path(folder)))
        began = time.process_time()
        for event in events:
            observers.observe(event, SOURCE)
        observers.close()
        return time.process_time() - began


def _metrics(_folder: Path) -> list[Observer]:
    return [PrometheusObserver()]


def _log(folder: Path) -> list[Observer]:
    return [EventLog(folder, service="benchmark")]


WAYS: dict[str, Callable[[Path], list[Observer]]] = {
    "nobody": lambda _folder: [],
    "metrics": _metrics,
    "event log": _log,
    "both": lambda folder: [*_metrics(folder), *_log(folder)],
}


def flat_out(events: list[Event]) -> None:
    """Have four threads tell all they can, and print what came of it."""
    longest = [0.0] * THREADS
    with tempfile.TemporaryDirectory() as folder:
        log = EventLog(folder, service="benchmark")

        def tell(thread: int) -> None:
            for event in events:
                began = time.perf_counter()
                log.observe(event, SOURCE)
                longest[thread] = max(longest[thread], time.perf_counter() - began)

        threads = [threading.Thread(target=tell, args=(number,)) for number in range(THREADS)]
        began = time.perf_counter()
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        took = time.perf_counter() - began
        log.close()
        gaps: Counter[str] = Counter()
        for gap in of_kind(lines(Path(folder)), "log.gap"):
            gaps[gap["dropped_kind"]] += gap["dropped"]
    print(
        f"{THREADS} threads flat out: {THREADS * len(events) / took:,.0f} events/s,"
        f" dropped {dict(gaps)}, longest call {max(longest):.3f} s"
    )


def main() -> None:
    """Measure all ways in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--deliveries", type=int, default=20_000)
    parser.add_argument("--rounds", type=int, default=7)
    arguments = parser.parse_args()
    events = told(arguments.deliveries)
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    for _ in range(arguments.rounds):
        for way, make in WAYS.items():
            costs[way].append(cost(events, make))
    print(f"{'CPU us a delivery':20} {'median':>7} {'least':>7} {'most':>7}")
    for way in list(WAYS)[1:]:
        extra = [
            (spent - floor) / arguments.deliveries * 1e6
            for spent, floor in zip(costs[way], costs["nobody"], strict=True)
        ]
        print(f"{way:20} {statistics.median(extra):7.1f} {min(extra):7.1f} {max(extra):7.1f}")
    flat_out(events)


if __name__ == "__main__":
    main()
