"""
The sends and deliveries that the audit compares: as fingerprints that add up, and key by key where these disagree.

A message key made by jmsx begins with the time of sending, so sender and receiver both know the message's bucket: the
10 seconds of that time. For each writer, destination, subscription, bucket and outcome only a count is kept, and the
xor and the sum of the keys' hashes. Keys of other clients have no time; their buckets are negative numbers made of the
key's hash.
"""

from __future__ import annotations

from typing import Final

import polars as pl

from jmsx.core.events import LateOutcome, Outcome
from jmsx_report.additive import HOUR_US, Adds, Partial
from jmsx_report.events import SCHEMAS, Events, named
from jmsx_report.inline import at_once
from jmsx_report.nothing import of_lines, of_rows
from jmsx_report.texts import are_hexadecimal

BUCKET_US: Final = 10_000_000
#: 2001 to 2286, in microseconds and in milliseconds: other numbers are no times of this log.
PLAUSIBLE_US: Final = (1_000_000_000_000_000, 10_000_000_000_000_000)
_PLAUSIBLE_MS: Final = (1_000_000_000_000, 10_000_000_000_000)
#: The number of buckets of keys without a time: -1 to -SHARDS.
SHARDS: Final = 64
#: A send that begins more than this after its key was made may be a second one: jmsx makes a key as it begins to send.
LATE_US: Final = 100_000
#: The bucket of messages without any key, which cannot be compared.
NAMELESS: Final = -SHARDS - 1
#: Up to so many keys each is looked at by itself.
_FEW: Final = 1_000
_KEY_DIGITS: Final = 32  #: hexadecimal ones, in a key of a jmsx sender
_SEED: Final = 11
#: The low 31 bits of a hash: the sum of 4 * 10^9 of these still fits into 64 bits.
_LOW: Final = 0x7FFF_FFFF
#: The outcomes of a delivery after which the broker no longer has the message, and the number that counts each.
SETTLES: Final = {
    Outcome.ACKNOWLEDGED.value: "done",
    Outcome.COMMITTED.value: "done",
    Outcome.DEAD_LETTERED.value: "dead_lettered",
    Outcome.DISCARDED.value: "discarded",
    Outcome.DUPLICATE.value: "suppressed",
    Outcome.EXPIRED.value: "expired",
}
#: Outcomes of deliveries that are done.
DONE: Final = tuple(outcome for outcome, number in SETTLES.items() if number == "done")
#: The kind of line that tells the end of a delivery that was abandoned while the application had the message.
LATE: Final = "delivery.late"
_FLOWING: Final = ("send", "delivery", LATE)
_HERE: Final = ("writer", "session_id", "epoch", "kind", "outcome", "dest", "subscription")


def optional(kind: str, name: str, of: type[pl.DataType]) -> pl.Expr:
    """
    Return the column `name`, or nulls if lines of `kind` have no such member.

    A null Categorical must not be a constant of the module: Polars would then keep the names of all batches in memory.
    """
    return pl.col(name) if name in SCHEMAS[kind] else pl.lit(None, of).alias(name)


def key_us(key: pl.Expr) -> pl.Expr:
    """Return the time of sending in a message key, microseconds since the epoch; null if jmsx did not make the key."""
    milliseconds = key.str.head(12).str.to_integer(base=16, strict=False)
    digits = key.map_batches(_of_digits, return_dtype=pl.Boolean, is_elementwise=True)
    ours = (key.str.len_bytes() == _KEY_DIGITS) & digits & milliseconds.is_between(*_PLAUSIBLE_MS)
    return pl.when(ours).then(milliseconds * 1000).cast(pl.Int64)


def _of_digits(keys: pl.Series) -> pl.Series:
    """Return which keys have only hexadecimal digits. Nearly always all do; that is tested first, for all at once."""
    if keys.len() > _FEW and are_hexadecimal(keys):
        return keys.is_not_null()
    # To search for a forbidden character takes a quarter of the time of matching the whole key.
    return ~keys.str.contains("[^0-9a-f]")


def hashed(key: pl.Expr) -> pl.Expr:
    """Return a hash of a key, the same wherever this version of Polars runs."""
    return key.hash(_SEED).reinterpret(signed=True)


def fingerprint(n: pl.Expr) -> tuple[pl.Expr, pl.Expr, pl.Expr]:
    """Return `n`, `xor` and `total` of rows that each have `n` messages of one `hash`, as `FLOWS` has them."""
    odd = pl.when(n % 2 == 1).then("hash").otherwise(0)
    return (
        n.sum().alias("n"),
        odd.bitwise_xor().alias("xor"),
        ((pl.col("hash") & _LOW) * n).sum().alias("total"),
    )


def bucket(key: pl.Expr, instant: pl.Expr, number: pl.Expr | None = None) -> pl.Expr:
    """
    Return the bucket of a key whose time is `instant`: the beginning of its 10 seconds, or a negative number without.

    Sender and receiver get the same bucket. `number` is `hashed(key)`, if that is known already.
    """
    shard = -1 - ((hashed(key) if number is None else number) & (SHARDS - 1))
    nameless = key.is_null() | (key == "")
    return (
        pl.when(nameless)
        .then(NAMELESS)
        .when(instant.is_null())
        .then(shard)
        .otherwise(instant // BUCKET_US * BUCKET_US)
        .cast(pl.Int64)
    )


#: Columns, besides the subscription, that only some of the kinds have.
_OF_SOME: Final[dict[str, type[pl.DataType]]] = {
    "sent_us": pl.Int64,
    "recv_us": pl.Int64,
    "msg_id": pl.String,
    "tx_id": pl.String,
    "expires_us": pl.Int64,
}


_NONE: Final = pl.lit(0)
#: The range of line numbers, by which the segments of such lines are found.
_NUMBERS: Final = (pl.col("seq").min().alias("low"), pl.col("seq").max().alias("high"))
#: The prefix of Classic's message ids: messages of Classic have the timestamps of their senders.
_OF_CLASSIC: Final = "ID:"


def _of(kind: str, effects: pl.Expr = _NONE, running: pl.Expr = _NONE) -> list[pl.Expr]:
    """Return the columns of `keyed` for lines of `kind`, except the subscription and those that `keyed` itself adds."""
    there = {name: optional(kind, name, of) for name, of in _OF_SOME.items()}
    columns = (*_HERE[:-1], "msg_key", "seq", "ts_us", "mono_us")
    return [
        *map(pl.col, columns),
        *(there[name] for name in ("recv_us", "tx_id", "expires_us")),
        pl.when(~there["msg_id"].str.starts_with(_OF_CLASSIC))
        .then(there["sent_us"])
        .alias("shown_us"),
        pl.coalesce(there["sent_us"], there["recv_us"], "ts_us").alias("told_us"),
        effects.cast(pl.Int64).alias("effects"),
        running.cast(pl.Int64).alias("running"),
    ]


def _of_deliveries() -> list[pl.Expr]:
    """
    Return the columns of `keyed` for a delivery.

    For an abandoned delivery only the times tell whether its handler ran. If it was not called, they are all equal, or
    its end is before its start or missing; if it still ran, its end is the time when the link was lost.
    """
    done = pl.col("outcome").is_in(DONE)
    begun, ended, settled = pl.col("start_us"), pl.col("end_us"), pl.col("ts_us")
    called = (ended >= begun) & ~((ended == begun) & (begun == pl.col("recv_us")))
    had = (
        (pl.col("outcome") == Outcome.ABANDONED.value)
        & pl.col("error_type").is_null()
        & called.fill_null(value=False)
    )
    return _of("delivery", done | (had & (ended != settled)), had & (ended == settled))


def _of_late_ones() -> list[pl.Expr]:
    """Return the columns of `keyed` for `delivery.late` lines, which take back what `running` had counted."""
    outcome = pl.col("outcome")
    running = pl.when(outcome != LateOutcome.IN_DOUBT.value).then(-1).otherwise(0)
    return _of(LATE, outcome == LateOutcome.DONE.value, running)


#: The columns of each kind in `keyed`, in the order of its rows.
_COLUMNS: Final = {"send": _of("send"), "delivery": _of_deliveries(), LATE: _of_late_ones()}
_KEY: Final = pl.col("msg_key")
_KEY_US: Final = pl.col("key_us")
_HASH: Final = hashed(_KEY.fill_null("")).alias("hash")
_TOLD_US: Final = key_us(_KEY).alias("key_us")
_SHOWN_US: Final = pl.when(_KEY_US.is_not_null()).then("shown_us").alias("shown_us")
_HOUR_US: Final = (pl.coalesce("key_us", "told_us") // HOUR_US * HOUR_US).alias("hour_us")
_BUCKET: Final = bucket(_KEY, _KEY_US, pl.col("hash")).alias("bucket")


def keyed(events: Events) -> pl.DataFrame:
    """
    Return each send, each delivery, and each `delivery.late` line, with time and hash of its key.

    Names (writer, dest and the like) are Categorical. `shown_us`: the broker's own clock when it got the message; null
    if unsure: Classic takes the time from the sender, and so does Artemis for clients other than STOMP's, whose keys
    jmsx did not make. `effects`: the handler ended without an error. `running`: the handler still ran when its link was
    lost; a `LATE` line, which older releases do not write, takes that back.
    """
    lines = {kind: events.coded(kind) for kind in events.kinds(*_FLOWING)}
    return (
        pl.concat(
            rows.lazy().select(*_COLUMNS[kind], optional(kind, "subscription", pl.Categorical))
            for kind, rows in lines.items()
        )
        .with_columns(_TOLD_US, _HASH)
        .with_columns(_SHOWN_US)
        .pipe(at_once, sum(rows.height for rows in lines.values()))
    )


def _placed(both: pl.DataFrame) -> pl.LazyFrame:
    """Add to each row of `keyed` the bucket of its key, and the hour of sending if that is known."""
    return both.lazy().with_columns(_BUCKET, _HOUR_US)


_COUNT: Final = pl.len().cast(pl.Int64).alias("n")
_FINGERPRINT: Final = (
    _COUNT,
    pl.col("effects", "running").sum(),
    pl.col("hash").bitwise_xor().alias("xor"),
    (pl.col("hash") & _LOW).sum().alias("total"),
    *_NUMBERS,
)


@of_lines(*_FLOWING)
def _fingerprints(events: Events) -> pl.DataFrame:
    both = events.once(keyed)
    return (
        _placed(both)
        .group_by(*_HERE, "hour_us", "bucket")
        .agg(_FINGERPRINT)
        .pipe(named)
        .pipe(at_once, both.height)
    )


#: The fingerprints of the rows of `keyed`, by writer, outcome, destination, subscription and bucket. `hour_us` is the
#: hour of sending; the rows' lines have numbers of the writer from `low` to `high`.
FLOWS: Final = Partial(
    "flows",
    (*_HERE, "hour_us", "bucket"),
    {
        "n": Adds.SUM,
        "effects": Adds.SUM,
        "running": Adds.SUM,
        "xor": Adds.XOR,
        "total": Adds.SUM,
        "low": Adds.MIN,
        "high": Adds.MAX,
    },
    _fingerprints,
    apart=("writer", "bucket"),
)

_STORY: Final = (
    *_HERE,
    *("msg_key", "key_us", "bucket", "hour_us", "tx_id", "msg_id"),
    *("consumer", "plan"),
)
#: The kind of line that tells of a planned redelivery.
PLANNED: Final = "redelivery.scheduled"
#: Outcomes that, in a transaction, leave open what the broker has done.
_OPEN: Final = ("unconfirmed", Outcome.ABANDONED.value)


def _plans(events: Events) -> pl.LazyFrame:
    """Return each line about a planned redelivery as a story of its own: later lines do not replace earlier ones."""
    instant = key_us(pl.col("msg_key"))
    return (
        events.coded(PLANNED)
        .lazy()
        .select(
            *("writer", "session_id", "epoch", "kind"),
            pl.lit(None, pl.Categorical).alias("outcome"),
            "dest",
            pl.lit(None, pl.Categorical).alias("subscription"),
            "msg_key",
            instant.alias("key_us"),
            bucket(pl.col("msg_key"), instant).alias("bucket"),
            (pl.coalesce(instant, "ts_us") // HOUR_US * HOUR_US).alias("hour_us"),
            pl.lit(None, pl.String).alias("tx_id"),
            pl.lit(None, pl.String).alias("msg_id"),
            "consumer",
            pl.col("seq").alias("plan"),
            "seq",
            "ts_us",
            pl.lit(0, pl.Int64).alias("effects"),
            pl.lit(0, pl.Int64).alias("running"),
            pl.lit(None, pl.Int64).alias("expires_us"),
            (pl.col("ts_us") + pl.col("delay_us").clip(0, PLAUSIBLE_US[1])).alias("until_us"),
            # Lines of older releases tell this only where later messages wait for the redelivery.
            pl.coalesce(~pl.col("by_broker"), "blocking", pl.lit(value=False)).alias("kept"),
        )
    )


@of_lines(PLANNED)
def _planned(events: Events) -> pl.DataFrame:
    return (
        _plans(events)
        .group_by(PLANS.keys)
        .agg(*_NUMBERS, pl.col("ts_us").filter(~pl.col("kept")).max().alias("back_us"))
        .pipe(named)
        .pipe(at_once)
    )


#: The range of a writer's line numbers about planned redeliveries of a bucket, and the time of the last one for which
#: the broker may keep the message meanwhile.
PLANS: Final = Partial(
    "plans",
    ("writer", "dest", "hour_us", "bucket"),
    {"low": Adds.MIN, "high": Adds.MAX, "back_us": Adds.MAX},
    _planned,
    apart=("writer", "bucket"),
)


@of_lines(*_FLOWING, PLANNED)
def _told(events: Events, wanted: pl.Series) -> pl.DataFrame:
    looked_at = pl.col("bucket").is_in(wanted.implode())
    line = ("writer", "seq")
    ids = [
        events.coded(kind).lazy().select(*line, name).drop_nulls(name)
        for kind, name in (("send", "duplicate_id"), ("delivery", "msg_id"))
    ]
    both = events.once(keyed)
    flowing = (
        _placed(both)
        .filter(looked_at)
        .join(ids[0], on=line, how="left")
        .join(ids[1], on=line, how="left")
        .with_columns(pl.when(pl.col("outcome").is_in(_OPEN)).then("tx_id").alias("tx_id"))
    )
    return (
        pl.concat([flowing, _plans(events).filter(looked_at)], how="diagonal")
        .group_by(_STORY)
        .agg(
            _COUNT,
            pl.col("effects", "running").sum(),
            pl.col("ts_us").min().alias("first_us"),
            pl.col("ts_us").max().alias("last_us"),
            pl.col("seq").max().alias("last_seq"),
            pl.col("recv_us", "expires_us", "until_us", "kept").max(),
            pl.col("duplicate_id").min(),
        )
        .pipe(named)
        .pipe(at_once, both.height)
    )


def stories(buckets: pl.Series) -> Partial:
    """
    Return the partial with the story of each message of `buckets`, key by key, where FLOWS only has sums.

    Columns: writer, session_id, epoch, kind, outcome, dest, subscription, msg_key, key_us, bucket, hour_us, n, effects,
    running, tx_id (only where the outcome leaves open how the transaction ended), msg_id (of a delivery), first_us,
    last_us (when, by the writer's clock), last_seq, recv_us (the last receipt, by that clock), expires_us; of a send
    duplicate_id; and of each `PLANNED` line consumer, plan (its seq), until_us (by the writer's clock), kept (whether
    the consumer surely keeps it until then; null: it is another line).
    """
    wanted, nothing = buckets.unique(), Events()
    return Partial(
        "stories",
        _STORY,
        {
            "n": Adds.SUM,
            "effects": Adds.SUM,
            "running": Adds.SUM,
            "first_us": Adds.MIN,
            "last_us": Adds.MAX,
            "last_seq": Adds.MAX,
            "recv_us": Adds.MAX,
            "expires_us": Adds.MAX,
            "until_us": Adds.MAX,
            "kept": Adds.MAX,
            "duplicate_id": Adds.MIN,
        },
        lambda events: _told(events if wanted.len() else nothing, wanted),
    )


@of_lines("send")
def _sent_with(events: Events, ids: pl.Series) -> pl.DataFrame:
    made = pl.col("msg_key")
    return (
        events.of("send")
        .filter(pl.col("duplicate_id").is_in(ids.implode()))
        .group_by(bucket(made, key_us(made)).alias("bucket"))
        .agg(pl.len().cast(pl.Int64).alias("n"))
    )


def sent_with(ids: pl.Series) -> Partial:
    """Return the buckets of the sends that had one of these duplicate ids: bucket, n."""
    nothing = Events()
    return Partial(
        "sent_with",
        ("bucket",),
        {"n": Adds.SUM},
        lambda events: _sent_with(events if ids.len() else nothing, ids),
    )


_IS_LATE: Final = (pl.coalesce("start_us", "ts_us") - _KEY_US).abs() >= LATE_US
_WHERE_SENT: Final = (
    bucket(_KEY, _KEY_US).alias("bucket"),
    (_KEY_US // HOUR_US * HOUR_US).alias("hour_us"),
)


@of_lines("send")
def _sent_late(events: Events) -> pl.DataFrame:
    """Return sends that did not begin right after their key was made: the key may have been sent before."""
    sends = events.coded("send")
    # In `keyed` the sends come first.
    known = events.once(keyed)["key_us"][: sends.height]
    begun = sends[["msg_key", "start_us", "ts_us"]].hstack([known])
    return begun.lazy().filter(_IS_LATE).select(_WHERE_SENT).pipe(at_once)


_IS_FLAGGED: Final = (pl.col("attempt") > 1) | pl.col("redelivered")


@of_lines("send", "delivery")
def _again(events: Events) -> pl.DataFrame:
    # One filter after the other: the key is looked at where little is left.
    flagged = events.coded("delivery").filter(_IS_FLAGGED)
    return _numbers(pl.concat([_foreign(flagged), _sent_late(events)]))


@of_rows
def _foreign(flagged: pl.DataFrame) -> pl.DataFrame:
    """Return the deliveries in `flagged` that are done and whose key has no time."""
    return (
        flagged.filter(pl.col("outcome").is_in(DONE), key_us(pl.col("msg_key")).is_null())
        .select(
            bucket(pl.col("msg_key"), pl.lit(None, pl.Int64)).alias("bucket"),
            (pl.coalesce("sent_us", "recv_us", "ts_us") // HOUR_US * HOUR_US).alias("hour_us"),
        )
        .filter(pl.col("bucket") != NAMELESS)
    )


@of_rows
def _numbers(again: pl.DataFrame) -> pl.DataFrame:
    """Count messages by bucket and hour."""
    return again.group_by("bucket", "hour_us").agg(_COUNT)


#: Buckets in which a message may have been done twice though sends and settlements agree. For messages of foreign
#: senders, whose keys have no time: the broker or the process says that one was delivered before. Their other keys are
#: not compared, since the log has no send of them, and whether two are in one batch depends on how the log is cut. For
#: messages of jmsx: one was sent long after its key was made, so it may have been sent twice. A second send within
#: `LATE_US` of the making of the key is not noticed; but jmsx never has two such sends confirmed: a producer makes a
#: key for each message that it is given, even one that it received, and repeats only sends without an answer.
AGAIN: Final = Partial("again", ("bucket", "hour_us"), {"n": Adds.SUM}, _again)


@of_lines("tx.in_doubt")
def _doubts(events: Events) -> pl.DataFrame:
    return (
        events.of("tx.in_doubt")
        .group_by("writer", "tx_id")
        .agg(pl.col("ts_us").min().alias("first_us"))
    )


#: Transactions whose outcome is unknown.
DOUBTS: Final = Partial("doubts", ("writer", "tx_id"), {"first_us": Adds.MIN}, _doubts)


#: When the first and the last of some lines were written.
_FIRST_AND_LAST: Final = (
    pl.col("ts_us").min().alias("first_us"),
    pl.col("ts_us").max().alias("last_us"),
)
#: How many deliveries a line tells of.
_DELIVERIES: Final = {
    kind: pl.lit(number, pl.Int64).alias("deliveries")
    for kind, number in (("sub.open", 0), ("delivery", 1))
}


@of_lines(*_DELIVERIES)
def _readers(events: Events) -> pl.DataFrame:
    return (
        pl.concat(
            events.coded(kind).lazy().select(*READERS.keys, "ts_us", _DELIVERIES[kind])
            for kind in events.kinds(*_DELIVERIES)
        )
        .drop_nulls("dest")
        .group_by(READERS.keys)
        .agg(*_FIRST_AND_LAST, pl.col("deliveries").sum())
        .pipe(named)
        .pipe(at_once)
    )


#: Who reads what: one row a writer, destination, subscription and consumer.
READERS: Final = Partial(
    "readers",
    ("writer", "dest", "subscription", "consumer"),
    {"first_us": Adds.MIN, "last_us": Adds.MAX, "deliveries": Adds.SUM},
    _readers,
    apart=("writer",),
)


#: Kinds of lines that name a consumer, but not its subscription.
_OF_CONSUMERS: Final = (
    *("recv.batch", "ack.batch", "ack.dropped", PLANNED, "dlq", "dlq.failed"),
    *("sub.stats", "sub.close"),
)


@of_lines(*_OF_CONSUMERS)
def _heard_of(events: Events) -> pl.DataFrame:
    return (
        pl.concat(
            events.coded(kind).lazy().select(*HEARD_OF.keys, "ts_us")
            for kind in events.kinds(*_OF_CONSUMERS)
        )
        .drop_nulls("dest")
        .group_by(HEARD_OF.keys)
        .agg(_FIRST_AND_LAST)
        .pipe(named)
        .pipe(at_once)
    )


#: Which consumers read which destinations, by lines of other kinds: the lines that `READERS` needs may be missing.
HEARD_OF: Final = Partial(
    "heard_of",
    ("writer", "dest", "consumer"),
    {"first_us": Adds.MIN, "last_us": Adds.MAX},
    _heard_of,
    apart=("writer",),
)


@of_lines("sub.close", "conn.lost")
def _closings(events: Events) -> pl.DataFrame:
    none = pl.lit(None, pl.Categorical)
    return (
        pl.concat(
            [
                events.coded("sub.close").select(*CLOSINGS.keys, "ts_us"),
                events.coded("conn.lost").select(
                    *CLOSINGS.keys[:2], none.alias("dest"), none.alias("consumer"), "ts_us"
                ),
            ]
        )
        .group_by(CLOSINGS.keys)
        .agg(pl.col("ts_us").max().alias("closed_us"))
        .pipe(named)
    )


#: When each consumer was last closed: then the broker got back the messages that waited there for redelivery. Rows
#: without destination and consumer: when the session's link was last lost; then the broker got back prefetched ones.
CLOSINGS: Final = Partial(
    "closings",
    ("writer", "session_id", "dest", "consumer"),
    {"closed_us": Adds.MAX},
    _closings,
)


#: The prefix in the names of durable subscriptions.
DURABLE: Final = "durable:"
#: The kind of line by which a durable subscription ends.
REMOVED: Final = "sub.removed"


@of_lines(REMOVED, "sub.open")
def _spans(events: Events) -> pl.DataFrame:
    columns = ("writer", "subscription", "kind", "ts_us")
    return pl.concat(
        [
            events.of(REMOVED).select(columns),
            events.of("sub.open")
            .filter(pl.col("subscription").str.starts_with(DURABLE))
            .select(columns),
        ]
    ).unique()


#: When each durable subscription was removed, and when somebody opened it.
SPANS: Final = Partial("spans", ("writer", "subscription", "kind", "ts_us"), {}, _spans)


def _said_and_done() -> dict[str, tuple[pl.Expr, pl.Expr]]:
    """Return the columns `said` and `done` of `IN_HAND` for each kind of line."""
    said = pl.struct(
        "seq",
        pl.col("ts_us").alias("told_us"),
        pl.col("buffered", "in_process").cast(pl.Int64),
        pl.col("still_in_process").cast(pl.Int64).fill_null(0),
    ).alias("said")

    def done(came_us: pl.Expr, from_us: pl.Expr, to_us: pl.Expr) -> pl.Expr:
        return pl.struct(
            pl.col("seq").alias("done_seq"),
            pl.col("ts_us").alias("last_us"),
            came_us.alias("came_us"),
            from_us.alias("from_us"),
            to_us.alias("to_us"),
        ).alias("done")

    none = pl.lit(None, pl.Int64)
    numbers = ("seq", "told_us", "buffered", "in_process", "still_in_process")
    nothing_said = pl.lit(None, pl.Struct(dict.fromkeys(numbers, pl.Int64))).alias("said")
    times = ("done_seq", "last_us", "came_us", "from_us", "to_us")
    nothing_done = pl.lit(None, pl.Struct(dict.fromkeys(times, pl.Int64))).alias("done")
    by_it = pl.col("outcome").is_in(DONE)  # else the application may not have had it
    return {
        "sub.stats": (said, nothing_done),
        # The first message after the opening may be of any age.
        "sub.open": (nothing_said, done(pl.lit(0, pl.Int64), none, none)),
        "delivery": (
            nothing_said,
            done(
                pl.when(pl.col("sent_us").is_between(*PLAUSIBLE_US)).then("sent_us"),
                pl.when(by_it).then("start_us"),
                pl.when(by_it).then("end_us"),
            ),
        ),
    }


_SAID_AND_DONE: Final = _said_and_done()


@of_lines(*_SAID_AND_DONE)
def _in_hand(events: Events) -> pl.DataFrame:
    rows = (
        events.coded(kind)
        .lazy()
        .filter(pl.col("ts_us").is_between(*PLAUSIBLE_US))
        .select(*IN_HAND.keys, *_SAID_AND_DONE[kind])
        for kind in events.kinds(*_SAID_AND_DONE)
    )
    return pl.concat(rows).group_by(IN_HAND.keys).agg(IN_HAND.sums).pipe(named).pipe(at_once)


#: How many messages each consumer of a session last `said` that it holds, which no other line tells. `done`: its last
#: delivery that ended: the message's timestamp, by the broker or the sender (`came_us`), and from when to when the
#: application had it. If none has ended: the opening of the consumer, with `came_us` 0.
IN_HAND: Final = Partial(
    "in_hand",
    ("writer", "session_id", "dest", "consumer"),
    {"said": Adds.LAST, "done": Adds.LAST},
    _in_hand,
)


def _counted(kind: str) -> tuple[pl.Expr, ...]:
    """Return the columns of `COUNTS` for lines of `kind`, except the keys that all kinds have."""
    return (
        pl.lit(kind).alias("kind"),
        _COUNT,
        optional(kind, "messages", pl.Int32).cast(pl.Int64).sum(),
        (optional(kind, "attempt", pl.Int32) > 1).sum().cast(pl.Int64).alias("again"),
        optional(kind, "redelivered", pl.Boolean).sum().cast(pl.Int64).alias("flagged"),
    )


_COUNTED: Final = {kind: _counted(kind) for kind in SCHEMAS}


def _counts(events: Events) -> pl.DataFrame:
    """Count the lines of every kind, and the messages in them."""
    return (
        pl.concat(
            events.coded(kind)
            .lazy()
            .group_by(optional(kind, name, pl.Categorical) for name in ("dest", "outcome"))
            .agg(_COUNTED[kind])
            for kind in events.every_kind()
        )
        .pipe(named)
        .select(COUNTS.columns)
        .pipe(at_once)
    )


#: Lines and the messages in them, for comparison with metrics and the broker's counts. `messages`: in batches; `again`:
#: deliveries with attempt > 1; `flagged`: deliveries with the redelivered flag, the broker's or ours.
COUNTS: Final = Partial(
    "counts",
    ("kind", "dest", "outcome"),
    {"n": Adds.SUM, "messages": Adds.SUM, "again": Adds.SUM, "flagged": Adds.SUM},
    _counts,
)
