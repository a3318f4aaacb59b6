"""Rows of several batches of segments are added up: against the same sums in plain Python."""

from __future__ import annotations

import random
from functools import reduce
from operator import add, xor
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest

from jmsx_report.additive import Adds, Partial, added, added_batches

if TYPE_CHECKING:
    from collections.abc import Callable

_PLAIN: Final[dict[Adds, Callable[[Any, Any], Any]]] = {
    Adds.SUM: add,
    Adds.MIN: min,
    Adds.MAX: max,
    Adds.XOR: xor,
}
_ADDS: Final = {how.value: how for how in _PLAIN}
_SCHEMA: Final = {
    "writer": pl.String,
    "bucket": pl.Int64,
    "outcome": pl.String,
    **dict.fromkeys(_ADDS, pl.Int64),
}
Rows = dict[tuple[Any, ...], list[int]]


def _partial(*apart: str) -> Partial:
    return Partial(
        "numbers", ("writer", "bucket", "outcome"), _ADDS, lambda _: pl.DataFrame(), apart=apart
    )


def _batch(chance: random.Random, writers: str) -> Rows:
    """Each key once, as the partials of one batch of segments are; any part of a key may be null."""
    return {
        (
            chance.choice([*writers, None]),
            chance.choice([0, 10, None]),
            chance.choice(["acknowledged", "committed", None]),
        ): [chance.randrange(1, 1000) for _ in _ADDS]
        for _ in range(12)
    }


def _sums(batches: list[Rows]) -> Rows:
    found: dict[tuple[Any, ...], list[list[int]]] = {}
    for batch in batches:
        for key, numbers in batch.items():
            found.setdefault(key, []).append(numbers)
    return {
        key: [
            reduce(_PLAIN[how], column)
            for how, column in zip(_ADDS.values(), zip(*several, strict=True), strict=True)
        ]
        for key, several in found.items()
    }


def _frame(batch: Rows) -> pl.DataFrame:
    return pl.DataFrame([(*key, *numbers) for key, numbers in batch.items()], _SCHEMA, orient="row")


def _told(frame: pl.DataFrame) -> Rows:
    """Fails where a key has two rows."""
    told: Rows = {}
    for writer, bucket, outcome, *numbers in frame.select(list(_SCHEMA)).iter_rows():
        assert (writer, bucket, outcome) not in told
        told[writer, bucket, outcome] = numbers
    return told


@pytest.mark.parametrize("apart", [(), ("writer",), ("writer", "bucket")])
@pytest.mark.parametrize(
    "writers",
    [
        pytest.param(["ab", "ab", "ab"], id="all batches meet"),
        pytest.param(["ab", "bc", "d"], id="some meet"),
        pytest.param(["ab", "cd", "e"], id="only where the writer is not known"),
        pytest.param(["abc"], id="one batch"),
    ],
)
def test_a_key_of_several_batches_is_one_row(writers: list[str], apart: tuple[str, ...]) -> None:
    """Whether all rows are grouped, or only those of batches that have the keys `apart` in common."""
    for seed in range(5):
        chance = random.Random(seed)
        batches = [_batch(chance, some) for some in writers]
        frames = [_frame(batch) for batch in batches]
        assert _told(added_batches(_partial(*apart), frames)) == _sums(batches)


def test_batches_that_meet_nowhere_stay_as_they_are() -> None:
    """Then there is nothing to add up."""
    batches: list[Rows] = [{("a", 0, "x"): [1, 2, 3, 4]}, {("b", 0, "x"): [5, 6, 7, 8]}]
    frames = [_frame(batch) for batch in batches]
    assert _told(added_batches(_partial("writer", "bucket"), frames)) == _sums(batches)


def test_rows_of_one_frame_are_added_up() -> None:
    """In which a key may come more often than once."""
    chance = random.Random(1)
    batches = [_batch(chance, "ab") for _ in range(3)]
    rows = pl.concat([_frame(batch) for batch in batches])
    assert _told(added(_partial(), rows)) == _sums(batches)


def test_the_last_word_of_several_batches_is_one_row() -> None:
    """That of the line with the highest number, in whatever order the batches come, and all of it."""
    partial = Partial("said", ("writer",), {"said": Adds.LAST}, lambda _: pl.DataFrame())
    said: list[dict[str, int] | None] = [{"seq": seq, "n": 100 - seq} for seq in range(60)]
    said += [None] * 9  # lines of a batch in which nothing was said
    random.Random(1).shuffle(said)
    rows = pl.DataFrame({"writer": "a", "said": said})
    assert added(partial, rows).rows() == [("a", {"seq": 59, "n": 41})]
