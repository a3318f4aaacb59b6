"""Sends without an answer, expiry, repeats of effect, and transactions."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx_report.balance import TWICE
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


def test_an_unconfirmed_send_that_was_settled_was_sent() -> None:
    """Its receipt was lost."""
    log = trade()
    log.deliver(WORKER, log.send(SENDER, START, outcome="unconfirmed"), START + SECOND)
    summary = told(ended(log))

    assert (summary["verdict"], summary["sent"], summary["unsent"]) == ("balanced", 11, 0)


def test_an_unconfirmed_send_is_counted_once_beside_a_loss_elsewhere() -> None:
    """Its bucket balances, and is looked at key by key all the same, because another queue's does not."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.reads(WORKER, "queue://other")
    log.deliver(WORKER, log.send(SENDER, START, outcome="unconfirmed"), START + SECOND)
    log.send(SENDER, START, "queue://other")
    summary = told(ended(log))

    assert (summary["destinations"][ORDERS]["sent"], summary["sent"]) == (1, 2)
    assert summary["unaccounted"] == 1


def test_an_unconfirmed_send_that_was_not_is_unknown() -> None:
    """Nobody knows whether the broker has it."""
    log = trade()
    log.send(SENDER, START, outcome="unconfirmed")
    summary = told(ended(log))

    assert (summary["verdict"], summary["unanswered"], summary["unaccounted"]) == (
        "unverifiable",
        1,
        0,
    )


def test_what_was_rolled_back_and_settled_all_the_same_is_suspect() -> None:
    """The books contradict each other; what was rolled back and is gone is well."""
    log = trade()
    made = log.send(SENDER, START, outcome="rolled_back", tx_id="t-1")
    assert told(ended(log))["verdict"] == "balanced"

    log.deliver(WORKER, made, START + SECOND)
    assert told(log)["verdict"] == "suspect"


def test_expired_is_told_from_lost() -> None:
    """Without the broker's count nobody proves it; with it, it is balanced."""
    log = trade()
    log.send(SENDER, START, expires_us=START + SECOND)
    summary = told(ended(log))
    assert (summary["verdict"], summary["expired_at_broker"]) == ("unverifiable", 1)

    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER)
    log.stats(SENDER, START - SECOND)
    log.send(SENDER, START, expires_us=START + SECOND)
    log.deliver(WORKER, log.send(SENDER, START), START + SECOND)
    log.stats(SENDER, START + HOUR, enqueued=2, dequeued=2, expired=1)
    assert told(ended(log))["verdict"] == "balanced"


def test_a_message_with_time_left_is_lost() -> None:
    """Its time is not over."""
    log = trade()
    log.send(SENDER, START, expires_us=START + 48 * HOUR)

    assert told(ended(log))["verdict"] == "suspect"


def test_a_handler_that_succeeded_twice() -> None:
    """The link was lost before the ACK: done once by the books, and twice in truth."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="abandoned")
    log.deliver(WORKER, made, START + MINUTE, attempt=2)
    found = audited(ended(log))

    assert found.summary["verdict"] == "suspect"
    assert (found.summary["duplicates"], found.summary["effect_duplicates"]) == (0, 1)
    assert found.duplicates.select("kind", "cause").rows() == [("effect", "abandoned")]


def test_a_message_that_was_done_and_then_dead_lettered_is_not_balanced() -> None:
    """The ACK was lost, and whoever got it next rejected it: whoever moves the dead letter back has it done twice."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND)
    log.deliver(WORKER, made, START + MINUTE, outcome="dead_lettered", attempt=2)
    summary = told(ended(log))

    assert (summary["verdict"], summary["dead_after_done"]) == ("unverifiable", 1)
    assert (summary["duplicates"], summary["effect_duplicates"]) == (0, 0)
    assert [one["msg_key"] for one in summary["repeated"]] == [made]


def test_one_process_tells_the_order_of_its_ends_whatever_its_clock() -> None:
    """It may be ahead by up to a minute, or not at all; its lines are in order all the same."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + MINUTE, sent_us=START)
    log.deliver(WORKER, made, START + MINUTE + SECOND, outcome="dead_lettered", attempt=2)
    summary = told(ended(log))

    assert (summary["verdict"], summary["dead_after_done"]) == ("unverifiable", 1)


@pytest.mark.parametrize(
    ("host", "after", "verdict", "number"),
    [
        ("far", SECOND, "unverifiable", "unordered"),
        ("far", -SECOND, "unverifiable", "unordered"),
        ("far", 90 * SECOND, "unverifiable", "dead_after_done"),
        ("far", -90 * SECOND, "balanced", ""),
        (WORKER, SECOND, "unverifiable", "dead_after_done"),
        (WORKER, -SECOND, "balanced", ""),
    ],
)
def test_who_was_first_of_two_processes_is_told_by_clocks_as_far_as_these_are_known(
    host: str, after: int, verdict: str, number: str
) -> None:
    """One of them may be ahead by up to a minute, unless both are on one host: then they have one clock."""
    other = "other"
    log = trade().opens(other, host=host)
    log.reads(other)
    for minute in range(20, 25):
        at = START + minute * MINUTE
        for worker in (WORKER, other):
            log.deliver(worker, log.send(SENDER, at), at + MINUTE, sent_us=at, recv_us=at + MINUTE)
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + 10 * MINUTE)
    log.deliver(other, made, START + 10 * MINUTE + after, outcome="dead_lettered", attempt=2)
    summary = told(ended(log.closes(other, START + 2 * HOUR)))

    found = [name for name in ("dead_after_done", "unordered") if findings(summary, name)]
    assert (summary["verdict"], found) == (verdict, [number] if number else [])


@pytest.mark.parametrize(
    ("first", "number"), [("acknowledged", "duplicates"), ("abandoned", "effect_duplicates")]
)
def test_a_repeated_message_is_counted_by_one_number(first: str, number: str) -> None:
    """It was dead-lettered after it was done again: the page says how many messages it does not show by their sum."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome=first)
    log.deliver(WORKER, made, START + MINUTE, attempt=2)
    log.deliver(WORKER, made, START + HOUR, outcome="dead_lettered", attempt=3)
    summary = told(ended(log))

    assert [one["msg_key"] for one in summary["repeated"]] == [made]
    assert {name: summary[name] for name in TWICE} == dict.fromkeys(TWICE, 0) | {number: 1}


def test_the_table_of_duplicates_has_all_that_is_repeated() -> None:
    """The page sends people there for what it does not show."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND)
    log.deliver(WORKER, made, START + MINUTE, outcome="dead_lettered", attempt=2)
    found = audited(ended(log)).duplicates

    assert found.select("kind", "n", "sample_keys").rows() == [("dead_after_done", 1, [made])]


def test_a_dead_letter_that_was_moved_back_and_done_is_balanced() -> None:
    """Somebody moved it at the broker's console, which no log tells of."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="dead_lettered")
    log.deliver(WORKER, made, START + MINUTE)
    summary = told(ended(log))

    assert (summary["verdict"], summary["dead_after_done"]) == ("balanced", 0)


def test_a_message_that_was_sent_twice_may_be_done_once_and_dead_once() -> None:
    """Each of the two copies has its own end."""
    log, _ = twice_sent("acknowledged", "dead_lettered")

    assert told(ended(log))["dead_after_done"] == 0


@pytest.mark.parametrize(
    "fields",
    [
        {"error_type": "ValueError"},
        {"end_us": None},
        {"recv_us": START, "start_us": START, "end_us": START},
        {"recv_us": START, "start_us": START + 5, "end_us": START},
    ],
    ids=["failed", "no end", "never handed out", "still running"],
)
def test_an_abandoned_delivery_without_success_is_no_effect(fields: dict[str, Any]) -> None:
    """Then the second one is the first that succeeded."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, **({"outcome": "abandoned"} | fields))
    log.deliver(WORKER, made, START + MINUTE, attempt=2)

    assert told(ended(log))["verdict"] == "balanced"


def test_a_delivery_in_a_transaction_in_doubt_is_not_lost() -> None:
    """Nobody knows whether it was committed; run again, its handler is not called a proven repeat."""
    log = trade()
    made = log.send(SENDER, START)
    log.line(WORKER, "tx.in_doubt", START + SECOND, tx_id="t-1")
    log.deliver(WORKER, made, START + SECOND, outcome="abandoned", tx_id="t-1")
    summary = told(ended(log))
    assert (summary["verdict"], summary["in_doubt"], summary["unaccounted"]) == (
        "unverifiable",
        1,
        0,
    )
    assert len(findings(summary, "transactions")) == 1

    log.deliver(WORKER, made, START + MINUTE, outcome="committed", tx_id="t-2")
    assert told(log)["effect_duplicates"] == 0


def twice_sent(*fates: str, later: int = MINUTE, **second: Any) -> tuple[Log, str]:
    """A trade in which one message is sent a second time under its key, and so settled; the log, and the key."""
    log, at = trade(), START + 30 * MINUTE
    made = log.send(SENDER, at)
    log.send(SENDER, at + later, msg_key=made, start_us=at + later, **second)
    for number, fate in enumerate(fates):
        log.deliver(WORKER, made, at + later + (number + 1) * SECOND, outcome=fate)
    return log, made


@pytest.mark.parametrize("outcome", ["confirmed", "unconfirmed"])
def test_what_was_sent_twice_under_one_key_and_done_twice_is_not_balanced(outcome: str) -> None:
    """A repeat, or meant: the log does not say which."""
    log, _ = twice_sent("acknowledged", "acknowledged", outcome=outcome)
    summary = told(ended(log))

    assert (summary["verdict"], summary["duplicates"]) == ("unverifiable", 0)
    assert findings(summary, "resent") == [
        f"{ORDERS}: 1 sent more than once under one key, and done as often"
    ]


@pytest.mark.parametrize("first", ["confirmed", "unconfirmed"])
def test_what_was_sent_again_at_once_without_an_answer_and_done_twice_is_not_balanced(
    first: str,
) -> None:
    """As one that is sent anywhere, when its link is lost."""
    log, _ = twice_sent("acknowledged", "acknowledged", later=50_000, outcome="unconfirmed")
    sends = [line for line in log.lines if line["kind"] == "send"]
    sends[-2]["outcome"] = first
    sends[-1]["outcome"] = "confirmed" if first == "unconfirmed" else "unconfirmed"

    assert told(ended(log))["verdict"] == "unverifiable"


def test_a_send_without_an_answer_that_was_done_is_balanced() -> None:
    """Beside a confirmed one of the same seconds."""
    log, at = trade(), START + 30 * MINUTE
    for outcome in ("confirmed", "unconfirmed"):
        log.deliver(WORKER, log.send(SENDER, at, outcome=outcome), at + SECOND)
    summary = told(ended(log))

    assert (summary["verdict"], summary["sent"]) == ("balanced", 12)


def test_what_was_sent_twice_and_done_once_of_each_fate_is_balanced() -> None:
    """A dead letter that was sent again, and done."""
    log, _ = twice_sent("dead_lettered", "acknowledged")

    assert told(ended(log))["verdict"] == "balanced"


def test_a_dead_letter_that_was_sent_again_and_done_twice_is_not_balanced() -> None:
    """It was settled more often than sent."""
    log, _ = twice_sent("dead_lettered", "acknowledged", "acknowledged")

    assert told(ended(log))["verdict"] == "unverifiable"


def test_a_dead_letter_that_was_sent_again_and_not_settled_may_be_lost() -> None:
    """What was read elsewhere is the dead letter, or the second copy: neither balanced nor proven to be lost."""
    log, made = twice_sent("dead_lettered")
    log.reads(WORKER, "queue://DLQ", consumer="dead")
    log.deliver(WORKER, made, START + 31 * MINUTE, "queue://DLQ", consumer="dead")
    summary = told(ended(log))

    assert (summary["verdict"], summary["unaccounted"]) == ("unverifiable", 1)
    assert (summary["explained"], summary["lost"]) == (1, [])
    assert [one["msg_key"] for one in summary["unsettled"]] == [made]

    other = log.send(SENDER, START + 40 * MINUTE)
    summary = told(log)
    assert [one["msg_key"] for one in summary["lost"]] == [other]


def test_a_dead_letter_that_was_sent_again_and_is_nowhere_is_lost() -> None:
    """Nothing that was read elsewhere may be it."""
    log, made = twice_sent("dead_lettered")
    summary = told(ended(log))

    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 1)
    assert [one["msg_key"] for one in summary["lost"]] == [made]


def test_a_key_may_have_been_sent_from_another_clock_before_it_was_made() -> None:
    """The second sender's clock is behind."""
    log, _ = twice_sent("acknowledged", "acknowledged", later=-MINUTE)

    assert told(ended(log))["verdict"] == "unverifiable"


def test_what_was_done_and_sent_on_to_another_broker_is_no_repeat() -> None:
    """Under its key, by who did it; the queue there has the same name."""
    log, at = trade(), START + 30 * MINUTE
    made = log.send(SENDER, at)
    log.deliver(WORKER, made, at + SECOND)
    there: dict[str, Any] = {"session_id": "east", "epoch": 1}
    log.line(WORKER, "conn.up", at, **there, broker="east:61613")
    log.send(WORKER, at + MINUTE, msg_key=made, **there)
    log.opens("other").reads("other", consumer="far")
    log.deliver("other", made, at + 2 * MINUTE, consumer="far")
    log.closes("other", at + HOUR)

    assert told(ended(log))["verdict"] == "balanced"


def repeated(
    first: str = "confirmed", *done: str, other: bool = False, address: str = "b:61613"
) -> dict[str, Any]:
    """
    What is told of two sends with one duplicate id, or with two; `done`: keys that are delivered, `a` or `b`.

    The second one is sent to the broker at `address`.
    """
    log = trade()
    at = START + 30 * MINUTE
    ids = ("order-42", "order-43" if other else "order-42")
    log.line(SENDER, "conn.up", at, session_id=f"{SENDER}-1", epoch=2, broker=address)
    keys = {
        "a": log.send(SENDER, at, outcome=first, duplicate_id=ids[0]),
        "b": log.send(SENDER, at + MINUTE, duplicate_id=ids[1], epoch=2),
    }
    for one in done:
        log.deliver(WORKER, keys[one], at + 2 * MINUTE)
    return told(ended(log))


@pytest.mark.parametrize("first", ["confirmed", "unconfirmed"])
@pytest.mark.parametrize("done", ["a", "b"])
def test_what_the_broker_drops_by_its_duplicate_id_is_not_lost(first: str, done: str) -> None:
    """Whichever of the two it has; it confirms the other one, or its answer is lost."""
    summary = repeated(first, done)
    assert (summary["verdict"], summary["dropped"]) == ("balanced", 1)
    assert (summary["unaccounted"], summary["unanswered"]) == (0, 0)


def test_one_of_a_duplicate_id_is_lost_if_none_was_delivered() -> None:
    """The broker had one of them."""
    summary = repeated()
    assert (summary["verdict"], summary["unaccounted"], summary["dropped"]) == ("suspect", 1, 1)


def test_another_duplicate_id_explains_nothing() -> None:
    """That one was done; this one was not."""
    summary = repeated("confirmed", "a", other=True)
    assert (summary["verdict"], summary["unaccounted"], summary["dropped"]) == ("suspect", 1, 0)


@pytest.mark.parametrize("done", ["a", "b"])
def test_what_another_broker_may_have_dropped_is_neither_lost_nor_balanced(done: str) -> None:
    """Live and backup know the same ids, and two brokers do not; an address tells neither."""
    summary = repeated("confirmed", done, address="other:61613")
    assert (summary["verdict"], summary["unaccounted"], summary["dropped"]) == (
        "unverifiable",
        1,
        0,
    )
    assert (summary["explained"], summary["lost"]) == (1, [])


def test_one_of_a_duplicate_id_is_lost_if_no_broker_delivered_one() -> None:
    """The second broker may be the backup of the first; one of them had it."""
    summary = repeated(address="other:61613")
    assert (summary["verdict"], summary["unaccounted"], summary["dropped"]) == ("suspect", 2, 0)
    assert (summary["explained"], len(summary["lost"])) == (1, 1)


def test_what_the_broker_did_not_drop_is_counted_as_any_other() -> None:
    """It knows so many ids, and forgets them with its queue."""
    summary = repeated("confirmed", "a", "b")
    assert (summary["verdict"], summary["done"], summary["dropped"]) == ("balanced", 12, 0)


@pytest.mark.parametrize(
    ("late", "verdict", "number"),
    [
        (None, "unverifiable", "doubtful_duplicates"),
        ("done", "suspect", "effect_duplicates"),
        ("failed", "balanced", ""),
        ("undone", "balanced", ""),
    ],
)
def test_a_handler_that_ran_on_when_its_link_was_lost(
    late: str | None, verdict: str, number: str
) -> None:
    """Whether it succeeded only a later line tells: a process that died has none, nor has an older release."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="abandoned", end_us=START + SECOND)
    if late is not None:
        log.late(WORKER, made, START + 2 * SECOND, late)
    log.deliver(WORKER, made, START + MINUTE, attempt=2)
    summary = told(ended(log))
    assert summary["verdict"] == verdict
    for name in ("doubtful_duplicates", "effect_duplicates"):
        assert bool(findings(summary, name)) is (name == number)


@pytest.mark.parametrize("late", [None, "done", "failed"])
def test_a_handler_that_ran_on_is_no_settlement(late: str | None) -> None:
    """The broker had its message again, and nobody else got it: it is lost, and was given up last."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="abandoned", end_us=START + SECOND)
    if late is not None:
        log.late(WORKER, made, START + 2 * SECOND, late)
    summary = told(ended(log))
    assert (summary["verdict"], summary["unaccounted"]) == ("suspect", 1)
    assert [one["last_fate"] for one in summary["lost"]] == ["abandoned"]


@pytest.mark.parametrize(
    ("first", "verdict", "number"),
    [
        ({}, "unverifiable", 1),
        ({"error_type": "ValueError"}, "balanced", 0),
        ({"tx_id": "t-1"}, "balanced", 0),
    ],
    ids=["succeeded", "failed", "in doubt"],
)
def test_what_succeeded_without_its_ack_and_then_died_is_no_plain_dead_letter(
    first: dict[str, str], verdict: str, number: int
) -> None:
    """Whoever sends the dead letter back has it done twice; what came again was undone with its transaction."""
    log = trade()
    made = log.send(SENDER, START)
    if "tx_id" in first:
        log.line(WORKER, "tx.in_doubt", START + SECOND, **first)
    log.deliver(WORKER, made, START + SECOND, outcome="abandoned", **first)
    log.deliver(WORKER, made, START + MINUTE, outcome="dead_lettered", attempt=2)
    summary = told(ended(log))
    assert (summary["verdict"], summary["dead_after_done"]) == (verdict, number)


@pytest.mark.parametrize(
    ("again", "verdict"),
    [(None, "unverifiable"), ("abandoned", "suspect"), ("dead_lettered", "balanced")],
    ids=["never seen again", "came again", "came again and died"],
)
def test_a_dead_letter_whose_nack_was_not_answered_is_not_surely_lost(
    again: str | None, verdict: str
) -> None:
    """The broker may have made it one; not where it came again."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="abandoned", error_type="ValueError")
    log.late(WORKER, made, START + SECOND, "in_doubt")
    if again is not None:
        log.deliver(WORKER, made, START + MINUTE, outcome=again, attempt=2)
    summary = told(ended(log))
    assert (summary["verdict"], summary["unaccounted"]) == (verdict, int(again != "dead_lettered"))
    assert len(summary["lost"]) == int(verdict == "suspect")


@pytest.mark.parametrize(
    ("skew", "received", "verdict"),
    [
        (0, MINUTE, "suspect"),
        (-HOUR, MINUTE, "suspect"),
        (HOUR, MINUTE, "suspect"),
        (0, -MINUTE, "unverifiable"),
        (HOUR, -MINUTE, "unverifiable"),
        (-HOUR, -MINUTE, "unverifiable"),
    ],
)
def test_who_came_last_to_a_dead_letter_without_an_answer_is_told_by_clocks_set_right(
    skew: int, received: int, verdict: str
) -> None:
    """Another process gave the message up, and had got it after that, or before; its clock is wrong by an hour."""
    log, other = trade(), "other"
    asked = START + 30 * MINUTE
    made = log.send(SENDER, asked - 5 * MINUTE)
    log.opens(other).reads(other)
    for writer, ahead in ((SENDER, 0), (WORKER, 0), (other, skew)):
        log.line(
            writer, "broker.clock", START + ahead, broker="b:61613", ahead_us=-ahead, within_us=0
        )
    log.deliver(WORKER, made, asked, outcome="abandoned", error_type="ValueError")
    log.late(WORKER, made, asked, "in_doubt")
    # It noticed late that its link was lost.
    at: dict[str, Any] = {"recv_us": asked + received + skew, "start_us": None, "end_us": None}
    log.deliver(other, made, asked + 2 * MINUTE + skew, outcome="abandoned", **at)
    log.closes(other, START + 2 * HOUR + skew)
    summary = told(ended(log))
    assert (summary["verdict"], summary["unaccounted"]) == (verdict, 1)
