"""Series: exact numbers, buckets as Prometheus defines them, copies that stand still."""

from __future__ import annotations

from bisect import bisect_right

import pytest
from hypothesis import given
from hypothesis import strategies as st

from jmsx_prometheus.series import Distribution, SeriesTable

_BOUNDS = (0.5, 1.0, 2.0)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        pytest.param(0.5, [1, 0, 0, 0], id="a bound is in its own bucket"),
        pytest.param(0.51, [0, 1, 0, 0], id="between"),
        pytest.param(99.0, [0, 0, 0, 1], id="above all"),
        pytest.param(-3.0, [1, 0, 0, 0], id="negative counts as 0"),
    ],
)
def test_observation_falls_into_one_bucket(value: float, expected: list[int]) -> None:
    """`le` means less or equal."""
    one = Distribution(_BOUNDS)
    one.observe(value)
    assert one.buckets == expected
    assert one.total == max(value, 0)


@given(st.lists(st.floats(min_value=0, max_value=10)))
def test_cumulated_counts_are_what_a_sorted_list_says(values: list[float]) -> None:
    """Each `le` has as many observations as are at most that; +Inf has all."""
    one = Distribution(_BOUNDS)
    for value in values:
        one.observe(value)
    expected = [*(bisect_right(sorted(values), bound) for bound in _BOUNDS), len(values)]
    assert [count for _, count in one.cumulated()] == expected


def test_copy_stands_still() -> None:
    """A scrape that is under way sees nothing of what happens meanwhile."""
    table = SeriesTable()
    tally = table.tally("jmsx_transactions_total", outcome="committed")
    distribution = table.distribution("jmsx_transaction_duration_seconds", outcome="committed")
    copied = table.copy()
    tally.value += 1
    distribution.observe(1.0)
    samples = {sample.value for family in copied.families() for sample in family.samples}
    assert samples == {0}


def test_same_labels_are_the_same_series() -> None:
    """Whoever asks again gets what is already counted."""
    table = SeriesTable()
    first = table.tally("jmsx_sent_messages_total", destination="queue://a", outcome="error")
    assert (
        table.tally("jmsx_sent_messages_total", outcome="error", destination="queue://a") is first
    )


def test_wrong_labels_are_refused() -> None:
    """A series with labels that its row does not have is a mistake of ours."""
    with pytest.raises(ValueError, match="jmsx_transactions_total has the labels"):
        SeriesTable().tally("jmsx_transactions_total", destination="queue://a")
