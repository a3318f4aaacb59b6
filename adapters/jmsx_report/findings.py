"""What the report's page shows: gathered from the gold tables, and limited in size however large they are."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx_report.additive import HOUR_US, MINUTE_US, mean
from jmsx_report.flows import BUCKET_US, SETTLES
from jmsx_report.histogram import together, with_percentiles
from jmsx_report.latency import MEASURED, PERMILLES, SPANS
from jmsx_report.merge import leave, write
from jmsx_report.period import Period

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence
    from pathlib import Path


#: Points of a plot, at most.
POINTS: Final = 500
#: The most rows of a table on the page, which also says how many there are in all.
ROWS: Final = 50
#: Rows of minutes that are added up at once: what bounds the memory.
_AT_ONCE: Final = 20_000
_CONSUMER: Final = ("service", "dest", "consumer")

Rows = list[dict[str, Any]]


@dataclass(frozen=True, slots=True)
class Shown:
    """The rows of a table that are shown, and how many there are."""

    rows: Rows = field(default_factory=list)
    of: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Findings:
    """What the page shows."""

    audit: Mapping[str, Any]  #: as `summary.json`
    events: str  #: where the log lies
    first_us: int | None = None  #: of the first line; epoch
    last_us: int | None = None
    writers: Shown = Shown()  #: service, host, version, broker, processes, open, first_us, last_us
    logs: Shown = Shown()  #: as `event_log_health`, of writers whose log is not whole
    #: service, dest, consumer, n, means, percentiles, end_to_end_histogram.
    latency: Shown = Shown()
    redelivery: Shown = Shown()
    dead_letters: Shown = Shown()
    quarantine: Shown = Shown()
    files: Shown = Shown()
    flow: Rows = field(default_factory=list)  #: bucket_us, sent, settled, in order
    flow_us: int = BUCKET_US  #: how long a bucket of `flow` is


def findings(
    audit: Mapping[str, Any],
    events: Path,
    tables: Mapping[str, Path],
    flows: pl.DataFrame,
    asked: Period,
    *,
    kept: Path,
) -> Findings:
    """
    Gather what the page shows.

    Args:
        audit: as `summary.json`.
        events: the folder of the log.
        tables: folders of Parquet, by name.
        flows: the rows of `FLOWS`, added up.
        asked: the period that the report is about; a side without a limit includes everything.
        kept: a folder for the sums of parts of tables, so that the next report need not add them up again.

    """
    health = pl.read_parquet(tables["event_log_health"])
    broken = health.filter(
        (pl.col("missing") > 0) | (pl.col("dropped") > 0) | (pl.col("ended") != "closed")
    ).sort("missing", "dropped", "writer", descending=[True, True, False])
    width, rows = flow(flows, asked)
    return Findings(
        audit=audit,
        events=str(events),
        first_us=_instant(health["first_us"].min()),
        last_us=_instant(health["last_us"].max()),
        writers=_first(_writers(health)),
        logs=_first(broken),
        latency=_latency(tables["delivery_latency"], asked, kept),
        redelivery=_redelivery(tables["redelivery"], asked),
        dead_letters=_first(
            pl.read_parquet(tables["dead_letters"]).sort("n", "first_us", descending=[True, False])
        ),
        quarantine=_first(pl.read_parquet(tables["quarantine"]).sort("path", "line", "why")),
        files=_first(pl.read_parquet(tables["files"])),
        flow=rows,
        flow_us=width,
    )


def _first(rows: pl.DataFrame) -> Shown:
    return Shown(rows.head(ROWS).to_dicts(), rows.height)


def _instant(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _writers(health: pl.DataFrame) -> pl.DataFrame:
    """Return one row for all processes of the same service, host, version and broker."""
    here = ("service", "host", "version", "broker")
    return (
        health.group_by(here)
        .agg(
            pl.len().alias("processes"),
            pl.col("ended").eq("open").sum().alias("open"),
            pl.col("first_us").min(),
            pl.col("last_us").max(),
        )
        .sort(here, nulls_last=True)
    )


def _latency(folder: Path, asked: Period, kept: Path) -> Shown:
    """Add up minutes to one row for each consumer: histograms can be added, percentiles cannot."""
    files = sorted(folder.glob("*.parquet"))
    if asked == Period():
        parts = [_once(part, kept / part.name) for part in files]
        leave(kept, {part.name for part in files})
    else:
        parts = [_minutes(files, asked)] if files else []
    if not parts:
        return Shown()
    sums = _added(parts, None)
    told = sums.with_columns(mean(name).alias(f"{name}_mean_us") for name in SPANS)
    most = told.sort("n", *_CONSUMER, descending=[True, False, False, False], nulls_last=True)
    shown = most.head(ROWS)
    for name in MEASURED:
        shown = with_percentiles(shown, name, PERMILLES)
    return Shown(shown.to_dicts(), most.height)


def _once(part: Path, kept: Path) -> pl.DataFrame:
    """Return the sum of the minutes of a part, kept from the last report if there: a part's name fixes its content."""
    try:
        return pl.read_parquet(kept)
    except (OSError, pl.exceptions.PolarsError):
        sums = _minutes([part], Period())
    if sums.height:  # the name of an empty table's part does not fix its content
        kept.parent.mkdir(parents=True, exist_ok=True)
        write(kept, sums)
    return sums


def _minutes(parts: list[Path], asked: Period) -> pl.DataFrame:
    """Add up the minutes of some parts, as far as they are in the period."""
    sums = [_added([rows], asked) for rows in _slices(parts)]
    return sums[0] if len(sums) == 1 else _added(sums, None)


def _slices(parts: list[Path]) -> Iterator[pl.DataFrame]:
    """Read parts in slices, with means turned into sums, which can be added."""
    table = pl.scan_parquet(parts).select(
        *_CONSUMER,
        "minute_us",
        "n",
        *(f"{name}_histogram" for name in MEASURED),
        *(
            n
            for name in SPANS
            for n in (
                pl.when(pl.col(f"{name}_mean_us").is_not_null())
                .then("n")
                .otherwise(0)
                .alias(f"{name}_n"),
                (pl.col(f"{name}_mean_us").fill_null(0.0) * pl.col("n")).alias(f"{name}_us"),
            )
        ),
    )
    # One slice even of an empty table, for its columns.
    for begin in range(0, max(1, table.select(pl.len()).collect().item()), _AT_ONCE):
        yield table.slice(begin, _AT_ONCE).collect()


def _added(parts: Sequence[pl.DataFrame], asked: Period | None) -> pl.DataFrame:
    """Add up rows of the same consumer."""
    rows = pl.concat(parts)
    if asked is not None:
        rows = rows.filter(asked.touches(pl.col("minute_us"), MINUTE_US))
    consumers = rows.select(_CONSUMER).unique().with_row_index("row")
    numbered = rows.join(consumers, on=_CONSUMER, nulls_equal=True)
    sums = numbered.group_by("row").agg(
        pl.col("n", *(f"{name}_{of}" for name in SPANS for of in ("n", "us"))).sum()
    )
    told = consumers.join(sums, on="row")
    for name in MEASURED:
        told = told.join(together(numbered, f"{name}_histogram"), on="row", how="left")
    return told.drop("row")


def _redelivery(folder: Path, asked: Period) -> Shown:
    """Pick the hours of consumers with redeliveries, the latest first."""
    rows = pl.scan_parquet(folder / "*.parquet").filter(
        (pl.col("redelivered") > 0) & asked.touches(pl.col("hour_us"), HOUR_US)
    )
    found = rows.select(pl.len()).collect().item()
    latest = rows.sort("hour_us", "dest", "consumer", descending=[True, False, False])
    return Shown(latest.head(ROWS).collect().to_dicts(), found)


def flow(flows: pl.DataFrame, asked: Period) -> tuple[int, Rows]:
    """Count what was sent, and settled of it, by the time of sending, in at most POINTS buckets: width, rows."""
    n, kind, outcome = pl.col("n"), pl.col("kind"), pl.col("outcome")
    told = (
        flows.lazy()
        .filter((pl.col("bucket") >= 0) & asked.touches(pl.col("bucket"), BUCKET_US))
        .group_by(pl.col("bucket").alias("bucket_us"))
        .agg(
            n.filter((kind == "send") & (outcome == "confirmed")).sum().alias("sent"),
            n.filter((kind == "delivery") & outcome.is_in(list(SETTLES))).sum().alias("settled"),
        )
        .filter((pl.col("sent") > 0) | (pl.col("settled") > 0))
        .collect()
    )
    if not told.height:
        return BUCKET_US, []
    return binned(told)


def binned(told: pl.DataFrame) -> tuple[int, Rows]:
    """Add up rows (bucket_us, sent, settled) to at most POINTS that follow each other without a gap: width, rows."""
    first, last = told["bucket_us"].min(), told["bucket_us"].max()
    if not (isinstance(first, int) and isinstance(last, int)):
        raise TypeError("times are integers")
    width = BUCKET_US * -(-(last - first + BUCKET_US) // (BUCKET_US * POINTS))
    number = ((pl.col("bucket_us") - first) // width).alias("number")
    added = told.group_by(number).agg(pl.col("sent", "settled").sum())
    every = pl.DataFrame({"number": range((last - first) // width + 1)}, {"number": pl.Int64})
    rows = (
        every.join(added, on="number", how="left", maintain_order="left")
        .select(
            (pl.col("number") * width + first).alias("bucket_us"),
            pl.col("sent", "settled").fill_null(0),
        )
        .to_dicts()
    )
    return width, rows
