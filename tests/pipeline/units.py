"""Segments to tables in this process and without files: partials of some segments at a time, added up."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

from jmsx_report.additive import added
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
    made = [
        partials([(unit, {one.path: before[one.path] for one in unit if one.path in before})])
        for unit in units
    ]
    sums = {
        name: added(partial, pl.concat([of[name] for of in made]))
        for name, partial in PARTIALS.items()
    }
    known = context(sums)
    return {table.name: table.gold(sums, known).sort(table.grain) for table in TABLES}
