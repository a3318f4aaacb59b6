"""Where clocks of hosts are wrong: nothing is concluded that only a right clock could tell."""

from __future__ import annotations

from itertools import pairwise
from typing import Any, Final

import polars as pl
import pytest

from jmsx_report.clocks import CLOCKED, Clocks, clocks
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
    events,
    findings,
    merged,
    told,
)

_OPEN: Final = tuple(f"{writer}-000000000000.jsonl.open" for writer in (SENDER, WORKER))


def opened() -> Log:
    """A sender, and a worker that reads."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    return log


def deal(log: Log, at: int, *, sender: int = 0, worker: int = 0) -> None:
    """A message that is sent then and done a second later; the clocks are so many seconds ahead."""
    made = log.send(SENDER, at + sender * SECOND)
    done = at + (1 + worker) * SECOND
    log.deliver(WORKER, made, done, sent_us=at, recv_us=done, start_us=done, end_us=done)


def closed(log: Log) -> Log:
    """Both end in order, long after."""
    return log.closes(SENDER, START + 4 * HOUR).closes(WORKER, START + 4 * HOUR)


def test_clocks_are_the_same_however_the_log_is_cut() -> None:
    """Of each hour the same messages are looked at, whether it is read at once, or in a hundred pieces."""
    log = opened()
    for number in range(300):
        at = START + number * 15 * SECOND
        made = log.send(SENDER, at)
        done = at + (1 + number * 7 % 97) * SECOND
        log.deliver(WORKER, made, done, sent_us=at, recv_us=done, start_us=done, end_us=done)
        if number % 20 == 0:
            _shows(log, SENDER, at, number // 100)
    lines = closed(log).lines

    def estimated(pieces: int) -> Clocks:
        cut = [events(lines[number::pieces]) for number in range(pieces)]
        sums = {one.name: merged(one, cut) for one in CLOCKED}
        hosts = pl.DataFrame({"writer": [SENDER, WORKER], "host": [SENDER, WORKER]})
        return clocks(sums, hosts)

    whole = estimated(1)
    assert whole.pairs.height == 1
    for pieces in (2, 7, 100):
        other = estimated(pieces)
        assert other.pairs.equals(whole.pairs)
        assert other.offsets.sort("writer").equals(whole.offsets.sort("writer"))


def test_a_gap_of_a_sender_is_in_the_hours_of_its_keys() -> None:
    """Hours are those of the senders' clocks: by the sender's, four minutes ahead, the next one had begun."""
    log = opened()
    for ten in range(10):
        deal(log, START + 56 * MINUTE + ten * 10 * SECOND, sender=240)
        if ten == 5:
            log.send(SENDER, START + 61 * MINUTE)
            log.lines.pop()
    summary = told(closed(log))

    assert [row["hour_us"] for row in summary["hours"]] == [START + HOUR]
    assert summary["destinations"][ORDERS]["verdict"] == "unverifiable"
    assert "lines are missing (shop)" in summary["destinations"][ORDERS]["reasons"]


def _alive(sender: int, worker: int) -> Log:
    """What the worker wrote last is 100 seconds old; what was sent after that cannot be judged yet."""
    log = opened()
    end = START + HOUR
    for minute in range(20):
        deal(log, START + minute * MINUTE, sender=sender, worker=worker)
    deal(log, end - 101 * SECOND, sender=sender, worker=worker)
    log.send(SENDER, end + (sender - 90) * SECOND)
    log.send(SENDER, end + sender * SECOND)
    return log


def test_a_living_reader_is_waited_for_whatever_its_clock_shows() -> None:
    """Ahead, it seems to have told all there is to tell."""
    summary = told(_alive(sender=0, worker=200), open_segments=_OPEN)

    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)


def test_a_living_reader_is_waited_for_by_the_clock_of_the_sender() -> None:
    """The sender's is behind, so what it sent lately seems to be old."""
    summary = told(_alive(sender=-200, worker=0), open_segments=_OPEN)

    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)


def test_a_loss_of_a_living_fleet_with_skews_is_told() -> None:
    """Sent long before the last line of the reader."""
    log = _alive(sender=-200, worker=300)
    log.send(SENDER, START + 10 * MINUTE)
    summary = told(log, open_segments=_OPEN)

    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 1)


def test_a_living_writer_whose_clock_is_hours_behind_is_not_silent() -> None:
    """Its last line is old by its own clock only."""
    summary = told(_alive(sender=-7200, worker=0), open_segments=_OPEN)

    assert (summary["verdict"], findings(summary, "gap")) == ("balanced", [])


def test_the_brokers_counts_go_with_traffic_of_wrong_clocks() -> None:
    """The sender is ten minutes behind who tells of the counts: by its clock it sent before the first of them."""
    log = opened()
    log.stats(WORKER, START - SECOND)
    for minute in range(20):
        deal(log, START + minute * MINUTE, sender=-600)
    log.stats(WORKER, START + HOUR, enqueued=20, dequeued=20)
    summary = told(closed(log))

    assert (summary["verdict"], findings(summary, "foreign_producers")) == ("balanced", [])


def test_who_tells_the_brokers_counts_may_have_the_wrong_clock() -> None:
    """The same, and it is the clock of who tells them that is ahead."""
    log = opened()
    log.stats(WORKER, START + (600 - 1) * SECOND)
    for minute in range(20):
        deal(log, START + minute * MINUTE, worker=600)
    log.stats(WORKER, START + HOUR, enqueued=20, dequeued=20)
    summary = told(closed(log))

    assert (summary["verdict"], findings(summary, "foreign_producers")) == ("balanced", [])


def test_a_gap_before_a_period_may_be_about_a_sender_that_is_ahead() -> None:
    """A period is one of the senders' clocks; by them the gap was in it."""
    log = opened()
    begin = START + HOUR
    for ten in range(-20, 20):
        deal(log, begin + ten * 10 * SECOND, sender=240)
    gone = begin - 2 * MINUTE
    log.lines.remove(
        next(line for line in log.lines if line["kind"] == "delivery" and line["ts_us"] > gone)
    )
    summary = told(closed(log), asked=Period(since_us=begin))

    assert (summary["verdict"], summary["unaccounted"]) == ("unverifiable", 1)


def test_processes_at_once_may_have_clocks_that_are_apart() -> None:
    """Two are expected, and there are two; the log is shorter than their clocks are apart."""
    log = opened()
    log.opens("other", START + 29 * MINUTE, service=WORKER)
    log._of("sub.open", "other", START + 29 * MINUTE, {"dest": ORDERS, "consumer": "c"})
    for minute in range(10):
        deal(log, START + minute * MINUTE)
        at = START + minute * MINUTE
        shown = at + 30 * MINUTE
        log.deliver("other", log.send(SENDER, at), shown, sent_us=at, recv_us=shown)
    log.closes(SENDER, START + 10 * MINUTE).closes(WORKER, START + 10 * MINUTE)
    log.closes("other", START + 40 * MINUTE)
    summary = told(log, expect={WORKER: 2})

    assert (summary["verdict"], findings(summary, "roster")) == ("balanced", [])


def test_what_was_sent_before_a_subscription_is_no_loss_whatever_the_sender_shows() -> None:
    """The sender is four minutes ahead: by its clock it sent what nobody was to get after the subscription began."""
    log = Log().opens(SENDER).opens(WORKER)
    topic, begin = "topic://t", START + 10 * MINUTE
    durable = {"dest": topic, "subscription": "durable:c.s"}
    log.send(SENDER, begin + 2 * MINUTE, topic)  # two minutes before
    log.line(WORKER, "sub.open", begin, session_id="work-1", epoch=1, consumer="c", **durable)
    for minute in range(5, 15):
        at = begin + minute * MINUTE
        made = log.send(SENDER, at + 4 * MINUTE, topic)
        log.deliver(WORKER, made, at + SECOND, sent_us=at, recv_us=at + SECOND, **durable)
    summary = told(closed(log))

    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)
    log.send(SENDER, begin + 16 * MINUTE, topic)
    assert told(log)["unaccounted"] == 1


def test_what_a_subscription_gave_first_tells_no_sender_of_another_clock_when_it_began() -> None:
    """The one sender is four minutes behind the other, so what it sent right afterwards has an older key."""
    log = Log().opens(SENDER).opens("behind").opens(WORKER)
    topic, begin = "topic://t", START + 10 * MINUTE
    durable = {"dest": topic, "subscription": "durable:c.s"}
    log.send(SENDER, begin - MINUTE, topic)
    log.line(WORKER, "sub.open", begin, session_id="work-1", epoch=1, consumer="c", **durable)
    for writer in (SENDER, "behind"):
        _shows(log, writer, START, -240 * (writer == "behind"))
        for minute in range(1, 5):
            at = begin + minute * MINUTE
            made = log.send(writer, at - 4 * MINUTE * (writer == "behind"), topic)
            log.deliver(WORKER, made, at + SECOND, sent_us=at, recv_us=at + SECOND, **durable)
    summary = told(closed(log.closes("behind", START + 4 * HOUR)))

    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)
    log.send("behind", begin - 2 * MINUTE, topic)
    assert told(log)["unaccounted"] == 1


def test_a_subscription_began_no_sooner_than_its_first_message() -> None:
    """Ten seconds are counted together: what was sent just before it, and what it got first."""
    log = Log().opens(SENDER).opens(WORKER)
    topic = "topic://t"
    durable = {"dest": topic, "subscription": "durable:c.s"}
    begin = START + 5 * SECOND
    log.send(SENDER, START + 3 * SECOND, topic)
    log.line(WORKER, "sub.open", begin, session_id="work-1", epoch=1, consumer="c", **durable)
    for after in (1, 2, 20):
        at = begin + after * SECOND
        log.deliver(WORKER, log.send(SENDER, at, topic), at + SECOND, **durable)
    summary = told(closed(log))

    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)
    log.send(SENDER, begin + 3 * SECOND, topic)
    assert told(log)["unaccounted"] == 1


def test_messages_that_waited_prove_no_wrong_clock() -> None:
    """They lay in their queue for three hours, or the worker's clock is ahead: nobody knows."""
    log = opened()
    at, done = START, START + 3 * HOUR
    log.deliver(WORKER, log.send(SENDER, at), done, sent_us=at, recv_us=done)
    summary = told(closed(log))

    assert (summary["verdict"], findings(summary, "clock")) == (
        "balanced",
        ["the clock of work may be up to 10800.0 s ahead of the broker's; nothing proves that"],
    )


def test_a_clock_that_is_proven_to_be_wrong_is_told_of() -> None:
    """Nothing is received before it was sent, so the worker's is behind; and the sender's ahead."""
    log = opened()
    for minute in range(3):
        deal(log, START + minute * MINUTE, sender=60, worker=-120)

    assert findings(told(closed(log)), "clock") == [
        "the clock of shop is about 60.0 s ahead of the broker's",
        "the clock of work is about 119.0 s behind the broker's",
    ]


def _shows(log: Log, writer: str, at: int, ahead: int) -> None:
    """The writer tells the broker's clock, to 2 ms; its own is so many seconds ahead."""
    of = {"broker": "b:61613", "ahead_us": -ahead * SECOND + 1500, "within_us": 2000}
    log.line(writer, "broker.clock", at + ahead * SECOND, session_id=f"{writer}-1", epoch=1, **of)


@pytest.mark.parametrize("ahead", [-86400, 86400])
@pytest.mark.parametrize(
    ("sent", "verdict", "in_flight"), [(30, "suspect", 0), (235, "unverifiable", 1)]
)
def test_what_a_broker_shows_of_its_clock_dates_messages_that_nobody_got(
    ahead: int, sent: int, verdict: str, in_flight: int
) -> None:
    """The sender's is a day wrong, and no delivery tells: one is sent 210 minutes before the end, and one 5."""
    log = Log().opens(SENDER, START + ahead * SECOND).opens(WORKER)
    log.reads(WORKER)
    for writer, skew in ((SENDER, ahead), (WORKER, 0)):
        for minute in range(0, 240, 10):
            _shows(log, writer, START + minute * MINUTE, skew)
    log.send(SENDER, START + sent * MINUTE + ahead * SECOND)
    log.closes(SENDER, START + 4 * HOUR + ahead * SECOND).closes(WORKER, START + 4 * HOUR)
    summary = told(log, deadline_us=HOUR)

    assert (summary["verdict"], summary["in_flight"]) == (verdict, in_flight)
    assert findings(summary, "clock") == [
        f"the clock of shop is about 86400.0 s {'ahead of' if ahead > 0 else 'behind'} the broker's"
    ]


@pytest.mark.parametrize("later", [0, 1000, -1000])
def test_no_time_of_a_message_of_classic_is_the_brokers(later: int) -> None:
    """It is the sender's, four minutes behind, also where a forwarder, or an older jmsx, took it after the key."""
    log, behind, end = opened(), -240 * SECOND, START + 20 * MINUTE
    for minute in range(10):
        at = START + minute * MINUTE
        sent_us = at + behind + later * (minute == 5)
        log.deliver(
            WORKER,
            log.send(SENDER, at + behind),
            at + 2 * SECOND,
            sent_us=sent_us,
            msg_id=f"ID:b-1:{minute}",
        )
    log.send(SENDER, end - 20 * SECOND + behind)
    for writer, ahead in ((SENDER, -240), (WORKER, 0)):
        _shows(log, writer, end, ahead)
        log.closes(writer, end + ahead * SECOND)
    summary = told(log, deadline_us=MINUTE)

    assert (summary["verdict"], summary["unaccounted"], summary["in_flight"]) == ("balanced", 0, 1)
    assert findings(summary, "clock") == ["the clock of shop is about 240.0 s behind the broker's"]


@pytest.mark.parametrize("ids", ["ID:b-1:1", "17"])
def test_the_time_of_a_message_of_another_client_is_its_senders(ids: str) -> None:
    """On Classic, and on Artemis where the client is none of STOMP: the clock of both is not known."""
    log = opened()
    log.deliver(WORKER, "java-1", START + SECOND, sent_us=START - HOUR, msg_id=ids)

    assert findings(told(closed(log)), "clock") == []


@pytest.mark.parametrize("ahead", [-240, 0, 240])
@pytest.mark.parametrize("other", [False, True], ids=["classic", "artemis"])
def test_what_lies_behind_the_message_of_a_sender_that_is_ahead_is_no_loss(
    ahead: int, *, other: bool
) -> None:
    """It was sent two minutes after that one, whose handler took six; its time is by the clock of its sender."""
    log = Log().opens("ahead").opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    where = {"dest": ORDERS, "consumer": "c", "session_id": "work-1", "epoch": 1}
    first = log.send("ahead", START + ahead * SECOND)
    log.send(SENDER, START + 2 * MINUTE)
    begun = START + 5 * SECOND
    how: dict[str, Any] = {"recv_us": begun, "start_us": begun, "end_us": START + 6 * MINUTE - 100}
    how |= (
        {"sent_us": START, "msg_id": "7"}
        if other
        else {"sent_us": START + ahead * SECOND, "msg_id": "ID:b-1:1"}
    )
    log.deliver(WORKER, first, START + 6 * MINUTE, **how)
    log.line(
        WORKER,
        "sub.stats",
        START + 361 * SECOND,
        buffered=0,
        in_process=1,
        still_in_process=0,
        **where,
    )
    for writer, skew in (("ahead", ahead), (SENDER, 0), (WORKER, 0)):
        _shows(log, writer, START + 365 * SECOND, skew)
    summary = told(log, deadline_us=MINUTE, open_segments=_OPEN)

    assert (summary["verdict"], summary["unaccounted"], summary["explained"]) == (
        "unverifiable",
        1,
        1,
    )


def test_a_gap_of_a_clock_that_was_set_is_as_long_as_it_moved() -> None:
    """Four minutes ahead when the worker sent, right when it received, and then it died."""
    log = opened()
    for minute in range(55, 60):
        at = START + minute * MINUTE
        made = log.send(WORKER, at + 4 * MINUTE, "queue://mail")
        log.deliver("mail", made, at, "queue://mail", sent_us=at, recv_us=at)
    for ten in range(1, 6):
        deal(log, START + 59 * MINUTE + ten * 10 * SECOND)
    log.closes(SENDER, START + 4 * HOUR).closes("mail", START + 4 * HOUR)

    assert told(log)["destinations"][ORDERS]["verdict"] == "unverifiable"


def _put_back(sent: int) -> Log:
    """After two hours the sender's clock is put back by one; one message is lost that it sent by `sent`, true time."""
    log = opened()
    for ten in range(21):
        at = START + ten * 10 * MINUTE
        deal(log, at, sender=-3600 if ten > 12 else 0)
        if at == sent:
            log.send(SENDER, at + (-HOUR if ten > 12 else 0))
    for writer, back in ((SENDER, HOUR), (WORKER, 0)):
        log.closes(writer, START + 4 * HOUR - back)
    for line in log.lines:
        back = HOUR if line["writer"] == SENDER and line["seq"] >= _of_last_stretch(log) else 0
        line["mono_us"] = line["ts_us"] - START + back + HOUR
    return log


def _of_last_stretch(log: Log) -> int:
    """The number of the first line of the sender after its clock was put back."""
    mine = [line for line in log.lines if line["writer"] == SENDER]
    return next(
        number
        for number, (one, other) in enumerate(pairwise(mine), 1)
        if one["ts_us"] > other["ts_us"]
    )


def test_a_time_that_a_clock_shows_twice_proves_no_delay() -> None:
    """A key of the hour that came twice may be an hour younger; one of before, or after, tells its time."""
    for sent, deadline, verdict, in_flight in (
        (90 * MINUTE, 120 * MINUTE, "unverifiable", 1),
        (90 * MINUTE, 80 * MINUTE, "suspect", 0),
        (30 * MINUTE, 120 * MINUTE, "suspect", 0),
        (200 * MINUTE, 35 * MINUTE, "suspect", 0),
        (200 * MINUTE, 60 * MINUTE, "balanced", 1),
    ):
        summary = told(_put_back(START + sent), deadline_us=deadline)
        assert (summary["verdict"], summary["in_flight"]) == (verdict, in_flight), (sent, deadline)
        assert summary["unaccounted"] == 1 - in_flight


_COPY: Final = {"dest": "topic://t", "subscription": "durable:c.s"}


def _set_after_an_hour(
    by: int, *, owed: range, lost: int = -1, begins: int = 0, ends: int = 0
) -> Log:
    """
    After an hour the sender's clock is put on `by`; it sends a message a minute, of which a subscription gives `owed`
    but for `lost`. That is opened half a minute after `begins` (in minutes, true time), and removed so after `ends`.
    """
    log = Log().opens(SENDER).opens(WORKER)
    half, running = 30 * SECOND, START - HOUR
    opened_ = {"session_id": "work-1", "epoch": 1, "consumer": "c"}
    for minute in range(120):
        at, shown = START + minute * MINUTE, by if minute >= 60 else 0
        made = log.send(SENDER, at + shown, _COPY["dest"], mono_us=at + 2000 - running)
        _shows(log, SENDER, at, shown // SECOND)
        log.lines[-1]["mono_us"] = at - running
        if minute in owed and minute != lost:
            log.deliver(WORKER, made, at + SECOND, sent_us=at, recv_us=at + SECOND, **_COPY)
        if minute == begins:
            log.line(WORKER, "sub.open", at + half, **opened_, **_COPY)
        if minute == ends and ends:
            log.line(WORKER, "sub.removed", at + half, subscription=_COPY["subscription"])
    end = START + 125 * MINUTE
    log.closes(SENDER, end + by).closes(WORKER, end)
    log.lines[-2]["mono_us"] = end - running
    return log


@pytest.mark.parametrize("by", [-2 * HOUR, -9 * MINUTE, 9 * MINUTE, 2 * HOUR])
@pytest.mark.parametrize("minute", [40, 90])
def test_a_subscription_owes_nothing_from_before_it_whenever_the_sender_is_set(
    minute: int, by: int
) -> None:
    """A clock that is put back shows times of before the subscription again, and one that is put on leaves some out."""
    owed = range(minute + 1, 120)
    summary = told(_set_after_an_hour(by, begins=minute, owed=owed))
    assert (summary["verdict"], summary["unaccounted"]) == ("balanced", 0)

    summary = told(_set_after_an_hour(by, begins=minute, owed=owed, lost=110))
    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 1)


@pytest.mark.parametrize("by", [-2 * HOUR, -9 * MINUTE, 9 * MINUTE, 2 * HOUR])
@pytest.mark.parametrize("minute", [40, 90])
def test_nothing_goes_with_a_subscription_that_was_sent_later_whenever_the_sender_is_set(
    minute: int, by: int
) -> None:
    """What was sent last before the removal went with it; not what was passed over, nor what was sent after that."""
    owed = range(1, minute + 1)
    summary = told(_set_after_an_hour(by, ends=minute, owed=owed))
    assert (summary["verdict"], summary["removed"]) == ("balanced", 0)

    summary = told(_set_after_an_hour(by, ends=minute, owed=owed, lost=minute))
    assert (summary["verdict"], summary["removed"]) == ("balanced", 1)

    summary = told(_set_after_an_hour(by, ends=minute, owed=owed, lost=20))
    assert (summary["verdict"], summary["removed"], summary["unaccounted"]) == ("suspect", 0, 1)


def test_a_living_reader_whose_clock_is_hours_ahead_makes_nobody_silent() -> None:
    """Nothing proves that it is ahead: its messages may have waited so long; but nor that it is not."""
    summary = told(_alive(sender=0, worker=7200), open_segments=_OPEN)

    assert (summary["verdict"], findings(summary, "gap")) == ("balanced", [])
    assert findings(summary, "silent") == []


@pytest.mark.parametrize("by", [-24 * HOUR, -2 * HOUR, 2 * HOUR, 24 * HOUR])
def test_a_reader_that_died_is_silent_though_the_clock_of_who_is_left_was_set(by: int) -> None:
    """After ten minutes; what that clock shows now is known, and tells of nothing that it showed before."""
    log = opened()
    for minute in range(130):
        at, shown = START + minute * MINUTE, by if minute >= 10 else 0
        made = log.send(SENDER, at + shown, mono_us=at + 2000 - START + HOUR)
        _shows(log, SENDER, at, shown // SECOND)
        log.lines[-1]["mono_us"] = at - START + HOUR
        if minute < 20:
            log.deliver(WORKER, made, at + SECOND, sent_us=at)
    summary = told(log, open_segments=_OPEN)

    assert (summary["verdict"], len(findings(summary, "gap"))) == ("unverifiable", 1)


@pytest.mark.parametrize("broker", [-86500, 86500])
def test_the_clock_of_the_broker_makes_no_service_silent(broker: int) -> None:
    """By its timestamps the sender's clock is proven to be a day wrong, and that of the reader is not, or otherwise."""
    log = opened()
    for minute in range(20):
        at = START + minute * MINUTE
        made, done = log.send(SENDER, at), at + SECOND
        log.deliver(WORKER, made, done, sent_us=at + broker * SECOND, recv_us=done)
    summary = told(closed(log))

    assert (summary["verdict"], findings(summary, "roster")) == ("balanced", [])


def test_an_hour_of_a_sender_that_is_ahead_is_judged() -> None:
    """By its clock it sent after the horizon what it sent two hours before."""
    summary = told(_alive(sender=7200, worker=0), open_segments=_OPEN)
    hours = {row["hour_us"]: row["verdict"] for row in summary["hours"]}

    assert (summary["verdict"], hours[START + 2 * HOUR]) == ("balanced", "balanced")


def test_a_broker_lets_messages_expire_by_its_own_clock() -> None:
    """By that of the sender, two hours behind, they still have an hour."""
    log = Log().opens(SENDER, START - 2 * HOUR).opens(WORKER)
    log.reads(WORKER)
    for minute in range(20):
        deal(log, START + minute * MINUTE, sender=-7200, worker=0)
    for minute in (0, 20):
        _shows(log, SENDER, START + minute * MINUTE, -7200)
    at = START + 20 * MINUTE - 2 * HOUR
    log.send(SENDER, at, expires_us=at + HOUR)
    log.closes(SENDER, at + 20 * MINUTE).closes(WORKER, at + 2 * HOUR + 20 * MINUTE)
    summary = told(log)

    assert (summary["verdict"], summary["expired_at_broker"]) == ("unverifiable", 1)
