"""Sent against settled: the verdicts, and the tables `audit` and `duplicates`."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

import polars as pl

from jmsx.core.events import LateOutcome
from jmsx_report import balance, brokerbook, copies, flows, presence
from jmsx_report.additive import Partial
from jmsx_report.books import Books, second_look, third_look
from jmsx_report.clocks import UNKNOWN_US
from jmsx_report.conclusions import (
    ALL_NUMBERS,
    SAMPLED,
    conclusions,
    explained,
    is_strange,
    numbers,
    placed_gaps,
    rows_of,
    with_sent_to,
)
from jmsx_report.events import CONTRADICTION, NAMESAKE
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_rows
from jmsx_report.period import stories_within
from jmsx_report.roster import kept
from jmsx_report.summary import summary

if TYPE_CHECKING:
    from collections.abc import Callable


#: The prefix of the duplicate ids that jmsx itself gives to a handler's outputs.
_OWN_ID: Final = "jmsx:"
_STRANGERS: Final = {"route": pl.String} | dict.fromkeys(
    ("bucket", "key_us", "back_us", "n"), pl.Int64
)


@dataclass(frozen=True, slots=True)
class Audit:
    """The result of the audit."""

    #: service, broker, dest, subscription, hour_us (of sending), the numbers, verdict, reasons.
    table: pl.DataFrame
    #: service, broker, dest, subscription, hour_us, kind (settlement, effect, dead_after_done), cause, n, sample_keys,
    #: first_us, last_us.
    duplicates: pl.DataFrame
    summary: dict[str, Any]  #: ready for JSON: see `ReportResult.audit`
    roster: pl.DataFrame  #: who was heard of, to be known by the next report


def audit(
    held: Books, look: Callable[[Callable[[pl.Series], Partial], pl.Series], pl.DataFrame]
) -> Audit:
    """Audit `held`; `look(of, wanted)` must read the log again and return the merged rows of partial `of(wanted)`."""
    buckets = second_look(held)
    told = look(flows.stories, buckets)
    found, unsettled = _judged(held, told)
    ids = told.filter(pl.col("msg_key").is_in(unsettled.implode()))["duplicate_id"].drop_nulls()
    if ids.is_empty():
        return found
    # A message with the same duplicate id that was settled, or one of a stranger, may lie in a balanced bucket or be of
    # another time.
    of_same_ids = look(flows.sent_with, ids.unique())["bucket"]
    wanted = pl.concat([buckets, of_same_ids, third_look(held)]).unique().sort()
    return _judged(held, look(flows.stories, wanted))[0]


def _judged(held: Books, told: pl.DataFrame) -> tuple[Audit, pl.Series]:
    """Audit by the stories `told`; also return the keys that were, or may have been, sent and not settled in time."""
    stories = stories_within(balance.but_dropped(told, held.context.sockets), held.asked)
    by_key = balance.keys(stories, held.doubts, held.routes, held.clocks)
    if held.sent_back.len():
        book = brokerbook.but_sent_back(held.book, told, held.routes, held.clocks, by_key)
        held = replace(held, book=book)
    senders = by_key.select("sender", "route").drop_nulls().unique()
    now = balance.moments(
        senders,
        held.complete,
        readers=held.readers,
        routes=held.routes,
        clocks=held.clocks,
        until=held.horizon,
    )
    planned = balance.plans(
        stories,
        held.routes,
        readers=held.readers,
        closings=held.closings,
        found=held.complete,
    )
    died = frozenset(
        held.complete.writers.filter(pl.col("ended") == "recovered")["writer"]
    ) | frozenset(held.horizon.silent["writer"])
    found = balance.causes(
        balance.judged(
            by_key,
            held.routes,
            begun=held.begun,
            removed=held.removed,
            now=now,
            waits=balance.waits(planned, by_key, held.clocks),
            clocks=held.clocks,
            deadline_us=held.deadline_us,
        ),
        died,
    )
    # Not all messages of foreign senders were looked at key by key: only repeats of them count here. `settlements`
    # counts all of them.
    twice = pl.sum_horizontal(*balance.TWICE, "doubtful_duplicates") > 0
    # Lines of a writer that has two different lines with one number prove nothing.
    doubted = pl.col("readers").list.eval(pl.element().is_in(_contradicting(held))).list.any()
    found = found.filter(
        ~is_strange(held) | (twice & ~doubted.fill_null(value=False))
    ).with_columns(pl.when(is_strange(held)).then(0).otherwise("foreign").alias("foreign"))
    missing = placed_gaps(held)
    in_hand = balance.in_hand(
        held.in_hand,
        planned,
        held.routes,
        senders=held.senders,
        strange=_of_strangers(found, held),
        readers=held.readers,
        closings=held.closings,
        found=held.complete,
        until=held.horizon,
        clocks=held.clocks,
    )
    found = _but_sent_on(found, stories, held)
    found = _but_given_up(found, stories, held)
    found = _with_strangers(found, stories, told, held)
    found = explained(_but_forwarded(found, stories, missing, held), missing, in_hand, held)
    found = _but_awaited(found, held)
    found = with_sent_to(found, held)
    gone = copies.unclaimed(
        held.copies,
        held.compared,
        stories,
        held.routes,
        book=held.book,
        missing=missing,
        told=held.in_hand,
        clocks=held.clocks,
    )
    numbered = numbers(held, found, gone)
    rows = conclusions(rows_of(numbered, found), missing, held)
    audited = Audit(
        table=placed(rows, held).sort("dest", "subscription", "hour_us", nulls_last=True),
        duplicates=duplicates(found, held),
        summary=summary(
            held,
            found,
            rows,
            numbered=numbered,
            missing=missing,
            stories=stories,
            planned=planned,
            in_hand=in_hand,
            gone=gone,
        ),
        roster=kept(held.roster, held.terms.before).sort("writer"),
    )
    unsettled = pl.sum_horizontal("unaccounted", "unanswered", "awaiting_reader") > 0
    return audited, found.filter(unsettled)["msg_key"]


def _of_strangers(found: pl.DataFrame, held: Books) -> pl.Series:
    """Return the routes on which messages were delivered whose sender has no log here."""
    foreign = balance.deliveries_by_route(held.beyond.filter(pl.col("bucket") < 0), held.routes)
    return pl.concat(
        [
            found.filter(~pl.col("sent_anywhere"))["route"],
            held.deliveries.filter(is_strange(held))["route"],
            foreign["route"],
        ]
    ).unique()


def _contradicting(held: Books) -> list[str]:
    """Return the writers that have two different lines with the same number."""
    aside = held.terms.quarantine
    if aside is None:
        return []
    return (
        aside.filter(pl.col("what").is_in([CONTRADICTION, NAMESAKE]))["writer"]
        .drop_nulls()
        .unique()
        .to_list()
    )


def _but_forwarded(
    found: pl.DataFrame, stories: pl.DataFrame, missing: pl.DataFrame, held: Books
) -> pl.DataFrame:
    """
    Do not count a message as repeated that was done on two brokers, if lines of the processes involved are missing.

    A process that did it on one broker may have forwarded it to the other under its key, and the send may be a missing
    line. A process that lacks no line, and has no line of such a send, has not forwarded it.
    """
    if missing.is_empty() or found.is_empty():
        return found
    lacking = missing["writer"].drop_nulls().unique().implode()
    sent_on = stories.filter(pl.col("kind") == "send").select("msg_key", "writer", sent_on=True)
    brokers = held.context.sockets.select("writer", "session_id", "epoch", "broker")
    perhaps = (
        balance.deliveries_by_route(stories.filter(pl.col("effects") > 0), held.routes)
        .filter(pl.col("route").is_in(missing["route"].unique().implode()))
        .join(brokers, on=["writer", "session_id", "epoch"], how="left", nulls_equal=True)
        .join(sent_on.unique(), on=["msg_key", "writer"], how="left")
        .group_by("msg_key", "route")
        .agg(
            pl.col("broker").n_unique().alias("brokers"),
            (pl.col("writer").is_in(lacking) | pl.col("sent_on").fill_null(value=False))
            .any()
            .alias("by_them"),
        )
        .filter(pl.col("by_them") & (pl.col("brokers") > 1))
        .select("msg_key", "route", forwarded=True)
    )
    if perhaps.is_empty():
        return found
    return (
        found.join(perhaps, on=["msg_key", "route"], how="left")
        .with_columns(
            pl.when("forwarded").then(0).otherwise(name).alias(name) for name in balance.TWICE
        )
        .drop("forwarded")
    )


def _but_sent_on(found: pl.DataFrame, stories: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Do not count as sent and done again what a process did and then forwarded under its key to another broker."""
    resent = found.filter(pl.col("resent") > 0).select("msg_key", "route", "readers")
    if resent.is_empty():
        return found
    sent_on = (
        balance.sends_by_route(stories, held.routes)
        .join(
            held.context.sockets.select("writer", "session_id", "epoch", "broker"),
            on=["writer", "session_id", "epoch"],
            how="left",
            nulls_equal=True,
        )
        .join(resent, on=["msg_key", "route"])
        .group_by("msg_key", "route")
        .agg(
            pl.col("n").sum().alias("sends"),
            pl.col("broker").n_unique().alias("brokers"),
            pl.col("writer").is_in("readers").any().alias("by_them"),
        )
        .filter(pl.col("by_them") & (pl.col("sends") == pl.col("brokers")))
        .select("msg_key", "route", sent_on=True)
    )
    return (
        found.join(sent_on, on=["msg_key", "route"], how="left")
        .with_columns(pl.when("sent_on").then(0).otherwise("resent").alias("resent"))
        .drop("sent_on")
    )


def _but_given_up(found: pl.DataFrame, stories: pl.DataFrame, held: Books) -> pl.DataFrame:
    """
    Count one message of a key as `elsewhere` if it may be a dead letter without a line.

    That is so if its last delivery was to dead-letter it, and the link was lost before the broker answered, unless
    somebody surely got it afterwards.
    """
    late = pl.col("kind") == flows.LATE
    told = balance.with_hosts(balance.deliveries_by_route(stories, held.routes), held.clocks)
    given_up = told.filter(late & (pl.col("outcome") == LateOutcome.IN_DOUBT.value))
    if given_up.is_empty():
        return found
    told = told.filter(~late).with_columns(pl.col("recv_us").alias("last_us"))
    again = balance.surely_before(held.clocks, "", "_again").any()
    perhaps = (
        given_up.join(told, on=["msg_key", "route"], how="left", suffix="_again")
        .group_by("msg_key", "route", "writer", "last_us")
        .agg(again.alias("again"))
        .filter(~pl.col("again"))
        .select("msg_key", "route", perhaps=True)
        .unique()
    )
    return (
        found.join(perhaps, on=["msg_key", "route"], how="left")
        .with_columns(
            pl.when(pl.col("perhaps") & (pl.col("unaccounted") > 0))
            .then(pl.max_horizontal("elsewhere", 1))
            .otherwise("elsewhere")
            .alias("elsewhere")
        )
        .drop("perhaps")
    )


def _but_awaited(found: pl.DataFrame, held: Books) -> pl.DataFrame:
    """
    Move to `awaiting_reader` messages that nothing explains, of routes whose readers have all closed in order.

    Only those are moved that no consumer ever had, and that surely were not overdue when the last reader closed. Where
    no deadline is asked for, they may be a minute old then, for they may have been on their way. None is moved if
    anything is missing from the log, of any writer, because another reader may have had it; nor where the broker
    counts, for it has said what waits. Adds `closed_us`: when the last reader closed, by corrected clocks (else null).
    """
    lost = pl.col("unaccounted") > pl.col("explained")
    never_had = pl.col("last_us").is_null() & pl.col("wait_most_us").is_null()
    awaited = _awaited(found.filter(lost, never_had) if held.whole else found.clear(), held)
    there = pl.col("closed_us").is_not_null()
    return (
        found.join(awaited, on=list(presence.KEY), how="left")
        .with_columns(
            pl.when(there)
            .then(pl.col("unaccounted") - pl.col("explained"))
            .otherwise(0)
            .alias("awaiting_reader"),
            (pl.col("proven") & ~there).alias("proven"),
        )
        .with_columns((pl.col("unaccounted") - pl.col("awaiting_reader")).alias("unaccounted"))
        .with_columns(pl.min_horizontal("explicable", "unaccounted").alias("explicable"))
    )


@of_rows
def _awaited(lost: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Return those of the keys `lost` that may wait for a reader: msg_key, route, closed_us; as `_but_awaited`."""
    clocks, deadline_us = held.clocks, held.terms.deadline_us or balance.GRACE_US
    closed = presence.closed(
        held.readers,
        held.heard_of,
        held.subscriptions,
        held.of_consumers,
        routes=held.routes,
    ).filter(~pl.col("route").is_in(held.book["route"].implode()))
    # As far as both clocks are proven to be wrong, by the broker's or by messages that went from one to the other.
    # A key may be of another clock than its sender's, and then it was sent at the latest when that was told.
    gone, gone_us = pl.col("closed_us"), clocks.latest("closed_us", "receiver")
    ahead_us = pl.col("at_most_us").clip(upper_bound=0).fill_null(0)
    later = (
        (clocks.earliest("sent_us", "sender") + deadline_us > gone_us)
        & (pl.col("sent_us") + deadline_us > gone - ahead_us)
        & (pl.col("answered_us") + deadline_us > gone_us)
    )
    steady = ~(clocks.was_set("sender") | clocks.was_set("receiver"))
    return (
        lost.select(
            *presence.KEY,
            "sender",
            "answered_us",
            pl.coalesce("key_us", "hour_us").alias("sent_us"),
        )
        .filter(pl.col("sent_us").is_between(*flows.PLAUSIBLE_US))
        .join(closed, on="route")
        .join(clocks.pairs, on=["sender", "receiver"], how="left")
        .group_by(presence.KEY)
        .agg(
            (later & steady).fill_null(value=False).all().alias("later"),
            (gone - clocks.believed("receiver")).max().alias("closed_us"),
        )
        .filter("later")
        .drop("later")
    )


def _with_strangers(
    found: pl.DataFrame, stories: pl.DataFrame, told: pl.DataFrame, held: Books
) -> pl.DataFrame:
    """
    Add to keys sent with a duplicate id how many strangers' messages, sent by nobody in this log, were settled on the
    route: `made` before the send had ended, and `others`, whose time is unknown. Both are null without a duplicate id.

    A stranger's message may have had the same id (as if the log of the process that tried first is missing), and the
    broker then dropped ours. Ids that jmsx makes are unique; one that an application gives (`common_id`) may be shared.
    """
    ids = (
        balance.sends_by_route(stories.drop_nulls("duplicate_id"), held.routes)
        .group_by("msg_key", "route")
        .agg((~pl.col("duplicate_id").str.starts_with(_OWN_ID)).any().alias("common_id"))
    )
    if ids.is_empty():
        none = pl.lit(None, pl.Int64)
        return found.with_columns(made=none, others=none, common_id=pl.lit(value=False))
    here = found.select(
        "route", *("bucket", "key_us", "back_us"), n=pl.sum_horizontal("unsent", "foreign")
    )
    strangers = pl.concat([here, _strangers_beyond(stories, told, held)]).filter(pl.col("n") > 0)
    timed = pl.col("bucket") >= 0
    # The clock of a stranger is unknown; but a message was made before it was done.
    unsent = (
        strangers.filter(timed)
        .select("route", pl.min_horizontal("key_us", "back_us").alias("made_us"))
        .sort("made_us")
        .with_columns(pl.int_range(1, pl.len() + 1).over("route").alias("made"))
    )
    by_then = (pl.col("answered_us") + UNKNOWN_US).alias("by_then_us")
    before = (
        found.join(ids, on=["msg_key", "route"], how="semi")
        .select("msg_key", "route", by_then)
        .drop_nulls("by_then_us")
        .sort("by_then_us")
        .join_asof(
            unsent,
            left_on="by_then_us",
            right_on="made_us",
            by="route",
            check_sortedness=False,  # it is sorted, but Polars cannot check that by route
        )
        .select("msg_key", "route", "made")
    )
    counted = held.deliveries.filter(
        is_strange(held) & pl.col("outcome").is_in(list(flows.SETTLES))
    )
    foreign = (
        pl.concat([counted.select("route", "n"), strangers.filter(~timed).select("route", "n")])
        .group_by("route")
        .agg(pl.col("n").sum().alias("others"))
    )
    has_id = pl.col("common_id").is_not_null()
    return (
        found.join(ids, on=["msg_key", "route"], how="left")
        .join(before, on=["msg_key", "route"], how="left")
        .join(foreign, on="route", how="left")
        .with_columns(
            pl.when(has_id).then(pl.col("made").fill_null(0)).alias("made"),
            pl.when(has_id).then(pl.col("others").fill_null(0)).alias("others"),
            pl.col("common_id").fill_null(value=False),
        )
    )


def _strangers_beyond(stories: pl.DataFrame, told: pl.DataFrame, held: Books) -> pl.DataFrame:
    """
    Return strangers' messages (sent by nobody here) of times outside the period that were settled.

    Columns: route, bucket, key_us, back_us, n. `stories` are those rows of `told` that are of the period.
    """
    if held.beyond.is_empty():
        return pl.DataFrame(schema=_STRANGERS)
    sent = told.filter(pl.col("kind") == "send")["msg_key"]
    known = pl.concat([sent, stories["msg_key"]]).drop_nulls()
    settled = told.filter(
        (pl.col("kind") == "delivery")
        & pl.col("outcome").is_in(list(flows.SETTLES))
        & ~pl.col("msg_key").is_in(known.unique().implode())
    )
    one_by_one = (
        balance.deliveries_by_route(settled, held.routes)
        .filter((pl.col("bucket") >= 0) | pl.col("bucket").is_in(held.own_beyond.implode()))
        .group_by("route", "msg_key", "bucket", "key_us")
        .agg(held.clocks.latest("last_us").max().alias("back_us"), pl.col("n").sum())
    )
    strange = held.compared_beyond.filter(
        (pl.col("bucket") < 0) & ~pl.col("bucket").is_in(held.own_beyond.implode())
    ).select("route", "bucket", n="settled_n")
    return pl.concat([one_by_one.drop("msg_key"), strange], how="diagonal").select(*_STRANGERS)


def placed(rows: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Return the table `audit`, from rows like those of `conclusions`."""
    return (
        rows.lazy()
        .join(held.places.lazy(), on="route", how="left")
        .rename({"route": "subscription"})
        .select(
            "service",
            "broker",
            "dest",
            "subscription",
            "hour_us",
            *ALL_NUMBERS,
            "lost_keys",
            "unsettled_keys",
            "repeated_keys",
            "verdict",
            "reasons",
        )
        .pipe(at_once)
    )


@of_rows
def duplicates(found: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Return the table `duplicates`, from keys like those of `balance.judged`."""
    ran = (pl.col("effect_duplicates") + pl.col("doubtful_duplicates")) > 0
    kinds = {
        "settlement": pl.col("duplicates") > 0,
        "effect": ran,
        "dead_after_done": pl.col("dead_after_done") > 0,
    }
    rows = pl.concat(
        [
            found.filter(which).with_columns(pl.lit(kind).alias("kind"), dest="sent_to")
            for kind, which in kinds.items()
        ]
    )
    grain = ["service", "broker", "dest", "subscription", "hour_us", "kind", "cause"]
    return (
        rows.join(held.places, on="route", how="left")
        .rename({"route": "subscription"})
        .group_by(grain)
        .agg(
            pl.len().cast(pl.Int64).alias("n"),
            pl.col("msg_key").sort().head(SAMPLED).alias("sample_keys"),
            pl.col("key_us").min().alias("first_us"),
            pl.col("last_us").max(),
        )
        .sort(grain, nulls_last=True)
    )
