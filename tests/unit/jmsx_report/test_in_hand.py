"""What running consumers may have in hand, which no line tells of: nothing is proven to be lost that may lie there."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.jmsx_report.logs import (
    HOUR,
    MINUTE,
    ORDERS,
    SECOND,
    SENDER,
    START,
    WORKER,
    Log,
    told,
)

_DEADLINE = 5 * MINUTE


def _reads(log: Log, at: int, writer: str = WORKER, consumer: str = "c") -> None:
    log._of("sub.open", writer, at, {"dest": ORDERS, "consumer": consumer})


def _has(log: Log, at: int, buffered: int, in_process: int = 0, **of: Any) -> None:
    """A consumer of the worker, unless told, says how many messages it has."""
    writer = of.pop("writer", WORKER)
    said = {"consumer": "c", "buffered": buffered, "in_process": in_process, "still_in_process": 0}
    log._of("sub.stats", writer, at, {"dest": ORDERS} | said | of)


def _judged(log: Log, at: int, *writers: str, **how: Any) -> tuple[str, int, int]:
    """Verdict, unaccounted and explained while all still write, and did so last at `at`."""
    for writer in writers or (SENDER, WORKER):
        log._of(
            "conn.stats",
            writer,
            at,
            dict.fromkeys(("frames_in", "frames_out", "bytes_in", "bytes_out"), 1),
        )
    segments = tuple(f"{writer}-000000000000.jsonl.open" for writer in writers or (SENDER, WORKER))
    summary = told(log, open_segments=segments, deadline_us=_DEADLINE, **how)
    return summary["verdict"], summary["unaccounted"], summary["explained"]


def _waited(*, messages: int, has: int) -> Log:
    """So many messages wait for ten minutes until somebody reads, and has so many in hand."""
    log = Log().opens(SENDER, host="h").opens(WORKER, host="h")
    for number in range(messages):
        log.send(SENDER, START + number * SECOND)
    _reads(log, START + 10 * MINUTE)
    _has(log, START + 10 * MINUTE + 15 * SECOND, has - 1, 1)
    return log


@pytest.mark.parametrize(("has", "expected"), [(3, ("unverifiable", 3, 3)), (2, ("suspect", 3, 2))])
def test_what_waited_until_somebody_read_may_be_in_hand(
    has: int, expected: tuple[str, int, int]
) -> None:
    """The reader is not done with its first message yet; more than it has is lost."""
    log = _waited(messages=3, has=has)

    assert _judged(log, START + 10 * MINUTE + 20 * SECOND) == expected


def test_a_standby_that_has_nothing_hides_no_loss() -> None:
    """It opened long ago, and was done with nothing: what its neighbour has came after the one that is lost."""
    log = Log().opens(SENDER).opens(WORKER).opens("standby")
    for writer in (WORKER, "standby"):
        _reads(log, START - SECOND, writer)
    log.send(SENDER, START)
    for minute in range(1, 60):
        at = START + minute * MINUTE
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND, sent_us=at)
    log.send(SENDER, START + HOUR)
    _has(log, START + HOUR + SECOND, 0, 1)
    _has(log, START + HOUR + SECOND, 0, writer="standby")

    assert _judged(log, START + HOUR + 2 * SECOND, SENDER, WORKER, "standby") == ("suspect", 1, 0)


def test_a_standby_that_was_never_done_with_anything_may_have_what_is_old() -> None:
    """Its neighbour goes on; the standby got the oldest message, and has it still."""
    log = Log().opens(SENDER).opens(WORKER).opens("standby")
    log.send(SENDER, START)
    for writer in (WORKER, "standby"):
        _reads(log, START + 10 * MINUTE, writer)
    for minute in range(11, 60):
        at = START + minute * MINUTE
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND, sent_us=at)
    _has(log, START + HOUR, 0)
    _has(log, START + HOUR, 0, 1, writer="standby")

    assert _judged(log, START + HOUR, SENDER, WORKER, "standby") == ("unverifiable", 1, 1)
    log.send(SENDER, START + SECOND)
    assert _judged(log, START + HOUR, SENDER, WORKER, "standby") == ("suspect", 2, 1)


@pytest.mark.parametrize("fate", ["rolled_back", "released", "abandoned"])
@pytest.mark.parametrize("back", [True, False])
def test_what_was_given_back_comes_out_of_order(fate: str, *, back: bool) -> None:
    """Another reader had it when this one was done with what is younger, and it has come since; or nobody had it."""
    log = Log().opens(SENDER).opens(WORKER).opens("other")
    for writer in (WORKER, "other"):
        _reads(log, START - SECOND, writer)
    made = log.send(SENDER, START)
    for minute in range(1, 30):
        at = START + minute * MINUTE
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND, sent_us=at)
    if back:
        log.deliver("other", made, START + 29 * MINUTE + 2 * SECOND, outcome=fate)
    log.closes("other", START + 29 * MINUTE + 3 * SECOND)
    _has(log, START + 40 * MINUTE, 0, 1)
    expected = ("unverifiable", 1, 1) if back else ("suspect", 1, 0)

    assert _judged(log, START + 40 * MINUTE + SECOND) == expected


def test_what_was_given_back_before_what_is_younger_came_is_in_order() -> None:
    """The reader was done since with a message that came ten minutes after that."""
    log = Log().opens(SENDER).opens(WORKER)
    _reads(log, START - SECOND)
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="rolled_back")
    at = START + 11 * MINUTE
    log.deliver(WORKER, log.send(SENDER, at), at + SECOND, sent_us=at)
    _has(log, START + 20 * MINUTE, 0, 1)

    assert _judged(log, START + 20 * MINUTE + SECOND) == ("suspect", 1, 0)


def test_what_the_broker_kept_until_later_comes_out_of_order() -> None:
    """It was planned to come again after half an hour; what was sent meanwhile came before."""
    log = Log().opens(SENDER).opens(WORKER)
    _reads(log, START - SECOND)
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="rolled_back")
    log.plan(WORKER, made, START + SECOND, 30 * MINUTE, blocking=False, by_broker=True)
    at = START + 25 * MINUTE
    log.deliver(WORKER, log.send(SENDER, at), at + SECOND, sent_us=at)
    _has(log, START + HOUR, 0, 1)

    assert _judged(log, START + HOUR + SECOND) == ("unverifiable", 1, 1)


def test_what_was_committed_late_came_late() -> None:
    """A transaction of twenty minutes: what was sent in it came after what was sent meanwhile."""
    log = Log().opens(SENDER).opens(WORKER)
    _reads(log, START - SECOND)
    made = log.send(SENDER, START, tx_id="t", start_us=START)
    log.lines[-1]["ts_us"] = START + 20 * MINUTE
    at = START + 10 * MINUTE
    log.deliver(WORKER, log.send(SENDER, at), at + SECOND, sent_us=at)
    _has(log, START + 30 * MINUTE, 0, 1)
    assert made

    assert _judged(log, START + 30 * MINUTE + SECOND) == ("unverifiable", 1, 1)


@pytest.mark.parametrize("who", ["java", "jmsx without a log"])
@pytest.mark.parametrize("ahead", [0, 10 * MINUTE])
def test_the_time_of_a_strangers_message_of_classic_is_of_a_clock_that_nobody_knows(
    who: str, ahead: int
) -> None:
    """What was sent after it seems to be older than that, and lies behind it."""
    log = Log().opens(SENDER).opens(WORKER)
    _reads(log, START - SECOND)
    log.deliver(
        WORKER,
        log.send(SENDER, START - MINUTE),
        START - 50 * SECOND,
        sent_us=START - MINUTE,
        msg_id="ID:a:1",
    )
    log.send(SENDER, START)
    stamp = START - SECOND + ahead
    made = "java-1" if who == "java" else f"{stamp // 1000:012x}{99:020x}"
    end = START + 12 * MINUTE
    log.deliver(
        WORKER,
        made,
        end,
        sent_us=stamp,
        msg_id="ID:b:1",
        recv_us=START,
        start_us=START,
    )
    _has(log, end + SECOND, 0, 1)

    assert _judged(log, end + 2 * SECOND)[1:] == (1, 1)


def test_what_a_strangers_message_was_hours_before_is_in_no_hand() -> None:
    """No clock is assumed to be off by more than an hour."""
    log = Log().opens(SENDER).opens(WORKER)
    _reads(log, START - SECOND)
    log.send(SENDER, START)
    end = START + 2 * HOUR
    log.deliver(WORKER, "java-1", end, sent_us=end - SECOND, msg_id="ID:b:1")
    _has(log, end + SECOND, 0, 1)

    assert _judged(log, end + 2 * SECOND) == ("suspect", 1, 0)


def test_what_a_reader_goes_on_with_may_be_in_hand_until_it_says_so() -> None:
    """It had three that had waited, and is done with one of them since."""
    log = _waited(messages=3, has=3)
    made = next(line["msg_key"] for line in log.lines if line["kind"] == "send")
    done = START + 10 * MINUTE + 17 * SECOND
    log.deliver(
        WORKER, made, done, sent_us=START, recv_us=done - 10 * SECOND, start_us=done - 5 * SECOND
    )

    assert _judged(log, done + SECOND) == ("unverifiable", 2, 2)
    log.send(SENDER, START + 5 * SECOND)
    assert _judged(log, done + SECOND) == ("suspect", 3, 2)
