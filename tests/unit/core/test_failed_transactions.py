"""Transactions that go wrong: condemned by an ERROR, refused, in doubt, lost with their link."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.process_memory import ProcessMemory
from jmsx.errors import (
    BrokerTimeoutError,
    IllegalStateError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx_artemis import DIALECT as ARTEMIS
from tests.unit.core.harness import (
    BROKEN,
    CLASSIC,
    TRANSACTED,
    Talk,
    at_most,
    dead_letters,
    outcome,
    sent,
    transactions,
)

if TYPE_CHECKING:
    from jmsx.core.dialect import Dialect
    from jmsx.core.requests import Request

BEGIN, ABORT = "BEGIN in jmsx", "ABORT in jmsx"


#: As Classic says it (BROKER.md C73).
ROLLBACK_ONLY = "javax.transaction.xa.XAException: COMMIT FAILED: Transaction marked rollback only xaErrorCode:100"

OUT = "SEND queue:x 'out' in jmsx"


def test_error_condemns_the_open_transaction() -> None:
    """An ERROR that answers no question may have been any part of it, so it is rolled back (BROKER.md C31)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    talk.complain("The destination temp-queue://x does not exist.")
    talk.complain("and so the connection is not valid")
    with pytest.raises(
        IllegalStateError, match=r"SEND queue.* broker.*temp-queue://x does not exist"
    ):
        talk.send()
    request = talk.commit()
    assert talk.wrote() == [BEGIN, OUT, ABORT]
    assert isinstance(request.error, TransactionRolledBackError)
    assert "temp-queue://x does not exist" in str(request.error)
    assert "s:1" in str(request.error)
    assert transactions(talk) == [("rolled_back", 1, 0)]
    assert talk.receive() == "a#2"


def test_error_condemns_one_transaction_only() -> None:
    """The next one is as good as new."""
    talk = Talk(TRANSACTED)
    talk.send()
    talk.complain("no")
    talk.rollback()
    talk.send()
    request = talk.commit()
    talk.answer()
    assert outcome(request) == "done"


def test_error_outside_a_transaction_condemns_nothing() -> None:
    """Nothing of it was on the wire."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.complain("Unexpected ACK received for message-id [null]")
    request = talk.commit()
    assert talk.wrote() == ["ACK a ?"]
    talk.answer()
    assert outcome(request) == "done"


def test_answered_error_condemns_nothing() -> None:
    """It belongs to its question, such as a SUBSCRIBE in the middle of a transaction."""
    talk = Talk(TRANSACTED)
    talk.send()
    talk.core.subscribe(talk.settings("2"), talk.now)
    talk.refuse("InvalidSelectorException: 1 = =")
    request = talk.commit()
    talk.answer()
    assert outcome(request) == "done"


def test_refused_commit_drops_the_link_and_says_so() -> None:
    """The broker can neither abort that transaction nor give its messages back (BROKER.md C32)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.refuse("COMMIT FAILED: Invalid transaction id")
    assert talk.wrote() == ["DROP"]
    assert isinstance(request.error, TransactionRolledBackError)
    assert "Invalid transaction id" in str(request.error)
    assert transactions(talk) == [("rolled_back", 1, 0)]
    assert sent(talk) == ["rolled_back"]
    assert talk.ended() == ["a#1 abandoned"]


def test_refused_commit_tells_what_was_refused_before() -> None:
    """The broker complains of a SEND while COMMIT is on its way; its refusal of that alone would say nothing."""
    talk = Talk(TRANSACTED)
    talk.send()
    request = talk.commit()
    talk.complain("Persistent store is Full")
    talk.refuse(ROLLBACK_ONLY)
    assert isinstance(request.error, TransactionRolledBackError)
    assert "Persistent store is Full" in str(request.error)
    assert "COMMIT FAILED" in str(request.error)


def refused_for_no_reason() -> tuple[Talk, Request]:
    """COMMIT after a SEND that failed is refused, and the complaint about that SEND has not come yet."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.refuse(ROLLBACK_ONLY)
    return talk, request


def test_refused_commit_tells_what_is_told_right_after_it() -> None:
    """Another thread of the broker complains of the SEND, which may be slower than the one that refuses COMMIT."""
    talk, request = refused_for_no_reason()
    assert (request.done, talk.wrote()) == (False, [])
    talk.complain("Persistent store is Full")
    assert isinstance(request.error, TransactionRolledBackError)
    assert "Persistent store is Full" in str(request.error)
    assert "COMMIT FAILED" in str(request.error)
    assert talk.wrote() == ["DROP"]


def test_refused_commit_waits_a_second_for_its_cause() -> None:
    """Then it is told without one."""
    talk, request = refused_for_no_reason()
    due = talk.core.next_timer()
    assert due == talk.now + 1.0
    talk.wait_until(due)
    assert isinstance(request.error, TransactionRolledBackError)
    assert "COMMIT FAILED" in str(request.error)
    assert (talk.wrote(), talk.core.next_timer()) == (["DROP"], None)


def test_refused_commit_is_no_doubt() -> None:
    """Neither if the link ends before its cause is known, nor if nobody waits so long."""
    talk, request = refused_for_no_reason()
    talk.cut()
    assert isinstance(request.error, TransactionRolledBackError)
    talk, request = refused_for_no_reason()
    talk.core.abandon(request, BrokerTimeoutError("no answer in 0.5 s"), talk.now)
    assert isinstance(request.error, TransactionRolledBackError)
    assert "DROP" in talk.wrote()


def test_refused_plain_ack_is_a_refused_commit() -> None:
    """The message is not settled, and its ack id is spent."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    request = talk.commit()
    talk.wrote()
    talk.refuse("Unexpected ACK received for message-id [null]")
    assert talk.wrote() == ["DROP"]
    assert outcome(request) == "TransactionRolledBackError"
    assert talk.ended() == ["a#1 abandoned"]


@pytest.mark.parametrize("sends", [True, False])
def test_lost_link_leaves_a_commit_in_doubt(*, sends: bool) -> None:
    """COMMIT, or the ACK that stands for it, was written and not answered: nobody knows."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    if sends:
        talk.send()
    request = talk.commit()
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)
    assert (request.error.transaction_id, request.error.broker) == ("s:1", "broker:61613")
    assert not request.error.retriable
    assert transactions(talk) == [("in_doubt", int(sends), 0)]
    assert sent(talk) == ["unconfirmed"] * sends
    assert talk.ended() == ["a#1 abandoned"]


def test_commit_that_is_not_answered_is_in_doubt_too() -> None:
    """And the link is dropped, since the broker may still do it."""
    talk = Talk(TRANSACTED)
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("no answer in 30 s"), talk.now)
    assert talk.wrote() == ["DROP"]
    assert outcome(request) == "TransactionInDoubtError"
    assert transactions(talk) == [("in_doubt", 1, 0)]


def test_late_receipt_changes_nothing() -> None:
    """What was said to be in doubt stays so."""
    talk = Talk(TRANSACTED)
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("no answer in 30 s"), talk.now)
    talk.answer()
    assert outcome(request) == "TransactionInDoubtError"
    assert transactions(talk) == [("in_doubt", 1, 0)]


def test_lost_link_rolls_an_open_transaction_back() -> None:
    """COMMIT was not written: the broker undoes it, and there is no doubt; the application has to say so too."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    talk.cut()
    assert transactions(talk) == [("rolled_back", 1, 0)]
    assert sent(talk) == ["rolled_back"]
    assert talk.ended() == ["a#1 abandoned"]
    talk.reopen()
    talk.wrote()
    with pytest.raises(IllegalStateError, match=r"back: the connection was lost .*; call rollback"):
        talk.send()
    request = talk.commit()
    assert outcome(request) == "TransactionRolledBackError"
    assert "the connection was lost" in str(request.error)
    assert talk.wrote() == []
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]


def test_lost_link_leaves_an_idle_transaction_alone() -> None:
    """Nothing was in it, so there is nothing to roll back."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.cut()
    talk.reopen()
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]


def test_rollback_ends_what_a_lost_link_left() -> None:
    """The next transaction is a clean one."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.cut()
    talk.rollback()
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"
    request = talk.commit()
    talk.answer()
    assert outcome(request) == "done"


FAULT = "java.util.ConcurrentModificationException"


def test_a_commit_that_is_answered_with_a_fault_is_in_doubt() -> None:
    """It is no refusal: the broker may have done it; the link, and what is open on it, is of no further use."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.refuse(FAULT)
    assert talk.wrote() == ["DROP"]
    assert isinstance(request.error, TransactionInDoubtError)
    assert FAULT in str(request.error)
    assert transactions(talk) == [("in_doubt", 1, 0)]
    assert sent(talk) == ["unconfirmed"]


def test_a_commit_that_is_confirmed_although_a_part_was_refused() -> None:
    """The ERROR comes between COMMIT and its RECEIPT: what was committed lacks something, and nobody knows what."""
    talk = Talk(TRANSACTED)
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.complain("the header is not valid")
    talk.answer()
    assert talk.wrote() == ["DROP"]
    assert isinstance(request.error, TransactionInDoubtError)
    assert "the header is not valid" in str(request.error)
    assert transactions(talk) == [("in_doubt", 1, 0)]


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("comes_first", [False, True])
@pytest.mark.parametrize("to", ["same", "other"])
def test_links_that_are_lost_before_the_commit_are_no_failures(
    dialect: Dialect, to: str, *, comes_first: bool
) -> None:
    """The application has done its work each time, and says so; the message may have come again before that."""
    memory = ProcessMemory()
    talk, other = (Talk(TRANSACTED, dialect=dialect, memory=memory) for _ in "12")
    for one in (talk, other):
        one.subscribe(policy=at_most(0))
    for attempt in range(1, 5):
        if attempt == 1 or not comes_first or to == "other":
            talk.comes("a", redelivered=str(attempt > 1).lower())
        assert talk.receive() == f"a#{attempt}"
        talk.cut()
        if comes_first and to == "same":
            talk.reopen()
            talk.comes("a", redelivered="true")
        request = talk.commit()
        assert isinstance(request.error, TransactionRolledBackError)
        if not talk.core.linked:
            talk.reopen()
        talk.wrote()
        if to == "other":
            talk, other = other, talk
    assert dead_letters(talk) == dead_letters(other) == []


@pytest.mark.parametrize("links", [0, 1])
def test_a_link_that_the_broker_ends_with_a_complaint_is_a_failure(links: int) -> None:
    """It may be about what is sent for the message, which would be tried for ever; what follows changes nothing."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.complain("refused by the test")
    talk.core.link_closed("error_frame", "refused by the test", talk.now)
    for _ in range(links):
        talk.reopen()
        talk.cut()
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    assert len(dead_letters(talk)) == 1


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
def test_a_link_that_is_dropped_for_another_message_is_no_failure(dialect: Dialect) -> None:
    """The session drops it itself, and the broker has complained of nothing that comes of this one."""
    talk = Talk(TRANSACTED, dialect=dialect)
    talk.subscribe(policy=at_most(0))
    talk.subscribe("2")
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.core.link_closed("error_frame", "a truncated message has to come again", talk.now)
    talk.reopen()
    talk.comes("a", redelivered="true")
    talk.complain("refused by the test")  # of the link on which nothing was handed out
    talk.core.link_closed("error_frame", "refused by the test", talk.now)
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"
    assert dead_letters(talk) == []


def test_a_complaint_in_an_earlier_transaction_is_no_failure() -> None:
    """That was rolled back for it, and counted."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.subscribe(policy=at_most(0))
    talk.send()
    talk.complain("refused by the test")
    talk.rollback()
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.cut()
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


def test_a_complaint_with_which_the_link_is_lost_is_a_failure() -> None:
    """As Classic does with a header line that is too long: the message would be tried for ever."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.send()
    talk.complain("The maximum header length was exceeded")
    talk.cut()
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    talk.answer()  # there is room for it
    assert len(dead_letters(talk)) == 1


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("links", [2, 3])
def test_several_links_that_are_lost_under_one_transaction_are_no_failures(
    dialect: Dialect, links: int
) -> None:
    """What the application held on the first of them is not forgotten with the second."""
    talk = Talk(TRANSACTED, dialect=dialect)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    assert talk.receive() == "a#1"
    for _ in range(links):
        talk.cut()
        talk.reopen()
        talk.comes("a", redelivered="true")
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    assert talk.receive() == "a#2"
    assert dead_letters(talk) == []


def test_what_was_rolled_back_on_a_lost_link_stays_a_failure() -> None:
    """Also if the next transaction loses its link, and its work was done."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", "b")
    assert talk.receive() == "a#1"
    talk.cut()
    talk.rollback(BROKEN)
    talk.reopen()
    talk.comes("b", "a", redelivered="true")
    assert talk.receive() == "b#1"
    talk.cut()
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"
    talk.rollback(BROKEN)
    assert talk.receive() is None
    assert len(dead_letters(talk)) == 1


def test_a_link_that_is_lost_under_work_that_fails_is_a_failure() -> None:
    """As rollback() says."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.cut()
    talk.rollback(BROKEN)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    assert len(dead_letters(talk)) == 1
