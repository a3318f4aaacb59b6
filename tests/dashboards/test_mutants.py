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
    from collections.abc import Iterator
    from pathlib import Path

_COMPARISON = re.compile(r" (?P<sign>>|<|==) (?P<limit>[\d.]+)")


def _mutants(alert: Alert) -> Iterator[Alert]:
    """Turn each comparison round, halve and double each limit, and fire without waiting."""
    for found in _COMPARISON.finditer(alert.expr):
        sign, limit = found["sign"], found["limit"]
        changes = [({">": "<", "<": ">"}.get(sign, "!="), limit)]
        if float(limit):
            changes += [(sign, str(float(limit) / 2)), (sign, str(float(limit) * 2))]
        elif sign == ">":
            changes.append((">=", limit))
        for other, moved in changes:
            start, end = found.span()
            yield replace(alert, expr=f"{alert.expr[:start]} {other} {moved}{alert.expr[end:]}")
    if alert.wait != "0m":
        yield replace(alert, wait="0m")


def _survives(mutant: Alert, folder: Path) -> bool:
    """Whether promtool passes the alert's own tests with `mutant` in its place."""
    needed = [rule for rule in RECORDINGS if rule.record in mutant.expr]
    groups = [
        {"name": "r", "interval": "30s", "rules": [texts._recording(rule) for rule in needed]},
        {"name": "a", "rules": [texts._alert(mutant, Links())]},
    ]
    rules = folder / "rules.yml"
    rules.write_text(yaml.safe_dump({"groups": [group for group in groups if group["rules"]]}))
    assert promtool("check", "rules", rules).returncode == 0
    return all(
        _passes(replace(one, recorded=()), rules) for one in SCENARIOS if one.alert == mutant.name
    )


def _passes(scenario: Scenario, rules: Path) -> bool:
    tests = rules.with_name("tests.yml")
    tests.write_text(rule_tests(Links(), [scenario], rules.name))
    return promtool("test", "rules", tests).returncode == 0


@pytest.mark.parametrize("alert", [pytest.param(alert, id=alert.name) for alert in ALERTS])
def test_no_mutant_survives(alert: Alert, tmp_path: Path) -> None:
    """The alert itself passes its tests, and no changed one does."""
    assert _survives(alert, tmp_path)
    survivors = [mutant for mutant in _mutants(alert) if _survives(mutant, tmp_path)]
    assert [(one.expr, one.wait) for one in survivors] == []


def test_there_are_mutants() -> None:
    """Every alert with a comparison or a wait is mutated at least once."""
    assert all(list(_mutants(alert)) for alert in ALERTS)
    assert sum(len(list(_mutants(alert))) for alert in ALERTS) > 50
