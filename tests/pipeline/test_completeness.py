"""What is missing is told to the number: pure functions, no Spark."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql import Row

from jmsx_spark.completeness import Completeness, holes, is_contiguous, ranges, writer_log

_CLOSED = Row(kind="log.close", dropped=0, dropped_kind=None)


def _chunk(numbers: list[int]) -> Row:
    return Row(
        n=len(numbers),
        low=min(numbers),
        high=max(numbers),
        total=sum(numbers),
        squares=sum(number * number for number in numbers),
    )


@given(st.sets(st.integers(0, 60)), st.integers(0, 60))
def test_ranges_and_holes_cover_every_number_once(present: set[int], last: int) -> None:
    """What is there and what is missing add up to all numbers from 0 to the last."""
    present = {number for number in present if number <= last}
    found = ranges(sorted(present))
    missing = holes(found, last)

    spread = [number for low, high in [*found, *missing] for number in range(low, high + 1)]
    assert list(range(last + 1)) == sorted(spread)


@given(st.lists(st.integers(0, 40), min_size=1, max_size=30))
def test_only_a_run_of_numbers_each_once_is_contiguous(numbers: list[int]) -> None:
    """The fingerprint of up to 30 numbers is never taken in by a repeat that hides a hole."""
    expected = sorted(numbers) == list(range(min(numbers), max(numbers) + 1))

    assert expected == is_contiguous(_chunk(numbers))


@pytest.mark.parametrize(
    ("notes", "complete", "auditable"),
    [
        ([_CLOSED], True, True),
        ([], False, False),
        ([Row(kind="log.recovered", dropped=None, dropped_kind=None)], False, False),
        ([Row(kind="log.gap", dropped=3, dropped_kind="ack.batch"), _CLOSED], False, True),
        ([Row(kind="log.gap", dropped=1, dropped_kind="send"), _CLOSED], False, False),
    ],
    ids=["whole", "no end", "died", "ACKs dropped", "sends dropped"],
)
def test_only_missing_sends_and_deliveries_spoil_the_audit(
    notes: list[Any],
    complete: bool,  # noqa: FBT001 - a pytest parameter
    auditable: bool,  # noqa: FBT001 - a pytest parameter
) -> None:
    """A log may lack lines that the audit does not need; it says so all the same."""
    found = Completeness((writer_log("w", [(0, 9)], 0, notes),), (), 0)

    assert (complete, auditable) == (found.complete, found.auditable)
    assert complete == (not found.faults)


def test_a_first_line_that_is_missing_counts() -> None:
    """Lines are expected from 0, so a log whose first segment is gone is not whole."""
    found = writer_log("w", [(5, 9)], 0, [_CLOSED])

    assert found.missing == ((0, 4),)
    assert not found.audited_whole
