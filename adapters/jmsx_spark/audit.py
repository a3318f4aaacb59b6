"""
Sent against settled, without bringing the two halves of each message together.

Each destination and 10 seconds of sending is one bucket. A message key of a jmsx sender begins with the
time of sending, so both sides know its bucket. In a balanced bucket as many messages were settled as were sent, and
the xor and the sum of the hashes of their keys agree; these are additive, so they merge over segments. Only the
keys of buckets that do not balance are looked at one by one. Topics are left out: a copy for each subscriber, or none,
is what they are for.
"""

from __future__ import annotations

from functools import reduce
from operator import and_
from typing import TYPE_CHECKING, Final

from pyspark.sql import functions as sf

from jmsx.core.events import SETTLED, Outcome
from jmsx_spark.transforms import DONE, FALSE, floor_to

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame

BUCKET_US: Final = 10_000_000
_GRAIN: Final = ["dest", "bucket_us"]
_SIDES: Final = ("sent", "settled")
_COUNTED: Final = ("done", "dead_lettered", "discarded", "suppressed", "expired")
_FOUND: Final = ("unaccounted", "in_flight", "unread", "duplicates", "unsent")
_SAMPLES: Final = 5
#: 2001 to 2286: what 12 hex digits must say to be a time of sending in milliseconds.
_PLAUSIBLE_MS: Final = (1_000_000_000_000, 10_000_000_000_000)


def sent_at(key: Column) -> Column:
    """Read the time of sending, microseconds since the epoch, off a key; null if not of jmsx."""
    digits = sf.when(key.rlike("^[0-9a-f]{32}$"), sf.substring(key, 1, 12))
    milliseconds = sf.conv(digits, 16, 10).cast("bigint")
    return sf.when(milliseconds.between(*_PLAUSIBLE_MS), milliseconds * 1000)


def flows(events: DataFrame) -> DataFrame:
    """
    Keep what the audit looks at: confirmed sends and settled deliveries, but not of topics.

    Columns: dest, msg_key, key_us (time of sending; null: not of jmsx), bucket_us, sent, settled, done, dead_lettered,
    discarded, suppressed (as done before), expired (each 0 or 1).
    """
    kind, outcome = sf.col("kind"), sf.col("outcome")
    sent = (kind == "send") & (outcome == "confirmed")
    settled = (kind == "delivery") & outcome.isin(*sorted(SETTLED))
    flags = {
        "sent": sent,
        "settled": settled,
        "done": settled & outcome.isin(*DONE),
        "dead_lettered": settled & (outcome == Outcome.DEAD_LETTERED.value),
        "discarded": settled & (outcome == Outcome.DISCARDED.value),
        "suppressed": settled & (outcome == Outcome.DUPLICATE.value),
        "expired": settled & (outcome == Outcome.EXPIRED.value),
    }
    return (
        events.where((sent | settled) & ~is_topic())
        .withColumn("key_us", sent_at(sf.col("msg_key")))
        .select(
            "dest",
            "msg_key",
            "key_us",
            floor_to("key_us", BUCKET_US).alias("bucket_us"),
            *(flag.cast("int").alias(name) for name, flag in flags.items()),
        )
    )


def is_topic() -> Column:
    """Whether the column `dest` names a topic."""
    return sf.coalesce(sf.col("dest").rlike("^(temp-)?topic://|^/topic/"), sf.lit(FALSE))


def fingerprints(flowing: DataFrame) -> DataFrame:
    """
    Fold both sides into one row for each destination and bucket; additive over any split of the log.

    Columns: dest, bucket_us (null: keys that are not of jmsx), sent, settled, done, dead_lettered, discarded,
    suppressed, expired, {sent, settled}_xor, {sent, settled}_sum.
    """
    hashed = flowing.withColumn("hash", sf.xxhash64("msg_key"))
    low = sf.col("hash").bitwiseAND(0x7FFFFFFF)  # 31 bits, so that 4 * 10^9 of them sum up
    sides = [
        column
        for side in _SIDES
        for column in (
            sf.bit_xor(sf.when(sf.col(side) == 1, sf.col("hash"))).alias(f"{side}_xor"),
            sf.sum(low * sf.col(side)).alias(f"{side}_sum"),
        )
    ]
    sums = (sf.sum(name).alias(name) for name in (*_SIDES, *_COUNTED))
    return hashed.groupBy(*_GRAIN).agg(*sums, *sides)


def is_balanced() -> Column:
    """Whether a row of `fingerprints` has the same messages on both sides."""
    sent, settled = _SIDES
    return reduce(
        and_,
        (
            sf.col(f"{sent}{measure}").eqNullSafe(sf.col(f"{settled}{measure}"))
            for measure in ("", "_xor", "_sum")
        ),
    )


def is_suspicious() -> Column:
    """Whether the keys of a row of `fingerprints` must be looked at: they can be, and it does not balance."""
    return ~is_balanced() & sf.col("bucket_us").isNotNull()


def subscriptions(events: DataFrame) -> DataFrame:
    """List what jmsx reads, as a regular expression for destinations. Column: pattern."""
    read = events.where(sf.col("kind").isin("sub.open", "delivery")).select("dest").distinct()
    quoted = sf.regexp_replace("dest", r"([.^$+?()\[\]{}|\\])", r"\\$1")
    one = sf.regexp_replace(quoted, r"\*", "[^.]*")
    every = sf.regexp_replace(one, ">", ".*")
    return read.select(sf.concat(sf.lit("^"), every, sf.lit("$")).alias("pattern"))


def suspects(flowing: DataFrame, buckets: DataFrame, read: DataFrame, newest_us: int) -> DataFrame:
    """
    Look at each key of the buckets that do not balance.

    `newest_us`: a message sent later may still wait in its queue. Columns: dest, bucket_us, msg_key,
    unaccounted, in_flight, unread (sent where jmsx does not read), duplicates, unsent (settled, but its sender
    keeps no log here), each a number of messages. A destination with a wildcard settles what was sent to another name,
    so a key is looked up in every destination of its time.
    """
    dirty = buckets.where(is_suspicious()).select("bucket_us")
    sent, settled, done = sf.col("sent"), sf.col("settled"), sf.col("done")
    keys = (
        flowing.join(sf.broadcast(dirty.distinct()), "bucket_us")
        .groupBy("bucket_us", "key_us", "msg_key")
        .agg(
            sf.coalesce(sf.min(sf.when(sent == 1, sf.col("dest"))), sf.min("dest")).alias("dest"),
            *(sf.sum(name).alias(name) for name in ("sent", "settled", "done")),
        )
    )
    missing = sf.greatest(sent - settled, sf.lit(0))
    unread = sf.col("reader").isNull()
    waiting = sf.col("key_us") > newest_us
    return (
        keys.join(_readable(keys, read), "dest", "left")
        .withColumns(
            {
                "unread": sf.when(unread, missing).otherwise(0),
                "in_flight": sf.when(~unread & waiting, missing).otherwise(0),
                "unaccounted": sf.when(~unread & ~waiting, missing).otherwise(0),
                "duplicates": (done > sf.greatest(sent, sf.lit(1))).cast("int"),
                "unsent": ((sent == 0) & (settled > 0)).cast("int"),
            }
        )
        .select("dest", "bucket_us", "msg_key", *_FOUND)
        .where(sum((sf.col(name) for name in _FOUND), sf.lit(0)) > 0)
    )


def _readable(keys: DataFrame, read: DataFrame) -> DataFrame:
    """Columns: dest, reader; one row for each destination of `keys` that jmsx reads."""
    destinations = keys.select("dest").distinct()
    matches = sf.expr("dest rlike pattern")
    return destinations.join(sf.broadcast(read), matches, "left_semi").select(
        "dest", sf.lit("jmsx").alias("reader")
    )


def audit(buckets: DataFrame, found: DataFrame) -> DataFrame:
    """
    Join the verdict on each destination and bucket from `fingerprints` and `suspects`.

    Columns: dest, bucket_us, sent, settled, done, dead_lettered, discarded, suppressed, expired, unaccounted,
    in_flight, unread, duplicates, unsent, foreign (settled or sent by who is not jmsx), sample_keys (five at most),
    verdict (balanced, suspect, unverifiable).
    """
    wrong = sum((sf.col(name) for name in ("unaccounted", "duplicates")), sf.lit(0)) > 0
    samples = sf.array_sort(sf.collect_list(sf.when(wrong, sf.col("msg_key"))))
    by_bucket = found.groupBy(*_GRAIN).agg(
        *(sf.sum(name).alias(name) for name in _FOUND),
        sf.slice(samples, 1, _SAMPLES).alias("sample_keys"),
    )
    foreign = sf.when(sf.col("bucket_us").isNull(), sf.greatest("sent", "settled")).otherwise(0)
    unknown = (sf.col("unsent") > 0) | (sf.col("foreign") > 0)
    return (
        buckets.join(by_bucket, _GRAIN, "full")
        .fillna(0, [*_SIDES, *_COUNTED, *_FOUND])
        .withColumn("foreign", foreign)
        .withColumn(
            "verdict",
            sf.when(wrong, "suspect").when(unknown, "unverifiable").otherwise("balanced"),
        )
        .select(*_GRAIN, *_SIDES, *_COUNTED, *_FOUND, "foreign", "sample_keys", "verdict")
    )


def by_destination(audited: DataFrame) -> DataFrame:
    """Add up the audit of each destination; columns as `audit`, without bucket_us and verdict."""
    return audited.groupBy("dest").agg(
        *(sf.sum(name).alias(name) for name in (*_SIDES, *_COUNTED, *_FOUND, "foreign")),
        sf.slice(sf.flatten(sf.collect_list("sample_keys")), 1, _SAMPLES).alias("sample_keys"),
    )
