"""
From when to when a subscription was there: what is sent before it begins, or after it was removed, nobody owes it.

It is there when it is first read, or gives a message; it ends with a line that says so, and what it still had goes with
it. Senders have clocks of their own, and it is asked by those. What stands in back-quotes is in balance.py.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx_report.clocks import Clocks
from jmsx_report.fanout import Routes
from jmsx_report.flows import BUCKET_US, REMOVED
from jmsx_report.nothing import of_rows

#: A message, and who is to get it.
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
    Return when copies of a topic's messages began to be kept: sender, route, begin_us (by the sender's clock, in the
    last stretch of it), whole_us (the same, if that clock was never set).

    A subscription gets what is sent from then on. It is there at the latest when it is first read, and at the time of
    the oldest message that it ever gave, of whichever of those who sent then. `fanned` as `sends_by_route` has them,
    `compared` as `buckets`, `readers` as `READERS`.
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
    """Keep the rows of `buckets` of which something was settled, at a time that is known."""
    return compared.filter((pl.col("settled_n") > 0) & (pl.col("bucket") >= 0))


@of_rows
def removals(
    spans: pl.DataFrame, sends: pl.DataFrame, compared: pl.DataFrame, clocks: Clocks
) -> pl.DataFrame:
    """
    Return from when to when a durable subscription was not there: sender, route, at_us, removed_us, again_us, gave_us,
    was_set.

    `at_us` is when it was removed, set right; the next three are by the sender's clock, in the last stretch of it
    (`was_set`: it has several), and `again_us` is rather too late than too early, and null where it did not begin
    again. It did, as in `beginnings`, when it was opened next, or with the oldest message that was surely sent since
    then and that it gave. What is sent meanwhile nobody owes it. What was sent before, and not settled, went with it,
    but not what it had passed over: messages come in order, and before its removal it gave one that was sent at
    `gave_us`, or later (null: none). `spans` as that partial, `sends` as `sends_by_route`, `compared` as `buckets`.
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
    # A key tells its time in whole milliseconds.
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
    Return the last message of each sender that a subscription surely gave before its end: end, sender, own_us.

    Its time is by the sender's clock, whatever others show. `gave_some`: route, bucket, sender (null: several have
    sent then); `ends`: end, route, sender, removed_us.
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


def _is_away(from_us: pl.Expr, to_us: pl.Expr) -> pl.Expr:
    """Return whether a subscription was not there from then to then; a row of `removals`."""
    return (from_us >= pl.col("removed_us")) & (to_us <= pl.col("again_us")).fill_null(value=True)


@of_rows
def gone_with(
    removed: pl.DataFrame, by_key: pl.DataFrame, clocks: Clocks, passes_us: int
) -> pl.DataFrame:
    """
    Return the copies that no subscription may have been there for (`away`), or that may have gone with it (`went`); as
    `removals` and `keys`, with what `Clocks.shifts` and `waits` tell of these.

    A subscription had passed over what it did not give before one that was sent `passes_us` after that was there.
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
    """Return the rows of `buckets` that were sent while no subscription was there: route, bucket, away."""
    # By the clocks of all that send there.
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
