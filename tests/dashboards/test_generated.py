"""The committed files: up to date, accepted by Grafana's schema and by promtool."""

from __future__ import annotations

import json
import re
import shlex
import shutil
import subprocess
import sys
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import typer
import yaml
from typer.main import get_command
from typer.testing import CliRunner

from jmsx import plugins
from jmsx.cli.commands import app as main
from jmsx_dashboards.alerts import ALERTS
from jmsx_dashboards.boards import BOARDS
from jmsx_dashboards.cli import app
from jmsx_dashboards.model import Alert, Links, Severity
from jmsx_dashboards.texts import CAUSES
from jmsx_prometheus import PrometheusObserver
from jmsx_prometheus.catalogue import METRICS
from jmsx_prometheus.consumers import DEAD_LETTER_REASONS
from tests.dashboards import generate, lint
from tests.dashboards.rule_tests import rule_tests
from tests.dashboards.scenarios import SCENARIOS, SLOW_STEP, STEP
from tests.dashboards.sdk import Dashboard, JSONEncoder
from tests.dashboards.stories import lifetime, stand_still
from tests.dashboards.tools import promtool

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

_ROOT = generate.ROOT
_BOARDS = sorted((_ROOT / "grafana").glob("*.json"))
_RULES = _ROOT / "prometheus" / "jmsx_rules.yml"


def _read(path: Path) -> dict[str, Any]:
    return dict(json.loads(path.read_text(encoding="utf-8")))


def _panels() -> list[dict[str, Any]]:
    return [one for path in _BOARDS for one in _read(path)["panels"] if one["type"] != "row"]


def test_files_are_up_to_date() -> None:
    """The command that a reader would run finds no difference."""
    command = [sys.executable, "-m", "tests.dashboards.generate", "--check"]
    checked = subprocess.run(command, capture_output=True, text=True, check=False, cwd=_ROOT.parent)
    assert (checked.returncode, checked.stderr) == (0, "")


@pytest.mark.parametrize("damage", ["changed", "missing", "left over"])
def test_check_sees_a_difference(tmp_path: Path, damage: str) -> None:
    """A file by hand, a file too few and a file too many all fail the check; writing mends two of them."""
    root = tmp_path / "dashboards"
    shutil.copytree(_ROOT, root)
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
    """Whoever keeps runbooks and Grafana elsewhere says so, and every link of every file leads to something there."""
    chosen = ["--runbooks", "https://wiki.test/jmsx/", "--grafana", "https://grafana.test"]
    done = CliRunner().invoke(app, ["export", str(tmp_path), *chosen])
    assert done.exit_code == 0, done.output
    texts = [path.read_text(encoding="utf-8") for path in tmp_path.rglob("*") if path.is_file()]
    books = {
        book for text in texts for book in re.findall(r"https://wiki\.test/jmsx/([^\s\"#]+)", text)
    }
    named = {book for book in books if "$" not in book}
    assert named >= {f"{alert.name}.md" for alert in ALERTS}
    assert [book for book in named if not (tmp_path / "runbooks" / book).is_file()] == []
    boards = {
        uid for text in texts for uid in re.findall(r"https://grafana\.test/d/([\w-]+)", text)
    }
    assert boards == {board.uid for board in BOARDS}
    assert [uid for uid in boards if not (tmp_path / "grafana" / f"{uid}.json").is_file()] == []


def test_every_cause_has_its_runbook() -> None:
    """The table of the first fold leads to the page of its reason, and each of those reasons exists."""
    page = (_ROOT / "runbooks" / "Causes.md").read_text(encoding="utf-8")
    observer = PrometheusObserver(clock=stand_still)
    for event, source in lifetime():
        observer.observe(event, source)
    reasons = {reason for (reason,) in observer.totals("jmsx_failures_total", "reason")}
    told = set(re.findall(r"^## (\w+)$", page, re.MULTILINE))
    assert reasons <= told
    assert {*DEAD_LETTER_REASONS} <= told
    assert told == {*CAUSES}


#: By the word that stands for it in a command that we write down: what the command's own parser calls it.
_PLACES = {
    "BROKER": {"broker", "url"},
    "DIR": {"out", "folder"},
    "EVENTS": {"directory", "events"},
    "FILE.toml": {"budgets"},
    "FILE": {"metrics"},
    "KEY": {"message"},
    "QUEUE": {"queue"},
    "URL": {"grafana", "prometheus", "runbooks"},
}


def _parsed(typed: str) -> dict[str, Any]:
    """What the parser of the command line makes of a command; raises click's error for one that cannot be typed."""
    _, *words = shlex.split(typed)
    command: Any = get_command(main)
    while hasattr(command, "commands"):
        name = words.pop(0)
        command = (
            get_command(plugins.load("jmsx.commands", name))
            if name in plugins.names("jmsx.commands")
            else command.get_command(typer.Context(command), name)
        )
        assert command is not None, f"{typed}: there is no {name}"
    return dict(command.make_context(typed, words).params) if words else {}


def test_every_command_can_be_typed() -> None:
    """Each `jmsx …` of runbooks and stack, by the real parser; what stands for something is where that belongs."""
    found = set()
    for path in (*_ROOT.rglob("*.md"), *_ROOT.rglob("*.yml")):
        text = path.read_text(encoding="utf-8")
        found |= set(
            re.findall(r"^jmsx .+$|(?<=`)jmsx [^`\n]+(?=`)|jmsx run [^\"\n]+", text, re.MULTILINE)
        )
    assert len(found) >= 15
    for typed in found:
        given = _parsed(typed)
        for word in set(typed.split()) & _PLACES.keys():
            names = {name for name, value in given.items() if word in str(value)}
            assert names & _PLACES[word], (typed, word)


def test_every_query_of_a_runbook_reads_what_there_is() -> None:
    """Also those that no alert has: each metric and label is in the catalogue, or recorded."""
    queries = {
        query
        for path in (_ROOT / "runbooks").glob("*.md")
        for query in re.findall(r"```promql\n(.+?)\n```", path.read_text("utf-8"), re.DOTALL)
    }
    assert len(queries) > len(ALERTS)
    assert [one for query in queries for one in lint.query_problems(query, query)] == []


def test_a_page_asks_for_its_cause() -> None:
    """What the alert compares says that something is wrong; beside it stands what to ask, or to type, to see why."""
    pages = [alert for alert in ALERTS if alert.severity is Severity.PAGE]
    assert [one.name for one in pages if not (one.queries or one.commands)] == []


def test_the_first_query_of_a_runbook_names_queue_and_cause() -> None:
    """Where messages failed; where they are held, whose they are. What the alert compares stands behind it."""
    failures = {
        *("JmsxDeadLetterBudgetFastBurn", "JmsxDeadLetterBudgetSlowBurn", "JmsxRedeliveryStorm"),
        *("JmsxDeadLetterPublishFailing", "JmsxAcknowledgementsDropped", "JmsxSendFailing"),
    }
    for alert in ALERTS:
        text = (_ROOT / "runbooks" / f"{alert.name}.md").read_text("utf-8")
        first, *_, last = re.findall(r"```promql\n(.+?)\n```", text, re.DOTALL) * 2
        assert last == alert.expr
        assert ("destination, consumer, reason, error_type" in first) == (alert.name in failures)


@pytest.mark.parametrize("path", _BOARDS, ids=lambda path: path.stem)
def test_grafanas_schema_drops_nothing(path: Path) -> None:
    """Read by the SDK's typed model and written again, nothing of a board is lost or becomes something else."""
    board = _read(path)
    read = json.loads(json.dumps(Dashboard.from_json(board), cls=JSONEncoder))
    assert list(_lost(board, read)) == []


def _lost(given: Any, read: Any, place: str = "") -> Iterator[str]:
    """Name what is in `given` and not, or other, in `read`; what the SDK adds are defaults."""
    if isinstance(given, dict) and isinstance(read, dict):
        for key, value in given.items():
            if key in read:
                yield from _lost(value, read[key], f"{place}.{key}")
            elif value not in (None, "", [], {}, False, 0):
                yield f"{place}.{key}"
    elif isinstance(given, list) and isinstance(read, list) and len(given) == len(read):
        for number, (one, other) in enumerate(zip(given, read, strict=True)):
            yield from _lost(one, other, f"{place}[{number}]")
    elif given != read:
        yield f"{place}: {given!r} became {read!r}"


@pytest.mark.parametrize("path", _BOARDS, ids=lambda path: path.stem)
def test_panels_do_not_overlap(path: Path) -> None:
    """Each panel has its place in the grid of 24 columns, and an id of its own."""
    shown = _read(path)["panels"]
    for panel in shown:
        assert panel["gridPos"]["x"] + panel["gridPos"]["w"] <= 24
    for one, other in combinations([panel["gridPos"] for panel in shown], 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        above = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or above, (one, other)
    ids = [panel["id"] for panel in shown]
    assert ids == list(range(1, len(ids) + 1))


def test_the_first_fold_names_queue_and_cause() -> None:
    """Within the first 14 rows of the grid: queue, reason, error, count, time and runbook; alerts; oldest by queue."""
    (overview,) = [path for path in _BOARDS if path.stem == "jmsx-overview"]
    fold = {
        one["title"]: one
        for one in _read(overview)["panels"]
        if one["gridPos"]["y"] + one["gridPos"]["h"] <= 14
    }
    assert fold.keys() >= {"Failed messages", "Firing alerts", "Oldest message not settled"}
    organize = fold["Failed messages"]["transformations"][-1]["options"]
    columns = organize["indexByName"]
    assert sorted(columns, key=columns.__getitem__) == [
        *("destination", "reason", "error_type", "Value #A", "Value #B", "consumer", "runbook"),
    ]


def test_every_panel_says_what_it_shows() -> None:
    """In the JSON that Grafana reads: description, unit, thresholds, data source, two links, and no pie."""
    assert len(_panels()) >= 60
    for panel in _panels():
        defaults = panel["fieldConfig"]["defaults"]
        assert panel["description"]
        assert defaults["unit"]
        assert defaults["thresholds"]["steps"]
        assert panel["datasource"]["uid"] == "$datasource"
        assert panel["type"] != "piechart"
        assert [link["title"].split()[0] for link in panel["links"]] == ["More", "What"]


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


@pytest.mark.timeout(600)
def test_promtool_passes_the_tests_of_the_rules(tmp_path: Path) -> None:
    """
    Every alert fires when it must, is quiet when it must, and says what it should.

    Those that look back over hours, as the files stand. The others each beside the recordings that it is made of, as
    their mutants: promtool works out all rules of a file at each step of each test, and no alert reads another.
    """
    assert len([point for one in SCENARIOS for point in one.points]) >= 4 * len(ALERTS)
    assert "ALERTS" not in _RULES.read_text(encoding="utf-8")
    files = [_ROOT / "prometheus" / generate.RULE_TESTS[SLOW_STEP]]
    for alert in ALERTS:
        told = [one for one in SCENARIOS if (one.alert, one.step) == (alert.name, STEP)]
        if told:
            files.append(tmp_path / f"{alert.name}_test.yml")
            files[-1].write_text(rule_tests(Links(), told, f"{alert.name}.yml"), encoding="utf-8")
            recorded = [value.record for one in told for value in one.recorded]
            (tmp_path / f"{alert.name}.yml").write_text(_rules_of(alert, *recorded))
    tested = promtool("test", "rules", *files)
    assert tested.returncode == 0, tested.stdout + tested.stderr
    assert tested.stdout.count("SUCCESS") == len(files)


def _rules_of(alert: Alert, *recorded: str) -> str:
    """Take of the committed rules the alert, the recordings named, and all that these read."""
    groups = yaml.safe_load(_RULES.read_text(encoding="utf-8"))["groups"]
    read = " ".join(recorded)
    for group in reversed(groups):  # a rule reads those before it
        kept = []
        for rule in reversed(group["rules"]):
            if rule["record"] in read if "record" in rule else rule["alert"] == alert.name:
                kept.append(rule)
                read += rule["expr"]
        group["rules"] = kept[::-1]
    return yaml.safe_dump({"groups": [group for group in groups if group["rules"]]})
