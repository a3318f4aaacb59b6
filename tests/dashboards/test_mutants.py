"""Mutated rules: whatever is changed in an alert's condition, its tests notice."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING

import pytest
import yaml

from jmsx_dashboards import texts
from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.model import Alert, Links
from jmsx_dashboards.recordings import RECORDINGS
from tests.dashboards.rule_tests import rule_tests
from tests.dashboards.scenarios import SCENARIOS, Scenario
from tests.dashboards.tools import promtool

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

_COMPARISON = re.compile(r" (?P<sign>>|<|==) (?P<limit>[\d.]+)")
_WINDOW = re.compile(r"\[(?P<count>\d+)(?P<unit>[smh])\]")
_MATCHERS = re.compile(r"\{[^}]*\}")
_LABELS = re.compile(r"without \((?P<labels>[^)]*)\)")
_EXTREME = re.compile(r"\b(?:min|max)(?= without)")
#: What promtool says of a file of tests: its name, and SUCCESS if all pass; what fails is told on its standard error.
_OUTCOME = re.compile(r"^Unit Testing:\s+(\S+)\n(?:\s*(SUCCESS)$)?", re.MULTILINE)
_WAIT = re.compile(r"(?P<count>\d+)(?P<unit>[smh])")

#: What may be left out of a condition, and it stays the same one: while something waits for a blocking back-off the
#: alert is silent, whatever is subtracted.
_SAME = {("JmsxConsumerStalled", '{blocking="false"}')}


def _mutants(alert: Alert) -> Iterator[Alert]:
    """All that is tried."""
    yield from _compared_otherwise(alert)
    yield from (replace(alert, expr=expr) for expr in _measured_otherwise(alert.expr))
    for found in _MATCHERS.finditer(alert.expr):
        if (alert.name, found[0]) not in _SAME:
            yield replace(alert, expr=_with(alert.expr, found, ""))
    if alert.wait != "0m":
        yield replace(alert, wait="0m")
        yield from (replace(alert, wait=wait) for wait in _other_times(alert.wait))


def _measured_otherwise(expr: str) -> Iterator[str]:
    """Shorten and lengthen each window, keep each label that is added up over, and take least for greatest."""
    for found in _WINDOW.finditer(expr):
        for other in _other_times(found[0][1:-1]):
            yield _with(expr, found, f"[{other}]")
    for found in _LABELS.finditer(expr):
        labels = found["labels"].split(", ")
        for one in labels:
            rest = ", ".join(label for label in labels if label != one)
            yield _with(expr, found, f"without ({rest})")
    for found in _EXTREME.finditer(expr):
        yield _with(expr, found, {"min": "max", "max": "min"}[found[0]])


def _other_times(time: str) -> Iterator[str]:
    """Half of `time`, and three times as long."""
    found = _WAIT.fullmatch(time)
    assert found is not None
    seconds = int(found["count"]) * {"s": 1, "m": 60, "h": 3600}[found["unit"]]
    yield f"{seconds // 2}s"
    yield f"{seconds * 3}s"


def _with(expr: str, found: re.Match[str], other: str) -> str:
    """`expr` with `other` in the place of what was found there."""
    return f"{expr[: found.start()]}{other}{expr[found.end() :]}"


def _compared_otherwise(alert: Alert) -> Iterator[Alert]:
    """Turn each comparison round, and move each limit down and up."""
    for found in _COMPARISON.finditer(alert.expr):
        sign, limit = found["sign"], found["limit"]
        changes = [({">": "<", "<": ">"}.get(sign, "!="), limit)]
        if float(limit):
            changes += [(sign, str(float(limit) * factor)) for factor in (0.5, 1.6)]
        elif sign == ">":
            changes.append((">=", limit))
        for other, moved in changes:
            yield replace(alert, expr=_with(alert.expr, found, f" {other} {moved}"))


def _write_rules(rules: Path, mutants: Iterable[Alert]) -> None:
    alerts = list(mutants)
    needed = [rule for rule in RECORDINGS if any(rule.record in one.expr for one in alerts)]
    groups = [
        {
            "name": "jmsx.rules",
            "interval": "30s",
            "rules": [texts._recording(rule) for rule in needed],
        },
        {"name": "jmsx.alerts", "rules": [texts._alert(one, Links()) for one in alerts]},
    ]
    rules.write_text(yaml.safe_dump({"groups": [group for group in groups if group["rules"]]}))


def _passing(alerts: list[Alert], told: list[Scenario], folder: Path) -> list[Alert]:
    """Which of `alerts` pass the tests: each plays what the ones before it left, for most fail at once."""
    for one in told:
        alerts = _passing_one(alerts, one, folder)
    return alerts


def _passing_one(alerts: list[Alert], told: Scenario, folder: Path) -> list[Alert]:
    """Which of `alerts` pass a test; one promtool plays all of them, for its start costs as much as ten tests."""
    files = []
    for number, alert in enumerate(alerts):
        _write_rules(folder / f"rules{number}.yml", [alert])
        files.append(folder / f"tests{number}.yml")
        files[-1].write_text(rule_tests(Links(), [told], f"rules{number}.yml"))
    tested = promtool("test", "rules", *files).stdout
    outcomes = dict(_OUTCOME.findall(tested))
    assert outcomes.keys() == set(map(str, files)), tested
    return [alert for alert, file in zip(alerts, files, strict=True) if outcomes[str(file)]]


@pytest.mark.parametrize("alert", [pytest.param(alert, id=alert.name) for alert in ALERTS])
def test_no_mutant_survives(alert: Alert, tmp_path: Path) -> None:
    """The alert itself passes its tests, and no changed one does, though each is a rule."""
    mutants = list(_mutants(alert))
    _write_rules(tmp_path / "mutants.yml", mutants)
    assert promtool("check", "rules", tmp_path / "mutants.yml").returncode == 0
    told = [replace(one, recorded=()) for one in SCENARIOS if one.alert == alert.name]
    passing = _passing([alert, *mutants], told, tmp_path)
    assert [(one.expr, one.wait) for one in passing] == [(alert.expr, alert.wait)]


def test_there_are_mutants() -> None:
    """Every alert with a comparison or a wait is mutated at least once."""
    assert all(list(_mutants(alert)) for alert in ALERTS)
    assert sum(len(list(_mutants(alert))) for alert in ALERTS) > 50
