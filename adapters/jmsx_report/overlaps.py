"""Which segments have numbers of one writer in common, so that each of them must be read against the others."""

from __future__ import annotations

from typing import TYPE_CHECKING

import polars as pl

if TYPE_CHECKING:
    from collections.abc import Mapping


def earlier(ranges: pl.DataFrame) -> Mapping[str, tuple[str, ...]]:
    """
    Return, for each segment, the segments before it (by path) that share numbers with it, if there are any.

    `ranges` has segment, writer, low, high (both included).
    """
    ordered = ranges.sort("writer", "low", "high", "segment")
    touched = ordered.filter(_meet("writer")).select("writer").unique()
    if touched.is_empty():
        return {}
    suspects = ranges.join(touched, on="writer")
    pairs = (
        suspects.join_where(
            suspects,
            pl.col("writer") == pl.col("writer_right"),
            pl.col("low") <= pl.col("high_right"),
            pl.col("low_right") <= pl.col("high"),
            pl.col("segment") > pl.col("segment_right"),
        )
        .select("segment", pl.col("segment_right").alias("earlier"))
        .unique()
        .sort("segment", "earlier")
    )
    found: dict[str, list[str]] = {}
    for segment, before in pairs.rows():
        found.setdefault(segment, []).append(before)
    return {segment: tuple(before) for segment, before in found.items()}


def repeating(ranges: pl.DataFrame) -> frozenset[str]:
    """
    Return the segments that were read piece by piece and have a number in two pieces: these must be read whole.

    `ranges` has segment, writer, low, high (both included), times.
    """
    again = (pl.col("times") > 1) | _meet("segment", "writer")
    found = ranges.sort("segment", "writer", "low", "high").filter(again)
    return frozenset(found["segment"])


def _meet(*of: str) -> pl.Expr:
    """
    Return whether each row, sorted by `of`, low and high, shares a number with the row before that has the same `of`.
    If no neighbours overlap, no other rows do.
    """
    same = (pl.col(name) == pl.col(name).shift() for name in of)
    meet = pl.all_horizontal(pl.col("low") <= pl.col("high").shift(), *same)
    return meet.fill_null(value=False)
