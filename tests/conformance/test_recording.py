"""Recording writes what agreeing runs did, and leaves open over STOMP only what STOMP leaves open."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

from tests.conformance.recording import record
from tests.conformance.scenario import Json, Scenario, load
from tests.conformance.traces import Trace

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

STEPS: list[Json] = [
    {"op": "connect", "as": "c"},
    {"op": "session", "as": "s", "on": "c", "mode": "AUTO"},
    {"op": "consumer", "as": "k", "in": "s", "destination": "q"},
    {"op": "receive", "from": "k", "elapsed": [0, 1]},
    {"op": "drain", "destination": "q"},
]
OK: Json = {"ok": True}


def message(body: str, *, redelivered: bool = False, count: int = 1) -> Json:
    """Give an M of FORMAT.md."""
    return {"body": body, "redelivered": redelivered, "delivery_count": count}


def outcomes(first: Json, *rest: Json) -> list[Json]:
    """The outcomes of STEPS: `first` is received, `rest` drained."""
    received = {"message": first, "elapsed": 0.123}
    return [OK, OK, OK, received, {"messages": list(rest)}]


def recorded(
    folder: Path, runs: list[list[Json]], reduced: list[list[Json]], **members: Any
) -> tuple[list[str], Json]:
    """Record STEPS from given runs; the refusals, and the file afterwards."""
    path = folder / "one.json"
    raw = {"id": "one", "destinations": {"q": "queue"}, "steps": STEPS, **members}
    path.write_text(json.dumps(raw), encoding="utf-8")

    def client(traces: list[list[Json]]) -> Callable[[Sequence[Scenario]], list[Trace]]:
        left = iter(traces)
        return lambda scenarios: [Trace(scenario=scenarios[0], outcomes=next(left))]

    refused = record([load(path)], client(runs), client(reduced))
    return refused, json.loads(path.read_text(encoding="utf-8"))


def test_agreeing_runs_are_written(tmp_path: Path) -> None:
    """The outcomes become expectations, a measured time its bounds; nothing is left open."""
    run = outcomes(message("a"), message("b"))

    refused, written = recorded(tmp_path, [run] * 3, [run] * 3)

    assert refused == []
    assert written["expected"][3] == {"message": message("a"), "elapsed": [0, 1]}
    assert "stomp_expect" not in written


def test_disagreeing_runs_are_refused(tmp_path: Path) -> None:
    """What the Java client does differently from run to run is no expectation."""
    run, other = outcomes(message("a"), message("b")), outcomes(message("a"))

    refused, written = recorded(tmp_path, [run, run, other], [run] * 3)

    assert len(refused) == 1
    assert "one: the runs disagree: step 4 (drain)" in refused[0]
    assert "expected" not in written


def test_a_run_may_give_the_other_answer_of_a_known_race(tmp_path: Path) -> None:
    """Runs agree where each gave one of the two answers that are recorded."""
    run, other = outcomes(message("a"), message("b")), outcomes(message("a"))
    race = {"reason": "a race", "outcomes": {"4": {"messages": []}}}
    expected = [OK, OK, OK, {"message": message("a"), "elapsed": [0, 1]}]
    expected.append({"messages": [message("b")]})

    refused, written = recorded(
        tmp_path, [other, run, run], [run] * 3, expected=expected, java_race=race
    )

    assert refused == []
    assert written["expected"] == expected
    assert written["java_race"] == race


def test_an_unclaimed_error_is_refused(tmp_path: Path) -> None:
    """A step that fails although its author did not say so is a mistake in the scenario."""
    run = [*outcomes(message("a"))[:4], {"error": "Runtime", "detail": "no destination"}]

    refused, _ = recorded(tmp_path, [run] * 3, [run] * 3)

    assert refused == ["one: step 4 (drain): Runtime (no destination)"]


def test_a_claimed_error_that_does_not_come_is_refused(tmp_path: Path) -> None:
    """An author's claim that the judge does not bear out is a mistake, too."""
    steps = [*STEPS[:4], {**STEPS[4], "expect_error": "JMS"}]
    run = outcomes(message("a"))

    refused, _ = recorded(tmp_path, [run] * 3, [run] * 3, steps=steps)

    assert refused == ["one: step 4 (drain): ok (no error)"]


def test_a_differing_count_becomes_a_range(tmp_path: Path) -> None:
    """Where the reduced client sees less, all from there to the judge's value passes."""
    run = outcomes(message("a"), message("a", redelivered=True, count=4))
    reduced = outcomes(message("a"), message("a", redelivered=True, count=2))

    _, written = recorded(tmp_path, [run] * 3, [run, reduced, reduced])

    assert written["stomp_expect"]["4"]["outcome"] == {
        "messages": [{"body": "a", "redelivered": True, "delivery_count": {"min": 2, "max": 4}}]
    }


def test_another_shape_is_an_alternative(tmp_path: Path) -> None:
    """A decision that rests on what STOMP does not show comes out as another outcome."""
    run, reduced = outcomes(message("a")), outcomes(message("a"), message("a"))

    _, written = recorded(tmp_path, [run] * 3, [reduced] * 3)

    assert written["stomp_expect"]["4"]["outcome"] == {"messages": [message("a")]}


def test_a_flagged_message_nobody_saw_is_left_open(tmp_path: Path) -> None:
    """It depends on the window whether it went to the lost consumer; one that was seen did."""
    drained = [message(body, redelivered=True, count=2) for body in "ab"]
    run = outcomes(message("a"), *drained)

    _, written = recorded(tmp_path, [run] * 3, [run] * 3)

    seen, unseen = written["stomp_expect"]["4"]["outcome"]["messages"]
    assert seen == drained[0]
    assert unseen == {
        "body": "b",
        "redelivered": {"one_of": [False, True]},
        "delivery_count": {"min": 1, "max": 2},
    }


def test_what_still_holds_stays(tmp_path: Path) -> None:
    """Matchers and alternatives that were written by hand survive a recording."""
    expected = [OK, OK, OK, {"message": message("a")}, {"messages": {"any": True}}]
    alternative = {"4": {"outcome": {"messages": []}, "reason": "by hand"}}
    run = outcomes(message("a"), message("b"))

    _, written = recorded(
        tmp_path, [run] * 3, [run] * 3, expected=expected, stomp_expect=alternative
    )

    assert written["expected"] == expected
    assert written["stomp_expect"] == alternative
