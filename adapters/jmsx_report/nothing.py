"""Keeps the results for empty input: a query costs as much for no rows as for a hundred, and most logs lack most."""

from __future__ import annotations

from functools import wraps
from typing import TYPE_CHECKING, Concatenate, ParamSpec

from jmsx_report.events import Events

if TYPE_CHECKING:
    from collections.abc import Callable

    import polars as pl

P = ParamSpec("P")


def of_rows(
    function: Callable[Concatenate[pl.DataFrame, P], pl.DataFrame],
) -> Callable[Concatenate[pl.DataFrame, P], pl.DataFrame]:
    """
    Return `function` changed so that its result for an empty first argument is computed only once.

    That result must be empty, with the same columns whatever the other arguments are.
    """
    nothing: list[pl.DataFrame] = []

    @wraps(function)
    def call(rows: pl.DataFrame, /, *arguments: P.args, **named: P.kwargs) -> pl.DataFrame:
        if rows.height:
            return function(rows, *arguments, **named)
        if not nothing:
            nothing.append(function(rows, *arguments, **named))
        return nothing[0]

    return call


def of_lines(
    *kinds: str,
) -> Callable[
    [Callable[Concatenate[Events, P], pl.DataFrame]],
    Callable[Concatenate[Events, P], pl.DataFrame],
]:
    """Decorate a function of events so that its result without lines of `kinds`, the only ones it reads, is kept."""

    def decorate(
        function: Callable[Concatenate[Events, P], pl.DataFrame],
    ) -> Callable[Concatenate[Events, P], pl.DataFrame]:
        nothing: list[pl.DataFrame] = []

        @wraps(function)
        def call(events: Events, /, *arguments: P.args, **named: P.kwargs) -> pl.DataFrame:
            if not all(map(events.lack, kinds)):
                return function(events, *arguments, **named)
            if not nothing:
                nothing.append(function(events, *arguments, **named))
            return nothing[0]

        return call

    return decorate
