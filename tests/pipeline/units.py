"""Segments to tables in this process and without files: partials of some segments at a time, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from jmsx_report.additive import added
from jmsx_report.batch import events_of
from jmsx_report.events import Events
from jmsx_report.lines import Content
from jmsx_report.partial import partials
from jmsx_report.registry import PARTIALS, TABLES
from jmsx_report.writers import context

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from pathlib import Path

Tables = dict[str, pl.DataFrame]


def contents(directory: Path) -> list[Content]:
    """Read every closed segment below `directory`."""
    return [
        Content(str(path.relative_to(directory)), path.read_bytes())
        for path in sorted(directory.rglob("*.jsonl"))
    ]


def tables(
    units: Iterable[Sequence[Content]], earlier: Mapping[str, Sequence[Content]] | None = None
) -> Tables:
    """Make every gold table of segments that are read some at a time, sorted by its grain; `earlier` as `partials`."""
    before = earlier or {}
    return merged(
        partials([(unit, {one.path: before[one.path] for one in unit if one.path in before})])
        for unit in units
    )


def merged(made: Iterable[dict[str, pl.DataFrame]]) -> Tables:
    """Make every gold table of what `partials` made of some segments at a time, sorted by its grain."""
    made = list(made)
    sums = {
        name: added(partial, pl.concat([of[name] for of in made]))
        for name, partial in PARTIALS.items()
    }
    known = context(sums)
    return {table.name: table.gold(sums, known).sort(table.grain) for table in TABLES}


def table(name: str, units: Iterable[Sequence[Content]]) -> pl.DataFrame:
    """Make one gold table as `tables` does, of the partials that it is made of and no others."""
    (wanted,) = (one for one in TABLES if one.name == name)
    sums = _Sums([events_of(unit) for unit in units])
    return wanted.gold(sums, context(sums)).sort(wanted.grain)


class _Sums(dict[str, pl.DataFrame]):
    """Partials by their names, each made when it is asked for."""

    def __init__(self, read: Sequence[Events]) -> None:
        super().__init__()
        self._read = read

    def __missing__(self, name: str) -> pl.DataFrame:
        partial = PARTIALS[name]
        self[name] = added(partial, pl.concat([partial.of(events) for events in self._read]))
        return self[name]
