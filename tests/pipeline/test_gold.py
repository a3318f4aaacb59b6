"""The gold tables of the local engine against the same numbers worked out in plain Python from the same lines."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest

import jmsx_report
from tests.pipeline.lines import lines, of_kind
from tests.pipeline.simulator import Shop

if TYPE_CHECKING:
    from pathlib import Path

_MINUTE_US: Final = 60_000_000
_HOUR_US: Final = 60 * _MINUTE_US
_DONE: Final = ("acknowledged", "committed")
_SPANS: Final = {
    "queue": ("sent_us", "recv_us"),
    "buffer": ("recv_us", "start_us"),
    "handler": ("start_us", "end_us"),
    "ack": ("end_us", "ts_us"),
    "end_to_end": ("sent_us", "ts_us"),
}
_PERMILLES: Final = {"p50": 500, "p90": 900, "p95": 950, "p99": 990}
Lines = list[dict[str, Any]]
Gold = dict[str, pl.DataFrame]


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> tuple[Lines, Gold]:
    """Trade once; the lines as Python reads them, and the tables."""
    directory = tmp_path_factory.mktemp("gold")
    shop = Shop(directory / "events", seed=11)
    shop.trade(1200, dead=30, retried=100, lost=4, expired=3)
    shop.close()
    return lines(directory / "events"), gold(directory / "events", directory / "out")


def gold(events: Path, out: Path) -> Gold:
    """Make the tables, and read them."""
    return {
        name: pl.read_parquet(folder)
        for name, folder in jmsx_report.run(events, out).tables.items()
    }


def nearest_rank(values: list[float], permille: int) -> float:
    """Tell the exact percentile."""
    return sorted(values)[math.ceil(len(values) * permille / 1000) - 1]


def _groups(found: Lines, width_us: int) -> dict[tuple[str, str, int], Lines]:
    groups = defaultdict(list)
    for line in found:
        groups[line["dest"], line["consumer"], line["ts_us"] // width_us * width_us].append(line)
    return groups


def test_latency_is_what_python_works_out(log: tuple[Lines, Gold]) -> None:
    """Counts are equal, means too, percentiles within 1 % of the nearest rank."""
    found, tables = log
    expected = _groups(
        [line for line in of_kind(found, "delivery") if line["outcome"] in _DONE], _MINUTE_US
    )

    table = tables["delivery_latency"].rows(named=True)

    assert set(expected) == {(row["dest"], row["consumer"], row["minute_us"]) for row in table}
    for row in table:
        group = expected[row["dest"], row["consumer"], row["minute_us"]]
        spans = {
            name: [line[end] - line[start] for line in group]
            for name, (start, end) in _SPANS.items()
        }
        assert row["service"] == "shop"
        assert len(group) == row["n"] == sum(item["n"] for item in row["handler_histogram"])
        for name, values in spans.items():
            assert row[f"{name}_mean_us"] == pytest.approx(sum(values) / len(values))
        for name in ("end_to_end", "handler"):
            for label, permille in _PERMILLES.items():
                exact = nearest_rank(spans[name], permille)
                assert row[f"{name}_{label}_us"] == pytest.approx(exact, rel=0.01)


def test_redelivery_is_what_python_works_out(log: tuple[Lines, Gold]) -> None:
    """Counts, ratio, late successes; each scheduled redelivery is found again with its delay."""
    found, tables = log
    expected = _groups(of_kind(found, "delivery"), _HOUR_US)
    scheduled = {
        (line["msg_key"], line["next_attempt"]): line
        for line in of_kind(found, "redelivery.scheduled")
    }

    table = tables["redelivery"].rows(named=True)

    assert set(expected) == {(row["dest"], row["consumer"], row["hour_us"]) for row in table}
    for row in table:
        group = expected[row["dest"], row["consumer"], row["hour_us"]]
        again = [line for line in group if line["attempt"] > 1]
        actual = [
            line["start_us"] - scheduled[line["msg_key"], line["attempt"]]["ts_us"]
            for line in again
        ]
        assert (len(group), len(again), 3) == (
            row["deliveries"],
            row["redelivered"],
            row["attempts_max"],
        )
        assert row["ratio"] == pytest.approx(len(again) / len(group))
        assert row["succeeded_late"] == sum(line["outcome"] in _DONE for line in again)
        assert row["scheduled"] == len(actual)
        assert row["delay_planned_mean_us"] == 1_000_000
        assert row["delay_actual_mean_us"] == pytest.approx(sum(actual) / len(actual))
        late = nearest_rank([delay - 1_000_000 for delay in actual], 950)
        assert row["delay_late_p95_us"] == pytest.approx(late, rel=0.01)


def test_dead_letters_are_what_python_works_out(log: tuple[Lines, Gold]) -> None:
    """Each cause has its count, share and earliest keys."""
    found, tables = log
    dead = of_kind(found, "dlq")
    cause = ("dest", "reason", "error_type", "error_place")
    causes = Counter(tuple(line.get(name, "") for name in cause) for line in dead)

    table = tables["dead_letters"].rows(named=True)

    assert causes == {tuple(row[name] for name in cause): row["n"] for row in table}
    for row in table:
        same = sorted(
            (line["ts_us"], line["msg_key"])
            for line in dead
            if all(line.get(name, "") == row[name] for name in cause)
        )
        assert row["share"] == pytest.approx(row["n"] / 30)
        assert row["sample_keys"] == [key for _, key in same[:5]]
        assert (row["first_us"], row["last_us"]) == (same[0][0], same[-1][0])
        assert row["attempts_max"] == 3


def test_health_counts_each_writer(log: tuple[Lines, Gold]) -> None:
    """Every line is counted for its writer, who ended in order; nothing is missing."""
    found, tables = log
    lines_of = Counter(line["writer"] for line in found)

    table = tables["event_log_health"].rows(named=True)

    assert lines_of == {row["writer"]: row["lines"] for row in table}
    for row in table:
        assert (row["service"], row["ended"]) == ("shop", "closed")
        assert (row["missing"], row["gaps"], row["repeated"], row["dropped"]) == (0, 0, 0, 0)
