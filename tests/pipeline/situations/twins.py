"""
Each gold table a second time: one statement of SQL over the raw lines, without segments, partials or merging.

The two are compared cell by cell. Sums and means are floating point in another order, so they may differ in
the last digits; percentiles come from buckets whose middle is at most 1 % off.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import duckdb

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

_TYPES: Final = {
    "BIGINT": (
        "seq ts_us mono_us epoch sent_us recv_us start_us end_us expires_us attempt size messages"
        " redelivered_messages next_attempt delay_us attempts tx_sends tx_acks prefetch"
        " max_redeliveries connect_us outage_us enqueued dequeued expired dropped lost_bytes v"
    ),
    "VARCHAR": (
        "kind writer session_id dest consumer subscription msg_key msg_id outcome error_type"
        " error_place tx_id trigger dlq_dest reason ack_mode server broker service host"
        " version dropped_kind"
    ),
    "BOOLEAN": "redelivered by_copy blocking by_broker optimize_ack selective",
}
_COLUMNS: Final = {name: kind for kind, names in _TYPES.items() for name in names.split()}
_HOUR: Final = 3_600_000_000
_MINUTE: Final = 60_000_000
#: Half the width of a bucket of latency, and what floating point adds.
_PERCENTILE_OFF: Final = 0.01
_LABELS: Final = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}

_SPANS: Final = {
    "queue": "recv_us - sent_us",
    "buffer": "start_us - recv_us",
    "handler": "end_us - start_us",
    "ack": "ts_us - end_us",
    "end_to_end": "ts_us - sent_us",
}


@dataclass(frozen=True)
class Twin:
    """One table in SQL: `key` are its grain's columns."""

    name: str
    key: tuple[str, ...]
    sql: str
    percentiles: frozenset[str] = field(default=frozenset())  #: columns that may be 1 % off
    left_out: frozenset[str] = field(default=frozenset())  #: columns of the table that have no twin


def _latency() -> Twin:
    means = ", ".join(f"avg({span}) AS {name}_mean_us" for name, span in _SPANS.items())
    marks = {
        f"{name}_{label}_us": f"quantile_disc({_SPANS[name]}, {share})"
        for name in ("end_to_end", "handler")
        for label, share in _LABELS.items()
    }
    chosen = ", ".join(f"{sql} AS {name}" for name, sql in marks.items())
    return Twin(
        "delivery_latency",
        ("service", "broker", "dest", "consumer", "minute_us"),
        f"""
        SELECT service, broker, dest, consumer, ts_us - ts_us % {_MINUTE} AS minute_us,
               count(*) AS n, {means}, {chosen}
        FROM events WHERE kind = 'delivery' AND outcome IN ('acknowledged', 'committed')
        GROUP BY ALL
        """,
        percentiles=frozenset(marks),
        left_out=frozenset({"clock_off_us", "end_to_end_histogram", "handler_histogram"}),
    )


def _redelivery() -> Twin:
    return Twin(
        "redelivery",
        ("service", "broker", "dest", "consumer", "hour_us"),
        f"""
        WITH came AS (
            SELECT *, ts_us - ts_us % {_HOUR} AS hour_us FROM events WHERE kind = 'delivery'
        ), again AS (
            SELECT service, broker, writer, session_id, epoch, dest, consumer, msg_key, attempt,
                   min(ts_us) AS ts_us, min(start_us) AS start_us
            FROM came WHERE attempt > 1 GROUP BY ALL
        ), waited AS (
            SELECT service, broker, dest, consumer, ts_us - ts_us % {_HOUR} AS hour_us,
                   plan.delay_us AS planned, start_us - plan.planned_us AS actual
            FROM again JOIN (
                SELECT writer, session_id, epoch, dest, consumer, msg_key,
                       next_attempt AS attempt, min(delay_us) AS delay_us, min(ts_us) AS planned_us
                FROM lines WHERE kind = 'redelivery.scheduled' GROUP BY ALL
            ) AS plan USING (writer, session_id, epoch, dest, consumer, msg_key, attempt)
        ), kept AS (
            SELECT service, broker, dest, consumer, hour_us, count(*) AS scheduled,
                   avg(planned) AS delay_planned_mean_us, avg(actual) AS delay_actual_mean_us,
                   quantile_disc(actual - planned, 0.95) AS delay_late_p95_us
            FROM waited GROUP BY ALL
        ), counted AS (
            SELECT service, broker, dest, consumer, hour_us, count(*) AS deliveries,
                   count_if(attempt > 1 OR redelivered) AS redelivered,
                   count_if(attempt > 1 OR redelivered) / count(*) AS ratio,
                   max(attempt) AS attempts_max,
                   count_if(attempt > 1 AND outcome IN ('acknowledged', 'committed'))
                       AS succeeded_late
            FROM came GROUP BY ALL
        )
        SELECT counted.*, scheduled,
               delay_planned_mean_us, delay_actual_mean_us, delay_late_p95_us
        FROM counted LEFT JOIN kept USING (service, broker, dest, consumer, hour_us)
        """,
        percentiles=frozenset({"delay_late_p95_us"}),
    )


def _dead_letters() -> Twin:
    return Twin(
        "dead_letters",
        ("service", "broker", "dest", "reason", "error_type", "error_place"),
        """
        SELECT service, broker, dest, reason, coalesce(error_type, '') AS error_type,
               coalesce(error_place, '') AS error_place,
               count(*) AS n, count(*) / sum(count(*)) OVER () AS share,
               max(attempts) AS attempts_max, min(ts_us) AS first_us, max(ts_us) AS last_us,
               list(msg_key ORDER BY ts_us, msg_key)[:5] AS sample_keys
        FROM events WHERE kind = 'dlq' GROUP BY ALL
        """,
    )


def _health() -> Twin:
    return Twin(
        "event_log_health",
        ("writer",),
        """
        SELECT writer, any_value(service) AS service, any_value(host) AS host,
               any_value(version) AS version, string_agg(DISTINCT broker, ',' ORDER BY broker) AS broker,
               count(*) AS lines, max(seq) + 1 AS expected, max(seq) + 1 - count(*) AS missing,
               coalesce(sum(dropped) FILTER (kind = 'log.gap'), 0) AS dropped,
               min(ts_us) AS first_us, max(ts_us) AS last_us
        FROM events GROUP BY ALL
        """,
        left_out=frozenset({"segments", "gaps", "repeated", "ended"}),
    )


_DONE: Final = "('acknowledged', 'committed')"
_DAY: Final = 24 * _HOUR
_FIVE: Final = 5 * _MINUTE
_TRIGGERS: Final = ("each", "threshold", "idle", "explicit", "commit", "close")


def _ack_efficiency() -> Twin:
    grain = "service, broker, dest, consumer, ack_mode, hour_us"
    mix = ", ".join(f"count_if(trigger = '{name}') AS {name}" for name in _TRIGGERS)
    return Twin(
        "ack_efficiency",
        tuple(grain.split(", ")),
        f"""
        WITH told AS (
            SELECT events.* EXCLUDE (ack_mode), modes.ack_mode, ts_us - ts_us % {_HOUR} AS hour_us
            FROM events LEFT JOIN (
                SELECT writer, session_id, epoch, dest, consumer, min(ack_mode) AS ack_mode
                FROM lines WHERE kind = 'sub.open' GROUP BY ALL
            ) AS modes USING (writer, session_id, epoch, dest, consumer)
        ), acks AS (
            SELECT {grain}, sum(messages)::BIGINT AS acked, count(*) AS frames,
                   avg(messages) AS batch_mean, quantile_disc(messages, 0.95) AS batch_p95,
                   max(messages) AS batch_max, sum(messages - 1)::BIGINT AS frames_saved,
                   CASE WHEN sum(messages) > 0 THEN sum(messages - 1) / sum(messages) END
                       AS saved_ratio, {mix}
            FROM told WHERE kind = 'ack.batch' GROUP BY ALL
        ), delays AS (
            SELECT {grain}, avg(ts_us - end_us) AS ack_delay_mean_us,
                   max(ts_us - end_us) AS ack_delay_max_us
            FROM told WHERE kind = 'delivery' AND outcome IN {_DONE} GROUP BY ALL
        )
        SELECT acks.*, ack_delay_mean_us, ack_delay_max_us FROM acks LEFT JOIN delays ON
            (acks.service, acks.broker, acks.dest, acks.consumer, acks.ack_mode, acks.hour_us)
            IS NOT DISTINCT FROM (delays.service, delays.broker, delays.dest, delays.consumer,
            delays.ack_mode, delays.hour_us)
        """,
    )


#: Every consumer of every five minutes in which its destination had messages done: those that did some, and those that
#: were there from the first moment to the last.
_SHARES: Final = f"""
    done AS (
        SELECT *, ts_us - ts_us % {_FIVE} AS five_minutes_us FROM events
        WHERE kind = 'delivery' AND outcome IN {_DONE}
    ), there AS (
        SELECT opened.*, least(
            (SELECT max(ts_us) FROM lines AS l
             WHERE l.writer = opened.writer AND kind <> 'log.recovered'),
            (SELECT max(ts_us) FROM lines AS l WHERE kind = 'sub.close'
             AND (l.writer, l.session_id, l.epoch, l.dest, l.consumer) = (opened.writer,
                  opened.session_id, opened.epoch, opened.dest, opened.consumer)),
            (SELECT min(ts_us) FROM lines AS l WHERE kind IN ('conn.lost', 'conn.closed')
             AND (l.writer, l.session_id, l.epoch) = (opened.writer, opened.session_id, opened.epoch))
        ) AS left_us
        FROM (
            SELECT service, broker, writer, session_id, epoch, dest, consumer, min(ts_us) AS opened_us
            FROM events WHERE kind = 'sub.open' GROUP BY ALL
        ) AS opened
    ), parts AS (
        SELECT service, broker, dest, five_minutes_us, writer, session_id, consumer, count(*) AS x,
               avg(start_us - recv_us) AS waited
        FROM done GROUP BY ALL
        UNION ALL
        SELECT service, broker, dest, five_minutes_us, writer, session_id, consumer, 0, NULL
        FROM (SELECT DISTINCT service, broker, dest, five_minutes_us FROM done) AS seen
        JOIN there USING (service, broker, dest)
        WHERE opened_us <= five_minutes_us AND left_us >= five_minutes_us + {_FIVE}
    ), shares AS (
        SELECT service, broker, dest, five_minutes_us, writer, session_id, consumer,
               sum(x)::BIGINT AS x, max(waited) AS waited
        FROM parts GROUP BY ALL
    )"""


def _consumer_balance() -> Twin:
    grain = "service, broker, dest, five_minutes_us"
    pairs = """SELECT sum(abs(a - b)) FROM (SELECT unnest(xs) AS a), (SELECT unnest(xs) AS b)"""
    return Twin(
        "consumer_balance",
        tuple(grain.split(", ")),
        f"""
        WITH {_SHARES}, spread AS (
            SELECT {grain}, count(*) AS consumers, count_if(x = 0) AS idle,
                   sum(x)::BIGINT AS messages, max(x) AS most, max(x) / sum(x) AS share_max,
                   1 / count(*) AS share_mean, max(x) / avg(x) AS imbalance,
                   stddev_pop(x) / avg(x) AS cv, max(waited) AS buffer_worst_us, list(x) AS xs
            FROM shares GROUP BY ALL
        )
        SELECT * EXCLUDE (xs), ({pairs}) / (2 * consumers * messages) AS gini FROM spread
        """,
    )


def _prefetch_advice() -> Twin:
    grain = "service, broker, dest, consumer, day_us"
    return Twin(
        "prefetch_advice",
        tuple(grain.split(", ")),
        f"""
        WITH {_SHARES}, minutes AS (
            SELECT {grain}, n, row_number() OVER (PARTITION BY {grain} ORDER BY n) AS rank,
                   count(*) OVER (PARTITION BY {grain}) AS minutes
            FROM (
                SELECT service, broker, dest, consumer, ts_us - ts_us % {_DAY} AS day_us,
                       writer, session_id, ts_us // {_MINUTE} AS minute, count(*) AS n
                FROM done GROUP BY ALL
            )
        ), rates AS (
            SELECT {grain}, min(n) AS n FROM minutes WHERE rank * 100 >= minutes * 95 GROUP BY ALL
        ), handlers AS (
            SELECT service, broker, done.dest, done.consumer, ts_us - ts_us % {_DAY} AS day_us,
                   avg(end_us - start_us) AS handler_mean_us, max(opened.prefetch) AS prefetch
            FROM done LEFT JOIN (
                SELECT writer, session_id, epoch, dest, consumer, max(prefetch) AS prefetch
                FROM lines WHERE kind = 'sub.open' GROUP BY ALL
            ) AS opened USING (writer, session_id, epoch, dest, consumer)
            GROUP BY ALL
        ), uneven AS (
            SELECT service, broker, dest, five_minutes_us - five_minutes_us % {_DAY} AS day_us,
                   sum(most * consumers) / sum(messages) AS imbalance
            FROM (
                SELECT service, broker, dest, five_minutes_us, max(x) AS most, count(*) AS consumers,
                       sum(x) AS messages
                FROM shares GROUP BY ALL
            ) GROUP BY ALL
        ), told AS (
            SELECT {grain}, n / 60 AS rate, ceil(n * 200 / 3900)::BIGINT AS fill, imbalance,
                   ceil(round(n * 200 / 3900 / imbalance, 9))::BIGINT AS even_fill, handler_mean_us,
                   CASE WHEN handler_mean_us > 0
                        THEN floor(round(30e6 / handler_mean_us, 9))::BIGINT END AS latency_cap,
                   prefetch
            FROM rates LEFT JOIN handlers USING ({grain})
            LEFT JOIN uneven USING (service, broker, dest, day_us)
        ), wanted AS (
            SELECT *, CASE WHEN imbalance > 1.5 THEN least(fill, even_fill) ELSE fill END AS want
            FROM told
        )
        SELECT * EXCLUDE (want),
            CASE WHEN handler_mean_us > 1e6 THEN 1
                 ELSE greatest(1, least(want, latency_cap, 1000)) END AS advised,
            CASE WHEN handler_mean_us > 1e6 THEN 'slow_handler'
                 WHEN want > 1000 AND coalesce(latency_cap, 1000) >= 1000 THEN
                    CASE WHEN latency_cap = 1000 THEN 'latency' ELSE 'largest' END
                 WHEN want > latency_cap THEN 'latency'
                 WHEN want < fill THEN 'uneven' ELSE 'rate' END AS binding
        FROM wanted
        """,
    )


def _recovery() -> Twin:
    return Twin(
        "recovery",
        ("service", "broker", "what", "writer", "seq"),
        f"""
        WITH told AS (
            SELECT 'consumer' AS what, *, outcome NOT IN {_DONE} AS failed,
                   concat_ws(chr(0), writer, session_id, dest, consumer) AS thing
            FROM events WHERE kind = 'delivery'
            AND outcome IN ('acknowledged', 'committed', 'rolled_back', 'dead_lettered')
            UNION ALL
            SELECT 'connection', *, kind = 'conn.lost', concat_ws(chr(0), writer, session_id)
            FROM events WHERE kind IN ('conn.lost', 'conn.restored')
        ), begun AS (
            SELECT * FROM (
                SELECT *, failed AND NOT coalesce(lag(failed) OVER same, false) AS begins
                FROM told WINDOW same AS (PARTITION BY what, thing ORDER BY seq)
            ) WHERE begins
        ), spans AS (
            SELECT begun.*, (
                SELECT min(seq) FROM told WHERE (told.what, told.thing) = (begun.what, begun.thing)
                AND NOT failed AND told.seq > begun.seq
            ) AS end_seq
            FROM begun
        ), taken AS (
            SELECT spans.writer, spans.seq, count(*) AS messages
            FROM spans JOIN (
                SELECT writer, session_id, epoch, min(seq) AS lost FROM lines
                WHERE kind = 'conn.lost' GROUP BY ALL
            ) AS sockets ON sockets.writer = spans.writer
                AND sockets.session_id = spans.session_id
                AND lost >= spans.seq AND lost < coalesce(end_seq, {2**63 - 1})
            JOIN lines AS gone ON gone.outcome = 'abandoned' AND gone.writer = sockets.writer
                AND gone.session_id = sockets.session_id AND gone.epoch = sockets.epoch
            WHERE what = 'connection' GROUP BY ALL
        )
        SELECT spans.service, spans.broker, what, spans.writer, spans.seq, spans.session_id,
               spans.dest, spans.consumer,
               CASE WHEN what = 'connection' THEN spans.reason END AS reason,
               spans.ts_us AS start_us, ended.ts_us AS end_us,
               coalesce(ended.outage_us, ended.ts_us - spans.ts_us) AS took_us,
               (SELECT count(*) FROM told WHERE (told.what, told.thing) = (spans.what, spans.thing)
                AND failed AND told.seq >= spans.seq AND told.seq < coalesce(end_seq, {2**63 - 1})
               ) AS failures,
               CASE what WHEN 'consumer' THEN
                   (SELECT count(*) FROM told WHERE (told.what, told.thing) = (spans.what, spans.thing)
                    AND failed AND attempt = 1
                    AND told.seq >= spans.seq AND told.seq < coalesce(end_seq, {2**63 - 1}))
               ELSE coalesce(taken.messages, 0)
               END AS messages
        FROM spans LEFT JOIN lines AS ended
            ON ended.writer = spans.writer AND ended.seq = spans.end_seq
        LEFT JOIN taken ON taken.writer = spans.writer AND taken.seq = spans.seq
        """,
    )


def _slo() -> Twin:
    counts = f"""
        count_if(outcome IN ('acknowledged', 'committed', 'discarded', 'duplicate',
                             'dead_lettered', 'expired')) AS settled,
        count_if(outcome = 'dead_lettered') AS dead_lettered,
        count_if(outcome IN {_DONE} AND sent_us IS NOT NULL) AS timed,
        count_if(outcome IN {_DONE} AND ts_us - sent_us > 30000000) AS late"""
    late, dead = (
        f"CASE WHEN {of} > 0 THEN {part} / {of} / {budget} END"
        for part, of, budget in (("late", "timed", 0.01), ("dead_lettered", "settled", 0.001))
    )
    return Twin(
        "slo",
        ("service", "broker", "dest", "day_us"),
        f"""
        WITH hours AS (
            SELECT service, broker, dest, ts_us - ts_us % {_HOUR} AS hour_us, {counts}
            FROM events WHERE kind = 'delivery' GROUP BY ALL
        ), spent AS (
            SELECT *, hour_us - hour_us % {_DAY} AS day_us, greatest({late}, {dead}) AS spent
            FROM hours WHERE settled > 0
        )
        SELECT service, broker, dest, day_us, sum(settled)::BIGINT AS settled,
               sum(dead_lettered)::BIGINT AS dead_lettered, sum(timed)::BIGINT AS timed,
               sum(late)::BIGINT AS late, 30000000 AS target_us,
               CASE WHEN sum(timed) > 0 THEN 1 - sum(late) / sum(timed) END AS within_share,
               CASE WHEN sum(timed) > 0 THEN sum(late) / sum(timed) * 100 END AS late_spent,
               sum(dead_lettered) / sum(settled) AS dead_letter_share,
               sum(dead_lettered) / sum(settled) * 1000 AS dead_letter_spent,
               first(hour_us ORDER BY spent DESC, hour_us) FILTER (spent > 0) AS worst_hour_us,
               max(spent) FILTER (spent > 0) AS worst_hour_spent
        FROM spent GROUP BY ALL
        """,
    )


TWINS: Final = {
    twin.name: twin
    for twin in (
        _latency(),
        _redelivery(),
        _dead_letters(),
        _health(),
        _ack_efficiency(),
        _consumer_balance(),
        _prefetch_advice(),
        _recovery(),
        _slo(),
    )
}


class Lines:
    """The lines of a log as one table `events`, each (writer, seq) once, with service and broker."""

    def __init__(self, directory: Path) -> None:
        self._base = duckdb.connect()
        self._base.execute("SET threads = 1")
        columns = ", ".join(f"{name}: '{kind}'" for name, kind in _COLUMNS.items())
        self._base.execute(
            f"""
            CREATE TABLE lines AS
            SELECT * REPLACE (split_part(dest, '?', 1) AS dest)
            FROM (
                SELECT DISTINCT ON (writer, seq) *
                FROM read_json(?, format = 'newline_delimited', columns = {{{columns}}})
            )
            """,
            [f"{directory}/**/*.jsonl"],
        )
        self._base.execute("""
            CREATE TABLE events AS
            SELECT lines.* EXCLUDE (service, broker, host),
                   opened.service AS service, opened.host AS host, up.broker AS broker
            FROM lines
            LEFT JOIN (SELECT writer, service, host FROM lines WHERE kind = 'log.open') AS opened
                USING (writer)
            LEFT JOIN (
                SELECT writer, session_id, epoch, min(broker) AS broker FROM lines
                WHERE kind = 'conn.up' GROUP BY ALL
            ) AS up USING (writer, session_id, epoch)
        """)

    def rows(self, sql: str) -> list[dict[str, Any]]:
        """Run a statement over `events`; a row is its values by name."""
        found = self._base.execute(sql)
        names = [column[0] for column in found.description or ()]
        return [dict(zip(names, row, strict=True)) for row in found.fetchall()]


def differences(twin: Twin, lines: Lines, found: list[dict[str, Any]]) -> list[str]:
    """Where the table `found` and its twin are not the same: rows, columns, cells."""
    expected = {_key(twin, row): row for row in lines.rows(twin.sql)}
    there = {_key(twin, row): row for row in found}
    if len(there) != len(found):
        return [f"{twin.name}: {len(found)} rows, but only {len(there)} keys"]
    wrong = [f"{twin.name}: no row {key}" for key in expected.keys() - there.keys()]
    wrong += [f"{twin.name}: a row too many, {key}" for key in there.keys() - expected.keys()]
    for key in expected.keys() & there.keys():
        wrong += (f"{twin.name} {key}: {cell}" for cell in _cells(twin, expected[key], there[key]))
    return wrong


def _key(twin: Twin, row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in twin.key)


def _cells(twin: Twin, expected: Mapping[str, Any], found: Mapping[str, Any]) -> Iterator[str]:
    for name in expected.keys() - found.keys():
        yield f"no column {name}"
    for name in found.keys() - expected.keys() - twin.left_out:
        yield f"column {name} has no twin"
    for name in expected.keys() & found.keys():
        if not _same(expected[name], found[name], near=name in twin.percentiles):
            yield f"{name} is {found[name]}, not {expected[name]}"


def _same(expected: Any, found: Any, *, near: bool) -> bool:
    if expected is None or found is None:
        return expected is found
    if near:
        return math.isclose(max(expected, 0), found, rel_tol=_PERCENTILE_OFF, abs_tol=0.5)
    if isinstance(expected, float):
        return math.isclose(expected, found, rel_tol=1e-9, abs_tol=1e-9)
    return bool(expected == found)
