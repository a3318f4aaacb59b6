"""
What must hold for each query, panel and alert; no exceptions.

The rules are those of grafana/dashboard-linter that matter here, and those that its readers keep missing: each
query is held against the metric catalogue. A problem is a sentence that names its place; none is the good case.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.boards import BOARDS
from jmsx_dashboards.grafana import ANNOTATIONS, VARIABLES
from jmsx_dashboards.model import TARGET_LABELS, WORKER, Alert, Panel, Recording, View
from jmsx_dashboards.recordings import RECORDINGS
from jmsx_prometheus.catalogue import LABELS, METRICS, PIPELINE, RAW_ONLY, SHOWN, Kind
from tests.dashboards.promql import PromqlError, Selector, selectors
from tests.dashboards.scenarios import SCENARIOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: What others export, or Prometheus makes itself: their labels.
FOREIGN: Final[dict[str, frozenset[str]]] = {
    "up": frozenset(),
    "ALERTS": frozenset(LABELS) | {"alertname", "alertstate", "severity"},
    "ALERTS_FOR_STATE": frozenset(LABELS) | {"alertname", "severity"},
    "activemq_queue_queue_size": frozenset({"destination"}),
    "artemis_message_count": frozenset({"queue", "address"}),
}
#: A report's file is collected by whoever collects it.
_OF_REPORTS: Final = frozenset(row.name for row in PIPELINE)
#: Labels that a query makes itself.
_MADE: Final = frozenset({"runbook"})
_OVER_TIME: Final = frozenset({"max_over_time", "changes"})
_RATES: Final = frozenset({"rate", "increase"})
#: `changes` of a counter: at how many moments it grew, by however much.
_GROWTHS: Final = _RATES | {"changes"}
_WINDOWS: Final = frozenset({"$__rate_interval", "$__range"})
_TARGET_MATCHERS: Final = {("job", "=~", "$job"), ("instance", "=~", "$instance")}
_RATIO_UNIT: Final = "percentunit"
_UNITS: Final = frozenset({"s", "mps", "cps", "Bps", _RATIO_UNIT, "short", "none"})
_RECORDED: Final = {rule.record: rule for rule in RECORDINGS}
_LEAST_POINTS: Final = 4
_LEAST_DESCRIPTION: Final = 40  #: characters


def problems() -> list[str]:
    """Check everything that is generated."""
    found = [*dashboard_problems(panels())]
    for name, expr, *_ in ANNOTATIONS:
        if not expr.startswith("ALERTS{"):  # which Prometheus makes itself
            found += query_problems(f"annotation {name}", expr)
    for name, query in VARIABLES.items():
        found += variable_problems(name, query)
    for rule in RECORDINGS:
        found += recording_problems(rule)
    for alert in ALERTS:
        found += alert_problems(alert)
    found += scenario_problems()
    return [*found, *coverage_problems(used_metrics())]


def panels() -> list[Panel]:
    """List the panels of all boards."""
    return [panel for board in BOARDS for panel in board.panels]


def used_metrics() -> set[str]:
    """Collect the metrics that a panel, a rule or an annotation reads."""
    queries = [query.expr for panel in panels() for query in panel.queries]
    queries += [rule.expr for rule in RECORDINGS] + [alert.expr for alert in ALERTS]
    read = (one.name for query in queries for one in selectors(query))
    return {SHOWN[name].name for name in read if name in SHOWN}


def coverage_problems(used: set[str]) -> Iterator[str]:
    """Find metrics that nobody looks at, and those called raw-only that somebody does."""
    for row in METRICS:
        if row.name not in used and row.name not in RAW_ONLY:
            yield f"metric {row.name}: on no panel, in no rule, and not raw-only"
        if row.name in used and row.name in RAW_ONLY:
            yield f"metric {row.name}: called raw-only, and used"
    for name in RAW_ONLY.keys() - {row.name for row in METRICS}:
        yield f"metric {name}: raw-only, and not in the catalogue"


def query_problems(place: str, expr: str) -> Iterator[str]:
    """Find what is wrong with one query, wherever it stands."""
    try:
        found = selectors(expr)
    except PromqlError as error:
        yield f"{place}: {error}"
        return
    if not found:
        yield f"{place}: reads no metric"
    for selector in found:
        if selector.name in _RECORDED or selector.name in FOREIGN:
            continue
        if selector.name not in SHOWN:
            yield f"{place}: {selector.name} is not in the catalogue"
            continue
        young = "jmsx_start_timestamp_seconds <" in expr
        wrong = _selector_problems(selector, young=young)
        yield from (f"{place}: {problem}" for problem in wrong)


def _selector_problems(selector: Selector, *, young: bool) -> Iterator[str]:
    row = SHOWN[selector.name]
    known = {*row.labels, *TARGET_LABELS, WORKER, *_MADE}
    if selector.name.endswith("_bucket"):
        known.add("le")
    named = [label for label, _, _ in selector.matchers]
    named += [label for call in selector.calls for label in call.by]
    known_to_all = {*LABELS, *TARGET_LABELS, WORKER, "le"}
    for label in {label for call in selector.calls for label in call.without} - known_to_all:
        yield f"{selector.name}: nothing has the label {label}"
    for label in named:
        if label not in known:
            yield f"{selector.name} has no label {label}"
    if (
        row.kind is Kind.GAUGE
        and selector.window is not None
        and selector.function not in _OVER_TIME
    ):
        yield f"{selector.name} is a gauge: it has no rate"
    grows = row.kind is not Kind.GAUGE and selector.function not in _GROWTHS
    if grows and not young:  # all that a young process has counted it has counted lately
        yield f"{selector.name} only ever grows: take its rate or increase"
    names = [call.name for call in selector.calls]
    if "histogram_quantile" in names and any(
        call.by and "le" not in call.by for call in selector.calls
    ):
        yield f"{selector.name}: a quantile needs le"


def dashboard_problems(shown: list[Panel]) -> Iterator[str]:
    """Find what is wrong with panels, each and together."""
    for panel in shown:
        yield from panel_problems(panel)
    yield from _doubled("title", (panel.title for panel in shown))
    yield from _doubled("query", (query.expr for panel in shown for query in panel.queries))
    yield from _doubled("id", (board.uid for board in BOARDS))


def _doubled(what: str, values: Iterable[str]) -> Iterator[str]:
    seen: set[str] = set()
    for value in values:
        if value in seen:
            yield f"dashboard: {what} twice: {value}"
        seen.add(value)


def panel_problems(panel: Panel) -> Iterator[str]:
    """Find what is wrong with one panel."""
    place = f"panel {panel.title}"
    if len(panel.description) < _LEAST_DESCRIPTION:
        yield f"{place}: says too little"
    if panel.unit not in _UNITS:
        yield f"{place}: unknown unit {panel.unit}"
    if panel.unit == _RATIO_UNIT and any(value > 1 for value, _ in panel.thresholds):
        yield f"{place}: a ratio is at most 1, and so are its thresholds"
    if [value for value, _ in panel.thresholds] != sorted(value for value, _ in panel.thresholds):
        yield f"{place}: thresholds out of order"
    if bool(panel.thresholds) == bool(panel.unbounded):
        yield f"{place}: needs a threshold, or a reason why it has none"
    for query in panel.queries:
        readable = True
        for problem in query_problems(place, query.expr):
            readable = False
            yield problem
        if readable:
            yield from _unit_problems(place, panel, query.expr)
            yield from _panel_query_problems(place, panel, query.expr, query.legend)


def _panel_query_problems(place: str, panel: Panel, expr: str, legend: str) -> Iterator[str]:
    for selector in selectors(expr):
        ours = selector.name in SHOWN and selector.name not in _OF_REPORTS
        if ours and not set(selector.matchers) >= _TARGET_MATCHERS:
            yield f"{place}: {selector.name} without job and instance"
        rated = selector.window is not None and selector.function not in _OVER_TIME
        if rated and selector.window not in _WINDOWS:
            yield f"{place}: [{selector.window}] instead of $__rate_interval"
        kept = {label for call in selector.calls for label in call.by}
        shown = set(re.findall(r"{{(\w+)}}", legend))
        if not shown <= kept and "group_left" not in expr:
            yield f"{place}: legend {legend} names what the query does not keep"
        whole = not kept - {"le"} or expr.startswith("sum(")
        if panel.view is View.TIMESERIES and not whole and not shown:
            yield f"{place}: legend {legend or 'nothing'} cannot tell its lines apart"


def _unit_problems(place: str, panel: Panel, expr: str) -> Iterator[str]:
    """Hold the panel's unit against the units that the metrics' names end with."""
    if not all(one.name in SHOWN for one in selectors(expr)):
        return
    units = {SHOWN[one.name].unit for one in selectors(expr)}
    counted = any(one.name.endswith("_count") for one in selectors(expr))
    divided = "/" in expr
    rated = any(one.function == "rate" for one in selectors(expr))
    expected = {
        "s": units == {"seconds"},
        "mps": units == {"messages"} and rated and not divided,
        "Bps": units == {"bytes"} and rated and not divided,
        "cps": "seconds" not in units and rated and not divided,
        _RATIO_UNIT: divided,
        "short": units != {"seconds"} or counted,
        "none": units == {""},
    }
    if panel.unit in expected and not expected[panel.unit]:
        yield f"{place}: unit {panel.unit} for {', '.join(sorted(units)) or 'no unit'}"


def variable_problems(name: str, query: str) -> Iterator[str]:
    """Find what is wrong with a variable: its metric must have the label that it lists."""
    place = f"variable {name}"
    found = re.fullmatch(r"label_values\((?P<expr>.+), (?P<label>\w+)\)", query)
    if found is None:
        yield f"{place}: not label_values(metric, label)"
        return
    for selector in selectors(found["expr"]):
        if selector.name not in SHOWN:
            yield f"{place}: {selector.name} is not in the catalogue"
        elif found["label"] not in {*SHOWN[selector.name].labels, *TARGET_LABELS}:
            yield f"{place}: {selector.name} has no label {found['label']}"


def recording_problems(rule: Recording) -> Iterator[str]:
    """Find what is wrong with a recording rule."""
    place = f"rule {rule.record}"
    yield from query_problems(place, rule.expr)
    level, _, rest = rule.record.partition(":")
    if tuple(level.split("_")) != rule.labels or ":" not in rest:
        yield f"{place}: is not level:metric:operations with the level of its labels"


def alert_problems(alert: Alert) -> Iterator[str]:
    """Find what is wrong with an alert."""
    place = f"alert {alert.name}"
    yield from query_problems(place, alert.expr)
    if alert.panel not in {panel.title for panel in panels()}:
        yield f"{place}: there is no panel {alert.panel}"
    for label in alert.labels:
        if label not in {*LABELS, *TARGET_LABELS}:
            yield f"{place}: no metric has the label {label}"
    for text in (alert.summary, alert.description, *alert.causes, *alert.steps):
        for label in re.findall(r"{(\w+)}", text):
            if label not in alert.labels:
                yield f"{place}: names {label}, which its query does not keep"
    for ratio, limit in re.findall(r"(\S+:ratio\S*?)\)? > ([\d.]+(?: \* [\d.]+)?)", alert.expr):
        first, _, second = limit.partition(" * ")
        if float(first) * float(second or 1) >= 1:
            yield f"{place}: {ratio} is at most 1 and never above {limit}"
    points = [point for one in SCENARIOS if one.alert == alert.name for point in one.points]
    firing = [point for point in points if point.firing is not None]
    if len(points) < _LEAST_POINTS or not firing or len(firing) == len(points):
        yield f"{place}: needs {_LEAST_POINTS} points in its tests, some firing and some not"


def scenario_problems() -> Iterator[str]:
    """Find test series that no jmsx would export, tests of nothing, and rules without a test."""
    tested = {value.record for scenario in SCENARIOS for value in scenario.recorded}
    for record in _RECORDED.keys() ^ tested:
        yield f"rule {record}: no test, or a test of no rule"
    known = {alert.name: alert for alert in ALERTS}
    for scenario in SCENARIOS:
        place = f"test {scenario.alert}, {scenario.title}"
        if scenario.alert not in known:
            yield f"{place}: there is no such alert"
            continue
        for series in scenario.series:
            row = SHOWN.get(series.name)
            labels = series.labels.keys() - {*TARGET_LABELS, "le", WORKER}
            known_labels = FOREIGN.get(series.name) if row is None else {*row.labels} - {WORKER}
            whole = row is None or labels == known_labels
            if known_labels is None or not labels <= known_labels or not whole:
                yield f"{place}: nothing exports {series.name} with {', '.join(sorted(labels))}"
        for point in scenario.points:
            if point.firing is not None and set(point.firing) != set(known[scenario.alert].labels):
                yield f"{place}: at {point.minute:g} min fires with other labels"
