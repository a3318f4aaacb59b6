"""
What a table is: the partials that it is made of (additive.py), and the function that makes it from their sums.

Tables are values of one class, not classes of their own. The engine goes through the registry and knows nothing about
single tables: it makes each `Partial` from one batch of segments at a time, adds up the batches, and passes the sums to
`gold`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import TypeAlias

import polars as pl

from jmsx_report.additive import Partial
from jmsx_report.clocks import Clocks, are_few


@dataclass(frozen=True, slots=True)
class Context:
    """What a table may need besides its own sums: writers, sockets and clocks."""

    writers: pl.DataFrame  #: writer, service, host, version: one row a writer that said it
    sockets: pl.DataFrame  #: writer, session_id, epoch, broker, broker_kind: one row a `conn.up`
    clocks: Clocks
    _made: dict[Gold, tuple[Sums, pl.DataFrame]] = field(
        default_factory=dict, repr=False, compare=False
    )

    def placed(self, sums: pl.DataFrame) -> pl.DataFrame:
        """Add `service` and `broker` to rows that have writer, session_id and epoch; null where unknown."""
        few = are_few(sums.height, self.writers.height)
        known = self.only(sums["writer"].unique()) if few else self
        return sums.join(known.writers.select("writer", "service"), on="writer", how="left").join(
            known.sockets.select("writer", "session_id", "epoch", "broker"),
            on=["writer", "session_id", "epoch"],
            how="left",
            nulls_equal=True,
        )

    def only(self, writers: pl.Series) -> Context:
        """Return the context limited to these `writers`: look-ups of few rows are quicker in a small table."""
        here = pl.col("writer").is_in(writers.implode())
        offsets = self.clocks.offsets.filter(here)
        return Context(
            self.writers.filter(here),
            self.sockets.filter(here),
            replace(self.clocks, offsets=offsets),
        )

    def shared(self, of: Gold, sums: Sums) -> pl.DataFrame:
        """Return the result of `of` on `sums`, computed once for several tables, and anew for other sums."""
        before, made = self._made.get(of, ({}, None))
        if made is None or any(before.get(name) is not rows for name, rows in sums.items()):
            made = of(sums, self)
            self._made[of] = (sums, made)
        return made


#: Partial name -> its rows, added up.
Sums: TypeAlias = Mapping[str, pl.DataFrame]
#: How a table is made.
Gold: TypeAlias = Callable[[Sums, Context], pl.DataFrame]


@dataclass(frozen=True, slots=True)
class Table:
    """
    A gold table: its key columns `grain`, what it is made of, and how; `gold` need not sort.

    If each of its partials has a `time`, it is a table by time: `gold` is called for some hours at a time, and never
    for a part of an hour; of its context it may use only `placed` and `clocks.believed`. Its partials have the keys of
    a socket.
    """

    name: str
    grain: tuple[str, ...]
    partials: tuple[Partial, ...]
    gold: Gold
