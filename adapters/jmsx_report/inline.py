"""Runs small Polars queries directly: not handed over to another thread, and not optimized like large ones."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Any, Final, ParamSpec, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable


P = ParamSpec("P")
T = TypeVar("T")
#: No optimizations: they take as long as a small query itself. Polars calls these flags unstable; where a version has
#: none it optimizes, and answers the same.
_AS_WRITTEN: Final[dict[str, Any]] = (
    {"optimizations": pl.QueryOptFlags.none()} if hasattr(pl, "QueryOptFlags") else {}
)
_FEW_ROWS: Final = 10_000


def inlined(function: Callable[P, T]) -> Callable[P, T]:
    """
    Return `function` changed so that Polars calls it, in the same thread, from within a query.

    A query inside another one runs at once, on one processor; any other is handed over to a thread of Polars, for which
    the caller waits. For a report, which runs a thousand small queries, the hand-over costs a tenth of its processor
    time, and more on busy machines. Once Ctrl-C has raised KeyboardInterrupt in `function`, each further query in it
    raises it, too.
    """

    @wraps(function)
    def call(*arguments: P.args, **named: P.kwargs) -> T:
        answers: list[T] = []
        raised: list[BaseException] = []

        def within(frame: pl.DataFrame) -> pl.DataFrame:
            try:
                answers.append(function(*arguments, **named))
            except BaseException as error:  # noqa: BLE001 - Polars would wrap it
                raised.append(error)
            return frame

        pl.LazyFrame().map_batches(within).collect()
        if raised:
            raise raised[0]
        return answers[0]

    return call


def at_once(query: pl.LazyFrame, rows: int = 0) -> pl.DataFrame:
    """
    Run a query of several steps as it is written: `rows.lazy().filter(...).select(...).pipe(at_once)`.

    On few rows, running each step as a query of its own takes half as long again, and `collect` three times as long,
    since Polars prepares to stream many rows. Give `rows`, the number of rows, if there may be many: then they are
    streamed, because for a batch of a large log all steps in memory take a tenth more memory.
    """
    if rows > _FEW_ROWS:
        return query.collect()
    answer: pl.DataFrame = query.collect(engine="in-memory", **_AS_WRITTEN)
    return answer
