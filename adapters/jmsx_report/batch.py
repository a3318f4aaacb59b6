"""Reads one batch of segments: its valid lines, each once, and how complete each segment is."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias, TypeVar

import polars as pl

from jmsx_report import segments
from jmsx_report.events import ABOUT, CONTRADICTION, EMPTY, NAMESAKE, UNREADABLE, Events, named
from jmsx_report.lines import Content, Reading, read

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence


#: Bytes of JSON from which partials are made at once; its columns take about as much memory.
LOOKED_AT_BYTES: Final = 60 * 1024 * 1024
_WHERE: Final = ("writer", "seq")
Earlier: TypeAlias = "Mapping[str, Sequence[Content]] | None"
T = TypeVar("T")
#: Marks a line that another process added when it recovered a segment; a copy of the segment may have it, too.
_RECOVERED: Final = '"kind":"log.recovered"'
_FAULT: Final = {"line": pl.UInt32, "what": pl.String, "why": pl.String}


def each(
    of: Callable[[Events], T], several: Iterable[tuple[Sequence[Content], Earlier]]
) -> Iterator[T]:
    """
    Yield the result of `of` on the events of `several` batches, given as pairs of arguments of `events_of`.

    Batches of BATCH_BYTES are read one by one, and given to `of` together, LOOKED_AT_BYTES at a time. Both limit the
    memory of a worker; a call of `of` costs as much as reading some thousand lines, however few lines there are.

    A larger segment is cut into pieces. If a line's number is in two pieces the segment is read whole, because
    repetitions are found only among lines that are read together.
    """
    read, size = list[Events](), 0
    for contents, earlier in several:
        if len(contents) == 1 and len(contents[0].data) > segments.BATCH_BYTES:
            yield from _each_piece(of, contents[0], earlier)
        else:
            read.append(events_of(contents, earlier))
            size += sum(len(content.data) for content in contents)
            if size >= LOOKED_AT_BYTES:
                yield of(Events.joined(read))
                read, size = [], 0
    if read:
        yield of(Events.joined(read))


def _each_piece(of: Callable[[Events], T], content: Content, earlier: Earlier) -> list[T]:
    done, read, size, ranges, first = [], list[Events](), 0, [], content.first
    for data in _pieces(content.data):
        events = events_of([replace(content, data=data, first=first)], earlier)
        first += events.about("files")["lines"].item()
        ranges.append(events.about("ranges"))
        read.append(events)
        size += len(data)
        if size >= LOOKED_AT_BYTES:
            done.append(of(Events.joined(read)))
            read, size = [], 0
    if read:
        done.append(of(Events.joined(read)))
    return [of(events_of([content], earlier))] if _overlap(pl.concat(ranges)) else done


def _pieces(data: bytes) -> Iterator[bytes]:
    begin = 0
    while begin < len(data):
        end = data.find(b"\n", begin + segments.BATCH_BYTES) + 1 or len(data)
        yield data[begin:end]
        begin = end


def _overlap(ranges: pl.DataFrame) -> bool:
    before = pl.col("high").shift().over("writer")
    return bool(ranges.sort("writer", "low").select((pl.col("low") <= before).any()).item())


def events_of(contents: Sequence[Content], earlier: Earlier = None) -> Events:
    """
    Read `contents`; of lines with the same number the first counts.

    `earlier` has, by path, the segments before it with numbers of the same writers. A line whose number is in one of
    these is left out if it is the same line there, and put into the quarantine if it is another.
    """
    reading = read(contents)
    numbered = reading.numbered()
    ranges = _ranges(numbered)
    # In a complete segment a writer's numbers are consecutive: one range.
    again = [_repeats_within(reading, numbered, ranges)]
    for path, others in (earlier or {}).items():
        again += [_repeats(reading, numbered.filter(segment=path), other) for other in others]
    repeats = pl.concat(again).unique("line", keep="first", maintain_order=True)
    aside = pl.concat(
        [
            reading.aside.select("line", pl.lit(UNREADABLE).alias("what"), "why"),
            repeats.drop_nulls("why"),
        ]
    )
    frames = reading.frames
    if repeats.height:
        frames = {
            kind: frame.join(repeats, on="line", how="anti") for kind, frame in frames.items()
        }
    return Events(
        frames,
        {
            "ranges": ranges,
            "files": _files(reading, aside, repeats),
            "quarantine": _quarantine(reading, aside),
        },
    )


def _ranges(numbered: pl.DataFrame) -> pl.DataFrame:
    """Return the ranges of consecutive numbers in each segment, whatever the order of its lines."""
    ranges = _runs(numbered)
    if ranges.select("segment", "writer").is_duplicated().any():
        ranges = _runs(
            numbered.sort("segment", *_WHERE).unique(["segment", *_WHERE], maintain_order=True)
        )
    return ranges


def _runs(numbered: pl.DataFrame) -> pl.DataFrame:
    starts = (
        (pl.col("seq") != pl.col("seq").shift() + 1)
        | (pl.col("writer") != pl.col("writer").shift())
        # `start` stands for the segment: a number is compared faster than a text
        | (pl.col("start") != pl.col("start").shift())
    )
    return (
        numbered.lazy()
        .with_columns(starts.fill_null(value=True).cum_sum().alias("run"))
        .group_by("run")
        .agg(
            pl.col("segment").first(),
            pl.col("writer").first(),
            pl.col("seq").first().alias("low"),
            pl.col("seq").last().alias("high"),
            pl.col("ts_us").min().alias("first_us"),
            pl.col("ts_us").max().alias("last_us"),
            pl.lit(1, pl.Int64).alias("times"),
        )
        .select(*ABOUT["ranges"])
        .collect()
        .pipe(named)
    )


def _repeats_within(reading: Reading, numbered: pl.DataFrame, ranges: pl.DataFrame) -> pl.DataFrame:
    """Return lines whose number occurs earlier in the segment: line, what, why (null: an identical line)."""
    if (ranges["high"] - ranges["low"] + 1).sum() == numbered.height:
        return pl.DataFrame(schema=_FAULT)
    place = ["segment", *_WHERE]
    several = numbered.filter(pl.struct(place).is_duplicated()).join(reading.lines, on="line")
    return (
        several.sort("line")
        .with_columns(
            pl.col("text", "ts_us").first().over(place).name.suffix("_before"),
            pl.col("line").first().over(place).alias("first"),
        )
        .filter(pl.col("line") != pl.col("first"))
        .select("line", *_fault(pl.lit("the same segment")))
    )


def _repeats(reading: Reading, numbered: pl.DataFrame, other: Content) -> pl.DataFrame:
    """Return lines of `numbered` whose number is in `other` too: line, what, why (null: an identical line)."""
    theirs = read([other])
    before = (
        theirs.numbered()
        .join(theirs.lines, on="line")
        .unique(_WHERE, keep="first", maintain_order=True)
        .select(*_WHERE, pl.col("text", "ts_us").name.suffix("_before"))
    )
    return (
        numbered.join(reading.lines, on="line")
        .join(before, on=_WHERE)
        .select("line", *_fault(pl.lit(other.path)))
    )


def _fault(where: pl.Expr) -> tuple[pl.Expr, pl.Expr]:
    """Return `what` and `why` for a line whose number is already in `where`, with another content."""
    by_another = pl.any_horizontal(
        pl.col("text", "text_before").str.contains(_RECOVERED, literal=True)
    )
    one = (pl.col("ts_us") == pl.col("ts_us_before")) | by_another
    what = pl.when(one).then(pl.lit(CONTRADICTION)).otherwise(pl.lit(NAMESAKE))
    writer = pl.col("writer").cast(pl.String)
    differs = pl.format("seq {} of {} has another content in {}", "seq", writer, where)
    why = pl.when(pl.col("text") != pl.col("text_before")).then(differs)
    return what.alias("what"), why.alias("why")


def _lines(reading: Reading) -> pl.DataFrame:
    """Return how many lines each segment has: segment, lines."""
    end = pl.col("start").shift(-1).fill_null(reading.lines.height)
    return reading.starts.select("segment", (end - pl.col("start")).cast(pl.Int64).alias("lines"))


def _files(reading: Reading, aside: pl.DataFrame, repeats: pl.DataFrame) -> pl.DataFrame:
    files = _lines(reading)
    for rows, name in ((aside, "aside"), (repeats, "repeated")):
        count = pl.len().cast(pl.Int64).alias(name)
        if rows.height:
            located = reading.located(rows.select("line").sort("line"))
            files = files.join(
                located.group_by("segment").agg(count), on="segment", how="left"
            ).with_columns(pl.col(name).fill_null(0))
        else:
            files = files.with_columns(pl.lit(0, pl.Int64).alias(name))
    return files.select(*ABOUT["files"])


def _quarantine(reading: Reading, aside: pl.DataFrame) -> pl.DataFrame:
    number = (pl.col("line") - pl.col("start")).cast(pl.Int64) + pl.col("first") + 1
    empty = _lines(reading).filter(lines=0)
    if aside.is_empty() and empty.is_empty():
        return pl.DataFrame(schema=ABOUT["quarantine"])
    lines = reading.located(aside.sort("line")).select(
        pl.col("segment").alias("path"), number.alias("line"), "what", "why"
    )
    return pl.concat(
        [
            lines,
            empty.select(
                pl.col("segment").alias("path"),
                pl.lit(0, pl.Int64).alias("line"),
                pl.lit(EMPTY).alias("what"),
                pl.lit("an empty segment").alias("why"),
            ),
        ]
    )
