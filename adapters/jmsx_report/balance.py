"""
Compares the messages sent with those settled: first by fingerprints, then key by key where these disagree.

In a balanced bucket of a route as many messages were settled as sent, and the xor and the sum of the hashes of their
keys agree. The keys of other buckets are looked at one by one, in all destinations at once, because a message may be
settled at another destination than it was sent to.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx.core.events import Outcome
from jmsx_report.clocks import UNKNOWN_US, Clocks
from jmsx_report.fanout import Routes
from jmsx_report.flows import BUCKET_US, LATE, NAMELESS, PLANNED, SETTLES
from jmsx_report.horizon import Completeness, Horizon
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_rows
from jmsx_report.presence import KEY, away, gone_with

_SENT: Final = pl.col("kind") == "send"
_DELIVERED: Final = pl.col("kind").is_in(["delivery", LATE])
_SETTLED: Final = (pl.col("kind") == "delivery") & pl.col("outcome").is_in(list(SETTLES))
_MARKS: Final = ("n", "xor", "total")
#: Outcomes of sends after which somebody should settle the message.
_AWAITED: Final = ("confirmed", "unconfirmed")
#: Microseconds before a living writer's last line from which its next lines may still tell of sends.
GRACE_US: Final = 60_000_000
#: Microseconds that a consumer's statement of how many messages it has remains valid before the end of its log. It
#: makes one every 15 s while its link is up.
SAID_US: Final = 60_000_000


def sends_by_route(flowing: pl.DataFrame, routes: Routes) -> pl.DataFrame:
    """Return one row for each copy that somebody should receive: the sends of `flowing`, with `route` and `fanned`."""
    return flowing.lazy().filter(_SENT).join(routes.expects.lazy(), on="dest").pipe(at_once)


def senders(flowing: pl.DataFrame, routes: Routes) -> pl.DataFrame:
    """Return who sends where: sender, route, fanned."""
    return (
        flowing.lazy()
        .filter(_SENT)
        .select("dest", sender="writer")
        .unique()
        .join(routes.expects.lazy(), on="dest")
        .select("sender", "route", "fanned")
        .unique()
        .pipe(at_once)
    )


def deliveries_by_route(flowing: pl.DataFrame, routes: Routes) -> pl.DataFrame:
    """Return the audited deliveries of `flowing`, with `route`; a `delivery.late` line makes one more row."""
    return (
        flowing.lazy()
        .filter(_DELIVERED)
        .join(routes.reads.lazy(), on=["dest", "subscription"], nulls_equal=True)
        .pipe(at_once)
    )


def buckets(sends: pl.DataFrame, deliveries: pl.DataFrame) -> pl.DataFrame:
    """
    Compare sends and settlements of every bucket of every route, rows of `sends_by_route` and `deliveries_by_route`.

    Columns: route, bucket, {confirmed, unconfirmed, settled}_{n, xor, total}, others_n (sends that were refused or
    rolled back), spare_n (deliveries whose handler succeeded or still ran when the link was lost), balanced (the
    settled messages are exactly the confirmed and unconfirmed ones, and spare_n is 0).
    """
    outcome = pl.col("outcome")
    send = pl.when(outcome.is_in(_AWAITED)).then("outcome").otherwise(pl.lit("others"))
    ran = pl.max_horizontal("effects", "running") > 0
    delivery = pl.when(_SETTLED).then(pl.lit("settled")).when(ran).then(pl.lit("spare"))
    told = pl.concat(
        rows.lazy().select(
            "route", "bucket", *_MARKS, side=pl.when(outcome.is_not_null()).then(side)
        )
        for rows, side in ((sends, send), (deliveries, delivery))
    ).filter(pl.col("bucket") != NAMELESS, pl.col("side").is_not_null())

    def mark(side: str, name: str) -> pl.Expr:
        here = pl.when(pl.col("side") == side).then(name).otherwise(0)
        return (here.bitwise_xor() if name == "xor" else here.sum()).alias(f"{side}_{name}")

    def agree(name: str) -> pl.Expr:
        settled, confirmed, perhaps = (
            pl.col(f"{side}_{name}") for side in ("settled", "confirmed", "unconfirmed")
        )
        return (
            (settled == (confirmed ^ perhaps)) if name == "xor" else settled == confirmed + perhaps
        )

    marks = (mark(side, name) for side in (*_AWAITED, "settled") for name in _MARKS)
    return (
        told.group_by("route", "bucket")
        .agg(*marks, mark("others", "n"), mark("spare", "n"))
        .with_columns(
            (pl.all_horizontal(agree(name) for name in _MARKS) & (pl.col("spare_n") == 0)).alias(
                "balanced"
            )
        )
        .pipe(at_once)
    )


def own_shards(compared: pl.DataFrame) -> pl.Series:
    """Return the buckets of keys without a time into which a process of this log sent; `compared` as `buckets`."""
    somebody = pl.col("confirmed_n") + pl.col("unconfirmed_n") + pl.col("others_n") > 0
    return compared.filter((pl.col("bucket") < 0) & somebody)["bucket"].unique()


def suspicious(
    compared: pl.DataFrame, own: pl.Series, begun: pl.DataFrame, removed: pl.DataFrame
) -> pl.DataFrame:
    """
    Keep the rows of `buckets` whose keys must be looked at one by one; `own` as `own_shards`, `begun` as `beginnings`,
    `removed` as `removals`.

    Keys without a time are compared only if a process of this log sent some; else they are of foreign senders.
    """
    surely = (
        begun.lazy()
        .group_by("route")
        .agg(pl.col("whole_us").min(), pl.col("whole_us").is_not_null().all().alias("surely"))
        .filter("surely")
    )
    before = (pl.col("bucket") + BUCKET_US <= pl.col("whole_us")).fill_null(value=False)
    return (
        compared.lazy()
        .filter(~pl.col("balanced"))
        .filter((pl.col("bucket") >= 0) | pl.col("bucket").is_in(own.implode()))
        .join(surely, on="route", how="left")
        .join(away(removed, compared).lazy(), on=["route", "bucket"], how="left")
        .filter(
            ~(
                (before | pl.col("away").fill_null(value=False))
                & (pl.col("settled_n") == 0)
                & (pl.col("spare_n") == 0)
            )
        )
        .pipe(at_once)
    )


@of_rows
def moments(
    senders: pl.DataFrame,
    found: Completeness,
    *,
    readers: pl.DataFrame,
    routes: Routes,
    clocks: Clocks,
    until: Horizon,
) -> pl.DataFrame:
    """
    Return up to when, by each sender's clock, the log tells the fate of its messages: sender, route, now_us.

    The last lines of readers are converted to the sender's clock as far as the clocks are known, rather too early than
    too late; a reader that still writes may be about to tell of messages sent since its last line. `senders` has
    sender and route.
    """
    ends = found.writers.filter(pl.col("last_us").is_not_null()).select(
        "writer", "last_us", "ended"
    )
    known = clocks.offsets.select("writer", "low_us", "high_us", "host", "believed_us")
    read = (
        readers.join(routes.reads, on=["dest", "subscription"], nulls_equal=True)
        .select("route", pl.col("writer").alias("receiver"))
        .unique()
    )
    pairs = (
        senders.unique()
        .join(
            known.select(pl.all().name.prefix("s_")),
            left_on="sender",
            right_on="s_writer",
            how="left",
        )
        .join(read, on="route", how="left")
        .join(
            known.select(pl.all().name.prefix("r_")),
            left_on="receiver",
            right_on="r_writer",
            how="left",
        )
        .join(clocks.pairs, on=["sender", "receiver"], how="left")
        .join(ends.select(sender="writer", sender_end="last_us"), on="sender", how="left")
        .join(
            ends.select("ended", receiver="writer", receiver_end="last_us"),
            on="receiver",
            how="left",
        )
    )
    same = pl.col("s_host").eq(pl.col("r_host")) | pl.col("sender").eq(pl.col("receiver"))
    sender_ahead = pl.col("s_believed_us").fill_null(0)
    known_most = pl.coalesce(
        pl.when(same).then(pl.lit(0, pl.Int64)),
        pl.min_horizontal("at_most_us", pl.col("r_high_us") - pl.col("s_low_us")),
        pl.col("r_high_us") - sender_ahead,
    )
    writing = (pl.col("ended") == "open") & ~pl.col("receiver").is_in(
        until.silent["writer"].implode()
    )
    moment = (
        pairs.with_columns(
            (pl.col("receiver_end") - known_most.fill_null(UNKNOWN_US)).alias("seen_us"),
            (pl.col("receiver_end") - known_most).alias("known_us"),
        )
        .group_by("sender", "route")
        .agg(
            pl.max_horizontal("seen_us", "sender_end").max().alias("now_us"),
            pl.col("known_us").filter(writing).min(),
            sender_ahead.first().alias("ahead_us"),
        )
    )
    if not until.living or until.until_us is None:
        return moment.select("sender", "route", "now_us")
    limit = until.until_us + pl.col("ahead_us")
    return moment.select(
        "sender", "route", pl.min_horizontal("now_us", "known_us", limit).alias("now_us")
    )


#: The outcome of a send whose message the broker dropped for its duplicate id; no line of the log says it.
_DROPPED: Final = "dropped"


@of_rows
def but_dropped(stories: pl.DataFrame, sockets: pl.DataFrame) -> pl.DataFrame:
    """
    Mark sends that repeat a duplicate id as dropped, or `perhaps` dropped; rows as `flows.stories`.

    A broker that detects duplicates keeps one message for each destination and id, and confirms the others, too. The
    one it kept is the one delivered, or if none was, the first confirmed. A repeat sent to another address was dropped
    only if both addresses are of one broker, or of a live one and its backup, which no line tells. `sockets` as that
    partial.
    """
    one = ["dest", "duplicate_id"]
    outcome, made = pl.col("outcome"), pl.col("msg_key")
    delivered = stories.filter(kind="delivery")["msg_key"].drop_nulls().unique()
    there = made.is_in(delivered.implode())
    socket = ("writer", "session_id", "epoch")
    stories = stories.with_row_index("story")
    again = (
        stories.filter(pl.col("duplicate_id").is_not_null() & outcome.is_in(_AWAITED))
        .join(sockets.select(*socket, "broker"), on=socket, how="left", nulls_equal=True)
        .sort(~there, outcome != "confirmed", "first_us", "msg_key")
        .select(
            "story",
            again=~there & (made != made.first().over(one)),
            dropped=made != made.first().over(*one, "broker"),
        )
        .filter("again")
        .drop("again")
    )
    return (
        stories.join(again, on="story", how="left")
        .with_columns(
            pl.when("dropped").then(pl.lit(_DROPPED)).otherwise("outcome").alias("outcome"),
            (~pl.col("dropped")).fill_null(value=False).alias("perhaps"),
        )
        .drop("story", "dropped")
    )


@of_rows
def keys(
    stories: pl.DataFrame, doubts: pl.DataFrame, routes: Routes, clocks: Clocks
) -> pl.DataFrame:
    """
    Join sends and deliveries of each message: one row for each key and route; `stories` and `doubts` as those partials.

    Columns: msg_key, route, dest (of the send; else where it was read), key_us, bucket, hour_us, confirmed,
    unconfirmed, refused, rolled_back, dropped, perhaps_dropped (sends), settled, done, dead_lettered, effects
    (successful handlers, without those rolled back), running (handlers whose link was lost, and whose end no line
    tells), abandoned (deliveries), doubtful (deliveries in transactions in doubt), sender, expires_us, answered_us
    (when the last of its sends had ended, by corrected clocks), fanned, sent_anywhere (also to destinations that are
    not audited), readers (writers whose handlers succeeded), last_us, last_fate (of its deliveries), back_us (the
    latest time at which the last of them ended, by corrected clocks), and the columns of `_died`.
    """
    in_tx = pl.col("tx_id").is_not_null()
    in_doubt = pl.col("doubt").fill_null(value=False)
    named = (
        stories.filter(pl.col("bucket") != NAMELESS)
        .join(
            doubts.select("writer", "tx_id", pl.lit(value=True).alias("doubt")),
            on=["writer", "tx_id"],
            how="left",
        )
        .with_columns(
            *(
                pl.when(in_tx & ~in_doubt).then(0).otherwise(name).alias(name)
                for name in ("effects", "running")
            ),
            pl.when(in_doubt).then(pl.col("n")).otherwise(0).alias("doubtful"),
        )
    )
    outcome, n = pl.col("outcome"), pl.col("n")
    sends = (
        sends_by_route(named, routes)
        .group_by(KEY)
        .agg(
            pl.col("dest").min().alias("sent_to"),
            pl.col("key_us", "bucket", "hour_us").min(),
            *(
                n.filter(outcome == word).sum().alias(name)
                for word, name in (
                    ("confirmed", "confirmed"),
                    ("unconfirmed", "unconfirmed"),
                    ("error", "refused"),
                    ("rolled_back", "rolled_back"),
                    (_DROPPED, _DROPPED),
                )
            ),
            n.filter("perhaps").sum().alias("perhaps_dropped"),
            pl.col("writer").min().alias("sender"),
            pl.col("expires_us").max(),
            clocks.latest("last_us").max().alias("answered_us"),
            pl.col("fanned").all(),
        )
    )
    delivered = deliveries_by_route(named, routes)
    ended = pl.col("kind") != LATE
    deliveries = (
        delivered.group_by(KEY)
        .agg(
            pl.col("dest").min().alias("read_at"),
            pl.col("key_us").min().alias("read_key_us"),
            pl.col("bucket").min().alias("read_bucket"),
            pl.col("hour_us").min().alias("read_hour_us"),
            n.filter(_SETTLED).sum().alias("settled"),
            *(
                n.filter(outcome.replace_strict(SETTLES, default=None) == number)
                .sum()
                .alias(number)
                for number in ("done", "dead_lettered")
            ),
            pl.col("effects").sum(),
            pl.col("running").sum().clip(lower_bound=0),
            n.filter(outcome == Outcome.ABANDONED.value).sum().alias("abandoned"),
            pl.col("doubtful").sum(),
            pl.col("writer").filter(pl.col("effects") > 0).unique().sort().alias("readers"),
            pl.col("last_us").filter(ended).max(),
            outcome.filter(ended)
            .sort_by(pl.col("last_us").filter(ended), outcome.filter(ended))
            .last()
            .alias("last_fate"),
            clocks.latest("last_us").filter(ended).max().alias("back_us"),
        )
        .join(_died(delivered, clocks), on=list(KEY), how="left")
    )
    counted = (
        "confirmed",
        "unconfirmed",
        "refused",
        "rolled_back",
        _DROPPED,
        "perhaps_dropped",
        "doubtful",
        "settled",
        "done",
        "dead_lettered",
        "effects",
        "running",
        "abandoned",
    )
    anywhere = named.filter(_SENT).select("msg_key").unique().with_columns(sent_anywhere=True)
    return (
        sends.join(deliveries, on=list(KEY), how="full", coalesce=True)
        .join(anywhere, on="msg_key", how="left")
        .select(
            *KEY,
            pl.coalesce("sent_to", "read_at").alias("dest"),
            pl.coalesce("key_us", "read_key_us").alias("key_us"),
            pl.coalesce("bucket", "read_bucket").alias("bucket"),
            pl.coalesce("hour_us", "read_hour_us").alias("hour_us"),
            *(pl.col(name).fill_null(0) for name in counted),
            "sender",
            "expires_us",
            "answered_us",
            pl.col("fanned").fill_null(value=False),
            pl.col("sent_anywhere").fill_null(value=False),
            "readers",
            "last_us",
            "last_fate",
            "back_us",
            pl.col("dead_later", "unordered").fill_null(value=False),
        )
    )


def with_hosts(rows: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """Add `host`, if it is known, to rows with `writer`."""
    return rows.join(clocks.offsets.select("writer", "host"), on="writer", how="left")


def surely_before(clocks: Clocks, first: str, then: str) -> pl.Expr:
    """
    Return whether `last_us` with the suffix `first` surely was before `last_us` with the suffix `then`.

    Columns `writer` and `host` have these suffixes, too: writers of one host share a clock, and for others the bounds
    of their clocks' offsets count.
    """
    writers = f"writer{first}", f"writer{then}"
    early, late = f"last_us{first}", f"last_us{then}"
    one_clock = (pl.col(f"host{first}") == pl.col(f"host{then}")) & ~(
        clocks.was_set(writers[0]) | clocks.was_set(writers[1])
    )
    return (
        pl.when(one_clock)
        .then(pl.col(early) < pl.col(late))
        .otherwise(clocks.latest(early, writers[0]) < clocks.earliest(late, writers[1]))
    )


@of_rows
def _died(delivered: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """
    Return in which order messages were done and dead-lettered: msg_key, route, dead_later (it surely was dead-lettered
    after it was done), unordered (it may have been, but the order is unknown); `delivered` as `deliveries_by_route`. A
    message also counts as done if its handler succeeded and it could no longer be acknowledged.

    Lines of one process are in order, whatever its clock shows; others are ordered by `surely_before`.
    """
    outcome = pl.col("outcome")
    dead = delivered.filter(outcome == Outcome.DEAD_LETTERED.value)
    told = (*KEY, "writer", "last_seq", "last_us", "host")
    done, died = (
        with_hosts(rows, clocks).select(told)
        for rows in (
            delivered.filter(pl.col("effects") > 0, pl.col("doubtful") == 0).join(
                dead, on=list(KEY), how="semi"
            ),
            dead,
        )
    )
    of_one = pl.col("writer") == pl.col("writer_dead")

    def before(first: str, then: str) -> pl.Expr:
        return (
            pl.when(of_one)
            .then(pl.col(f"last_seq{first}") < pl.col(f"last_seq{then}"))
            .otherwise(surely_before(clocks, first, then))
        )

    return (
        done.join(died, on=list(KEY), suffix="_dead")
        .group_by(KEY)
        .agg(
            before("", "_dead").any().alias("dead_later"),
            before("_dead", "").all().alias("done_later"),
        )
        .select(
            *KEY, "dead_later", (~pl.col("dead_later") & ~pl.col("done_later")).alias("unordered")
        )
    )


_CONSUMER: Final = ("writer", "session_id", "dest", "consumer")


@of_rows
def plans(
    stories: pl.DataFrame,
    routes: Routes,
    *,
    readers: pl.DataFrame,
    closings: pl.DataFrame,
    found: Completeness,
) -> pl.DataFrame:
    """
    Return each line that plans a redelivery, with its `route` and `over_us`, when the wait for it ends.

    The wait ends at its planned time `until_us`, or earlier with the writer's next line about the message. If the
    consumer keeps the message, and not the broker's scheduler, the wait also ends when the consumer closes or its
    process ends.
    """
    ended = found.writers.filter(pl.col("ended") != "open").select("writer", end_us="last_us")
    afterwards = (
        deliveries_by_route(stories.filter(pl.col("kind") != LATE), routes)
        .group_by("msg_key", "route", "writer")
        .agg(
            pl.col("last_us").sort_by("last_seq", "last_us").last().alias("then_us"),
            pl.col("last_seq").max().alias("then_seq"),
        )
    )
    over_us = pl.min_horizontal(
        "until_us",
        pl.when(pl.col("then_seq") > pl.col("plan")).then("then_us"),
        pl.when(pl.col("kept") & (pl.col("closed_us") >= pl.col("last_us"))).then("closed_us"),
        pl.when("kept").then("end_us"),
    )
    return (
        stories.filter(pl.col("kind") == PLANNED)
        .drop("subscription")
        .join(
            readers.select("writer", "dest", "subscription", "consumer"),
            on=["writer", "dest", "consumer"],
        )
        .join(routes.reads, on=["dest", "subscription"], nulls_equal=True)
        .join(afterwards, on=["msg_key", "route", "writer"], how="left")
        .join(closings, on=list(_CONSUMER), how="left", nulls_equal=True)
        .join(ended, on="writer", how="left")
        .select(*KEY, *_CONSUMER, "kept", "until_us", over_us.alias("over_us"))
    )


@of_rows
def waits(planned: pl.DataFrame, by_key: pl.DataFrame, clocks: Clocks) -> pl.DataFrame:
    """
    Return until when a message waits for its planned redelivery: msg_key, route, wait_least_us, wait_most_us.

    These are the earliest and latest time by its sender's clock, whose offset is known only within bounds. `planned` as
    `plans`, `by_key` as `keys`.
    """
    hosts = clocks.offsets.select("writer", "host")
    here = pl.col("sender").eq(pl.col("writer")) | pl.col("host").eq(pl.col("sender_host"))
    here = here.fill_null(value=False)
    return (
        planned.join(by_key.select(*KEY, "sender"), on=list(KEY))
        .join(hosts, on="writer", how="left")
        .join(hosts.select(sender="writer", sender_host="host"), on="sender", how="left")
        .group_by(KEY)
        .agg(
            pl.when(here)
            .then("over_us")
            .otherwise(clocks.earliest("over_us") + clocks.least("sender"))
            .max()
            .alias("wait_least_us"),
            pl.when(here)
            .then("over_us")
            .otherwise(clocks.latest("over_us") + clocks.most("sender"))
            .max()
            .alias("wait_most_us"),
        )
    )


@of_rows
def in_hand(
    told: pl.DataFrame,
    planned: pl.DataFrame,
    routes: Routes,
    *,
    senders: pl.DataFrame,
    strange: pl.Series,
    readers: pl.DataFrame,
    closings: pl.DataFrame,
    found: Completeness,
    until: Horizon,
    clocks: Clocks,
) -> pl.DataFrame:
    """
    Return how many messages running consumers hold, without knowing which: route, in_hand, at_most, stuck, told_us,
    idle_us.

    Each consumer stated its number not long before the end of its log, at `told_us`. If it has told of no message
    since, it holds them all, except those kept for a planned redelivery, which are known. A busy consumer's later lines
    tell of its messages, except the `stuck` ones: its application already had these at the statement before, and no
    line tells that it is done with them. Until its next statement it may hold `at_most` all but the one that ended
    last. Messages arrive in order, so no consumer holds a message that came before `idle_us`, unless it is stuck: it
    was last done with one that the broker got then or later. A consumer that was done with none since it opened may
    hold messages of any age. Both times are corrected as far as clocks are proven. The time of a message may be by the
    clock of any of the `senders` (as that function), or of a stranger on the routes `strange`, where strangers'
    messages are delivered.
    `told` as `Books.in_hand`, `planned` as `plans`.
    """
    ahead = senders.group_by("route").agg(
        clocks.most("sender").max().clip(lower_bound=0).alias("ahead_us")
    )
    living = found.writers.filter(
        (pl.col("ended") == "open") & ~pl.col("writer").is_in(until.silent["writer"].implode())
    ).select("writer", end_us="last_us")
    one = list(_CONSUMER)
    lost = closings.filter(pl.all_horizontal(pl.col("dest", "consumer").is_null())).select(
        "writer", "session_id", lost_us="closed_us"
    )
    last = (
        told.join(living, on="writer")
        .join(closings, on=one, how="left", nulls_equal=True)
        .filter(pl.col("end_us") - pl.col("told_us") <= SAID_US)
        .filter(~(pl.col("closed_us") >= pl.col("told_us")).fill_null(value=False))
        .join(lost, on=["writer", "session_id"], how="left", nulls_equal=True)
        .filter(~(pl.col("lost_us") >= pl.col("told_us")).fill_null(value=False))
    )
    known = (
        planned.filter(pl.col("kept") & (pl.col("over_us") == pl.col("until_us")))
        .join(last.select(*one, "told_us"), on=one, nulls_equal=True)
        .filter(pl.col("until_us") > pl.col("told_us"))
        .group_by(one)
        .agg(pl.struct(KEY).n_unique().cast(pl.Int64).alias("known"))
    )
    unknown = pl.col("buffered") + pl.col("in_process") - pl.col("known").fill_null(0)
    busy = pl.col("done_seq") > pl.col("seq")
    # The consumer may since be done with some of these: surely with one, if it had no others and one ended later.
    had_one = pl.col("told_us").is_between("from_us", "to_us", closed="none")
    done_with_one = had_one & (pl.col("still_in_process") == pl.col("in_process"))
    stuck = pl.col("still_in_process") - done_with_one.fill_null(value=False).cast(pl.Int64)
    stuck = stuck.clip(lower_bound=0)
    has = unknown.clip(lower_bound=0)
    left = has - had_one.fill_null(value=False).cast(pl.Int64)
    # For a busy consumer no hour of doubt is allowed: it would hide each loss that long, as messages keep coming.
    by_stranger = pl.col("route").is_in(strange.implode()) & ~busy
    unsure_us = pl.when(by_stranger).then(UNKNOWN_US).otherwise(0)
    return (
        last.join(known, on=one, how="left", nulls_equal=True)
        .join(
            readers.select("writer", "dest", "subscription", "consumer"),
            on=["writer", "dest", "consumer"],
        )
        .join(routes.reads, on=["dest", "subscription"], nulls_equal=True)
        .with_columns(
            pl.when(busy)
            .then(stuck)
            .otherwise(pl.min_horizontal("still_in_process", has))
            .alias("stuck"),
            pl.when(busy).then(stuck).otherwise(has).alias("in_hand"),
            pl.when(busy).then(pl.max_horizontal(stuck, left)).otherwise(has).alias("at_most"),
        )
        .join(ahead, on="route", how="left")
        .group_by("route")
        .agg(
            pl.col("in_hand", "at_most", "stuck").sum(),
            (pl.col("told_us") - clocks.believed()).max().alias("told_us"),
            pl.min_horizontal(
                clocks.earliest("last_us"),
                pl.col("came_us") - pl.max_horizontal(pl.col("ahead_us").fill_null(0), unsure_us),
            )
            .filter(pl.col("at_most") > pl.col("stuck"))
            .min()
            .alias("idle_us"),
        )
    )


#: The numbers that the audit of a key may give, each a number of messages; `judged` explains them.
FOUND: Final = (
    "unaccounted",
    "in_flight",
    "undated",
    "unread",
    "removed",
    _DROPPED,
    "expired_at_broker",
    "duplicates",
    "effect_duplicates",
    "resent",
    "unsent",
    "foreign",
    "unanswered",
    "in_doubt",
    "doubtful_duplicates",
    "dead_after_done",
    "unordered",
    "phantoms",
    "refused_settled",
    "late_confirmed",
)

#: Those of them that count messages which were settled, or whose handler succeeded, more than once; each message is
#: counted by only one of them.
TWICE: Final = ("duplicates", "effect_duplicates", "dead_after_done")


@of_rows
def judged(
    by_key: pl.DataFrame,
    routes: Routes,
    *,
    begun: pl.DataFrame,
    removed: pl.DataFrame,
    now: pl.DataFrame,
    waits: pl.DataFrame,
    clocks: Clocks,
    deadline_us: int,
) -> pl.DataFrame:
    """
    Say of each key what is wrong, if anything; columns as `by_key`, `FOUND`, and `elsewhere`; `waits` as that function.

    unaccounted: sent more than the deadline ago and not settled; a planned redelivery was due so long ago, too.
    in_flight: not settled, but not yet overdue. undated: not settled, and the clocks do not tell whether overdue; also
    counted in in_flight. unread: sent to where nobody in the log reads. removed: sent before its subscription was
    removed, and neither settled nor passed over, so that it was deleted with the subscription. expired_at_broker: not
    settled, and its time to live is over. duplicates: done more often than sent. effect_duplicates: its handler
    succeeded more often than that. resent: done more than once and sent as often; whether on purpose is unknown.
    unsent: settled, though nobody in the log sent it; foreign: the same, but sent by another client than jmsx.
    unanswered: sent without a receipt, and not settled. late_confirmed: sent without a receipt, but settled, which
    proves that it was sent. in_doubt: not settled, but delivered in a transaction whose outcome is unknown.
    doubtful_duplicates: a handler succeeded again after such a transaction, or after a handler that still ran when its
    link was lost and whose end no line tells. dead_after_done: done and then dead-lettered, though it was not sent
    again, and not counted by another of `TWICE` (if it was dead-lettered first, somebody moved the dead letter back).
    unordered: done and dead-lettered, in unknown order. phantoms: rolled back by its sender, and settled.
    refused_settled: its sender got an error, and it was settled. elsewhere: how many of those not settled may have been
    moved to where nobody sent them (a message read there may be one of them, or a dead letter of the same key), or
    dropped by the broker for their duplicate id.
    """
    confirmed, perhaps, settled = pl.col("confirmed"), pl.col("unconfirmed"), pl.col("settled")
    due = confirmed + perhaps
    mine = due + pl.col("refused") + pl.col("rolled_back") > 0
    stray = pl.when(~mine & pl.col("sent_anywhere")).then(settled).otherwise(0)
    # A message read from a dead letter queue may be one of these dead letters and not another copy: they look the same.
    died = pl.when(mine).then(pl.col("dead_lettered")).otherwise(0)
    missing = pl.when(mine).then((confirmed - settled).clip(lower_bound=0)).otherwise(0)
    before = pl.col("fanned") & (
        pl.col("key_us") + pl.col("least_us").fill_null(0) < pl.col("begin_us")
    ).fill_null(value=False)
    limit = pl.col("now_us")
    nobody = ~pl.col("route").is_in(list(routes.read))
    # A broker expires messages by its own clock, whatever the sender's shows.
    gone = pl.col("expires_us") <= pl.max_horizontal(limit, limit - clocks.least("sender"))
    gone = gone.fill_null(value=False)
    sent_us = pl.coalesce("key_us", "hour_us")

    def late(shift: str, wait: str) -> pl.Expr:
        begun = pl.max_horizontal(sent_us + pl.col(shift).fill_null(0), wait)
        return (begun + deadline_us <= limit).fill_null(value=True)

    def left(settled: str) -> pl.Expr:
        elsewhere = (pl.col(settled) - pl.col("earlier")).clip(lower_bound=0)
        return (pl.col("missing") - elsewhere).clip(lower_bound=0)

    overdue, maybe_overdue = late("most_us", "wait_most_us"), late("least_us", "wait_least_us")
    away, went = (pl.col(name).fill_null(value=False) for name in ("away", "went"))
    open_ = ~gone & ~nobody
    doubtful = pl.col("doubtful") > 0
    lost = pl.col("lost")
    done, once = pl.col("done"), pl.max_horizontal(due, "strays", 1)
    ran_again = (pl.col("effects") > once) & (done <= once)
    perhaps_again = (pl.col("effects") + pl.col("running") > once) & (done <= once)
    died_too = (
        (pl.max_horizontal(done, "effects") + pl.col("dead_lettered") > once)
        & (done <= once)
        & ~(ran_again & ~doubtful)
    )
    by_key = by_key.join(
        clocks.shifts(by_key.select("sender", "key_us").drop_nulls()),
        on=["sender", "key_us"],
        how="left",
    ).join(waits, on=list(KEY), how="left")
    went_with = gone_with(removed, by_key, clocks, max(deadline_us, GRACE_US))
    return (
        by_key.join(begun.drop("whole_us"), on=["sender", "route"], how="left")
        .join(now, on=["sender", "route"], how="left")
        .join(went_with, on=list(KEY), how="left")
        # A copy that a broker moved, as to a dead letter queue, is settled there; each such settlement is of one copy.
        .with_columns(missing.alias("missing"), stray.alias("stray"))
        .with_columns(
            pl.col("stray").sum().over("msg_key").alias("stray"),
            (pl.col("stray").sum() - died.sum()).clip(lower_bound=0).over("msg_key").alias("moved"),
            # Where nobody sent the message, each copy read may be one that died, or that a broker moved.
            pl.when(mine).then(0).otherwise((died + missing).sum().over("msg_key")).alias("strays"),
            (
                pl.col("missing").cum_sum().over("msg_key", order_by="route") - pl.col("missing")
            ).alias("earlier"),
        )
        .with_columns(left("moved").alias("lost"), left("stray").alias("surely"))
        .with_columns(
            (pl.col("lost") - pl.col("surely") + pl.col("perhaps_dropped")).alias("elsewhere")
        )
        .with_columns(pl.when(before | away).then(0).otherwise(lost).alias("lost"))
        # What was in a transaction in doubt may have been done.
        .with_columns(pl.when(went & ~doubtful).then(lost).otherwise(0).alias("removed"))
        .with_columns((lost - pl.col("removed")).alias("lost"))
        .with_columns(
            pl.when(gone & ~nobody).then(lost).otherwise(0).alias("expired_at_broker"),
            pl.when(nobody).then(lost).otherwise(0).alias("unread"),
            pl.when(open_ & overdue & doubtful).then(lost).otherwise(0).alias("in_doubt"),
            pl.when(open_ & overdue & ~doubtful).then(lost).otherwise(0).alias("unaccounted"),
            pl.when(open_ & ~overdue).then(lost).otherwise(0).alias("in_flight"),
            pl.when(open_ & ~overdue & maybe_overdue).then(lost).otherwise(0).alias("undated"),
            (done > once).cast(pl.Int64).alias("duplicates"),
            (ran_again & ~doubtful).cast(pl.Int64).alias("effect_duplicates"),
            ((done > 1) & (done <= due)).cast(pl.Int64).alias("resent"),
            (perhaps_again & (doubtful | ~ran_again)).cast(pl.Int64).alias("doubtful_duplicates"),
            (pl.col("dead_later") & died_too).cast(pl.Int64).alias("dead_after_done"),
            (pl.col("unordered") & died_too).cast(pl.Int64).alias("unordered"),
            (~mine & ~pl.col("sent_anywhere") & (settled > 0) & (pl.col("bucket") >= 0))
            .cast(pl.Int64)
            .alias("unsent"),
            pl.when(~mine & ~pl.col("sent_anywhere") & (pl.col("bucket") < 0))
            .then(settled)
            .otherwise(0)
            .alias("foreign"),
            pl.when(
                overdue
                & ~gone
                & ~(before | away | went)
                & (confirmed == 0)
                & (settled + pl.col("moved") == 0)
            )
            .then(perhaps)
            .otherwise(0)
            .alias("unanswered"),
            pl.min_horizontal(perhaps, (settled - confirmed).clip(lower_bound=0)).alias(
                "late_confirmed"
            ),
            ((due == 0) & (pl.col("rolled_back") > 0) & (settled > 0))
            .cast(pl.Int64)
            .alias("phantoms"),
            ((due == 0) & (pl.col("rolled_back") == 0) & (pl.col("refused") > 0) & (settled > 0))
            .cast(pl.Int64)
            .alias("refused_settled"),
        )
    )


@of_rows
def causes(found: pl.DataFrame, died: frozenset[str]) -> pl.DataFrame:
    """Add `cause` to keys that were done twice: in_doubt, killed_writer, abandoned, or unknown; `died`: writers."""
    by_dead = pl.col("readers").list.eval(pl.element().is_in(list(died))).list.any()
    return found.with_columns(
        pl.when(pl.col("doubtful") > 0)
        .then(pl.lit("in_doubt"))
        .when(by_dead.fill_null(value=False))
        .then(pl.lit("killed_writer"))
        .when(pl.col("abandoned") > 0)
        .then(pl.lit("abandoned"))
        .otherwise(pl.lit("unknown"))
        .alias("cause")
    )
