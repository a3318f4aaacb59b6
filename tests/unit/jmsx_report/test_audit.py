"""Verdicts, gaps, the horizon and foreign messages, on a log small enough to be read."""

from __future__ import annotations

from typing import Any

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
    audited,
    ended,
    findings,
    told,
    trade,
)


def test_all_was_settled_once() -> None:
    """Balanced: the whole, the destination, and the hour."""
    found = audited(ended(trade()))

    assert (found.summary["verdict"], found.summary["reasons"]) == ("balanced", [])
    assert found.summary["destinations"][ORDERS]["verdict"] == "balanced"
    row = found.table.row(0, named=True)
    assert (row["service"], row["broker"], row["dest"]) == ("work", "b:61613", ORDERS)
    assert (row["hour_us"], row["sent"], row["done"], row["verdict"]) == (START, 10, 10, "balanced")


def test_nothing_at_all_proves_nothing() -> None:
    """A log without messages, and no log at all."""
    assert told(ended(trade(0)))["verdict"] == "unverifiable"
    assert told(Log())["verdict"] == "unverifiable"


def test_what_is_on_its_way_proves_nothing() -> None:
    """Nobody has had a message yet, and none is overdue; with one that was done the others may be on their way."""
    log = trade(0)
    for after in (0, 1):
        log.send(SENDER, START + after)
    nothing = told(ended(log, START + 2 * SECOND), deadline_us=MINUTE)
    assert (nothing["verdict"], nothing["in_flight"]) == ("unverifiable", 2)
    assert nothing["reasons"] == [
        "no message is settled, and none is overdue yet, so nothing is proven"
    ]

    log = trade(0)
    log.send(SENDER, START)
    waiting = log.send(SENDER, START + 1)
    log.deliver(WORKER, waiting, START + SECOND)
    one = told(ended(log, START + 2 * SECOND), deadline_us=MINUTE)
    assert (one["verdict"], one["in_flight"]) == ("balanced", 1)


def test_a_loss_makes_its_hour_suspect_and_no_other() -> None:
    """The key is named, with when it was sent."""
    log = trade()
    lost = log.send(SENDER, START + 90 * MINUTE)
    log.deliver(WORKER, log.send(SENDER, START + 130 * MINUTE), START + 131 * MINUTE)
    summary = told(ended(log, START + 3 * HOUR))

    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 1)
    assert [(one["msg_key"], one["key_us"]) for one in summary["lost"]] == [
        (lost, START + 90 * MINUTE)
    ]
    assert [row["verdict"] for row in summary["hours"]] == ["balanced", "suspect", "balanced"]


def test_reasons_tell_the_numbers_of_what_they_are_reasons_of() -> None:
    """Three losses in two hours: three for the destination and for the whole, one and two for the hours."""
    log = trade()
    for sent in (70, 130, 131):
        log.send(SENDER, START + sent * MINUTE)
    summary = told(ended(log, START + 4 * HOUR))
    words = "{} sent and not settled after the deadline"

    assert summary["reasons"] == [f"{ORDERS}: {words.format(3)}"]
    assert summary["destinations"][ORDERS]["reasons"] == [words.format(3)]
    assert [row["reasons"] for row in summary["hours"]] == [
        [],
        [words.format(1)],
        [words.format(2)],
    ]


def test_a_loss_and_a_repeat_do_not_cancel_out() -> None:
    """Counts agree in the bucket; the keys do not."""
    log = trade()
    log.send(SENDER, START + 5)
    twice = log.send(SENDER, START + 6)
    for _ in range(2):
        log.deliver(WORKER, twice, START + SECOND)
    found = audited(ended(log))

    numbers = {
        name: found.summary[name] for name in ("sent", "settled", "unaccounted", "duplicates")
    }
    assert numbers == {"sent": 12, "settled": 12, "unaccounted": 1, "duplicates": 1}
    assert found.duplicates.select("kind", "cause", "n").rows() == [("settlement", "unknown", 1)]


def test_a_repeat_is_proven_inside_a_log_with_gaps() -> None:
    """Suspect, whatever else is missing."""
    log = trade()
    log.deliver(WORKER, log.lines[-1]["msg_key"], START + HOUR)
    log.lines.pop(3)

    assert told(ended(log))["verdict"] == "suspect"


def test_a_gap_taints_what_its_writer_touched_in_that_time() -> None:
    """Another destination, and another hour, are proven all the same."""
    log = trade(200, dest="queue://a").opens("other")
    log.reads("other", "queue://b")
    for number in range(200):
        at = START + number * MINUTE
        log.deliver("other", log.send(SENDER, at, "queue://b"), at + SECOND, "queue://b")
    gone = [
        line for line in log.lines if line["kind"] == "delivery" and line["dest"] == "queue://a"
    ]
    log.lines.remove(gone[10])
    log.closes("other", START + 4 * HOUR)
    summary = told(ended(log, START + 4 * HOUR))

    hours = {
        (row["dest"], (row["hour_us"] - START) // HOUR): row["verdict"] for row in summary["hours"]
    }
    assert summary["verdict"] == "unverifiable"
    assert {where for where, verdict in hours.items() if verdict == "unverifiable"} == {
        ("queue://a", 0)
    }
    assert summary["destinations"]["queue://b"]["verdict"] == "balanced"


def test_a_gap_explains_no_more_than_its_lines() -> None:
    """One line is missing and three messages are not settled: two of them are lost."""
    log = trade()
    for number in range(3):
        log.send(SENDER, START + number)
    gone = [line for line in log.lines if line["kind"] == "delivery"][-1]
    log.lines.remove(gone)
    summary = told(ended(log))

    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 4)
    assert findings(summary, "unaccounted") == [
        f"{ORDERS}: 3 sent and not settled after the deadline"
    ]
    assert findings(summary, "explained") == [
        f"{ORDERS}: 1 not settled, but a gap in the log, the broker, a consumer, another queue or its id may explain it"
    ]


@pytest.mark.parametrize("kind", ["delivery", "send", "something.new"])
def test_dropped_evidence_is_a_gap(kind: str) -> None:
    """A log.gap of what the audit is built on, or of what nobody knows."""
    log = trade()
    log.line(WORKER, "log.gap", START + HOUR, dropped=2, dropped_kind=kind, reason="overflow")
    log.closes(SENDER, START + HOUR).closes(WORKER, START + HOUR, dropped=2)

    assert told(log)["verdict"] == "unverifiable"


def test_dropped_lines_of_batches_are_none() -> None:
    """They are missing from the counts, and the audit does not need them."""
    log = trade()
    log.line(WORKER, "log.gap", START + HOUR, dropped=2, dropped_kind="ack.batch")
    log.closes(SENDER, START + HOUR).closes(WORKER, START + HOUR, dropped=2)
    summary = told(log)

    assert summary["verdict"] == "balanced"
    assert not summary["completeness"]["complete"]


def test_a_close_that_tells_of_more_drops_is_a_gap() -> None:
    """No log.gap says of what."""
    log = trade().closes(SENDER, START + HOUR).closes(WORKER, START + HOUR, dropped=5)

    assert told(log)["verdict"] == "unverifiable"


def test_a_writer_that_died_proves_nothing_after_its_last_line() -> None:
    """What it had not yet written is unknown."""
    log = trade().closes(SENDER, START + HOUR)
    log.line(WORKER, "log.recovered", START + HOUR, lost_bytes=7)
    summary = told(log)

    assert summary["verdict"] == "unverifiable"
    assert "7 bytes were cut off" in " ".join(summary["completeness"]["faults"])


def test_lines_that_were_put_aside_are_never_balanced() -> None:
    """Even where every other line is here."""
    aside = pl.DataFrame(
        {
            "path": ["x.jsonl"],
            "line": [1],
            "what": ["unreadable"],
            "why": ["no JSON"],
            "writer": [WORKER],
        }
    )
    summary = told(ended(trade()), quarantine=aside)

    assert (summary["verdict"], summary["quarantined"]) == ("unverifiable", 1)
    assert findings(summary, "quarantine") == ["x.jsonl, line 1: no JSON"]
    assert "1 line put aside" in summary["reasons"]


def test_a_log_of_spoilt_lines_only_may_have_told_of_any_number() -> None:
    """Such as one that is full of zeros; of a writer with good lines their numbers tell how many are missing."""
    log = trade()
    for minute in range(3):
        log.send(SENDER, START + minute * MINUTE)
    aside = pl.DataFrame({"path": [""], "line": [1], "why": ["?"], "what": ["?"]})
    summary = told(ended(log), quarantine=aside.with_columns(writer=pl.lit("third")))
    assert (summary["verdict"], summary["explained"]) == ("unverifiable", 3)

    summary = told(log, quarantine=aside.with_columns(writer=pl.lit(WORKER)))
    assert (summary["verdict"], summary["explained"]) == ("suspect", 1)


def test_a_living_fleet_is_judged_up_to_its_horizon() -> None:
    """What came later is told as a number, and what is under way is not lost."""
    log = trade()
    log.line(WORKER, "recv.batch", START + 20 * MINUTE, dest=ORDERS, consumer="c", messages=1)
    for number in range(4):
        log.send(SENDER, START + 20 * MINUTE + number * SECOND)
    segments = (f"{SENDER}-000000000000.jsonl.open", f"{WORKER}-000000000000.jsonl.open")
    summary = told(log, open_segments=segments)

    assert (summary["verdict"], summary["horizon"]) == ("balanced", START + 20 * MINUTE)
    assert (summary["since"], summary["in_flight"], summary["sent"]) == (3, 4, 14)


def test_a_living_fleet_lost_something_before_its_horizon() -> None:
    """Suspect at once, and not when everybody has ended."""
    log = trade()
    log.send(SENDER, START)
    for writer in (SENDER, WORKER):
        log.line(writer, "sub.close", START + HOUR, dest=ORDERS, consumer="c")
    segments = tuple(f"{writer}-000000000000.jsonl.open" for writer in (SENDER, WORKER))

    assert told(log, open_segments=segments)["verdict"] == "suspect"


@pytest.mark.parametrize(
    ("minutes", "waited"), [(4, None), (6, True), (59, True), (61, False), (3000, False)]
)
def test_a_writer_that_is_silent_while_others_go_on_is_named(
    minutes: int, waited: bool | None
) -> None:
    """Such as one whose disk is full; what is behind its last line is not judged for an hour, and then unverifiable."""
    log = trade()
    at = START + 9 * MINUTE + SECOND
    log.send(SENDER, at + minutes * MINUTE)
    segments = tuple(f"{writer}-000000000000.jsonl.open" for writer in (SENDER, WORKER))
    summary = told(log, open_segments=segments)

    until = {4: "06:13", 6: "06:15", 59: "07:08", 61: "07:10", 3000: "2026-11-22 08:09"}
    day = "" if minutes == 3000 else "2026-11-20 "
    said = (
        f"{WORKER}: silent since 2026-11-20 06:09:01 UTC, while others wrote until {day}{until[minutes]}:01 UTC:"
        " it has no connection open, it hangs, its log cannot be written (such as on a full disk), it died, or the rest"
        " is not here"
    )
    expected = {
        None: [],
        True: [f"{said}; what was sent after that is not judged"],
        False: [said],
    }
    assert findings(summary, "silent") == expected[waited]
    assert summary["verdict"] == ("unverifiable" if waited is False else "balanced")


def test_a_log_that_just_stops_is_not_waited_for() -> None:
    """The others have ended; nobody knows what its writer did since."""
    log = trade().closes(SENDER, START + 2 * HOUR).opens("third").closes("third", START + HOUR)

    assert told(log)["verdict"] == "unverifiable"


def test_the_deadline_is_by_the_senders_own_clock() -> None:
    """An idle process whose clock is ten minutes ahead makes nothing late."""
    log = trade().opens("idle")
    log.reads("idle")
    for number in range(5):
        log.send(SENDER, START + HOUR - 30 * SECOND + number)
    ended(log, START + HOUR).closes("idle", START + HOUR + 10 * MINUTE)
    summary = told(log, deadline_us=MINUTE)

    assert (summary["in_flight"], summary["unaccounted"], summary["verdict"]) == (5, 0, "balanced")


def test_a_queue_that_nobody_reads_is_never_balanced() -> None:
    """Its messages are unread, not lost."""
    log = trade()
    log.send(SENDER, START, "queue://archive")
    summary = told(ended(log))

    assert (summary["verdict"], summary["unread"], summary["unaccounted"]) == ("unverifiable", 1, 0)
    assert summary["destinations"][ORDERS]["verdict"] == "balanced"


def test_foreign_messages_that_were_done_twice_are_found() -> None:
    """Where broker or process said that it came again, however the log is cut; others are counted only."""

    def twice(units: int, quarantine: pl.DataFrame | None = None, **second: Any) -> dict[str, Any]:
        log = trade()
        for number in range(40):
            log.deliver(WORKER, f"ID:java-{number}", START + number * MINUTE, sent_us=START)
        log.deliver(WORKER, "ID:java-7", START + 50 * MINUTE, sent_us=START, **second)
        return told(ended(log), units=units, quarantine=quarantine)

    for found in (twice(1, attempt=2), twice(3, attempt=2), twice(3, redelivered=True)):
        assert (found["verdict"], found["duplicates"], found["foreign"]) == ("suspect", 1, 41)
        assert [row["msg_key"] for row in found["repeated"]] == ["ID:java-7"]
        assert (found["unaccounted"], found["unsent"]) == (0, 0)
    why = f"seq 3 of {WORKER} has another content in x.jsonl"
    aside = pl.DataFrame(
        {"path": ["x"], "line": [1], "what": ["contradiction"], "why": [why], "writer": [WORKER]}
    )
    doubted = twice(1, attempt=2, quarantine=aside)
    assert (doubted["verdict"], doubted["duplicates"]) == ("unverifiable", 0)
    # What cannot be read contradicts nothing, whatever words it is told in.
    harmed = twice(1, attempt=2, quarantine=aside.with_columns(what=pl.lit("unreadable")))
    assert (harmed["verdict"], harmed["duplicates"]) == ("suspect", 1)
    for found in (twice(1), twice(3)):
        assert (found["verdict"], found["duplicates"], found["foreign"]) == ("unverifiable", 0, 41)
    once = trade()
    once.deliver(WORKER, "ID:java-1", START, sent_us=START, redelivered=True)
    assert (told(ended(once))["verdict"], told(ended(once))["duplicates"]) == ("unverifiable", 0)


def test_nobody_knows_what_the_second_process_of_a_name_touched() -> None:
    """Its lines are of other times; one of the same time was changed, and is put aside with what its writer touched."""
    log = trade().opens("twin")
    log.reads("twin", "queue://other")
    log.send(SENDER, START)
    ended(log).closes("twin", START + 2 * HOUR)
    path = "date=2026-11-20/hour=06/twin-000000000000.jsonl"

    def judged(what: str) -> dict[str, Any]:
        row = {"path": path, "line": 2, "what": what, "why": "another content", "writer": "twin"}
        return told(log, quarantine=pl.DataFrame([row]))

    twins = judged("namesake")
    assert twins["destinations"][ORDERS]["reasons"][1:] == [
        "two processes have its name, and lines of one were put aside (twin)"
    ]
    assert {row["verdict"] for row in (twins, *twins["hours"])} == {"unverifiable"}
    assert judged("contradiction")["verdict"] == "suspect"


def test_foreign_messages_cannot_be_compared() -> None:
    """They are settled, and who sent them keeps no log."""
    log = trade()
    log.deliver(WORKER, "ID:other-1", START)
    summary = told(ended(log))

    assert (summary["verdict"], summary["foreign"], summary["unsent"]) == ("unverifiable", 1, 0)


def test_keys_of_another_shape_are_compared_where_we_sent_them() -> None:
    """The same key at both ends is the same message, whatever it looks like."""
    log = trade()
    for number in range(3):
        log.deliver(WORKER, log.send(SENDER, START, msg_key=f"k-{number}"), START + SECOND)
    assert told(ended(log))["verdict"] == "balanced"

    log = trade()
    log.send(SENDER, START, msg_key="k-9")
    summary = told(ended(log))
    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 1)


@pytest.mark.parametrize("nameless", ["", None])
def test_messages_without_a_key_prove_nothing(nameless: str | None) -> None:
    """One that was sent and one that was settled need not be the same."""
    log = trade()
    log.send(SENDER, START, msg_key=nameless)
    log.deliver(WORKER, nameless, START)
    summary = told(ended(log))

    assert (summary["verdict"], summary["foreign"]) == ("unverifiable", 2)


def test_settled_without_a_send_in_the_log() -> None:
    """Its sender's log is not here."""
    log = trade()
    log.deliver(WORKER, log.send(SENDER, START), START + SECOND)
    log.lines = [line for line in log.lines if line["kind"] != "send"]
    for number, line in enumerate(line for line in log.lines if line["writer"] == SENDER):
        line["seq"] = number
    summary = told(ended(log))

    assert (summary["verdict"], summary["unsent"]) == ("unverifiable", 11)


#: How long the messages of `waiting` are planned to wait.
_WAIT = 2 * HOUR


def waiting(*, wait: int = _WAIT, **plan: bool | None) -> tuple[Log, str]:
    """A message failed half an hour after the start, and waits for its redelivery; the log, and its key."""
    log, at = trade(), START + 30 * MINUTE
    made = log.send(SENDER, at - SECOND)
    log.deliver(WORKER, made, at, outcome="rolled_back", error_type="ValueError")
    log.plan(WORKER, made, at, wait, **plan)
    return log, made


def closed(log: Log, at: int) -> None:
    """The worker's consumer is closed."""
    log.line(WORKER, "sub.close", at, session_id=f"{WORKER}-1", epoch=1, dest=ORDERS, consumer="c")


def has(log: Log, at: int, buffered: int, in_process: int = 0, **of: Any) -> None:
    """The worker's consumer says how many messages it has."""
    told = {"dest": ORDERS, "consumer": "c", "buffered": buffered, "in_process": in_process}
    log.line(WORKER, "sub.stats", at, session_id=f"{WORKER}-1", epoch=1, **(told | of))


def living(log: Log, at: int, **how: Any) -> dict[str, Any]:
    """What is told while both still write, and did so last at `at`."""
    for writer in (SENDER, WORKER):
        counted = dict.fromkeys(("frames_in", "frames_out", "bytes_in", "bytes_out"), 1)
        log.line(writer, "conn.stats", at, session_id=f"{writer}-1", epoch=1, **counted)
    segments = tuple(f"{writer}-000000000000.jsonl.open" for writer in (SENDER, WORKER))
    return told(log, open_segments=segments, deadline_us=5 * MINUTE, **how)


def numbers(summary: dict[str, Any]) -> tuple[str, int, int]:
    """The verdict, and how many are not settled: overdue, and not yet."""
    return summary["verdict"], summary["unaccounted"], summary["in_flight"]


@pytest.mark.parametrize("blocking", [True, False])  # False: also the broker's scheduler
def test_what_waits_for_its_redelivery_is_not_lost(*, blocking: bool) -> None:
    """Its time, and the deadline after that, are not over."""
    log, _ = waiting(blocking=blocking)

    assert numbers(living(log, START + 2 * HOUR)) == ("balanced", 0, 1)


def test_a_wait_may_be_longer_than_any_clock_shows() -> None:
    """The longest that a line may tell of."""
    log, _ = waiting(wait=2**63 - 1)

    assert numbers(living(log, START + 2 * HOUR)) == ("balanced", 0, 1)


@pytest.mark.parametrize("blocking", [True, False])
def test_what_waited_and_came_is_settled(*, blocking: bool) -> None:
    """Two hours late, as planned."""
    log, made = waiting(blocking=blocking)
    log.deliver(WORKER, made, START + 30 * MINUTE + _WAIT, attempt=2)

    assert numbers(living(log, START + 3 * HOUR)) == ("balanced", 0, 0)


@pytest.mark.parametrize("blocking", [True, False])
@pytest.mark.parametrize(
    ("late", "expected"), [(4 * MINUTE, ("balanced", 0, 1)), (6 * MINUTE, ("suspect", 1, 0))]
)
def test_what_waited_and_never_came_is_lost(
    late: int, expected: tuple[str, int, int], *, blocking: bool
) -> None:
    """Once the deadline is over that begins with the end of its wait."""
    log, made = waiting(blocking=blocking)
    summary = living(log, START + 30 * MINUTE + _WAIT + late)

    assert numbers(summary) == expected
    assert [one["msg_key"] for one in summary["lost"]] == [made] * expected[1]


@pytest.mark.parametrize(
    ("late", "expected"), [(4 * MINUTE, ("balanced", 0, 1)), (6 * MINUTE, ("suspect", 1, 0))]
)
@pytest.mark.parametrize("process_ends", [True, False])
@pytest.mark.parametrize("plan", [{"blocking": True}, {"blocking": False, "by_broker": False}])
def test_a_wait_ends_with_its_consumer(
    late: int, expected: tuple[str, int, int], plan: dict[str, bool], *, process_ends: bool
) -> None:
    """The broker has the message again, and nobody took it: the deadline begins there."""
    log, _ = waiting(**plan)
    end = START + HOUR
    if process_ends:
        log.closes(WORKER, end)
    else:
        closed(log, end)
        log.closes(WORKER, end + late)
    log.closes(SENDER, end + late)

    assert numbers(told(log, deadline_us=5 * MINUTE)) == expected


@pytest.mark.parametrize("by_broker", [True, None])  # None: a line of an older release
def test_the_broker_goes_on_waiting_when_the_consumer_is_closed(*, by_broker: bool | None) -> None:
    """Nothing tells that the message is not in its scheduler, so it is not lost before its time."""
    log, _ = waiting(blocking=False, by_broker=by_broker)
    closed(log, START + HOUR)
    summary = told(ended(log), deadline_us=5 * MINUTE)

    assert numbers(summary) == ("balanced", 0, 1)


def test_a_wait_ends_with_what_is_told_of_the_message_afterwards() -> None:
    """It came early, and was given back; nobody took it."""
    log, made = waiting(blocking=False)
    log.deliver(WORKER, made, START + HOUR, outcome="released")

    assert numbers(told(ended(log), deadline_us=5 * MINUTE)) == ("suspect", 1, 0)


def test_one_wait_is_of_one_subscription() -> None:
    """The copy of another one, which nobody waits for, is lost."""
    log = Log().opens(SENDER).opens(WORKER)
    topic = "topic://news"
    for name in ("a", "b"):
        log.reads(WORKER, topic, consumer=name, subscription=f"durable:c.{name}")
    copies = [log.send(SENDER, START + number * SECOND, topic) for number in range(2)]
    for name in ("a", "b"):
        fate = {"consumer": name, "subscription": f"durable:c.{name}"}
        log.deliver(WORKER, copies[0], START + MINUTE, topic, **fate)
        log.deliver(WORKER, copies[1], START + MINUTE, topic, outcome="rolled_back", **fate)
    log.plan(WORKER, copies[1], START + MINUTE, _WAIT, dest=topic, consumer="a")

    assert numbers(living(log, START + HOUR)) == ("suspect", 1, 1)


def test_clocks_that_are_not_known_leave_open_whether_a_wait_is_over() -> None:
    """The consumer's may be ten minutes ahead of the sender's, or not: neither lost nor balanced."""
    log, _ = waiting()
    log.opens("third")
    came = START + SECOND
    log.deliver(WORKER, log.send("third", START), came, sent_us=came - 10 * MINUTE)
    log.closes("third", START + MINUTE)
    summary = living(log, START + 30 * MINUTE + _WAIT)

    assert numbers(summary) == ("unverifiable", 0, 1)


def test_what_waits_for_its_redelivery_is_told() -> None:
    """How many, and until when the last of them waits."""
    log, _ = waiting()

    assert findings(living(log, START + 2 * HOUR), "planned") == [
        f"{ORDERS}: 1 message in a planned wait for redelivery, the last until 2026-11-20 08:30:00 UTC"
    ]


@pytest.mark.parametrize("why", ["closed", "came again", "over"])
def test_a_wait_that_is_over_is_not_told(why: str) -> None:
    """Its consumer was closed, it was delivered early and failed again, or its time has come."""
    log, made = waiting(wait=6 * MINUTE if why == "over" else _WAIT)
    if why == "closed":
        closed(log, START + 34 * MINUTE)
    if why == "came again":
        log.deliver(WORKER, made, START + 34 * MINUTE, outcome="rolled_back", attempt=2)
    summary = living(log, START + 38 * MINUTE)

    assert (*numbers(summary), findings(summary, "planned")) == ("balanced", 0, 1, [])


def test_until_when_a_message_waits_is_told_by_no_wrong_clock() -> None:
    """The sender's is five hours ahead of the broker's, and the consumer's is right."""
    log, ahead = Log().opens(SENDER, START + 5 * HOUR).opens(WORKER), 5 * HOUR
    log.reads(WORKER)
    for number in range(31):
        at = START + number * MINUTE
        made = log.send(SENDER, at + ahead)
        fate = "rolled_back" if number == 30 else "acknowledged"
        log.deliver(WORKER, made, at + SECOND, outcome=fate, sent_us=at)
    log.plan(WORKER, made, at + SECOND, _WAIT, blocking=False, by_broker=True)
    log.closes(SENDER, at + ahead + MINUTE).closes(WORKER, at + MINUTE)

    assert findings(told(log, deadline_us=5 * MINUTE), "planned") == [
        f"{ORDERS}: 1 message in a planned wait for redelivery, the last until 2026-11-20 08:30:01 UTC"
    ]


@pytest.mark.parametrize("at", [2**62, 20_000_000_000_000_000])
def test_a_wait_until_a_time_that_is_none_is_told_without_it(at: int) -> None:
    """A damaged line."""
    log = trade()
    made = log.send(SENDER, START + 30 * MINUTE)
    log.deliver(WORKER, made, START + 30 * MINUTE + SECOND, outcome="rolled_back")
    log.plan(WORKER, made, at, _WAIT)
    said = findings(living(log, START + 31 * MINUTE), "planned")

    assert "until" not in str(said)


def overdue(messages: int) -> Log:
    """So many messages were sent half an hour after the start, and nothing tells of them since."""
    log = trade()
    for number in range(messages):
        log.send(SENDER, START + 30 * MINUTE + number * SECOND)
    return log


def test_what_a_consumer_may_have_in_hand_is_not_proven_to_be_lost() -> None:
    """Behind a handler that runs on and on lie two messages: of three that are overdue, one is surely lost."""
    log = overdue(3)
    has(log, START + 40 * MINUTE, 9)
    has(log, START + HOUR, 1, 1)
    summary = living(log, START + HOUR + 10 * SECOND)

    assert (*numbers(summary), summary["explained"]) == ("suspect", 3, 0, 2)
    assert summary["lost"] == []


def test_what_consumers_have_may_be_all_that_is_overdue() -> None:
    """Then nothing is proven to be lost, and nothing that it is not."""
    log = overdue(2)
    log.reads(WORKER, consumer="d")
    has(log, START + HOUR, 1, consumer="d")
    has(log, START + HOUR, 1)
    summary = living(log, START + HOUR)

    assert (*numbers(summary), summary["explained"]) == ("unverifiable", 2, 0, 2)
    assert findings(summary, "in_hand") == [
        f"{ORDERS}: its consumers have 2 messages of which nothing else is told"
    ]


def test_what_a_consumer_keeps_for_its_redelivery_is_no_other() -> None:
    """It has one message, and which that is, is known: so the one that is overdue is lost."""
    log, _ = waiting()
    lost = log.send(SENDER, START + 20 * MINUTE)
    has(log, START + HOUR, 1)
    summary = living(log, START + HOUR)

    assert numbers(summary) == ("suspect", 1, 1)
    assert [one["msg_key"] for one in summary["lost"]] == [lost]


@pytest.mark.parametrize("why", ["closed", "ended", "link lost", "long ago", "another queue"])
def test_what_a_consumer_had_it_may_have_no_more(why: str) -> None:
    """It was closed or its process has ended, its link is lost, or it reads something else."""
    log = overdue(2)
    at = START + HOUR
    has(log, at, 2, dest="queue://other" if why == "another queue" else ORDERS)
    if why == "closed":
        closed(log, at)
    if why == "link lost":
        log.line(WORKER, "conn.lost", at, session_id=f"{WORKER}-1", epoch=1, reason="io")
    if why == "ended":
        log.closes(WORKER, at)
        log.closes(SENDER, at)
        summary = told(log)
    else:
        summary = living(log, at + (2 * MINUTE if why == "long ago" else 0))

    assert (*numbers(summary), summary["explained"]) == ("suspect", 2, 0, 0)


def test_the_broker_counts_what_is_in_hand_too() -> None:
    """Two wait in the queue by its count, and a consumer has two: they are the same, and one of three is lost."""
    log = overdue(3)
    has(log, START + HOUR, 2)
    log.stats(SENDER, START - SECOND)
    log.stats(SENDER, START + HOUR, enqueued=13, dequeued=10, size=2)
    summary = living(log, START + HOUR)

    assert (*numbers(summary), summary["explained"]) == ("suspect", 3, 0, 2)


@pytest.mark.parametrize("at", [-(2**63), 0, 2**63 - 1])
def test_what_a_consumer_says_at_a_time_that_is_none_proves_nothing(at: int) -> None:
    """However many it says that it has."""
    log = overdue(2)
    has(log, START + HOUR, 2**31 - 1, 2**31 - 1)
    assert living(log, START + HOUR)["explained"] == 2

    log = overdue(2)
    has(log, at, 2**31 - 1, 2**31 - 1)
    assert numbers(living(log, START + HOUR)) == ("suspect", 2, 0)


def busy(minutes: int, *, lost: int = 10) -> Log:
    """A message a minute, one of them lost; each time the consumer says that it has the one that it handles."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    for number in range(minutes):
        at = START + number * MINUTE
        made = log.send(SENDER, at)
        has(log, at + 2 * SECOND, 0, 1)
        if number != lost:
            log.deliver(WORKER, made, at + 5 * SECOND, recv_us=at + SECOND)
    return log


@pytest.mark.parametrize(
    ("overdue", "expected"), [(1, ("unverifiable", 1, 0)), (2, ("suspect", 2, 0))]
)
def test_what_one_handler_of_several_is_stuck_with_is_not_proven_to_be_lost(
    overdue: int, expected: tuple[str, int, int]
) -> None:
    """Beside it the others go on; the consumer says that one message is still there. What else is overdue is lost."""
    log = busy(40)
    for number in range(overdue - 1):
        log.send(SENDER, START + 20 * MINUTE + number * SECOND)
    end = START + 40 * MINUTE
    has(log, end, 0, 3, still_in_process=1)
    log.deliver(WORKER, log.send(SENDER, end), end + 5 * SECOND)
    summary = living(log, end + 10 * SECOND)

    assert (*numbers(summary), summary["explained"]) == (*expected, 1)
    assert summary["lost"] == []
    assert findings(summary, "in_hand") == [
        f"{ORDERS}: its consumers have 1 message of which nothing else is told"
    ]


@pytest.mark.parametrize(
    ("fate", "proven"),
    [
        ({}, True),
        ({"outcome": "released"}, False),  # it may have waited in the prefetch
        ({"end_us": START + 40 * MINUTE - 18 * SECOND}, False),  # it was acknowledged late
        ({"start_us": START + 40 * MINUTE + SECOND}, False),  # it came when that was told
    ],
)
def test_what_a_slow_handler_is_done_with_since_explains_no_loss(
    fate: dict[str, Any], *, proven: bool
) -> None:
    """The one that the consumer still had is settled meanwhile, as far as its line tells; another one is overdue."""
    log, end = busy(40), START + 40 * MINUTE
    made = log.send(SENDER, end - 20 * SECOND)
    has(log, end, 0, 1, still_in_process=1)
    times = {"recv_us": end - 19 * SECOND, "start_us": end - 19 * SECOND}
    log.deliver(WORKER, made, end + 3 * SECOND, **(times | fate))
    summary = living(log, end + 5 * SECOND)

    verdict = "suspect" if proven else "unverifiable"
    assert (*numbers(summary)[:2], summary["explained"]) == (verdict, 1, not proven)


def test_who_is_busy_is_told_by_the_order_of_lines() -> None:
    """Not by a clock that was put back meanwhile, nor by one that showed no time at all."""
    log, end = busy(40, lost=-1), START + HOUR
    for number in range(2):
        log.send(SENDER, end - 5 * MINUTE - (number + 2) * SECOND)
    log.deliver(WORKER, log.send(SENDER, START + 40 * MINUTE), 2**62)
    log.deliver(WORKER, log.send(SENDER, end - 6 * MINUTE), end - 10 * SECOND)
    has(log, end - 12 * SECOND, 1, 1)
    summary = living(log, end)

    assert (*numbers(summary), summary["explained"]) == ("unverifiable", 2, 0, 2)


@pytest.mark.parametrize("done", [True, False])
def test_what_a_busy_consumer_handles_is_not_what_is_lost(*, done: bool) -> None:
    """A line tells of it three seconds later, or not yet: then it is the one that was sent last."""
    log = busy(120)
    if not done:
        log.send(SENDER, START + 2 * HOUR)
        has(log, START + 2 * HOUR + 2 * SECOND, 0, 1)
    summary = living(log, START + 2 * HOUR + 5 * SECOND)

    assert (*numbers(summary)[:2], summary["explained"]) == ("suspect", 1, 0)


def test_what_a_consumer_handles_today_was_not_lost_yesterday() -> None:
    """It was done with others since."""
    log = busy(180)
    has(log, START + 180 * MINUTE, 0, 1)
    asked = Period(since_us=START, until_us=START + HOUR)
    summary = living(log, START + 180 * MINUTE, asked=asked)

    assert (*numbers(summary), summary["explained"]) == ("suspect", 1, 0, 0)


def test_the_broker_may_say_later_that_nothing_is_there() -> None:
    """It counts what consumers have, too: so they no longer have it."""
    log = overdue(2)
    has(log, START + HOUR - 50 * SECOND, 2)
    log.stats(SENDER, START - SECOND)
    log.stats(SENDER, START + HOUR, enqueued=12, dequeued=10)
    summary = living(log, START + HOUR)

    assert (*numbers(summary), summary["explained"]) == ("suspect", 2, 0, 0)


@pytest.mark.parametrize(("behind", "found"), [(60, "balanced"), (61, "unverifiable")])
def test_a_writer_between_two_segments_is_waited_for(behind: int, found: str) -> None:
    """It closes one every minute, and opens the next one when it has a line, which may be 15 s later."""
    log = trade()
    end = START + 20 * MINUTE
    log.line(WORKER, "conn.stats", end - behind * SECOND)
    log.line(SENDER, "conn.stats", end)

    assert told(log, open_segments=(f"{SENDER}-000000000012.jsonl.open",))["verdict"] == found
