"""The job of a worker for a batch of segments; and the local engine, which runs jobs in plain processes."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from functools import partial as bound
from typing import TYPE_CHECKING, Any, Final, TypeAlias, TypeVar

import polars as pl

from jmsx_eventlog.segment import OPEN_SUFFIX
from jmsx_report import processes as plain
from jmsx_report.additive import Partial, added
from jmsx_report.batch import each
from jmsx_report.events import Events
from jmsx_report.health import QUARANTINED
from jmsx_report.inline import inlined
from jmsx_report.lines import Content
from jmsx_report.partial import partials
from jmsx_report.pieces import chunks, is_piece, lines_before, opened
from jmsx_report.processes import Engine
from jmsx_report.segments import Segment, batches
from jmsx_report.store import Part, Store

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


A = TypeVar("A")
T = TypeVar("T")
#: A function that is called with the number of batches done and the number of all.
Progress: TypeAlias = Callable[[int, int], None]
#: Bytes of JSON that take as long to read as a process takes to start: for less no process is started.
_FEW_BYTES: Final = 64 * 1024 * 1024


def processes(job: Callable[[A], T], todo: Iterable[A], workers: int | None = None) -> Iterator[T]:
    """Run jobs as an `Engine` on one machine, in `workers` processes; None: one a core, or none for a small log."""
    listed = list(todo)
    several = min(workers or os.cpu_count() or 1, len(listed))
    if several <= 1 or (workers is None and _bytes(listed) <= _FEW_BYTES):
        yield from map(job, listed)
    else:
        yield from plain.each(job, listed, several)


def _bytes(todo: Iterable[object]) -> int:
    """Return how many bytes of JSON must be read for `todo`, if these are batches; other jobs need little time."""
    shares = (batch for batch in todo if isinstance(batch, Sequence))
    return sum(
        part.segment.size - part.segment.begin
        for batch in shares
        for part in batch
        if isinstance(part, Part)
    )


@inlined
def make(batch: Sequence[Part], events: Path, store: Store) -> None:
    """
    Read a share of the segments below `events` and keep its partials in `store`: the whole job of a worker.

    Raises:
        ConfigurationError: a segment cannot be read any more, or the report that it is for has ended.

    """
    made = partials(_read(batch, events))
    store.commit(
        batch,
        {**made, QUARANTINED.name: _from_the_beginning(made[QUARANTINED.name], batch, events)},
    )


def _from_the_beginning(aside: pl.DataFrame, batch: Sequence[Part], events: Path) -> pl.DataFrame:
    """Count the lines in quarantine from the beginning of the file, and not of the piece."""
    paths = set(aside["path"])
    for segment in (part.segment for part in batch):
        if segment.begin and segment.path in paths:
            before = pl.when(path=segment.path).then(lines_before(events, segment)).otherwise(0)
            aside = aside.with_columns(pl.col("line") + before)
    return aside


def _read(
    share: Sequence[Part], events: Path
) -> Iterator[tuple[list[Content], dict[str, list[Content]]]]:
    """Read the segments of a share, batch by batch, and with each the earlier segments that share numbers with it."""
    earlier = {part.segment: part.earlier for part in share}
    for batch in batches(earlier):
        yield (
            [content(events, segment) for segment in batch],
            {
                segment.name: [content(events, Segment(path, 0, 0)) for path in earlier[segment]]
                for segment in batch
                if earlier[segment]
            },
        )


def look_again(
    of: Callable[[Any], Partial],
    about: Any,
    several: Iterable[Sequence[Part]],
    events: Path,
    engine: Engine = processes,
) -> pl.DataFrame:
    """
    Make the partial `of(about)` from `several` batches, and return it added up; it is not kept in the store.

    `of` must be a module-level function, and `about` must be picklable, for both are sent to other processes.
    """
    rows = [of(about).of(Events()), *engine(bound(_look, of, about, events=events), several)]
    return added(of(about), pl.concat(rows))


@inlined
def _look(
    of: Callable[[Any], Partial], about: Any, batch: Sequence[Part], events: Path
) -> pl.DataFrame:
    partial = of(about)
    return added(partial, pl.concat(each(partial.of, _read(batch, events))))


def content(events: Path, segment: Segment) -> Content:
    """
    Read a segment below `events`, compacted or not, by its final name.

    Of an open one only the whole lines are read, and of a piece only the piece.

    Raises:
        ConfigurationError: it cannot be read.

    """
    if is_piece(segment):
        return Content(
            segment.path, b"".join(data for _, data in chunks(events, segment, segment.size))
        )
    with opened(events, segment.path) as file:
        data = file.read()
        if str(getattr(file, "name", "")).endswith(OPEN_SUFFIX):
            data = data[: data.rfind(b"\n") + 1]
    return Content(segment.name, data)
