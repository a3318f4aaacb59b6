"""Makes gold tables from partials; tables by time are made some hours at a time."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx.files import appearing
from jmsx_report.additive import HOUR_US, Partial, added_batches
from jmsx_report.events import Events
from jmsx_report.horizon import RUNS
from jmsx_report.registry import SHARED, TABLES
from jmsx_report.store import FORMAT, Run, having, to_disk, write_parquet
from jmsx_report.table import Context, Sums, Table

if TYPE_CHECKING:
    from collections.abc import Container, Iterable, Iterator, Sequence
    from pathlib import Path


#: A part of a table by time has one hour, or several if few sockets have rows in them: then up to so many sockets, or
#: one in `_PARTS` of all, so that there are not too many parts whatever times a log has.
SOCKETS_A_PART: Final = 4
_PARTS: Final = 1_000
#: More hours than between 1970 and the latest time that a log may have.
_HOURS: Final = 100_000_000
_SOCKET: Final = ("writer", "session_id", "epoch")
#: From and to which instant, the latter excluded; us, epoch.
Window = tuple[int, int]


class Totals:
    """The sums of the partials of `runs`; sums that a report needs several times are computed once and kept."""

    def __init__(self, runs: Sequence[Run]) -> None:
        self.runs = runs
        self._kept: dict[str, pl.DataFrame] = {}

    def of(self, partials: Iterable[Partial]) -> Sums:
        """Add up all rows of `partials`; name -> rows."""
        return {partial.name: self._sums(partial) for partial in partials}

    def forget(self, but: Iterable[Partial]) -> None:
        """Forget all kept sums except those of the partials `but`; they are computed anew if needed again."""
        names = {partial.name for partial in but}
        self._kept = {name: rows for name, rows in self._kept.items() if name in names}

    def _sums(self, partial: Partial) -> pl.DataFrame:
        if partial.name not in SHARED:
            return self._added(partial)
        if partial.name not in self._kept:
            self._kept[partial.name] = self._added(partial)
        return self._kept[partial.name]

    def _added(self, partial: Partial) -> pl.DataFrame:
        told = having(self.runs, partial.name)
        if "writer" in partial.apart and told and not self._meet:
            return pl.concat([run.read(partial.name) for run in told])
        return sums(partial, self.runs)

    @cached_property
    def _meet(self) -> bool:
        """Whether any writer has lines in two runs; if not, rows of writers need not be added up."""
        writers = [run.read(RUNS.name)["writer"].unique() for run in having(self.runs, RUNS.name)]
        return bool(writers) and bool(pl.concat(writers).is_duplicated().any())


def merge(totals: Totals, known: Context, out: Path) -> dict[str, Path]:
    """Make every gold table as `out`/NAME/part-*.parquet, each sorted by its grain; name -> folder."""
    written = {}
    # Results that tables share are kept only while tables are made.
    known = Context(known.writers, known.sockets, known.clocks)
    for table in TABLES:
        folder = out / table.name
        if all(partial.time for partial in table.partials):
            written[table.name] = _by_time(table, totals.runs, known, folder)
        else:
            gold = table.gold(totals.of(table.partials), known)
            written[table.name] = save(folder, gold.sort(table.grain))
    return written


def _by_time(table: Table, runs: Sequence[Run], known: Context, folder: Path) -> Path:
    """
    Write a table some hours at a time.

    A part's name is a digest of what it is made of: the runs that have rows of its hours, and what is known of the
    sockets in them. A part that exists is not made again.
    """
    folder.mkdir(parents=True, exist_ok=True)
    places = _places(table, runs, known)
    if places.is_empty():
        gold = table.gold({partial.name: sums(partial, ()) for partial in table.partials}, known)
        return save(folder, gold)
    names = set()
    for begin, end in _windows(places):
        here = places.filter(pl.col("hour").is_between(begin, end - 1))
        facts = here.drop("hour").unique().hash_rows().sort().to_list()
        digest = hashlib.sha256(f"{FORMAT} {end} {facts}".encode()).hexdigest()[:24]
        name = f"part-{begin + _HOURS:09}-{digest}.parquet"
        if not (folder / name).exists():
            made_of = set(here["run"])
            touched = [run for run in runs if run.folder.name in made_of]
            window = (begin * HOUR_US, end * HOUR_US)
            added = {partial.name: sums(partial, touched, window) for partial in table.partials}
            gold = table.gold(added, known.only(here["writer"].unique()))
            write(folder / name, gold.sort(table.grain))
        names.add(name)
    leave(folder, names)
    return folder


def _places(table: Table, runs: Sequence[Run], known: Context) -> pl.DataFrame:
    """Return which run has rows of which hour and socket, with what a table may tell of the socket."""
    rows = [
        run.scan(partial.name).select(
            (pl.col(partial.time or "") // HOUR_US).alias("hour"),
            pl.lit(run.folder.name).alias("run"),
            *_SOCKET,
        )
        for partial in table.partials
        for run in having(runs, partial.name)
    ]
    if not rows:
        return pl.DataFrame()
    places = pl.concat(rows).unique().collect()
    return known.placed(places).with_columns(known.clocks.believed().alias("believed"))


def _windows(places: pl.DataFrame) -> Iterator[tuple[int, int]]:
    """Yield windows of consecutive hours, from the first to before the second, however the log was cut into runs."""
    sockets = places.group_by("hour").agg(pl.struct(_SOCKET).n_unique()).sort("hour")
    most = max(SOCKETS_A_PART, sockets[_SOCKET[0]].sum() // _PARTS)
    begin, count = sockets["hour"][0], 0
    for hour, here in sockets.rows():
        if count and count + here > most:
            yield begin, hour
            begin, count = hour, 0
        count += here
    yield begin, sockets["hour"][-1] + 1


def sums(partial: Partial, runs: Sequence[Run], window: Window | None = None) -> pl.DataFrame:
    """Add up all rows of `partial` (whose `time` is within `window`)."""
    told = having(runs, partial.name)
    if not told:
        return partial.of(Events())
    if window is None:
        return added_batches(partial, [run.read(partial.name) for run in told])
    here = pl.col(partial.time or "").is_between(*window, closed="left")
    return added_batches(partial, [run.scan(partial.name).filter(here).collect() for run in told])


def save(folder: Path, rows: pl.DataFrame) -> Path:
    """Write a table as one file in `folder`, in place of what is there."""
    folder.mkdir(parents=True, exist_ok=True)
    name = "part-00000.parquet"
    write(folder / name, rows)
    leave(folder, {name})
    return folder


def write(path: Path, rows: pl.DataFrame) -> None:
    """Write a file of a table, in place of what is there."""
    with appearing(path) as unfinished:
        write_parquet(rows, unfinished)
        to_disk(unfinished)


def leave(folder: Path, names: Container[str]) -> None:
    """Remove all parts from `folder` except those with these `names`."""
    for path in folder.glob("*.parquet"):
        if path.name not in names:
            path.unlink()
