"""What a session does inside a STOMP transaction: beginning, commit, rollback, closing."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import (
    AckTrigger,
    MessagesAcknowledged,
    MessageSent,
    TransactionEnded,
)
from jmsx.core.frames import Frame
from jmsx.errors import (
    ConnectionFailedError,
    IllegalStateError,
    InvalidDestinationError,
)
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLASSIC,
    FAILED_ONCE,
    TRANSACTED,
    Talk,
    at_most,
    outcome,
    sent,
    transactions,
)

if TYPE_CHECKING:
    from jmsx.core.requests import Request

BEGIN, COMMIT, ABORT = "BEGIN in jmsx", "COMMIT in jmsx ?", "ABORT in jmsx"


OUT = "SEND queue:x 'out' in jmsx"


# -- beginning --------------------------------------------------------------------------------------------------------


def test_receiving_begins_nothing_on_the_wire() -> None:
    """BEGIN is written with the first SEND."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    assert talk.wrote() == []


def test_first_send_begins() -> None:
    """Once; no frame in the transaction asks for a receipt, since a failing one would not spoil it (BROKER.md C31)."""
    talk = Talk(TRANSACTED)
    assert talk.send("one") is None
    assert talk.send("two") is None
    assert talk.wrote() == [
        BEGIN,
        "SEND queue:x 'one' in jmsx",
        "SEND queue:x 'two' in jmsx",
    ]
    assert sent(talk) == []


def test_next_transaction_begins_anew() -> None:
    """The name on the wire is used again; the one in the evidence is not."""
    talk = Talk(TRANSACTED)
    for _ in range(2):
        talk.send()
        talk.commit()
        talk.answer()
    assert talk.wrote() == [BEGIN, OUT, COMMIT] * 2
    names = [event.transaction_id for event in talk.reported(TransactionEnded)]
    assert len(set(names)) == 2


# -- commit -----------------------------------------------------------------------------------------------------------


def test_commit_of_nothing_asks_nothing() -> None:
    """Upstream row 11: an empty commit is a no-op, as often as one likes."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    assert [outcome(talk.commit()), outcome(talk.commit())] == ["done", "done"]
    assert talk.wrote() == []
    assert transactions(talk) == []


def test_commit_of_one_receive_is_one_plain_ack() -> None:
    """It is atomic without BEGIN and COMMIT; its receipt is the commit's."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.receive()
    talk.commit()
    assert talk.wrote() == ["ACK a ?"]


def test_commit_of_receives_is_a_transaction() -> None:
    """One cumulative ACK would do, were the broker not killed in the middle of it: Classic removes one by one."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    request = talk.commit()
    assert talk.wrote() == ["BEGIN in jmsx", "ACK b in jmsx", "COMMIT in jmsx ?"]
    assert outcome(request) == "open"
    assert talk.ended() == []
    talk.answer()
    assert outcome(request) == "done"
    assert talk.ended() == ["a#1 committed", "b#1 committed"]
    assert transactions(talk) == [("committed", 0, 2)]
    (event,) = talk.reported(MessagesAcknowledged)
    assert (event.messages, event.trigger) == (2, AckTrigger.COMMIT)


def test_commit_of_sends_and_receives_is_one_burst() -> None:
    """ACK and COMMIT are written together; only COMMIT asks for a receipt (BROKER.md C30 and C31)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]
    request = talk.commit()
    assert talk.wrote() == ["ACK b in jmsx", COMMIT]
    assert talk.bursts[-1] == ["ACK b in jmsx", COMMIT]
    talk.answer()
    assert outcome(request) == "done"
    assert transactions(talk) == [("committed", 1, 2)]
    assert sent(talk) == ["confirmed"]


def test_commit_covers_every_consumer() -> None:
    """Several consumers need a transaction, so that all or none are settled."""
    talk = Talk(TRANSACTED)
    for name in ("1", "2", "3"):
        talk.subscribe(name)
    talk.comes("a", "b", to="1")
    talk.comes("x", to="2")
    talk.comes("z", to="3")
    assert talk.drain("1", "2") == ["a#1", "b#1", "x#1"]
    talk.commit()
    assert talk.wrote() == [BEGIN, "ACK b in jmsx", "ACK x in jmsx", COMMIT]
    assert talk.bursts[-1] == [BEGIN, "ACK b in jmsx", "ACK x in jmsx", COMMIT]
    talk.answer()
    assert transactions(talk) == [("committed", 0, 3)]


def test_commit_with_single_acks_has_one_for_each() -> None:
    """A lone message still needs no transaction."""
    talk = Talk(TRANSACTED, single=True)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    talk.commit()
    assert talk.wrote() == [BEGIN, "ACK a in jmsx", "ACK b in jmsx", COMMIT]
    talk.answer()
    talk.receive()
    talk.commit()
    assert talk.wrote() == ["ACK c ?"]


def test_commit_does_not_cover_what_waits() -> None:
    """Messages that were not handed out are not acknowledged."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.receive()
    talk.commit()
    talk.answer()
    assert talk.wrote() == ["ACK a ?"]
    talk.rollback()
    assert talk.receive() == "b#1"


def test_listener_that_raised_is_committed_all_the_same() -> None:
    """Unless the application rolls back; the evidence keeps that it failed."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.listen(BROKEN)
    talk.commit()
    talk.answer()
    assert talk.wrote() == ["ACK a ?"]
    assert talk.ended() == ["a#1 committed"]


def test_transaction_tells_when_it_began() -> None:
    """With its first delivery or send."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.now = 3.0
    talk.comes("a")
    talk.now = 5.0
    talk.receive()
    talk.now = 7.0
    talk.send()
    talk.commit()
    talk.now = 8.0
    talk.answer()
    (event,) = talk.reported(TransactionEnded)
    assert (event.started_at, event.at) == (5.0, 8.0)
    (message,) = talk.reported(MessageSent)
    assert (message.started_at, message.at, message.transaction_id) == (7.0, 8.0, "s:1")


# -- rollback ---------------------------------------------------------------------------------------------------------


def test_rollback_of_receives_writes_nothing() -> None:
    """The broker still holds them for us; they come again from our memory."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == []
    assert talk.drain() == ["a#2", "b#2"]
    assert transactions(talk) == [("rolled_back", 0, 0)]
    assert talk.ended() == ["a#1 rolled_back", "b#1 rolled_back"]


def test_rollback_of_sends_aborts() -> None:
    """And the next transaction is a new one."""
    talk = Talk(TRANSACTED)
    talk.send()
    talk.rollback()
    assert talk.wrote() == [BEGIN, OUT, ABORT]
    assert sent(talk) == ["rolled_back"]
    talk.send()
    assert talk.wrote() == [BEGIN, OUT]


def test_rollback_of_nothing_is_nothing() -> None:
    """No frame, no event."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.rollback()
    assert talk.wrote() == []
    assert transactions(talk) == []


def test_rolled_back_message_is_committed_later() -> None:
    """With the ACK of its one and only ack id (`Stomp11Test.testTransactionRollbackAllowsSecondAckOutsideTX`)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.drain()
    talk.rollback()
    talk.drain()
    talk.commit()
    assert talk.wrote() == ["BEGIN in jmsx", "ACK b in jmsx", "COMMIT in jmsx ?"]


# -- the wrong session ------------------------------------------------------------------------------------------------


def test_calls_that_do_not_fit_the_mode() -> None:
    """Each with an error that says so (JMS 3.1, 6.2)."""
    auto, transacted = Talk(AUTO), Talk(TRANSACTED)
    with pytest.raises(IllegalStateError, match=r"commit\(\)"):
        auto.commit()
    with pytest.raises(IllegalStateError, match=r"rollback\(\)"):
        auto.rollback()
    with pytest.raises(IllegalStateError, match=r"recover\(\)"):
        transacted.core.recover(0.0)


# -- closing ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("end", ["commit", "rollback"])
def test_consumer_closes_when_its_transaction_ends(end: str) -> None:
    """An UNSUBSCRIBE inside it would lose the ACK (BROKER.md C35)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    request = talk.core.close_consumer("1", talk.now)
    assert outcome(request) == "done"
    assert talk.wrote() == []
    if end == "commit":
        talk.commit()
        assert talk.wrote() == ["ACK a ?"]
        talk.answer()
        assert talk.ended() == ["a#1 committed"]
    else:
        talk.rollback()
        assert talk.ended() == ["a#1 rolled_back"]
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    assert not talk.core.is_open("1")


def test_consumer_without_messages_closes_at_once() -> None:
    """Also while the transaction has sends."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.send()
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_consumer_closed_twice_closes_once() -> None:
    """Also when it waits for the end of the transaction."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    talk.core.close_consumer("1", talk.now)
    talk.core.close_consumer("1", talk.now)
    talk.rollback()
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_close_of_the_session_rolls_back() -> None:
    """Then it unsubscribes; what it held is the broker's again (`ActiveMQMessageConsumer.java:733-759`)."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b")
    talk.receive()
    talk.send()
    requests = talk.core.close(talk.now)
    assert talk.wrote() == [BEGIN, OUT, ABORT, "UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#1 rolled_back"]
    assert [outcome(request) for request in requests] == ["open"]
    talk.answer()
    assert [outcome(request) for request in requests] == ["done"]


def test_close_of_the_session_dead_letters_at_the_limit() -> None:
    """Closing counts as a rollback."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", **FAILED_ONCE)
    talk.receive()
    talk.core.close(talk.now)
    assert talk.wrote() == ["NACK a", "UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#2 dead_lettered"]


# -- sends to who may be gone -----------------------------------------------------------------------------------------

ANSWER = "SEND remote-temp-queue:x 'out' in jmsx ?"
GONE = "org.apache.activemq.DestinationDoesNotExistException: temp-queue://x does not exist."


def answering(talk: Talk) -> Request:
    """Send to the temporary queue of another connection."""
    frame = Frame("SEND", {"destination": "/remote-temp-queue/x"}, b"out")
    request = talk.core.send(frame, "key", "remote-temp-queue://x", talk.now)
    assert request is not None
    return request


def test_an_answer_to_who_is_gone_is_refused_at_once() -> None:
    """Its sender hears of it, and the transaction goes on: the commit is not refused, and the link stays."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.send("kept")
    request = answering(talk)
    talk.refuse(GONE)
    assert isinstance(request.error, InvalidDestinationError)
    commit = talk.commit()
    talk.answer()
    assert outcome(commit) == "done"
    assert talk.wrote()[-1] == COMMIT
    assert sent(talk) == ["error", "confirmed"]


def test_a_transaction_whose_only_send_was_refused() -> None:
    """It was begun, so it has to be ended: with what was received in it, or with nothing."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.subscribe()
    talk.comes("a")
    talk.receive()
    for wrote in (["ACK a in jmsx", COMMIT], [ABORT]):
        answering(talk)
        talk.refuse(GONE)
        talk.wrote()
        commit = talk.commit()
        assert talk.wrote() == wrote
        if wrote[-1] == COMMIT:
            talk.answer()
        assert outcome(commit) == "done"


def test_an_answer_that_is_taken_is_part_of_the_transaction() -> None:
    """The receipt says only that the queue is there."""
    talk = Talk(TRANSACTED)
    request = answering(talk)
    talk.answer()
    assert outcome(request) == "done"
    assert sent(talk) == []
    talk.rollback()
    assert sent(talk) == ["rolled_back"]


def test_an_answer_that_fails_otherwise_can_only_be_rolled_back() -> None:
    """Whether the broker has it in the transaction is not known."""
    talk = Talk(TRANSACTED)
    answering(talk)
    talk.refuse("java.util.ConcurrentModificationException")
    with pytest.raises(IllegalStateError, match="ConcurrentModification"):
        talk.send()


def test_a_link_that_is_lost_before_the_answer_is_taken() -> None:
    """All of it is rolled back, and told once."""
    talk = Talk(TRANSACTED)
    request = answering(talk)
    talk.cut()
    assert isinstance(request.error, ConnectionFailedError)
    assert sent(talk) == ["rolled_back"]
