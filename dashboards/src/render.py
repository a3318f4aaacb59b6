"""Rules, their tests, runbooks and the table of metrics, as text."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import yaml

from dashboards.src.alerts import ALERTS
from dashboards.src.recordings import RECORDINGS
from dashboards.src.scenarios import SCENARIOS, STEP, Point, Recorded, Scenario, Series
from jmsx_prometheus.catalogue import LABELS, METRICS, PIPELINE, RAW_ONLY

if TYPE_CHECKING:
    from collections.abc import Iterable

    from dashboards.src.model import Alert, Links, Recording

RULES_FILE: Final = "jmsx_rules.yml"
_WRITTEN: Final = "# Written by dashboards/src/generate.py: change that, and run it.\n"
_ALERTS: Final = {alert.name: alert for alert in ALERTS}


def rules(links: Links) -> str:
    """Write Prometheus' recording and alerting rules."""
    groups = [
        {
            "name": "jmsx.rules",
            "interval": "30s",
            "rules": [_recording(rule) for rule in RECORDINGS],
        },
        {"name": "jmsx.alerts", "rules": [_alert(alert, links) for alert in ALERTS]},
    ]
    return _yaml({"groups": groups})


def rule_tests(
    links: Links, scenarios: Iterable[Scenario] = SCENARIOS, rules_file: str = RULES_FILE
) -> str:
    """Write promtool's tests of `rules_file`."""
    tests = [_test(scenario, links) for scenario in scenarios]
    return _yaml({"rule_files": [rules_file], "evaluation_interval": f"{STEP}s", "tests": tests})


def runbook(alert: Alert) -> str:
    """Write what to do when `alert` fires."""
    quoted = {label: f"`{label}`" for label in alert.labels}
    stories = "\n".join(
        f"- {scenario.title}: {_told(scenario)}"
        for scenario in SCENARIOS
        if scenario.alert == alert.name
    )
    held = "" if alert.wait == "0m" else f", for {alert.wait}"
    return f"""# {alert.name}

Severity: {alert.severity}. {alert.description.format(**quoted)}

## Impact

{alert.impact}

## Look here first

Panel "{alert.panel}" of the overview dashboard, and this query{held}:

```promql
{alert.expr}
```

## Likely causes

{_bullets(alert.causes, quoted)}

## What to do

{_bullets(alert.steps, quoted)}

## How it was tested

`promtool test rules` plays these:

{stories}
"""


def metrics_table() -> str:
    """Write the catalogue for readers."""
    rows = "\n".join(
        f"| `{row.name}` | {row.kind} | {', '.join(f'`{label}`' for label in row.labels)} | {row.help} |"
        for row in METRICS
    )
    pipeline = "\n".join(
        f"| `{row.name}` | {', '.join(f'`{label}`' for label in row.labels)} | {row.help} |"
        for row in PIPELINE
    )
    labels = "\n".join(f"| `{label}` | {about} |" for label, about in sorted(LABELS.items()))
    raw = "\n".join(f"- `{name}`: {reason}." for name, reason in RAW_ONLY.items())
    return f"""# Metrics of jmsx

Written from `adapters/jmsx_prometheus/catalogue.py` by `dashboards/src/generate.py`.

| name | type | labels | what it counts |
|---|---|---|---|
{rows}

## Of a report

Gauges in a file for node_exporter's textfile collector; made by `jmsx_prometheus.pipeline`.

| name | labels | what it says |
|---|---|---|
{pipeline}

## Labels

| label | what it says, and what bounds it |
|---|---|
{labels}

## On no panel and in no alert

{raw}
"""


def _recording(rule: Recording) -> dict[str, Any]:
    return {"record": rule.record, "expr": rule.expr}


def _alert(alert: Alert, links: Links) -> dict[str, Any]:
    waiting = {} if alert.wait == "0m" else {"for": alert.wait}
    return {
        "alert": alert.name,
        "expr": alert.expr,
        **waiting,
        "labels": {"severity": alert.severity.value},
        "annotations": links.annotations(alert),
    }


def _test(scenario: Scenario, links: Links) -> dict[str, Any]:
    alert = _ALERTS[scenario.alert]
    written: dict[str, Any] = {
        "name": f"{scenario.alert}: {scenario.title}",
        "interval": f"{STEP}s",
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


def _told(scenario: Scenario) -> str:
    return ", ".join(
        f"{'fires' if point.firing is not None else 'quiet'} at {point.minute:g} min"
        for point in scenario.points
    )


def _bullets(lines: Iterable[str], quoted: dict[str, str]) -> str:
    return "\n".join(f"- {line.format(**quoted)}" for line in lines)


def _yaml(value: object) -> str:
    return _WRITTEN + yaml.safe_dump(value, sort_keys=False, width=10_000, allow_unicode=True)
