"""Spark does what the local engine does: the same tables, to the last bit."""

from __future__ import annotations

from functools import partial as bound
from typing import TYPE_CHECKING

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import jmsx_report
from jmsx.errors import ConfigurationError
from jmsx_report import segments, store
from jmsx_report.local import make
from jmsx_report.store import Part
from jmsx_spark.engine import on, report
from tests.benchmarks.segments import write

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import SparkSession

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log of some 20 batches, with a segment that was shipped twice, and its tables by plain code in `expected`."""
    folder = tmp_path_factory.mktemp("engine")
    write(folder / "events", events=1500, segments=24, hours=3)
    first = min((folder / "events").rglob("*.jsonl"))
    (folder / "events" / "again").mkdir()
    (folder / "events" / "again" / first.name).write_bytes(first.read_bytes() + b"{}\n")
    jmsx_report.run(folder / "events", folder / "expected", engine=map)
    return folder


def _golds(out: Path) -> Mapping[str, pl.DataFrame]:
    return {folder.name: pl.read_parquet(folder) for folder in (out / "tables").iterdir()}


def _assert_as_expected(log: Path, out: Path) -> None:
    expected, found = _golds(log / "expected"), _golds(out)
    assert found.keys() == expected.keys()
    for name, table in expected.items():
        assert_frame_equal(found[name], table, check_exact=True)
    assert (out / "summary.json").read_text() == (log / "expected" / "summary.json").read_text()


def test_the_tables_are_those_of_the_local_engine(
    spark: SparkSession, log: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Read by Spark's workers, and merged by them: there are less runs than batches in the end."""
    monkeypatch.setattr(segments, "BATCH_BYTES", 40_000)
    monkeypatch.setattr(store, "FAN", 4)
    assert spark.version >= "4.1"

    result = report(log / "events", log / "local")

    _assert_as_expected(log, log / "local")
    assert result.audit["sent"] > 0
    runs = list((log / "local" / "partials").glob("*/*/run.json"))
    batches = list(segments.batches(segments.survey(log / "events").segments))
    assert len(runs) < len(batches) / 2


def test_what_a_worker_finds_wrong_is_told(
    spark: SparkSession, log: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    """A segment that is gone is said as anywhere; a worker that cannot do its job, in one line with its last words."""
    engine = on(spark.sparkContext)
    job = bound(make, events=log / "events", store=store.Store(log / "unused"))
    gone = [[Part(segments.Segment("gone.jsonl", 1, 1))]]

    with pytest.raises(ConfigurationError, match=r"gone\.jsonl is gone; make the report again"):
        list(engine(job, gone))
    with pytest.raises(ConfigurationError, match="failed: ValueError: invalid literal"):
        list(engine(int, ["x"]))
    assert list(engine(job, [])) == []
    assert "Traceback" not in capfd.readouterr().out
