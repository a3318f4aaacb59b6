"""
Which differences from the Java client are no fault of jmsx, by rule; FORMAT.md 3.

A program passes if the whole trace of jmsx is that of one of these, and never by picking from them
step by step:

1. the Java client;
2. **STOMP-like**: the Java client reduced to what STOMP lets a client know and say
   (`JavaClient(stomp_like=True)`): the broker's redelivery counter is seen as 0 or 1, on a topic as
   0, and a consumer goes without telling what it delivered last (jmsx_classic/BROKER.md C37);
3. **roomy**: the same with every prefetch at 1000. With a small one the Java client starves: when a
   session has rolled back more messages than the prefetch, its window stays shut for good. No
   session of jmsx may stall, and what is delivered does not depend on the prefetch.

In 2 and 3 two things are left open, the first because it depends on how far the broker had filled the window:

- **Unseen.** A message that no consumer had got yet when one on its queue went away may arrive
  flagged or not. It counts 1 or 2 then, as its flag says, and each further delivery by the same
  consumer one more than the one before: an offset, which must stay.

- **Remembered.** A process remembers the messages that it had, so jmsx may tell of one just what the Java client tells,
  where STOMP alone would not.

What the table of guarantees says besides stands in table.py. Everything else is equal, or is a difference.
"""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

from tests.conformance.compare import step_difference
from tests.conformance.scenario import all_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.scenario import Json


ROOMY_PREFETCH: Final = 1000

#: What is told of a message that STOMP knows less of.
_TOLD: Final = ("redelivered", "delivery_count")


def trace_difference(
    steps: Sequence[Json], expected: Sequence[Json], actual: Sequence[Json]
) -> tuple[int, str] | None:
    """The index and text of the first difference of the trace `actual` from `expected`, or None."""
    for index, (step, one, other) in enumerate(zip(steps, expected, actual, strict=True)):
        found = step_difference(step, one, other)
        if found:
            return index, found
    return None


def stomp_difference(
    steps: Sequence[Json], reduced: Sequence[Json], actual: Sequence[Json], java: Sequence[Json]
) -> tuple[int, str] | None:
    """The same against the trace `reduced` of a STOMP-like Java client, with what is left open; `java` is whole."""
    windows = _Windows(steps)
    opened = [
        _remembered(windows.opened(step, one, other), one, other, whole)
        for step, one, other, whole in zip(steps, reduced, actual, java, strict=True)
    ]
    return trace_difference(steps, opened, actual)


def _remembered(opened: Json, reduced: Json, actual: Json, java: Json) -> Json:
    """`opened` with what `java` tells of messages where STOMP alone would not, and `actual` does so too."""
    result = copy.deepcopy(opened)
    every = zip(*map(messages, (result, reduced, actual, java)), strict=False)
    for one, like, other, judge in every:
        told = {name: judge[name] for name in _TOLD}
        same = one["body"] == judge["body"] and told.items() <= other.items()
        if same and not told.items() <= like.items():
            one.update(told)
    return result


def roomy(program: Json) -> Json:
    """The same program with a prefetch that nothing fills."""
    changed = copy.deepcopy(program)
    for step in all_steps(changed["steps"]):
        for holder in (step, step.get("options", {})):
            if "prefetch" in holder:
                holder["prefetch"] = ROOMY_PREFETCH
    return changed


class _Windows:
    """Follows a program, and opens the flags of messages that were unseen when a consumer went."""

    def __init__(self, steps: Sequence[Json]) -> None:
        self._readers: dict[str, str] = {}  #: consumer or listener -> destination
        self._owners: dict[str, str] = {}  #: consumer or session -> session or connection
        self._left: set[str] = set()  #: destinations that a consumer has left
        self._seen: set[tuple[str, str]] = set()  #: destination and body
        self._offsets: dict[tuple[str, str], int] = {}  #: consumer and body
        self._listening: dict[str, str] = {}  #: listener -> the consumer that it is of
        for step in all_steps(steps):
            if step["op"] == "consumer":
                self._readers[step["as"]] = step["destination"]
                self._owners[step["as"]] = step["in"]
            elif step["op"] == "session":
                self._owners[step["as"]] = step["on"]
        for step in all_steps(steps):
            if step["op"] == "listen":
                self._readers[step["as"]] = self._readers[step["on"]]
                self._listening[step["as"]] = step["on"]

    def opened(self, step: Json, expected: Json, actual: Json) -> Json:
        """`expected` with the flags and counts that `actual` may have instead, if it has them."""
        for part in all_steps([step]):
            if part["op"] in ("close", "crash"):
                self._note_leaving(part["target"])
        reader = step.get("from") or step.get("listener") or f"drain {step.get('destination')}"
        result = copy.deepcopy(expected)
        for one, other in zip(messages(result), messages(actual), strict=False):
            if one["body"] == other["body"]:
                each = one.get("listener", reader)  # told of each message where several are awaited
                place: str = step.get("destination", "")
                self._open(each, self._readers.get(each, place), one, other)
        return result

    def _open(self, reader: str, destination: str, expected: Json, actual: Json) -> None:
        consumer = self._listening.get(reader, reader)
        place, key = (destination, expected["body"]), (consumer, expected["body"])
        if place not in self._seen and destination in self._left:
            counts = (expected["delivery_count"], actual["delivery_count"])
            self._offsets[key] = counts[1] - counts[0] if set(counts) <= {1, 2} else 0
        self._seen.add(place)
        expected["delivery_count"] += self._offsets.get(key, 0)
        expected["redelivered"] = expected["delivery_count"] > 1

    def _note_leaving(self, target: str) -> None:
        for reader, destination in self._readers.items():
            chain = {reader, owner := self._owners.get(reader, "")}
            chain.add(self._owners.get(owner, ""))
            if target in chain:
                self._left.add(destination)


def messages(outcome: Json) -> list[Any]:
    """Every M in an outcome."""
    single = [outcome["message"]] if "message" in outcome else []
    return [*single, *outcome.get("messages", ()), *outcome.get("deliveries", ())]
