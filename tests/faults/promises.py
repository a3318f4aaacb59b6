"""What is promised beside that nothing is lost or comes again unflagged: each yields what was not kept."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Final

from tests.faults.account import repeats
from tests.faults.books import lines_of
from tests.faults.settings import MARK

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.account import Traces
    from tests.faults.scene import Scene


#: The queue of jmsx's commit markers.
MARKERS: Final = "jmsx.commits"


def none_dies(_scene: Scene, traces: Traces) -> Iterator[str]:
    """No fault of a link or a broker is a message's fault."""
    if traces.dead:
        yield f"{len(traces.dead)} dead letters, such as {traces.dead[0]}"


def no_marker_stays(scene: Scene, traces: Traces) -> Iterator[str]:
    """What clears up doubtful commits goes with the session."""
    if left := scene.broker.statistics(MARKERS).size:
        yield f"{left} markers lie in {MARKERS}"
    yield from none_dies(scene, traces)


def marked_are_dead(scene: Scene, traces: Traces) -> Iterator[str]:
    """
    The marked die, after no fewer deliveries than the policy says, and nobody else.

    More are no fault: a broker whose refusal of a copy ends the link gives the message to whoever else reads its queue.
    """
    limit = 1 + scene.task.plan.maximum_redeliveries
    times = Counter(delivery.body for delivery in traces.deliveries)
    for body in scene.marked:
        if body in traces.held:
            continue
        if body not in traces.dead:
            yield f"{body} is no dead letter"
        elif times[body] < limit:
            yield f"{body} died after {times[body]} deliveries, not {limit}"
    if others := set(traces.dead) - set(scene.marked):
        yield f"{len(others)} others are dead letters, such as {min(others)}"


def marked_die(scene: Scene, traces: Traces) -> Iterator[str]:
    """The marked die, after exactly as many deliveries as the policy says, and nobody else."""
    limit = 1 + scene.task.plan.maximum_redeliveries
    times = Counter(delivery.body for delivery in traces.deliveries)
    for body in scene.marked:
        if times[body] > limit:
            yield f"{body} died after {times[body]} deliveries, not {limit}"
    yield from marked_are_dead(scene, traces)


def marked_come_twice(scene: Scene, traces: Traces) -> Iterator[str]:
    """The marked are delivered again once, the others are not."""
    for body, times in Counter(delivery.body for delivery in traces.deliveries).items():
        if times != 1 + (MARK in body):
            yield f"{body} came {times} times"
    yield from none_dies(scene, traces)
    yield from events_are_whole(scene, traces)


def nothing_comes_twice(scene: Scene, traces: Traces) -> Iterator[str]:
    """What was begun is finished, and never begun again."""
    again = repeats(traces.deliveries)
    if again:
        yield f"{len(again)} were done again, such as {again[0].body}"
    yield from none_dies(scene, traces)


def events_are_whole(scene: Scene, traces: Traces) -> Iterator[str]:
    """The event log has every line, or says how many it lacks; it tells of each delivery that the journal has."""
    lines = lines_of(scene.task)
    if left := [path.name for path in scene.task.events.rglob("*.open")]:
        yield f"segments of the event log were not closed: {left}"
    by_writer: dict[str, list[int]] = {}
    for line in lines:
        by_writer.setdefault(line["writer"], []).append(line["seq"])
    for writer, numbers in by_writer.items():
        if sorted(numbers) != list(range(len(numbers))):
            yield f"the event log of {writer} has gaps or repeats in its numbers"
    told = sum(1 for line in lines if line["kind"] == "delivery")
    dropped = sum(line["dropped"] for line in lines if line["kind"] == "log.gap")
    if not 0 <= len(traces.deliveries) - told <= dropped:
        yield f"the event log has {told} of {len(traces.deliveries)} deliveries, and lacks {dropped} lines"
