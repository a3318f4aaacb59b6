"""
Is the log whole? Each writer numbers its lines from 0 without a gap, and says when it ends.

Line numbers are checked 4096 at a time by count, least, greatest, sum and sum of squares: a chunk that has each number
once has the right ones, and only the others are looked at line by line.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from jmsx_eventlog.schema import AUDITED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from pyspark.sql import DataFrame, Row

CHUNK: Final = 4096
_RANGES_TOLD: Final = 10


@dataclass(frozen=True, slots=True)
class WriterLog:
    """What is here of one process's log."""

    writer: str
    lines: int  #: each counted once
    expected: int  #: lines from 0 to the last that is known of
    missing: tuple[tuple[int, int], ...]  #: ranges of `seq`, both ends included; the first ten
    repeated: int  #: lines that came more than once (a segment shipped twice); counted once
    ended: str  #: closed, recovered (died), open (alive, or died where nobody recovers)
    dropped: Mapping[str, int] = field(default_factory=dict)  #: events by kind, from `log.gap`

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong with it, in words."""
        told = []
        if self.lines < self.expected:
            ranges = ", ".join(f"{low}-{high}" for low, high in self.missing)
            told.append(f"{self.expected - self.lines} lines are missing (seq {ranges})")
        if self.dropped:
            kinds = ", ".join(f"{count} {kind}" for kind, count in sorted(self.dropped.items()))
            told.append(f"it had to drop {kinds}")
        if self.ended == "recovered":
            told.append("it died; what it had not yet written is unknown")
        if self.ended == "open":
            told.append("it has not ended: it still runs, or it died")
        return tuple(told)

    @property
    def audited_whole(self) -> bool:
        """Whether no send and no delivery is missing, though others may be."""
        whole = self.lines == self.expected and self.ended == "closed"
        return whole and not AUDITED.intersection(self.dropped)


@dataclass(frozen=True, slots=True)
class Completeness:
    """What is here, and what is not, of everything that was written."""

    writers: tuple[WriterLog, ...]
    open_segments: tuple[str, ...]  #: files that are still written to, and so were not read
    unreadable: int  #: lines that are not JSON of the schema

    @property
    def faults(self) -> tuple[str, ...]:
        """What is wrong, in words; nothing if the log is whole."""
        told = [f"writer {log.writer}: {fault}" for log in self.writers for fault in log.faults]
        if self.open_segments:
            told.append(
                f"{len(self.open_segments)} segments are still open and were not read:"
                f" {', '.join(self.open_segments[:_RANGES_TOLD])}"
            )
        if self.unreadable:
            told.append(f"{self.unreadable} lines are unreadable")
        return tuple(told)

    @property
    def complete(self) -> bool:
        """Whether every event that was ever observed is in the tables."""
        return not self.faults

    @property
    def auditable(self) -> bool:
        """Whether every send and delivery is: then `lost` is a fact and not a guess."""
        audited = all(log.audited_whole for log in self.writers)
        return audited and not self.open_segments and not self.unreadable


def chunks(events: DataFrame) -> DataFrame:
    """
    Fingerprint each writer's line numbers, 4096 at a time; additive.

    Columns: writer, chunk, n, low, high, total, squares (of seq within the chunk). Lines that cannot be read have no
    writer or chunk.
    """
    within = sf.col("seq") % CHUNK
    return (
        events.withColumn("chunk", sf.floor(sf.col("seq") / CHUNK))
        .groupBy("writer", "chunk")
        .agg(
            sf.count("*").alias("n"),
            sf.min(within).alias("low"),
            sf.max(within).alias("high"),
            sf.sum(within).alias("total"),
            sf.sum(within * within).alias("squares"),
        )
    )


def is_contiguous(chunk: Row) -> bool:
    """Whether a row of `chunks` has each number from its least to its greatest once."""
    low, high = chunk["low"], chunk["high"]
    numbers = range(low, high + 1)
    return bool(
        chunk["n"] == len(numbers)
        and chunk["total"] == sum(numbers)
        and chunk["squares"] == sum(number * number for number in numbers)
    )


def numbers_of(events: DataFrame, dirty: DataFrame) -> DataFrame:
    """
    Look at each line of the chunks in `dirty` (writer, chunk).

    Columns: writer, chunk, n (lines), seqs (array<bigint>, each once, sorted).
    """
    return (
        events.withColumn("chunk", sf.floor(sf.col("seq") / CHUNK))
        .join(sf.broadcast(dirty), ["writer", "chunk"])
        .groupBy("writer", "chunk")
        .agg(
            sf.count("*").alias("n"),
            sf.array_sort(sf.collect_set("seq")).alias("seqs"),
        )
    )


def without_repeats(events: DataFrame, repeating: DataFrame) -> DataFrame:
    """Keep one of each line in the chunks of `repeating` (writer, chunk), and all of the others."""
    chunked = events.withColumn("chunk", sf.floor(sf.col("seq") / CHUNK))
    where, few = ["writer", "chunk"], sf.broadcast(repeating)
    others = chunked.join(few, where, "left_anti")
    once = chunked.join(few, where, "left_semi").dropDuplicates(["writer", "seq"])
    return others.unionByName(once).drop("chunk")


def ranges(numbers: Iterable[int]) -> list[tuple[int, int]]:
    """Gather sorted numbers, each there once, into ranges with both ends included."""
    found: list[tuple[int, int]] = []
    for number in numbers:
        if found and found[-1][1] == number - 1:
            found[-1] = (found[-1][0], number)
        else:
            found.append((number, number))
    return found


def holes(present: Iterable[tuple[int, int]], last: int) -> list[tuple[int, int]]:
    """Find the ranges from 0 to `last` that are not in `present` (sorted, disjoint)."""
    found, following = [], 0
    for low, high in present:
        if low > following:
            found.append((following, low - 1))
        following = high + 1
    if following <= last:
        found.append((following, last))
    return found


def writer_log(
    writer: str, present: list[tuple[int, int]], repeated: int, notes: Iterable[Row]
) -> WriterLog:
    """Judge one writer by the ranges of `seq` that are here and by its own `log.*` lines."""
    last = max((high for _, high in present), default=-1)
    ended, dropped = "open", dict[str, int]()
    for note in notes:
        if note["kind"] == "log.gap":
            kind = note["dropped_kind"] or "?"
            dropped[kind] = dropped.get(kind, 0) + note["dropped"]
        elif note["kind"] in ("log.close", "log.recovered"):
            ended = "closed" if note["kind"] == "log.close" else "recovered"
    missing = holes(present, last)
    return WriterLog(
        writer=writer,
        lines=sum(high - low + 1 for low, high in present),
        expected=last + 1,
        missing=tuple(missing[:_RANGES_TOLD]),
        repeated=repeated,
        ended=ended,
        dropped=dropped,
    )
