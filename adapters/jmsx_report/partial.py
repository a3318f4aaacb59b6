"""The pure core of the pipeline: makes rows that add up from the contents of segments."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx_report.additive import added_batches
from jmsx_report.batch import each
from jmsx_report.events import Events
from jmsx_report.lines import Content
from jmsx_report.registry import PARTIALS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import polars as pl


def partials(
    several: Iterable[tuple[Sequence[Content], Mapping[str, Sequence[Content]] | None]],
) -> dict[str, pl.DataFrame]:
    """Make every partial from batches of segments, which are read by `batch.each`; name -> rows."""
    return together(list(each(_made, several)))


def _made(events: Events) -> dict[str, pl.DataFrame]:
    return {name: partial.of(events) for name, partial in PARTIALS.items()}


def together(made: Sequence[dict[str, pl.DataFrame]]) -> dict[str, pl.DataFrame]:
    """Add up the results of `partials` for several batches."""
    if len(made) == 1:
        return made[0]
    return {
        name: added_batches(partial, [one[name] for one in made])
        for name, partial in PARTIALS.items()
    }
