"""Small queries at once: Polars need neither hand each one over to another thread, nor plan it as a large one."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Final, ParamSpec, TypeVar

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Callable


P = ParamSpec("P")
T = TypeVar("T")
#: To look for a better way to answer a query takes as long as a small one.
_AS_WRITTEN: Final = pl.QueryOptFlags.none()
_FEW_ROWS: Final = 10_000


def inlined(function: Callable[P, T]) -> Callable[P, T]:
    """
    Have Polars call `function`, in the same thread, as a function within a query.

    A query that is asked within another one runs at once, on one processor; any other is handed over to a thread of
    Polars, for which the caller waits. To a report, which asks a thousand small ones, that costs a tenth of its
    processor time, and more where processors are busy with others. Once Ctrl-C has raised KeyboardInterrupt in
    `function`, each further query in it does too.
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
    Answer a query of several steps as it is written: `rows.lazy().filter(...).select(...).pipe(at_once)`.

    Of a few rows each step by itself, a query of its own, takes half as long again; and `collect` three times as long,
    since Polars makes ready to stream many rows. If it is asked of more `rows` than a few they are streamed: of a
    batch of a large log all steps in memory take a tenth more of that.
    """
    if rows > _FEW_ROWS:
        return query.collect()
    return query.collect(engine="in-memory", optimizations=_AS_WRITTEN)
