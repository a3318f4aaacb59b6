"""
Stores partials in *runs*: folders that appear by one rename and never change.

A run has the rows of some segments, and the list of these segments. Small runs are merged into larger ones, so that the
number of files to read stays bounded. `Store` says what is guaranteed if a report is killed at any point.
"""

from __future__ import annotations

import fcntl
import hashlib
import io
import json
import os
import re
import shutil
import uuid
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, starmap
from operator import attrgetter
from threading import RLock
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import polars as pl

from jmsx.errors import ConfigurationError
from jmsx_report.additive import added
from jmsx_report.garbage import uncollected
from jmsx_report.processes import Engine
from jmsx_report.registry import PARTIALS
from jmsx_report.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


_OF_POLARS: Final = "-polars-"
#: The version of stored partials; those of another version are removed and made again. Increase it whenever a partial,
#: a table by time, or what `findings` keeps of one changes.
FORMAT: Final = f"38{_OF_POLARS}{pl.__version__}"
_TOLD: Final = "run.json"
_UNFINISHED: Final = "unfinished-"
#: How many runs of about the same size are merged into one, unless that would have more rows than MOST_ROWS.
FAN: Final = 24
MOST_ROWS: Final = 2_000_000
_ROW_GROUP: Final = 50_000
#: Partials of a run with at most so many rows are in one file, as Arrow streams one after the other: opening a Parquet
#: file costs as much as reading some thousand rows.
FEW_ROWS: Final = 1_000
_FEW: Final = "few.arrows"
#: How many files are flushed to the disk at the same time: one after the other took five times as long.
_FLUSHES: Final = 8
#: How Polars words an error of the system.
_OS_ERROR: Final = re.compile(r"\(os error (\d+)\)")


class Part(NamedTuple):
    """A segment as it was read: lines that are also in the `earlier` segments count there."""

    segment: Segment
    earlier: tuple[str, ...] = ()  #: paths


@dataclass(frozen=True)
class Run:
    """One folder of partials."""

    folder: Path
    parts: frozenset[Part]
    rows: Mapping[str, int]  #: of each partial that has any
    #: partials of few rows -> from and to which byte of their file
    few: Mapping[str, Sequence[int]]

    @cached_property
    def segments(self) -> frozenset[Segment]:
        """The segments of its parts; cached, as they are used again and again, and there may be 100,000."""
        return frozenset(part.segment for part in self.parts)

    @cached_property
    def against(self) -> bool:
        """Whether any of its segments shares line numbers with earlier ones."""
        return any(part.earlier for part in self.parts)

    @cached_property
    def _together(self) -> bytes:
        """The bytes of the partials with few rows, one after the other."""
        return (self.folder / _FEW).read_bytes()

    def read(self, partial: str) -> pl.DataFrame:
        """Return the rows of a partial that has any."""
        place = self.few.get(partial)
        if place is None:
            return pl.read_parquet(self._file(partial))
        return pl.read_ipc_stream(self._together[slice(*place)])

    def scan(self, partial: str) -> pl.LazyFrame:
        """Return the rows of a partial as `read` does, but lazily: for callers that need only some of them."""
        return (
            self.read(partial).lazy()
            if partial in self.few
            else pl.scan_parquet(self._file(partial))
        )

    def _file(self, partial: str) -> Path:
        return self.folder / f"{partial}.parquet"

    @property
    def size(self) -> int:
        """The number of rows of all partials."""
        return sum(self.rows.values())

    @property
    def lasting(self) -> bool:
        """Whether none of its segments can still grow."""
        return not any(segment.is_open for segment in self.segments)


class Store:
    """
    The partials below the folder `root`.

    Runs that are being made or removed are in the working folder of one report, `work`. A run appears by one rename out
    of it, and disappears by one rename into it. So whenever a report is killed (kill -9, or a crash of the machine),
    each run is complete or absent, and unfinished work is in the working folder, which the next report removes, again
    by a rename first. After that a worker that outlived the killed report has nowhere to write: the file system refuses
    its commit. If a merged run exists together with the runs that it was made of, the merged one counts. The list of
    runs is read from the folders; there is no other record to be kept in step. While one thread makes reports and
    removes runs, another may call `held` and `commit`.
    """

    def __init__(self, root: Path, work: str | None = None) -> None:
        self._root = root
        self._folder = root / FORMAT
        self._work = self._folder / (work or _unfinished())
        self._lock: int | None = None
        self._known: dict[str, Run] = {}  # by folder: a run never changes
        self._apart = set[str]()  # the runs that were listed last, none of which another one has
        self._listing = RLock()  # no run goes while they are listed

    def __reduce__(self) -> tuple[type[Store], tuple[Path, str]]:
        """Pickle the store for a worker, which commits through the same working folder, and has no lock."""
        return Store, (self._root, self._work.name)

    def open(self) -> None:
        """
        Create the folders, and remove leftovers of interrupted reports and partials of other versions.

        Whatever is raised, others may begin a report.

        Raises:
            ConfigurationError: there cannot be a folder, or another report works in it.

        """
        try:
            with making(self._root.parent):
                self._begin()
        except BaseException:
            self._let_go()
            raise

    def _begin(self) -> None:
        self._folder.mkdir(parents=True, exist_ok=True)
        self._lock = os.open(self._root / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            raise ConfigurationError(
                f"another report is being made in {self._root.parent}; wait for it, or choose another --out"
            ) from error
        for left in list(self._folder.glob(f"{_UNFINISHED}*")):
            _take_away(left)
        self._work.mkdir()
        for other in list(self._root.glob(f"*{_OF_POLARS}*")):
            if other != self._folder:
                self._take_out(other)

    def close(self) -> None:
        """Take the working folder away, so that no worker commits any more, and let others begin, if it is open."""
        if self._lock is not None:
            try:
                _take_away(self._work)
            finally:
                self._let_go()

    def _let_go(self) -> None:
        if self._lock is not None:
            os.close(self._lock)
            self._lock = None

    def commit(self, parts: Iterable[Part], partials: Mapping[str, pl.DataFrame]) -> None:
        """
        Store the partials of `parts`: all of them or, if this process or the machine dies, none.

        Raises:
            ConfigurationError: the report that this was for has ended, or it cannot be written.

        """
        told = _told(sorted(parts, key=attrgetter("segment")))
        name = hashlib.sha256(json.dumps(told).encode()).hexdigest()[:24]
        # Two workers may do the same job if a scheduler takes a slow one for dead: each has its own folder.
        unfinished = self._work / f"{name}-{uuid.uuid4().hex}"
        try:
            unfinished.mkdir()
            rows_of = {partial: rows.height for partial, rows in partials.items() if rows.height}
            few, together = dict[str, tuple[int, int]](), io.BytesIO()
            for partial in rows_of:
                rows, time = partials[partial], PARTIALS[partial].time
                if time is None and rows.height <= FEW_ROWS:
                    begin = together.tell()
                    rows.write_ipc_stream(together)
                    few[partial] = (begin, together.tell())
                else:
                    ordered = rows if time is None else rows.sort(time)
                    path = unfinished / f"{partial}.parquet"
                    write_parquet(ordered, path, row_group_size=_ROW_GROUP)
            (unfinished / _FEW).write_bytes(together.getbuffer())
            (unfinished / _TOLD).write_text(
                json.dumps({**told, "rows": rows_of, "few": few}), encoding="utf-8"
            )
            with ThreadPoolExecutor(_FLUSHES) as threads:
                list(threads.map(to_disk, [*unfinished.iterdir(), unfinished]))
            self._appear(unfinished, self._folder / name)
        except OSError as error:
            if not self._work.exists():
                raise ConfigurationError(
                    f"the report in {self._root.parent} has ended; what a process of it still made is not kept"
                ) from error
            raise ConfigurationError(
                f"cannot write {unfinished}: {error.strerror or error}"
            ) from error

    def _appear(self, unfinished: Path, run: Path) -> None:
        try:
            unfinished.rename(run)
        except OSError:
            if not run.exists():
                raise
            shutil.rmtree(unfinished)  # it was done before, from the same lines
        to_disk(self._folder)

    def held(self) -> list[frozenset[Segment]]:
        """Return the segments that were read, even while runs are being merged; the store must be open."""
        return [run.segments for run in self._listed()]

    def runs(self) -> list[Run]:
        """Return runs that have each segment once; the store must be open."""
        found = sorted(self._listed(), key=lambda run: (-len(run.parts), run.folder.name))
        if self._apart == {run.folder.name for run in found}:
            return found
        covered, runs = set[Segment](), []
        for run in found:
            if run.segments <= covered:
                self.remove(run)  # it was merged; only then are there two runs with one segment
            else:
                covered |= run.segments
                runs.append(run)
        self._apart = {run.folder.name for run in runs}
        return runs

    @uncollected()
    def _listed(self) -> list[Run]:
        with self._listing:
            self._known = {run.folder.name: run for run in self._read()}
            return list(self._known.values())

    def _read(self) -> Iterator[Run]:
        for folder in self._folder.iterdir():
            if not folder.name.startswith(_UNFINISHED):
                try:
                    run = self._known.get(folder.name) or _run(folder)
                except (OSError, ValueError, TypeError, KeyError):
                    self._take_out(folder)  # the machine crashed before the disk had it
                else:
                    yield run

    def remove(self, run: Run) -> None:
        """Remove the folder of `run` in one step: other processes see all of it or nothing."""
        self._take_out(run.folder)

    def _take_out(self, folder: Path) -> None:
        gone = self._work / f"{folder.name}-{uuid.uuid4().hex}"
        with self._listing:
            self._known.pop(folder.name, None)
            folder.rename(gone)
        shutil.rmtree(gone)

    def keep(self, wanted: Callable[[Part], bool]) -> frozenset[Segment]:
        """Remove runs with any part that is not `wanted`, as sums cannot be reduced; return the segments left."""
        left = set[Segment]()
        for run in self.runs():
            if all(wanted(part) for part in run.parts):
                left |= run.segments
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
        """Commit a run that is the sum of `several`, which are left as they are, so that this may be done twice."""
        sums = {
            name: added(partial, pl.concat(rows))
            for name, partial in PARTIALS.items()
            if (rows := [run.read(name) for run in having(several, name)])
        }
        self.commit((part for run in several for part in run.parts), sums)

    def _alike(self) -> list[list[Run]]:
        """Return groups of FAN runs whose numbers of rows have about as many binary digits."""
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


def _told(parts: Sequence[Part]) -> dict[str, Any]:
    """
    Return parts as JSON: one list for each field of their segments, and `earlier`, which few have, by index.

    A list for each of 100,000 segments would take a second longer to read.
    """
    segments = [part.segment for part in parts]
    earlier = [(at, part.earlier) for at, part in enumerate(parts) if part.earlier]
    return {"segments": list(zip(*segments, strict=True)), "earlier": earlier}


def _run(folder: Path) -> Run:
    """Read the description of a run; raises OSError, ValueError, TypeError or KeyError if it is not a complete run."""
    told = json.loads((folder / _TOLD).read_text("utf-8"))
    segments = starmap(Segment, zip(*told["segments"], strict=True))
    earlier = {at: tuple(paths) for at, paths in told["earlier"]}
    parts = (Part(segment, earlier.get(at, ())) for at, segment in enumerate(segments))
    return Run(folder, frozenset(parts), dict(told["rows"]), dict(told["few"]))


def _unfinished() -> str:
    return f"{_UNFINISHED}{uuid.uuid4().hex}"


def _take_away(folder: Path) -> None:
    """Remove a working folder, renamed first, so that no worker can commit out of it meanwhile."""
    gone = folder.with_name(_unfinished())
    try:
        folder.rename(gone)
    except FileNotFoundError:
        return
    # a worker may still be writing to it; then the next report does it
    shutil.rmtree(gone, ignore_errors=True)


@contextmanager
def making(out: Path) -> Iterator[None]:
    """Have ConfigurationError say that there is no report in `out`, where OSError would name the file in its way."""
    try:
        yield
    except OSError as error:
        if error.filename is None:  # no file is in the way
            raise
        raise ConfigurationError(
            f"no report in {out}: {error.filename}: {error.strerror};"
            " see that there is room and that it may be written, or choose another --out"
        ) from error


def write_parquet(rows: pl.DataFrame, path: Path, **options: Any) -> None:
    """Write a table with options of Polars; its error about a full disk and the like is raised as OSError."""
    try:
        rows.write_parquet(path, **options)
    except pl.exceptions.ComputeError as error:
        told = _OS_ERROR.search(str(error))
        if told is None:
            raise
        code = int(told[1])
        raise OSError(code, os.strerror(code), str(path)) from error


def to_disk(path: Path) -> None:
    """Flush a file to the disk, or a folder's list of files (fsync)."""
    opened = os.open(path, os.O_RDONLY)
    try:
        os.fsync(opened)
    finally:
        os.close(opened)


def having(runs: Iterable[Run], partial: str) -> list[Run]:
    """Return the runs that have rows of `partial`."""
    return [run for run in runs if partial in run.rows]
