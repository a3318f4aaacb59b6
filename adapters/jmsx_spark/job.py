"""The job: read the segments, judge them, write the gold tables, gather what the report shows."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any, Final

from pyspark.sql import functions as sf

from jmsx.errors import ConfigurationError
from jmsx_spark import audit as auditing
from jmsx_spark import transforms
from jmsx_spark.completeness import (
    CHUNK,
    Completeness,
    WriterLog,
    chunks,
    is_contiguous,
    numbers_of,
    ranges,
    without_repeats,
    writer_log,
)
from jmsx_spark.schema import REPORT_SCHEMA

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from pyspark.sql import DataFrame, Row, SparkSession

_NUMBERS: Final = (
    "sent",
    "settled",
    "done",
    "dead_lettered",
    "discarded",
    "suppressed",
    "expired",
    "unaccounted",
    "in_flight",
    "unread",
    "duplicates",
    "unsent",
    "foreign",
)


@dataclass(frozen=True, slots=True)
class Findings:
    """What the job found: small enough to be held and shown."""

    tables: Mapping[str, Path]  #: the gold tables, as folders of Parquet
    audit: dict[str, Any]  #: as `ReportResult.audit`
    completeness: Completeness
    latency: list[Row]  #: dest, consumer, n, means, percentiles and histograms over all minutes
    redelivery: list[Row]  #: as `transforms.redelivery`
    dead_letters: list[Row]  #: as `transforms.dead_letters`
    buckets: list[Row]  #: bucket_us, sent, settled: over all destinations that are audited


def run(
    spark: SparkSession, events_directory: Path, out_directory: Path, *, deadline_seconds: float
) -> Findings:
    """
    Make the gold tables of `events_directory` below `out_directory`.

    `deadline_seconds`: what was sent less than this before the last line may still wait in its queue.

    Raises:
        ConfigurationError: there is no closed segment to read.

    """
    open_segments = find_open_segments(events_directory)
    silver = out_directory / "silver"
    read_events(spark, events_directory).write.mode("overwrite").parquet(str(silver))
    events = spark.read.parquet(str(silver))
    completeness, events = judge(events, open_segments)
    events = events.where(sf.col("kind").isNotNull())

    tables = _Tables(spark, out_directory / "tables")
    here = ["dest", "consumer"]
    latency = tables.write(
        "delivery_latency", transforms.delivery_latency(events), [*here, "minute_us"]
    )
    redelivery = tables.write("redelivery", transforms.redelivery(events), [*here, "hour_us"])
    dead_letters = tables.write(
        "dead_letters", transforms.dead_letters(events), ["dest", "reason", "error_type"]
    )
    audited = tables.write("audit", audit_of(events, deadline_seconds), ["dest", "bucket_us"])
    return Findings(
        tables=tables.paths,
        audit=summary(audited, transforms.counts(events), completeness),
        completeness=completeness,
        latency=transforms.latency_overall(latency).sort(*here).collect(),
        redelivery=redelivery.collect(),
        dead_letters=dead_letters.collect(),
        buckets=_over_time(audited).sort("bucket_us").collect(),
    )


class _Tables:
    """Writes tables and reads them back, so that nothing is computed twice."""

    def __init__(self, spark: SparkSession, directory: Path) -> None:
        self._spark = spark
        self._directory = directory
        self.paths: dict[str, Path] = {}

    def write(self, name: str, table: DataFrame, key: list[str]) -> DataFrame:
        """Write one sorted file; a sort of the whole would compute the table twice."""
        path = self._directory / name
        table.coalesce(1).sortWithinPartitions(*key).write.mode("overwrite").parquet(str(path))
        self.paths[name] = path
        return self._spark.read.parquet(str(path))


def find_open_segments(events_directory: Path) -> list[str]:
    """List the open segments; raises ConfigurationError where there is no closed one."""
    if not events_directory.is_dir():
        raise ConfigurationError(f"{events_directory} is no directory of an event log")
    if next(events_directory.rglob("*.jsonl"), None) is None:
        raise ConfigurationError(
            f"no closed event log segment (*.jsonl) below {events_directory};"
            " an application closes them when it ends, and every minute"
        )
    return sorted(path.name for path in events_directory.rglob("*.jsonl.open"))


def read_events(spark: SparkSession, events_directory: Path) -> DataFrame:
    """Read the closed segments; destinations lose their options, such as `?consumer.prefetchSize=1`."""
    return (
        spark.read.schema(REPORT_SCHEMA)
        .option("pathGlobFilter", "*.jsonl")
        .option("recursiveFileLookup", "true")
        .json(str(events_directory))
        .withColumn("dest", sf.substring_index("dest", "?", 1))
    )


def judge(events: DataFrame, open_segments: list[str]) -> tuple[Completeness, DataFrame]:
    """Find out what is missing and what came twice; the latter is taken out of the events."""
    rows = chunks(events).collect()
    unreadable = sum(row["n"] for row in rows if row["chunk"] is None or row["writer"] is None)
    numbered = [row for row in rows if row["chunk"] is not None and row["writer"] is not None]
    dirty = [(row["writer"], row["chunk"]) for row in numbered if not is_contiguous(row)]
    looked_at: dict[tuple[str, int], Row] = {}
    if dirty:
        frame = events.sparkSession.createDataFrame(dirty, "writer string, chunk bigint")
        looked_at = {
            (row["writer"], row["chunk"]): row for row in numbers_of(events, frame).collect()
        }
    repeating = [where for where, row in looked_at.items() if row["n"] > len(row["seqs"])]
    if repeating:
        frame = events.sparkSession.createDataFrame(repeating, "writer string, chunk bigint")
        events = without_repeats(events, frame)
    notes = events.where(sf.col("kind").isin("log.gap", "log.close", "log.recovered"))
    writers = _writer_logs(
        numbered, looked_at, notes.select("writer", "kind", "dropped", "dropped_kind").collect()
    )
    return Completeness(writers, tuple(open_segments), unreadable), events


def _writer_logs(
    numbered: list[Row], looked_at: Mapping[tuple[str, int], Row], notes: list[Row]
) -> tuple[WriterLog, ...]:
    """Put the chunks of each writer together, in order."""
    present: dict[str, list[tuple[int, int]]] = {}
    repeated: dict[str, int] = {}
    for row in sorted(numbered, key=lambda row: (row["writer"], row["chunk"])):
        writer, base = row["writer"], row["chunk"] * CHUNK
        looked = looked_at.get((writer, row["chunk"]))
        found = (
            [(base + row["low"], base + row["high"])] if looked is None else ranges(looked["seqs"])
        )
        present.setdefault(writer, []).extend(found)
        if looked is not None:
            repeated[writer] = repeated.get(writer, 0) + looked["n"] - len(looked["seqs"])
    return tuple(
        writer_log(
            writer,
            found,
            repeated.get(writer, 0),
            [note for note in notes if note["writer"] == writer],
        )
        for writer, found in present.items()
    )


def audit_of(events: DataFrame, deadline_seconds: float) -> DataFrame:
    """Audit the events: columns as `audit.audit`."""
    flowing = auditing.flows(events)
    newest = events.agg(sf.max("ts_us")).head()
    newest_us = newest[0] if newest is not None and newest[0] is not None else 0
    buckets = auditing.fingerprints(flowing).localCheckpoint()  # small, and used twice
    found = auditing.suspects(
        flowing,
        buckets,
        auditing.subscriptions(events),
        newest_us - round(deadline_seconds * 1_000_000),
    )
    if buckets.where(auditing.is_suspicious()).isEmpty():
        found = found.limit(
            0
        )  # known to be empty: Spark then leaves out the second look at the log
    return auditing.audit(buckets, found)


def _over_time(audited: DataFrame) -> DataFrame:
    """Columns: bucket_us, sent, settled."""
    return (
        audited.where(sf.col("bucket_us").isNotNull())
        .groupBy("bucket_us")
        .agg(sf.sum("sent").alias("sent"), sf.sum("settled").alias("settled"))
    )


def summary(audited: DataFrame, counted: DataFrame, completeness: Completeness) -> dict[str, Any]:
    """Write the audit as plain values, ready for JSON: see `ReportResult.audit`."""
    destinations: dict[str, dict[str, Any]] = {}
    for row in auditing.by_destination(audited).sort("dest").collect():
        numbers: dict[str, Any] = {name: row[name] for name in _NUMBERS}
        numbers["sample_keys"] = row["sample_keys"]
        destinations[row["dest"]] = numbers | {"verdict": _verdict(numbers, auditable=True)}
    totals: dict[str, Any] = {
        name: sum(numbers[name] for numbers in destinations.values()) for name in _NUMBERS
    }
    rows = counted.collect()
    return {
        "verdict": _verdict(totals, auditable=completeness.auditable),
        **totals,
        "destinations": destinations,
        "counts": tally(rows),
        "counts_by_destination": {
            dest: tally([row for row in rows if row["dest"] == dest])
            for dest in sorted({row["dest"] for row in rows if row["dest"] is not None})
        },
        "completeness": {
            "complete": completeness.complete,
            "auditable": completeness.auditable,
            "faults": list(completeness.faults),
            "open_segments": list(completeness.open_segments),
            "unreadable_lines": completeness.unreadable,
            "writers": [asdict(log) for log in completeness.writers],
        },
    }


def _verdict(numbers: Mapping[str, Any], *, auditable: bool) -> str:
    if not auditable:
        return "unverifiable"
    if numbers["unaccounted"] or numbers["duplicates"]:
        return "suspect"
    if numbers["unsent"] or numbers["foreign"]:
        return "unverifiable"
    return "balanced"


def tally(rows: list[Row]) -> dict[str, int]:
    """
    Name the counts of `transforms.counts` as metrics and brokers count them.

    All are messages, save `ack_frames` and those of transactions and links.
    """

    def lines(kind: str, outcome: str | None = None) -> int:
        return sum(
            row["n"] for row in rows if row["kind"] == kind and outcome in (None, row["outcome"])
        )

    def messages(kind: str) -> int:
        return sum(row["messages"] or 0 for row in rows if row["kind"] == kind)

    outcomes = sorted({row["outcome"] for row in rows if row["kind"] == "delivery"})
    return {
        "received": messages("recv.batch"),
        "deliveries": lines("delivery"),
        **{outcome: lines("delivery", outcome) for outcome in outcomes},
        "processed": lines("delivery", "acknowledged") + lines("delivery", "committed"),
        "redelivered": sum(row["again"] for row in rows),
        "redelivered_flagged": sum(row["flagged"] for row in rows),
        "redeliveries_scheduled": lines("redelivery.scheduled"),
        "dlq": lines("dlq"),
        "dlq_failed": lines("dlq.failed"),
        "sends": lines("send"),
        "sends_confirmed": lines("send", "confirmed"),
        "ack_frames": lines("ack.batch"),
        "acknowledgements": messages("ack.batch"),
        "acknowledgements_dropped": messages("ack.dropped"),
        "tx_committed": lines("tx.commit"),
        "tx_rolled_back": lines("tx.rollback"),
        "tx_in_doubt": lines("tx.in_doubt"),
        "connections_lost": lines("conn.lost"),
    }


def save_summary(audit: Mapping[str, Any], path: Path) -> None:
    """Write the audit as JSON, for programs."""
    path.write_text(json.dumps(audit, indent=2, sort_keys=False) + "\n", encoding="utf-8")
