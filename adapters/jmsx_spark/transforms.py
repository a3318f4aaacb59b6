"""
Event log to gold tables: DataFrame in, DataFrame out, nothing read, written or collected.

Times are bigint microseconds since the epoch (UTC) in columns that end in `_us`; so are durations, whose
means and percentiles are double. Instants are never summed: in ANSI mode 5,100 of them overflow.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyspark.sql import Window
from pyspark.sql import functions as sf

from jmsx.core.events import Outcome
from jmsx_spark.histogram import bucket, gathered, percentile, spread

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

FALSE: Final = False  #: for sf.lit, which takes its value by position
MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
#: Percentiles of every latency, in per mille.
PERMILLES: Final = {"p50": 500, "p90": 900, "p95": 950, "p99": 990}
#: A delivery with one of these was done by the application.
DONE: Final = (Outcome.ACKNOWLEDGED.value, Outcome.COMMITTED.value)
_SAMPLES: Final = 5

#: Where the time of a delivery goes; they add up to `end_to_end`. All in microseconds.
PARTS: Final = {
    "queue": ("sent_us", "recv_us"),
    "buffer": ("recv_us", "start_us"),
    "handler": ("start_us", "end_us"),
    "ack": ("end_us", "ts_us"),
}
_MEASURED: Final = {"end_to_end": ("sent_us", "ts_us"), "handler": PARTS["handler"]}
_MINUTELY: Final = ["dest", "consumer", "minute_us"]


def floor_to(instant: str, width_us: int) -> Column:
    """Round the column `instant` down to a multiple of `width_us` microseconds."""
    return sf.col(instant) - sf.col(instant) % width_us


def _between(ends: tuple[str, str]) -> Column:
    return sf.col(ends[1]) - sf.col(ends[0])


def delivery_latency(events: DataFrame) -> DataFrame:
    """
    Where the time of finished deliveries goes, by destination, consumer and minute of settlement.

    Columns: dest, consumer, minute_us, n, {queue, buffer, handler, ack, end_to_end}_mean_us,
    {end_to_end, handler}_{p50, p90, p95, p99}_us, {end_to_end, handler}_histogram. `queue` and `end_to_end`
    compare the broker's clock with ours and are null where the broker gave no timestamp.
    """
    done = events.where((sf.col("kind") == "delivery") & sf.col("outcome").isin(*DONE))
    spans = {**PARTS, **_MEASURED}
    buckets = sf.array(
        *(
            sf.struct(sf.lit(name).alias("measure"), bucket(sf.col(name)).alias("bucket"))
            for name in _MEASURED
        )
    )
    # One row a delivery and measure, so that one scan feeds means and histograms alike.
    partial = (
        done.withColumn("minute_us", floor_to("ts_us", MINUTE_US))
        .select(*_MINUTELY, *(_between(ends).alias(name) for name, ends in spans.items()))
        .select("*", sf.inline(buckets))
        .groupBy(*_MINUTELY, "measure", "bucket")
        .agg(sf.count("*").alias("n"), *(sf.sum(name).alias(name) for name in spans))
    )
    whole = partial.groupBy(*_MINUTELY).agg(
        _of("handler", sf.col("n")).alias("n"),
        *(
            (_of(_counted(name), sf.col(name)) / _of(_counted(name), sf.col("n"))).alias(
                f"{name}_mean_us"
            )
            for name in spans
        ),
        *gathered(_MEASURED),
    )
    return with_percentiles(whole, list(_MEASURED))


def _counted(span: str) -> str:
    """Name the measure that exactly the deliveries with `span` have: not all were timed at sending."""
    return "end_to_end" if span in ("queue", "end_to_end") else "handler"


def _of(measure: str, column: Column) -> Column:
    """Add up `column` over the deliveries that have `measure`."""
    has = (sf.col("measure") == measure) & sf.col("bucket").isNotNull()
    return sf.sum(sf.when(has, column))


def latency_overall(latency: DataFrame) -> DataFrame:
    """
    Merge `delivery_latency` over all minutes; columns the same, but for minute_us.

    Percentiles are read from the added-up histograms: those of minutes cannot be averaged.
    """
    grain = ["dest", "consumer"]
    means = [name for name in latency.columns if name.endswith("_mean_us")]
    merged = latency.groupBy(*grain).agg(
        sf.sum("n").alias("n"),
        *(
            (
                sf.sum(sf.col(name) * sf.col("n"))
                / sf.sum(sf.when(sf.col(name).isNotNull(), sf.col("n")))
            ).alias(name)
            for name in means
        ),
    )
    histograms = (
        spread(latency, grain, _MEASURED)
        .groupBy(*grain, "measure", "bucket")
        .agg(sf.sum("n").alias("n"))
        .groupBy(*grain)
        .agg(*gathered(_MEASURED))
    )
    return with_percentiles(merged.join(histograms, grain), list(_MEASURED))


def with_percentiles(frame: DataFrame, names: list[str]) -> DataFrame:
    """Add `{name}_{p50, …}_us` beside each `{name}_histogram`."""
    return frame.withColumns(
        {
            f"{name}_{label}_us": percentile(f"{name}_histogram", permille)
            for name in names
            for label, permille in PERMILLES.items()
        }
    )


def redelivery(events: DataFrame) -> DataFrame:
    """
    How often messages came again, by destination, consumer and hour, and whether delays were kept.

    Columns: dest, consumer, hour_us, deliveries, redelivered, ratio (0 to 1), attempts_max, succeeded_late
    (done at a second or later attempt), scheduled, delay_planned_mean_us, delay_actual_mean_us,
    delay_late_p95_us (actual less planned; a busy consumer makes it grow).
    """
    again = (sf.col("attempt") > 1) | sf.coalesce(sf.col("redelivered"), sf.lit(FALSE))
    late = (sf.col("attempt") > 1) & sf.col("outcome").isin(*DONE)
    grain = ["dest", "consumer", "hour_us"]
    deliveries = (
        events.where(sf.col("kind") == "delivery")
        .withColumn("hour_us", floor_to("ts_us", HOUR_US))
        .groupBy(*grain)
        .agg(
            sf.count("*").alias("deliveries"),
            sf.count_if(again).alias("redelivered"),
            sf.avg(again.cast("double")).alias("ratio"),
            sf.max("attempt").alias("attempts_max"),
            sf.count_if(late).alias("succeeded_late"),
        )
    )
    delays = _delays(events).withColumn("hour_us", floor_to("ts_us", HOUR_US))
    kept = delays.groupBy(*grain).agg(
        sf.count("*").alias("scheduled"),
        sf.avg("planned_us").alias("delay_planned_mean_us"),
        sf.avg("actual_us").alias("delay_actual_mean_us"),
        sf.percentile(sf.col("actual_us") - sf.col("planned_us"), 0.95).alias("delay_late_p95_us"),
    )
    return deliveries.join(kept, grain, "left")


def _delays(events: DataFrame) -> DataFrame:
    """Each redelivery that was scheduled and came: dest, consumer, ts_us, planned_us, actual_us."""
    identity = ["writer", "session_id", "epoch", "dest", "consumer", "msg_key", "attempt"]
    scheduled = events.where(sf.col("kind") == "redelivery.scheduled").select(
        *identity[:-1],
        sf.col("next_attempt").alias("attempt"),
        sf.col("ts_us").alias("scheduled_us"),
        sf.col("delay_us").alias("planned_us"),
    )
    came = events.where((sf.col("kind") == "delivery") & (sf.col("attempt") > 1))
    return came.join(scheduled, identity).select(
        "dest",
        "consumer",
        "ts_us",
        "planned_us",
        (sf.col("start_us") - sf.col("scheduled_us")).alias("actual_us"),
    )


def dead_letters(events: DataFrame) -> DataFrame:
    """
    Why messages were given up, by destination, reason and class of error.

    Columns: dest, reason, error_type ("" where none was raised), n, share (0 to 1, of all), attempts_max,
    first_us, last_us, sample_keys (the five earliest).
    """
    grain = ["dest", "reason", "error_type"]
    dead = events.where(sf.col("kind") == "dlq").fillna("", ["error_type"])
    rank = sf.row_number().over(Window.partitionBy(*grain).orderBy("ts_us", "msg_key"))
    causes = (
        dead.withColumn("rank", rank)
        .groupBy(*grain)
        .agg(
            sf.count("*").alias("n"),
            sf.max("attempts").alias("attempts_max"),
            sf.min("ts_us").alias("first_us"),
            sf.max("ts_us").alias("last_us"),
            sf.array_sort(
                sf.collect_list(sf.when(sf.col("rank") <= _SAMPLES, sf.struct("rank", "msg_key")))
            )["msg_key"].alias("sample_keys"),
        )
    )
    share = sf.col("n") / sf.sum("n").over(Window.partitionBy(sf.lit(1)))
    return causes.withColumn("share", share)


def counts(events: DataFrame) -> DataFrame:
    """
    Count lines and the messages in them, to be held against metrics and the broker's counts.

    Columns: kind, dest, outcome (null where the kind has none), n (lines), messages (in batches), again
    (deliveries with attempt > 1), flagged (deliveries with the redelivered flag, the broker's or ours).
    """
    return events.groupBy("kind", "dest", "outcome").agg(
        sf.count("*").alias("n"),
        sf.sum("messages").alias("messages"),
        sf.count_if(sf.col("attempt") > 1).alias("again"),
        sf.count_if("redelivered").alias("flagged"),
    )
