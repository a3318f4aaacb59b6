"""
Rows that add up: what every table is made of.

They are made of one batch of segments at a time, and equal keys of several batches become one row.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report.events import Events

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence


MINUTE_US: Final = 60_000_000
HOUR_US: Final = 60 * MINUTE_US
DAY_US: Final = 24 * HOUR_US


class Adds(StrEnum):
    """How two values of a column are combined; each way is associative, commutative and exact."""

    SUM = "sum"  #: of integers; never of instants, whose sums overflow
    MIN = "min"  #: also of texts: it chooses one of several, always the same
    MAX = "max"
    XOR = "xor"
    JOIN = "join"  #: of lists: one after the other, in no order
    LAST = "last"  #: of structs that begin with a line's number: the highest wins


def _join(lists: pl.Expr) -> pl.Expr:
    return lists.explode(keep_nulls=False)


def _last(structs: pl.Expr) -> pl.Expr:
    return structs.sort_by(structs.struct[0]).last()


_ADD: Final[Mapping[Adds, Callable[[pl.Expr], pl.Expr]]] = {
    Adds.SUM: pl.Expr.sum,
    Adds.MIN: pl.Expr.min,
    Adds.MAX: pl.Expr.max,
    Adds.XOR: pl.Expr.bitwise_xor,
    Adds.JOIN: _join,
    Adds.LAST: _last,
}


@dataclass(frozen=True)
class Partial:
    """
    Rows that add up: rows with equal `keys` are one row, whose other columns are added as `adds` says.

    `of` must be pure and give the columns of `keys` and `adds`, no other, with the same types whatever the events.
    `time` names the key that is an instant (us, epoch), if there is one: rows of different hours are never combined.
    `apart` names keys in which rows of different batches rarely all agree: only rows that do are added up.
    """

    name: str
    keys: tuple[str, ...]
    adds: Mapping[str, Adds]
    of: Callable[[Events], pl.DataFrame]
    time: str | None = None
    apart: tuple[str, ...] = ()

    @cached_property
    def columns(self) -> list[str]:
        """The columns of the partial: its keys, then those that are added up."""
        return [*self.keys, *self.adds]

    @cached_property
    def sums(self) -> list[pl.Expr]:
        """The aggregations by which rows with equal keys become one row."""
        return [_ADD[how](pl.col(column)) for column, how in self.adds.items()]


def added(partial: Partial, rows: pl.DataFrame) -> pl.DataFrame:
    """Add up rows of `partial`: one row for each combination of its keys."""
    if rows.is_empty():
        return rows if rows.columns == partial.columns else rows.select(partial.columns)
    return rows.group_by(partial.keys).agg(partial.sums)


def added_batches(partial: Partial, batches: Sequence[pl.DataFrame]) -> pl.DataFrame:
    """Add up rows of several batches; within each, those of a partial that has `apart` must be added up already."""
    if not partial.apart:
        return added(partial, pl.concat(batches))
    numbered = [rows.with_columns(batch=pl.lit(at)) for at, rows in enumerate(batches)]
    rows = pl.concat(numbered)
    places = rows.select(*partial.apart, "batch").unique().select(partial.apart)
    meet = places.filter(places.is_duplicated()).unique()
    if meet.is_empty():
        return rows.drop("batch")
    several = added(partial, rows.join(meet, on=partial.apart, how="semi", nulls_equal=True))
    others = rows.join(meet, on=partial.apart, how="anti", nulls_equal=True)
    return pl.concat([others.select(several.columns), several])


_MOST: Final = 2**63


def total(frame: pl.DataFrame, column: str) -> pl.Expr:
    """
    Sum the integers in `column` of `frame`, by group, as Int128: exact, whatever values a log has.

    64 bits are faster, and nearly always enough.
    """
    values = frame[column]
    widest = max(
        (abs(end) for end in (values.min(), values.max()) if isinstance(end, int)), default=0
    )
    wide = widest * frame.height >= _MOST
    summed = pl.col(column).cast(pl.Int128).sum() if wide else pl.col(column).sum()
    return summed.cast(pl.Int128)


def mean(name: str) -> pl.Expr:
    """Divide the sum NAME_us by the count NAME_n; null where nothing was counted."""
    count = pl.col(f"{name}_n")
    return pl.when(count > 0).then(pl.col(f"{name}_us") / count)
