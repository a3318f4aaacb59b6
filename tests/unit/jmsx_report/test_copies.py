"""Dead letters that jmsx moved by a copy: those that nobody read where the log reads such are not called well."""

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
    key,
    told,
)

DLQ: Final = "queue://DLQ"
CLERK: Final = "clerk"
END: Final = START + 2 * HOUR


def shop(**reader: Any) -> Log:
    """A sender, a worker, and a clerk who reads the dead letters as `reader` says."""
    log = Log().opens(SENDER).opens(WORKER).opens(CLERK)
    log.reads(WORKER)
    reads: dict[str, Any] = {"dest": DLQ, "selective": False} | reader
    log.reads(CLERK, **reads)
    return log


def dies(log: Log, at: int, *, dest: str = DLQ, by_copy: bool = True, **fields: Any) -> str:
    """A message is sent, and its copy is confirmed as a dead letter one second after; returns its key."""
    made = log.send(SENDER, at - SECOND)
    log.deliver(WORKER, made, at, outcome="dead_lettered")
    moved(log, made, at, dest=dest, by_copy=by_copy, **fields)
    return made


def moved(log: Log, made: str, at: int, *, dest: str = DLQ, **fields: Any) -> None:
    """The line that tells of the copy."""
    told = {"dest": ORDERS, "consumer": "c", "msg_key": made, "msg_id": "17", "attempts": 3}
    more = {"reason": "max_redeliveries", "by_copy": True, "dlq_dest": dest}
    log._of("dlq", WORKER, at, told | more | fields)


def has(log: Log, at: int, buffered: int = 0, in_process: int = 0, **fields: Any) -> None:
    """The clerk says how many messages it has."""
    where = {"dest": DLQ, "consumer": "c", "buffered": buffered, "in_process": in_process}
    log._of("sub.stats", CLERK, at, where | fields)


def ended(log: Log, at: int = END) -> Log:
    """All close in order."""
    return log.closes(SENDER, at).closes(WORKER, at).closes(CLERK, at)


def twelve(log: Log, read: int = 11, **reads: Any) -> list[str]:
    """Twelve messages die, one a minute, and so many of the copies are read."""
    keys = [dies(log, START + (one + 1) * MINUTE) for one in range(12)]
    for made in keys[:read]:
        log.deliver(CLERK, made, START + 13 * MINUTE, DLQ, **reads)
    return keys


def verdict(log: Log, **how: Any) -> tuple[str, int]:
    """The verdict, and how many copies were not read."""
    summary = told(log, **how)
    return summary["verdict"], summary["unclaimed"]


GONE: Final = ("unverifiable", 1)
WELL: Final = ("balanced", 0)


def test_one_copy_of_twelve_came_to_nobody() -> None:
    """Its queue is named, with the reason; where it died all is well."""
    log = shop()
    keys = twelve(log)
    has(log, START + HOUR)
    summary = told(ended(log))

    assert (summary["verdict"], summary["unclaimed"]) == GONE
    assert (summary["unaccounted"], summary["unsent"], summary["duplicates"]) == (0, 0, 0)
    assert summary["destinations"][ORDERS]["verdict"] == "balanced"
    dead = summary["destinations"][DLQ]
    assert (dead["verdict"], dead["unclaimed"]) == GONE
    assert "1 moved there as dead letters, and read by nobody in the log" in dead["reasons"][0]
    assert dead["sample_keys"] == [keys[-1]]


@pytest.mark.parametrize("read", [0, 11, 12])
def test_so_many_are_counted_as_were_not_read(read: int) -> None:
    """Also where none was read at all."""
    log = shop()
    twelve(log, read)
    has(log, START + HOUR)

    assert verdict(ended(log)) == ("balanced" if read == 12 else "unverifiable", 12 - read)


@pytest.mark.parametrize(
    "reader",
    [{"selective": True}, {"selective": None}, {"dest": "queue://other"}],
    ids=["selector", "older-release", "elsewhere"],
)
def test_nobody_who_gets_all_of_it_reads_there(reader: dict[str, Any]) -> None:
    """Then it may wait, as where nobody reads dead letters."""
    log = shop(**reader)
    twelve(log)
    has(log, START + HOUR)

    assert verdict(ended(log))[1] == 0


def test_nobody_reads_dead_letters() -> None:
    """They are settled where they died."""
    log = Log().opens(SENDER).opens(WORKER).opens(CLERK)
    log.reads(WORKER)
    twelve(log, 0)

    assert verdict(ended(log)) == WELL


@pytest.mark.parametrize(
    ("at", "has_some", "found"),
    [
        (MINUTE - 1, {}, WELL),
        (MINUTE, {}, GONE),
        (HOUR, {"buffered": 1}, WELL),
        (HOUR, {"in_process": 1}, WELL),
    ],
    ids=["at-once", "a-minute-after", "has-one", "does-one"],
)
def test_the_consumer_had_time_and_nothing_to_do(
    at: int, has_some: dict[str, int], found: tuple[str, int]
) -> None:
    """Else the copy may be on its way to it, or lie behind another one."""
    log = shop()
    twelve(log)
    has(log, START + 12 * MINUTE + at, **has_some)

    assert verdict(ended(log)) == found


def test_a_deadline_is_waited_for() -> None:
    """As the report is asked to."""
    log = ended_after(20 * MINUTE)

    assert verdict(log, deadline_us=30 * MINUTE) == WELL
    assert verdict(log, deadline_us=20 * MINUTE) == GONE


def ended_after(after: int) -> Log:
    """The clerk has nothing, so long after the last copy."""
    log = shop()
    twelve(log)
    has(log, START + 12 * MINUTE + after)
    return ended(log)


def test_a_consumer_that_was_opened_just_now_shows_nothing() -> None:
    """It may not have been given anything yet; an earlier link of it showed it, or did not."""
    log = shop()
    twelve(log)
    again = {"dest": DLQ, "consumer": "c", "selective": False, "epoch": 2}
    log._of("sub.open", CLERK, END - 10 * SECOND, again)
    has(log, END - 5 * SECOND, epoch=2)

    assert verdict(log)[1] == 0
    has(log, START + 30 * MINUTE)
    assert verdict(ended(log)) == GONE


def test_what_is_done_elsewhere_was_moved_there() -> None:
    """Back to where it died, or to another queue, by whom no line tells."""
    for dest in (ORDERS, "queue://repairs"):
        log = shop()
        log.reads(WORKER, "queue://repairs")
        one = twelve(log)[-1]
        has(log, START + HOUR)
        log.deliver(WORKER, one, START + HOUR, dest)
        assert verdict(ended(log))[1] == 0


def test_moved_back_and_dead_again() -> None:
    """The second copy is another one, and it was read; or it was not."""
    for reads, found in ((True, WELL), (False, GONE)):
        log = shop()
        one = twelve(log)[-1]
        log.deliver(WORKER, one, START + 20 * MINUTE, outcome="dead_lettered")
        moved(log, one, START + 20 * MINUTE, msg_id="18")
        if reads:
            log.deliver(CLERK, one, START + 21 * MINUTE, DLQ)
        has(log, START + HOUR)
        assert verdict(ended(log)) == found


def test_a_copy_that_was_made_again_is_one() -> None:
    """The link was lost before the ACK of the original, which came again, and Artemis dropped the second copy."""
    log = shop()
    one = twelve(log, 12)[-1]
    moved(log, one, START + 20 * MINUTE)
    has(log, START + HOUR)

    assert verdict(ended(log)) == WELL


def test_given_back_and_then_gone() -> None:
    """Who had it lost its link, and nobody got it again, though somebody could."""
    log = shop()
    one = twelve(log)[-1]
    log.deliver(CLERK, one, START + 15 * MINUTE, DLQ, "abandoned", end_us=None)
    has(log, START + 15 * MINUTE + 30 * SECOND)
    assert verdict(log)[1] == 0
    has(log, START + HOUR)
    assert verdict(ended(log)) == GONE


@pytest.mark.parametrize("outcome", ["rolled_back", "dead_lettered", "expired", "discarded"])
def test_whoever_got_it_knows_what_became_of_it(outcome: str) -> None:
    """However that went."""
    log = shop()
    log.deliver(CLERK, twelve(log)[-1], START + 15 * MINUTE, DLQ, outcome)
    has(log, START + HOUR)

    assert verdict(ended(log))[1] == 0


@pytest.mark.parametrize(
    "fields", [{"by_copy": False}, {"dlq_dest": None}, {"dlq_dest": "topic://DLQ"}]
)
def test_what_the_broker_moved_is_not_asked_for(fields: dict[str, Any]) -> None:
    """Nobody knows where it is; and a topic keeps nothing."""
    log = shop()
    dies(log, START + MINUTE, **fields)
    has(log, START + HOUR)

    assert verdict(ended(log)) == WELL


def test_messages_of_others_have_other_keys_as_copies() -> None:
    """The key of such a message is the broker's id, and the copy has one of its own."""
    log = shop()
    log.send(SENDER, START)
    log.deliver(WORKER, "ID:java-1", START, outcome="dead_lettered")
    moved(log, "ID:java-1", START)
    has(log, START + HOUR)

    assert verdict(ended(log))[1] == 0


def test_a_pattern_reads_what_fits() -> None:
    """The copies lie in one of its queues, and are counted there."""
    log = Log().opens(SENDER).opens(WORKER).opens(CLERK)
    log.reads(WORKER)
    log.reads(CLERK, "queue://DLQ.>", selective=False)
    keys = [dies(log, START + MINUTE, dest=f"queue://DLQ.{one}") for one in "ab"]
    log.deliver(CLERK, keys[0], START + 2 * MINUTE, "queue://DLQ.>")
    has(log, START + HOUR, dest="queue://DLQ.>")
    summary = told(ended(log))

    assert (summary["verdict"], summary["unclaimed"]) == GONE
    assert summary["destinations"]["queue://DLQ.b"]["unclaimed"] == 1


@pytest.mark.parametrize("name", ["queue://DLQ::DLQ", "queue://DLQ,queue://more", "queue://>"])
def test_a_copy_may_be_read_by_another_name(name: str) -> None:
    """As by the queue below an address, a list or a pattern; who reads the queue itself shows nothing of it then."""
    log = shop()
    log.reads("third", name, selective=False)
    log.opens("third")
    keys = twelve(log)
    log.deliver("third", keys[-1], START + 14 * MINUTE, name)
    has(log, START + HOUR)
    log.closes("third", END)

    assert verdict(ended(log))[1] == 0


def test_one_of_a_topics_subscriptions_has_a_dead_letter() -> None:
    """The copies of the others are theirs, and show nothing of it."""
    for read in (True, False):
        log = shop()
        for one in "ab":
            log.reads(WORKER, "topic://news", subscription=f"durable:{one}", consumer=one)
        made = log.send(SENDER, START, "topic://news")
        for one, outcome in (("a", "dead_lettered"), ("b", "acknowledged")):
            of = {"subscription": f"durable:{one}", "consumer": one}
            log.deliver(WORKER, made, START + SECOND, "topic://news", outcome, **of)
        moved(log, made, START + SECOND)
        if read:
            log.deliver(CLERK, made, START + 2 * SECOND, DLQ)
        has(log, START + HOUR)
        assert verdict(ended(log)) == (WELL if read else GONE)


def test_a_sender_without_a_log() -> None:
    """Where it died is told, and that is what was its own there."""
    log = shop()
    made = key(START, 77)
    log.deliver(WORKER, made, START + SECOND, outcome="dead_lettered")
    moved(log, made, START + SECOND)
    has(log, START + HOUR)

    assert verdict(ended(log))[1] == 1


def test_the_same_name_on_another_broker_is_another_queue() -> None:
    """Who reads there shows nothing of this one, unless its session was here, too, as with a backup."""
    log = shop()
    twelve(log)
    up = {"broker": "other:61613", "broker_kind": "artemis"}
    log.line(CLERK, "conn.up", START, session_id="clerk-2", epoch=1, **up)
    log._of(
        "sub.open",
        CLERK,
        START,
        {"dest": DLQ, "consumer": "d", "selective": False, "session_id": "clerk-2"},
    )
    has(log, START + HOUR, consumer="d", session_id="clerk-2")
    assert verdict(log)[1] == 0
    log.line(CLERK, "conn.up", START, session_id="clerk-2", epoch=0, broker="b:61613")
    assert verdict(ended(log)) == GONE


@pytest.mark.parametrize(
    ("counted", "unclaimed"),
    [
        ({"enqueued": 12, "dequeued": 11}, 1),
        ({"enqueued": 12, "dequeued": 12}, 0),
        ({"enqueued": 12, "dequeued": 11, "size": 1}, 0),
        ({"enqueued": 12, "dequeued": 12, "expired": 1}, 0),
    ],
    ids=["not-there", "taken", "waits", "expired"],
)
def test_the_broker_counts_where_it_went(counted: dict[str, int], unclaimed: int) -> None:
    """Taken by a stranger or by hand, waiting or expired, as far as it counts."""
    log = shop()
    log.stats(CLERK, START - SECOND, DLQ)
    twelve(log)
    has(log, START + HOUR)
    log.stats(CLERK, START + HOUR, DLQ, **counted)

    assert verdict(ended(log))[1] == unclaimed


@pytest.mark.parametrize(("at", "unclaimed"), [(START + 30 * SECOND, 1), (START + HOUR, 0)])
def test_a_gap_of_who_reads_there_may_be_about_it(at: int, unclaimed: int) -> None:
    """Unless it ended before the copy came."""
    log = shop()
    has(log, at, buffered=3)
    log.lines.pop()
    has(log, at + SECOND, buffered=3)
    twelve(log)
    has(log, START + HOUR + MINUTE)
    found = verdict(ended(log))

    assert found == ("unverifiable", unclaimed)


@pytest.mark.parametrize(
    ("said", "closed", "found"),
    [(HOUR, False, 0), (HOUR, True, 0), (20 * MINUTE, True, GONE[1])],
    ids=["lives", "closed-with-them", "ended-before"],
)
def test_another_consumer_has_them(said: int, closed: bool, found: int) -> None:
    """A slow clerk got all that was there first, and works on it while a second one has nothing."""
    log = shop()
    log.opens("second")
    log.reads("second", DLQ, selective=False)
    keys = twelve(log)
    has(log, START + said - SECOND, buffered=1, in_process=1)
    log.deliver(CLERK, keys[10], START + said, DLQ)
    nothing = {"dest": DLQ, "consumer": "c", "buffered": 0, "in_process": 0}
    log._of("sub.stats", "second", START + HOUR, nothing)
    if closed:
        log._of("sub.close", CLERK, START + said + SECOND, {"dest": DLQ, "consumer": "c"})
        log.closes("second", START + HOUR)
        ended(log, START + HOUR)
    else:
        for writer in (SENDER, WORKER, CLERK, "second"):
            log.line(writer, "conn.stats", START + HOUR + SECOND)

    assert verdict(log)[1] == found


def test_a_clock_that_is_ahead_shows_nothing_too_early() -> None:
    """What is 50 s ahead said that it has nothing 40 s after the copy came, and not 90 s."""
    log = shop()
    log.line(
        CLERK, "broker.clock", START, broker="b:61613", ahead_us=-50 * SECOND, within_us=1000,
        session_id=f"{CLERK}-1", epoch=1,
    )  # fmt: skip
    twelve(log, read=0)
    has(log, START + 12 * MINUTE + 90 * SECOND)

    assert verdict(ended(log)) == ("unverifiable", 11)


def test_a_living_fleet_is_judged_up_to_its_horizon() -> None:
    """What another process may have read is not in its log yet."""
    log = shop()
    log.opens("other")
    log.reads("other", DLQ, selective=False)
    twelve(log)
    has(log, START + HOUR)
    log.line("other", "conn.stats", START + 12 * MINUTE + 30 * SECOND)
    for writer in (SENDER, WORKER):
        log.line(writer, "conn.stats", START + HOUR)
    assert verdict(log)[1] == 0
    log.line("other", "conn.stats", START + 14 * MINUTE)
    assert verdict(log)[1] == 1


def test_copies_of_another_period_are_not_asked_for() -> None:
    """A report about some hours tells of what was sent in them."""
    log = shop()
    twelve(log)
    has(log, START + HOUR)
    log.deliver(WORKER, log.send(SENDER, START + HOUR), START + HOUR + SECOND)
    ended(log)

    assert verdict(log, asked=Period(since_us=START + 30 * MINUTE)) == WELL
    assert verdict(log, asked=Period(until_us=START + 30 * MINUTE)) == GONE
