"""
Dead letters that jmsx moved by sending a copy, which then never arrived although a consumer of this log waited for it.

The broker confirmed the copy, so the message is settled where it was. The fate of the copy is known only if a process
with a log reads its queue. If a consumer that may be given all messages of that queue has nothing to do for a while,
the copy is no longer there. That proves no loss: an operator may have removed it, or a consumer without a log read it.
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

#: A copy that came less than this before the consumer's statement of having nothing may still have been on its way.
ON_ITS_WAY_US: Final = 60_000_000
#: Outcomes of a delivery after which the broker has the message again, so that they account for no copy.
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
        # The copy of a message that jmsx did not send has another key than the message.
        .drop_nulls("key_us")
        .group_by(COPIES.keys)
        .agg(pl.col("ts_us").max().alias("last_us"))
    )


#: Confirmed copies, by key, by the queue that they were sent to (`dest`), and by the broker's id of the dead message.
COPIES: Final = Partial(
    "copies",
    ("writer", "session_id", "epoch", "dest", "msg_key", "msg_id", "key_us"),
    {"last_us": Adds.MAX},
    _copies,
)


_NONE: Final = pl.lit(None, pl.Int64)
#: For each kind of line: which of its lines count for `IDLE`, and the columns that they give.
_SHOWN: Final = {
    "sub.open": (
        _PLAUSIBLE,
        (
            pl.col("ts_us").alias("open_us"),
            # Lines of older releases do not tell.
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


#: When each consumer was last opened on a link, whether it may be given all messages that wait there (`whole`: 1), and
#: when it last stated on that link that it has nothing.
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
    Return the copies that were sent to queues which this log reads: msg_key, dest, route, key_us, bucket, hour_us, n,
    at_us, idle_us.

    `at_us` is when the last of them surely was in the queue, by corrected clocks. If that is before `idle_us`, an idle
    consumer shows that it is no longer there; null: no consumer shows it. `copies` and `idle` as those partials,
    `sockets` as `Context.sockets`.
    """
    patience_us = max(deadline_us, ON_ITS_WAY_US)
    places = [(dest, routes.read_as(dest)) for dest in copies["dest"].unique().sort()]
    read_as = pl.DataFrame(places, schema={"dest": pl.String, "route": pl.String}, orient="row")
    socket = ("writer", "session_id", "epoch")
    # A session that was ever on the copy's broker is now on that broker or on its backup.
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
            # If a message is copied again, Artemis drops the second copy for its duplicate id.
            pl.col("msg_id").n_unique().cast(pl.Int64).alias("n"),
            pl.col("at_us").max(),
            # Copies on two brokers are in two queues.
            pl.when(pl.col("idle_us").is_not_null().all())
            .then(pl.col("idle_us").min())
            .alias("idle_us"),
        )
        .with_columns(
            (pl.col("key_us") // BUCKET_US * BUCKET_US).alias("bucket"),
            (pl.col("key_us") // HOUR_US * HOUR_US).alias("hour_us"),
        )
    )


#: Whether an idle consumer shows that a copy is no longer in its queue; for rows of `watched`.
_MISSED: Final = (pl.col("at_us") <= pl.col("idle_us")).fill_null(value=False)


@of_rows
def in_doubt(copies: pl.DataFrame, compared: pl.DataFrame) -> pl.DataFrame:
    """
    Return the buckets whose copies must be looked at key by key: bucket.

    `copies` as `watched`, `compared` as `balance.buckets`. In all others as many copies were settled as
    were sent, and the fingerprints agree.
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
    Return the copies that nobody got, without an explanation: msg_key, dest, route, hour_us, n.

    A copy is accounted for by each delivery from its queue, unless the broker got the message back after it; and by
    each additional send or settlement of the key elsewhere, or settlement where nobody sent it: the copy may have been
    moved back, or read by another name. Of the other copies, so many may be explained: those that the broker counts as
    waiting or removed, those that other consumers stated to hold, and one for each missing line of a reader. The oldest
    copies are taken as explained.

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
        # One belongs to the original message itself: it was sent there, or died there and nobody here sent it.
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
    # The broker may give all copies to one consumer while another is idle; when the first ends, the other gets them.
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
    """Remove from `gone` the oldest copies, as many as something else may explain; arguments as for `unclaimed`."""
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
