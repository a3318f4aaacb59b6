"""Each operational table on a log that is small enough to work its numbers out by hand, however it is cut."""

from __future__ import annotations

import json
from typing import Any, Final

import pytest

from jmsx_report.lines import Content
from tests.pipeline.units import Tables, table, tables
from tests.unit.jmsx_report.logs import HOUR, MINUTE, ORDERS, SECOND, START, Log, key

_DAY: Final = START // (24 * HOUR) * 24 * HOUR
_LAST: Final = 253_402_300_799_999_999  #: the last microsecond that the schema lets a time be
#: Lines of a segment, each of which is read by itself.
CUTS: Final = (1, 10_000)


def cut(log: Log, size: int) -> list[list[Content]]:
    """The log as segments of `size` lines, each a unit of its own."""
    units = []
    for writer in {line["writer"]: None for line in log.lines}:
        lines = [line for line in log.lines if line["writer"] == writer]
        for begin in range(0, len(lines), size):
            part = lines[begin : begin + size]
            data = b"".join(
                json.dumps(line, separators=(",", ":")).encode() + b"\n" for line in part
            )
            units.append([Content(f"{writer}-{begin:012}.jsonl", data)])
    return units


def made(log: Log, size: int = 10_000) -> Tables:
    """Make every table of the log."""
    return tables(cut(log, size))


def only(log: Log, name: str, size: int = 10_000) -> dict[str, Any]:
    """The one row of a table."""
    (row,) = table(name, cut(log, size)).rows(named=True)
    return row


def worker(name: str, log: Log, **fields: Any) -> None:
    """Open the log of a worker of the service `shop` that consumes orders."""
    log.opens(name, service="shop")
    log.reads(name, **fields)


def done(log: Log, writer: str, at: int, count: int = 1, **fields: Any) -> None:
    """Have as many messages done."""
    for number in range(count):
        log.deliver(writer, key(at, number), at, **fields)


def lines_of_socket(log: Log, writer: str, kind: str, at: int, epoch: int, **fields: Any) -> None:
    """A line of a later socket."""
    log.line(writer, kind, at, session_id=f"{writer}-1", epoch=epoch, **fields)


@pytest.mark.parametrize("size", CUTS)
def test_ack_efficiency(size: int) -> None:
    """20 frames for 99 messages: 79 were saved, the 19th largest settled 16."""
    log = Log()
    worker("w", log, ack_mode="dups_ok", prefetch=100)
    where = {"session_id": "w-1", "epoch": 1, "dest": ORDERS, "consumer": "c"}
    for messages, trigger in [(1, "each")] * 18 + [(65, "threshold"), (16, "idle")]:
        log.line("w", "ack.batch", START, messages=messages, trigger=trigger, **where)
    done(log, "w", START + SECOND, end_us=START + SECOND - 100)
    done(log, "w", START + 2 * SECOND, end_us=START + 2 * SECOND - 300)
    done(log, "w", START + 3 * SECOND, outcome="rolled_back", end_us=START)

    row = only(log, "ack_efficiency", size)

    assert (row["service"], row["broker"], row["ack_mode"]) == ("shop", "b:61613", "dups_ok")
    assert (row["hour_us"], row["acked"], row["frames"]) == (START, 99, 20)
    assert (row["batch_mean"], row["batch_p95"], row["batch_max"]) == (99 / 20, 16, 65)
    assert (row["frames_saved"], row["saved_ratio"]) == (79, pytest.approx(79 / 99))
    assert (row["each"], row["threshold"], row["idle"], row["commit"]) == (18, 1, 1, 0)
    assert (row["ack_delay_mean_us"], row["ack_delay_max_us"]) == (200, 300)


def test_frames_that_settle_nothing_save_nothing() -> None:
    """A ratio of nothing is null, and a trigger that is not told is in no column."""
    log = Log()
    log.line("w", "ack.batch", START, messages=0, dest=ORDERS, consumer="c")

    row = only(log, "ack_efficiency")

    assert (row["acked"], row["frames"], row["frames_saved"]) == (0, 1, -1)
    assert (
        row["saved_ratio"] is row["ack_mode"] is row["service"] is row["ack_delay_mean_us"] is None
    )
    assert row["each"] == 0


@pytest.mark.parametrize("size", CUTS)
def test_consumer_balance(size: int) -> None:
    """Six, two, and none by one who was there; who came later, left earlier or had died is not counted."""
    log = Log()
    for name in ("a", "b", "idle", "left", "dead"):
        worker(name, log)
    log.line("dead", "log.recovered", START + HOUR, lost_bytes=0, recovered_by="a")
    log.opens("late", service="shop")
    at = START + 5 * MINUTE
    log.line("late", "sub.open", at + 1, session_id="late-1", epoch=1, dest=ORDERS, consumer="c")
    log.line("left", "conn.lost", at + MINUTE, session_id="left-1", epoch=1)
    done(log, "a", at + MINUTE, 5)
    done(log, "a", at + 2 * MINUTE)
    done(log, "b", at + MINUTE, recv_us=at)
    done(log, "b", at + 4 * MINUTE, recv_us=at + 4 * MINUTE - 900)
    for name in ("a", "b", "idle", "left", "late"):
        log.closes(name, START + HOUR)

    row = only(log, "consumer_balance", size)

    assert (row["service"], row["dest"], row["five_minutes_us"]) == ("shop", ORDERS, at)
    assert (row["consumers"], row["idle"], row["messages"], row["most"]) == (3, 1, 8, 6)
    assert (row["share_max"], row["share_mean"], row["imbalance"]) == (0.75, 1 / 3, 2.25)
    assert row["cv"] == pytest.approx(56**0.5 / 8)
    assert row["gini"] == pytest.approx(12 * 2 / (2 * 3 * 8))
    assert row["buffer_worst_us"] == (MINUTE - 200 + 700) / 2


@pytest.mark.parametrize("size", [200, 10_000])
def test_prefetch_by_the_rate(size: int) -> None:
    """39 a minute are 0.65 a second, and fill 2: neither more for rounding, nor for the one busy minute of 20."""
    log = Log()
    worker("w", log, prefetch=1000)
    for minute in range(20):
        done(log, "w", START + minute * MINUTE, 78 if minute == 7 else 39)

    row = only(log, "prefetch_advice", size)

    assert (row["consumer"], row["day_us"], row["rate"], row["fill"]) == ("c", _DAY, 0.65, 2)
    assert (row["imbalance"], row["even_fill"]) == (1, 2)
    assert (row["handler_mean_us"], row["latency_cap"]) == (100, 300_000)
    assert (row["prefetch"], row["advised"], row["binding"]) == (1000, 2, "rate")


def test_prefetch_where_one_takes_all() -> None:
    """90 and 10 in a minute: 1.5 a second fill 5; the busiest did 1.8 times its part, and 3 do for an even one."""
    log = Log()
    worker("a", log, prefetch=500)
    worker("b", log, prefetch=1000)
    done(log, "a", START, 90)
    done(log, "b", START, 10)

    row = only(log, "prefetch_advice")

    assert (row["rate"], row["fill"], row["imbalance"], row["even_fill"]) == (1.5, 5, 1.8, 3)
    assert (row["prefetch"], row["advised"], row["binding"]) == (1000, 3, "uneven")


@pytest.mark.parametrize(
    ("count", "takes", "expected"),
    [
        (1800, SECOND, (93, 30, 30, "latency")),
        (1800, SECOND + 1, (93, 29, 1, "slow_handler")),
        (19_600, 100, (1006, 300_000, 1000, "largest")),
        (1, 0, (1, None, 1, "rate")),
    ],
)
def test_prefetch_is_bound(
    count: int, takes: int, expected: tuple[int, int | None, int, str]
) -> None:
    """By what the handler can do in 30 s, by one message at a time where it is slow, and by 1,000."""
    log = Log()
    worker("w", log)
    done(log, "w", START, count, start_us=START - takes, end_us=START)

    row = only(log, "prefetch_advice")

    assert (row["fill"], row["latency_cap"], row["advised"], row["binding"]) == expected
    assert row["prefetch"] is None


@pytest.mark.parametrize("size", CUTS)
def test_recovery_of_a_connection(size: int) -> None:
    """Lost twice before it was restored, with three deliveries: one episode. Lost for good: one without an end."""
    log = Log()
    worker("w", log)
    done(log, "w", START, 2, outcome="abandoned")
    lines_of_socket(log, "w", "conn.lost", START, 1, reason="io")
    lines_of_socket(log, "w", "conn.up", START + 5 * SECOND, 2, broker="c:61613")
    one = {"dest": ORDERS, "consumer": "c", "msg_key": "k", "attempt": 1}
    lines_of_socket(log, "w", "delivery", START, 2, **one, outcome="abandoned")
    lines_of_socket(log, "w", "conn.lost", START + 6 * SECOND, 2, reason="heartbeat")
    lines_of_socket(log, "w", "conn.restored", START + 8 * SECOND, 3, outage_us=7 * SECOND)
    lines_of_socket(log, "w", "conn.lost", START + HOUR, 3, reason="protocol")

    first, second = table("recovery", cut(log, size)).sort("seq").rows(named=True)

    assert (first["what"], first["broker"], first["service"]) == ("connection", "b:61613", "shop")
    assert (first["session_id"], first["dest"], first["reason"]) == ("w-1", None, "io")
    assert (first["start_us"], first["end_us"]) == (START, START + 8 * SECOND)
    assert (first["took_us"], first["failures"], first["messages"]) == (7 * SECOND, 2, 3)
    assert (second["end_us"], second["took_us"], second["failures"]) == (None, None, 1)
    assert (second["reason"], second["messages"], second["broker"]) == ("protocol", 0, None)


@pytest.mark.parametrize("size", CUTS)
def test_recovery_of_a_consumer(size: int) -> None:
    """Two messages failed, one of them twice, up to the next that was done; other consumers are others."""
    log = Log()
    worker("w", log)
    done(log, "w", START)
    for second, outcome, attempt in (
        (1, "rolled_back", 1),
        (2, "rolled_back", 2),
        (3, "released", 1),
        (4, "dead_lettered", 1),
    ):
        done(log, "w", START + second * SECOND, outcome=outcome, attempt=attempt)
    done(log, "w", START + 5 * SECOND, consumer="other")
    done(log, "w", START + 9 * SECOND)
    done(log, "w", START + 10 * SECOND)

    row = only(log, "recovery", size)

    assert (row["what"], row["dest"], row["consumer"], row["seq"]) == ("consumer", ORDERS, "c", 4)
    assert (row["start_us"], row["end_us"]) == (START + SECOND, START + 9 * SECOND)
    assert (row["took_us"], row["failures"], row["messages"]) == (8 * SECOND, 3, 2)


def test_recovery_where_segments_share_lines() -> None:
    """The success between two failures is taken from the earlier segment, and still ends the first episode."""
    log = Log()
    worker("w", log)
    for second, outcome in enumerate(("rolled_back", "acknowledged", "rolled_back", "committed")):
        done(log, "w", START + second * SECOND, outcome=outcome)
    ((whole,),) = cut(log, 100)
    lines = whole.data.splitlines(keepends=True)
    middle = Content("w-000000000000-a.jsonl", b"".join(lines[4:5]))

    found = tables([[middle], [whole]], {whole.path: [middle]})["recovery"]

    assert found["took_us"].to_list() == [SECOND, SECOND]


@pytest.mark.parametrize("size", CUTS)
def test_slo(size: int) -> None:
    """One of three was late, one of six given up; the worst hour is that of the dead letter."""
    log = Log()
    worker("w", log)
    for seconds in (10, 30, 31):
        done(log, "w", START + MINUTE, sent_us=START + MINUTE - seconds * SECOND)
    done(log, "w", START + MINUTE)
    done(log, "w", START + MINUTE, outcome="duplicate", sent_us=0)
    done(log, "w", START + MINUTE, outcome="rolled_back", sent_us=0)
    done(log, "w", START + HOUR, outcome="dead_lettered", sent_us=0)

    row = only(log, "slo", size)

    assert (row["dest"], row["day_us"], row["target_us"]) == (ORDERS, _DAY, 30 * SECOND)
    counts = (row["settled"], row["dead_lettered"], row["timed"], row["late"])
    assert counts == (6, 1, 3, 1)
    assert (row["within_share"], row["late_spent"]) == pytest.approx((2 / 3, 100 / 3))
    assert (row["dead_letter_share"], row["dead_letter_spent"]) == pytest.approx((1 / 6, 1000 / 6))
    assert (row["worst_hour_us"], row["worst_hour_spent"]) == (START + HOUR, pytest.approx(1000))


def test_slo_where_all_is_well() -> None:
    """No hour is the worst where none spent anything; what was not timed has no share."""
    log = Log()
    done(log, "w", START)

    row = only(log, "slo")

    assert (row["settled"], row["late"], row["dead_letter_spent"]) == (1, 0, 0)
    assert (
        row["within_share"] is row["late_spent"] is row["worst_hour_us"] is row["service"] is None
    )


@pytest.mark.parametrize("size", CUTS)
def test_no_value_and_no_absence_breaks_them(size: int) -> None:
    """Times of 1970 and of 9999, the largest numbers, and lines with nothing but what they require."""
    log = Log()
    where = {"dest": ORDERS, "consumer": "c"}
    bare = where | {"msg_key": "k", "attempt": 1}
    huge = {"sent_us": -_LAST, "recv_us": _LAST, "start_us": -_LAST, "end_us": _LAST}
    session = {"session_id": "s", "epoch": 2**31 - 1}
    for at in (0, _LAST):
        log.line("w", "sub.open", at, **where, prefetch=2**31 - 1)
        for outcome in ("acknowledged", "rolled_back", "dead_lettered", "abandoned", "committed"):
            log.line("w", "delivery", at, **bare, outcome=outcome)
            log.line("w", "delivery", at, **(bare | huge), outcome=outcome, **session)
        log.line("w", "ack.batch", at, **where, messages=2**31 - 1)
        log.line("w", "conn.lost", at, session_id="s")
        log.line("w", "conn.restored", at, session_id="s", outage_us=2**63 - 1)
        log.line("w", "sub.close", at, **where)
        log.line("w", "conn.lost", 2**63 - 1, session_id="s")

    found = made(log, size)

    assert found["quarantine"]["why"].str.contains("ts_us").to_list() == [True, True]
    assert found["ack_efficiency"]["acked"].to_list() == [2**31 - 1] * 2
    assert found["consumer_balance"]["messages"].to_list() == [4, 4]
    assert found["slo"].select("settled", "timed", "late").rows() == [(6, 2, 2), (6, 2, 2)]
    assert found["prefetch_advice"]["binding"].to_list() == ["slow_handler"] * 2
    assert found["prefetch_advice"]["handler_mean_us"].to_list() == [float(2 * _LAST)] * 2
    outages = found["recovery"].filter(what="connection")
    assert outages["took_us"].to_list() == [2**63 - 1] * 2
    consumers = found["recovery"].filter(what="consumer").sort("seq")
    assert consumers["failures"].to_list() == [2] * 4
    assert consumers["took_us"].to_list() == [0] * 4


def test_a_mean_of_nothing_is_null() -> None:
    """A redelivery that never was started has a planned delay and no actual one."""
    log = Log()
    worker("w", log)
    where = {"session_id": "w-1", "epoch": 1, "dest": ORDERS, "consumer": "c", "msg_key": "k"}
    log.line("w", "redelivery.scheduled", START, next_attempt=2, delay_us=SECOND, **where)
    log.line("w", "delivery", START + SECOND, attempt=2, outcome="expired", **where)
    log.line("w", "delivery", START + SECOND, attempt=2, outcome="committed", **where)

    found = made(log)

    redelivery = found["redelivery"].row(0, named=True)
    assert redelivery["delay_planned_mean_us"] == SECOND
    assert redelivery["delay_actual_mean_us"] is None
    (latency,) = found["delivery_latency"].rows(named=True)
    for name in ("queue", "buffer", "handler", "ack", "end_to_end"):
        assert latency[f"{name}_mean_us"] is None
