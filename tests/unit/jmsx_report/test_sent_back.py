"""What goes back to the broker, to be delivered later: it counts that as one more that came, and one more that went."""

from __future__ import annotations

from typing import Any, Final

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
    audited,
    ended,
    findings,
    told,
)

OTHER: Final = "other"
_BY_BROKER: Final[dict[str, Any]] = {"blocking": False, "by_broker": True}


def _watched() -> Log:
    """Two who read, and a sender who watches the queue long before anything is sent."""
    log = Log()
    for writer in (SENDER, WORKER, OTHER):
        log.opens(writer)
    log.reads(WORKER)
    log.reads(OTHER)
    log.stats(SENDER, START - 10 * MINUTE)
    for number in range(5):
        at = START + number * MINUTE
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND, msg_id=f"1{number}")
    return log


def _fails(
    log: Log, made: str, at: int, msg_id: str, *, by: str = WORKER, attempt: int = 1, **plan: Any
) -> None:
    """It fails, and goes back to the broker, which has it come again in five seconds."""
    log.deliver(by, made, at, outcome="rolled_back", attempt=attempt, msg_id=msg_id)
    log.plan(by, made, at, 5 * SECOND, **(_BY_BROKER | plan))


def _counted(log: Log, at: int = START + HOUR, **counted: int) -> Log:
    """The broker counts so many, and the three close in order."""
    log.stats(SENDER, at, ORDERS, **counted)
    return ended(log).closes(OTHER, START + 2 * HOUR)


def _doubts(summary: dict[str, Any]) -> tuple[str, int, int, int]:
    """The verdict, what is not settled, of this explained, and how many findings tell of others who send or read."""
    others = [one for one in summary["findings"] if "_producers" in one["what"]]
    others += [one for one in summary["findings"] if "_consumers" in one["what"]]
    return summary["verdict"], summary["unaccounted"], summary["explained"], len(others)


@pytest.mark.parametrize("others", [0, 2])
@pytest.mark.parametrize("by", [WORKER, OTHER])
def test_what_went_back_and_came_again_is_of_nobody_else(by: str, others: int) -> None:
    """It came under another id, whoever got it; what is beyond it others sent, and took."""
    log = _watched()
    made = log.send(SENDER, START + 10 * MINUTE)
    _fails(log, made, START + 11 * MINUTE, "21")
    _fails(log, made, START + 12 * MINUTE, "22", by=by, attempt=2)
    log.deliver(OTHER, made, START + 13 * MINUTE, attempt=3, msg_id="23")
    summary = told(_counted(log, enqueued=8 + others, dequeued=8 + others))

    expected = ("unverifiable", 0, 0, 2) if others else ("balanced", 0, 0, 0)
    assert _doubts(summary) == expected
    for what in ("foreign_producers", "foreign_consumers"):
        assert [text for text in findings(summary, what) if "at least 2 messages" in text] == (
            findings(summary, what)
        )


@pytest.mark.parametrize("units", range(1, 8))
def test_it_does_not_matter_how_the_log_is_cut(units: int) -> None:
    """What a line tells and what comes of it may be anywhere."""
    log = _watched()
    for number in range(4):
        at = START + (10 + 5 * number) * MINUTE
        made = log.send(SENDER, at)
        _fails(log, made, at + SECOND, f"2{number}")
        if number < 3:
            log.deliver(OTHER, made, at + 7 * SECOND, attempt=2, msg_id=f"3{number}")
    log.send(SENDER, START + 40 * MINUTE)
    summary = audited(_counted(log, enqueued=14, dequeued=12), units=units).summary

    # One never came again, and one never came: the broker counts one that went of which no line surely tells.
    assert _doubts(summary) == ("suspect", 2, 1, 0)


def test_what_failed_to_go_back_may_have_gone_elsewhere() -> None:
    """The link was lost behind the line, and the message came again as it was: one went of which no line tells."""
    log = _watched()
    made = log.send(SENDER, START + 10 * MINUTE)
    _fails(log, made, START + 11 * MINUTE, "21")
    log.deliver(OTHER, made, START + 12 * MINUTE, attempt=2, msg_id="21")
    log.send(SENDER, START + 13 * MINUTE)
    summary = told(_counted(log, enqueued=7, dequeued=7))

    assert _doubts(summary) == ("unverifiable", 1, 1, 1)


def test_a_copy_that_never_came_is_not_settled() -> None:
    """Whether it went back or was taken by somebody else the counts do not tell; that it is not settled lines do."""
    log = _watched()
    _fails(log, log.send(SENDER, START + 10 * MINUTE), START + 11 * MINUTE, "21")
    summary = told(_counted(log, enqueued=6, dequeued=6))

    assert _doubts(summary) == ("unverifiable", 1, 1, 0)


@pytest.mark.parametrize("foreign", [False, True])
def test_a_copy_that_never_came_and_of_whose_sending_no_log_tells(*, foreign: bool) -> None:
    """Nothing but the counts tells that anything is missing."""
    log = _watched()
    made = "ID:java-1" if foreign else f"{(START + 10 * MINUTE) // 1000:012x}{99:020x}"
    _fails(log, made, START + 11 * MINUTE, "21")
    _fails(log, made, START + 12 * MINUTE, "22", attempt=2)
    summary = told(_counted(log, enqueued=7, dequeued=7))

    assert (summary["verdict"], summary["unaccounted"]) == ("unverifiable", 0)
    assert "1 message went" in str(summary["reasons"]) or foreign


def test_what_waits_at_the_broker_is_no_doubt_of_others() -> None:
    """It went back just now; its sender keeps a log, so that it is in flight."""
    log = _watched()
    at = START + 30 * MINUTE
    log.deliver(WORKER, log.send(SENDER, at), at + SECOND, msg_id="20")
    made = log.send(SENDER, at)
    log.deliver(WORKER, made, at + SECOND, outcome="rolled_back", msg_id="21")
    log.plan(WORKER, made, at + SECOND, HOUR, **_BY_BROKER)
    log.stats(SENDER, at + MINUTE, enqueued=7, dequeued=7)
    for writer in (WORKER, OTHER, SENDER):
        log.line(writer, "conn.stats", at + 3 * MINUTE, session_id=f"{writer}-1", epoch=1)
    opened = tuple(f"{writer}-000000000000.jsonl.open" for writer in (SENDER, WORKER, OTHER))
    summary = told(log, open_segments=opened)

    assert (summary["verdict"], summary["in_flight"]) == ("balanced", 1), summary["reasons"]
    assert _doubts(summary)[-1] == 0


def test_what_went_back_hides_no_loss_behind_a_reconnect() -> None:
    """Who watches the queue was away for a moment; that messages went back shows nobody else who reads there."""
    log = _watched()
    for number in range(3):
        at = START + (10 + number) * MINUTE
        made = log.send(SENDER, at)
        _fails(log, made, at + SECOND, f"2{number}")
        log.deliver(WORKER, made, at + 7 * SECOND, attempt=2, msg_id=f"3{number}")
    again = {"session_id": f"{SENDER}-1", "epoch": 2}
    log.line(SENDER, "conn.up", START + 20 * MINUTE, **again, broker="b:61613")
    lost = [log.send(SENDER, START + (30 + number) * MINUTE, epoch=2) for number in range(2)]
    summary = told(_counted(log, epoch=2, enqueued=11, dequeued=11))

    assert _doubts(summary) == ("suspect", 2, 0, 0)
    assert [one["msg_key"] for one in summary["lost"]] == lost


def test_lines_without_ids_prove_nothing() -> None:
    """As of who shows no id of the broker."""
    log = _watched()
    made = log.send(SENDER, START + 10 * MINUTE)
    log.deliver(WORKER, made, START + 11 * MINUTE, outcome="rolled_back", msg_id=None)
    log.plan(WORKER, made, START + 11 * MINUTE, 5 * SECOND, **_BY_BROKER)
    log.deliver(WORKER, made, START + 12 * MINUTE, attempt=2, msg_id="22")
    log.send(SENDER, START + 13 * MINUTE)
    summary = told(_counted(log, enqueued=7, dequeued=7))

    assert _doubts(summary) == ("unverifiable", 1, 1, 1)


def test_a_dead_letter_that_comes_back_did_not_go_back() -> None:
    """A line tells that it was settled under its first id; that it came once more somebody else did."""
    log = _watched()
    made = log.send(SENDER, START + 10 * MINUTE)
    _fails(log, made, START + 11 * MINUTE, "21")
    log.deliver(WORKER, made, START + 12 * MINUTE, attempt=2, msg_id="21", outcome="dead_lettered")
    log.deliver(WORKER, made, START + 20 * MINUTE, msg_id="22")
    log.send(SENDER, START + 30 * MINUTE)
    summary = told(_counted(log, enqueued=8, dequeued=8))

    assert _doubts(summary)[:3] == ("unverifiable", 1, 1)


def test_what_went_back_before_the_count_is_not_of_it() -> None:
    """The broker was counted from half an hour later on, and one that went since then went elsewhere."""
    log = Log()
    for writer in (SENDER, WORKER, OTHER):
        log.opens(writer)
    log.reads(WORKER)
    made = log.send(SENDER, START)
    _fails(log, made, START + SECOND, "21")
    log.deliver(WORKER, made, START + 7 * SECOND, attempt=2, msg_id="22")
    log.stats(SENDER, START + 30 * MINUTE, enqueued=2, dequeued=2)
    log.send(SENDER, START + 40 * MINUTE)
    summary = told(_counted(log, enqueued=3, dequeued=3))

    assert _doubts(summary) == ("unverifiable", 1, 1, 1)
    assert findings(summary, "foreign_producers") == []
    assert ORDERS in findings(summary, "foreign_consumers")[0]


@pytest.mark.parametrize("others", [0, 1])
def test_a_report_of_a_period_knows_what_went_back_in_it(others: int) -> None:
    """Also what was sent before it."""
    log = _watched()
    made = log.send(SENDER, START + 25 * MINUTE)
    log.stats(SENDER, START + 30 * MINUTE, enqueued=6, dequeued=5, size=1)
    _fails(log, made, START + 35 * MINUTE, "21")
    log.deliver(OTHER, made, START + 36 * MINUTE, attempt=2, msg_id="22")
    later = log.send(SENDER, START + 40 * MINUTE)
    log.deliver(OTHER, later, START + 41 * MINUTE, msg_id="23")
    log = _counted(log, enqueued=8 + others, dequeued=8 + others)
    summary = told(log, asked=Period(since_us=START + 28 * MINUTE))

    assert _doubts(summary) == (("unverifiable", 0, 0, 2) if others else ("balanced", 0, 0, 0))
    assert summary["sent"] == 1
