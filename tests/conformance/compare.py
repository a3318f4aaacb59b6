"""
Judge outcomes by what was expected of them; FORMAT.md section 3.

Pure: a scenario and a list of outcomes go in, the first difference comes out as a sentence.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.conformance.scenario import Json, Scenario

#: Members that are measured or for people to read, and never compared as they are.
_NOT_COMPARED: Final = {"detail", "elapsed", "gaps"}
_MATCHERS: Final = ({"any"}, {"one_of"}, {"min", "max"}, {"min"}, {"max"}, {"contains"})
_LONGEST_SHOWN: Final = 160


def first_difference(
    scenario: Scenario, outcomes: Sequence[Json], *, over_stomp: bool
) -> str | None:
    """
    Where `outcomes` first differ from what `scenario` expects, or None if it passes.

    The other answers of a race within the Java client count for that client alone, all of them together.
    """
    if scenario.expected is None:
        return "nothing is recorded as expected"
    if len(outcomes) != len(scenario.steps):
        return f"{len(outcomes)} outcomes of {len(scenario.steps)} steps"
    found = _first_difference(scenario, scenario.expected, outcomes, over_stomp=over_stomp)
    if found and scenario.java_race and not over_stomp:
        other = [scenario.java_race.get(i, one) for i, one in enumerate(scenario.expected)]
        found = _first_difference(scenario, other, outcomes, over_stomp=False) and found
    return found


def _first_difference(
    scenario: Scenario, expectations: Sequence[Json], outcomes: Sequence[Json], *, over_stomp: bool
) -> str | None:
    for index, (step, expected, actual) in enumerate(
        zip(scenario.steps, expectations, outcomes, strict=True)
    ):
        found = step_difference(step, expected, actual)
        if found and over_stomp and index in scenario.stomp_expect:
            found = step_difference(step, scenario.stomp_expect[index], actual) and found
        if found:
            subject = " ".join(
                str(step[key]) for key in ("op", "from", "destination", "in") if key in step
            )
            return f"step {index} ({subject}): {found}"
    return None


def step_difference(step: Json, expected: Json, actual: Json) -> str | None:
    """How `actual` differs from the `expected` outcome of `step`, or None."""
    found = difference(expected, actual, unordered=step.get("unordered", False))
    if found and "detail" in actual:
        found += f" ({_shown(actual['detail'])})"
    return found or _time_difference(step, actual)


def difference(
    expected: Any, actual: Any, *, unordered: bool = False, where: str = ""
) -> str | None:
    """
    How `actual` differs from `expected`, which may hold matchers, or None.

    With `unordered` the lists directly inside are compared as multisets. `where` is the path to
    here, for the text.
    """
    if _is_matcher(expected):
        return None if _matches(expected, actual) else _differs(where, expected, actual)
    if isinstance(expected, dict) and isinstance(actual, dict):
        return _object_difference(expected, actual, unordered=unordered, where=where)
    if isinstance(expected, list) and isinstance(actual, list):
        return _list_difference(expected, actual, unordered=unordered, where=where)
    return None if _equal(expected, actual) else _differs(where, expected, actual)


def _object_difference(expected: Json, actual: Json, *, unordered: bool, where: str) -> str | None:
    wanted, got = expected.keys() - _NOT_COMPARED, actual.keys() - _NOT_COMPARED
    if wanted != got:
        return _differs(where, expected, actual)
    for key in sorted(wanted):
        place = f"{where}.{key}" if where else key
        found = difference(expected[key], actual[key], unordered=unordered, where=place)
        if found:
            return found
    return None


def _list_difference(
    expected: list[Any], actual: list[Any], *, unordered: bool, where: str
) -> str | None:
    if len(expected) != len(actual):
        return _differs(where, expected, actual)
    if unordered:
        return None if _pairs_up(expected, actual) else _differs(where, expected, actual)
    for index, (one, other) in enumerate(zip(expected, actual, strict=True)):
        found = difference(one, other, where=f"{where}[{index}]")
        if found:
            return found
    return None


def _pairs_up(expected: Sequence[Any], actual: Sequence[Any]) -> bool:
    """Whether each expected item can have an actual one of its own; matchers may overlap."""
    fits = [[difference(e, a) is None for a in actual] for e in expected]
    owner: list[int | None] = [None] * len(actual)

    def place(item: int, tried: set[int]) -> bool:
        for slot, fit in enumerate(fits[item]):
            if fit and slot not in tried:
                tried.add(slot)
                holder = owner[slot]
                if holder is None or place(holder, tried):
                    owner[slot] = item
                    return True
        return False

    return all(place(item, set()) for item in range(len(expected)))


def _is_matcher(expected: Any) -> bool:
    return isinstance(expected, dict) and set(expected) in _MATCHERS


def _matches(matcher: Json, actual: Any) -> bool:
    if "one_of" in matcher:
        return any(difference(choice, actual) is None for choice in matcher["one_of"])
    if "contains" in matcher:
        return isinstance(actual, str) and all(text in actual for text in matcher["contains"])
    if "any" in matcher:
        return True
    if isinstance(actual, bool) or not isinstance(actual, (int, float)):
        return False
    return bool(matcher.get("min", actual) <= actual <= matcher.get("max", actual))


def _equal(expected: Any, actual: Any) -> bool:
    """Equal as JSON, where true is not 1."""
    return isinstance(expected, bool) == isinstance(actual, bool) and bool(expected == actual)


def _time_difference(step: Json, actual: Json) -> str | None:
    """Name the first time outside its bounds, which are inclusive and in seconds."""
    bounds = step.get("elapsed")
    if bounds is not None and not _within(bounds, actual.get("elapsed")):
        return f"took {actual.get('elapsed')} s, allowed is {bounds}"
    for index, (allowed, gap) in enumerate(
        zip(step.get("gaps", ()), actual.get("gaps", ()), strict=False)
    ):
        if allowed is not None and not _within(allowed, gap):
            return f"gap before delivery {index} is {gap} s, allowed is {allowed}"
    return None


def _within(bounds: Sequence[float], seconds: float | None) -> bool:
    return seconds is not None and bounds[0] <= seconds <= bounds[1]


def _differs(where: str, expected: Any, actual: Any) -> str:
    place = f"{where}: " if where else ""
    return f"{place}expected {_shown(expected)}, got {_shown(actual)}"


def _shown(value: Any) -> str:
    text = value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
    text = " ".join(text.split())
    return text if len(text) <= _LONGEST_SHOWN else text[:_LONGEST_SHOWN] + "…"
