"""
Dead letters that were moved by a copy of ours, and then came to nobody, though a consumer of this log waited for them.

The broker confirmed such a copy, so the message is settled where it was. What becomes of the copy is told only where
somebody with a log reads its queue. Whoever may be given all that lies there, and has nothing to do for a while, shows
that it is not there any more. That proves no loss: an operator may have taken it away, or a consumer without a log.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx.core.events import Outcome
from jmsx_report import brokerbook
from jmsx_report.additive import HOUR_US, Adds, Partial
from jmsx_report.clocks import Clocks
from jmsx_report.events import Events, named
from jmsx_report.fanout import Routes
from jmsx_report.flows import BUCKET_US, PLAUSIBLE_US, SETTLES, fingerprint, hashed, key_us
from jmsx_report.horizon import WITHOUT_END, Horizon
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_lines, of_rows

#: A copy that came less than this before its consumer said that it has nothing may have been on its way to that.
ON_ITS_WAY_US: Final = 60_000_000
#: What a delivery ends with after which the broker has the message again, and nobody has done anything with it.
_GIVEN_BACK: Final = (Outcome.ABANDONED.value, Outcome.RELEASED.value)
#: Outcomes of sends after which the broker may have the message.
_SENT: Final = ("confirmed", "unconfirmed")
_DEAD: Final = Outcome.DEAD_LETTERED.value
_PLAUSIBLE: Final = pl.col("ts_us").is_between(*PLAUSIBLE_US)


@of_lines("dlq")
def _copies(events: Events) -> pl.DataFrame:
    return (
        events.of("dlq")
        .filter(pl.col("by_copy") & pl.col("dlq_dest").is_not_null() & _PLAUSIBLE)
        .with_columns(key_us(pl.col("msg_key")).alias("key_us"), dest="dlq_dest")
        # Of a message that is not of jmsx the copy has another identity than the message.
        .drop_nulls("key_us")
        .group_by(COPIES.keys)
        .agg(pl.col("ts_us").max().alias("last_us"))
    )


#: Confirmed copies, by key, the queue where they were put, `dest`, and the broker's id of the message that died.
COPIES: Final = Partial(
    "copies",
    ("writer", "session_id", "epoch", "dest", "msg_key", "msg_id", "key_us"),
    {"last_us": Adds.MAX},
    _copies,
)


_NONE: Final = pl.lit(None, pl.Int64)
#: Of each kind of line: which of them show something, and what.
_SHOWN: Final = {
    "sub.open": (
        _PLAUSIBLE,
        (
            pl.col("ts_us").alias("open_us"),
            # A line of an older release does not tell.
            pl.col("selective")
            .eq(other=False)
            .fill_null(value=False)
            .cast(pl.Int64)
            .alias("whole"),
            _NONE.alias("idle_us"),
        ),
    ),
    "sub.stats": (
        _PLAUSIBLE & (pl.col("buffered") == 0) & (pl.col("in_process") == 0),
        (_NONE.alias("open_us"), _NONE.alias("whole"), pl.col("ts_us").alias("idle_us")),
    ),
}


@of_lines(*_SHOWN)
def _idle(events: Events) -> pl.DataFrame:
    def rows(kind: str) -> pl.LazyFrame:
        which, told = _SHOWN[kind]
        return events.coded(kind).lazy().filter(which).select(*IDLE.keys, *told)

    return (
        pl.concat(map(rows, events.kinds(*_SHOWN)))
        .group_by(IDLE.keys)
        .agg(IDLE.sums)
        .pipe(named)
        .pipe(at_once)
    )


#: When each consumer was opened last on a link, whether it may be given all that waits there (`whole`: 1), and when it
#: said last, on that link, that it has nothing.
IDLE: Final = Partial(
    "idle",
    ("writer", "session_id", "epoch", "dest", "consumer"),
    {"open_us": Adds.MAX, "whole": Adds.MIN, "idle_us": Adds.MAX},
    _idle,
    apart=("writer",),
)


@of_rows
def watched(
    copies: pl.DataFrame,
    idle: pl.DataFrame,
    routes: Routes,
    *,
    sockets: pl.DataFrame,
    clocks: Clocks,
    until: Horizon,
    deadline_us: int,
) -> pl.DataFrame:
    """
    Return the copies that were put where this log reads: msg_key, dest, route, key_us, bucket, hour_us, n, at_us,
    idle_us.

    `at_us` is when the last of them was surely there, set right; `idle_us`, by when it had to be there for a consumer
    to show that it is not there any more; null: none does. `copies` and `idle` as those partials, `sockets` as
    `Context.sockets`.
    """
    patience_us = max(deadline_us, ON_ITS_WAY_US)
    places = [(dest, routes.read_as(dest)) for dest in copies["dest"].unique().sort()]
    read_as = pl.DataFrame(places, schema={"dest": pl.String, "route": pl.String}, orient="row")
    socket = ("writer", "session_id", "epoch")
    # A session that was on the copy's broker, too, is now on that, or on its backup.
    known = sockets.select(*socket[:2], "broker").unique()
    shown = (
        idle.filter(whole=1)
        .drop_nulls("idle_us")
        .with_columns(clocks.latest("open_us"), clocks.earliest("idle_us"))
        .filter(pl.col("open_us") + patience_us <= pl.col("idle_us"))
        .join(routes.reads.filter(pl.col("subscription").is_null()), on="dest")
        .join(known, on=list(socket[:2]), how="left", nulls_equal=True)
        .group_by("route", "broker")
        .agg((pl.col("idle_us") - patience_us).max())
    )
    if until.living:
        limit = pl.lit(until.until_us, pl.Int64) - patience_us
        shown = shown.with_columns(
            pl.when(limit.is_not_null()).then(pl.min_horizontal("idle_us", limit)).alias("idle_us")
        )
    return (
        copies.with_columns(clocks.latest("last_us").alias("at_us"))
        .join(read_as.drop_nulls(), on="dest")
        .join(sockets.select(*socket, "broker"), on=list(socket), how="left", nulls_equal=True)
        .join(shown, on=["route", "broker"], how="left", nulls_equal=True)
        .group_by("msg_key", "dest", "route", "key_us")
        .agg(
            # A copy of one message that is made again Artemis drops, by its duplicate id.
            pl.col("msg_id").n_unique().cast(pl.Int64).alias("n"),
            pl.col("at_us").max(),
            # Copies on two brokers have two queues.
            pl.when(pl.col("idle_us").is_not_null().all())
            .then(pl.col("idle_us").min())
            .alias("idle_us"),
        )
        .with_columns(
            (pl.col("key_us") // BUCKET_US * BUCKET_US).alias("bucket"),
            (pl.col("key_us") // HOUR_US * HOUR_US).alias("hour_us"),
        )
    )


#: Whether a consumer shows that a copy is not there any more; a row of `watched`.
_MISSED: Final = (pl.col("at_us") <= pl.col("idle_us")).fill_null(value=False)


@of_rows
def in_doubt(copies: pl.DataFrame, compared: pl.DataFrame) -> pl.DataFrame:
    """
    Return the buckets whose copies must be looked at key by key: bucket; as `watched` and `balance.buckets`.

    In others as many were settled where they were put, and the fingerprints agree.
    """
    n, xor, total = fingerprint(pl.col("n"))
    return (
        copies.with_columns(hashed(pl.col("msg_key")).alias("hash"), missed=_MISSED)
        .group_by("route", "bucket")
        .agg(n, xor, total, pl.col("missed").any())
        .filter("missed")
        .join(compared, on=["route", "bucket"], how="left")
        .filter(
            ~pl.all_horizontal(
                pl.col(name).eq_missing(pl.col(f"settled_{name}")) for name in ("n", "xor", "total")
            )
        )
        .select("bucket")
        .unique()
    )


@of_rows
def unclaimed(
    copies: pl.DataFrame,
    compared: pl.DataFrame,
    stories: pl.DataFrame,
    routes: Routes,
    *,
    book: pl.DataFrame,
    missing: pl.DataFrame,
    told: pl.DataFrame,
    clocks: Clocks,
) -> pl.DataFrame:
    """
    Return the copies that nobody got, and that nothing explains: msg_key, dest, route, hour_us, n.

    Each delivery where it was put claims one, unless the broker had the message again after it. So does what was sent
    or settled anywhere else more than once, or settled though nobody sent it there: it may have been moved back, or
    read by another name. As many of the others may wait or have been taken away as the broker counts, as other
    consumers said that they have, and as lines are missing of who reads there. The oldest are those.

    Args:
        copies: as `watched`.
        compared: as `balance.buckets`.
        stories: as that partial, of the buckets of `in_doubt` at least.
        routes: who reads where.
        book: as `brokerbook.reconciled`.
        missing: as `conclusions.placed_gaps`.
        told: as `Books.in_hand`.
        clocks: of the writers.

    """
    copies = copies.join(in_doubt(copies, compared), on="bucket", how="semi")
    mine = copies["msg_key"].unique()
    about = stories.filter(pl.col("msg_key").is_in(mine.implode()))
    outcome, n = pl.col("outcome"), pl.col("n")
    deliveries = about.filter(kind="delivery").join(
        routes.reads, on=["dest", "subscription"], how="left", nulls_equal=True
    )
    came = deliveries.group_by("msg_key", "route").agg(
        n.filter(~outcome.is_in(_GIVEN_BACK)).sum().alias("came"),
        clocks.latest("last_us").filter(outcome.is_in(_GIVEN_BACK)).max().alias("back_us"),
    )
    sent = (
        about.filter(pl.col("kind") == "send", outcome.is_in(_SENT))
        .join(routes.expects, on="dest")
        .group_by("msg_key", "route")
        .agg(n.sum().alias("sent"))
    )
    beyond = (
        deliveries.group_by("msg_key", "route")
        .agg(
            n.filter(outcome.is_in(list(SETTLES))).sum().alias("settled"),
            (outcome == _DEAD).any().alias("died"),
        )
        .join(sent, on=["msg_key", "route"], how="full", coalesce=True, nulls_equal=True)
        .with_columns(pl.col("sent", "settled").fill_null(0))
        # One was its own there: it was sent there, or died there, and nobody here sent it.
        .with_columns(
            (pl.max_horizontal("sent", "settled") - ((pl.col("sent") > 0) | pl.col("died")))
            .clip(lower_bound=0)
            .alias("beyond")
        )
    )
    elsewhere = (
        copies.select("msg_key", "route")
        .join(beyond, on="msg_key", suffix="_read")
        .filter(~pl.col("route").eq_missing(pl.col("route_read")))
        .group_by("msg_key", "route")
        .agg(pl.col("beyond").sum())
    )
    left = n - pl.col("came").fill_null(0) - pl.col("beyond").fill_null(0)
    gone = (
        copies.join(came, on=["msg_key", "route"], how="left")
        .join(elsewhere, on=["msg_key", "route"], how="left")
        .with_columns(pl.max_horizontal("at_us", "back_us").alias("at_us"))
        .filter(_MISSED, left > 0)
        .with_columns(left.alias("n"))
    )
    # The broker gives them all to one, and another one has nothing. When that one ended, they came to who was left.
    had = (
        told.join(routes.reads.filter(pl.col("subscription").is_null()), on="dest")
        .with_columns(clocks.latest("told_us"))
        .join(gone.group_by("route").agg(pl.col("idle_us").min()), on="route")
        .filter(pl.col("told_us") >= pl.col("idle_us"))
        .group_by("route")
        .agg(pl.sum_horizontal("buffered", "in_process").sum().alias("had"))
    )
    return _unexplained(gone, book=book, missing=missing, had=had)


@of_rows
def _unexplained(
    gone: pl.DataFrame, *, book: pl.DataFrame, missing: pl.DataFrame, had: pl.DataFrame
) -> pl.DataFrame:
    """Take away the oldest of `gone`, as many as something else may explain; as `unclaimed`."""
    since = gone.group_by("route").agg(pl.col("at_us").min())
    by_gaps = (
        missing.filter("reads")
        .join(since, on="route")
        .filter((pl.col("high_us") >= pl.col("at_us")).fill_null(value=True))
        .group_by("route")
        .agg(pl.col("lines").fill_null(WITHOUT_END).sum().alias("lines"))
    )
    up_to = pl.col("n").cum_sum().over("route", order_by=["at_us", "msg_key"])
    room = pl.sum_horizontal(pl.max_horizontal("size", "had"), pl.col("taken", "expired", "lines"))
    return (
        gone.join(
            book.select("route", "size", "expired", brokerbook.taken().alias("taken")),
            on="route",
            how="left",
        )
        .join(had, on="route", how="left")
        .join(by_gaps, on="route", how="left")
        .with_columns(pl.min_horizontal("n", (up_to - room).clip(lower_bound=0)).alias("n"))
        .filter(pl.col("n") > 0)
        .select("msg_key", "dest", "route", "hour_us", "n")
    )
