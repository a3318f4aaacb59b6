"""What an event log and a report tell of themselves, as Prometheus sees it."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING

from prometheus_client.parser import text_string_to_metric_families
from typer.testing import CliRunner

from jmsx.cli.commands import app
from jmsx_prometheus import PrometheusObserver
from jmsx_prometheus.catalogue import PIPELINE
from jmsx_prometheus.pipeline import write_metrics
from tests.pipeline.lines import lines
from tests.pipeline.simulator import SOURCE, Clock, Shop, delivery, open_log, seeded, sent

if TYPE_CHECKING:
    from pathlib import Path

_DROPPED = "jmsx_event_log_dropped_events_total"


def test_the_numbers_of_a_log_are_metrics(tmp_path: Path) -> None:
    """Written, dropped by kind, not yet written, not yet synced, refused."""
    clock = Clock()
    log = open_log(tmp_path, clock)
    metrics = PrometheusObserver(log=log)
    assert (metrics.value(_DROPPED, line="delivery"), metrics.value(_DROPPED, line="send")) == (
        0,
        0,
    )
    log.observe(delivery("a", "queue://a", 1.0, seeded(1), correlation_id=object()), SOURCE)
    log.observe(delivery("b", "queue://a", 1.0, seeded(1)), SOURCE)
    log.close()
    log.observe(sent("c", "queue://a", 1.0), SOURCE)

    assert metrics.value("jmsx_event_log_lines_total") == log.records == 4
    assert metrics.value(_DROPPED, line="delivery") == 1
    assert metrics.value(_DROPPED, line="send") == 1
    assert metrics.value("jmsx_event_log_unwritten_events") == 0
    assert metrics.value("jmsx_event_log_errors_total") == 0
    assert metrics.value("jmsx_event_log_unsynced_seconds") == 0


def test_without_a_log_there_are_no_numbers_of_one() -> None:
    """Nothing is said to be written where nothing is."""
    families = {family.name: family for family in PrometheusObserver().collect()}

    assert families["jmsx_event_log_lines"].samples == []


def test_a_report_writes_metrics(tmp_path: Path) -> None:
    """Every row of the catalogue, with the numbers of the summary."""
    summary = {
        "verdict": "suspect",
        "destinations": {
            "queue://a": {"unaccounted": 3, "duplicates": 0, "unread": None},
            "queue://b": {"unaccounted": 0, "duplicates": 0, "unread": 4},
        },
    }
    path = tmp_path / "jmsx.prom"

    write_metrics(path, summary, {"read": 10, "quarantined": 1}, now=200.0, horizon=100.0)

    families = {one.name: one for one in text_string_to_metric_families(path.read_text())}
    assert {name for name, one in families.items() if one.samples} == {row.name for row in PIPELINE}
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for one in families.values()
        for sample in one.samples
    }
    assert told["jmsx_report_verdict", "suspect"] == 1
    assert told["jmsx_report_verdict", "balanced"] == 0
    assert told["jmsx_report_unaccounted_messages", "queue://a"] == 3
    assert told["jmsx_report_unread_messages", "queue://b"] == 4
    assert ("jmsx_report_unread_messages", "queue://a") not in told
    assert told["jmsx_report_rows", "quarantined"] == 1
    assert told["jmsx_report_horizon_timestamp_seconds",] == 100
    assert told["jmsx_report_timestamp_seconds",] == 200


def test_the_command_writes_them_beside_the_report(tmp_path: Path) -> None:
    """With the verdict, the lines that were read and the rows of each table, in place of an earlier file."""
    shop = Shop(tmp_path / "events", seed=3)
    shop.trade(40, lost=2)
    shop.close()
    path = tmp_path / "jmsx.prom"
    path.write_text("of an earlier report")
    out, words = tmp_path / "out", ["--engine", "local", "--metrics"]

    result = CliRunner().invoke(
        app, ["report", str(tmp_path / "events"), "--out", str(out), *words, str(path)]
    )

    assert result.exit_code == 2, result.output
    families = text_string_to_metric_families(path.read_text())
    told = {
        (sample.name, *sample.labels.values()): sample.value
        for one in families
        for sample in one.samples
    }
    assert told["jmsx_report_verdict", "suspect"] == 1
    assert told["jmsx_report_rows", "read"] == len(lines(tmp_path / "events"))
    assert told["jmsx_report_rows", "quarantine"] == 0
    assert told["jmsx_report_rows", "event_log_health"] == 2
    assert time.time() - 600 < told["jmsx_report_timestamp_seconds",] <= time.time()
    assert [file.name for file in tmp_path.glob("*.prom*")] == ["jmsx.prom"]

    nowhere = CliRunner().invoke(
        app, ["report", str(tmp_path), *words, str(tmp_path / "no" / "x.prom")]
    )
    assert "is no directory; make it first" in str(nowhere.exception)
