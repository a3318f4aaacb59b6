"""
The broker's own counts, held against the log: who else sends and consumes, what waits, and what expired.

A line `broker.stats` is a queue's counters at one moment. Between two of them the broker saw so many messages come and
go; the log tells of so many sends and settlements in that time, save those about the two moments, which may be on
either side. So the log has a most and a least, and only what is beyond them proves anything.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx.core.events import Outcome
from jmsx_report.additive import HOUR_US, MINUTE_US, Adds, Partial
from jmsx_report.balance import deliveries_by_route
from jmsx_report.clocks import Clocks
from jmsx_report.events import Events, named
from jmsx_report.fanout import Routes
from jmsx_report.flows import PLANNED, PLAUSIBLE_US, SETTLES, optional
from jmsx_report.horizon import WITHOUT_END
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_lines
from jmsx_report.presence import KEY

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


_NOTHING, _ONE = pl.lit(0, pl.Int64), pl.lit(1, pl.Int64)
_MINUTE_US: Final = (pl.col("ts_us") // MINUTE_US * MINUTE_US).alias("minute_us")
# A broker confirms what it drops by its duplicate id, and does not count it.
_SURE: Final = (pl.col("outcome") == "confirmed") & pl.col("duplicate_id").is_null()
#: Of each kind of line: which of them tell of traffic, and of what.
_MOVED: Final = {
    "send": (
        pl.col("outcome").is_in(["confirmed", "unconfirmed"]),
        (_ONE.alias("came"), _SURE.cast(pl.Int64).alias("sure"), _NOTHING.alias("went")),
    ),
    "delivery": (
        pl.col("outcome").is_in(list(SETTLES)),
        (_NOTHING.alias("came"), _NOTHING.alias("sure"), _ONE.alias("went")),
    ),
}


@of_lines(*_MOVED)
def _traffic(events: Events) -> pl.DataFrame:
    def moved(kind: str) -> pl.LazyFrame:
        which, numbers = _MOVED[kind]
        subscription = optional(kind, "subscription", pl.Categorical)
        rows = events.coded(kind).lazy().filter(which)
        return rows.select("writer", "dest", subscription, _MINUTE_US, *numbers)

    return (
        pl.concat(map(moved, events.kinds(*_MOVED)))
        .group_by("writer", "dest", "subscription", "minute_us")
        .agg(pl.col("came", "sure", "went").sum())
        .pipe(named)
        .pipe(at_once)
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
    "other_in": pl.Int64,  # at least so many came of which no line surely tells
    "other_out": pl.Int64,  # at least so many went of which no line surely tells
    "unsure_out": pl.Int64,  # so many more may have: of whose lines nobody knows whether they are of what was counted
    "foreign_in": pl.Int64,  # of these at least so many came from senders that keep no log here
    "foreign_out": pl.Int64,  # of these at least so many went to consumers that keep no log here, or elsewhere
    "fewer_in": pl.Int64,  # so many more were confirmed to senders than the broker counts
    "fewer_out": pl.Int64,  # so many more were settled than the broker counts
    "surely_from_us": pl.Int64,  # of one queue: what was between these was counted; null: there are several
    "surely_to_us": pl.Int64,
    "whole": pl.Boolean,  # the counts go on and on, over all that the log tells of: no more went elsewhere
    "even": pl.Boolean,  # all that ever came is gone, and the counts go on and on
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
    if stats.is_empty():
        return pl.DataFrame(schema=BOOK)
    spans = _spans(stats, _routes_of(expects, reads), clocks, until_us)
    if spans.is_empty():
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
    by_then = pl.col("begun") <= pl.col("to_us") + MINUTE_US
    touched = by_then & (pl.col("ended") >= pl.col("from_us") - MINUTE_US)
    surely = pl.col("ended") <= pl.col("surely_to_us")
    logged = (
        spans.select("route", "from_us", "to_us", "surely_to_us")
        .join(moved, on="route")
        .group_by("route")
        .agg(
            pl.col("came").filter(touched).sum().alias("came_most"),
            pl.col("went").filter(touched).sum().alias("went_most"),
            (~touched).sum().alias("outside"),
            pl.col("came").filter(by_then).sum().alias("came_ever"),
            pl.col("sure").filter(surely).sum().alias("sure_ever"),
            pl.col("went").filter(by_then).sum().alias("went_ever"),
        )
        .join(_least(moved, spans, sockets), on="route", how="left")
    )
    held = spans.join(logged, on="route", how="left").with_columns(
        pl.col("came_most", "went_most", "outside", "came_least", "went_least").fill_null(0),
        pl.col("came_ever", "sure_ever", "went_ever").fill_null(0),
    )
    went = pl.col("dequeued") - pl.col("expired")
    # Where the log has all that ever came, what went before the broker was first asked is known, too: an app first asks
    # for a queue up to a minute after it has used it. Of what may have come after the last count, as much of what was
    # counted may be older than the log. If the broker counts fewer than came, its counters may have begun anew.
    ours = (
        ~pl.col("restarted")
        & (pl.col("queues") == 1)
        & (pl.col("enqueued_ever") <= pl.col("came_ever"))
    )
    went_ever = pl.when(ours).then(
        pl.col("dequeued_ever")
        - pl.col("expired_ever")
        - pl.col("went_ever")
        - (pl.col("enqueued_ever") - pl.col("sure_ever")).clip(lower_bound=0)
    )
    anew = ours & (went_ever > 0) & (pl.col("enqueued_ever") < pl.col("sure_ever"))
    whole = ~pl.col("restarted") & ~pl.col("relinked") & (pl.col("outside") == 0) & ~anew
    even = (
        ~pl.col("restarted")
        & (pl.col("outside") == 0)
        & (pl.col("size") == 0)
        & (pl.col("size_before") == 0)
        & (pl.col("enqueued") == pl.col("dequeued"))
    )
    beyond = {
        "in": pl.col("enqueued") - pl.col("came_most"),
        "out": pl.max_horizontal(went - pl.col("went_most"), went_ever),
    }
    return held.with_columns(
        *(
            n.clip(lower_bound=0).alias(f"{who}_{way}")
            for who in ("other", "foreign")
            for way, n in beyond.items()
        ),
        (pl.col("went_most") - pl.col("went_least")).alias("unsure_out"),
        (pl.col("came_least") - pl.col("enqueued")).clip(lower_bound=0).alias("fewer_in"),
        (pl.col("went_least") - pl.col("dequeued")).clip(lower_bound=0).alias("fewer_out"),
        pl.when(pl.col("queues") == 1).then(pl.col("surely_from_us", "surely_to_us")),
        whole.alias("whole"),
        even.alias("even"),
        (even & (went == pl.col("went_most"))).alias("proven"),
    ).select(*BOOK)


def sent_back(book: pl.DataFrame, plans: pl.DataFrame, routes: Routes) -> pl.Series:
    """
    Return the buckets whose messages may have gone back to the broker while it counted more that went than lines tell;
    `book` as `reconciled`, `plans` as that partial.

    Keys that tell no time share 64 buckets: to look at each of those for one of them would be to look at all.
    """
    doubtful = book.filter(pl.col("other_out") > 0)
    back = plans.filter(pl.col("bucket") >= 0, pl.col("back_us").is_not_null())
    return (
        back.join(_read_directly(routes), on="dest")
        .join(doubtful, on="route", how="semi")["bucket"]
        .unique()
    )


def taken() -> pl.Expr:
    """
    Return up to how many messages others may have got, in rows of `BOOK` of routes where they surely got some.

    Who was not watched all the time may have got any number; and some of ours beside the first count and the last may
    not be of what was counted, so that more of that went to others.
    """
    some = pl.col("other_out") > 0
    return (
        pl.when(some & ~pl.col("whole"))
        .then(WITHOUT_END)
        .when(some)
        .then(pl.col("other_out") + pl.col("unsure_out"))
        .otherwise(0)
    )


def _read_directly(routes: Routes) -> pl.DataFrame:
    """Return the route of each queue that is read: dest, route. What is sent back is of such, never of a topic."""
    return routes.reads.filter(pl.col("subscription").is_null()).select("dest", "route")


def but_sent_back(
    book: pl.DataFrame,
    stories: pl.DataFrame,
    routes: Routes,
    clocks: Clocks,
    by_key: pl.DataFrame,
) -> pl.DataFrame:
    """
    Tell in `book`, as `reconciled`, no others of what our consumers sent back, for the broker to deliver it later.

    The broker counts the copy, under an id of its own, as one more that came, and the message as one more that went. A
    line tells of it before the broker has it, so that some of these are still what they were. A message surely was sent
    back when it failed, and then came under another id. Of one that did not come again yet nobody knows: but if its
    sender keeps a log, it is counted as not settled, and needs no doubt of others besides.

    Args:
        book: as `reconciled`.
        stories: as that partial, of the buckets of `sent_back` at least.
        routes: who reads where.
        clocks: of the writers.
        by_key: as `balance.keys`.

    """
    window = ("from_us", "to_us", "surely_from_us", "surely_to_us")
    counted = book.filter(pl.col("other_out") > 0).select("route", *window)
    plans = (
        stories.filter(pl.col("kind") == PLANNED, ~pl.col("kept"))
        .join(_read_directly(routes), on="dest")
        .join(counted, on="route")
    )
    if plans.is_empty():
        return book
    outcome, begun = pl.col("outcome"), clocks.earliest("first_us") <= pl.col("to_us") + MINUTE_US
    since = pl.col("from_us") - MINUTE_US
    inside = (clocks.earliest("first_us") >= pl.col("surely_from_us") + MINUTE_US) & (
        clocks.latest("first_us") <= pl.col("surely_to_us") - MINUTE_US
    )
    tried = plans.group_by(KEY).agg(
        inside.fill_null(value=False).sum().alias("inside"),
        (begun & (clocks.latest("until_us") >= since)).sum().alias("in"),
        (begun & (clocks.latest("first_us") >= since)).sum().alias("out"),
        pl.len().alias("tries"),
    )
    came = (
        deliveries_by_route(stories.filter(kind="delivery"), routes)
        .join(tried, on=list(KEY), how="semi")
        .group_by(*KEY, "msg_id")
        .agg(
            (outcome == Outcome.ROLLED_BACK.value).any().alias("failed"),
            outcome.is_in(list(SETTLES)).any().alias("settled"),
        )
        .group_by(KEY)
        .agg(
            pl.col("msg_id").is_not_null().all().alias("known"),
            (pl.len() - 1).alias("copies"),
            (pl.col("failed") & ~pl.col("settled")).sum().alias("left"),
        )
    )
    open_ = by_key.filter(
        pl.sum_horizontal("confirmed", "unconfirmed") > 0, pl.col("settled") == 0
    ).select(*KEY, awaited=1)
    surely = pl.when("known").then(pl.min_horizontal("copies", "left", "tries")).otherwise(0)
    moved = (
        tried.join(came, on=list(KEY), how="left")
        .join(open_, on=list(KEY), how="left")
        .with_columns(surely.fill_null(0).alias("surely"))
        .with_columns(
            pl.min_horizontal(pl.col("surely") + pl.col("awaited").fill_null(0), "tries").alias(
                "perhaps"
            )
        )
        .group_by("route")
        .agg(
            pl.min_horizontal(kind, way).sum().cast(pl.Int64).alias(f"{kind}_{way}")
            for kind in ("surely", "perhaps")
            for way in ("in", "out", "inside")
        )
    )
    held = book.join(moved, on="route", how="left").with_columns(
        pl.col(name).fill_null(0) for name in moved.columns if name != "route"
    )
    all_sent_back = (pl.col("other_out") > 0) & (pl.col("other_out") == pl.col("surely_out"))
    return held.with_columns(
        *(
            (pl.col(f"{who}_{way}") - pl.col(f"{kind}_{way}")).clip(lower_bound=0)
            for who, kind in (("other", "surely"), ("foreign", "perhaps"))
            for way in ("in", "out")
        ),
        pl.col("unsure_out") + pl.col("surely_out") - pl.col("surely_inside"),
        (pl.col("proven") | (pl.col("even") & all_sent_back)).alias("proven"),
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
            pl.col("enqueued", "dequeued", "expired").last().name.suffix("_ever"),
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
            pl.col("enqueued_ever", "dequeued_ever", "expired_ever").sum(),
            pl.col("restarted", "relinked").any(),
            pl.len().alias("queues"),
            pl.col("dest", "broker", "surely_from_us", "surely_to_us").first(),
        )
    )
