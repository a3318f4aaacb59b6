"""The gold tables against the same numbers worked out in plain Python from the same lines."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.sql import functions as sf

from jmsx_spark import transforms
from jmsx_spark.histogram import bucket, gathered, percentile
from jmsx_spark.job import read_events, tally
from tests.pipeline.lines import lines, of_kind
from tests.pipeline.simulator import Shop, seeded

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.spark

_DONE: Final = ("acknowledged", "committed")
_PARTS: Final = {
    "queue": ("sent_us", "recv_us"),
    "buffer": ("recv_us", "start_us"),
    "handler": ("start_us", "end_us"),
    "ack": ("end_us", "ts_us"),
    "end_to_end": ("sent_us", "ts_us"),
}
Lines = list[dict[str, Any]]


@pytest.fixture(scope="module")
def log(spark: SparkSession, tmp_path_factory: pytest.TempPathFactory) -> tuple[Lines, DataFrame]:
    """Trade once; the lines as Python reads them, and as Spark does."""
    directory = tmp_path_factory.mktemp("events")
    shop = Shop(directory, seed=11)
    shop.trade(1200, dead=30, retried=100, lost=4, expired=3)
    shop.close()
    return lines(directory), read_events(spark, directory).cache()


def nearest_rank(values: list[float], permille: int) -> float:
    """Tell the exact percentile."""
    return sorted(values)[math.ceil(len(values) * permille / 1000) - 1]


def _groups(found: Lines, width_us: int) -> dict[tuple[str, str, int], Lines]:
    groups = defaultdict(list)
    for line in found:
        groups[line["dest"], line["consumer"], line["ts_us"] // width_us * width_us].append(line)
    return groups


def test_latency_is_what_python_works_out(log: tuple[Lines, DataFrame]) -> None:
    """Counts are equal, means too, percentiles within 1 % of the nearest rank."""
    found, events = log
    expected = _groups(
        [line for line in of_kind(found, "delivery") if line["outcome"] in _DONE],
        transforms.MINUTE_US,
    )

    table = transforms.delivery_latency(events).collect()

    assert set(expected) == {(row["dest"], row["consumer"], row["minute_us"]) for row in table}
    for row in table:
        group = expected[row["dest"], row["consumer"], row["minute_us"]]
        spans = {
            name: [line[end] - line[start] for line in group]
            for name, (start, end) in _PARTS.items()
        }
        assert len(group) == row["n"] == sum(item["n"] for item in row["handler_histogram"])
        for name, values in spans.items():
            assert row[f"{name}_mean_us"] == pytest.approx(sum(values) / len(values))
        for name in ("end_to_end", "handler"):
            for label, permille in transforms.PERMILLES.items():
                exact = nearest_rank(spans[name], permille)
                assert row[f"{name}_{label}_us"] == pytest.approx(exact, rel=0.01)


def test_minutes_merge_without_averaging_percentiles(log: tuple[Lines, DataFrame]) -> None:
    """Percentiles over all minutes are as exact as those of one."""
    found, events = log
    table = transforms.latency_overall(transforms.delivery_latency(events)).collect()

    assert len(table) == 3
    for row in table:
        values = [
            line["ts_us"] - line["sent_us"]
            for line in of_kind(found, "delivery")
            if line["outcome"] in _DONE and line["dest"] == row["dest"]
        ]
        assert row["n"] == len(values)
        assert row["end_to_end_p99_us"] == pytest.approx(nearest_rank(values, 990), rel=0.01)
        assert row["end_to_end_mean_us"] == pytest.approx(sum(values) / len(values))


def test_redelivery_is_what_python_works_out(log: tuple[Lines, DataFrame]) -> None:
    """Counts, ratio, late successes; each scheduled redelivery is found again with its delay."""
    found, events = log
    deliveries = of_kind(found, "delivery")
    expected = _groups(deliveries, transforms.HOUR_US)
    scheduled = {
        (line["msg_key"], line["next_attempt"]): line
        for line in of_kind(found, "redelivery.scheduled")
    }

    table = transforms.redelivery(events).collect()

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


def test_dead_letters_are_what_python_works_out(log: tuple[Lines, DataFrame]) -> None:
    """Each cause has its count, share and earliest keys."""
    found, events = log
    dead = of_kind(found, "dlq")
    causes = Counter((line["dest"], line["reason"], line["error_type"]) for line in dead)

    table = transforms.dead_letters(events).collect()

    assert causes == {(row["dest"], row["reason"], row["error_type"]): row["n"] for row in table}
    for row in table:
        same = sorted(
            (line["ts_us"], line["msg_key"])
            for line in dead
            if (line["dest"], line["error_type"]) == (row["dest"], row["error_type"])
        )
        assert row["share"] == pytest.approx(row["n"] / 30)
        assert row["sample_keys"] == [key for _, key in same[:5]]
        assert (row["first_us"], row["last_us"]) == (same[0][0], same[-1][0])
        assert row["attempts_max"] == 3


def test_counts_are_what_python_works_out(log: tuple[Lines, DataFrame]) -> None:
    """What is held against metrics and the broker is counted from the lines, one by one."""
    found, events = log
    outcomes = Counter(line["outcome"] for line in of_kind(found, "delivery"))

    counted = tally(transforms.counts(events).collect())

    assert {
        **outcomes,
        "received": len(of_kind(found, "recv.batch")),
        "deliveries": outcomes.total(),
        "processed": outcomes["acknowledged"],
        "redelivered": 30 * 2 + 100,
        "redeliveries_scheduled": 30 * 2 + 100,
        "dlq": 30,
        "sends_confirmed": 1200,
        "acknowledgements": outcomes["acknowledged"],
    }.items() <= counted.items()


def test_a_histogram_is_within_one_percent_everywhere(spark: SparkSession) -> None:
    """From a microsecond to a day, and for what a slow clock makes negative, no percentile is off."""
    chance = seeded(12)
    values = [-5, 0, 1, 2, *(round(10 ** chance.uniform(0, 11)) for _ in range(2000))]
    frame = spark.createDataFrame([(value,) for value in values], "us bigint")
    permilles = [1, 10, 100, 500, 900, 990, 999, 1000]

    row = (
        frame.select(sf.lit("all").alias("measure"), bucket(sf.col("us")).alias("bucket"))
        .groupBy("measure", "bucket")
        .agg(sf.count("*").alias("n"))
        .agg(*gathered(["all"]))
        .select(*(percentile("all_histogram", p).alias(str(p)) for p in permilles))
        .head()
    )

    assert row is not None
    exact = {str(p): max(nearest_rank(values, p), 0) for p in permilles}
    assert row.asDict() == pytest.approx(exact, rel=0.01)
