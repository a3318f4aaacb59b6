"""A real Prometheus scrapes the endpoint; every query that anyone will see has an answer there."""

from __future__ import annotations

import math
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, NamedTuple

import pytest
from typer.testing import CliRunner

from jmsx_dashboards.boards import BOARDS
from jmsx_dashboards.cli import app
from jmsx_dashboards.grafana import ANNOTATIONS, VARIABLES
from jmsx_dashboards.recordings import RECORDINGS
from jmsx_prometheus import PrometheusObserver, serve
from jmsx_prometheus.catalogue import METRICS, Kind
from jmsx_prometheus.pipeline import registry_of
from tests.browser import too_wide
from tests.dashboards.generate import ROOT
from tests.dashboards.lint import panels
from tests.dashboards.live import Prometheus, prometheus, wait_until
from tests.dashboards.stories import (
    CLOCK_COMPARED,
    COUNTED,
    DESTINATION,
    ENDED,
    LINK_CLOSED,
    LINK_MEASURED,
    LINK_OPENED,
    LINK_RESTORED,
    SOURCE,
    SUBSCRIBED,
    IdleLog,
    working_hours,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from prometheus_client import CollectorRegistry

    from jmsx_dashboards.model import Panel, Recording

#: Drawing all boards takes 20 s of a processor, which on a busy machine is more than three minutes.
pytestmark = [pytest.mark.prometheus, pytest.mark.timeout(600)]

_LOST = replace(SOURCE, session_id="s2")


class Scene(NamedTuple):
    """What there is to look at: an observer, a Prometheus that watched it, and until when it worked."""

    observer: PrometheusObserver
    server: Prometheus
    at: float  #: seconds since the epoch

    def ask(self, expr: str) -> list[tuple[dict[str, str], float]]:
        """Ask as Grafana would for a range of 10 s that ends when work did."""
        expr = (
            expr.replace("$__rate_interval", "5s").replace("$__range", "10s").replace("$job|", ".*")
        )
        return self.server.query(re.sub(r"\$\w+", ".+", expr), self.at)


@pytest.fixture(name="scene", scope="module")
def watched(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Scene]:
    """Everything happens ten times a second, until the rules were evaluated; then traffic stops."""
    observer = PrometheusObserver(_reported(), log=IdleLog())
    folder = tmp_path_factory.mktemp("prometheus")
    rules = folder / "rules.yml"
    committed = (ROOT / "prometheus" / "jmsx_rules.yml").read_text(encoding="utf-8")
    # there is no time for 30 s
    rules.write_text(committed.replace("interval: 30s", "interval: 1s"))
    with (
        serve(observer, 0) as endpoint,
        prometheus(folder, rules, endpoint.port) as server,
    ):
        observer.observe(LINK_OPENED, SOURCE)
        observer.observe(SUBSCRIBED, SOURCE)
        wait_until(lambda: _watched_working(observer, server))
        yield Scene(observer, server, time.time())


def _reported() -> CollectorRegistry:
    """What a report tells, on the same page."""
    numbers = {"unaccounted": 1, "unread": 2, "duplicates": 3}
    summary = {"verdict": "suspect", "destinations": {DESTINATION: numbers}}
    now = time.time()
    return registry_of(summary, {"read": 9, "quarantined": 0}, now=now, horizon=now - 60)


def _work(observer: PrometheusObserver) -> None:
    """Play one round; it ends with one session up and one that lost its socket."""
    observer.observe(LINK_OPENED, _LOST)
    observer.observe(LINK_RESTORED, _LOST)
    observer.observe(LINK_MEASURED, SOURCE)
    for event in working_hours():
        observer.observe(event, SOURCE)
    now = time.monotonic()
    for shown in (COUNTED, CLOCK_COMPARED):  # which end when nobody tells them anew
        observer.observe(replace(shown, at=now), SOURCE)
    quick = replace(ENDED, at=now, received_at=now - 0.03, started_at=now - 0.02, ended_at=now)
    observer.observe(replace(quick, sent_ms=int((time.time() - 1) * 1000)), SOURCE)
    observer.observe(replace(LINK_CLOSED, reason="io"), _LOST)


def _watched_working(observer: PrometheusObserver, server: Prometheus) -> bool:
    """Work; say whether the rules saw a few scrapes of it. Prometheus takes 5 s to begin."""
    _work(observer)
    recorded = f"count_over_time({RECORDINGS[-1].record}[1m]) >= 3"
    return bool(server.query(recorded, time.time()))


def _is_finite(found: list[tuple[dict[str, str], float]]) -> bool:
    return bool(found) and all(math.isfinite(value) for _, value in found)


@pytest.mark.parametrize("panel", [pytest.param(panel, id=panel.title) for panel in panels()])
def test_every_panel_has_data(scene: Scene, panel: Panel) -> None:
    """Each query of each panel gives at least one series, and only finite numbers."""
    for query in panel.queries:
        found = scene.ask(query.expr)
        assert _is_finite(found), (query.expr, found)


@pytest.mark.parametrize("rule", [pytest.param(rule, id=rule.record) for rule in RECORDINGS])
def test_every_recording_rule_has_data(scene: Scene, rule: Recording) -> None:
    """The server evaluates the rule, which leaves the labels that the rule declares."""
    found = scene.ask(rule.record)
    assert _is_finite(found), found
    assert {frozenset(labels) for labels, _ in found} == {frozenset({"__name__", *rule.labels})}


def test_no_rule_fails(scene: Scene) -> None:
    """Every rule was evaluated without an error, and what must fire at once does."""
    rules = [rule for group in scene.server.get("rules")["groups"] for rule in group["rules"]]
    assert [rule for rule in rules if rule["health"] != "ok"] == []
    firing = {rule["name"] for rule in rules if rule.get("state") == "firing"}
    assert {"JmsxTransactionsInDoubt", "JmsxDeadLetterPublishFailing", "JmsxSendFailing"} <= firing
    assert not {"JmsxMetricsAbsent", "JmsxLabelOverflow"} & firing


def test_every_variable_has_values(scene: Scene) -> None:
    """The drop-down lists are not empty."""
    for name in VARIABLES:
        expr, label = (
            VARIABLES[name].removeprefix("label_values(").removesuffix(")").rsplit(", ", 1)
        )
        match = re.sub(r"\$\w+", ".+", expr)
        assert scene.server.get(f"label/{label}/values", **{"match[]": match}), name


def test_every_annotation_has_something_to_mark(scene: Scene) -> None:
    """Connections were lost, messages dead-lettered, and alerts fire."""
    for name, expr, *_ in ANNOTATIONS:
        assert _is_finite(scene.ask(expr)), name


def test_prometheus_has_what_the_observer_counted(scene: Scene) -> None:
    """When traffic has stopped each counter is the same on both sides, exactly."""
    counters = [row.name for row in METRICS if row.kind is Kind.COUNTER]
    counted = {name: scene.observer.value(name) for name in counters}

    def stored() -> dict[str, float]:
        return {name: scene.server.query(f"sum({name})", time.time())[0][1] for name in counters}

    wait_until(lambda: stored() == counted)
    assert sum(counted.values()) > 1000


@pytest.fixture(scope="module")
def drawn(scene: Scene, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the page and the pictures of all boards."""
    folder = tmp_path_factory.mktemp("drawn")
    asked = ["render", str(folder), "--prometheus", scene.server.url, "--since", "1m"]
    done = CliRunner().invoke(app, [*asked, "--scrape", "1", "--runbooks", "/wiki"])
    assert done.exit_code == 0, done.output
    return folder


def test_every_board_can_be_drawn(drawn: Path) -> None:
    """One page with queue, cause and a link to its runbook, and a picture of each board."""
    page = (drawn / "boards.html").read_text(encoding="utf-8")
    assert page.count("<svg") > 40
    for word in ("queue://orders", "ValueError", "/wiki/Causes.md#max_redeliveries"):
        assert word in page
    assert "/wiki/JmsxDeadLetterPublishFailing.md" in page
    pictures = {path.stem for path in drawn.glob("*.png") if path.stat().st_size > 10_000}
    assert pictures == {board.uid for board in BOARDS}


def test_the_page_is_not_wider_than_the_screen(drawn: Path, tmp_path: Path) -> None:
    """Nothing in it scrolls sideways; Chromium measures."""
    page = (drawn / "boards.html").read_text(encoding="utf-8")
    assert too_wide(page, 1000, tmp_path) == []
