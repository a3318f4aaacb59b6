"""The linter: our own files pass it, and each of its rules catches something."""

from __future__ import annotations

from dataclasses import replace

import pytest

from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.model import Alert, Panel, Query, Recording, View
from jmsx_dashboards.recordings import RECORDINGS
from jmsx_prometheus.catalogue import METRICS, RAW_ONLY
from tests.dashboards import lint

_TARGET = 'job=~"$job",instance=~"$instance"'
_GOOD = Panel(
    title="Settled",
    description="Messages that are done. Good is as many as come in.",
    unit="mps",
    queries=(
        Query(
            f"sum by (outcome) (rate(jmsx_settled_messages_total{{{_TARGET}}}[$__rate_interval]))",
            "{{outcome}}",
        ),
    ),
    unbounded="good depends on the traffic",
)


def _asking(expr: str, legend: str = "", unit: str = "short") -> Panel:
    whole = expr.replace("SELECT", f"{{{_TARGET}}}")
    return replace(_GOOD, view=View.STAT, unit=unit, queries=(Query(whole, legend),))


def test_our_own_files_are_clean() -> None:
    """No exclusions: the list of problems is empty."""
    assert lint.problems() == []


def test_a_good_panel_is_good() -> None:
    """What the bad panels below are changed from has no problem itself."""
    assert list(lint.panel_problems(_GOOD)) == []


@pytest.mark.parametrize(
    ("panel", "problem"),
    [
        (replace(_GOOD, description="Settled."), "says too little"),
        (replace(_GOOD, unit="ms"), "unknown unit ms"),
        (replace(_GOOD, unbounded=""), "needs a threshold"),
        (replace(_GOOD, unit="s"), "unit s for messages"),
        (replace(_GOOD, unit="percentunit"), "unit percentunit for messages"),
        (replace(_GOOD, unit="percentunit", thresholds=((70, "red"),)), "a ratio is at most 1"),
        (replace(_GOOD, thresholds=((2, "red"), (1, "green"))), "thresholds out of order"),
        (_asking("sum(rate(jmsx_lost_total SELECT[$__range]))"), "is not in the catalogue"),
        (_asking('sum(rate(jmsx_settled_messages_total{error="x"}[$__range]))'), "no label error"),
        (_asking("sum by (le) (jmsx_unsettled_messages SELECT)"), "no label le"),
        (_asking("rate(jmsx_unsettled_messages SELECT[$__range])"), "it has no rate"),
        (_asking("sum(jmsx_settled_messages_total SELECT)"), "take its rate or increase"),
        (_asking("sum(irate(jmsx_settled_messages_total SELECT[$__range]))"), "take its rate"),
        (_asking("sum(jmsx_ack_delay_seconds_count SELECT)"), "take its rate or increase"),
        (
            _asking(
                "histogram_quantile(0.9, sum by (consumer) (rate(jmsx_ack_delay_seconds_bucket SELECT[$__range])))"
            ),
            "a quantile needs le",
        ),
        (_asking("sum(jmsx_unsettled_messages)"), "without job and instance"),
        (_asking('sum(jmsx_unsettled_messages{job=~"$job"})'), "without job and instance"),
        (_asking("sum(increase(jmsx_settled_messages_total SELECT[5m]))"), "[5m] instead of"),
        (_asking("sum(jmsx_unsettled_messages SELECT)", "{{consumer}}"), "does not keep"),
        (
            replace(_GOOD, queries=(replace(_GOOD.queries[0], legend="x"),)),
            "cannot tell its lines apart",
        ),
        (_asking("sum(deriv(jmsx_unsettled_messages SELECT[$__range]))"), "unknown function deriv"),
        (_asking("1"), "reads no metric"),
    ],
)
def test_a_bad_panel_is_caught(panel: Panel, problem: str) -> None:
    """Each rule finds what it is there for."""
    assert any(problem in found for found in lint.panel_problems(panel)), list(
        lint.panel_problems(panel)
    )


def test_twins_are_caught() -> None:
    """The same title or the same query twice is one too many."""
    found = list(lint.dashboard_problems([_GOOD, _GOOD]))
    assert [problem.split(":")[1] for problem in found] == [" title twice", " query twice"]


def test_forgotten_metrics_are_caught() -> None:
    """A metric that nobody looks at must say why; one that somebody looks at must not."""
    everything = {row.name for row in METRICS}
    shown = everything - RAW_ONLY.keys()
    assert list(lint.coverage_problems(shown)) == []
    forgotten = list(lint.coverage_problems(shown - {"jmsx_disconnects_total"}))
    assert forgotten == ["metric jmsx_disconnects_total: on no panel, in no rule, and not raw-only"]
    assert len(list(lint.coverage_problems(everything))) == len(RAW_ONLY)


@pytest.mark.parametrize(
    ("query", "problem"),
    [
        ("label_values(jmsx_build_info, destination)", "no label destination"),
        ("label_values(jmsx_info, job)", "not in the catalogue"),
        ("query_result(jmsx_build_info)", "not label_values"),
    ],
)
def test_a_bad_variable_is_caught(query: str, problem: str) -> None:
    """A variable lists a label that its metric has."""
    assert [problem in found for found in lint.variable_problems("x", query)] == [True]


@pytest.mark.parametrize(
    "record", ["settled_rate", "job:jmsx_settled_messages:rate5m", "job_destination:x"]
)
def test_a_bad_record_is_caught(record: str) -> None:
    """A recording rule's name says which labels are left."""
    rule = RECORDINGS[0]
    bad = Recording(record=record, expr=rule.expr, labels=rule.labels)
    assert any("level:metric:operations" in found for found in lint.recording_problems(bad))


_ALERT = ALERTS[0]


@pytest.mark.parametrize(
    ("bad", "problem"),
    [
        (replace(_ALERT, expr="jmsx_nothing > 0"), "not in the catalogue"),
        (replace(_ALERT, expr=f"{RECORDINGS[0].record} > 70"), "never above 70"),
        (replace(_ALERT, panel="Nowhere"), "there is no panel Nowhere"),
        (replace(_ALERT, labels=("job", "destination", "shoe")), "no metric has the label shoe"),
        (replace(_ALERT, summary="{consumer} fails"), "names consumer"),
        (replace(_ALERT, name="JmsxUntested"), "needs 4 points"),
    ],
)
def test_a_bad_alert_is_caught(bad: Alert, problem: str) -> None:
    """An alert reads what exists, can fire, and is tested."""
    assert list(lint.alert_problems(_ALERT)) == []
    assert any(problem in found for found in lint.alert_problems(bad)), list(
        lint.alert_problems(bad)
    )
