"""
The audit and its neighbours in SQL: sends against settlements, key by key, without buckets and fingerprints.

Only for whole logs of queues that are read where they were sent to: what may be missing, and copies, have no twin here.
"""

from __future__ import annotations

from typing import Final

from tests.pipeline.situations.twins import Twin

_HOUR: Final = 3_600_000_000
_LABELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
_DONE: Final = "outcome IN ('acknowledged', 'committed')"
#: The number that counts a settlement -> which deliveries.
_SETTLED: Final = {
    "done": _DONE,
    "dead_lettered": "outcome = 'dead_lettered'",
    "discarded": "outcome = 'discarded'",
    "suppressed": "outcome = 'duplicate'",
    "expired": "outcome = 'expired'",
}
#: What tells that a handler has succeeded.
_RAN: Final = f"""
    (kind = 'delivery' AND ({_DONE} OR (
        outcome = 'abandoned' AND tx_id IS NULL AND error_type IS NULL AND end_us <> ts_us
        AND end_us >= start_us AND (end_us > start_us OR start_us <> recv_us)
    )) OR kind = 'delivery.late' AND outcome = 'done')
"""
#: One row a destination and key: what was sent, how it was settled, how often its handler succeeded, and whether it is
#: to come again after the end of the log, when every consumer is closed: of those only the broker has any. Whether it
#: was dead-lettered after it was done, one process tells by the order of its lines, and two by their clocks. `gone` are
#: the queues of which every consumer was closed, and that no broker counts: what is sent a minute before, or later,
#: awaits a reader.
_KEYS: Final = f"""
    WITH counted AS (
        SELECT dest, msg_key, ('0x' || msg_key[:12])::BIGINT * 1000 AS key_us,
               key_us - key_us % {_HOUR} AS hour_us,
               count_if(kind = 'send' AND outcome = 'confirmed') AS sent,
               count_if(kind = 'send') AS tried,
               {", ".join(f"count_if(kind = 'delivery' AND {sql}) AS {name}" for name, sql in _SETTLED.items())},
               count_if(kind = 'delivery' AND outcome = 'abandoned') AS abandoned,
               count_if({_RAN}) AS effects,
               max(ts_us) FILTER (kind = 'delivery') AS last_us,
               count_if(kind <> 'send') = 0 AS untouched,
               coalesce(bool_or(kind = 'redelivery.scheduled' AND coalesce(by_broker, NOT blocking)
                                AND ts_us + delay_us > (SELECT max(ts_us) FROM events)), false)
                   AS waits
        FROM events WHERE kind IN ('send', 'delivery', 'delivery.late', 'redelivery.scheduled') GROUP BY ALL
    ), ended AS (
        SELECT dest, msg_key, writer, seq, ts_us, outcome = 'dead_lettered' AS dead FROM events
        WHERE {_RAN} OR kind = 'delivery' AND {_SETTLED["dead_lettered"]}
    ), deaths AS (
        SELECT DISTINCT first.dest, first.msg_key, true AS dead_later
        FROM ended AS first JOIN ended AS late USING (dest, msg_key)
        WHERE NOT first.dead AND late.dead
            AND CASE WHEN first.writer = late.writer THEN first.seq < late.seq ELSE first.ts_us < late.ts_us END
    ), links AS (
        SELECT *, max(epoch) OVER (PARTITION BY writer, session_id, dest, consumer) AS link
        FROM events WHERE dest IS NOT NULL AND consumer IS NOT NULL
    ), readers AS (
        SELECT dest, writer, session_id, consumer, max(ts_us) AS closed_us,
               arg_max(kind, seq) = 'sub.close' AND count_if(kind = 'sub.open') = count_if(kind = 'sub.close') AS closed
        FROM links WHERE epoch = link GROUP BY ALL
    ), gone AS (
        SELECT dest, max(closed_us) AS closed_us FROM readers
        WHERE dest NOT IN (SELECT dest FROM events WHERE kind = 'broker.stats') GROUP BY dest HAVING bool_and(closed)
    ), repeats AS (
        SELECT *, greatest(sent, 1) AS due, done > due AS settled_again,
               effects > due AND done <= due AS ran_again, done > 1 AND done <= due AS sent_again,
               coalesce(dead_later, false) AND greatest(done, effects) + dead_lettered > due
                   AND NOT settled_again AND NOT ran_again AS died_done,
               {" + ".join(_SETTLED)} AS settled, greatest(sent - settled, 0) AS missing,
               CASE WHEN untouched AND coalesce(key_us + 60000000 > closed_us, false) THEN missing ELSE 0 END
                   AS awaiting_reader,
               CASE WHEN waits OR awaiting_reader > 0 THEN 0 ELSE missing END AS unaccounted
        FROM counted LEFT JOIN deaths USING (dest, msg_key) LEFT JOIN gone USING (dest)
    ), who AS (
        SELECT dest,
               string_agg(DISTINCT service, ', ' ORDER BY service)
                   FILTER (kind IN ('sub.open', 'delivery')) AS service,
               string_agg(DISTINCT broker, ', ' ORDER BY broker)
                   FILTER (kind IN ('send', 'delivery')) AS broker
        FROM events WHERE dest IS NOT NULL GROUP BY dest
    )
"""
#: Numbers of which these logs have none, and what is said in words.
_UNTOLD: Final = frozenset(
    {
        "undated",
        "unordered",
        "unread",
        "foreign",
        "expired_at_broker",
        "removed",
        "dropped",
        "unanswered",
        "in_doubt",
        "doubtful_duplicates",
        "phantoms",
        "refused_settled",
        "unclaimed",
        "explained",
        "unsettled_keys",
        "reasons",
    }
)


def _transactions() -> Twin:
    marks = {f"took_{label}_us": share for label, share in _LABELS.items()}
    chosen = ", ".join(
        f"quantile_disc(ts_us - start_us, {share}) AS {name}" for name, share in marks.items()
    )
    return Twin(
        "transactions",
        ("service", "broker", "hour_us"),
        f"""
        SELECT service, broker, ts_us - ts_us % {_HOUR} AS hour_us,
               count_if(kind = 'tx.commit') AS committed,
               count_if(kind = 'tx.rollback') AS rolled_back,
               count_if(kind = 'tx.in_doubt') AS in_doubt,
               coalesce(sum(tx_sends), 0) AS sends, coalesce(sum(tx_acks), 0) AS acknowledgements,
               max(ts_us - start_us) AS longest_us, {chosen}
        FROM events WHERE kind IN ('tx.commit', 'tx.rollback', 'tx.in_doubt') GROUP BY ALL
        """,
        percentiles=frozenset(marks),
        left_out=frozenset({"took_histogram"}),
    )


def _audit() -> Twin:
    added = ", ".join(f"sum({name}) AS {name}" for name in ("sent", "settled", *_SETTLED))
    return Twin(
        "audit",
        ("dest", "subscription", "hour_us"),
        f"""
        {_KEYS}
        SELECT service, broker, dest, dest AS subscription, hour_us, {added},
               sum(unaccounted) AS unaccounted, sum(awaiting_reader) AS awaiting_reader,
               sum(missing - unaccounted - awaiting_reader) AS in_flight,
               count_if(settled_again) AS duplicates, count_if(ran_again) AS effect_duplicates,
               count_if(died_done) AS dead_after_done, count_if(sent_again) AS resent, count_if(tried = 0) AS unsent,
               coalesce(list(msg_key ORDER BY msg_key) FILTER (unaccounted > 0), [])[:5]
                   AS lost_keys,
               coalesce(list(msg_key ORDER BY msg_key) FILTER (settled_again OR ran_again OR died_done), [])[:5]
                   AS repeated_keys,
               CASE WHEN bool_or(unaccounted > 0 OR settled_again OR ran_again) THEN 'suspect'
                    WHEN bool_or(sent_again OR died_done OR awaiting_reader > 0) THEN 'unverifiable'
                    ELSE 'balanced' END AS verdict
        FROM repeats JOIN who USING (dest) GROUP BY ALL
        """,
        left_out=_UNTOLD,
    )


def _duplicates() -> Twin:
    return Twin(
        "duplicates",
        ("dest", "subscription", "hour_us", "kind", "cause"),
        f"""
        {_KEYS}
        SELECT service, broker, dest, dest AS subscription, hour_us,
               CASE WHEN settled_again THEN 'settlement' WHEN ran_again THEN 'effect'
                    ELSE 'dead_after_done' END AS kind,
               CASE WHEN abandoned > 0 THEN 'abandoned' ELSE 'unknown' END AS cause,
               count(*) AS n, list(msg_key ORDER BY msg_key)[:5] AS sample_keys,
               min(key_us) AS first_us, max(last_us) AS last_us
        FROM repeats JOIN who USING (dest) WHERE settled_again OR ran_again OR died_done
        GROUP BY ALL
        """,
    )


TWINS: Final = {twin.name: twin for twin in (_transactions(), _audit(), _duplicates())}
