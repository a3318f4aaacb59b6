"""
The series of metrics as plain numbers; Prometheus' metric families are made only for a scrape.

`prometheus_client`'s own instruments take two locks and search the buckets for each observation. Here
a series is an object with a number, and every thread that changes or reads one holds the observer's lock.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from itertools import accumulate
from typing import TYPE_CHECKING, Final, TypeAlias

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, HistogramMetricFamily
from prometheus_client.utils import floatToGoString

from jmsx_prometheus.catalogue import BY_NAME, METRICS, Kind, Metric

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from collections.abc import Set as AbstractSet

    from prometheus_client import Metric as Family


#: A series, by the name of its metric and its label values.
SeriesKey: TypeAlias = tuple[str, tuple[str, ...]]


class Tally:
    """One series of a counter or a gauge."""

    __slots__ = ("value",)

    def __init__(self, value: float = 0) -> None:
        self.value = value  #: exact while it is an int; only gauges of time are floats

    def copy(self) -> Tally:
        """Return another one with the same number."""
        return Tally(self.value)


#: How many observations are collected before they are sorted into buckets: together they cost a third as much.
_PILE: Final = 256


class Distribution:
    """One series of a histogram."""

    __slots__ = ("_bounds", "_buckets", "_pile", "_total")

    def __init__(self, bounds: tuple[float, ...]) -> None:
        self._bounds = bounds  # upper bounds, in the metric's unit
        self._buckets = [0] * (len(bounds) + 1)
        self._total = 0.0
        self._pile: list[float] = []  # observations that are not counted yet

    def observe(self, value: float) -> None:
        """
        Note one `value`, in the metric's unit; a value equal to a bound belongs to the bucket below it.

        Negative values, which only differences between two clocks can have, count as 0.
        """
        pile = self._pile
        pile.append(value)
        if len(pile) >= _PILE:
            self._count()

    def observe_all(self, values: Iterable[float]) -> None:
        """Note each of `values`."""
        self._pile.extend(values)
        if len(self._pile) >= _PILE:
            self._count()

    @property
    def buckets(self) -> list[int]:
        """Observations in each bucket, not cumulated; +Inf last."""
        self._count()
        return self._buckets

    @property
    def total(self) -> float:
        """Sum of the observations, in the metric's unit."""
        self._count()
        return self._total

    def copy(self) -> Distribution:
        """Return another one with the same numbers."""
        copied = Distribution(self._bounds)
        copied._buckets = self.buckets.copy()
        copied._total = self._total
        return copied

    def _count(self) -> None:
        """Sort the collected observations into their buckets."""
        pile = self._pile
        if not pile:
            return
        pile.sort()
        self._total += sum(pile if pile[0] >= 0 else pile[bisect_left(pile, 0.0) :])
        below = 0
        for bucket, bound in enumerate(self._bounds):
            if below == len(pile):
                break
            end = bisect_right(pile, bound, below)
            self._buckets[bucket] += end - below
            below = end
        self._buckets[-1] += len(pile) - below
        pile.clear()

    def cumulated(self) -> list[tuple[str, float]]:
        """Return pairs of `le` and how many observations were at most that."""
        names = [*map(floatToGoString, self._bounds), "+Inf"]
        return list(zip(names, map(float, accumulate(self.buckets)), strict=True))


class SeriesTable:
    """Every series of every metric in the catalogue, by its label values."""

    def __init__(self) -> None:
        self._tallies: dict[str, dict[tuple[str, ...], Tally]] = {}
        self._distributions: dict[str, dict[tuple[str, ...], Distribution]] = {}
        for metric in METRICS:
            if metric.kind is Kind.HISTOGRAM:
                self._distributions[metric.name] = {}
            else:
                self._tallies[metric.name] = {}
        #: When gauges expire unless they are set again (seconds, monotonic).
        self._ends: dict[SeriesKey, float] = {}

    def tally(self, name: str, **labels: str) -> Tally:
        """Look up the series of a counter or gauge, made on first use."""
        return self._tallies[name].setdefault(_values(BY_NAME[name], labels), Tally())

    def distribution(self, name: str, **labels: str) -> Distribution:
        """Look up the series of a histogram, made on first use."""
        metric = BY_NAME[name]
        values = _values(metric, labels)
        return self._distributions[name].setdefault(values, Distribution(metric.buckets))

    def forget(self, name: str, **labels: str) -> None:
        """Stop exporting the series of a gauge."""
        self._tallies[name].pop(_values(BY_NAME[name], labels), None)

    def show(self, name: str, value: float, *, until: float, **labels: str) -> None:
        """Set a gauge that is exported up to `until` (seconds, monotonic), unless it is set again."""
        self.tally(name, **labels).value = value
        self._ends[name, _values(BY_NAME[name], labels)] = until

    def end(self, now: float) -> None:
        """Stop exporting the gauges that were to be shown until some time before `now` (seconds, monotonic)."""
        for key, until in [*self._ends.items()]:
            if until < now:
                del self._ends[key]
                name, values = key
                self._tallies[name].pop(values, None)

    def copy(self) -> SeriesTable:
        """Return a copy of all numbers; quick, so that the lock around it is short."""
        copied = SeriesTable()
        for name, tallies in self._tallies.items():
            copied._tallies[name] = {values: tally.copy() for values, tally in tallies.items()}
        for name, distributions in self._distributions.items():
            copied._distributions[name] = {
                values: one.copy() for values, one in distributions.items()
            }
        return copied

    def begin_at_0(self, shown: AbstractSet[SeriesKey] | None) -> set[SeriesKey]:
        """
        Set counters that were not `shown` before to 0: `increase()` does not see the value with which a series begins.

        If `shown` is None, this is the first scrape, and nothing is changed. Returns the counters that are shown now.
        """
        counters = {
            (metric.name, values): tally
            for metric in METRICS
            if metric.kind is Kind.COUNTER
            for values, tally in self._tallies[metric.name].items()
        }
        if shown is not None:
            for counter in counters.keys() - shown:
                counters[counter].value = 0
        return set(counters)

    def families(self) -> Iterator[Family]:
        """Yield all metrics in the catalogue's order, as Prometheus wants them; empty ones too."""
        for metric in METRICS:
            if metric.kind is Kind.HISTOGRAM:
                yield self._histogram(metric)
            else:
                yield self._numbers(metric)

    def _histogram(self, metric: Metric) -> HistogramMetricFamily:
        family = HistogramMetricFamily(metric.name, metric.help, labels=metric.labels)
        for values, distribution in self._distributions[metric.name].items():
            family.add_metric(values, distribution.cumulated(), distribution.total)
        return family

    def _numbers(self, metric: Metric) -> CounterMetricFamily | GaugeMetricFamily:
        family: CounterMetricFamily | GaugeMetricFamily = (
            CounterMetricFamily(metric.name, metric.help, labels=metric.labels)
            if metric.kind is Kind.COUNTER
            else GaugeMetricFamily(metric.name, metric.help, labels=metric.labels)
        )
        for values, tally in self._tallies[metric.name].items():
            family.add_metric(values, tally.value)
        return family


def _values(metric: Metric, labels: dict[str, str]) -> tuple[str, ...]:
    if labels.keys() != set(metric.labels):
        raise ValueError(f"{metric.name} has the labels {metric.labels}, not {tuple(labels)}")
    return tuple(labels[name] for name in metric.labels)
