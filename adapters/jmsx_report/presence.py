"""
From when to when a subscription existed: it is owed no message that was sent before it began or after it was removed.

A subscription exists once it is first read, or delivers a message; it ends with a `sub.removed` line, and messages that
it still had are deleted with it. Where all readers have closed in order, nobody reads what is sent from then on. The
times are converted to each sender's clock. Names in back-quotes are those of balance.py.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.clocks import Clocks
from jmsx_report.fanout import Routes
from jmsx_report.flows import BUCKET_US, PLAUSIBLE_US, REMOVED
from jmsx_report.nothing import of_rows

#: The columns that identify one copy: the message, and the route that must get it.
KEY: Final = ("msg_key", "route")
_MS_US: Final = 1000


@of_rows
def beginnings(
    fanned: pl.DataFrame,
    compared: pl.DataFrame,
    routes: Routes,
    readers: pl.DataFrame,
    clocks: Clocks,
) -> pl.DataFrame:
    """
    Return when each subscription of a topic began to get copies: sender, route, begin_us (by the sender's clock, in its
    last stretch), whole_us (the same, if that clock was never set).

    A subscription existed at the latest when it was first read, and when the oldest message was sent that it ever
    delivered, by any of those who sent then. `fanned` as `sends_by_route`, `compared` as `buckets`, `readers` as
    `READERS`.
    """
    sent = fanned.select("route", "bucket", sender="writer").unique()
    given = (
        sent.join(gave(compared), on=["route", "bucket"], how="semi")
        .group_by("route", "bucket")
        .agg(
            (clocks.latest("bucket", "sender").max() + BUCKET_US).alias("latest_us"),
            pl.when(pl.len() == 1).then(pl.col("sender").first()).alias("sender"),
        )
    )
    oldest = given.group_by("route").agg(pl.col("latest_us").min())
    one = given.drop_nulls("sender").select("sender", "route", key_us="bucket")
    own_us = pl.col("key_us") + pl.col("most_us").fill_null(0) + BUCKET_US
    own = (
        one.join(clocks.shifts(one.drop("route")), on=["sender", "key_us"], how="left")
        .group_by("sender", "route")
        .agg(own_us.min().alias("own_us"))
    )
    read = (
        readers.join(routes.reads, on=["dest", "subscription"], nulls_equal=True)
        .group_by("route")
        .agg(clocks.latest("first_us").min().alias("read_us"))
    )
    by_others = pl.min_horizontal("latest_us", "read_us") + clocks.lately("sender")
    return (
        sent.select("sender", "route")
        .unique()
        .join(oldest, on="route", how="left")
        .join(own, on=["sender", "route"], how="left")
        .join(read, on="route", how="left")
        .select("sender", "route", pl.min_horizontal("own_us", by_others).alias("begin_us"))
        .with_columns(whole_us=pl.when(~clocks.was_set("sender")).then("begin_us"))
    )


def gave(compared: pl.DataFrame) -> pl.DataFrame:
    """Keep the rows of `buckets` that have a time and in which messages were settled."""
    return compared.filter((pl.col("settled_n") > 0) & (pl.col("bucket") >= 0))


@of_rows
def removals(
    spans: pl.DataFrame, sends: pl.DataFrame, compared: pl.DataFrame, clocks: Clocks
) -> pl.DataFrame:
    """
    Return from when to when a durable subscription did not exist: sender, route, at_us, removed_us, again_us, gave_us,
    was_set.

    `at_us` is when it was removed, by corrected clocks; the next three are by the sender's clock in its last stretch
    (`was_set`: it has several). `again_us` is when it began again, rather too late than too early; null: it did not. It
    began again, as in `beginnings`, when it was next opened, or with the oldest message that it delivered and that
    surely was sent after the removal. It is owed no message that was sent meanwhile. Messages that were sent before and
    not settled were deleted with it, except those it had passed over: messages come in order, and before its removal it
    delivered one that was sent at `gave_us` or later (null: none). `spans` as that partial, `sends` as
    `sends_by_route`, `compared` as `buckets`.
    """
    told = spans.with_columns(
        clocks.earliest("ts_us").alias("earliest_us"), clocks.latest("ts_us").alias("latest_us")
    )
    ends = (
        told.filter(kind=REMOVED)
        .select(
            "writer",
            "ts_us",
            (pl.col("ts_us") - clocks.believed()).alias("at_us"),
            route="subscription",
            end_us="latest_us",
            begin_us="earliest_us",
        )
        .with_row_index("end")
    )
    opened = told.filter(pl.col("kind") != REMOVED)
    of_one = pl.col("writer") == pl.col("writer_open")
    afterwards = pl.when(of_one).then(pl.col("ts_us_open") > pl.col("ts_us"))
    opens = (
        ends.join(opened, left_on="route", right_on="subscription", suffix="_open")
        .filter(afterwards.otherwise(pl.col("earliest_us") > pl.col("end_us")))
        .select("end", begun_us="latest_us")
    )
    sent = sends.join(ends, on="route", how="semi").select("route", "bucket", "writer").unique()
    gave_some = (
        sent.join(gave(compared), on=["route", "bucket"], how="semi")
        .group_by("route", "bucket")
        .agg(
            clocks.earliest("bucket").min().alias("earliest_us"),
            (clocks.latest("bucket").max() + BUCKET_US).alias("latest_us"),
            pl.when(pl.len() == 1).then(pl.col("writer").first()).alias("sender"),
        )
    )
    beside = gave_some.join(ends.select("end", "route", "begin_us", "end_us"), on="route")
    given = beside.filter(pl.col("earliest_us") >= pl.col("end_us")).select(
        "end", begun_us="latest_us"
    )
    begun = pl.concat([opens, given]).group_by("end").agg(pl.col("begun_us").min())
    last = (
        beside.filter(pl.col("latest_us") <= pl.col("begin_us"))
        .group_by("end")
        .agg(pl.col("earliest_us").max().alias("given_us"))
    )
    # The time in a key is in whole milliseconds.
    removed_us = (pl.col("at_us") + clocks.believed("sender")) // _MS_US * _MS_US
    told_by = ends.join(sent.select("route", sender="writer").unique(), on="route").with_columns(
        removed_us.alias("removed_us")
    )
    return (
        told_by.join(begun, on="end", how="left")
        .join(last, on="end", how="left")
        .join(_own_last(gave_some, told_by, clocks), on=["end", "sender"], how="left")
        .select(
            "sender",
            "route",
            "at_us",
            "removed_us",
            (pl.col("begun_us") + clocks.lately("sender")).alias("again_us"),
            pl.max_horizontal("own_us", pl.col("given_us") + clocks.least("sender")).alias(
                "gave_us"
            ),
            clocks.was_set("sender").alias("was_set"),
        )
    )


@of_rows
def _own_last(gave_some: pl.DataFrame, ends: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """
    Return the time of each sender's last message that a subscription surely delivered before its end.

    Columns: end, sender, own_us (by the sender's clock, whatever others show). `gave_some`: route, bucket, sender
    (null: several sent then); `ends`: end, route, sender, removed_us.
    """
    own = gave_some.drop_nulls("sender").select("route", "sender", key_us="bucket")
    return (
        own.join(clocks.shifts(own.select("sender", "key_us")), on=["sender", "key_us"], how="left")
        .with_columns(
            (pl.col("key_us") + pl.col("least_us").fill_null(0)).alias("own_us"),
            (pl.col("key_us") + pl.col("most_us").fill_null(0) + BUCKET_US).alias("to_us"),
        )
        .join(ends, on=["route", "sender"])
        .filter(pl.col("to_us") <= pl.col("removed_us"))
        .group_by("end", "sender")
        .agg(pl.col("own_us").max())
    )


#: One consumer of one session, whatever its link.
_OF_SESSION: Final = ("writer", "session_id", "dest", "consumer")


@of_rows
def closed(
    readers: pl.DataFrame,
    heard_of: pl.DataFrame,
    subscriptions: pl.DataFrame,
    of_consumers: pl.DataFrame,
    *,
    routes: Routes,
) -> pl.DataFrame:
    """
    Return the routes of which every reader was closed in order, with each of these: route, receiver, closed_us.

    `closed_us` is when the last of its consumers was closed, by the clock of the writer `receiver`. A consumer opens
    anew on each link, and is closed once: so on its last link as many were closed as were opened under its name, and in
    all no fewer than were open there at once; and nothing is told of it afterwards. The lines of all these must be
    there. `readers` and `heard_of` as in `Books`, `subscriptions` and `of_consumers` as those partials.
    """
    name = list(_OF_SESSION)
    one = ("writer", "dest", "consumer")
    last_link = pl.col("epoch") == pl.col("epoch").max()
    links = (
        subscriptions.group_by(name)
        .agg(
            pl.col("closed_us", "closed_seq").max(),
            pl.col("opened").filter(last_link).sum().alias("opened_last"),
            pl.col("closed").filter(last_link).sum().alias("closed_last"),
            pl.col("opened").max(),
            pl.col("closed").sum(),
        )
        .join(
            of_consumers.select(*name, pl.max_horizontal("seq", "done_seq").alias("told_seq")),
            on=name,
            how="full",
            coalesce=True,
            nulls_equal=True,
        )
    )
    in_order = (
        (pl.col("opened_last") > 0)
        & (pl.col("opened_last") == pl.col("closed_last"))
        & (pl.col("opened") <= pl.col("closed"))
        & (pl.col("told_seq") < pl.col("closed_seq"))
    )
    ends = links.group_by(one).agg(
        in_order.fill_null(value=False).all().alias("in_order"), pl.col("closed_us").max()
    )
    # Nobody knows what subscription it has, of whom only its closing tells.
    unknown = heard_of.join(routes.reads, on="dest")
    known = readers.join(routes.reads, on=["dest", "subscription"], nulls_equal=True)
    return (
        pl.concat(rows.select(*one, "route", "last_us") for rows in (known, unknown))
        .join(ends, on=list(one), how="left")
        # One process writes its lines in order, whatever its clock shows.
        .with_columns(pl.max_horizontal("closed_us", "last_us").alias("closed_us"))
        .filter(
            (pl.col("in_order") & pl.col("closed_us").is_between(*PLAUSIBLE_US))
            .fill_null(value=False)
            .all()
            .over("route")
        )
        .group_by("route", receiver="writer")
        .agg(pl.col("closed_us").max())
    )


def _is_away(from_us: pl.Expr, to_us: pl.Expr) -> pl.Expr:
    """Return whether a subscription did not exist from `from_us` to `to_us`; for rows of `removals`."""
    return (from_us >= pl.col("removed_us")) & (to_us <= pl.col("again_us")).fill_null(value=True)


@of_rows
def gone_with(
    removed: pl.DataFrame, by_key: pl.DataFrame, clocks: Clocks, passes_us: int
) -> pl.DataFrame:
    """
    Return the copies for which perhaps no subscription existed (`away`), or that perhaps were deleted with it (`went`).

    `removed` as `removals`, `by_key` as `keys` with the columns of `Clocks.shifts` and `waits`. A subscription has
    passed over a message if it delivered one that was sent `passes_us` after that could be had.
    """
    sent_us = pl.coalesce("key_us", "hour_us")
    there_us = pl.max_horizontal(
        sent_us + pl.col("most_us").fill_null(0),
        "wait_most_us",
        pl.col("back_us") + clocks.lately("sender"),
    )
    passed = (pl.col("there_us") + passes_us <= pl.col("gave_us")).fill_null(value=False)
    return (
        by_key.select(
            *KEY,
            "sender",
            (sent_us + pl.col("least_us").fill_null(0)).alias("least_us"),
            (sent_us + pl.col("most_us").fill_null(0)).alias("most_us"),
            there_us.alias("there_us"),
        )
        .join(removed, on=["sender", "route"])
        .group_by(KEY)
        .agg(
            _is_away(pl.col("most_us"), pl.col("least_us") + 1).any().alias("away"),
            ((pl.col("least_us") < pl.col("removed_us")) & ~passed).any().alias("went"),
        )
        .filter(pl.col("away") | pl.col("went"))
    )


@of_rows
def away(removed: pl.DataFrame, compared: pl.DataFrame) -> pl.DataFrame:
    """Return the rows of `buckets` whose messages were sent while no subscription existed: route, bucket, away."""
    # By the clocks of all senders of the route.
    whole = (
        removed.group_by("route", "at_us")
        .agg(pl.col("removed_us").max(), pl.col("again_us").min(), pl.col("was_set").any())
        .filter(~pl.col("was_set"))
    )
    return (
        compared.select("route", "bucket")
        .join(whole, on="route")
        .filter(_is_away(pl.col("bucket"), pl.col("bucket") + BUCKET_US))
        .select("route", "bucket", away=True)
        .unique()
    )
