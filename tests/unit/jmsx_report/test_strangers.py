"""What was sent with a duplicate id that somebody of whom no log tells may have used before: the broker drops it."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import polars as pl
import pytest

from jmsx_report.audit import audit
from jmsx_report.books import PARTIALS, Terms, books
from jmsx_report.flows import bucket
from jmsx_report.inline import inlined
from jmsx_report.period import Period
from jmsx_report.writers import KNOWN, context
from tests.depth import some
from tests.unit.jmsx_report.logs import (
    HOUR,
    MINUTE,
    SECOND,
    SENDER,
    START,
    WORKER,
    Log,
    ended,
    events,
    key,
    merged,
    told,
    trade,
)

if TYPE_CHECKING:
    from collections.abc import Sequence

#: When the handler of a stranger's message ends, beside the time of its key.
_DONE = 5 * SECOND


def explained(log: Log) -> tuple[str, int, int]:
    """The verdict, how many were not settled, and how many of them are explained."""
    summary = told(ended(log, START + 12 * HOUR), units=1)
    return summary["verdict"], summary["unaccounted"], summary["explained"]


def strangers(log: Log, *made: int) -> Log:
    """Settle messages whose keys tell those times, and of whose sending no log tells."""
    for number, at in enumerate(made):
        log.deliver(WORKER, key(at, 7000 + number), at + _DONE)
    return log


@pytest.mark.parametrize(
    ("before", "expected"), [(MINUTE, ("unverifiable", 1, 1)), (-5 * HOUR, ("suspect", 1, 0))]
)
def test_who_came_hours_later_was_not_first(before: int, expected: tuple[str, int, int]) -> None:
    """A message was made before or after one of ours had been sent with its id."""
    log = trade(3)
    log.send(SENDER, START + HOUR, duplicate_id="pay-1")

    assert explained(strangers(log, START + HOUR - before)) == expected


def test_a_stranger_whose_clock_is_ahead_may_have_been_first() -> None:
    """Its key tells a time hours later, and it was done before one of ours was sent with its id."""
    log = trade(3)
    log.send(SENDER, START + HOUR, duplicate_id="pay-1")
    log.deliver(WORKER, key(START + 6 * HOUR, 7000), START + 50 * MINUTE)

    assert explained(log) == ("unverifiable", 1, 1)


@pytest.mark.parametrize("ours", [False, True])
def test_a_stranger_whose_key_tells_no_time_may_have_been_first(ours: bool) -> None:
    """Whether somebody here has sent such keys of the same shard, or not."""
    log, mine = trade(3), "mine-0"
    if ours:
        at = START + MINUTE
        log.deliver(WORKER, log.send(SENDER, at, msg_key=mine), at + SECOND)
    log.send(SENDER, START + HOUR, duplicate_id="pay-1")
    log.deliver(WORKER, _of_shard(mine), START + HOUR - MINUTE)

    assert explained(log) == ("unverifiable", 1, 1)


def test_a_gap_explains_what_is_old_and_a_stranger_what_is_new() -> None:
    """One of jmsx's own ids before a gap of one line, and one of the application's after it: none is surely lost."""
    log = trade(3)
    log.send(SENDER, START + 10 * MINUTE, duplicate_id="jmsx:1")
    at = START + 20 * MINUTE
    log.line(WORKER, "log.gap", at, dropped=1, dropped_kind="delivery", reason="overflow")
    log.send(SENDER, START + HOUR, duplicate_id="pay-1")

    assert explained(strangers(log, START + 5 * MINUTE)) == ("unverifiable", 2, 2)


@pytest.mark.parametrize("first", ["jmsx", "java", "java beside ours"])
@pytest.mark.parametrize(("earlier", "expected"), [(True, "unverifiable"), (False, "suspect")])
def test_a_stranger_of_before_the_period_may_have_been_first(
    first: str, earlier: bool, expected: str
) -> None:
    """It was settled in the hour before, and one of ours that the report asks for was sent with its id."""
    log, mine = trade(3), "mine-0"
    if first == "java beside ours":
        log.deliver(WORKER, log.send(SENDER, START + MINUTE, msg_key=mine), START + 2 * MINUTE)
    log.send(SENDER, START + HOUR + SECOND, duplicate_id="pay-1")
    if earlier:
        made = key(START + 59 * MINUTE, 7000) if first == "jmsx" else _of_shard(mine)
        log.deliver(WORKER, made, START + 59 * MINUTE + _DONE)
    summary = told(ended(log), units=1, asked=Period(since_us=START + HOUR))

    assert (summary["verdict"], summary["unaccounted"]) == (expected, 1)


def _of_shard(mine: str) -> str:
    """A key that tells no time, of the same bucket."""
    shards = pl.DataFrame({"key": [mine, *(f"java-{number}" for number in range(1000))]})
    of_each = shards.with_columns(bucket(pl.col("key"), pl.lit(None, pl.Int64)).alias("shard"))
    beside: str = of_each.filter(pl.col("shard") == pl.col("shard").first())["key"][1]
    return beside


@pytest.mark.parametrize("seed", some(range(24)))
def test_as_many_are_explained_as_can_be(seed: int) -> None:
    """Each stranger, and each missing line, explains one message at the most, and only one that it can be."""
    drawn = random.Random(seed)
    log, hours = trade(3), range(2, 12, 3)  # further apart than a clock may be wrong
    sent = [(drawn.choice(hours), drawn.choice(["jmsx", "pay", None])) for _ in range(8)]
    made = [drawn.choice(hours) for _ in range(drawn.randrange(4))]
    others, lines, gap = drawn.randrange(3), drawn.randrange(3), drawn.choice(hours)
    for number, (hour, kind) in enumerate(sent):
        own = {} if kind is None else {"duplicate_id": f"{kind}:{number}"}
        log.send(SENDER, START + (10 * hour + number) * MINUTE * 6, **own)
    strangers(
        log, *(START + 60 * hour * MINUTE - number * SECOND for number, hour in enumerate(made))
    )
    for number in range(others):
        log.deliver(WORKER, f"java-{number}", START + 30 * MINUTE)
    if lines:
        at = START + (60 * gap + 59) * MINUTE
        log.line(WORKER, "log.gap", at, dropped=lines, dropped_kind="delivery", reason="overflow")
    may_be = [
        [n for n, hour in enumerate(made) if kind is not None and hour <= when]
        + [n + 10 for n in range(others) if kind == "pay"]
        + [n + 20 for n in range(lines) if when <= gap]
        for when, kind in sent
    ]

    assert explained(log)[1:] == (len(sent), _matched(may_be))


def _matched(may_be: Sequence[Sequence[int]]) -> int:
    """How many can have one of theirs each, all different (augmenting paths)."""
    taken: dict[int, int] = {}

    def finds(one: int, tried: set[int]) -> bool:
        for what in may_be[one]:
            if what not in tried:
                tried.add(what)
                if what not in taken or finds(taken[what], tried):
                    taken[what] = one
                    return True
        return False

    return sum(finds(one, set()) for one in range(len(may_be)))


@inlined
@pytest.mark.parametrize("of", [{}, {"duplicate_id": "pay-1"}], ids=["without an id", "with one"])
def test_strangers_of_other_times_are_asked_for_only_where_an_id_is(of: dict[str, str]) -> None:
    """A report on an hour of a long log compares nothing of all the other hours, unless one may have been first."""
    log = trade(3)
    log.send(SENDER, START + HOUR, **of)
    cut = [events(ended(log).lines)]
    sums = {one.name: merged(one, cut) for one in (*PARTIALS, *KNOWN)}
    held = books(sums, context(sums), Terms(), Period(since_us=START + HOUR))
    found = audit(held, lambda of, wanted: merged(of(wanted), cut))

    assert found.summary["unaccounted"] == 1
    assert ("compared_beyond" in vars(held)) == bool(of)
