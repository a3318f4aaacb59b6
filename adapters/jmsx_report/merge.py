"""From partials to gold tables, some hours at a time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report.additive import HOUR_US, Partial, added_batches
from jmsx_report.events import Events
from jmsx_report.registry import SHARED, TABLES
from jmsx_report.store import Run, files
from jmsx_report.table import Context, Sums, Table

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence
    from pathlib import Path


#: Rows that are added up at once: what bounds the memory of a merge.
_ROWS_AT_ONCE: Final = 1_000_000
#: From and to which instant, the latter excluded; us, epoch.
Window = tuple[int, int]


class Totals:
    """What the partials of `runs` add up to; what is asked for several times in a report is added up once, and kept."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._kept: dict[str, pl.DataFrame] = {}

    def of(self, partials: Iterable[Partial], window: Window | None = None) -> Sums:
        """Add up all rows of `partials` (whose `time` is within `window`); name -> rows."""
        return {partial.name: self._sums(partial, window) for partial in partials}

    def _sums(self, partial: Partial, window: Window | None) -> pl.DataFrame:
        if window is not None or partial.name not in SHARED:
            return sums(partial, self.runs, window)
        if partial.name not in self._kept:
            self._kept[partial.name] = sums(partial, self.runs)
        return self._kept[partial.name]


def merge(totals: Totals, known: Context, out: Path) -> dict[str, Path]:
    """Make every gold table as `out`/NAME/part-*.parquet, sorted by its grain; name -> folder."""
    written = {}
    for table in TABLES:
        golds = (
            table.gold(totals.of(table.partials, window), known)
            for window in _windows(table, totals.runs)
        )
        written[table.name] = save(out / table.name, (gold.sort(table.grain) for gold in golds))
    return written


def sums(partial: Partial, runs: Sequence[Run], window: Window | None = None) -> pl.DataFrame:
    """Add up all rows of `partial` (whose `time` is within `window`)."""
    paths = files(runs, partial.name)
    one_by_one = [[path] for path in paths] if partial.apart else [paths]
    batches = [partial.of(Events()).lazy(), *(pl.scan_parquet(some) for some in one_by_one if some)]
    if window is not None:
        time = pl.col(partial.time or "")
        batches = [rows.filter(time.is_between(*window, closed="left")) for rows in batches]
    return added_batches(partial, batches)


def _windows(table: Table, runs: Sequence[Run]) -> Iterator[Window | None]:
    """Cut the time into hours, or several of them that are few rows together; None: all at once."""
    rows = sum(run.rows.get(partial.name, 0) for run in runs for partial in table.partials)
    if rows <= _ROWS_AT_ONCE or any(partial.time is None for partial in table.partials):
        yield None
        return
    hours = pl.concat(
        pl.scan_parquet(paths).select((pl.col(partial.time or "") // HOUR_US).alias("hour"))
        for partial in table.partials
        if (paths := files(runs, partial.name))
    )
    begin, count = None, 0
    for hour, n in hours.group_by("hour").len().sort("hour").collect().rows():
        if begin is None:
            begin = hour
        elif count + n > _ROWS_AT_ONCE:
            yield begin * HOUR_US, hour * HOUR_US
            begin, count = hour, 0
        count += n
        last = hour
    if begin is not None:
        yield begin * HOUR_US, (last + 1) * HOUR_US


def save(folder: Path, frames: Iterator[pl.DataFrame]) -> Path:
    """Write a table as `folder`/part-*.parquet in place of what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    names = []
    for number, frame in enumerate(frames):
        names.append(f"part-{number:05}.parquet")
        unfinished = folder / f".{names[-1]}"
        frame.write_parquet(unfinished)
        unfinished.rename(folder / names[-1])
    for path in folder.glob("*.parquet"):
        if path.name not in names:
            path.unlink()
    return folder
