"""Random programs do on jmsx what they do on the Java client; and a difference would be seen."""

from __future__ import annotations

import copy
import json
from collections import Counter
from typing import Any

import pytest

from tests.conformance.generated import trial as trials
from tests.conformance.generated.allowances import roomy, stomp_difference, trace_difference
from tests.conformance.generated.generator import program
from tests.conformance.generated.shrink import is_determinate, shrunk
from tests.conformance.generated.trial import Difference
from tests.conformance.scenario import Json, load

SEED = 11
PROGRAMS = 50

OK: Json = {"ok": True}


@pytest.mark.broker
def test_random_programs_do_the_same() -> None:
    """Fifty programs; what differs must do so again, alone, to be a fault."""
    with trials.running("classic") as trial:
        found = trial.differences([program(SEED, number) for number in range(PROGRAMS)])
        steady = [one for each in found if (one := trial.steady(each))]

    assert [(one.program["id"], one.text) for one in steady] == []


def test_programs_are_reproducible_and_sound(tmp_path: Any) -> None:
    """A seed gives one program, of the format, whose steps leave nothing to chance."""
    for number in range(100):
        made = program(SEED, number)
        path = tmp_path / "made.json"
        path.write_text(json.dumps(made), encoding="utf-8")

        assert made == program(SEED, number)
        assert made["steps"] != program(SEED + 1, number)["steps"]
        assert load(path, strict=True).steps == made["steps"]
        assert is_determinate(made["destinations"], made["steps"])


def test_programs_do_all_that_matters() -> None:
    """No operation or mode falls out of the mix by a change of the generator."""
    steps = [step for number in range(200) for step in program(SEED, number)["steps"]]
    ops = Counter(step["op"] for step in steps)
    modes = Counter(step.get("mode") for step in steps)
    actions = Counter(
        str(action.get("op") if isinstance(action, dict) else action)
        for step in steps
        for rule in step.get("handler", ())
        for action in rule["do"]
    )

    wanted = (
        "send receive receive_many receive_none acknowledge commit rollback recover listen await"
    )
    for op in [*wanted.split(), "close", "crash", "stop", "start", "drain"]:
        assert ops[op] >= 20, op
    for mode in ("AUTO", "CLIENT", "INDIVIDUAL", "DUPS_OK", "TRANSACTED"):
        assert modes[mode] >= 40, mode
    for action in ("fail", "acknowledge", "commit", "rollback", "recover", "close"):
        assert actions[action] >= 3, action


# -- allowances -----------------------------------------------------------------------------------

STEPS: list[Json] = [
    {"op": "connect", "as": "c"},
    {"op": "session", "as": "s", "on": "c", "mode": "CLIENT"},
    {"op": "consumer", "as": "k", "in": "s", "destination": "q"},
    {"op": "receive", "from": "k"},
    {"op": "crash", "target": "c"},
    {"op": "consumer", "as": "l", "in": "p", "destination": "q"},
    {"op": "receive_many", "from": "l", "count": 4},
    {"op": "drain", "destination": "q"},
]


def message(body: str, count: int = 1) -> Json:
    """Give an M of FORMAT.md, flagged by its count."""
    return {"body": body, "redelivered": count > 1, "delivery_count": count}


def trace(*received: Json, drained: tuple[Json, ...] = ()) -> list[Json]:
    """The outcomes of STEPS: `a` is received, then `received`."""
    first = {"message": message("a")}
    return [OK, OK, OK, first, OK, OK, {"messages": [*received]}, {"messages": [*drained]}]


LIKE = trace(message("a", 2), message("b", 2), message("a", 3), message("b", 3))


def test_an_unseen_message_may_be_unflagged() -> None:
    """It was in the window of the consumer that went, or not; its count goes on from there."""
    jmsx = trace(message("a", 2), message("b", 1), message("a", 3), message("b", 2))

    assert trace_difference(STEPS, LIKE, jmsx) is not None
    assert stomp_difference(STEPS, LIKE, jmsx, LIKE) is None


@pytest.mark.parametrize(("count", "same"), [(2, True), (3, False)])
def test_a_listener_counts_on_from_its_consumer(count: int, *, same: bool) -> None:
    """Whether `receive()` or a listener gets it: the offset is the consumer's, and stays."""
    steps: list[Json] = [
        *STEPS[:-2],
        {"op": "receive_many", "from": STEPS[-2]["from"], "count": 2, "timeout": 1},
        {"op": "listen", "as": "L", "on": STEPS[-2]["from"], "handler": []},
        {"op": "await", "listener": "L", "count": 2},
    ]
    first = [message("a", 2), message("b", 2)]
    java = [*LIKE[:-2], {"messages": first}, OK, {"deliveries": [message("a", 3), message("b", 3)]}]
    told = copy.deepcopy(java)
    told[-3]["messages"][1] = message("b", 1)
    told[-1]["deliveries"][1] = message("b", count)

    assert (stomp_difference(steps, java, told, java) is None) is same


def test_what_is_remembered_may_be_told_as_the_java_client_tells_it() -> None:
    """Of each message just that, or what STOMP tells; nothing between or beyond."""
    java = trace(message("a", 4), message("b", 4), message("a", 5), message("b", 5))
    told = trace(message("a", 4), message("b", 2), message("a", 3), message("b", 5))
    wrong = trace(message("a", 3), message("b", 2), message("a", 3), message("b", 3))

    assert stomp_difference(STEPS, LIKE, told, java) is None
    assert stomp_difference(STEPS, LIKE, wrong, java) is not None


@pytest.mark.parametrize(
    "jmsx",
    [
        trace(message("a", 1), message("b", 2), message("a", 2), message("b", 3)),
        trace(message("a", 2), message("b", 1), message("a", 3), message("b", 3)),
        trace(message("a", 2), message("b", 3), message("a", 3), message("b", 4)),
        trace(message("a", 2), message("b", 2), message("a", 2), message("b", 3)),
        trace(message("a", 2), message("b", 2), message("a", 3)),
        trace(message("b", 2), message("a", 2), message("b", 3), message("a", 3)),
        trace(*LIKE[6]["messages"], drained=(message("b", 2),)),
        [*LIKE[:5], {"error": "IllegalState"}, *LIKE[6:]],
        [*LIKE[:3], {"message": message("a", 2)}, *LIKE[4:]],
    ],
    ids=[
        "seen, but not flagged",
        "the offset does not stay",
        "two more than the broker tells",
        "a local redelivery that does not count",
        "one missing",
        "another order",
        "one too many",
        "an error",
        "flagged though nobody had gone",
    ],
)
def test_nothing_else_is_allowed(jmsx: list[Json]) -> None:
    """A lost, doubled or reordered message, a wrong error or count always shows."""
    assert stomp_difference(STEPS, LIKE, jmsx, LIKE) is not None


def test_roomy_changes_every_prefetch() -> None:
    """Of connections and of consumers, and nothing else."""
    steps: list[Json] = [
        {"op": "connect", "as": "c", "options": {"prefetch": 1, "redelivery_policy": {}}},
        {"op": "consumer", "as": "k", "in": "s", "destination": "q", "prefetch": 2},
        {"op": "receive", "from": "k"},
    ]
    expected = copy.deepcopy(steps)
    expected[0]["options"]["prefetch"] = expected[1]["prefetch"] = 1000

    assert roomy({"steps": steps}) == {"steps": expected}


# -- what makes a program indeterminate, and smaller ------------------------------------------------

BASE: list[Json] = [
    {"op": "connect", "as": "c", "options": {"prefetch": 1}},
    {"op": "session", "as": "s", "on": "c", "mode": "CLIENT"},
    {"op": "consumer", "as": "k", "in": "s", "destination": "q"},
    {"op": "session", "as": "t", "on": "c", "mode": "AUTO"},
    {"op": "send", "in": "t", "to": "q", "bodies": ["a", "b"]},
]
CLOSING: Json = {"op": "close", "target": "c"}
WAIT: Json = {"op": "wait", "seconds": 0.1}


@pytest.mark.parametrize(
    "rest",
    [
        [{"op": "consumer", "as": "l", "in": "t", "destination": "q"}],
        [{"op": "drain", "destination": "q"}],
        [{"op": "listen", "as": "L", "on": "k", "handler": []}, WAIT],
        [CLOSING],
        [WAIT, CLOSING, {"op": "session", "as": "u", "on": "c", "mode": "AUTO"}],
        [
            WAIT,
            {"op": "close", "target": "s"},
            {"op": "session", "as": "u", "on": "c", "mode": "CLIENT"},
            {"op": "consumer", "as": "l", "in": "u", "destination": "q"},
        ],
    ],
    ids=["competing", "drain competes", "listener runs", "racing close", "closed", "doubtful"],
)
def test_indeterminate_programs_are_refused(rest: list[Json]) -> None:
    """Each of these could do one thing or another."""
    assert is_determinate({"q": "queue"}, BASE)
    assert is_determinate({"q": "queue"}, [*BASE, WAIT, CLOSING])
    assert not is_determinate({"q": "queue"}, [*BASE, *rest])


def test_a_program_is_shrunk_to_what_differs() -> None:
    """Here any program differs in which `b` is sent and something is received."""

    def differences(programs: Any) -> list[Difference]:
        return [
            Difference(program=one, text="", kind="it", java=[], reduced=[], jmsx=[])
            for one in programs
            if any("b" in step.get("bodies", ()) for step in one["steps"])
            and any(step["op"] == "receive_many" for step in one["steps"])
        ]

    steps = [*BASE, {"op": "receive_many", "from": "k", "count": 2, "as": "m"}]
    steps += [{"op": "acknowledge", "message": "m.1"}, WAIT, CLOSING]
    whole: Json = {"id": "gen", "destinations": {"q": "queue"}, "steps": steps}

    small = shrunk(differences([whole])[0], differences).program["steps"]

    assert [step["op"] for step in small] == [step["op"] for step in steps[:6]]
    assert small[4]["bodies"] == ["b"]
    assert small[5]["count"] == 1
