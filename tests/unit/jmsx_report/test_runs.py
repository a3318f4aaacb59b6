"""Runs of line numbers that follow each other, overlap, or were written while a clock was set: against plain Python."""

from __future__ import annotations

import random
from itertools import product
from typing import Final

import polars as pl
import pytest

from jmsx_report.clocks import SAMPLES, _least
from jmsx_report.horizon import NOTES, completeness
from jmsx_report.overlaps import earlier, repeating
from tests.depth import some

_RUNS: Final = {
    "writer": pl.String,
    "low": pl.Int64,
    "high": pl.Int64,
    "first_us": pl.Int64,
    "last_us": pl.Int64,
}
_NOTES: Final = {
    "writer": pl.String,
    "seq": pl.Int64,
    "kind": pl.String,
    "ts_us": pl.Int64,
    "before_us": pl.Int64,
    "dropped": pl.Int64,
    "dropped_kind": pl.String,
    "lost_bytes": pl.Int64,
}
SEEDS: Final = some(range(40))
Run = tuple[str, int, int, int, int | None]
Hole = tuple[str, int, int, int | None, int]


def _drawn(chance: random.Random) -> list[Run]:
    """Of a few writers; each begins a run at another number, as the sums of a partial do."""
    runs: list[Run] = []
    for writer in "abcd"[: chance.randrange(1, 5)]:
        at, low = 1_000, chance.choice([0, 0, 2])
        for _ in range(chance.randrange(1, 5)):
            high = low + chance.randrange(4)
            last = chance.choice([at + 9, at + 9, at - 50, None])
            runs.append((writer, low, high, at, last))
            low = max(low + 1, high + chance.choice([-1, 1, 1, 3]))
            at += 10
    chance.shuffle(runs)
    return runs


@pytest.mark.parametrize("seed", SEEDS)
def test_holes_are_what_no_run_has(seed: int) -> None:
    """Each with the time of the latest line before it, and of the first behind it; each line counts once."""
    runs = _drawn(random.Random(seed))
    found = completeness(pl.DataFrame(runs, _RUNS, orient="row"), pl.DataFrame(schema=_NOTES))
    holes: list[Hole] = []
    lines = {}
    for writer in sorted({run[0] for run in runs}):
        until, here = -1, set[int]()
        latest: int | None = None
        for _, low, high, first, last in sorted(run for run in runs if run[0] == writer):
            if low > until + 1:
                holes.append((writer, until + 1, low - 1, latest, first))
            here |= {*range(low, high + 1)}
            until = max(until, high)
            latest = max(filter(None, (latest, last)), default=None)
        lines[writer] = len(here)
    told = found.holes.select("writer", "low", "high", "before_us", "after_us").sort(
        "writer", "low"
    )
    # A run without a time hides, as it did, the time of those before it: then it is not told.
    assert [row[:3] + row[4:] for row in told.rows()] == [row[:3] + row[4:] for row in holes]
    assert all(row[3] in (None, hole[3]) for row, hole in zip(told.rows(), holes, strict=True))
    if all(run[4] is not None for run in runs):
        assert told.rows() == holes
    assert dict(found.writers.select("writer", "lines").rows()) == lines
    assert {*NOTES.keys, *NOTES.adds} == {*_NOTES}


@pytest.mark.parametrize("seed", SEEDS)
def test_overlaps_are_found_however_far_apart(seed: int) -> None:
    """A long range may reach over several that have nothing in common with each other."""
    chance = random.Random(seed)
    ranges = []
    for number, (segment, writer) in enumerate(product("pqrs", "ab")):
        low = number * chance.choice([0, 5, 20])
        ranges.append((segment, writer, low, low + chance.choice([1, 3, 40]), 1))
        if chance.random() < 0.3:
            low += chance.choice([2, 50])
            ranges.append((segment, writer, low, low + 1, chance.choice([1, 1, 2])))
    columns = {
        "segment": pl.String,
        "writer": pl.String,
        "low": pl.Int64,
        "high": pl.Int64,
        "times": pl.Int64,
    }
    frame = pl.DataFrame(ranges, columns, orient="row")

    def meet(one: tuple[str, str, int, int, int], other: tuple[str, str, int, int, int]) -> bool:
        return one[1] == other[1] and one[2] <= other[3] and other[2] <= one[3]

    before: dict[str, set[str]] = {}
    for one, other in product(ranges, ranges):
        if one[0] > other[0] and meet(one, other):
            before.setdefault(one[0], set()).add(other[0])
    assert earlier(frame) == {name: tuple(sorted(others)) for name, others in before.items()}
    again = {
        one[0]
        for at, one in enumerate(ranges)
        if one[4] > 1 or any(one[0] == other[0] and meet(one, other) for other in ranges[at + 1 :])
    }
    assert repeating(frame) == again


def test_samples_are_those_of_the_least_hashes_of_each_group() -> None:
    """All of a group of few, and as many as that of one of many; one message may have several rows."""
    chance = random.Random(1)
    rows = [
        (writer, "send", chance.randrange(1_000_000), 3_600_000_000 * hour)
        for writer, many in (("few", 5), ("many", 200), ("just", 32))
        for hour in (1, 2)
        for _ in range(many)
    ]
    rows += rows[::3]
    columns = {"writer": pl.String, "side": pl.String, "hash": pl.Int64, "key_us": pl.Int64}
    kept = _least(pl.DataFrame(rows, columns, orient="row"))
    groups: dict[tuple[str, int], set[int]] = {}
    for writer, _, hash_, key_us in rows:
        groups.setdefault((writer, key_us), set()).add(hash_)
    wanted = [row for row in rows if row[2] in sorted(groups[row[0], row[3]])[:32]]
    assert sorted(kept.rows()) == sorted(wanted)
    assert "hash" in SAMPLES.keys
