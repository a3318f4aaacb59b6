"""The judge of outcomes is judged: matchers, times, multisets, what STOMP may do besides."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.conformance.compare import difference, first_difference, step_difference
from tests.conformance.scenario import Json, Scenario


def message(body: str, *, redelivered: bool = False, count: int = 1) -> Json:
    """Give an M of FORMAT.md."""
    return {"body": body, "redelivered": redelivered, "delivery_count": count}


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param({"ok": True}, {"ok": True}, id="same"),
        pytest.param({"any": True}, None, id="any"),
        pytest.param({"one_of": [1, 2]}, 2, id="one_of"),
        pytest.param({"one_of": [{"min": 5, "max": 6}]}, 5, id="matcher in one_of"),
        pytest.param({"min": 1, "max": 3}, 1, id="lower bound"),
        pytest.param({"min": 1, "max": 3}, 3, id="upper bound"),
        pytest.param({"contains": ["a", "c"]}, "abc", id="contains"),
        pytest.param({"error": "JMS"}, {"error": "JMS", "detail": "boom"}, id="detail is ignored"),
        pytest.param({"message": message("a")}, {"message": message("a")}, id="message"),
        pytest.param({"none": True, "elapsed": [0, 1]}, {"none": True, "elapsed": 7}, id="elapsed"),
    ],
)
def test_what_matches_shows_no_difference(expected: Any, actual: Any) -> None:
    """An outcome that is as expected, or within its matchers, passes."""
    assert difference(expected, actual) is None


@pytest.mark.parametrize(
    ("expected", "actual"),
    [
        pytest.param({"ok": True}, {"error": "JMS"}, id="error instead of ok"),
        pytest.param({"none": True}, {"message": message("a")}, id="message instead of none"),
        pytest.param(True, 1, id="1 is not true"),
        pytest.param(1, True, id="true is not 1"),
        pytest.param({"min": 0, "max": 1}, True, id="true is not between 0 and 1"),
        pytest.param({"one_of": [0, 2]}, 1, id="none of"),
        pytest.param({"one_of": [0, 1]}, True, id="true is not one of 0, 1"),
        pytest.param({"min": 1, "max": 3}, 4, id="above"),
        pytest.param({"min": 1, "max": 3}, 0, id="below"),
        pytest.param({"min": 1, "max": 3}, "2", id="a string is no number"),
        pytest.param({"contains": ["a", "d"]}, "abc", id="lacks one text"),
        pytest.param({"contains": ["a"]}, None, id="null contains nothing"),
        pytest.param(message("a"), {**message("a"), "kind": "bytes"}, id="a key too many"),
        pytest.param({**message("a"), "extra": {}}, message("a"), id="a key too few"),
        pytest.param({"messages": []}, {"messages": [message("a")]}, id="a message too many"),
        pytest.param({"bodies": ["a", "b"]}, {"bodies": ["b", "a"]}, id="order"),
    ],
)
def test_what_does_not_match_is_a_difference(expected: Any, actual: Any) -> None:
    """An outcome that is not as expected fails."""
    assert difference(expected, actual) is not None


def test_the_difference_says_where_it_is() -> None:
    """The text names the place and both values, so that nobody has to search."""
    expected = {"messages": [message("a"), message("b")]}
    actual = {"messages": [message("a"), message("b", redelivered=True)]}

    found = difference(expected, actual)

    assert found == "messages[1].redelivered: expected false, got true"


def test_an_error_detail_is_shown() -> None:
    """When an error was not expected, its detail says what went wrong."""
    found = step_difference(
        {"op": "commit"}, {"ok": True}, {"error": "JMS", "detail": "broker is gone"}
    )

    assert found is not None
    assert "broker is gone" in found


def test_unordered_messages_are_a_multiset() -> None:
    """With `unordered` the order does not matter, but the number does."""
    step = {"op": "drain", "unordered": True}
    expected = {"messages": [message("a"), message("b"), message("b")]}

    swapped = {"messages": [message("b"), message("a"), message("b")]}
    other = {"messages": [message("b"), message("a"), message("a")]}

    assert step_difference(step, expected, swapped) is None
    assert step_difference(step, expected, other) is not None


def test_unordered_pairs_overlapping_matchers() -> None:
    """A greedy pairing would give the only fitting value of `1` away to the range."""
    expected = {"messages": [{"min": 1, "max": 2}, 1]}

    assert difference(expected, {"messages": [1, 2]}, unordered=True) is None
    assert difference(expected, {"messages": [2, 2]}, unordered=True) is not None


@pytest.mark.parametrize(
    ("seconds", "passes"), [(0.19, False), (0.2, True), (0.5, True), (0.51, False), (None, False)]
)
def test_elapsed_has_inclusive_bounds(seconds: float | None, *, passes: bool) -> None:
    """The duration of a step is judged only by the bounds in the step, which are inclusive."""
    step = {"op": "receive", "elapsed": [0.2, 0.5]}
    actual = {"none": True} if seconds is None else {"none": True, "elapsed": seconds}

    assert (step_difference(step, {"none": True}, actual) is None) == passes


@pytest.mark.parametrize(
    ("gaps", "passes"), [([None, 0.1, 9.0], True), ([None, 0.3, 9.0], False), ([None], True)]
)
def test_gaps_are_judged_where_they_have_bounds(gaps: list[float | None], *, passes: bool) -> None:
    """A gap with no bounds may be anything; one with bounds must be within."""
    step = {"op": "await", "gaps": [None, [0, 0.2], None]}
    outcome: Json = {"deliveries": []}

    assert (step_difference(step, outcome, {**outcome, "gaps": gaps}) is None) == passes


def scenario(**fields: Any) -> Scenario:
    """Give a scenario of one drain that expects one fresh message."""
    return Scenario(
        path=Path("one.json"),
        id="one",
        steps=[{"op": "drain", "destination": "q"}],
        expected=[{"messages": [message("a")]}],
        **fields,
    )


def test_stomp_expect_counts_over_stomp_only() -> None:
    """The alternative saves a step for jmsx, and not for the Java client."""
    lenient = scenario(stomp_expect={0: {"messages": []}})
    outcomes: list[Json] = [{"messages": []}]

    assert first_difference(lenient, outcomes, over_stomp=True) is None
    found = first_difference(lenient, outcomes, over_stomp=False)
    assert found is not None
    assert found.startswith("step 0 (drain q): messages: expected")


def test_expected_still_counts_where_there_is_an_alternative() -> None:
    """Over STOMP a step may also do exactly what the Java client did, but nothing third."""
    lenient = scenario(stomp_expect={0: {"messages": []}})

    assert first_difference(lenient, [{"messages": [message("a")]}], over_stomp=True) is None
    assert first_difference(lenient, [{"messages": [message("c")]}], over_stomp=True) is not None


def test_a_race_of_the_java_client_counts_whole_and_for_it_alone() -> None:
    """One answer or the other, in all steps of it; what lies between is neither, and jmsx has the first only."""
    ok, refused, none = {"ok": True}, {"error": "InvalidDestination"}, {"none": True}
    racing = Scenario(
        path=Path("one.json"),
        id="one",
        steps=[{"op": "send"}, {"op": "receive", "from": "k"}],
        expected=[ok, {"message": message("a")}],
        java_race={0: refused, 1: none},
    )

    assert first_difference(racing, [ok, {"message": message("a")}], over_stomp=False) is None
    assert first_difference(racing, [refused, none], over_stomp=False) is None
    assert first_difference(racing, [ok, none], over_stomp=False) is not None
    assert first_difference(racing, [refused, none], over_stomp=True) is not None


def test_a_missing_outcome_is_a_difference() -> None:
    """A client that stopped early does not pass."""
    assert first_difference(scenario(), [], over_stomp=True) == "0 outcomes of 1 steps"
