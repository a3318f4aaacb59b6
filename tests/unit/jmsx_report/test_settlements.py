"""Sends without an answer, expiry, repeats of effect, and transactions."""

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
