"""The committed files: up to date, accepted by Grafana's schema and by promtool."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from dashboards.src import generate
from dashboards.src.alerts import ALERTS
from dashboards.src.model import Links
from dashboards.src.overview import panels
from dashboards.src.scenarios import SCENARIOS
from dashboards.src.sdk import Dashboard, JSONEncoder
from jmsx_prometheus.catalogue import METRICS
from tests.dashboards.tools import promtool

if TYPE_CHECKING:
    from pathlib import Path

_ROOT = generate.ROOT
_BOARD = _ROOT / "grafana" / "jmsx-overview.json"
_RULES = _ROOT / "prometheus" / "jmsx_rules.yml"


def _board() -> dict[str, Any]:
    return dict(json.loads(_BOARD.read_text(encoding="utf-8")))


def test_files_are_up_to_date() -> None:
    """The command that a reader would run finds no difference."""
    command = [sys.executable, str(_ROOT / "src" / "generate.py"), "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT.parent)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("damage", ["changed", "missing", "left over"])
def test_check_sees_a_difference(tmp_path: Path, damage: str) -> None:
    """A file by hand, a file too few and a file too many all fail the check; writing mends two of them."""
    root = tmp_path / "dashboards"
    shutil.copytree(_ROOT, root, ignore=shutil.ignore_patterns("src"))
    book = root / "runbooks" / f"{ALERTS[0].name}.md"
    if damage == "changed":
        book.write_text("by hand", encoding="utf-8")
    elif damage == "missing":
        book.unlink()
    else:
        (root / "runbooks" / "JmsxForgotten.md").write_text("", encoding="utf-8")
    assert generate.main(["--check", "--root", str(root)]) == 1
    assert generate.main(["--root", str(root)]) == 0
    assert generate.main(["--check", "--root", str(root)]) == (damage == "left over")


def test_places_can_be_chosen(tmp_path: Path) -> None:
    """Who keeps runbooks and Grafana elsewhere says so, and every alert links there."""
    links = ["--runbooks", "/wiki/runbooks", "--grafana", "/grafana"]
    assert generate.main([*links, "--root", str(tmp_path)]) == 0
    rules = yaml.safe_load((tmp_path / "prometheus" / "jmsx_rules.yml").read_text(encoding="utf-8"))
    annotations = [rule["annotations"] for rule in rules["groups"][1]["rules"]]
    assert len(annotations) == len(ALERTS)
    assert all(one["runbook_url"].startswith("/wiki/runbooks/Jmsx") for one in annotations)
    assert all(one["dashboard_url"].startswith("/grafana/d/jmsx-overview") for one in annotations)


def test_grafanas_schema_drops_nothing() -> None:
    """Read by the SDK's typed model and written again, the dashboard is the same."""
    read = Dashboard.from_json(_board())
    assert json.loads(json.dumps(read, cls=JSONEncoder)) == _board()


def test_panels_do_not_overlap() -> None:
    """Each panel has its place in the grid of 24 columns, and an id of its own."""
    shown = _board()["panels"]
    for panel in shown:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in shown], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    ids = [panel["id"] for panel in shown if panel["type"] != "row"]
    assert ids == list(range(1, len(list(panels())) + 1))


def test_every_panel_says_what_it_shows() -> None:
    """In the JSON that Grafana reads: description, unit, thresholds, data source, and no pie."""
    for panel in (one for one in _board()["panels"] if one["type"] != "row"):
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"]
        assert defaults["unit"]
        assert defaults["thresholds"]["steps"]
        assert panel["datasource"]["uid"] == "$datasource"
        assert panel["type"] != "piechart"


def test_every_alert_has_its_runbook_and_links() -> None:
    """Severity, texts and links on each alert; the runbook that it links to is there."""
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    alerts = [rule for group in groups for rule in group["rules"] if "alert" in rule]
    assert [rule["alert"] for rule in alerts] == [alert.name for alert in ALERTS]
    for rule in alerts:
        assert rule["labels"]["severity"] in {"page", "ticket", "info"}
        keys = {"summary", "description", "runbook_url", "dashboard_url"}
        assert rule["annotations"].keys() == keys
        assert (_ROOT.parent / rule["annotations"]["runbook_url"]).is_file()
        assert rule["expr"] in (_ROOT.parent / rule["annotations"]["runbook_url"]).read_text()


def test_the_table_has_every_metric() -> None:
    """Who reads about metrics reads the catalogue."""
    table = (_ROOT / "prometheus" / "metrics.md").read_text(encoding="utf-8")
    assert all(f"| `{row.name}` | {row.kind} |" in table for row in METRICS)


def test_rendered_annotations_differ_from_their_template() -> None:
    """What the tests expect is worded with values, not with Prometheus' placeholders."""
    fired = {**dict.fromkeys(ALERTS[0].labels, "a/b")}
    rendered = Links().rendered(ALERTS[0], fired)
    assert "$labels" not in str(rendered)
    assert "var-destination=a%2Fb" in rendered["dashboard_url"]


def test_promtool_accepts_the_rules() -> None:
    """Prometheus' own parser reads every rule."""
    checked = promtool("check", "rules", _RULES)
    assert checked.returncode == 0, checked.stderr
    assert "SUCCESS" in checked.stdout


def test_promtool_passes_the_tests_of_the_rules() -> None:
    """Every alert fires when it must, is quiet when it must, and says what it should."""
    assert len([point for one in SCENARIOS for point in one.points]) >= 4 * len(ALERTS)
    tested = promtool("test", "rules", _ROOT / "prometheus" / "jmsx_rules_test.yml")
    assert tested.returncode == 0, tested.stdout + tested.stderr
