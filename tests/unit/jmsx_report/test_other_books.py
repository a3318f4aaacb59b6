"""What else the audit goes by: the broker's own counts, the roster of writers, and clocks."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any

import polars as pl
import pytest

from jmsx_report.roster import ROSTER, absent
from tests.depth import some
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

if TYPE_CHECKING:
    from collections.abc import Callable


def test_the_broker_tells_of_others() -> None:
    """More came and went than the log knows of."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(SENDER, START - SECOND, enqueued=100, dequeued=100)
    for number in range(5):
        log.deliver(WORKER, log.send(SENDER, START + number), START + SECOND)
    log.stats(SENDER, START + HOUR, enqueued=112, dequeued=109, size=3)
    summary = told(ended(log))

    assert summary["verdict"] == "unverifiable"
    assert "at least 7 messages came" in findings(summary, "foreign_producers")[0]
    assert "at least 4 messages went" in findings(summary, "foreign_consumers")[0]
    assert "3 messages left there unread" in findings(summary, "waiting")[0]


def taken_before_the_first_look(enqueued: int) -> Log:
    """Ten are sent and seven done before the broker is first asked, which has none left of so many by then."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    for number in range(10):
        made = log.send(SENDER, START + number)
        if number > 2:
            log.deliver(WORKER, made, START + SECOND)
    log.stats(SENDER, START + MINUTE, enqueued=enqueued, dequeued=enqueued)
    return log


def test_others_may_take_messages_before_the_broker_is_first_asked() -> None:
    """A queue of which the log has each message that ever came: what has gone, and not to us, went to others."""
    summary = told(ended(taken_before_the_first_look(10)))

    assert (summary["verdict"], summary["explained"]) == ("unverifiable", 3), summary["reasons"]
    assert "at least 3 messages went" in findings(summary, "foreign_consumers")[0]


def test_what_went_from_an_old_queue_before_the_broker_is_first_asked_explains_nothing() -> None:
    """A thousand came before the log begins: who had those, nobody says."""
    summary = told(ended(taken_before_the_first_look(1010)))

    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 3)
    assert not findings(summary, "foreign_consumers")


@pytest.mark.parametrize(("lost", "verdict"), [(0, "balanced"), (3, "suspect")])
def test_what_an_old_queue_had_before_the_last_count_is_not_what_was_sent_after_it(
    lost: int, verdict: str
) -> None:
    """Five came and went before the log begins. Ten are sent within a minute of the last count, and done later."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(SENDER, START, enqueued=5, dequeued=5)
    for number in range(10):
        made = log.send(SENDER, START + 10 * SECOND + number)
        if number >= lost:
            log.deliver(WORKER, made, START + 5 * MINUTE)
    summary = told(ended(log))

    assert (summary["verdict"], summary["explained"]) == (verdict, 0), summary["reasons"]
    assert findings(summary, "foreign_consumers") == []


def test_a_loss_beside_what_others_took_before_the_broker_is_first_asked() -> None:
    """One surely went to others, and as many more may have: of three nobody proves that two are lost."""
    log = taken_before_the_first_look(10)
    log.lines[-1]["dequeued"] = 8
    summary = told(ended(log))

    assert (summary["verdict"], summary["explained"]) == ("unverifiable", 3), summary["reasons"]
    assert "at least 1 message went" in findings(summary, "foreign_consumers")[0]


def test_a_process_tells_the_brokers_counts_by_any_of_its_sessions() -> None:
    """An app tells of a queue by its reader's session first, and by that of its sends once it has sent there."""
    log = Log().opens(SENDER)
    sending: dict[str, Any] = {"session_id": f"{SENDER}-2", "epoch": 1}
    log.line(SENDER, "conn.up", START - SECOND, **sending, broker="b:61613")
    log.reads(SENDER)
    log.stats(SENDER, START - SECOND)
    for number in range(5):
        at = START + number * SECOND
        log.send(SENDER, at, expires_us=at + SECOND, **sending)
    last = sending | {"dest": ORDERS, "enqueued": 5, "dequeued": 5, "expired": 5, "size": 0}
    log.line(SENDER, "broker.stats", START + MINUTE, **last)
    summary = told(ended(log))

    assert summary["verdict"] == "balanced", summary["reasons"]
    assert summary["expired_at_broker"] == 5


@pytest.mark.parametrize("lost", [0, 1])
@pytest.mark.parametrize("beside", [0, 2])
def test_what_others_took_is_not_lost_where_ours_was_done_beside_the_count(
    beside: int, lost: int
) -> None:
    """Three went to others; what was done in the minute behind the last count may be of it, or not."""
    log = trade()
    for number in range(3 + lost):
        log.send(SENDER, START + 20 * MINUTE + number)
    for number in range(beside):
        at = START + 30 * MINUTE + 10 * SECOND + number
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND)
    log.stats(SENDER, START - 10 * MINUTE)
    log.lines.insert(0, log.lines.pop())
    log.stats(SENDER, START + 30 * MINUTE, enqueued=13 + lost, dequeued=13)
    mine = [line for line in log.lines if line["writer"] == SENDER]
    for seq, line in enumerate(mine):
        line["seq"] = seq
    summary = told(ended(log, START + 40 * MINUTE))

    assert (summary["unaccounted"], summary["explained"]) == (3 + lost, 3)
    assert summary["verdict"] == ("suspect" if lost else "unverifiable")


def counted(log: Log, **at_last: int) -> dict[str, Any]:
    """What is told of a trade, if the broker counts so many from before it to long after it."""
    log.stats(SENDER, START - 5 * MINUTE, enqueued=100, dequeued=100)
    log.lines.insert(0, log.lines.pop())
    log.stats(SENDER, START + HOUR, ORDERS, **at_last)
    mine = [line for line in log.lines if line["writer"] == SENDER]
    for seq, line in enumerate(mine):
        line["seq"] = seq
    return told(ended(log))


def test_the_broker_counts_fewer_sends_than_senders_were_told() -> None:
    """It may have lost them; but its counters may have begun anew, so that is a finding, and no verdict."""
    summary = counted(trade(), enqueued=107, dequeued=107)

    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)
    assert "3 messages fewer came" in findings(summary, "uncounted_sends")[0]
    assert "the queue was removed and made again" in findings(summary, "uncounted_sends")[0]


def test_the_broker_counts_fewer_settlements_than_consumers_tell_of() -> None:
    """Their acknowledgements may not have reached it: then these messages come again; two of them wait."""
    summary = counted(trade(), enqueued=110, dequeued=108, size=2)

    assert (summary["verdict"], summary["unaccounted"]) == ("unverifiable", 0)
    assert "2 messages fewer went" in findings(summary, "uncounted_acks")[0]
    assert "another broker behind the address" in findings(summary, "uncounted_acks")[0]
    assert any("2 messages wait" in reason for reason in summary["reasons"])


def test_what_is_sent_with_a_delay_is_not_counted_yet() -> None:
    """The broker counts it when its time has come; it is in flight till then, or not settled in time."""
    log = trade()
    for number in range(3):
        log.send(SENDER, START + 30 * MINUTE + number)
    summary = counted(log, enqueued=110, dequeued=110)

    assert "3 messages fewer came" in findings(summary, "uncounted_sends")[0]
    assert not any("counts" in reason for reason in summary["reasons"])


def lots(log: Log) -> Log:
    """A lot an hour, of a queue that is removed in between: each time the broker counts ten."""
    for hour in range(3):
        for number in range(10):
            at = START + hour * HOUR + 10 * MINUTE + number * SECOND
            log.deliver(WORKER, log.send(SENDER, at), at + SECOND // 10)
        log.stats(SENDER, START + hour * HOUR + 11 * MINUTE, enqueued=10, dequeued=10)
    return log


def expired_as_they_came(log: Log) -> Log:
    """The broker does not count them as come."""
    for number in range(3):
        at = START + number * SECOND
        log.send(SENDER, at, expires_us=at + 1000)
    log.stats(SENDER, START + HOUR, expired=3)
    return log


def at_two_brokers(log: Log) -> Log:
    """The address is one of two brokers, and the one that is asked has half of them."""
    for number in range(10):
        at = START + number * MINUTE
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND)
    log.stats(SENDER, START + HOUR, enqueued=5, dequeued=5)
    return log


def delayed(log: Log) -> Log:
    """They come a moment after the last count."""
    made = [log.send(SENDER, START + number) for number in range(10)]
    log.stats(SENDER, START + 5 * MINUTE - SECOND)
    for number, one in enumerate(made):
        log.deliver(WORKER, one, START + 5 * MINUTE + number)
    return log


@pytest.mark.parametrize("what", [lots, expired_as_they_came, at_two_brokers, delayed])
def test_a_count_of_the_broker_that_is_too_low_proves_nothing(what: Callable[[Log], Log]) -> None:
    """All is right, and its counters began anew, or never had these messages."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(SENDER, START - 10 * MINUTE)
    summary = told(ended(what(log), START + 4 * HOUR))

    assert "fewer" not in str(summary["reasons"])
    assert what is expired_as_they_came or summary["verdict"] == "balanced"


def test_a_restart_that_no_counter_shows() -> None:
    """The link was lost meanwhile, and the new counters have grown beyond the old ones: not even a finding."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(SENDER, START - 10 * MINUTE)
    log.deliver(WORKER, log.send(SENDER, START), START + SECOND)
    log.stats(SENDER, START + 4 * MINUTE, enqueued=1, dequeued=1)
    again = {"session_id": f"{SENDER}-1", "epoch": 2}
    log.line(SENDER, "conn.up", START + 6 * MINUTE, **again, broker="b:61613")
    for number in range(2):
        at = START + 10 * MINUTE + number
        log.deliver(WORKER, log.send(SENDER, at, epoch=2), at + SECOND)
    log.stats(SENDER, START + HOUR, enqueued=2, dequeued=2, epoch=2)
    summary = told(ended(log))

    assert summary["verdict"] == "balanced"
    assert findings(summary, "uncounted_sends") == []


@pytest.mark.parametrize("why", ["near the ends", "another broker", "two brokers", "unconfirmed"])
def test_what_the_broker_need_not_have_counted(why: str) -> None:
    """About its two lines, what went elsewhere or may have, and what nobody confirmed."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    moved = {"another broker": [1], "two brokers": [1, 2]}.get(why, [])
    for epoch in moved:
        up = {"session_id": "third-1", "epoch": epoch, "broker": ("b:61613", "east:1")[epoch % 2]}
        log.line("third", "conn.up", START - SECOND, **up)
    at = START - 5 * MINUTE if why == "near the ends" else START
    for number in range(5):
        outcome = "unconfirmed" if why == "unconfirmed" else "confirmed"
        made = log.send("third" if moved else SENDER, at + number * SECOND, outcome=outcome)
        log.deliver(WORKER, made, START + MINUTE)
    if moved:
        log.closes("third", START + HOUR)
    summary = counted(log, enqueued=100, dequeued=105)

    assert findings(summary, "uncounted_sends") == []


def test_what_a_killed_reader_did_is_not_said_to_be_of_others() -> None:
    """The broker counts what a process did in its last moment, of which it wrote no line: nobody else is accused."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(SENDER, START - SECOND)
    for number in range(5):
        made = log.send(SENDER, START + number)
        if number < 4:
            log.deliver(WORKER, made, START + SECOND)
    log.stats(SENDER, START + HOUR, enqueued=5, dequeued=5)
    log.closes(SENDER, START + HOUR)
    log.line(WORKER, "log.recovered", START + HOUR, lost_bytes=0)
    summary = told(log)

    assert summary["verdict"] == "unverifiable"
    assert findings(summary, "foreign_consumers") == []
    assert "at least 1 message went" in findings(summary, "untold_consumers")[0]


def test_the_brokers_book_proves_foreign_messages() -> None:
    """All that ever came was settled here: then who sent it does not matter."""
    log = Log().opens(WORKER)
    log.reads(WORKER)
    log.stats(WORKER, START - SECOND)
    log.deliver(WORKER, "ID:1", START)
    log.opens(SENDER)
    log.deliver(WORKER, log.send(SENDER, START), START + SECOND)
    log.stats(WORKER, START + HOUR, enqueued=2, dequeued=2)

    assert told(ended(log))["verdict"] == "balanced"


def test_who_is_expected_and_silent_is_a_finding() -> None:
    """Two processes of a service are expected, and one is heard of."""
    summary = told(ended(trade()), expect={WORKER: 2})
    assert summary["verdict"] == "unverifiable"
    assert "1 of 2" in findings(summary, "roster")[0]
    assert told(ended(trade()), expect={WORKER: 1})["verdict"] == "balanced"


@pytest.mark.parametrize("seed", some(range(50)))
def test_as_many_are_heard_of_as_were_there_at_one_time(seed: int) -> None:
    """One that begins when another ends was there with it; one that has not ended is there still."""
    chance = random.Random(seed)
    lives = [
        (first, first + chance.randrange(6), chance.choice(["open", "closed", "recovered"]))
        for first in (chance.randrange(12) for _ in range(chance.randrange(9)))
    ]
    most = max(
        (
            sum(first <= at and (ended == "open" or at <= last) for first, last, ended in lives)
            for at, _, _ in lives
        ),
        default=0,
    )
    here = pl.DataFrame(
        [(f"w{number}", "mail", "host", *life) for number, life in enumerate(lives)],
        schema=ROSTER,
        orient="row",
    )

    silent = absent(here, {"mail": most + 1}, here.clear(), None)

    assert silent["says"].to_list() == [
        f"service mail: {most} of {most + 1} expected processes are heard of; the others are silent"
    ]
    assert absent(here, {"mail": most}, here.clear(), None).is_empty()


def test_who_was_there_the_day_before_is_missed() -> None:
    """An earlier report knew of two; what is expected in words goes before that."""
    day = 24 * HOUR
    yesterday = pl.DataFrame(
        [
            (f"{host}-1", WORKER, host, START - day, START - day + 2 * HOUR, "closed")
            for host in (WORKER, "gone")
        ],
        schema=ROSTER,
        orient="row",
    )
    summary = told(ended(trade()), before=yesterday)
    assert summary["verdict"] == "unverifiable"
    assert "1 of the 2 processes" in findings(summary, "roster")[0]
    assert "gone is silent" in findings(summary, "roster")[0]
    assert told(ended(trade()), before=yesterday, expect={WORKER: 1})["verdict"] == "balanced"
    assert told(ended(trade()), before=yesterday.head(1))["verdict"] == "balanced"


def test_who_was_there_the_day_before_is_missed_in_one_log() -> None:
    """One of two hosts is gone; that another takes its place is nothing to be told of."""

    def mail(**hosts: tuple[int, int]) -> list[str]:
        log = trade()
        for host, (first, last) in hosts.items():
            log.opens(host, START + first * HOUR, service="mail").closes(host, START + last * HOUR)
        return findings(told(ended(log)), "roster")

    stayed = (-40, 1)
    assert "1 of the 2 processes" in mail(stayed=stayed, gone=(-40, -30))[0]
    assert "gone is silent" in mail(stayed=stayed, gone=(-40, -30))[0]
    assert mail(stayed=stayed, gone=(-40, -30), new=(-20, 1)) == []
    # For a moment there were two, as one took over from the other.
    assert mail(stayed=(-31, 1), gone=(-40, -30)) == []


def test_clocks_are_estimated_from_both_ends() -> None:
    """The sender's is two minutes behind the broker's, the worker's four minutes ahead."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    for number in range(20):
        at = START + number * MINUTE
        made = log.send(SENDER, at - 2 * MINUTE)
        log.deliver(
            WORKER,
            made,
            at + 4 * MINUTE,
            sent_us=at,
            recv_us=at + 4 * MINUTE,
            start_us=at + 4 * MINUTE,
        )
    summary = told(ended(log))

    offsets = {one["writer"]: round(one["offset_us"] / SECOND) for one in summary["clocks"]}
    assert (summary["verdict"], offsets) == ("balanced", {SENDER: -120, WORKER: 240})


def test_a_gap_is_as_long_as_its_clock_may_be_wrong() -> None:
    """The worker died in the hour of the messages; by its own clock, four minutes ahead, in the next one."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    for minute in range(49, 59):
        at = START + minute * MINUTE
        ahead = at + 4 * MINUTE
        made = log.send(SENDER, at)
        log.deliver(WORKER, made, ahead, sent_us=at, recv_us=ahead, start_us=ahead)
    summary = told(log.closes(SENDER, START + 4 * HOUR))

    assert summary["destinations"][ORDERS]["verdict"] == "unverifiable"
    assert "its log just stops" in " ".join(summary["destinations"][ORDERS]["reasons"])


@pytest.mark.parametrize("at", [0, -5, -(2**63), 2**63 - 1])
def test_times_that_are_none_break_nothing(at: int) -> None:
    """6,000 messages whose lines say an impossible time are settled all the same."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    for number in range(6000):
        made = log.send(SENDER, START + number)
        log.lines[-1]["ts_us"] = at
        log.deliver(WORKER, made, at, recv_us=at, start_us=at, end_us=at, sent_us=at)
    summary = told(ended(log))

    assert (summary["verdict"], summary["sent"], summary["done"]) == ("balanced", 6000, 6000)


def test_a_handler_that_ran_again_after_its_process_was_killed() -> None:
    """The cause is named: the first process's log was closed by another one, after it had ended."""
    log = trade()
    log.opens("dead")
    log.reads("dead")
    made = log.send(SENDER, START)
    log.deliver("dead", made, START + SECOND)
    log.line("dead", "log.recovered", START + HOUR, lost_bytes=0)
    log.deliver(WORKER, made, START + 2 * SECOND)
    found = audited(ended(log))

    rows = found.duplicates.select("kind", "cause", "n", "sample_keys").rows()
    assert rows == [("settlement", "killed_writer", 1, [made])]
    assert found.summary["verdict"] == "suspect"


def test_what_was_refused_and_settled_all_the_same_is_not_proven() -> None:
    """Its sender was told of an error, so it may send it again; the books contradict each other."""
    log = trade()
    made = log.send(SENDER, START, outcome="error")
    assert told(ended(log))["verdict"] == "balanced"

    log.deliver(WORKER, made, START + SECOND)
    summary = told(log)
    assert (summary["verdict"], summary["sent"], summary["unaccounted"]) == ("unverifiable", 10, 0)
    assert "their sender was told of an error" in findings(summary, "refused_settled")[0]


def test_temporary_queues_are_named_as_not_audited() -> None:
    """Answers that nobody waits for any more go with the session; those to it are in no number."""
    log = trade()
    log.reads(SENDER, "temp-queue://answers")
    log.send(WORKER, START, "temp-queue://answers")
    summary = told(ended(log))

    assert (summary["verdict"], summary["sent"]) == ("balanced", 10)
    assert "temporary" in summary["not_audited"]["temp-queue://answers"]
    assert "temp-queue://answers" in findings(summary, "not_audited")[0]


def test_a_broker_that_was_started_anew_counts_from_zero() -> None:
    """What it counted before and after are added up; a smaller number is no message that came back."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(WORKER, START - 5 * MINUTE, enqueued=100, dequeued=100)
    for number in range(10):
        at = START + number * MINUTE
        log.deliver(WORKER, log.send(SENDER, at), at + SECOND)
        if number == 4:
            log.stats(WORKER, at + 2 * SECOND, enqueued=105, dequeued=105)
            log.stats(WORKER, at + 3 * SECOND)
    log.stats(WORKER, START + HOUR, enqueued=8, dequeued=8)
    summary = told(ended(log))

    assert summary["verdict"] == "unverifiable"
    assert "at least 3 messages" in findings(summary, "foreign_producers")[0]
    assert "at least 3 messages" in findings(summary, "foreign_consumers")[0]


OLD, NEW = "shop-1", "shop-2"


def begun_anew(
    *, long: str, taken: int = 0, lives_us: int | None = None, **of_new: Any
) -> tuple[Log, int]:
    """A process, and an hour later its successor, of whose ten messages others take some, and the last look."""
    log = Log().opens(OLD).opens(NEW, START + HOUR)
    log.reads(OLD)
    watched = dict.fromkeys((OLD, NEW), 10 * MINUTE) | {long: 20 * MINUTE}
    for writer, begun, before in ((OLD, START, 0), (NEW, START + HOUR, 10)):
        log.stats(writer, begun, enqueued=before, dequeued=before)
        fields: dict[str, Any] = {}
        if lives_us is not None:
            fields["expires_us"] = begun + 2 * MINUTE + lives_us
        for number in range(10):
            made = log.send(writer, begun + 2 * MINUTE + number, **fields)
            if number >= (taken if writer == NEW else 0):
                log.deliver(writer, made, begun + 3 * MINUTE)
        if writer == OLD:
            log.stats(OLD, begun + watched[OLD], enqueued=10, dequeued=10)
            log.closes(OLD, begun + watched[OLD])
    log.stats(NEW, START + HOUR + watched[NEW], enqueued=20, dequeued=20, **of_new)
    log.closes(NEW, START + HOUR + watched[NEW])
    return log, START + HOUR + watched[NEW]


@pytest.mark.parametrize("long", [OLD, NEW])
def test_others_may_take_messages_while_another_process_watches(long: str) -> None:
    """A fleet is started anew more often than its log is judged: not only who watches longest tells counts."""
    summary = told(begun_anew(long=long, taken=3)[0])

    assert (summary["verdict"], summary["explained"]) == ("unverifiable", 3), summary["reasons"]
    assert "at least 3 messages went" in findings(summary, "foreign_consumers")[0]


@pytest.mark.parametrize("long", [OLD, NEW])
def test_what_expires_while_another_process_watches_is_proven(long: str) -> None:
    """Its counts prove it as those of who watched longest do."""
    summary = told(begun_anew(long=long, taken=3, lives_us=SECOND, expired=3)[0])

    assert (summary["verdict"], summary["expired_at_broker"]) == ("balanced", 3), summary["reasons"]
    assert "3 messages expired" in findings(summary, "expired")[0]


@pytest.mark.parametrize(("waited", "verdict"), [(0, "balanced"), (1, "unverifiable")])
def test_what_came_unseen_may_be_of_others_as_it_expires(waited: int, verdict: str) -> None:
    """Ours is taken while nobody watches; what expires later waited then, and may be a stranger's; or it is ours."""
    log = Log().opens(OLD)
    log.reads(OLD)
    log.stats(OLD, START)
    log.deliver(OLD, log.send(OLD, START + 2 * MINUTE), START + 3 * MINUTE)
    log.stats(OLD, START + 20 * MINUTE, enqueued=1, dequeued=1)
    if waited:
        log.send(OLD, START + 30 * MINUTE, expires_us=START + 31 * MINUTE)
    log.closes(OLD, START + 40 * MINUTE).opens(NEW, START + HOUR)
    before = {"enqueued": 1 + 2 * waited, "dequeued": 1 + waited, "size": waited}
    log.stats(NEW, START + HOUR, ORDERS, **before)
    if not waited:
        log.send(NEW, START + HOUR + 2 * MINUTE, expires_us=START + HOUR + 3 * MINUTE)
    gone = 2 + waited
    log.stats(NEW, START + HOUR + 10 * MINUTE, enqueued=gone, dequeued=gone, expired=1)
    log.closes(NEW, START + HOUR + 10 * MINUTE)
    summary = told(log)

    assert (summary["verdict"], summary["expired_at_broker"]) == (verdict, 1), summary["reasons"]
    assert "1 message expired" in findings(summary, "expired")[0]


@pytest.mark.parametrize("back", [0, 3])
def test_what_is_sent_back_while_nobody_watches_is_in_no_count(back: int) -> None:
    """A stranger takes two of ours while the first watches, and one of its own; then ours come again, unwatched."""
    log = Log().opens(OLD)
    log.reads(OLD)
    log.stats(OLD, START)
    for number in range(10):
        made = log.send(OLD, START + 2 * MINUTE + number)
        if number > 1:
            log.deliver(OLD, made, START + 3 * MINUTE)
    log.stats(OLD, START + 20 * MINUTE, enqueued=11, dequeued=11)
    for number in range(back):
        made = log.send(OLD, START + 30 * MINUTE + number)
        at = START + 31 * MINUTE
        log.deliver(OLD, made, at, outcome="rolled_back", msg_id=f"{number}a")
        log.plan(OLD, made, at, SECOND, by_broker=True, blocking=False)
        log.deliver(OLD, made, at + 5 * SECOND, msg_id=f"{number}b", attempt=2)
    log.closes(OLD, START + 40 * MINUTE).opens(NEW, START + HOUR)
    for minute, one in ((0, 0), (10, 1)):
        gone = 11 + 2 * back + one
        log.stats(NEW, START + HOUR + minute * MINUTE, enqueued=gone, dequeued=gone)
        if not one:
            log.deliver(NEW, log.send(NEW, START + HOUR + 5 * MINUTE), START + HOUR + 6 * MINUTE)
    summary = told(log.closes(NEW, START + HOUR + 10 * MINUTE))

    assert (summary["verdict"], summary["explained"]) == ("unverifiable", 2), summary["reasons"]
    assert "at least 3 messages went" in findings(summary, "foreign_consumers")[0]
    assert "at least 1 message came" in findings(summary, "foreign_producers")[0]


def test_what_two_processes_count_at_once_is_counted_once() -> None:
    """Two lie in wait of the same three: six that are not settled are more than what expired."""
    log = Log().opens(OLD).opens(NEW)
    log.reads(OLD)
    for writer in (OLD, NEW):
        log.stats(writer, START)
    for number in range(10):
        made = log.send(OLD, START + 2 * MINUTE + number, expires_us=START + 3 * MINUTE)
        if number > 5:
            log.deliver(OLD, made, START + 2 * MINUTE + SECOND)
    for writer, at in ((OLD, START + 10 * MINUTE), (NEW, START + 11 * MINUTE)):
        log.stats(writer, at, enqueued=10, dequeued=10, expired=3)
        log.closes(writer, at)
    summary = told(log)

    assert (summary["verdict"], summary["expired_at_broker"]) == ("unverifiable", 6)
    assert "3 messages expired" in findings(summary, "expired")[0]


def test_counts_over_another_link_of_another_process_prove_nothing() -> None:
    """The broker may have begun anew meanwhile, or be another one of that address."""
    log, last = begun_anew(long=OLD, taken=3)
    log.stats(NEW, last - SECOND, enqueued=20, dequeued=20)
    log.lines[-1]["epoch"] = 2
    summary = told(log)

    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 3)
    assert not findings(summary, "foreign_consumers")


def test_each_of_many_processes_counts_what_others_took_in_its_own_time() -> None:
    """Seven, one after the other, of 20 minutes but the fourth; others take one message of each but the fourth."""
    log, begun = Log(), START
    for number in range(7):
        writer, end = f"shop-{number}", begun + (20 + 20 * (number == 3)) * MINUTE
        log.opens(writer, begun)
        log.reads(writer)
        log.stats(writer, begun, enqueued=10 * number, dequeued=10 * number)
        for nth in range(10):
            made = log.send(writer, begun + 5 * MINUTE + nth)
            if nth or number == 3:
                log.deliver(writer, made, begun + 6 * MINUTE)
        log.stats(writer, end, enqueued=10 * number + 10, dequeued=10 * number + 10)
        log.closes(writer, end)
        begun = end + MINUTE
    summary = told(log)

    assert (summary["verdict"], summary["explained"]) == ("unverifiable", 6), summary["reasons"]
    assert "at least 6 messages went" in findings(summary, "foreign_consumers")[0]
    assert not findings(summary, "foreign_producers")
