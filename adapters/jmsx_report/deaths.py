"""Why messages were given up, and where in the code."""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import Adds, Partial
from jmsx_report.events import Events
from jmsx_report.nothing import of_lines
from jmsx_report.table import Context, Sums, Table

_SAMPLES: Final = 5
_SOCKET: Final = ("writer", "session_id", "epoch")
_CAUSE: Final = ("dest", "reason", "error_type", "error_place")


def _dead(events: Events) -> pl.DataFrame:
    return events.of("dlq").with_columns(pl.col("error_type", "error_place").fill_null(""))


@of_lines("dlq")
def _causes(events: Events) -> pl.DataFrame:
    return (
        _dead(events)
        .group_by(*_SOCKET, *_CAUSE)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("attempts").max().alias("attempts_max"),
            pl.col("ts_us").min().alias("first_us"),
            pl.col("ts_us").max().alias("last_us"),
        )
    )


@of_lines("dlq")
def _samples(events: Events) -> pl.DataFrame:
    """Return the earliest of each cause: more of one batch can never be among the earliest of all."""
    return (
        _dead(events)
        .group_by(*_SOCKET, *_CAUSE, "ts_us", "msg_key")
        .agg(pl.len().cast(pl.Int64).alias("n"))
        .sort("ts_us", "msg_key")
        .group_by(*_SOCKET, *_CAUSE, maintain_order=True)
        .head(_SAMPLES)
        .select(*_SOCKET, *_CAUSE, "ts_us", "msg_key", "n")
    )


_CAUSES: Final = Partial(
    "dead_causes",
    (*_SOCKET, *_CAUSE),
    {"n": Adds.SUM, "attempts_max": Adds.MAX, "first_us": Adds.MIN, "last_us": Adds.MAX},
    _causes,
)
_EARLIEST: Final = Partial(
    "dead_samples", (*_SOCKET, *_CAUSE, "ts_us", "msg_key"), {"n": Adds.SUM}, _samples
)


def _gold(sums: Sums, context: Context) -> pl.DataFrame:
    grain = DEAD_LETTERS.grain
    causes = (
        context.placed(sums[_CAUSES.name])
        .group_by(grain)
        .agg(
            pl.col("n").sum(),
            pl.col("attempts_max").max(),
            pl.col("first_us").min(),
            pl.col("last_us").max(),
        )
    )
    samples = (
        context.placed(sums[_EARLIEST.name])
        .select(*grain, "ts_us", "msg_key")
        .sort("ts_us", "msg_key")
        .group_by(grain, maintain_order=True)
        .agg(pl.col("msg_key").head(_SAMPLES).alias("sample_keys"))
    )
    share = pl.col("n") / pl.col("n").sum()
    return causes.join(samples, on=grain, how="left", nulls_equal=True).with_columns(
        share.alias("share")
    )


#: Why messages were given up. Columns: the grain (error_type and error_place are "" where nothing was raised), n,
#: share (0 to 1, of all), attempts_max, first_us, last_us, sample_keys (the five earliest).
DEAD_LETTERS: Final = Table(
    "dead_letters", ("service", "broker", *_CAUSE), (_CAUSES, _EARLIEST), _gold
)
