"""What the table of guarantees says of a generated program is taken as right, and nothing beside it."""

from __future__ import annotations

from typing import Any

import pytest

from tests.conformance.generated.allowances import trace_difference
from tests.conformance.generated.table import Table, subscribed_late, unpaused
from tests.conformance.scenario import Json

OK: Json = {"ok": True}


def message(body: str, **more: Any) -> Json:
    """An M of FORMAT.md."""
    return {"body": body, "redelivered": False, "delivery_count": 1, **more}


def dead(body: str, origin: str) -> Json:
    """One in a dead letter queue."""
    return message(body, extra={"original_destination": origin})


def fits(
    steps: list[Json], java: list[Json], jmsx: list[Json], *, artemis: bool, **kinds: str
) -> bool:
    """Whether the trace of jmsx is that of the Java client, with what the table says."""
    program = {"steps": steps, "destinations": kinds}
    expected = Table(program, jmsx, artemis=artemis).amended(java)
    return trace_difference(steps, expected, jmsx) is None


# -- a consumer with a selector -------------------------------------------------------------------

SELECTED: list[Json] = [
    {"op": "send", "in": "p", "to": "q", "bodies": ["m1"], "properties": {"half": "x"}},
    {"op": "send", "in": "p", "to": "q", "bodies": ["m2", "m3"], "properties": {"half": "y"}},
    {"op": "consumer", "as": "k", "in": "s", "destination": "q", "selector": "half = 'y'"},
    {"op": "close", "target": "k"},
    {"op": "drain", "destination": "q"},
]


def drained(*names: str) -> list[Json]:
    """The outcomes of SELECTED."""
    return [OK, OK, OK, OK, {"messages": [message(name) for name in names]}]


@pytest.mark.parametrize(
    ("came", "artemis", "right"),
    [
        (["m1", "m2", "m3"], True, True),
        (["m1", "m2", "m3"], False, False),
        (["m1", "m3", "m2"], True, False),
        (["m1", "m2"], True, False),
        (["m1", "m2", "m3", "m3"], True, False),
    ],
    ids=["as sent", "on Classic", "in another order", "one missing", "one doubled"],
)
def test_what_a_selector_gives_back(came: list[str], *, artemis: bool, right: bool) -> None:
    """It lies where it lay, and in front on Classic."""
    java = drained("m2", "m3", "m1")
    assert fits(SELECTED, java, drained(*came), artemis=artemis, q="queue") is right
    plain = [{**step} for step in SELECTED]
    del plain[2]["selector"]
    assert not fits(plain, java, drained(*came), artemis=artemis, q="queue")


# -- failures on several connections --------------------------------------------------------------


def connections(most: int) -> list[Json]:
    """Two that fail with a message of a queue, and what is left."""
    options = {"redelivery_policy": {"maximum_redeliveries": most}}
    return [
        {"op": "connect", "as": "c1", "options": options},
        {"op": "session", "as": "s1", "on": "c1", "mode": "TRANSACTED"},
        {"op": "consumer", "as": "k1", "in": "s1", "destination": "q"},
        {"op": "receive", "from": "k1"},
        {"op": "connect", "as": "c2", "options": options},
        {"op": "session", "as": "s2", "on": "c2", "mode": "TRANSACTED"},
        {"op": "consumer", "as": "k2", "in": "s2", "destination": "q"},
        {"op": "receive", "from": "k2"},
        {"op": "drain", "destination": "q"},
        {"op": "drain", "destination": "DLQ"},
    ]


def ended(queue: list[Json], letters: list[Json], *second: Json) -> list[Json]:
    """The outcomes of `connections`; `second`: what the second consumer gets, if it is not the same."""
    got = {"message": message("a")}
    again = {"message": second[0]} if second else got
    return [OK, OK, OK, got, OK, OK, OK, again, {"messages": queue}, {"messages": letters}]


@pytest.mark.parametrize("artemis", [True, False], ids=["artemis", "classic"])
def test_failures_count_together(*, artemis: bool) -> None:
    """Two are the limit of the second connection: a dead letter, from that queue, and once."""
    java = ended([message("a")], [])

    def right(most: int, jmsx: list[Json]) -> bool:
        return fits(connections(most), java, jmsx, artemis=artemis, q="queue")

    assert right(1, ended([], [dead("a", "q")]))
    assert not right(2, ended([], [dead("a", "q")]))
    assert not right(-1, ended([], [dead("a", "q")]))
    assert not right(1, ended([], []))
    assert not right(1, ended([], [dead("a", "r")]))
    assert not right(1, ended([], [dead("a", "q")] * 2))
    assert not right(1, ended([message("a")], [dead("a", "q")]))
    assert not fits(
        connections(1),
        ended([message("a")], [], message("b")),
        ended([], [dead("a", "q")], message("b")),
        artemis=artemis,
        q="queue",
    )


# -- dead letters of a topic ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "artemis", "right"),
    [({}, True, True), ({}, False, False), ({"durable": "d"}, True, False)],
    ids=["on Artemis", "on Classic", "durable"],
)
def test_dead_letters_of_a_topic(changed: dict[str, str], *, artemis: bool, right: bool) -> None:
    """Artemis keeps what its consumers got, and nothing else."""
    steps: list[Json] = [
        {"op": "consumer", "as": "k", "in": "s", "destination": "t", **changed},
        {"op": "receive", "from": "k"},
        {"op": "drain", "destination": "DLQ"},
    ]
    got = {"message": message("a")}
    java = [OK, got, {"messages": []}]
    assert (
        fits(steps, java, [OK, got, {"messages": [dead("a", "t")]}], artemis=artemis, t="topic")
        is right
    )
    for odd in ([dead("b", "t")], [dead("a", "q")], [dead("a", "t")] * 2):
        jmsx = [OK, got, {"messages": odd}]
        assert not fits(steps, java, jmsx, artemis=artemis, t="topic")


# -- what is rewritten ----------------------------------------------------------------------------

WAIT: Json = {"op": "wait", "seconds": 0.0}


def test_a_pause_within_a_redelivery_delay_is_left_out() -> None:
    """Of the connection that was rolled back, directly behind that."""
    made: list[Json] = [{"op": "session", "as": "s", "on": "c", "mode": "CLIENT"}]
    back: Json = {"op": "recover", "in": "s"}
    pause: list[Json] = [{"op": "stop", "target": "c"}, {"op": "start", "target": "c"}]
    other: list[Json] = [{"op": "stop", "target": "d"}, {"op": "start", "target": "d"}]
    assert unpaused({"steps": [*made, back, *pause]})["steps"] == [*made, back, WAIT, WAIT]
    for steps in ([*made, *pause], [*made, back, *other], [*made, back, pause[0]]):
        assert unpaused({"steps": steps})["steps"] == steps


def test_who_subscribes_within_a_transaction_does_so_after_it() -> None:
    """If the transaction sent to that topic before, and nobody needs the consumer until its commit."""
    steps: list[Json] = [
        {"op": "session", "as": "s", "on": "c", "mode": "TRANSACTED"},
        {"op": "send", "in": "s", "to": "t", "bodies": ["a"]},
        {"op": "consumer", "as": "k", "in": "r", "destination": "t"},
        {"op": "wait", "seconds": 0.1},
        {"op": "commit", "in": "s"},
        {"op": "receive", "from": "k"},
    ]

    def order(changed: list[Json], kind: str = "topic") -> list[int]:
        program, found = subscribed_late({"steps": changed, "destinations": {"t": kind}})
        assert program["steps"] == [changed[index] for index in found]
        return found

    unmoved = list(range(6))
    assert order(steps) == [0, 1, 3, 4, 2, 5]
    assert order(steps, "queue") == unmoved
    for index, step in (
        (0, {**steps[0], "mode": "AUTO"}),
        (1, {**steps[1], "to": "u"}),
        (2, {**steps[2], "durable": "d"}),
        (3, {"op": "receive_none", "from": "k"}),
        (4, {"op": "rollback", "in": "s"}),
    ):
        assert order([*steps[:index], step, *steps[index + 1 :]]) == unmoved
