"""
What the table of guarantees (examples/guarantees) says of a generated program, where the Java client does otherwise.

Two rows say what order of steps the Java client would have to see to do the same: the program is rewritten, and the
Java client runs that. Three say where a message is in the end: the trace that is expected is rewritten, by what was
sent and delivered before, and by nothing else.
"""

from __future__ import annotations

import copy
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from tests.conformance.scenario import all_steps, bodies
from tests.conformance.traffic import Traffic, messages, with_messages

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.conformance.scenario import Json

_NOTHING: Final[Json] = {"op": "wait", "seconds": 0.0}


# -- the order of steps ---------------------------------------------------------------------------


def unpaused(program: Json) -> Json:
    """
    The program without `stop()` and `start()` that directly follow a rollback of the same connection.

    The Java client forgets the redelivery delay there, and hands out what came later first.
    """
    changed = copy.deepcopy(program)
    steps = changed["steps"]
    on = {step["as"]: step["on"] for step in steps if step["op"] == "session"}
    for before, stop, start in zip(steps, steps[1:], steps[2:], strict=False):
        back = before["op"] in ("rollback", "recover") and on.get(before["in"])
        pair = [stop["op"], start["op"]] == ["stop", "start"]
        if pair and back == stop["target"] == start["target"]:
            for step in (stop, start):
                step.clear()
                step.update(_NOTHING)
    return changed


def subscribed_late(program: Json) -> tuple[Json, list[int]]:
    """
    The program in which who subscribes to a topic within a transaction that sent to it does so after its commit.

    And where each step was before: Artemis looks for subscribers when a message comes, and Classic when it is
    committed.
    """
    steps = program["steps"]
    order = list(range(len(steps)))
    for index, step in enumerate(steps):
        if step["op"] != "consumer" or "durable" in step:
            continue
        if program["destinations"].get(step["destination"]) != "topic":
            continue
        ends = [
            end
            for at, sent in enumerate(steps[:index])
            if sent["op"] == "send" and sent.get("to") == step["destination"]
            if (end := _commit_of(steps, at)) is not None and end > index
        ]
        used = [at for at in range(index + 1, max(ends, default=0)) if _uses(steps[at], step["as"])]
        if ends and not used:
            order.remove(index)
            order.insert(order.index(max(ends)) + 1, index)
    return {**program, "steps": [steps[index] for index in order]}, order


def _commit_of(steps: Sequence[Json], sent: int) -> int | None:
    """Which step commits what step `sent` sends in a transaction; None: none does, or there is no transaction."""
    session = steps[sent].get("in")
    made = next(
        (one for one in steps[:sent] if one["op"] == "session" and one["as"] == session), None
    )
    if made is None or made["mode"] != "TRANSACTED":
        return None
    for index in range(sent + 1, len(steps)):
        step = steps[index]
        if step["op"] == "commit" and step["in"] == session:
            return index
        if step["op"] in ("rollback", "close", "crash") and session in (
            step.get("in"),
            step.get("target"),
        ):
            return None
    return None


def _uses(step: Json, consumer: str) -> bool:
    return consumer in (step.get("from"), step.get("on"), step.get("target"))


# -- where messages are in the end ----------------------------------------------------------------


class Table:
    """What a program's trace may be by the table, given what jmsx did; `artemis`: by its column of that broker."""

    def __init__(self, program: Json, actual: Sequence[Json], *, artemis: bool) -> None:
        self._steps: list[Json] = program["steps"]
        self._kinds: dict[str, str] = program["destinations"]
        self._traffic = Traffic(self._steps)
        self._actual = actual
        self._artemis = artemis

    def amended(self, expected: Sequence[Json]) -> list[Json]:
        """The trace `expected` of the Java client, with what the table says instead."""
        together = self._counted_together() & self._dead()
        kept = self._kept_of_topics() if self._artemis else set()
        result: list[Json] = []
        for index, (step, one) in enumerate(zip(self._steps, expected, strict=True)):
            wanted, seen = messages(one), messages(self._actual[index])
            if step["op"] != "drain" or wanted is None or seen is None:
                result.append(one)
                continue
            place = step["destination"]
            if place == "DLQ":
                wanted = _with(wanted, seen, kept | together)
            else:
                wanted = [each for each in wanted if (place, each["body"]) not in together]
                if self._artemis and self._selected(index, place):
                    wanted = self._in_their_places(index, place, wanted, seen)
            result.append(with_messages(one, wanted))
        return result

    def _dead(self) -> set[tuple[str, str]]:
        """Where dead letters that were found came from, and their bodies."""
        return {
            (_origin(one), one["body"])
            for step, outcome in zip(self._steps, self._actual, strict=True)
            if step["op"] == "drain" and step["destination"] == "DLQ"
            for one in messages(outcome) or ()
        }

    def _deliveries(self) -> Iterator[tuple[str, str, Json]]:
        """Destination, consumer and message of what jmsx handed out, in order."""
        for step, outcome in zip(self._steps, self._actual, strict=True):
            readers = self._traffic.of(step)
            if step["op"] != "drain" and len(readers) == 1:
                for one in messages(outcome) or ():
                    yield self._traffic.source(step) or "", readers[0], one

    def _counted_together(self) -> set[tuple[str, str]]:
        """
        Queue and body of what failed as often as the last policy allows, on several connections.

        jmsx counts all failures of the process, and the Java client those of each connection.
        """
        by: defaultdict[tuple[str, str], list[str]] = defaultdict(list)
        for place, reader, one in self._deliveries():
            if self._kinds.get(place) == "queue":
                by[place, one["body"]].append(self._connection(reader))
        return {
            name
            for name, connections in by.items()
            if len(set(connections)) > 1 and 0 <= self._limit(connections[-1]) < len(connections)
        }

    def _kept_of_topics(self) -> set[tuple[str, str]]:
        """Topic and body of what was got without a durable subscription: on Artemis no dead letter is deleted."""
        durable = {
            step["as"]
            for step in all_steps(self._steps)
            if step["op"] == "consumer" and "durable" in step
        }
        return {
            (place, one["body"])
            for place, reader, one in self._deliveries()
            if self._kinds.get(place) == "topic" and reader not in durable
        }

    def _selected(self, end: int, place: str) -> bool:
        """Whether a consumer of `place` had a selector, before step `end`."""
        return any(
            step["op"] == "consumer" and step["destination"] == place and "selector" in step
            for step in all_steps(self._steps[:end])
        )

    def _in_their_places(
        self, end: int, place: str, wanted: list[Any], seen: list[Any]
    ) -> list[Any]:
        """`wanted` in the order of sending, if that is the order in which they came."""
        sent = [
            body
            for step in self._steps[:end]
            if step["op"] == "send" and step.get("to") == place
            for body in bodies(step)
        ]
        names = [one["body"] for one in wanted]
        came = [one["body"] for one in seen]
        if sorted(names) != sorted(came) or not set(names) <= set(sent):
            return wanted
        if came != sorted(came, key=sent.index):
            return wanted
        return sorted(wanted, key=lambda one: sent.index(one["body"]))

    def _connection(self, consumer: str) -> str:
        session = self._traffic.session(consumer)
        return next(
            str(step["on"])
            for step in all_steps(self._steps)
            if step["op"] == "session" and step["as"] == session
        )

    def _limit(self, connection: str) -> int:
        options = next(
            step.get("options", {})
            for step in all_steps(self._steps)
            if step["op"] == "connect" and step["as"] == connection
        )
        return int(options.get("redelivery_policy", {}).get("maximum_redeliveries", 6))


def _origin(letter: Json) -> str:
    return str(letter.get("extra", {}).get("original_destination", ""))


def _with(wanted: list[Any], seen: list[Any], more: set[tuple[str, str]]) -> list[Any]:
    """`wanted`, and where jmsx has them, once each, dead letters of `more`: where they came from, and body."""
    result, left = [], list(wanted)
    known = {one["body"] for one in wanted}
    for one in seen:
        origin, body = _origin(one), one["body"]
        if body not in known and (origin, body) in more:
            known.add(body)
            result.append(one)
        elif left:
            result.append(left.pop(0))
    return [*result, *left]
