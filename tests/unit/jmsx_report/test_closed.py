"""What is sent where every reader has closed in order waits for the next one; any doubt leaves it lost."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from jmsx_report.period import Period
from tests.unit.jmsx_report.logs import (
    HOUR,
    MINUTE,
    ORDERS,
    SECOND,
    SENDER,
    START,
    WORKER,
    Log,
    ended,
    findings,
    key,
    told,
    trade,
)

if TYPE_CHECKING:
    from collections.abc import Callable

CLOSED = START + 20 * MINUTE
LATER = CLOSED + 20 * MINUTE
WAITS = ("unverifiable", 0, 3)
LOST = ("suspect", 3, 0)
_TERMS = {"deadline_us": 60 * SECOND}


def closes(log: Log, at: int = CLOSED, writer: str = WORKER, **fields: Any) -> None:
    """A consumer of a session is closed."""
    log._of("sub.close", writer, at, {"dest": ORDERS, "consumer": "c"} | fields)


def opens(log: Log, at: int, writer: str = WORKER, **fields: Any) -> None:
    """A consumer of a session is opened."""
    log._of("sub.open", writer, at, {"dest": ORDERS, "consumer": "c"} | fields)


def sends(log: Log, *, at: int = LATER) -> list[str]:
    """Three messages are sent, a minute each, and nobody has them."""
    return [log.send(SENDER, at + minute * MINUTE) for minute in range(3)]


def judged(log: Log, **terms: Any) -> tuple[str, int, int]:
    """The verdict; what is not settled; what waits for a reader."""
    summary = told(log, **(_TERMS | terms))
    return summary["verdict"], summary["unaccounted"], summary["awaiting_reader"]


def test_what_was_sent_after_the_last_reader_had_closed_waits() -> None:
    """Not balanced, not lost, and said in words; the destination and its hour say so, too."""
    log = trade()
    closes(log)
    made = sends(log)
    summary = told(ended(log), **_TERMS)

    assert (summary["verdict"], summary["unaccounted"], summary["awaiting_reader"]) == WAITS
    assert (summary["lost"], summary["unsettled"]) == ([], [])
    assert summary["destinations"][ORDERS]["verdict"] == "unverifiable"
    assert summary["destinations"][ORDERS]["awaiting_reader"] == len(made)
    assert {hour["verdict"] for hour in summary["hours"]} == {"unverifiable"}
    (says,) = findings(summary, "closed_readers")
    assert "closed in order, the last at 2026-11-20 06:20:00 UTC; 3 messages" in says


@pytest.mark.parametrize(
    ("sent", "waits"),
    [
        (CLOSED - 60 * SECOND, False),
        (CLOSED - 59 * SECOND, True),
        (CLOSED, True),
        (CLOSED + SECOND, True),
    ],
)
def test_what_was_overdue_at_the_closing_is_lost(sent: int, waits: bool) -> None:
    """A minute is the deadline; nobody else ever looks at it."""
    log = trade()
    log.send(SENDER, sent)
    closes(log)

    assert judged(ended(log)) == (("unverifiable", 0, 1) if waits else ("suspect", 1, 0))


@pytest.mark.parametrize(
    ("deadline", "before"), [(0, MINUTE), (5 * SECOND, 5 * SECOND), (HOUR, HOUR)]
)
def test_without_a_deadline_it_is_a_minute(deadline: int, before: int) -> None:
    """What was sent a moment before the closing may have been on its way; a deadline says how long."""
    log = trade()
    closed = START + 90 * MINUTE
    log.send(SENDER, closed - before)
    log.send(SENDER, closed - before + SECOND)
    closes(log, closed)
    log.send(SENDER, closed + SECOND)

    assert judged(ended(log, closed + 3 * HOUR), deadline_us=deadline) == ("suspect", 1, 2)


def _dropped(log: Log) -> None:
    log.line(SENDER, "log.gap", LATER, dropped=1, dropped_kind="recv.batch")


def _dead_writer(log: Log) -> None:
    log.opens("other").send("other", START, "queue://else")
    log.line("other", "log.recovered", START + HOUR)


def _silent_writer(log: Log) -> None:
    log.opens("other", START - 9 * HOUR).send("other", START - 9 * HOUR, "queue://else")


def _another_session(log: Log) -> None:
    opens(log, START, session_id="work-2")


def _another_consumer(log: Log) -> None:
    opens(log, START)


def _another_process(log: Log) -> None:
    opens(log.opens("other"), START, "other")
    log.closes("other", START + 2 * HOUR)


def _another_that_only_its_numbers_tell_of(log: Log) -> None:
    told_of = {"dest": ORDERS, "consumer": "d", "buffered": 0, "in_process": 0}
    log._of("sub.stats", WORKER, LATER, told_of)


def _numbers_after_the_closing(log: Log) -> None:
    told_of = {"dest": ORDERS, "consumer": "c", "buffered": 0, "in_process": 0}
    log._of("sub.stats", WORKER, LATER, told_of)


def _opened_again(log: Log) -> None:
    opens(log, CLOSED + SECOND)


def _opened_again_on_another_link(log: Log) -> None:
    opens(log, CLOSED + SECOND, epoch=2)


def _counted(log: Log) -> None:
    for at in (START, START + HOUR):
        log.stats(SENDER, at, enqueued=10, dequeued=10)


@pytest.mark.parametrize(
    "doubt",
    [
        _another_session,
        _another_consumer,
        _another_process,
        _another_that_only_its_numbers_tell_of,
        _numbers_after_the_closing,
        _opened_again,
        _opened_again_on_another_link,
        _counted,
        _dropped,
        _dead_writer,
        _silent_writer,
    ],
)
def test_any_doubt_leaves_it_lost(doubt: Callable[[Log], None]) -> None:
    """Somebody may have been there, or the broker has said that nothing waits."""
    log = trade()
    closes(log)
    sends(log)
    doubt(log)
    summary = told(ended(log), **_TERMS)

    assert summary["awaiting_reader"] == 0
    assert summary["unaccounted"] == 3
    assert summary["verdict"] == "suspect"


def test_what_a_consumer_gave_back_is_lost_as_before() -> None:
    """A line tells that it had them: they are not what nobody ever had."""
    log = trade()
    for second in (2, 3, 4):
        made = log.send(SENDER, CLOSED - second * SECOND)
        log.deliver(WORKER, made, CLOSED - SECOND, outcome="rolled_back")
    closes(log)

    assert judged(ended(log)) == LOST


@pytest.mark.parametrize(
    "terms",
    [
        {
            "quarantine": pl.DataFrame(
                {"path": "x", "line": 1, "what": "unreadable", "why": "", "writer": "z"}
            )
        },
        {"passed_over": pl.DataFrame({"path": "x", "why": "", "writer": "z"})},
        {"expect": {"other": 1}},
    ],
)
def test_files_and_processes_that_are_missing_leave_it_lost(terms: dict[str, Any]) -> None:
    """They may be of somebody who read there; what they may explain is another question."""
    log = trade()
    closes(log)
    sends(log)

    assert judged(ended(log), **terms)[2] == 0


def test_a_closing_that_says_no_session_closes_nobody() -> None:
    """Nobody knows which of two consumers it is."""
    log = trade()
    log.line(WORKER, "sub.close", CLOSED, dest=ORDERS, consumer="c")
    sends(log)

    assert judged(ended(log)) == LOST


def test_a_closing_is_no_earlier_than_what_was_done_before() -> None:
    """One process writes its lines in order: what was overdue when it was last done with one is lost."""
    log = trade()
    log.send(SENDER, START + 7 * MINUTE)
    closes(log, 0)
    log.send(SENDER, LATER)

    assert judged(ended(log)) == ("suspect", 1, 1)


def test_a_closing_at_no_time_closes_nobody() -> None:
    """As where a line was written with a broken clock."""
    log = trade()
    closes(log, 2**62)
    sends(log)

    assert judged(ended(log)) == LOST


def test_a_consumer_that_was_closed_on_its_next_link_is_closed() -> None:
    """It lost the first one without a closing, and opened anew."""
    log = trade()
    log._of("conn.lost", WORKER, CLOSED - MINUTE, {"reason": "io"})
    opens(log, CLOSED - 50 * SECOND, epoch=2)
    closes(log, epoch=2)
    sends(log)

    assert judged(ended(log)) == WAITS


def test_of_two_consumers_of_a_name_one_is_left_whatever_the_links() -> None:
    """Both were there; on the next link one opened, and the other was closed before it did."""
    log = trade()
    opens(log, START)
    log._of("conn.lost", WORKER, CLOSED - MINUTE, {"reason": "io"})
    opens(log, CLOSED - 50 * SECOND, epoch=2)
    closes(log, epoch=2)
    sends(log)

    assert judged(ended(log)) == LOST


def test_one_that_was_closed_on_an_earlier_link_makes_up_for_nobody() -> None:
    """One of that name was opened and closed before; then two are opened, and one of them is closed."""
    log = trade()
    closes(log, CLOSED - 2 * MINUTE)
    opens(log, CLOSED - MINUTE, epoch=2)
    opens(log, CLOSED - MINUTE, epoch=2)
    closes(log, epoch=2)
    sends(log)

    assert judged(ended(log)) == LOST


def test_a_gap_before_the_period_may_hide_a_reader() -> None:
    """It is no gap of the messages of the period, but what was opened in it may be there still."""
    log = trade()
    log.opens("other")
    log._next["other"] += 1
    log.line("other", "recv.batch", START + SECOND, dest="queue://else", consumer="d", messages=1)
    closes(log)
    sends(log)
    ended(log).closes("other", START + 2 * HOUR)
    since = Period(since_us=CLOSED)

    assert judged(log, asked=since) == LOST

    log = trade()
    closes(log)
    sends(log)
    assert judged(ended(log), asked=since) == WAITS


def test_keys_that_tell_no_time_are_as_old_as_their_hour() -> None:
    """One of the hour of the closing may be older than that; one of a later hour is not."""
    log = trade()
    closes(log)
    log.send(SENDER, CLOSED + MINUTE, msg_key="other-1")
    log.send(SENDER, START + HOUR + MINUTE, msg_key="other-2")

    assert judged(ended(log)) == ("suspect", 1, 1)


def test_a_key_of_the_future_is_no_older_than_its_sending() -> None:
    """It was made by a clock that nobody knows, and sent long before the closing."""
    log = trade()
    log.send(SENDER, START, msg_key=key(LATER, 99))
    closes(log)

    assert judged(ended(log)) == ("suspect", 1, 0)


@pytest.mark.parametrize(("classic", "by"), [(False, SENDER), (False, "other"), (True, SENDER)])
def test_a_clock_that_is_proven_to_be_behind_is_no_excuse(classic: bool, by: str) -> None:
    """The reader's is ten minutes behind: it closed later than it says, when the messages were overdue."""
    behind = 10 * MINUTE
    log = Log().opens(SENDER).opens(WORKER).opens("other")
    log.reads(WORKER)
    for minute in range(10):
        at = START + minute * MINUTE
        made = log.send(by, at)
        more = {"msg_id": f"ID:b-1:{minute}", "sent_us": at} if classic else {"sent_us": at}
        log.deliver(WORKER, made, at + SECOND - behind, **more)
    sends(log, at=CLOSED - 8 * MINUTE)
    closes(log, CLOSED - behind)

    assert judged(ended(log).closes("other", START + 2 * HOUR)) == LOST


def test_a_clock_that_was_set_is_no_excuse() -> None:
    """Nobody knows by which of its times it closed."""
    log = trade()
    for number, line in enumerate(log.lines):
        line["mono_us"] = 10**9 + number
    closes(log, mono_us=10**9 + HOUR)
    sends(log)

    assert judged(ended(log))[2] == 0


def test_a_queue_that_is_read_by_a_pattern_has_that_reader_too() -> None:
    """Its own reader has closed, and the other has not; then that closes, too."""
    log = trade(dest="queue://eu.a")
    log.opens("other")
    log._of("sub.open", "other", START, {"dest": "queue://eu.>", "consumer": "c"})
    closes(log, dest="queue://eu.a")
    for minute in range(3):
        log.send(SENDER, LATER + minute * MINUTE, "queue://eu.a")
    lines = list(log.lines)
    ended(log).closes("other", START + 2 * HOUR)
    assert judged(log) == LOST

    log.lines = lines
    log._next["other"] = 3
    log._of("sub.close", "other", CLOSED, {"dest": "queue://eu.>", "consumer": "c"})
    log.line("other", "log.close", START + 2 * HOUR, dropped=0)
    for writer in (SENDER, WORKER):
        log._next[writer] -= 1
        log.closes(writer, START + 2 * HOUR)
    assert judged(log) == WAITS
