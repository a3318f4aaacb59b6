"""The metric catalogue: names, units, labels and what feeds each row."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

import typing

import pytest

from jmsx.core import events
from jmsx_prometheus.catalogue import (
    LABELS,
    METRICS,
    PIPELINE,
    RAW_ONLY,
    SUPERVISOR,
    UNCOUNTED,
    Kind,
    Metric,
    find,
)
from jmsx_prometheus.observer import PrometheusObserver
from jmsx_prometheus.series import Distribution
from tests.dashboards.stories import lifetime, stand_still

_EVENTS = {event.__name__ for event in typing.get_args(events.Event)}
_FORBIDDEN = {
    "message_id",
    "message_key",
    "correlation_id",
    "error_message",
    "transaction_id",
    "pid",
}


def _named(wrong: Callable[[Metric], bool]) -> list[str]:
    """The metrics that are wrong."""
    return [row.name for row in METRICS if wrong(row)]


def test_name_says_type_and_unit() -> None:
    """A counter ends with `_total`, nothing else does, and a unit is in base units."""
    odd = {"milliseconds", "ms", "minutes", "percent", "kilobytes"}
    assert _named(lambda row: not row.name.startswith("jmsx_")) == []
    assert _named(lambda row: row.name.endswith("_total") != (row.kind is Kind.COUNTER)) == []
    assert _named(lambda row: row.unit in odd) == []
    assert _named(lambda row: not row.help.endswith(".")) == []


def test_labels_are_known_and_harmless() -> None:
    """Each label is explained and bounded, and none carries an id or an exception's text."""
    assert _named(lambda row: not set(row.labels) <= LABELS.keys()) == []
    assert _named(lambda row: bool(set(row.labels) & _FORBIDDEN)) == []


def test_buckets_belong_to_histograms() -> None:
    """A histogram has rising bounds; others have none."""
    assert _named(lambda row: bool(row.buckets) != (row.kind is Kind.HISTOGRAM)) == []
    assert _named(lambda row: list(row.buckets) != sorted(set(row.buckets))) == []


def test_names_are_unique() -> None:
    """No two rows share a sample, so a sample leads to its row."""
    samples = [sample for row in METRICS for sample in row.samples]
    assert len(samples) == len(set(samples))
    assert all(find(sample) in METRICS for sample in samples)


def test_every_label_is_used() -> None:
    """Nothing is explained that no metric has."""
    rows = (*METRICS, *PIPELINE, *SUPERVISOR)
    assert {label for row in rows for label in row.labels} == LABELS.keys()


def test_raw_only_has_reasons() -> None:
    """Who is on no panel says why in some words."""
    assert all(len(reason.split()) > 3 for reason in RAW_ONLY.values())


def test_fed_by_is_the_truth() -> None:
    """Each row names exactly the events that move it, and every event moves a row, or says why it moves none."""
    movers: dict[str, set[str]] = {row.name: set() for row in METRICS}
    observer = PrometheusObserver(clock=stand_still)
    before = _numbers(observer)
    for event, source in lifetime():
        observer.observe(event, source)
        after = _numbers(observer)
        for (name, labels), number in after.items():
            if number != before.get((name, labels), _nothing(number)):
                movers[name].add(type(event).__name__)
        for name, _ in before.keys() - after.keys():
            movers[name].add(type(event).__name__)
        before = after
    assert movers == {row.name: set(row.fed_by) for row in METRICS}
    assert set().union(*movers.values()) == _EVENTS - UNCOUNTED.keys()


def _numbers(observer: PrometheusObserver) -> dict[tuple[str, tuple[str, ...]], object]:
    table = observer._copy()
    numbers: dict[tuple[str, tuple[str, ...]], object] = {}
    for name, tallies in table._tallies.items():
        numbers |= {(name, labels): tally.value for labels, tally in tallies.items()}
    for name, distributions in table._distributions.items():
        numbers |= {(name, labels): one.buckets for labels, one in distributions.items()}
    return numbers


def _nothing(number: object) -> object:
    return [0] * len(number) if isinstance(number, list) else 0


def test_unknown_sample_is_an_error() -> None:
    """A typing mistake is no zero."""
    with pytest.raises(KeyError, match="jmsx_settled_message_total is not in the metric catalogue"):
        find("jmsx_settled_message_total")


def test_distribution_is_made_from_the_rows_buckets() -> None:
    """The bounds of the catalogue are the bounds that count."""
    row = find("jmsx_ack_batch_messages_bucket")
    one = Distribution(row.buckets)
    one.observe(65)
    assert dict(one.cumulated())["50.0"] == 0
    assert dict(one.cumulated())["65.0"] == 1
