"""
The conclusions on each destination and hour of sending: the numbers, what may be missing, and what follows from both.

*suspect*: something is proven wrong, whatever else is missing. *balanced*: everything was proven. *unverifiable*:
neither.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx_report import balance, brokerbook, presence
from jmsx_report.additive import HOUR_US
from jmsx_report.books import Books
from jmsx_report.events import NAMESAKE
from jmsx_report.flows import BUCKET_US, DURABLE, NAMELESS, SETTLES
from jmsx_report.horizon import GAPS, WITHOUT_END, gap_rows, gaps
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_rows

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence


SUSPECT: Final = "suspect"
UNVERIFIABLE: Final = "unverifiable"
BALANCED: Final = "balanced"
_WORST: Final = (SUSPECT, UNVERIFIABLE, BALANCED)

#: The hour of a segment, by its folder.
_HOUR: Final = r"date=(?<date>\d{4}-\d{2}-\d{2})/hour=(?<hour>\d{2})"
_COUNTED: Final = ("sent", "settled", *dict.fromkeys(SETTLES.values()))
_GRAIN: Final = ("dest", "route", "hour_us")
#: The reason for missing lines whose content nobody knows.
_NAMESAKES: Final = "two processes have its name, and lines of one were put aside"
#: The numbers that `summary` has for each destination, and for all together.
NUMBERS: Final = (
    *_COUNTED,
    "unaccounted",
    "explained",
    "in_flight",
    "unread",
    "awaiting_reader",
    "removed",
    "dropped",
    "duplicates",
    "unsent",
    "foreign",
    "expired_at_broker",
    "effect_duplicates",
    "dead_after_done",
    "unanswered",
    "in_doubt",
    "unclaimed",
)
SAMPLED: Final = 5
LISTED: Final = 50
ALL_NUMBERS: Final = (
    *NUMBERS,
    "undated",
    "unordered",
    "resent",
    "doubtful_duplicates",
    "phantoms",
    "refused_settled",
)
_EACH_NUMBER: Final = [
    pl.col("n").filter(pl.col("number") == name).sum().alias(name) for name in ALL_NUMBERS
]
PROOFS: Final = {
    "lost": "{} sent and not settled after the deadline",
    "duplicates": "{} done more than once",
    "effect_duplicates": "{} of which a handler succeeded more than once",
    "phantoms": "{} rolled back by their sender, and settled",
}
DOUBTS: Final = {
    "explained": "{} not settled, but a gap in the log, the broker, a consumer, another queue or its id may explain it",
    "undated": "{} not settled, and the clocks do not tell whether they are overdue",
    "resent": "{} sent more than once under one key, and done as often",
    "unread": "{} sent to where nobody in the log reads",
    "awaiting_reader": (
        "{} not settled, and sent about when the last reader there was closed in order, or later: they may wait for the"
        " next one"
    ),
    "unsent": "{} settled, but no log tells of their sending",
    "incomparable": "{} of senders that are not jmsx cannot be compared",
    "unproven_expiry": "{} not settled, and expired by now; no broker's count proves it",
    "in_doubt": "{} not settled, but delivered in a transaction in doubt",
    "doubtful_duplicates": (
        "{} of which a handler may have succeeded twice: an earlier call's transaction is in doubt, or nothing tells"
        " how it went after its lost link"
    ),
    "unanswered": "{} sent without an answer, and not settled",
    "dead_after_done": "{} done, and dead-lettered afterwards, as their readers tell",
    "unordered": "{} done and dead-lettered, and the clocks do not tell which of the two came first",
    "unclaimed": (
        "{} moved there as dead letters, and read by nobody in the log, though a consumer there had nothing to do: they"
        " were taken away by hand or by others, expired, or are lost"
    ),
    "refused_settled": "{} settled, though their sender was told of an error",
}
#: Numbers that cast no doubt on a verdict, but must be reported.
TOLD: Final = {
    "removed": "{} not settled, and removed with their subscription",
    "dropped": "{} sent with the duplicate id of another one, and not delivered: the broker drops such",
}
#: The number of which each is the proven part, or the unproven one; other numbers are reported whole.
NUMBER_OF: Final = {
    "lost": "unaccounted",
    "incomparable": "foreign",
    "unproven_expiry": "expired_at_broker",
}


def with_sent_to(rows: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Add `sent_to` to rows with `dest` and `route`: the only destination that leads to the route, or else `dest`."""
    return (
        rows.lazy()
        .join(held.sole.lazy(), on="route", how="left")
        .with_columns(pl.coalesce("sole", "dest").alias("sent_to"))
        .drop("sole")
        .pipe(at_once)
    )


def settlements(held: Books) -> pl.DataFrame:
    """
    Return how many messages were settled.

    Columns: `dest`, `route`, `hour_us`, `strange` (as `is_strange`), `n`, `number` (which of the numbers counts them)
    and `sent_to` (dest).
    """
    return (
        held.deliveries.lazy()
        .filter(pl.col("outcome").is_in(list(SETTLES)))
        .group_by("dest", "route", "hour_us", "outcome", is_strange(held).alias("strange"))
        .agg(pl.col("n").sum())
        .with_columns(pl.col("outcome").replace_strict(SETTLES).alias("number"))
        .pipe(at_once)
        .pipe(with_sent_to, held)
    )


def is_strange(held: Books) -> pl.Expr:
    """Return whether a bucket has only messages of foreign senders or without a key, so that it cannot be compared."""
    return (pl.col("bucket") < 0) & ~pl.col("bucket").is_in(held.own.implode())


def nameless_sends(held: Books) -> pl.DataFrame:
    """Return the copies of confirmed sends that have no key to compare."""
    return held.sends.filter(bucket=NAMELESS, outcome="confirmed")


def long(
    frame: pl.DataFrame | pl.LazyFrame,
    number: str | pl.Expr = "sent",
    sent_to: str = "dest",
) -> pl.LazyFrame:
    """Return the counts `n` in `frame` as rows of `numbers`, each counted as `number`."""
    return frame.lazy().select(
        "dest",
        pl.col(sent_to).alias("sent_to"),
        "route",
        "hour_us",
        (pl.lit(number) if isinstance(number, str) else number).alias("number"),
        pl.col("n").cast(pl.Int64),
    )


def late_confirmed(held: Books, found: pl.DataFrame) -> pl.DataFrame:
    """
    Return unconfirmed sends in buckets that balance with them: they were settled, which proves that they were sent.

    Buckets that do not balance on another route were looked at key by key, and are counted from `found`.
    """
    return _balancing(held.sends.filter(outcome="unconfirmed"), held, found)


@of_rows
def _balancing(unconfirmed: pl.DataFrame, held: Books, found: pl.DataFrame) -> pl.DataFrame:
    """Do what `late_confirmed` does, for the sends `unconfirmed`."""
    looked = found["bucket"].unique().implode()
    with_them = held.compared.filter(
        pl.col("balanced") & (pl.col("unconfirmed_n") > 0) & ~pl.col("bucket").is_in(looked)
    )
    return unconfirmed.join(with_them, on=["route", "bucket"], how="semi")


def numbers(held: Books, found: pl.DataFrame, gone: pl.DataFrame) -> pl.DataFrame:
    """
    Return all numbers as rows: dest, sent_to, route, hour_us, number, n; `gone` as `copies.unclaimed`.

    Settlements have both the destination where the message was read, `dest`, and the one it was `sent_to`.
    """
    settled = settlements(held)
    judged = (
        found.lazy()
        .select(
            "dest",
            "sent_to",
            "route",
            "hour_us",
            pl.col(*balance.FOUND, "explained", "awaiting_reader").cast(pl.Int64),
        )
        .rename({"late_confirmed": "sent"})
    )
    rows = [
        long(held.sends.filter(outcome="confirmed")),
        long(late_confirmed(held, found)),
        long(settled, "settled", "sent_to"),
        long(settled, pl.col("number"), "sent_to"),
        long(settled.filter("strange"), "foreign", "sent_to"),
        long(nameless_sends(held), "foreign"),
        long(gone, "unclaimed"),
        judged.unpivot(
            index=["dest", "sent_to", "route", "hour_us"], variable_name="number", value_name="n"
        ),
    ]
    return (
        pl.concat(rows)
        .group_by("dest", "sent_to", "route", "hour_us", "number")
        .agg(pl.col("n").sum())
        .pipe(at_once)
    )


def wide(rows: pl.LazyFrame, by: tuple[str, ...]) -> pl.LazyFrame:
    """Add up rows of numbers by the columns `by`; each number becomes a column."""
    return rows.group_by(by).agg(_EACH_NUMBER)


def rows_of(numbered: pl.DataFrame, found: pl.DataFrame) -> pl.DataFrame:
    """
    Return one row for each destination, route and hour of sending, with all numbers, and the keys of what is wrong.

    `explicable`: how many unaccounted messages may be explained if all explanations are used for this hour.
    """
    keyed = (
        found.lazy()
        .group_by(pl.col("sent_to").alias("dest"), "route", "hour_us")
        .agg(
            pl.col("explicable").sum(),
            _sampled(pl.col("proven")).alias("lost_keys"),
            _sampled((pl.col("unaccounted") > 0) & ~pl.col("proven")).alias("unsettled_keys"),
            _sampled(pl.sum_horizontal(balance.TWICE) > 0).alias("repeated_keys"),
        )
    )
    none = pl.lit([], pl.List(pl.String))
    return (
        wide(numbered.lazy().drop("dest").rename({"sent_to": "dest"}), _GRAIN)
        .filter(pl.any_horizontal(pl.col(*ALL_NUMBERS) > 0))
        .join(keyed, on=list(_GRAIN), how="left", nulls_equal=True)
        .with_columns(
            pl.col("explicable").fill_null(0),
            pl.col("lost_keys", "unsettled_keys", "repeated_keys").fill_null(none),
        )
        .pipe(at_once)
    )


def _sampled(which: pl.Expr) -> pl.Expr:
    return pl.col("msg_key").filter(which).sort().head(SAMPLED)


def placed_gaps(held: Books) -> pl.DataFrame:
    """
    Return where lines may be missing, route by route: route, low_us, high_us (corrected; null: no limit), lines, why,
    reads, who.

    A missing line may be about any route that its writer sends to or reads. If no route of the writer is known, it may
    be about any at all; so may lines of the second of two processes with one name.
    """
    known = gaps(held.complete, held.horizon.silent)
    return _placed(pl.concat([known, held.absent.drop("says"), _quarantined(held)]), held)


@of_rows
def _placed(known: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Do what `placed_gaps` does, for the gaps `known`; columns as `GAPS`."""
    # A clock may be wrong by more than is proven, so each gap is made as long as it can be.
    known = known.with_columns(
        held.clocks.earliest("low_us"), held.clocks.latest("high_us")
    ).with_row_index("gap")
    mine = held.touched
    of_service = (
        mine.join(held.context.writers.select("writer", "service"), on="writer")
        .group_by("service", "route")
        .agg(pl.col("reads").any())
    )
    everything = (
        pl.concat([held.routes.expects.select("route"), held.routes.reads.select("route")])
        .unique()
        .with_columns(reads=pl.lit(value=True))
    )
    of_one = known.filter(pl.col("why") != _NAMESAKES)
    placed = pl.concat(
        [
            of_one.join(mine, on="writer"),
            of_one.join(of_service, on="service"),
        ],
        how="diagonal",
    )
    lost = known.join(placed, on="gap", how="anti").join(everything, how="cross")
    return pl.concat([placed, lost], how="diagonal").with_columns(
        pl.coalesce("writer", "service").alias("who")
    )


def _quarantined(held: Books) -> pl.DataFrame:
    """Return gaps for lines in the quarantine and files that were not read: each is the hour of its folder."""
    none, hour = pl.lit(None, pl.Int64), pl.col("path").str.extract_groups(_HOUR)
    begun = (
        pl.format("{}T{}:00", hour.struct.field("date"), hour.struct.field("hour"))
        .str.to_datetime("%Y-%m-%dT%H:%M", strict=False, time_unit="us")
        .cast(pl.Int64)
    )
    of_hour = {"low_us": begun, "high_us": begun + HOUR_US - 1}
    told = [pl.DataFrame(schema=GAPS)]
    quarantine, passed_over = held.terms.quarantine, held.terms.passed_over
    # If a writer has no valid line, the number of its damaged lines means nothing: a file may be full of zeros.
    numbered = pl.col("writer").is_in(held.complete.writers["writer"].implode())
    if quarantine is not None:
        twin = pl.col("what") == NAMESAKE
        # Lines of one process hide gaps in those of its namesake, and nobody knows when that one wrote.
        twins = quarantine.filter(twin).unique("writer")
        told += [
            gap_rows(twins, _NAMESAKES, low_us=none, high_us=none, lines=none),
            gap_rows(
                quarantine.filter(~twin),
                "lines were put aside",
                **of_hour,
                lines=pl.when(numbered).then(pl.lit(1, pl.Int64)),
            ),
        ]
    if passed_over is not None:
        told.append(gap_rows(passed_over, "files were not read", **of_hour, lines=none))
    return pl.concat(told)


@of_rows
def explained(
    found: pl.DataFrame, missing: pl.DataFrame, in_hand: pl.DataFrame, held: Books
) -> pl.DataFrame:
    """
    Add to each key how many of its unaccounted messages may have been settled in a gap, still wait, or went elsewhere.

    A gap explains only messages sent before its end, and no more than it has lines (but see `_with_removals`).
    What waits at the broker explains no more messages than its counts; if others read, too, and the counts do not cover
    all the time, the counts only tell how many went to others at least. Consumers explain no more than they hold
    (`in_hand`); the broker counts these messages, too, until they are acknowledged, so its count wins if it is later.
    Messages come to a consumer in order: it does not hold one that was overdue when the message was sent that it last
    was done with, unless that is stuck or came again since. A broker may have dropped messages with a duplicate id: see
    `_with_dropped`. Messages beyond all these are proven lost, though not which keys: `explained` explains the oldest
    first, so that it adds up to the total; `explicable` does so for each hour by itself; `proven` marks only keys that
    nothing explains.
    """
    sent_us = held.clocks.earliest("key_us", "sender").fill_null(0)
    unsettled = (pl.col("unaccounted") - pl.col("elsewhere")).clip(lower_bound=0)
    in_gap = pl.col("gap").fill_null(value=False) & (
        pl.col("until_us").is_null() | (sent_us <= pl.col("until_us"))
    )
    strange = (pl.col("made") + pl.when("common_id").then("others").otherwise(0) > 0).fill_null(
        value=False
    )
    found = found.join(_rooms(found, missing, in_hand, held), on="route", how="left").with_columns(
        unsettled.alias("unsettled"),
        pl.when(strange).then(unsettled).otherwise(0).alias("again"),
        in_gap.alias("gap"),
        pl.when(in_gap).then("room").otherwise(0).alias("room"),
        pl.col("room_elsewhere").fill_null(0),
    )
    for name, among in (("explained", ("route",)), ("explicable", _GRAIN)):
        found = (
            _with_dropped(found, among)
            .with_columns((pl.col("unsettled") - pl.col("dropped_too")).alias("left"))
            .with_columns(
                pl.when("gap").then("left").otherwise(0).alias("within"),
                pl.when("gap").then(0).otherwise("left").alias("without"),
            )
            .with_columns((_fitting(among) + pl.col("unaccounted") - pl.col("left")).alias(name))
        )
    return found.with_columns(
        (
            (pl.col("unsettled") > 0) & (pl.col("room") + pl.col("room_elsewhere") <= 0) & ~strange
        ).alias("proven")
    ).drop(
        "until_us",
        "room",
        "gap",
        "room_elsewhere",
        "unsettled",
        "again",
        "made",
        "others",
        "dropped_too",
        "left",
        "within",
        "without",
    )


def _rooms(
    found: pl.DataFrame, missing: pl.DataFrame, in_hand: pl.DataFrame, held: Books
) -> pl.DataFrame:
    """
    Return how many messages of each route can be explained, and by what: route; gap, until_us, room (by gaps, for
    messages sent until then); room_elsewhere (by other explanations, whenever sent).
    """
    by_gaps = (
        _with_removals(missing.filter("reads"), held)
        .group_by("route")
        .agg(
            pl.when(pl.col("high_us").is_null().any())
            .then(None)
            .otherwise(pl.col("high_us").max())
            .alias("until_us"),
            pl.when(pl.col("lines").is_null().any())
            .then(WITHOUT_END)
            .otherwise(pl.col("lines").sum())
            .alias("room"),
            pl.lit(value=True).alias("gap"),
        )
    )
    sent_latest_us = held.clocks.latest("key_us", "sender")
    # The message came again when it was given back or its wait was over, which may be late after a long transaction.
    again_us = pl.max_horizontal(
        "answered_us", "back_us", held.clocks.latest("wait_most_us", "sender")
    )
    fresh = pl.any_horizontal(
        (came_us + held.deadline_us >= pl.col("idle_us")).fill_null(value=unknown)
        for came_us, unknown in ((sent_latest_us, True), (again_us, False))
    )
    waits = pl.col("at_most").first() - pl.col("stuck").first()
    may_be = (
        found.join(in_hand, on="route")
        .group_by("route")
        .agg(
            (
                pl.min_horizontal(pl.col("unaccounted").filter(fresh).sum(), waits)
                + pl.col("stuck").first()
            ).alias("had")
        )
    )
    of_clients = in_hand.select("route", "told_us").join(may_be, on="route")
    superseded = (pl.col("counted_us") >= pl.col("told_us")).fill_null(value=False)
    return (
        held.book.join(of_clients, on="route", how="full", coalesce=True)
        .join(by_gaps, on="route", how="full", coalesce=True)
        .select(
            *("route", "gap", "until_us", "room"),
            (
                pl.max_horizontal(
                    pl.col("size").fill_null(0),
                    pl.when(superseded).then(0).otherwise(pl.col("had").fill_null(0)),
                )
                + brokerbook.taken()
            ).alias("room_elsewhere"),
        )
    )


@of_rows
def _with_removals(missing: pl.DataFrame, held: Books) -> pl.DataFrame:
    """
    Let a gap in the log of a durable subscription's reader explain more messages than it has lines.

    It explains all that were sent until that subscription surely delivered one again: a missing line may have told that
    the subscription was removed, with all messages it had.
    """
    durable = held.routes.reads.filter(pl.col("subscription").str.starts_with(DURABLE))["route"]
    may_be = pl.col("route").is_in(durable.unique().implode())
    gave = (
        presence.gave(held.compared)
        .join(_skews(held), on="route")
        .select(
            "route",
            (pl.col("bucket") - pl.col("most")).alias("from_us"),
            (pl.col("bucket") + BUCKET_US - pl.col("least")).alias("again_us"),
        )
    )
    again = (
        missing.filter(may_be & pl.col("high_us").is_not_null())
        .sort("high_us")
        .join_asof(
            gave.sort("from_us"),
            left_on="high_us",
            right_on="from_us",
            by="route",
            strategy="forward",
            check_sortedness=False,  # it is sorted, but Polars cannot check that by route
        )
        .select("gap", "route", "again_us")
    )
    return (
        missing.join(again.unique(), on=["gap", "route"], how="left")
        .with_columns(
            pl.when(may_be).then("again_us").otherwise("high_us").alias("high_us"),
            pl.when(~may_be).then("lines").alias("lines"),
        )
        .drop("again_us")
    )


def _skews(held: Books) -> pl.DataFrame:
    """Return by how much the clocks of a route's senders may be ahead: route, least, most."""
    return held.senders.group_by("route").agg(
        held.clocks.least("sender").min().alias("least"),
        held.clocks.most("sender").max().alias("most"),
    )


def _fitting(among: Sequence[str]) -> pl.Expr:
    """
    Return how many messages of each key are explained, the oldest first among keys with equal columns `among`.

    A gap explains only messages sent `within` it, other explanations any: so they first go to messages outside gaps.
    """
    room_elsewhere = pl.col("room_elsewhere")
    within, without = pl.col("within"), pl.col("without")
    left = (room_elsewhere - without.sum().over(among)).clip(lower_bound=0)

    return _taken(without, room_elsewhere, among) + _taken(within, pl.col("room") + left, among)


def _taken(sent: pl.Expr, room: pl.Expr, among: Sequence[str]) -> pl.Expr:
    """Return how many of each key's messages fit into `room`, in the order of the keys."""
    before = sent.cum_sum().over(among, order_by="msg_key") - sent
    return pl.min_horizontal(sent, (room - before).clip(lower_bound=0))


def _with_dropped(found: pl.DataFrame, among: Sequence[str]) -> pl.DataFrame:
    """
    Add `dropped_too`: how many of each key's messages may have been dropped for a duplicate id of strangers' messages.

    With ids made by jmsx no more can have been dropped, up to any moment, than strangers' messages were
    `made` before it; with common ids, too, no more than these and `others`. What is too many is subtracted from the
    first ones: gaps may explain old messages.
    """
    own = pl.when("common_id").then(0).otherwise("again")
    return (
        found.with_columns(own.alias("dropped_too"))
        .with_columns(_but_first("dropped_too", pl.col("made"), among))
        .with_columns(
            pl.when("common_id").then("again").otherwise("dropped_too").alias("dropped_too")
        )
        .with_columns(_but_first("dropped_too", pl.col("made") + pl.col("others"), among))
    )


def _but_first(name: str, room: pl.Expr, among: Sequence[str]) -> pl.Expr:
    """Return the column `name`, reduced from its first rows on until no cumulative sum exceeds its `room`."""
    sent = pl.col(name)
    up_to = sent.cum_sum().over(among, order_by=["answered_us", "msg_key"])
    beyond = pl.when(sent > 0).then(up_to - room).max().over(among).fill_null(0)
    return sent - pl.min_horizontal(sent, (beyond - (up_to - sent)).clip(lower_bound=0))


def conclusions(rows: pl.DataFrame, missing: pl.DataFrame, held: Books) -> pl.DataFrame:
    """
    Judge each row of numbers by itself: messages that may be explained in an hour are not proven lost in that hour.

    Adds `verdict`, `reasons`, `further` (more reasons, for `together`), `later` (whether the hour is after the horizon)
    and the numbers of `NUMBER_OF`. These add up, so more may be proven lost in all hours together than in each.
    """
    expiring = (
        rows.lazy()
        .group_by("route")
        .agg(pl.col("expired_at_broker").sum().alias("expiring"))
        .join(
            held.book.lazy().select(
                "route", "proven", "other_in", booked=pl.col("expired") - pl.col("perhaps_older")
            ),
            on="route",
            how="left",
        )
    )
    proven = pl.col("proven").fill_null(value=False)
    # If others send, too, the expired messages may have been theirs.
    has_expired = ((pl.col("expiring") <= pl.col("booked")) & (pl.col("other_in") == 0)).fill_null(
        value=False
    )
    numbered = (
        rows.lazy()
        .join(expiring, on="route", how="left")
        .with_columns(
            (pl.col("unaccounted") - pl.col("explained")).alias("lost"),
            pl.when(proven).then(0).otherwise(pl.col("foreign")).alias("incomparable"),
            pl.when(has_expired)
            .then(0)
            .otherwise(pl.col("expired_at_broker"))
            .alias("unproven_expiry"),
        )
    )
    # Hours are by the senders' clocks.
    after = (
        pl.col("hour_us") - pl.col("most").fill_null(0) > held.horizon.until_us
        if held.horizon.living and held.horizon.until_us is not None
        else pl.lit(value=False)
    )
    judged = (
        numbered.join(_tainted(missing, rows, held).lazy(), on=["route", "hour_us"], how="left")
        .join(_skews(held).lazy().select("route", "most"), on="route", how="left")
        .with_columns(
            pl.concat_list(
                "gap", pl.when(after).then(pl.lit("after the horizon: not judged yet"))
            ).alias("further"),
            after.alias("later"),
        )
        .drop("expiring", "booked", "other_in", "proven", "gap", "most")
        .pipe(at_once)
    )
    by_themselves = (
        judged.lazy()
        .with_columns(
            (pl.col("unaccounted") - pl.col("explicable")).alias("lost"),
            pl.col("explicable").alias("explained"),
        )
        .with_columns(_REASONS.alias("reasons"))
        .select(
            pl.when(PROVES)
            .then(pl.lit(SUSPECT))
            .when(pl.col("reasons").list.len() > 0)
            .then(pl.lit(UNVERIFIABLE))
            .otherwise(pl.lit(BALANCED))
            .alias("verdict"),
            "reasons",
        )
        .pipe(at_once)
    )
    return judged.drop("explicable").hstack(by_themselves)


@of_rows
def _tainted(missing: pl.DataFrame, rows: pl.DataFrame, held: Books) -> pl.DataFrame:
    """Return the hours of `rows` in which lines may be missing: route, hour_us, gap (which, in words)."""
    # Hours are by the senders' clocks, gaps by corrected ones.
    begin = pl.col("hour_us") - pl.col("most").fill_null(0)
    end = pl.col("hour_us") + HOUR_US - pl.col("least").fill_null(0)
    return (
        rows.select("route", "hour_us")
        .unique()
        .join(_skews(held), on="route", how="left")
        .join(missing, on="route")
        .filter(
            (pl.col("low_us").is_null() | (end > pl.col("low_us")))
            & (pl.col("high_us").is_null() | (begin <= pl.col("high_us")))
        )
        .group_by("route", "hour_us")
        .agg(
            (
                pl.col("why").min()
                + pl.lit(" (")
                + pl.col("who").min().fill_null("?")
                + pl.lit(")")
            ).alias("gap")
        )
    )


#: Whether numbers prove that something is wrong.
PROVES: Final = pl.any_horizontal(pl.col(*PROOFS) > 0)
#: The words for the numbers of a row, and its `further` ones.
_REASONS: Final = pl.concat_list(
    *(
        pl.when(pl.col(name) > 0).then(pl.format(text, pl.col(name)))
        for name, text in (PROOFS | DOUBTS).items()
    ),
    "further",
).list.drop_nulls()


def together(rows: pl.DataFrame) -> dict[str, list[str]]:
    """Return the reasons by destination, from the numbers of all its `rows` together, not of single hours."""
    told = (
        rows.lazy()
        .sort("dest", "hour_us", "route")
        .group_by("dest", maintain_order=True)
        .agg(
            pl.col(*PROOFS, *DOUBTS).sum(),
            pl.col("further").explode().drop_nulls().unique(maintain_order=True),
        )
        .select("dest", _REASONS)
        .pipe(at_once)
    )
    return dict(told.iter_rows())


def worst(verdicts: Iterable[str]) -> str:
    """Return the worst of some verdicts; `unverifiable` if there are none."""
    given = set(verdicts)
    return next((one for one in _WORST if one in given), UNVERIFIABLE)
