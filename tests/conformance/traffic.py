"""Who reads and sends what in a scenario, and the messages that outcomes tell of."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.conformance.scenario import all_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from tests.conformance.scenario import Json


class Traffic:
    """The consumers and producers of a scenario, by their names in it."""

    def __init__(self, steps: Sequence[Json]) -> None:
        made = {
            (step["op"], step["as"]): step
            for step in all_steps(steps)
            if step["op"] in ("consumer", "producer", "session", "listen")
        }
        self._consumers = {name: step for (op, name), step in made.items() if op == "consumer"}
        self._listeners = {name: step for (op, name), step in made.items() if op == "listen"}
        self._producers = {name: step for (op, name), step in made.items() if op == "producer"}
        self._connections = {
            name: step["on"] for (op, name), step in made.items() if op == "session"
        }

    def of(self, step: Json) -> list[str]:
        """The consumers by which `step` gets messages; a drain has one of its own, without a name."""
        if "from" in step:
            return [step["from"]]
        listeners = step.get("listener", [])
        named = [listeners] if isinstance(listeners, str) else listeners
        return [self._listeners[name]["on"] for name in named]

    def source(self, step: Json) -> str | None:
        """The destination from which `step` gets messages; None if from none, or from several."""
        if step["op"] == "drain":
            return str(step["destination"])
        sources = {self._consumers[reader]["destination"] for reader in self.of(step)}
        return sources.pop() if len(sources) == 1 else None

    def target(self, step: Json) -> str | None:
        """The destination to which `step` sends; None if it does not, or answers a message."""
        if step["op"] != "send":
            return None
        given = step["to"] if "to" in step else self._producers[step["via"]]["to"]
        return given if isinstance(given, str) else None

    def session(self, consumer: str) -> str:
        """The session of a consumer."""
        return str(self._consumers[consumer]["in"])

    def on(self, connection: str) -> set[str]:
        """The destinations that the consumers of a connection read."""
        return {
            step["destination"]
            for step in self._consumers.values()
            if self._connections.get(step["in"]) == connection
        }

    def fails(self, consumer: str) -> bool:
        """Whether a listener on it fails at times."""
        return any(
            "fail" in rule["do"]
            for step in self._listeners.values()
            if step["on"] == consumer
            for rule in step["handler"]
        )


def messages(outcome: Json) -> list[Json] | None:
    """The messages of an outcome; None if it is not one of reading."""
    for key in ("messages", "deliveries"):
        if key in outcome:
            return list(outcome[key])
    if "message" in outcome:
        return [outcome["message"]]
    return [] if "none" in outcome else None


def with_messages(outcome: Json, given: Sequence[Json]) -> Json:
    """An outcome of reading like `outcome`, of these messages."""
    for key in ("messages", "deliveries"):
        if key in outcome:
            return {**outcome, key: list(given)}
    return {"message": given[0]} if given else {"none": True}


def left_over(
    items: Sequence[Json], others: Sequence[Json], same: Callable[[Json, Json], bool]
) -> list[Json] | None:
    """What remains of `items` without `others`, which stand among them in this order; None if they do not."""
    rest, searched = [], list(others)
    for item in items:
        if searched and same(item, searched[0]):
            searched.pop(0)
        else:
            rest.append(item)
    return None if searched else rest
