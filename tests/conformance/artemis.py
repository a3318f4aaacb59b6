"""
What cannot be had on Artemis over STOMP, by the guarantee table of the README.

The scenarios are recorded on Classic. One is NOT for Artemis if every difference is one that the table names; a single
other difference fails it. The rules look at what differs, so they hold for scenarios that nobody here has seen.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.conformance.compare import difference, step_difference
from tests.conformance.scenario import all_steps

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.scenario import Json, Scenario

_UNSUPPORTED: Final = "Artemis cannot do it over STOMP, and jmsx says so: "
_CLIENT_ID: Final = (
    "client ids: Artemis lets two connections have the same over STOMP (guarantee table)"
)
_COUNTS: Final = (
    "counts over sessions: Artemis tells at most of the oldest message that a consumer had it"
    " (guarantee table)"
)
_PRIORITY: Final = "priorities: Artemis always honours them (guarantee table)"
_DEAD_LETTERS: Final = "dead letters: on Artemis jmsx never lets one be deleted (guarantee table)"

_COUNTED: Final = {"redelivered", "delivery_count"}


def limit(scenario: Scenario, outcomes: Sequence[Json]) -> str | None:
    """Why `scenario` cannot pass on Artemis; None if it passes or fails."""
    if scenario.expected is None or len(outcomes) != len(scenario.steps):
        return None
    reason: str | None = None
    for index, actual in enumerate(outcomes):
        step, expected = scenario.steps[index], scenario.expected[index]
        if not step_difference(step, expected, actual):
            continue
        over_stomp = scenario.stomp_expect.get(index)
        if over_stomp is not None and not step_difference(step, over_stomp, actual):
            continue
        found = _reason(scenario, index, expected, actual)
        if found is None:
            return None
        if found.startswith((_UNSUPPORTED, _CLIENT_ID)):  # what follows is another story
            return found
        reason = reason or found
    return reason


def _reason(scenario: Scenario, index: int, expected: Json, actual: Json) -> str | None:
    if actual.get("error") == "Unsupported":
        return _UNSUPPORTED + str(actual.get("detail", scenario.steps[index]["op"]))
    if expected.get("error") == "InvalidClientID" and actual == {"ok": True}:
        return _CLIENT_ID
    seen, wanted = _messages(actual), _messages(expected)
    if seen is None or wanted is None:
        return None
    rules = (
        (
            _DEAD_LETTERS,
            _reads_dead_letters(scenario, scenario.steps[index]) and len(seen) > len(wanted),
        ),
        (_COUNTS, _ended_before(scenario, index) and _fewer_counts(wanted, seen)),
        (_PRIORITY, _prioritised(scenario) and difference(wanted, seen, unordered=True) is None),
    )
    return next((reason for reason, holds in rules if holds), None)


def _messages(outcome: Json) -> list[Any] | None:
    """The messages of an outcome; None if it tells of none."""
    for key in ("messages", "deliveries"):
        if key in outcome:
            return list(outcome[key])
    if "message" in outcome:
        return [outcome["message"]]
    return [] if outcome.get("none") else None


def _fewer_counts(wanted: list[Any], seen: list[Any]) -> bool:
    """Whether all is as wanted, but for counts that are too low."""

    def bare(messages: list[Any]) -> list[Any]:
        return [{key: one[key] for key in one if key not in _COUNTED} for one in messages]

    if not all(isinstance(one, dict) for one in [*wanted, *seen]):
        return False
    if difference(bare(wanted), bare(seen)) is not None:
        return False
    return all(
        _least(one) >= other["delivery_count"] for one, other in zip(wanted, seen, strict=True)
    )


def _least(message: Json) -> float:
    count = message.get("delivery_count")
    return float(count) if isinstance(count, int) else float("inf")


def _ended_before(scenario: Scenario, index: int) -> bool:
    ends = ("close", "crash")
    return any(step["op"] in ends for step in all_steps(scenario.steps[: index + 1]))


def _reads_dead_letters(scenario: Scenario, step: Json) -> bool:
    if step.get("destination") == "DLQ":
        return True
    consumers = {
        one["as"]
        for one in all_steps(scenario.steps)
        if one["op"] == "consumer" and one.get("destination") == "DLQ"
    }
    return step.get("from") in consumers


def _prioritised(scenario: Scenario) -> bool:
    return any("priority" in step or "priorities" in step for step in all_steps(scenario.steps))
