"""
The broker's own counts, held against the log: who else sends and consumes, what waits, and what expired.

A line `broker.stats` is a queue's counters at one moment. Between two of them the broker saw so many messages come and
go; the log tells of so many sends and settlements in that time, save those about the two moments, which may be on
either side. So the log has a most and a least, and only what is beyond them proves anything.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.additive import HOUR_US, MINUTE_US, Adds, Partial
from jmsx_report.clocks import Clocks
from jmsx_report.events import Events, named
from jmsx_report.flows import PLAUSIBLE_US, SETTLES
from jmsx_report.nothing import of_lines

_COUNTERS: Final = ("enqueued", "dequeued", "expired", "size")
_WHERE: Final = ("writer", "session_id", "epoch", "dest")


@of_lines("broker.stats")
def _stats(events: Events) -> pl.DataFrame:
    hour = pl.col("ts_us") // HOUR_US
    one = [*_WHERE, hour]
    restarted = (pl.col("enqueued") < pl.col("enqueued").shift(1)).over(_WHERE)
    kept = (
        (pl.col("ts_us") == pl.col("ts_us").min().over(one))
        | (pl.col("ts_us") == pl.col("ts_us").max().over(one))
        | restarted
        | restarted.shift(-1).over(_WHERE)
    )
    return (
        events.of("broker.stats")
        .filter(pl.col("ts_us").is_between(*PLAUSIBLE_US))
        .with_columns(pl.col("expired").fill_null(0))
        .sort(*_WHERE, "ts_us")
        .filter(kept.fill_null(value=True))
        .group_by(*_WHERE, "ts_us")
        .agg(pl.col(name).max().cast(pl.Int64) for name in _COUNTERS)
    )


#: The broker's counters of a queue: the first and the last of each hour, and those about a restart.
STATS: Final = Partial(
    "stats",
    (*_WHERE, "ts_us"),
    dict.fromkeys(_COUNTERS, Adds.MAX),
    _stats,
)


@of_lines("send", "delivery")
def _traffic(events: Events) -> pl.DataFrame:
    minute = (pl.col("ts_us") // MINUTE_US * MINUTE_US).alias("minute_us")
    arrived = events.coded("send").filter(pl.col("outcome").is_in(["confirmed", "unconfirmed"]))
    none, one = pl.lit(0, pl.Int64), pl.lit(1, pl.Int64)
    # A broker confirms what it drops by its duplicate id, and does not count it.
    sure = (pl.col("outcome") == "confirmed") & pl.col("duplicate_id").is_null()
    left = events.coded("delivery").filter(pl.col("outcome").is_in(list(SETTLES)))
    return (
        pl.concat(
            [
                arrived.select(
                    "writer",
                    "dest",
                    pl.lit(None, pl.Categorical).alias("subscription"),
                    minute,
                    one.alias("came"),
                    sure.cast(pl.Int64).alias("sure"),
                    none.alias("went"),
                ),
                left.select(
                    "writer",
                    "dest",
                    "subscription",
                    minute,
                    none.alias("came"),
                    none.alias("sure"),
                    one.alias("went"),
                ),
            ]
        )
        .group_by("writer", "dest", "subscription", "minute_us")
        .agg(pl.col("came", "sure", "went").sum())
        .pipe(named)
    )


#: Messages that came to (perhaps: an unconfirmed send is one; `sure`: a confirmed one, without a duplicate id) and went
#: from a destination, by minute of the writer's clock.
TRAFFIC: Final = Partial(
    "traffic",
    ("writer", "dest", "subscription", "minute_us"),
    {"came": Adds.SUM, "sure": Adds.SUM, "went": Adds.SUM},
    _traffic,
    apart=("writer", "minute_us"),
)

#: What `reconciled` tells of a route.
BOOK: Final = {
    "route": pl.String,
    "from_us": pl.Int64,
    "to_us": pl.Int64,
    "enqueued": pl.Int64,  # since from_us
    "dequeued": pl.Int64,
    "expired": pl.Int64,
    "size": pl.Int64,  # at to_us
    "counted_us": pl.Int64,  # when the last count was, by what is believed of its writer's clock
    "foreign_in": pl.Int64,  # at least so many came from senders that keep no log here
    "foreign_out": pl.Int64,  # at least so many went to consumers that keep no log here, or elsewhere
    "fewer_in": pl.Int64,  # so many more were confirmed to senders than the broker counts
    "fewer_out": pl.Int64,  # so many more were settled than the broker counts
    "whole": pl.Boolean,  # the counts go on and on, over all that the log tells of: no more went elsewhere
    "proven": pl.Boolean,  # all that ever came was settled in this log
}


def reconciled(
    stats: pl.DataFrame,
    traffic: pl.DataFrame,
    expects: pl.DataFrame,
    reads: pl.DataFrame,
    clocks: Clocks,
    *,
    sockets: pl.DataFrame,
    until_us: int | None = None,
) -> pl.DataFrame:
    """
    Hold the broker's counts against the log; one row a route that the broker counted, columns as `BOOK`.

    Args:
        stats: as `STATS`, with `broker`.
        traffic: as `TRAFFIC`.
        expects: as `Routes.expects`.
        reads: as `Routes.reads`.
        clocks: of the writers.
        sockets: as `Context.sockets`.
        until_us: it is about messages that were sent before then; None: about all.

    """
    spans = _spans(stats, _routes_of(expects, reads), clocks, until_us)
    if not spans.height:
        return pl.DataFrame(schema=BOOK)
    moved = pl.concat(
        [
            # A row tells of both where a process reads a queue that it sends to.
            traffic.filter(pl.col("came") > 0)
            .drop("went")
            .join(expects.select("dest", "route"), on="dest"),
            traffic.filter(pl.col("went") > 0)
            .drop("came", "sure")
            .join(reads, on=["dest", "subscription"], nulls_equal=True),
        ],
        how="diagonal",
    ).with_columns(
        clocks.earliest("minute_us").alias("begun"),
        (clocks.latest("minute_us") + MINUTE_US).alias("ended"),
    )
    # A minute more on each side: a broker counts an ACK when it gets to it.
    touched = (pl.col("ended") >= pl.col("from_us") - MINUTE_US) & (
        pl.col("begun") <= pl.col("to_us") + MINUTE_US
    )
    logged = (
        spans.select("route", "from_us", "to_us")
        .join(moved, on="route")
        .group_by("route")
        .agg(
            pl.col("came").filter(touched).sum().alias("came_most"),
            pl.col("went").filter(touched).sum().alias("went_most"),
            (~touched).sum().alias("outside"),
        )
        .join(_least(moved, spans, sockets), on="route", how="left")
    )
    held = spans.join(logged, on="route", how="left").with_columns(
        pl.col("came_most", "went_most", "outside", "came_least", "went_least").fill_null(0)
    )
    went = pl.col("dequeued") - pl.col("expired")
    whole = ~pl.col("restarted") & ~pl.col("relinked") & (pl.col("outside") == 0)
    return held.with_columns(
        (pl.col("enqueued") - pl.col("came_most")).clip(lower_bound=0).alias("foreign_in"),
        (went - pl.col("went_most")).clip(lower_bound=0).alias("foreign_out"),
        (pl.col("came_least") - pl.col("enqueued")).clip(lower_bound=0).alias("fewer_in"),
        (pl.col("went_least") - pl.col("dequeued")).clip(lower_bound=0).alias("fewer_out"),
        whole.alias("whole"),
        (
            ~pl.col("restarted")
            & (pl.col("outside") == 0)
            & (pl.col("size") == 0)
            & (pl.col("size_before") == 0)
            & (pl.col("enqueued") == pl.col("dequeued"))
            & (went == pl.col("went_most"))
        ).alias("proven"),
    ).select(*BOOK)


def _least(moved: pl.DataFrame, spans: pl.DataFrame, sockets: pl.DataFrame) -> pl.DataFrame:
    """
    Return how many messages surely came and went between the broker's first line and its last: route, came_least,
    went_least.

    Only what writers tell that know no other broker, of the one queue that was counted, whose counters went on and on
    over links that lasted. Others may have begun anew all the same, where they had grown beyond the old ones by the
    next look.
    """
    sole = (
        sockets.group_by("writer")
        .agg(pl.col("broker").n_unique().alias("brokers"), pl.col("broker").min())
        .filter(pl.col("brokers") == 1)
        .select("writer", "broker")
    )
    counted = spans.filter(
        ~pl.col("restarted") & ~pl.col("relinked") & (pl.col("queues") == 1)
    ).select("route", "dest", "broker", "surely_from_us", "surely_to_us")
    inside = (pl.col("begun") - MINUTE_US >= pl.col("surely_from_us")) & (
        pl.col("ended") + MINUTE_US <= pl.col("surely_to_us")
    )
    return (
        moved.join(sole, on="writer")
        .join(counted, on=["route", "dest", "broker"])
        .filter(inside)
        .group_by("route")
        .agg(pl.col("sure").sum().alias("came_least"), pl.col("went").sum().alias("went_least"))
    )


def _routes_of(expects: pl.DataFrame, reads: pl.DataFrame) -> pl.DataFrame:
    """Return the route that each single queue belongs to."""
    direct = expects.filter(~pl.col("fanned")).select("dest", "route")
    single = ~pl.col("dest").str.contains("[,*>]")
    return pl.concat([direct, reads.select("dest", "route")]).filter(single).unique()


def _spans(
    stats: pl.DataFrame, routes: pl.DataFrame, clocks: Clocks, until_us: int | None
) -> pl.DataFrame:
    """
    Return what the broker counted of each route, between the first and the last line of who watched it longest.

    A process tells the counts now by one of its sessions and now by another: they are of one broker all the same.
    Of messages that were sent before `until_us` no more can wait than were in the queue at any moment since.
    """
    since = pl.lit(value=False) if until_us is None else pl.col("ts_us") >= until_us
    who = ["broker", "dest", "writer"]
    links = pl.struct("session_id", "epoch").n_unique()
    fewer = pl.col("enqueued").diff() < 0
    grown = [
        pl.when(fewer).then(pl.col(name)).otherwise(pl.col(name).diff()).sum().alias(name)
        for name in ("enqueued", "dequeued", "expired")
    ]
    watched = (
        stats.with_columns(
            (pl.col("ts_us") - clocks.believed()).alias("ts_us"),
            clocks.earliest("ts_us").alias("earliest_us"),
            clocks.latest("ts_us").alias("latest_us"),
        )
        .sort("ts_us")
        .group_by(who, maintain_order=True)
        .agg(
            pl.col("earliest_us").min().alias("from_us"),
            pl.col("latest_us").max().alias("to_us"),
            pl.col("ts_us").last().alias("counted_us"),
            pl.col("latest_us").first().alias("surely_from_us"),
            pl.col("earliest_us").last().alias("surely_to_us"),
            *grown,
            pl.col("size").first().alias("size_before"),
            pl.coalesce(pl.col("size").filter(since).min(), pl.col("size").last()).alias("size"),
            fewer.any().alias("restarted"),
            (links > pl.col("session_id").n_unique()).alias("relinked"),
        )
        .sort(pl.col("to_us") - pl.col("from_us"), "to_us", "writer", descending=True)
        .unique(["broker", "dest"], keep="first", maintain_order=True)
    )
    return (
        watched.join(routes, on="dest")
        .group_by("route")
        .agg(
            pl.col("from_us").min(),
            pl.col("to_us").max(),
            pl.col("counted_us").min(),
            pl.col("enqueued", "dequeued", "expired", "size_before", "size").sum(),
            pl.col("restarted", "relinked").any(),
            pl.len().alias("queues"),
            pl.col("dest", "broker", "surely_from_us", "surely_to_us").first(),
        )
    )
