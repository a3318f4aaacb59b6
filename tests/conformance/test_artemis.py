"""What is excused on Artemis, and that nothing beside it is: the scenarios are real ones, and changed by one thing."""

from __future__ import annotations

import copy
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from tests.conformance import artemis, brokers
from tests.conformance.scenario import Json, Scenario, load
from tests.conformance.script import Script

OK: Json = {"ok": True}
NONE: Json = {"none": True}
REFUSED: Json = {"error": "Unsupported", "detail": "UnsupportedError: …"}


def message(body: str, count: int = 1) -> Json:
    """Give an M of FORMAT.md, flagged by its count."""
    return {"body": body, "redelivered": count > 1, "delivery_count": count}


def one(body: str, count: int = 1) -> Json:
    """The outcome of a step that receives one message."""
    return {"message": message(body, count)}


def many(*messages: Json) -> Json:
    """The outcome of a step that receives several."""
    return {"messages": list(messages)}


def scenario(*steps: tuple[Json, Json]) -> Scenario:
    """A scenario of steps, each with what Classic does; they stand behind a connection, a session and a consumer."""
    begin: list[tuple[Json, Json]] = [
        ({"op": "connect", "as": "c"}, OK),
        ({"op": "session", "as": "s", "on": "c", "mode": "TRANSACTED"}, OK),
        ({"op": "consumer", "as": "k", "in": "s", "destination": "q"}, OK),
        ({"op": "consumer", "as": "d", "in": "s", "destination": "DLQ"}, OK),
    ]
    both = [*begin, *steps]
    return Scenario(
        path=Path("one.json"),
        id="one",
        destinations={"q": "queue", "r": "queue"},
        steps=[step for step, _ in both],
        expected=[expected for _, expected in both],
    )


def judged(of: Scenario, actual: dict[int, Json], stranded: int = 0) -> str | None:
    """The verdict if all is as expected, but for `actual`: by the number of the step, from 0 after the first four."""
    outcomes = copy.deepcopy(of.expected or [])
    for number, outcome in actual.items():
        outcomes[4 + number] = outcome
    return artemis.limit(of, outcomes, lambda name: stranded if name == "q" else 0)


def send(*bodies: str, **members: Any) -> tuple[Json, Json]:
    """A step that sends to q."""
    return {"op": "send", "in": "s", "to": "q", "bodies": list(bodies), **members}, OK


def receive(outcome: Json, reader: str = "k", **members: Any) -> tuple[Json, Json]:
    """A step that receives from a consumer."""
    return {"op": "receive", "from": reader, **members}, outcome


def drain(*messages: Json, of: str = "q") -> tuple[Json, Json]:
    """A step that takes all that lies in a queue."""
    return {"op": "drain", "destination": of}, many(*messages)


BROWSE = scenario(
    send("a"),
    ({"op": "browse", "destination": "q"}, {"bodies": ["a"]}),
    receive(one("a")),
)
COMPOSITE = scenario(
    ({"op": "composite", "as": "both", "of": ["q", "r"]}, OK),
    ({"op": "send", "in": "s", "to": "both", "bodies": ["a"]}, OK),
    send("b"),
    drain(message("a"), message("b")),
    drain(message("a"), of="r"),
)
CLIENT_ID = scenario(
    ({"op": "connect", "as": "c1", "client_id": "me"}, OK),
    ({"op": "connect", "as": "c2", "client_id": "me"}, {"error": "InvalidClientID"}),
    ({"op": "connect", "as": "c3", "client_id": "you"}, {"error": "InvalidClientID"}),
)
PRIORITY = scenario(
    send("a", "b", "c", "d", priorities=[1, 9, 4, 9]),
    ({"op": "receive_many", "from": "k", "count": 4}, many(*map(message, "abcd"))),
    send("x", "y"),
    drain(message("x"), message("y")),
)
DEAD = scenario(
    receive(one("a"), "d"),
    receive(one("b"), "d"),
    ({"op": "rollback", "in": "s"}, OK),
    receive(NONE, "d"),
    receive(one("e"), "d"),
    drain(message("x"), of="DLQ"),
    drain(message("x")),
)
GROUPS = scenario(
    ({"op": "consumer", "as": "l", "in": "s", "destination": "q"}, OK),
    send("a", group_id="g"),
    receive(one("a")),
    send("b", group_id="g", properties={"JMSXGroupSeq": -1}),
    send("c", group_id="g"),
    send("z"),
    receive(one("c"), "l"),
    receive(one("b")),
    receive(one("z")),
)
CRASH = scenario(
    send("a", "b", "c"),
    receive(one("a")),
    ({"op": "crash", "target": "c"}, OK),
    drain(message("a", 2), message("b", 1), message("c", 1)),
    drain(message("x"), of="r"),
)


def test_what_is_as_expected_passes_whatever_is_stranded() -> None:
    """A verdict of the judge is never taken away."""
    for each in (BROWSE, COMPOSITE, CLIENT_ID, PRIORITY, DEAD, GROUPS, CRASH):
        assert judged(each, {}, stranded=1) is None


@pytest.mark.parametrize(
    ("of", "actual", "reason"),
    [
        pytest.param(BROWSE, {1: REFUSED}, artemis.BROWSING, id="browsing"),
        pytest.param(
            COMPOSITE,
            {1: REFUSED, 3: many(message("b")), 4: many()},
            artemis.COMPOSITES,
            id="several destinations",
        ),
        pytest.param(CLIENT_ID, {1: OK}, artemis.CLIENT_ID, id="client id"),
        pytest.param(PRIORITY, {1: many(*map(message, "bdca"))}, artemis.PRIORITY, id="priorities"),
        pytest.param(DEAD, {3: one("a")}, artemis.DEAD_LETTERS, id="a dead letter not deleted"),
        pytest.param(
            DEAD,
            {5: many(message("b"), message("x"), message("a"))},
            artemis.DEAD_LETTERS,
            id="two of them",
        ),
        pytest.param(GROUPS, {3: REFUSED, 6: NONE, 7: one("c")}, artemis.GROUPS, id="a group"),
        pytest.param(
            CRASH, {3: many(message("b"), message("c"))}, artemis.STRANDED, id="a stranded message"
        ),
    ],
)
def test_what_the_table_excepts_is_no_failure(
    of: Scenario, actual: dict[int, Json], reason: str
) -> None:
    """Each exception of the table has its rule."""
    assert judged(of, actual, stranded=1) == reason


@pytest.mark.parametrize(
    ("of", "actual"),
    [
        pytest.param(BROWSE, {0: REFUSED}, id="another step refused"),
        pytest.param(BROWSE, {1: {"error": "JMS"}}, id="another error"),
        pytest.param(BROWSE, {1: {"bodies": []}}, id="a browser that lacks a message"),
        pytest.param(BROWSE, {1: REFUSED, 2: NONE}, id="a loss after a refusal"),
        pytest.param(COMPOSITE, {1: {"error": "JMS"}}, id="another error for several"),
        pytest.param(COMPOSITE, {4: many()}, id="a loss after sending to several"),
        pytest.param(COMPOSITE, {1: REFUSED, 3: many(), 4: many()}, id="a loss beside a refusal"),
        pytest.param(CLIENT_ID, {1: {"error": "JMS"}}, id="another error for the client id"),
        pytest.param(CLIENT_ID, {2: OK}, id="a client id that nobody has"),
        pytest.param(CLIENT_ID, {0: {"error": "InvalidClientID"}}, id="the first one refused"),
        pytest.param(PRIORITY, {1: many(*map(message, "bca"))}, id="a loss"),
        pytest.param(PRIORITY, {1: many(*map(message, "bdcaa"))}, id="a duplicate"),
        pytest.param(PRIORITY, {1: many(*map(message, "dbca"))}, id="order within a priority"),
        pytest.param(PRIORITY, {1: many(*map(message, "bdac"))}, id="low before middle"),
        pytest.param(
            PRIORITY,
            {1: many(message("b", 2), *map(message, "dca"))},
            id="a count besides the order",
        ),
        pytest.param(PRIORITY, {3: many(message("y"), message("x"))}, id="order of one priority"),
        pytest.param(DEAD, {3: one("c")}, id="a dead letter that nobody had read"),
        pytest.param(DEAD, {3: one("e")}, id="one that is read later"),
        pytest.param(DEAD, {5: many(message("x"), message("e"))}, id="one that had not failed"),
        pytest.param(DEAD, {5: many(message("x"), message("a"), message("a"))}, id="one twice"),
        pytest.param(DEAD, {5: many(message("a"))}, id="one instead of another"),
        pytest.param(DEAD, {5: many()}, id="a dead letter lost"),
        pytest.param(DEAD, {6: many(message("a"), message("x"))}, id="one in another queue"),
        pytest.param(GROUPS, {6: NONE, 7: one("c")}, id="the group was not refused"),
        pytest.param(GROUPS, {3: REFUSED, 6: NONE, 7: one("b")}, id="the refused one came"),
        pytest.param(GROUPS, {3: REFUSED, 6: NONE, 7: NONE}, id="one of the group is lost"),
        pytest.param(GROUPS, {3: REFUSED, 7: one("c")}, id="one of the group came twice"),
        pytest.param(GROUPS, {3: REFUSED, 6: one("z"), 7: one("c"), 8: NONE}, id="no group's"),
        pytest.param(GROUPS, {2: NONE, 3: REFUSED, 6: NONE, 7: one("c")}, id="a loss before"),
        pytest.param(CRASH, {3: many(message("c"))}, id="more missing than stranded"),
        pytest.param(CRASH, {3: many(message("b", 2), message("c"))}, id="a flag besides"),
        pytest.param(CRASH, {3: many(message("c"), message("b"))}, id="order besides"),
        pytest.param(CRASH, {3: many(*map(message, "bcx"))}, id="a stranger"),
        pytest.param(
            CRASH, {3: many(message("b"), message("b"), message("c"))}, id="a duplicate besides"
        ),
        pytest.param(CRASH, {3: {"error": "JMS"}}, id="an error instead"),
        pytest.param(CRASH, {1: NONE}, id="a loss before the crash"),
        pytest.param(CRASH, {4: many()}, id="a queue that the dead consumer did not read"),
        pytest.param(CRASH, {3: many(message("b"), message("c")), 4: many()}, id="another loss"),
    ],
)
def test_nothing_beside_it_is_excused(of: Scenario, actual: dict[int, Json]) -> None:
    """The nearest differences fail: `stranded` says one, which only a crash may need."""
    assert judged(of, actual, stranded=1) is None


def test_nothing_is_stranded_unless_the_broker_says_so() -> None:
    """Missing and in nobody's hands is lost."""
    missing = {3: many(message("b"), message("c"))}

    assert judged(CRASH, missing, stranded=0) is None


def test_nothing_is_stranded_without_a_crash() -> None:
    """A consumer that closes in good order gives everything back, or it is a fault."""
    steps = copy.deepcopy(CRASH.steps)
    steps[6]["op"] = "close"
    closed = scenario(*zip(steps[4:], (CRASH.expected or [])[4:], strict=True))

    assert judged(closed, {3: many(message("b"), message("c"))}, stranded=1) is None


def test_what_a_removed_subscription_kept_was_looked_at_before() -> None:
    """Once it is removed no broker can tell, and the attempt would fail for what no client could receive."""
    path = Path(__file__).parent / "scenarios" / "own" / "dupsok-durable-below-half.json"
    kept = iter([1])
    with brokers.running("fake-artemis") as running:
        script = Script(load(path), replace(running, stranded=lambda _queue: next(kept, 0)))
        script.run()
        script.close()
    assert next(kept, None) is None

    assert script.stranded("t") == 1


def test_what_a_removed_subscription_kept_excuses_no_later_loss(tmp_path: Path) -> None:
    """One that is made anew under its name begins with nothing that anybody else has."""
    path = Path(__file__).parent / "scenarios" / "own" / "dupsok-durable-below-half.json"
    of = json.loads(path.read_text())
    [made] = [one for one in of["steps"] if one["op"] == "consumer" and one["as"] == "k2"]
    again = tmp_path / path.name
    of["steps"].insert(-1, {**made, "as": "k3"})
    of.pop("expected")
    again.write_text(json.dumps(of))
    kept = iter([1, 0])
    with brokers.running("fake-artemis") as running:
        script = Script(load(again), replace(running, stranded=lambda _queue: next(kept)))
        script.run()
        script.close()
    assert script.outcomes[-2] == {"ok": True}

    assert script.stranded("t") == 0


def test_what_shifts_behind_a_stranded_message_is_one_difference() -> None:
    """Later steps receive what earlier ones were to receive; one too many of them would be a loss."""
    shifting = scenario(
        send("a", "b"),
        receive(one("a")),
        ({"op": "crash", "target": "c"}, OK),
        receive(one("a", 2)),
        receive(one("b")),
    )

    assert judged(shifting, {3: one("b"), 4: NONE}, stranded=1) == artemis.STRANDED
    assert judged(shifting, {3: NONE, 4: NONE}, stranded=1) is None


def test_a_stranded_message_is_missing_wherever_it_was_to_come_again() -> None:
    """It is one message, however often it was expected; one that comes later was not kept."""
    crash = ({"op": "crash", "target": "c"}, OK)
    of = scenario(
        send("a"), receive(one("a")), crash, receive(one("a", 2)), receive(one("a", 3)),
        drain(message("a", 4)),
    )  # fmt: skip
    twice = scenario(
        send("a", "a"), receive(one("a")), crash, receive(one("a", 2)), receive(one("a", 3))
    )

    assert judged(of, {3: NONE, 4: NONE, 5: many()}, stranded=1) == artemis.STRANDED
    assert judged(of, {4: NONE, 5: many()}, stranded=1) == artemis.STRANDED
    assert judged(of, {3: NONE, 4: NONE}, stranded=1) is None
    assert judged(of, {3: NONE, 4: NONE, 5: many()}, stranded=0) is None
    assert judged(twice, {3: NONE, 4: NONE}, stranded=1) is None


def test_what_may_be_otherwise_over_stomp_may_be_so_behind_a_stranded_message() -> None:
    """The scenario says itself what a client of STOMP may see, and that is no difference."""
    either = {"body": "c", "redelivered": {"one_of": [False, True]}, "delivery_count": {"min": 1}}
    of = scenario(
        send("a", "b", "c"),
        receive(one("a")),
        ({"op": "crash", "target": "c"}, OK),
        drain(message("a", 2), message("b", 2), message("c", 2)),
    )
    over_stomp = replace(of, stomp_expect={7: many(message("a", 2), message("b", 2), either)})
    kept = {3: many(message("b", 2), message("c"))}

    assert judged(of, kept, stranded=1) is None
    assert judged(over_stomp, kept, stranded=1) == artemis.STRANDED
    assert judged(over_stomp, {3: many(message("b"), message("c"))}, stranded=1) is None


def test_a_time_out_of_bounds_is_no_question_of_messages() -> None:
    """No rule says that something may take longer."""
    of = scenario(
        send("a", "b", priorities=[1, 9]),
        receive(many(message("a"), message("b")), op="receive_many", elapsed=[0, 1]),
    )
    swapped = many(message("b"), message("a"))

    assert judged(of, {1: {**swapped, "elapsed": 0.5}}) == artemis.PRIORITY
    assert judged(of, {1: {**swapped, "elapsed": 1.5}}) is None


def test_no_outcome_is_no_excuse() -> None:
    """A client that stopped early has failed, and a scenario that is not recorded cannot pass."""
    assert artemis.limit(BROWSE, [REFUSED]) is None
