"""
Estimates by how much the clock of each writer is ahead of the broker's (its offset).

Nothing is received before it was sent. So the consumer's clock on receipt minus the broker's timestamp is an upper
bound of the consumer's offset; and the sender's clock when it made the key minus the broker's timestamp is a lower
bound of the sender's offset. Messages of Classic give neither: their timestamp is the sender's. A writer that asked the
broker for its clock (`broker.clock`) has both bounds, on either broker. Bounds of all writers of one host hold for its
clock.

A clock that is set while its process runs has several offsets. The lines of the process tell when and by how much it
was set: each also has the time of the monotonic clock, which is never set. The time between two settings is a
*stretch*. Offsets are those of the last stretch, because ends are compared most; times of others are converted to it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx_report.additive import Adds, Partial
from jmsx_report.events import Events, every_line, named
from jmsx_report.flows import LATE, PLAUSIBLE_US, keyed
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_lines

if TYPE_CHECKING:
    from collections.abc import Mapping


#: How many messages of each writer and hour are compared at sender and receiver: those whose keys have the smallest
#: hashes, so that both sides choose the same ones, however the log is cut into batches.
_SAMPLES: Final = 32
_HOUR_US: Final = 3_600_000_000
#: Times in keys and timestamps are cut to milliseconds: this many microseconds may be missing.
_CUT_US: Final = 1000
#: By how much an unknown clock is assumed to be ahead at most.
UNKNOWN_US: Final = 3_600_000_000
#: Plausible times of a monotonic clock, which begins at 0 with its host.
_RUNNING_US: Final = (0, PLAUSIBLE_US[1])
_SECOND_US: Final = 1_000_000
#: By how much a message's key may be older than the first line of its stretch.
_BEFORE_US: Final = 60_000_000
#: Whether the clock was set: then its writer has several stretches.
_IS_SET: Final = pl.col("writer").is_duplicated()
#: Rows are few if they are so many times fewer than the writers, and the writers more than `_MANY`.
_FEW: Final = 10
_MANY: Final = 1000
#: Clocks that are wrong by less than this are not reported.
TOLD_US: Final = 1_000_000


#: By how much a line's wall clock is ahead of its monotonic clock; null if one of the two is implausible.
_AHEAD_US: Final = pl.when(
    pl.col("ts_us").is_between(*PLAUSIBLE_US) & pl.col("mono_us").is_between(*_RUNNING_US)
).then(pl.col("ts_us") - pl.col("mono_us"))
#: The stretch of a line, by the whole seconds that its wall clock is ahead of the monotonic one: a clock that is set by
#: a second or more begins a new stretch, and a drifting one does now and then.
_STRETCH: Final = (_AHEAD_US // _SECOND_US).alias("stretch")


_OF_STRETCH: Final = (
    pl.col("ahead_us").min(),
    pl.col("ts_us").min().alias("first_us"),
    pl.col("ts_us").max().alias("last_us"),
    pl.col("mono_us").max().alias("running_us"),
)


def _stretches(events: Events) -> pl.DataFrame:
    lines = events.once(every_line)
    return (
        lines.lazy()
        .with_columns(_AHEAD_US.alias("ahead_us"), _STRETCH)
        .group_by("writer", "stretch")
        .agg(_OF_STRETCH)
        .drop_nulls("stretch")
        .pipe(named)
        .pipe(at_once, lines.height)
    )


#: The stretches of each writer's clock: from when to when by the wall clock, and up to when by the monotonic one.
STRETCHES: Final = Partial(
    "stretches",
    ("writer", "stretch"),
    {"ahead_us": Adds.MIN, "first_us": Adds.MIN, "last_us": Adds.MAX, "running_us": Adds.MAX},
    _stretches,
    apart=("writer",),
)


#: Deliveries with plausible times at broker and receiver.
_ARRIVED: Final = (
    (pl.col("kind") == "delivery")
    & pl.col("recv_us").is_between(*PLAUSIBLE_US)
    & pl.col("shown_us").is_between(*PLAUSIBLE_US)
)
_UNDER_WAY_US: Final = (pl.col("recv_us") - pl.col("shown_us")).min().alias("high_us")


@of_lines("delivery")
def _receipts(events: Events) -> pl.DataFrame:
    both = events.once(keyed)
    return (
        both.lazy()
        .filter(_ARRIVED)
        .group_by("writer", _STRETCH)
        .agg(_UNDER_WAY_US)
        .pipe(named)
        .pipe(at_once, both.height)
    )


#: The shortest time that a message took to a writer, an upper bound of the writer's offset.
RECEIPTS: Final = Partial(
    "receipts", ("writer", "stretch"), {"high_us": Adds.MIN}, _receipts, apart=("writer",)
)


#: Offsets beyond these are implausible.
_WRONG_US: Final = (-PLAUSIBLE_US[1], PLAUSIBLE_US[1])


@of_lines("broker.clock")
def _comparisons(events: Events) -> pl.DataFrame:
    behind, within = -pl.col("ahead_us"), pl.col("within_us")
    return (
        events.coded("broker.clock")
        .lazy()
        .filter(pl.col("ahead_us").is_between(*_WRONG_US) & within.is_between(0, _WRONG_US[1]))
        .group_by("writer", _STRETCH)
        .agg(
            # The broker's clock is cut to milliseconds, so it is ahead by up to one more.
            (behind - within - _CUT_US).max().alias("low_us"),
            (behind + within).min().alias("high_us"),
        )
        .pipe(named)
        .pipe(at_once)
    )


#: Bounds of each writer's offset, where the broker told its own clock.
COMPARISONS: Final = Partial(
    "comparisons",
    ("writer", "stretch"),
    {"low_us": Adds.MAX, "high_us": Adds.MIN},
    _comparisons,
    apart=("writer",),
)


_IS_SAMPLE: Final = pl.col("key_us").is_not_null() & (pl.col("kind") != LATE)
_TIMES: Final = pl.col("key_us", "shown_us", "recv_us")
_AN_END: Final = ("writer", _STRETCH, pl.col("kind").alias("side"), "hash", _TIMES)


@of_lines("send", "delivery")
def _samples(events: Events) -> pl.DataFrame:
    both = events.once(keyed)
    return (
        both.lazy()
        .filter(_IS_SAMPLE)
        .select(_AN_END)
        .pipe(at_once, both.height)
        .pipe(_least)
        .lazy()
        .group_by("writer", "stretch", "side", "hash")
        .agg(_TIMES.min())
        .pipe(named)
        .pipe(at_once)
    )


#: The groups of which samples are kept: writer, side and hour.
_EACH: Final = ("writer", "side", pl.col("key_us") // _HOUR_US)
_OF_MANY: Final = pl.len().over(*_EACH) > _SAMPLES
_IS_AMONG_LEAST: Final = pl.col("hash") <= pl.col("hash").unique().bottom_k(_SAMPLES).max().over(
    *_EACH
)


def _least(ends: pl.DataFrame) -> pl.DataFrame:
    """Keep the samples of one batch, or of the samples that several batches kept."""
    # If there are few, all are kept without sorting: there may be 100,000 writers with a few lines each.
    if ends.height <= _SAMPLES:
        return ends
    many = ends.select(_OF_MANY).to_series()
    if not many.any():
        return ends
    of_many = ends if many.all() else ends.filter(many)
    return pl.concat([ends.filter(~many), of_many.filter(_IS_AMONG_LEAST)])


#: The sampled messages by which the clocks of senders and receivers are compared.
SAMPLES: Final = Partial(
    "samples",
    ("writer", "stretch", "side", "hash"),
    {"key_us": Adds.MIN, "shown_us": Adds.MIN, "recv_us": Adds.MIN},
    _samples,
    apart=("writer",),
)


#: The partials from which clocks are estimated.
CLOCKED: Final = (STRETCHES, RECEIPTS, SAMPLES, COMPARISONS)


def are_few(rows: int, writers: int) -> bool:
    """Return whether a look-up for so few rows is quicker among only their writers than among all."""
    return writers > max(_MANY, rows * _FEW)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is known of each writer's clock."""

    #: writer, host, low_us, high_us (bounds of the offset, null: none), offset_us (the best guess; null: none),
    #: believed_us (the value nearest to 0 within the bounds); least_us and most_us (the smallest and largest of
    #: offset_us and believed_us in any stretch); lately_us (as most_us, but in the last stretch alone).
    offsets: pl.DataFrame
    #: sender, receiver, at_most_us: by how much the receiver's clock is ahead of the sender's at most.
    pairs: pl.DataFrame
    #: writer, stretch, first_us, last_us (by its clock), shift_us (turns its times into those of the last stretch).
    stretches: pl.DataFrame

    def believed(self, writer: str = "writer") -> pl.Expr:
        """Return by how many microseconds the clock of each row's `writer` is proven to be ahead; 0: unknown."""
        return self._of("believed_us", writer)

    def least(self, writer: str = "writer") -> pl.Expr:
        """Return by how many microseconds the clock of each row's `writer` may be ahead at least."""
        return self._of("least_us", writer)

    def most(self, writer: str = "writer") -> pl.Expr:
        """Return by how many microseconds the clock of each row's `writer` may be ahead at most."""
        return self._of("most_us", writer)

    def lately(self, writer: str = "writer") -> pl.Expr:
        """Return `most` of the last stretch alone, to which `ended` and `shifts` convert times."""
        return self._of("lately_us", writer)

    def was_set(self, writer: str = "writer") -> pl.Expr:
        """Return whether the clock of each row's `writer` was set while the writer ran."""
        return pl.col(writer).is_in(self._set["writer"].unique().implode())

    def earliest(self, instant: str, writer: str = "writer") -> pl.Expr:
        """Return the earliest true time at which the clock of each row's `writer` can have shown `instant`."""
        return pl.col(instant) - self.most(writer)

    def latest(self, instant: str, writer: str = "writer") -> pl.Expr:
        """Return the latest true time at which the clock of each row's `writer` can have shown `instant`."""
        return pl.col(instant) - self.least(writer)

    @property
    def _set(self) -> pl.DataFrame:
        """The stretches of clocks that were set."""
        return self.stretches.filter(_IS_SET)

    def ended(self, writers: pl.DataFrame) -> pl.DataFrame:
        """Correct `last_us` of writers whose clock was set: the latest time that it showed need not be the last one."""
        were_set = self._set
        if were_set.is_empty():
            return writers
        ends = were_set.lazy().filter(shift_us=0).select("writer", end_us="last_us")
        return (
            writers.lazy()
            .join(ends, on="writer", how="left")
            .with_columns(pl.coalesce("end_us", "last_us").alias("last_us"))
            .drop("end_us")
            .pipe(at_once)
        )

    def shifts(self, made: pl.DataFrame) -> pl.DataFrame:
        """
        Return the shifts that convert times in keys to the last stretch of the sender's clock; `made`: sender, key_us.

        Columns: sender, key_us, least_us, most_us (they differ where the clock showed that time more than once); only
        of senders whose clock was set.
        """
        begin, end = pl.col("first_us") - _BEFORE_US, pl.col("last_us")
        mine = made.unique().join(self._set, left_on="sender", right_on="writer")
        near = pl.col("key_us").is_between(begin, end)
        # A time that is in no stretch may belong to any of them.
        sure = near | ~near.any().over("sender", "key_us")
        return (
            mine.filter(sure.fill_null(value=True))
            .group_by("sender", "key_us")
            .agg(
                pl.col("shift_us").min().alias("least_us"),
                pl.col("shift_us").max().alias("most_us"),
            )
        )

    def _of(self, column: str, writer: str) -> pl.Expr:
        # If all clocks are right, as most are, no writer is looked up.
        if not (self.offsets[column] != 0).any():
            return pl.lit(0, pl.Int64)
        return pl.col(writer).map_batches(
            lambda writers: self._told(column, writers), return_dtype=pl.Int64, is_elementwise=True
        )

    def _told(self, column: str, writers: pl.Series) -> pl.Series:
        """Return `column` of each of `writers`; the table is first cut to those writers if they are few."""
        known = self.offsets.filter(pl.col(column) != 0)
        if are_few(writers.len(), known.height):
            known = known.filter(pl.col("writer").is_in(writers.unique().implode()))
        told = writers.replace_strict(
            known["writer"], known[column], default=0, return_dtype=pl.Int64
        )
        return told.fill_null(0)

    def told(self) -> list[dict[str, Any]]:
        """Return the clocks that probably are wrong by a second or more; `believed_us` is how much is proven."""
        wrong = self.offsets.filter(pl.col("offset_us").abs() >= TOLD_US)
        return (
            wrong.sort("writer")
            .select("writer", "host", "offset_us", "believed_us", "low_us", "high_us")
            .to_dicts()
        )


def _shifted(stretches: pl.DataFrame) -> pl.DataFrame:
    """Return `Clocks.stretches`. Only those of clocks that were set are sorted: most never are."""
    columns = ("writer", "stretch", "first_us", "last_us")
    never = pl.lit(0, pl.Int64).alias("shift_us")
    of_others = stretches.lazy().filter(~_IS_SET).select(*columns, never).pipe(at_once)
    if of_others.height == stretches.height:
        return of_others
    last = pl.col("ahead_us").sort_by("running_us", "stretch").last().over("writer")
    shift = (last - pl.col("ahead_us")).alias("shift_us")
    return pl.concat([of_others, stretches.filter(_IS_SET).select(*columns, shift)])


def clocks(sums: Mapping[str, pl.DataFrame], writers: pl.DataFrame) -> Clocks:
    """Estimate the offsets; `sums` has the partials CLOCKED, and `writers` at least the columns writer and host."""
    stretches, receipts, samples, compared = (sums[partial.name] for partial in CLOCKED)
    shifted = _shifted(stretches)
    of_others = shifted.filter(pl.col("shift_us") != 0)

    def in_last(rows: pl.DataFrame, *instants: str) -> pl.DataFrame:
        if of_others.is_empty():
            return rows
        shift = pl.col("shift_us").fill_null(0)
        return rows.join(of_others, on=["writer", "stretch"], how="left").with_columns(
            pl.col(name) + shift for name in instants
        )

    samples = in_last(_least(samples), "key_us", "recv_us")
    shown = in_last(compared, "low_us", "high_us")
    highs = (
        pl.concat(
            rows.lazy().select("writer", "high_us")
            for rows in (in_last(receipts, "high_us"), shown)
        )
        .group_by("writer")
        .agg(pl.col("high_us").min())
    )
    reach = (
        of_others.lazy()
        .group_by("writer")
        .agg(
            pl.col("shift_us").max().clip(lower_bound=0).alias("back_us"),
            pl.col("shift_us").min().clip(upper_bound=0).alias("on_us"),
        )
    )
    ends = samples.lazy()
    both = (
        ends.filter(side="send")
        .select("hash", "key_us", sender="writer")
        .join(
            ends.filter(side="delivery").select("hash", "shown_us", "recv_us", receiver="writer"),
            on="hash",
        )
        .pipe(at_once)
        .lazy()
    )
    by_keys = both.select(writer="sender", low_us=pl.col("key_us") - pl.col("shown_us") - _CUT_US)
    lows = (
        pl.concat([by_keys, shown.lazy().select("writer", "low_us")])
        .group_by("writer")
        .agg(pl.col("low_us").max())
    )
    pairs = (
        both.group_by("sender", "receiver")
        .agg((pl.col("recv_us") - pl.col("key_us")).min().alias("at_most_us"))
        .drop_nulls("at_most_us")
        .pipe(at_once)
    )
    low, high = pl.col("low_us"), pl.col("high_us")
    host = pl.coalesce("host", "writer")
    offsets = (
        writers.lazy()
        .select("writer", "host")
        .unique("writer", keep="any")
        .join(lows, on="writer", how="left")
        .join(highs, on="writer", how="left")
        .join(reach, on="writer", how="left")
        .with_columns(pl.col("back_us", "on_us").fill_null(0))
        .with_columns(low.max().over(host), high.min().over(host))
        .with_columns(
            pl.when(low.is_null() | high.is_null())
            .then(pl.coalesce(low, high))
            .otherwise(low + (high - low) // 2)
            .alias("offset_us"),
            pl.when(low > high)
            .then(high + (low - high) // 2)
            # Not `clip`: Polars 2.0 clips a constant by the bounds of one row for all.
            .otherwise(pl.min_horizontal(pl.max_horizontal(pl.lit(0, pl.Int64), low), high))
            .fill_null(0)
            .alias("believed_us"),
        )
        # Contradicting bounds mean that the clock was set between two processes of its host.
        .with_columns(
            (
                pl.when(low > high)
                .then(high)
                .otherwise(pl.min_horizontal("believed_us", "offset_us"))
                - pl.col("back_us")
            ).alias("least_us"),
            pl.when(low > high)
            .then(low)
            .otherwise(pl.max_horizontal("believed_us", "offset_us"))
            .alias("lately_us"),
        )
        .with_columns((pl.col("lately_us") - pl.col("on_us")).alias("most_us"))
        .drop("back_us", "on_us")
        .pipe(at_once)
    )
    return Clocks(offsets, pairs, shifted)
