"""Every rule of the audit, on a log small enough to be read."""

from __future__ import annotations

from typing import Any

import polars as pl
import pytest

from jmsx_report.roster import ROSTER
from tests.unit.jmsx_report.logs import HOUR, MINUTE, ORDERS, SECOND, START, Log, audited, told

SENDER, WORKER = "shop", "work"


def trade(messages: int = 10, *, dest: str = ORDERS) -> Log:
    """A sender and a worker; so many messages, all done, one a minute from the start."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER, dest)
    for number in range(messages):
        at = START + number * MINUTE
        log.deliver(WORKER, log.send(SENDER, at, dest), at + SECOND, dest)

    return log


def ended(log: Log, at: int = START + 2 * HOUR) -> Log:
    """Both close in order."""
    return log.closes(SENDER, at).closes(WORKER, at)


def findings(summary: dict[str, Any], what: str) -> list[str]:
    """What is said of one thing."""
    return [one["says"] for one in summary["findings"] if one["what"] == what]


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
    aside = pl.DataFrame({"path": ["x.jsonl"], "line": [1], "why": ["no JSON"], "writer": [WORKER]})
    summary = told(ended(trade()), quarantine=aside)

    assert (summary["verdict"], summary["quarantined"]) == ("unverifiable", 1)
    assert findings(summary, "quarantine") == ["x.jsonl, line 1: no JSON"]


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
    aside = {"path": ["x"], "line": [1], "why": [why], "writer": [WORKER]}
    doubted = twice(1, quarantine=pl.DataFrame(aside))
    assert (doubted["verdict"], doubted["duplicates"]) == ("unverifiable", 0)
    for found in (twice(1), twice(3)):
        assert (found["verdict"], found["duplicates"], found["foreign"]) == ("unverifiable", 0, 41)
    once = trade()
    once.deliver(WORKER, "ID:java-1", START, sent_us=START, redelivered=True)
    assert (told(ended(once))["verdict"], told(ended(once))["duplicates"]) == ("unverifiable", 0)


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
    log.deliver(WORKER, nameless, START)  # type: ignore[arg-type]
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


# Fan-out.


def test_a_virtual_topic_is_settled_once_for_each_of_its_queues() -> None:
    """Two groups of consumers, 8 messages: 8 sent, 16 done, none twice."""
    topic, queues = (
        "topic://VirtualTopic.t",
        [f"queue://Consumer.{one}.VirtualTopic.t" for one in "AB"],
    )
    log = Log().opens(SENDER).opens(WORKER)
    for queue in queues:
        log.reads(WORKER, queue)
    for number in range(8):
        made = log.send(SENDER, START + number * MINUTE, topic)
        for queue in queues:
            log.deliver(WORKER, made, START + number * MINUTE + SECOND, queue)
    found = audited(ended(log))

    assert (found.summary["verdict"], found.summary["sent"], found.summary["done"]) == (
        "balanced",
        8,
        16,
    )
    assert found.table.select("dest", "subscription", "sent", "done").rows() == [
        (topic, queue, 8, 8) for queue in queues
    ]

    log.send(SENDER, START + HOUR, topic)
    log.deliver(WORKER, log.lines[-1]["msg_key"], START + HOUR, queues[0])
    assert told(log)["unaccounted"] == 1


@pytest.mark.parametrize("name", ["queue://a,queue://b", "queue://a,b"])
def test_a_list_of_queues_gets_a_copy_each(name: str) -> None:
    """Settled once in each of them is not twice; only in one is a loss."""
    log = Log().opens(SENDER).opens(WORKER)
    for queue in ("queue://a", "queue://b"):
        log.reads(WORKER, queue)
    made = log.send(SENDER, START, name)
    log.deliver(WORKER, made, START + SECOND, "queue://a")
    lacking = told(ended(log))
    assert (lacking["verdict"], lacking["unaccounted"], lacking["sent"]) == ("suspect", 1, 1)

    log.lines = [line for line in log.lines if line["kind"] != "log.close"]
    log._next[SENDER] -= 1
    log._next[WORKER] -= 1
    log.deliver(WORKER, made, START + SECOND, "queue://b")
    whole = told(ended(log))
    assert (whole["verdict"], whole["duplicates"]) == ("balanced", 0)


def test_each_durable_subscription_gets_a_copy() -> None:
    """Done twice by one of them is a repeat; once by each is not."""
    log = Log().opens(SENDER).opens(WORKER)
    for name in ("durable:c.one", "durable:c.two"):
        log.reads(WORKER, "topic://t", subscription=name)
    made = log.send(SENDER, START, "topic://t")
    for name in ("durable:c.one", "durable:c.two"):
        log.deliver(WORKER, made, START + SECOND, "topic://t", subscription=name)
    assert told(ended(log))["verdict"] == "balanced"

    log.deliver(WORKER, made, START + SECOND, "topic://t", subscription="durable:c.two")
    assert told(log)["duplicates"] == 1


def test_a_subscription_owes_nothing_from_before_its_time() -> None:
    """It was made an hour after the first message."""
    log = Log().opens(SENDER).opens(WORKER)
    log.send(SENDER, START, "topic://t")
    log._of(
        "sub.open",
        WORKER,
        START + HOUR,
        {"dest": "topic://t", "consumer": "c", "subscription": "durable:c.s"},
    )
    made = log.send(SENDER, START + HOUR + MINUTE, "topic://t")
    log.deliver(WORKER, made, START + HOUR + MINUTE, "topic://t", subscription="durable:c.s")

    assert told(ended(log))["unaccounted"] == 0


def test_a_plain_topic_is_named_as_not_audited() -> None:
    """A copy for whoever listens, or none."""
    log = trade()
    log.send(SENDER, START, "topic://news")
    summary = told(ended(log))

    assert summary["verdict"] == "balanced"
    assert list(summary["not_audited"]) == ["topic://news"]
    assert len(findings(summary, "not_audited")) == 1


def test_queues_below_an_address_and_wildcards() -> None:
    """Sent to the address, read at `address::queue`; sent to two queues, read by a pattern."""
    log = Log().opens(SENDER).opens(WORKER)
    log.reads(WORKER, "queue://prices::eu")
    log.reads(WORKER, "queue://*.mail")
    log.deliver(WORKER, log.send(SENDER, START, "queue://prices"), START + 1, "queue://prices::eu")
    for place in ("eu", "us"):
        log.deliver(
            WORKER, log.send(SENDER, START, f"queue://{place}.mail"), START + 1, "queue://*.mail"
        )
    summary = told(ended(log))

    assert (summary["verdict"], summary["sent"], summary["settled"]) == ("balanced", 3, 3)


def test_a_dead_letter_that_is_consumed_is_no_repeat() -> None:
    """Given up where it was sent to, and settled at the dead letter queue."""
    log = trade()
    made = log.send(SENDER, START)
    log.deliver(WORKER, made, START + SECOND, outcome="dead_lettered")
    log.deliver(WORKER, made, START + MINUTE, "queue://ActiveMQ.DLQ")
    summary = told(ended(log))

    assert (summary["verdict"], summary["dead_lettered"], summary["done"]) == ("balanced", 1, 11)


# Sends without an answer, expiry, transactions.


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


# The broker's book, the roster, the clocks.


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
    assert "3 messages wait" in findings(summary, "waiting")[0]


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
