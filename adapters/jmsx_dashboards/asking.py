"""Runs the panels' queries on Prometheus, as Grafana would for all jobs, instances and destinations."""

from __future__ import annotations

import json
import math
import re
import urllib.error
import urllib.parse
import urllib.request
from dataclasses import dataclass
from typing import Any, Final

from jmsx.errors import ConfigurationError
from jmsx_dashboards.model import Panel, View

#: Points of a line; more would not be seen.
_POINTS: Final = 240
#: Seconds that one answer may take.
_PATIENCE: Final = 30.0
#: The shortest window of a rate in seconds: four scrapes of 15 s each, as in Grafana.
_LEAST_RATE: Final = 60.0

_INSTANT: Final = frozenset({View.STAT, View.BARGAUGE, View.TABLE})


@dataclass(frozen=True, slots=True)
class Span:
    """The time that is shown; seconds since the epoch."""

    start: float
    end: float
    scrape: float = 15.0  #: seconds between two scrapes

    @property
    def seconds(self) -> float:
        """How long it is."""
        return self.end - self.start

    @property
    def step(self) -> float:
        """Seconds between two points."""
        return max(self.seconds / _POINTS, self.scrape)

    @property
    def rate(self) -> float:
        """Seconds over which a rate is taken."""
        return max(self.step + self.scrape, 4 * self.scrape)


@dataclass(frozen=True, slots=True)
class Series:
    """One series: its labels, how it is called, and its points as pairs of seconds since the epoch and a value."""

    labels: dict[str, str]
    name: str
    points: list[tuple[float, float]]

    @property
    def last(self) -> float:
        """The last value."""
        return self.points[-1][1]


def worded(expr: str, span: Span) -> str:
    """Return `expr` with values in place of Grafana's variables."""
    expr = expr.replace("$__rate_interval", f"{span.rate:.0f}s")
    expr = expr.replace("$__range", f"{span.seconds:.0f}s")
    return re.sub(r"\$[a-z]+", ".+", expr.replace("$job|", ".*"))


class Prometheus:
    """A Prometheus server, or another one with its HTTP API, at `url`."""

    def __init__(self, url: str) -> None:
        self._url = url.rstrip("/")

    def answers(self, panel: Panel, span: Span) -> list[list[Series]]:
        """Return the series of each query of `panel`; raises ConfigurationError where it does not answer."""
        return [self._answer(panel, query.expr, query.legend, span) for query in panel.queries]

    def _answer(self, panel: Panel, expr: str, legend: str, span: Span) -> list[Series]:
        asked: dict[str, Any] = {"query": worded(expr, span)}
        if panel.view in _INSTANT:
            found = self._get("query", asked | {"time": span.end})
        else:
            bounds = {"start": span.start, "end": span.end, "step": span.step}
            found = self._get("query_range", asked | bounds)
        if found["resultType"] == "scalar":
            return [Series({}, legend, _points([found["result"]]))]
        series = [
            Series(one["metric"], _named(legend, one["metric"]), points)
            for one in found["result"]
            if (points := _points(one.get("values") or [one["value"]]))
        ]
        return sorted(series, key=lambda one: sorted(one.labels.items()))

    def _get(self, path: str, asked: dict[str, Any]) -> Any:
        url = f"{self._url}/api/v1/{path}?{urllib.parse.urlencode(asked)}"
        if not url.startswith(("http://", "https://")):
            raise ConfigurationError(
                f"--prometheus is a URL such as http://localhost:9090, not {self._url}"
            )
        try:
            with urllib.request.urlopen(url, timeout=_PATIENCE) as response:  # noqa: S310 - checked above
                return json.load(response)["data"]
        except urllib.error.HTTPError as error:
            with error:
                told = error.read().decode("utf-8", "replace")[:300]
            raise ConfigurationError(
                f"Prometheus at {self._url} refused {asked['query']}: {told}"
            ) from error
        except (OSError, ValueError, KeyError) as error:
            raise ConfigurationError(
                f"Prometheus at {self._url} does not answer: {error}; is that its URL?"
            ) from error


def _points(values: list[list[Any]]) -> list[tuple[float, float]]:
    pairs = ((float(at), float(value)) for at, value in values)
    return [(at, value) for at, value in pairs if math.isfinite(value)]


def _named(legend: str, labels: dict[str, str]) -> str:
    return re.sub(r"{{(\w+)}}", lambda found: labels.get(found[1], ""), legend).strip()


def table(panel: Panel, answers: list[list[Series]]) -> tuple[list[str], list[dict[str, Any]]]:
    """Return the columns of a table, and its rows: one for each set of labels, with the value of each query."""
    rows: dict[tuple[tuple[str, str], ...], dict[str, Any]] = {}
    for query, series in zip(panel.queries, answers, strict=True):
        for one in series:
            labels = {name: value for name, value in one.labels.items() if name != "__name__"}
            row = rows.setdefault(tuple(sorted(labels.items())), dict(labels))
            row[query.legend or "value"] = one.last
    found = list(rows.values())
    columns = list(panel.columns) or sorted({name for row in found for name in row})
    first = panel.queries[0].legend or "value"
    return columns, sorted(found, key=lambda row: -float(row.get(first, 0.0)))


def single(series: list[Series]) -> list[tuple[str, float]]:
    """Return names and values of the last points; cumulative buckets are made single by subtracting those below."""
    if not any("le" in one.labels for one in series):
        return [(one.name, one.last) for one in sorted(series, key=lambda one: -one.last)]
    bounds = sorted(series, key=lambda one: float(one.labels["le"]))
    below, bars = 0.0, []
    for one in bounds:
        bars.append((f"≤ {one.labels['le']}", max(one.last - below, 0.0)))
        below = one.last
    return bars
