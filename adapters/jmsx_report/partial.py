"""The one pure function of the pipeline: contents of segments to additive rows."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx_report.batch import events_of
from jmsx_report.registry import PARTIALS

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    import polars as pl

    from jmsx_report.lines import Content


def partials(
    contents: Sequence[Content], earlier: Mapping[str, Sequence[Content]] | None = None
) -> dict[str, pl.DataFrame]:
    """Make every partial of segments, as `batch.events_of` reads them; name -> rows."""
    events = events_of(contents, earlier)
    return {name: partial.of(events) for name, partial in PARTIALS.items()}
