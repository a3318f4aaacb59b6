"""
The broker's own counts, compared with the log: whether others send and consume, what waits, and what expired.

A line `broker.stats` has a queue's counters at one moment. Two of them tell how many messages came and went in between;
the log tells how many sends and settlements there were, except that those near the two moments may be on either side.
So the log has a least and a most number, and only counts beyond these prove anything.
"""

from __future__ import annotations

from bisect import bisect
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
# A broker confirms a message that it drops for its duplicate id, but does not count it.
_SURE: Final = (pl.col("outcome") == "confirmed") & pl.col("duplicate_id").is_null()
#: For each kind of line: which of its lines tell of traffic, and the columns that they give.
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


#: Messages that came to and went from a destination, by minute of the writer's clock. Unconfirmed sends count as come,
#: too; `sure` counts only confirmed ones without a duplicate id.
TRAFFIC: Final = Partial(
    "traffic",
    ("writer", "dest", "subscription", "minute_us"),
    {"came": Adds.SUM, "sure": Adds.SUM, "went": Adds.SUM},
    _traffic,
    apart=("writer", "minute_us"),
)

#: The columns of `reconciled`.
BOOK: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "route": pl.String,
    "from_us": pl.Int64,  # the first of all counts that are used
    "to_us": pl.Int64,  # the last of them
    "begins_us": pl.List(pl.Int64),  # when each time begins that they are of, and when it ends
    "ends_us": pl.List(pl.Int64),
    "enqueued": pl.Int64,  # between the counts of the writer that watched longest
    "dequeued": pl.Int64,
    "expired": pl.Int64,  # while any writer watched
    # of these, what may have come while nobody watched, so that nobody knows whose it was
    "perhaps_older": pl.Int64,
    "size": pl.Int64,  # at the last count of the writer that watched longest
    "counted_us": pl.Int64,  # when the last count was, by the writer's corrected clock
    "other_in": pl.Int64,  # at least so many came that are in no line
    "other_out": pl.Int64,  # at least so many went that are in no line
    "unsure_out": pl.Int64,  # so many more may have: lines near a count may be of messages not counted
    "foreign_in": pl.Int64,  # of these at least so many came from senders that keep no log here
    "foreign_out": pl.Int64,  # of these at least so many went to consumers that keep no log here, or elsewhere
    "fewer_in": pl.Int64,  # so many more were confirmed to senders than the broker counts
    "fewer_out": pl.Int64,  # so many more were settled than the broker counts
    "surely_from_us": pl.Int64,  # what was between these was surely counted; null: of several queues
    "surely_to_us": pl.Int64,
    "whole": pl.Boolean,  # the counts cover all of the log without a break: no more went elsewhere
    "even": pl.Boolean,  # all that ever came is gone, and the counts have no break
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
    Compare the broker's counts with the log; one row for each route that the broker counted, columns as `BOOK`.

    Args:
        stats: as `STATS`, with `broker`.
        traffic: as `TRAFFIC`.
        expects: as `Routes.expects`.
        reads: as `Routes.reads`.
        clocks: of the writers.
        sockets: as `Context.sockets`.
        until_us: consider only messages that were sent before this time; None: all.

    """
    if stats.is_empty():
        return pl.DataFrame(schema=BOOK)
    watched = _watched(stats, clocks, until_us).join(
        _routes_of(expects, reads), on="dest", maintain_order="left"
    )
    if watched.is_empty():
        return pl.DataFrame(schema=BOOK)
    spans = _spans(watched)
    moved = pl.concat(
        [
            # One row has both numbers if a process reads a queue that it sends to.
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
    # A minute more on each side: a broker counts an ACK only when it processes it.
    by_then = pl.col("begun") <= pl.col("to_us") + MINUTE_US
    touched = by_then & (pl.col("ended") >= pl.col("from_us") - MINUTE_US)
    surely = pl.col("ended") <= pl.col("surely_to_us")
    further = _further(watched, spans, moved)
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
    held = (
        spans.join(logged, on="route", how="left")
        .join(further, on="route", how="left")
        .with_columns(
            pl.col("came_most", "went_most", "outside", "came_least", "went_least").fill_null(0),
            pl.col("came_ever", "sure_ever", "went_ever").fill_null(0),
            pl.col("further_in", "further_out", "further_expired", "perhaps_older").fill_null(0),
            pl.col("others_from_us", "others_to_us").fill_null([]),
        )
    )
    went = pl.col("dequeued") - pl.col("expired")
    # If the log has all messages that ever came, it also knows what went before the first count, which an app asks for
    # up to a minute after it began to use the queue. As many as may have come after the last count, so many of the
    # counted ones may be older than the log. If the broker counts fewer than came, its counters may have been reset.
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
    came_beyond = (pl.col("enqueued") - pl.col("came_most")).clip(lower_bound=0)
    went_beyond = (went - pl.col("went_most")).clip(lower_bound=0)
    beyond = {
        "in": came_beyond + pl.col("further_in"),
        # Messages that went before the first count may have been counted while other writers watched.
        "out": pl.max_horizontal(went_beyond + pl.col("further_out"), went_ever),
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
        pl.min_horizontal("from_us", pl.col("others_from_us").list.min()).alias("from_us"),
        pl.max_horizontal("to_us", pl.col("others_to_us").list.max()).alias("to_us"),
        pl.concat_list("from_us", "others_from_us").alias("begins_us"),
        pl.concat_list("to_us", "others_to_us").alias("ends_us"),
        pl.col("expired") + pl.col("further_expired"),
        whole.alias("whole"),
        even.alias("even"),
        (even & (went == pl.col("went_most"))).alias("proven"),
    ).select(*BOOK)


def sent_back(book: pl.DataFrame, plans: pl.DataFrame, routes: Routes) -> pl.Series:
    """
    Return the buckets of messages that may have been sent back for redelivery on routes where the broker counted more
    that went than the log does; `book` as `reconciled`, `plans` as that partial.

    Keys without a time are left out: they share 64 buckets, so looking at those would mean looking at nearly all.
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
    Return how many messages others may have got at most, in rows of `BOOK`, on routes where they surely got some.

    If the counts do not cover all the time, others may have got any number. And some of our settlements near the first
    and last count may not be among the counted ones, so that more of those went to others.
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
    """Return the route of each queue that is read: dest, route. Messages are sent back only to queues, not topics."""
    return routes.reads.filter(pl.col("subscription").is_null()).select("dest", "route")


def but_sent_back(
    book: pl.DataFrame,
    stories: pl.DataFrame,
    routes: Routes,
    clocks: Clocks,
    by_key: pl.DataFrame,
) -> pl.DataFrame:
    """
    Subtract from the others' traffic in `book` the messages that our consumers sent back to be delivered later.

    The broker counts the copy, which has an id of its own, as one more that came, and the message as one more that
    went. The line is written before the broker has the copy, so some may never have been sent back. A message surely
    was if it failed and then came under another id. For one that has not come again nobody knows: but if its sender
    keeps a log, it counts as not settled, and needs no further doubt.

    Args:
        book: as `reconciled`.
        stories: as that partial, of the buckets of `sent_back` at least.
        routes: who reads where.
        clocks: of the writers.
        by_key: as `balance.keys`.

    """
    window = ("begins_us", "ends_us", "surely_from_us", "surely_to_us")
    counted = book.filter(pl.col("other_out") > 0).select("route", *window)
    plans = (
        stories.filter(pl.col("kind") == PLANNED, ~pl.col("kept"))
        .join(_read_directly(routes), on="dest")
        .select(*KEY, "writer", "plan", "first_us", "until_us")
        .join(counted.explode("begins_us", "ends_us"), on="route")
    )
    if plans.is_empty():
        return book
    outcome, begun = pl.col("outcome"), clocks.earliest("first_us") <= pl.col("ends_us") + MINUTE_US
    since = pl.col("begins_us") - MINUTE_US
    inside = (clocks.earliest("first_us") >= pl.col("surely_from_us") + MINUTE_US) & (
        clocks.latest("first_us") <= pl.col("surely_to_us") - MINUTE_US
    )
    # What was sent back while nobody watched is in no count.
    tried = (
        plans.group_by(*KEY, "writer", "plan")
        .agg(
            inside.any().alias("inside"),
            (begun & (clocks.latest("until_us") >= since)).any().alias("in"),
            (begun & (clocks.latest("first_us") >= since)).any().alias("out"),
        )
        .group_by(KEY)
        .agg(pl.col("inside", "in", "out").sum(), pl.len().alias("tries"))
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
    Return how many messages surely came and went between the broker's first and last count: route, came_least,
    went_least.

    Only lines of writers that know no other broker count, for a route with a single counted queue, whose counters never
    fell, over links that lasted. On other links the counters may have been reset unnoticed, if by the next count they
    exceeded the old ones.
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


def _watched(stats: pl.DataFrame, clocks: Clocks, until_us: int | None) -> pl.DataFrame:
    """
    Return what the broker counted of each queue, between the first and last count of each writer; the longest first.

    The counts of one process may come from several of its sessions: they are of one broker all the same.
    Of the messages sent before `until_us` no more can wait than were in the queue at any moment since.
    """
    since = pl.lit(value=False) if until_us is None else pl.col("ts_us") >= until_us
    links = pl.struct("session_id", "epoch").n_unique()
    fewer = pl.col("enqueued").diff() < 0
    grown = [
        pl.when(fewer).then(pl.col(name)).otherwise(pl.col(name).diff()).sum().alias(name)
        for name in ("enqueued", "dequeued", "expired")
    ]
    return (
        stats.with_columns(
            (pl.col("ts_us") - clocks.believed()).alias("ts_us"),
            clocks.earliest("ts_us").alias("earliest_us"),
            clocks.latest("ts_us").alias("latest_us"),
        )
        .sort("ts_us")
        .group_by("broker", "dest", "writer", maintain_order=True)
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
    )


def _spans(watched: pl.DataFrame) -> pl.DataFrame:
    """Return the counts of each route by the writer that watched it longest; `watched` as `_watched`, with `route`."""
    return (
        watched.unique(["broker", "dest", "route"], keep="first", maintain_order=True)
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


#: The columns of `_further`: counts of other writers than the one that watched longest.
_FURTHER: Final[dict[str, pl.DataType | type[pl.DataType]]] = {
    "route": pl.String,
    "further_in": pl.Int64,
    "further_out": pl.Int64,
    "further_expired": pl.Int64,
    "perhaps_older": pl.Int64,
    "others_from_us": pl.List(pl.Int64),
    "others_to_us": pl.List(pl.Int64),
}


def _further(watched: pl.DataFrame, spans: pl.DataFrame, moved: pl.DataFrame) -> pl.DataFrame:
    """
    Return counts of the times before and after the writer that watched longest, as `_FURTHER`; one row for each route.

    The processes of a log are restarted more often than the log is audited, so several watch one after the other. Only
    routes of one queue count, links that lasted, and times that do not overlap: so nothing is counted twice, and all
    counts are of one run of one broker.
    """
    one = spans.filter(pl.col("queues") == 1).select("route")
    lasted = ~pl.col("restarted") & ~pl.col("relinked")
    told = (pl.sum_horizontal("enqueued", "dequeued") > 0) & pl.col("to_us").is_not_null()
    runs = (
        watched.join(one, on="route", maintain_order="left")
        .with_columns((pl.col("writer").cum_count().over("route") == 1).alias("longest"))
        .filter(pl.col("longest") | (lasted & told & pl.col("from_us").is_not_null()))
    )
    if runs["longest"].all():
        return pl.DataFrame(schema=_FURTHER)
    others = runs.filter(_apart(runs)).filter(~pl.col("longest")).sort("route", "from_us")
    others = others.with_row_index("nth").with_columns(pl.col("nth").cast(pl.Int64))
    went = pl.col("dequeued") - pl.col("expired")
    return (
        others.with_columns(_around(others, moved, name).alias(name) for name in ("came", "went"))
        .group_by("route")
        .agg(
            (pl.col("enqueued") - pl.col("came")).clip(lower_bound=0).sum().alias("further_in"),
            (went - pl.col("went")).clip(lower_bound=0).sum().alias("further_out"),
            pl.col("expired").sum().alias("further_expired"),
            # What waited at the first count came unseen: it may be of others, whom no count tells of.
            pl.min_horizontal("expired", "size_before").sum().alias("perhaps_older"),
            pl.col("from_us", "to_us").name.prefix("others_"),
        )
    )


def _around(runs: pl.DataFrame, moved: pl.DataFrame, name: str) -> pl.Series:
    """
    Return how many messages came, or went, at most in each run and the minute around it; runs by `route` and time,
    `nth`.

    A row of `moved` may belong to several consecutive runs: it is added at the first, and subtracted after the last.
    """
    rows = moved.filter(pl.col(name) > 0).select(
        "route",
        name,
        (pl.col("begun") - MINUTE_US).alias("since"),
        (pl.col("ended") + MINUTE_US).alias("until"),
    )
    ends = runs.select("route", "to_us", pl.col("nth").alias("first")).sort("to_us")
    begins = runs.select("route", "from_us", (pl.col("nth") + 1).alias("behind")).sort("from_us")
    found = (
        rows.sort("since")
        .join_asof(
            ends,
            left_on="since",
            right_on="to_us",
            by="route",
            strategy="forward",
            check_sortedness=False,
        )
        .sort("until")
        .join_asof(
            begins,
            left_on="until",
            right_on="from_us",
            by="route",
            strategy="backward",
            check_sortedness=False,
        )
        .filter(pl.col("first") < pl.col("behind"))
    )
    changes = pl.concat(
        [
            found.select(pl.col("first").alias("nth"), name),
            found.select(pl.col("behind").alias("nth"), -pl.col(name)),
        ]
    )
    each = runs.select("nth").join(
        changes.group_by("nth").agg(pl.col(name).sum()), on="nth", how="left", maintain_order="left"
    )
    return each[name].fill_null(0).cum_sum()


def _apart(runs: pl.DataFrame) -> pl.Series:
    """Return for each run, longest first, whether it overlaps no run of its route that was chosen before it."""
    taken: dict[str, list[tuple[int, int]]] = {}

    def is_free(route: str, from_us: int, to_us: int) -> bool:
        spans = taken.setdefault(route, [])
        at = bisect(spans, (from_us, to_us))
        before, after = spans[max(at - 1, 0) : at], spans[at : at + 1]
        free = all(end < from_us for _, end in before) and all(to_us < begin for begin, _ in after)
        if free:
            spans.insert(at, (from_us, to_us))
        return free

    rows = runs.select("route", "from_us", "to_us").iter_rows()
    return pl.Series([is_free(*row) for row in rows], dtype=pl.Boolean)
