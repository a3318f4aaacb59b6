"""
How far the clock of each writer is ahead of the broker's.

Nothing is received before it was sent. So what the consumer's clock shows on receipt, less the broker's timestamp, is
never less than the consumer's offset; and what the sender's clock showed when it made the key, less the broker's
timestamp, is never more than the sender's. The bounds of all writers of one host hold for its one clock.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final

import polars as pl

from jmsx_report.additive import Adds, Partial
from jmsx_report.events import Events
from jmsx_report.flows import PLAUSIBLE_US, hashed, key_us

#: Messages of each writer and batch that are looked at from both ends: those whose keys have the least hashes, which
#: are the same ones at both.
_SAMPLES: Final = 32
#: Key and timestamp are cut to milliseconds.
_CUT_US: Final = 1000
#: By so much may a clock of which nothing is known be ahead, where something must be assumed.
UNKNOWN_US: Final = 3_600_000_000
#: A clock that is less wrong than this is not told of.
TOLD_US: Final = 1_000_000


def _receipts(events: Events) -> pl.DataFrame:
    waited = pl.col("recv_us") - pl.col("sent_us")
    return (
        events.of("delivery")
        .filter(
            pl.col("recv_us").is_between(*PLAUSIBLE_US)
            & pl.col("sent_us").is_between(*PLAUSIBLE_US)
        )
        .group_by("writer")
        .agg(
            waited.min().alias("high_us"),
            pl.len().cast(pl.Int64).alias("n"),
            (waited < 0).sum().cast(pl.Int64).alias("negative"),
        )
    )


#: Of each receiving writer: the least that a message was on its way (`high_us`), and how many came before their time.
RECEIPTS: Final = Partial(
    "receipts",
    ("writer",),
    {"high_us": Adds.MIN, "n": Adds.SUM, "negative": Adds.SUM},
    _receipts,
)


def _samples(events: Events) -> pl.DataFrame:
    none = pl.lit(None, pl.Int64)
    sends = events.of("send").select(
        "writer",
        pl.lit("send").alias("side"),
        "msg_key",
        none.alias("sent_us"),
        none.alias("recv_us"),
    )
    deliveries = events.of("delivery").select(
        "writer", pl.lit("delivery").alias("side"), "msg_key", "sent_us", "recv_us"
    )
    least = pl.col("hash") <= pl.col("hash").bottom_k(_SAMPLES).max().over("writer", "side")
    return (
        pl.concat([sends, deliveries])
        .with_columns(hashed(pl.col("msg_key")).alias("hash"))
        .filter(least)
        .with_columns(key_us(pl.col("msg_key")).alias("key_us"))
        .filter(pl.col("key_us").is_not_null())
        .group_by("writer", "side", "hash")
        .agg(pl.col("key_us", "sent_us", "recv_us").min())
    )


#: Messages by which the clocks of senders and receivers are compared.
SAMPLES: Final = Partial(
    "samples",
    ("writer", "side", "hash"),
    {"key_us": Adds.MIN, "sent_us": Adds.MIN, "recv_us": Adds.MIN},
    _samples,
)


@dataclass(frozen=True, slots=True)
class Clocks:
    """What is known of each writer's clock."""

    #: writer, host, low_us, high_us (bounds of the offset, null: none), offset_us (the best guess; null: none),
    #: believed_us (what is nearest to 0 within the bounds), least_us and most_us (of the two, or what a clock that
    #: was set showed).
    offsets: pl.DataFrame
    #: sender, receiver, at_most_us: by so much the receiver's clock is ahead of the sender's, at the most.
    pairs: pl.DataFrame

    def believed(self, writer: str = "writer") -> pl.Expr:
        """Microseconds that the clock of each row's `writer` is ahead, as far as that is proven; 0: unknown."""
        return self._of("believed_us", writer)

    def least(self, writer: str = "writer") -> pl.Expr:
        """The same, at the least: a clock may be wrong by more than is proven."""
        return self._of("least_us", writer)

    def most(self, writer: str = "writer") -> pl.Expr:
        """The same, at the most."""
        return self._of("most_us", writer)

    def earliest(self, instant: str, writer: str = "writer") -> pl.Expr:
        """An instant that the clock of each row's `writer` showed, by a clock that is set right: not before this."""
        return pl.col(instant) - self.most(writer)

    def latest(self, instant: str, writer: str = "writer") -> pl.Expr:
        """The same: not after this."""
        return pl.col(instant) - self.least(writer)

    def _of(self, column: str, writer: str) -> pl.Expr:
        known = pl.col(writer).replace_strict(
            self.offsets["writer"], self.offsets[column], default=0, return_dtype=pl.Int64
        )
        return known.fill_null(0)

    def told(self) -> list[dict[str, Any]]:
        """Clocks that are wrong by a second or more, or likely to be, for programs; `believed_us` is what is proven."""
        wrong = self.offsets.filter(pl.col("offset_us").abs() >= TOLD_US)
        return (
            wrong.sort("writer")
            .select("writer", "host", "offset_us", "believed_us", "low_us", "high_us")
            .to_dicts()
        )


def clocks(receipts: pl.DataFrame, samples: pl.DataFrame, writers: pl.DataFrame) -> Clocks:
    """Estimate the offsets; columns as `RECEIPTS`, `SAMPLES`, and at least writer and host."""
    sides = {
        side: samples.filter(pl.col("side") == side).select(
            "writer", "hash", "key_us", "sent_us", "recv_us"
        )
        for side in ("send", "delivery")
    }
    both = (
        sides["send"]
        .select(pl.col("writer").alias("sender"), "hash", "key_us")
        .join(
            sides["delivery"].select(
                pl.col("writer").alias("receiver"), "hash", "sent_us", "recv_us"
            ),
            on="hash",
        )
    )
    lows = both.group_by(pl.col("sender").alias("writer")).agg(
        (pl.col("key_us") - pl.col("sent_us") - _CUT_US).max().alias("low_us")
    )
    pairs = (
        both.group_by("sender", "receiver")
        .agg((pl.col("recv_us") - pl.col("key_us")).min().alias("at_most_us"))
        .filter(pl.col("at_most_us").is_not_null())
    )
    low, high = pl.col("low_us"), pl.col("high_us")
    host = pl.coalesce("host", "writer")
    offsets = (
        writers.select("writer", "host")
        .unique("writer", keep="any")
        .join(lows, on="writer", how="left")
        .join(receipts.select("writer", "high_us"), on="writer", how="left")
        .with_columns(low.max().over(host), high.min().over(host))
        .with_columns(
            pl.when(low.is_null() | high.is_null())
            .then(pl.coalesce(low, high))
            .otherwise(low + (high - low) // 2)
            .alias("offset_us"),
            pl.when(low > high)
            .then(high + (low - high) // 2)
            .otherwise(pl.lit(0, pl.Int64).clip(low, high))
            .fill_null(0)
            .alias("believed_us"),
        )
        # Bounds that contradict each other are those of a clock that was set.
        .with_columns(
            pl.when(low > high)
            .then(high)
            .otherwise(pl.min_horizontal("believed_us", "offset_us"))
            .alias("least_us"),
            pl.when(low > high)
            .then(low)
            .otherwise(pl.max_horizontal("believed_us", "offset_us"))
            .alias("most_us"),
        )
    )
    return Clocks(offsets, pairs)
