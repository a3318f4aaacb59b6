"""The scenarios as `promtool test rules` reads them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.texts import RULES_FILE, as_yaml
from tests.dashboards.scenarios import Point, Recorded, Scenario, Series

if TYPE_CHECKING:
    from collections.abc import Collection

    from jmsx_dashboards.model import Alert, Links

_ALERTS: Final = {alert.name: alert for alert in ALERTS}


def rule_tests(links: Links, scenarios: Collection[Scenario], rules_file: str = RULES_FILE) -> str:
    """Write promtool's tests of `rules_file`; all of `scenarios` have the same step."""
    (step,) = {scenario.step for scenario in scenarios}
    head = {
        "rule_files": [rules_file],
        "evaluation_interval": f"{step}s",
        "group_eval_order": ["jmsx.rules", "jmsx.alerts"],  # else promtool takes any, each time
    }
    return as_yaml(head | {"tests": [_test(scenario, links) for scenario in scenarios]})


def _test(scenario: Scenario, links: Links) -> dict[str, Any]:
    alert = _ALERTS[scenario.alert]
    written: dict[str, Any] = {
        "name": f"{scenario.alert}: {scenario.title}",
        "interval": f"{scenario.step}s",
        "input_series": [_series(series) for series in scenario.series],
        "alert_rule_test": [_point(alert, point, links) for point in scenario.points],
    }
    if scenario.recorded:
        written["promql_expr_test"] = [_recorded(value) for value in scenario.recorded]
    return written


def _series(series: Series) -> dict[str, str]:
    return {"series": _worded(series.name, series.labels), "values": series.values}


def _point(alert: Alert, point: Point, links: Links) -> dict[str, Any]:
    firing = []
    if point.firing is not None:
        labels = {"severity": alert.severity.value, **point.firing}
        firing.append(
            {"exp_labels": labels, "exp_annotations": links.rendered(alert, point.firing)}
        )
    return {"eval_time": _minutes(point.minute), "alertname": alert.name, "exp_alerts": firing}


def _recorded(value: Recorded) -> dict[str, Any]:
    samples = [{"labels": _worded("", labels), "value": number} for labels, number in value.values]
    expr = f"round({value.record}, 0.000001)"  # promtool compares floats bit by bit
    return {"expr": expr, "eval_time": _minutes(value.minute), "exp_samples": samples}


def _worded(name: str, labels: dict[str, str]) -> str:
    pairs = ", ".join(f'{label}="{value}"' for label, value in labels.items())
    return f"{name}{{{pairs}}}"


def _minutes(minute: float) -> str:
    return f"{int(minute * 60)}s"
