"""
Write into a scenario what the Java client did with it.

Three runs must agree. What STOMP may do besides comes from three runs of the Java client that is
reduced to what STOMP lets it know and say, and from one rule that no Java run shows: a message
that the application never saw may or may not be flagged when its consumer went away.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.conformance.compare import first_difference, step_difference
from tests.conformance.scenario import ScenarioError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from tests.conformance.scenario import Json, Scenario
    from tests.conformance.traces import Trace

RUNS: Final = 3
_COUNTS: Final = (
    "STOMP tells of the broker's redelivery counter only whether it is above zero (on a topic not"
    " even that), and a leaving consumer cannot say what it delivered last."
)
_UNSEEN: Final = (
    "A message that the application never saw may already have been dispatched to a consumer that"
    " went away, which flags it; that depends on the window."
)


def record(
    scenarios: Sequence[Scenario],
    java: Callable[[Sequence[Scenario]], list[Trace]],
    stomp_like: Callable[[Sequence[Scenario]], list[Trace]],
) -> list[str]:
    """
    Write `expected` and `stomp_expect` into the files of `scenarios`; `java` and `stomp_like` run.

    An outcome that is already expected as a matcher, and what stands in `stomp_expect`, stays as
    long as it still holds. Gives a line for each scenario that could not be recorded.
    """
    plain = [_by_path(java(scenarios)) for _ in range(RUNS)]
    reduced = [_by_path(stomp_like(scenarios)) for _ in range(RUNS)]
    refused = []
    for scenario in scenarios:
        runs = [run[scenario.path] for run in plain]
        try:
            _write(scenario, runs, [run[scenario.path] for run in reduced])
        except ScenarioError as error:
            refused.append(f"{scenario.id}: {error}")
    return refused


def _by_path(traces: Sequence[Trace]) -> dict[Path, list[Json]]:
    return {trace.scenario.path: trace.outcomes for trace in traces}


def _write(scenario: Scenario, runs: list[list[Json]], reduced: list[list[Json]]) -> None:
    """
    Write one scenario's file anew.

    Raises ScenarioError if the runs disagree or do not bear out the author's claims.
    """
    expected = scenario.expected
    if expected is None or first_difference(scenario, runs[0], over_stomp=False):
        _check_claims(scenario.steps, runs[0])
        expected = _expected(scenario, runs[0])
    for outcomes in runs:
        if scenario.java_race and first_difference(scenario, outcomes, over_stomp=False) is None:
            continue
        for index, step in enumerate(scenario.steps):
            if found := step_difference(step, expected[index], outcomes[index]):
                raise ScenarioError(f"the runs disagree: step {index} ({step['op']}): {found}")
    raw = json.loads(scenario.path.read_text(encoding="utf-8"))
    raw["expected"] = expected
    alternatives = raw.get("stomp_expect") or _alternatives(scenario, expected, reduced)
    if alternatives:
        raw["stomp_expect"] = alternatives
    text = json.dumps(raw, indent=1, ensure_ascii=False)
    scenario.path.write_text(text + "\n", encoding="utf-8")


def _expected(scenario: Scenario, outcomes: list[Json]) -> list[Json]:
    """Turn outcomes into expectations: without details, and with the step's bounds for times."""
    expected = []
    for step, outcome in zip(scenario.steps, outcomes, strict=True):
        kept = {key: value for key, value in outcome.items() if key != "detail"}
        kept.update((key, step[key]) for key in ("elapsed", "gaps") if key in step)
        expected.append(kept)
    return expected


def _check_claims(steps: list[Json], outcomes: list[Json]) -> None:
    """Refuse a recording in which something failed that should not, or the other way round."""
    for index, (step, outcome) in enumerate(zip(steps, outcomes, strict=True)):
        claim = step.get("expect_error", [])
        claims = [claim] if isinstance(claim, str) else claim
        kind = outcome.get("error")
        if (kind or claims) and kind not in claims:
            detail = outcome.get("detail", "no error")
            raise ScenarioError(f"step {index} ({step['op']}): {kind or 'ok'} ({detail})")


def _alternatives(
    scenario: Scenario, expected: list[Json], reduced: list[list[Json]]
) -> dict[str, Json]:
    """What a step may do over STOMP besides `expected`, with the reason."""
    alternatives = {}
    seen: set[str] = set()
    for index, step in enumerate(scenario.steps):
        outcome, reason = expected[index], ""
        for run in reduced:
            if step_difference(step, outcome, run[index]):
                outcome, reason = _merged(outcome, run[index]), _COUNTS
        if step["op"] in ("receive", "receive_many", "drain"):
            outcome, reason = _unseen(outcome, seen, reason)
        seen |= {message["body"] for message in _messages(expected[index])}
        if reason:
            alternatives[str(index)] = {"outcome": outcome, "reason": reason}
    return alternatives


def _merged(expected: Any, actual: Any, key: str = "") -> Any:
    """Widen `expected` so that `actual` fits as well; as it is where they have another shape."""
    if expected == actual:
        return expected
    if isinstance(expected, dict) and isinstance(actual, dict) and expected.keys() == actual.keys():
        return {name: _merged(expected[name], actual[name], name) for name in expected}
    if isinstance(expected, list) and isinstance(actual, list) and len(expected) == len(actual):
        return [_merged(one, other) for one, other in zip(expected, actual, strict=True)]
    return _widened(expected, actual, key)


def _widened(expected: Any, actual: Any, key: str) -> Any:
    """Widen one value, by what its member `key` means."""
    if key == "delivery_count":
        bounds = expected if isinstance(expected, dict) else {"min": expected, "max": expected}
        return {"min": min(bounds["min"], actual), "max": max(bounds["max"], actual)}
    if key == "redelivered":
        return {"one_of": [False, True]}
    if key in ("elapsed", "gaps") or (isinstance(expected, dict) and "one_of" in expected):
        return expected
    return {"one_of": [expected, actual]} if key == "error" else actual


def _unseen(outcome: Json, seen: set[str], reason: str) -> tuple[Json, str]:
    """Leave the flags open of flagged messages that the application sees for the first time."""
    fresh = [m for m in _messages(outcome) if m["redelivered"] is True and m["body"] not in seen]
    if not fresh:
        return outcome, reason
    opened = json.loads(json.dumps(outcome))
    for message in _messages(opened):
        if message["redelivered"] is True and message["body"] not in seen:
            message["redelivered"] = {"one_of": [False, True]}
            count = message["delivery_count"]
            message["delivery_count"] = (
                {**count, "min": 1} if isinstance(count, dict) else {"min": 1, "max": count}
            )
    return opened, reason or _UNSEEN


def _messages(outcome: Json) -> list[Json]:
    """Give every M in an outcome."""
    single = [outcome["message"]] if "message" in outcome else []
    return [*single, *outcome.get("messages", ()), *outcome.get("deliveries", ())]
