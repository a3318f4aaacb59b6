"""
Where partials lie: in *runs*, folders that appear by one rename and never change.

A run holds the rows of some segments, and its own list of them. Small runs are merged into greater ones, so that the
files to read stay bounded. Whatever is interrupted, what is read is right: a run is whole or not there, and of a merged
run and those that it was made of only the merged one is read.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import shutil
import uuid
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx.errors import ConfigurationError
from jmsx_report.registry import PARTIALS
from jmsx_report.segments import Segment
from jmsx_report.table import added

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from jmsx_report.local import Engine

#: Partials of another version are not read, but made again. Counts up whenever a partial changes.
FORMAT: Final = f"4-polars-{pl.__version__}"
_TOLD: Final = "run.json"
_UNFINISHED: Final = "unfinished-"
#: So many runs of about the same size are merged into one, unless it would have more rows than MOST_ROWS.
FAN: Final = 16
MOST_ROWS: Final = 2_000_000
_ROW_GROUP: Final = 50_000


@dataclass(frozen=True, slots=True)
class Part:
    """A segment as it was read: lines that are also in `earlier` segments were taken from those."""

    segment: Segment
    earlier: tuple[str, ...] = ()  #: paths


@dataclass(frozen=True, slots=True)
class Run:
    """One folder of partials."""

    folder: Path
    parts: frozenset[Part]
    rows: Mapping[str, int]  #: of each partial that has any

    @property
    def size(self) -> int:
        """Rows of all partials."""
        return sum(self.rows.values())

    @property
    def lasting(self) -> bool:
        """Whether no segment of it will grow."""
        return not any(part.segment.is_open for part in self.parts)


class Store:
    """The partials below the folder `root`."""

    def __init__(self, root: Path) -> None:
        self._root = root
        self._folder = root / FORMAT

    def open(self) -> int:
        """
        Make the folder, and take away what an interrupted report left; returns a lock, to be closed.

        Raises:
            ConfigurationError: there cannot be a folder, or another report works in it.

        """
        try:
            self._folder.mkdir(parents=True, exist_ok=True)
            lock = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        except OSError as error:
            raise ConfigurationError(
                f"no report in {self._root.parent}: {error.strerror}"
            ) from error
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(lock)
            raise ConfigurationError(
                f"another report is being made in {self._root.parent}; wait for it, or choose another --out"
            ) from error
        for path in self._folder.glob(f"{_UNFINISHED}*"):
            shutil.rmtree(path)
        return lock

    def commit(self, parts: Iterable[Part], partials: Mapping[str, pl.DataFrame]) -> None:
        """Keep the partials of `parts`: all of them, or, if this process dies, none."""
        listed = sorted(parts, key=lambda part: part.segment)
        told = [[p.segment.path, p.segment.size, p.segment.mtime_ns, p.earlier] for p in listed]
        name = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]
        # Two may be at it at once, where a scheduler takes a slow process for a dead one: each has its own folder.
        unfinished = self._folder / f"{_UNFINISHED}{name}-{uuid.uuid4().hex}"
        unfinished.mkdir()
        for partial, rows in partials.items():
            time = PARTIALS[partial].time
            if rows.height:
                ordered = rows if time is None else rows.sort(time)
                ordered.write_parquet(unfinished / f"{partial}.parquet", row_group_size=_ROW_GROUP)
        rows_of = {partial: rows.height for partial, rows in partials.items() if rows.height}
        (unfinished / _TOLD).write_text(
            json.dumps({"parts": told, "rows": rows_of}), encoding="utf-8"
        )
        try:
            unfinished.rename(self._folder / name)
        except OSError:
            if not (self._folder / name).exists():
                raise
            shutil.rmtree(unfinished)  # it was done before, from the same lines

    def runs(self) -> list[Run]:
        """List the runs, each segment in one of them."""
        found = sorted(self._read(), key=lambda run: (-len(run.parts), run.folder.name))
        covered, runs = set[str](), []
        for run in found:
            paths = {part.segment.path for part in run.parts}
            if paths <= covered:
                self.remove(run)  # it was merged; only then are there two runs with one segment
            else:
                covered |= paths
                runs.append(run)
        return runs

    def _read(self) -> Iterator[Run]:
        for folder in self._folder.iterdir():
            if not folder.name.startswith(_UNFINISHED):
                told = json.loads((folder / _TOLD).read_text("utf-8"))
                parts = (
                    Part(Segment(path, size, mtime_ns), tuple(earlier))
                    for path, size, mtime_ns, earlier in told["parts"]
                )
                yield Run(folder, frozenset(parts), told["rows"])

    def remove(self, run: Run) -> None:
        """Take a run away, at once."""
        gone = run.folder.with_name(f"{_UNFINISHED}{run.folder.name}")
        run.folder.rename(gone)
        shutil.rmtree(gone)

    def keep(self, wanted: Callable[[Part], bool]) -> frozenset[Segment]:
        """Take away runs with a part that is not `wanted`, as nothing can be taken from a sum; list what is left."""
        left = set[Segment]()
        for run in self.runs():
            if all(wanted(part) for part in run.parts):
                left |= {part.segment for part in run.parts}
            else:
                self.remove(run)
        return frozenset(left)

    def merge(self, engine: Engine = map) -> None:
        """Merge runs of about the same size, as long as there are many of them."""
        while alike := self._alike():
            for _ in engine(self._merged, alike):
                pass
            for run in chain.from_iterable(alike):
                self.remove(run)

    def _merged(self, several: Sequence[Run]) -> None:
        """Add up what `several` runs have; they are left as they are, so that this may be done twice."""
        sums = {
            name: added(partial, pl.concat(rows))
            for name, partial in PARTIALS.items()
            if (rows := [pl.read_parquet(path) for path in files(several, name)])
        }
        self.commit((part for run in several for part in run.parts), sums)

    def _alike(self) -> list[list[Run]]:
        """Gather runs, FAN at a time, whose numbers of rows have as many binary digits, give or take two."""
        tiers: dict[int, list[Run]] = {}
        for run in self.runs():
            if run.lasting:
                tiers.setdefault(run.size.bit_length() // 4, []).append(run)
        gathered = (
            tier[begin : begin + FAN]
            for _, tier in sorted(tiers.items())
            for begin in range(0, len(tier) - FAN + 1, FAN)
        )
        return [several for several in gathered if sum(run.size for run in several) <= MOST_ROWS]


def files(runs: Sequence[Run], partial: str) -> list[Path]:
    """List the files of `runs` with rows of `partial`."""
    return [run.folder / f"{partial}.parquet" for run in runs if partial in run.rows]
