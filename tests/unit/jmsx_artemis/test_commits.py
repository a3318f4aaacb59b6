"""Commits where ACKs take no part in transactions: first what was sent, then what was received (BROKER.md A26)."""

from __future__ import annotations

import pytest

from jmsx.core.delivery import Held
from jmsx.core.events import (
    MessageSent,
    SubscriptionClosed,
    SubscriptionOpened,
    TransactionEnded,
)
from jmsx.core.frames import Frame, Transmit
from jmsx.core.values import Disposition, Failure
from jmsx.errors import (
    BrokerTimeoutError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx_artemis import DIALECT
from tests.unit.core.harness import TRANSACTED, Talk, outcome, sent, transactions

BEGIN, COMMIT, ABORT = "BEGIN in jmsx", "COMMIT in jmsx ?", "ABORT in jmsx"
OUT = "SEND queue:x 'out' in jmsx"


def talk_with(*messages: str) -> Talk:
    """A transacted session that has received these."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes(*messages)
    talk.drain()
    return talk


def test_nothing_is_acknowledged_before_what_was_sent_is_committed() -> None:
    """A crash between the two delivers again; the other way round it would lose."""
    talk = talk_with("a", "b")
    talk.send()
    request = talk.commit()
    assert talk.wrote() == [BEGIN, OUT, COMMIT]
    assert outcome(request) == "open"
    talk.answer()
    assert talk.wrote() == ["ACK b ?"]
    assert (outcome(request), sent(talk)) == ("open", ["confirmed"])
    talk.answer()
    assert outcome(request) == "done"
    assert talk.ended() == ["a#1 committed", "b#1 committed"]
    assert transactions(talk) == [("committed", 1, 2)]


def test_a_consumer_that_closes_between_the_two_waits_for_the_second() -> None:
    """An ACK behind its UNSUBSCRIBE would settle nothing, and end the link."""
    talk = talk_with("a")
    talk.send()
    request = talk.commit()
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == []
    talk.answer()
    assert talk.wrote() == ["ACK a ?"]
    talk.answer()
    assert (outcome(request), talk.wrote()) == ("done", ["UNSUBSCRIBE 1 ?"])


@pytest.mark.parametrize("linked", [True, False])
def test_a_consumer_that_closes_while_a_commit_is_repeated(*, linked: bool) -> None:
    """The broker does not know it on the new link, and is told nothing of it; the others are subscribed."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    for name in "12":
        talk.subscribe(name)
    talk.comes("a", to="2")
    talk.receive("2")
    talk.send()
    request = talk.commit()
    talk.refuse("AMQ339013 Error committing jmsx")
    talk.cut()
    if not linked:
        talk.core.close_consumer("1", talk.now)
    restored = talk.core.link_opened("Artemis", 0.01, talk.now)
    if linked:
        talk.core.close_consumer("1", talk.now)
    talk.answer()
    assert talk.wrote()[-1] == "SUBSCRIBE 2+again ?"
    talk.answer()
    assert all(one.done and one.error is None for one in restored)
    talk.comes("a", to="2")
    talk.answer()
    talk.answer()
    assert outcome(request) == "done"
    talk.wrote()
    left = [one.headers["id"] for one in talk.frames if one.command == "UNSUBSCRIBE"]
    assert left == ["2+again"]
    assert [one.consumer for one in talk.reported(SubscriptionClosed)] == ["consumer-1"]
    assert [one.consumer for one in talk.reported(SubscriptionOpened)] == [
        f"consumer-{name}" for name in "122"
    ]


def test_nothing_is_acknowledged_once_the_doubt_is_told() -> None:
    """Who was told so gets what was received once more, and the answer may come at last."""
    talk = talk_with("a")
    talk.send()
    request = talk.commit()
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert outcome(request) == "TransactionInDoubtError"
    talk.wrote()
    talk.answer()
    assert talk.wrote() == []


def test_nothing_is_acknowledged_where_a_send_was_refused() -> None:
    """The COMMIT takes the rest, and may be confirmed; what was received comes again, and its doubt is told."""
    talk = talk_with("a")
    talk.send()
    request = talk.commit()
    talk.complain("AMQ339011 Error sending")
    talk.answer()
    assert "ACK a ?" not in talk.wrote()
    assert outcome(request) == "TransactionInDoubtError"


def test_every_consumer_is_acknowledged_and_the_last_one_confirmed() -> None:
    """One cumulative ACK each."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    for name in "12":
        talk.subscribe(name)
        talk.comes(f"a{name}", f"b{name}", to=name)
    talk.drain("1", "2")
    talk.send()
    request = talk.commit()
    talk.answer()
    assert talk.wrote() == [BEGIN, OUT, COMMIT, "ACK b1", "ACK b2 ?"]
    talk.answer()
    assert outcome(request) == "done"


def test_receives_alone_need_no_transaction() -> None:
    """BEGIN and COMMIT around an ACK would do nothing."""
    talk = talk_with("a", "b")
    request = talk.commit()
    assert talk.wrote() == ["ACK b ?"]
    talk.answer()
    assert (outcome(request), transactions(talk)) == ("done", [("committed", 0, 2)])


def test_sends_alone_are_one_step() -> None:
    """As on Classic."""
    talk = talk_with()
    talk.send()
    request = talk.commit()
    talk.answer()
    assert talk.wrote() == [BEGIN, OUT, COMMIT]
    assert (outcome(request), transactions(talk)) == ("done", [("committed", 1, 0)])


@pytest.mark.parametrize("step", [1, 2])
@pytest.mark.parametrize("how", ["cut", "late"])
def test_a_lost_answer_is_in_doubt_in_either_step(step: int, how: str) -> None:
    """Of the second step it is known that what was sent is committed, and said."""
    talk = talk_with("a")
    talk.send()
    request = talk.commit()
    if step == 2:
        talk.answer()
    if how == "cut":
        talk.cut()
    else:
        talk.core.abandon(request, BrokerTimeoutError("COMMIT was not answered"), talk.now)
    assert isinstance(request.error, TransactionInDoubtError)
    assert ("what was sent is committed" in str(request.error)) == (step == 2)
    (ended,) = talk.reported(TransactionEnded)
    assert ended.outcome.value == "in_doubt"
    (told,) = talk.reported(MessageSent)
    assert told.outcome == ("confirmed" if step == 2 else "unconfirmed")
    assert talk.ended() == ["a#1 abandoned"]


def test_rollback_acknowledges_nothing() -> None:
    """What was received comes again from our own memory."""
    talk = talk_with("a", "b")
    talk.send()
    talk.rollback()
    assert talk.wrote() == [BEGIN, OUT, ABORT]
    assert talk.drain() == ["a#2", "b#2"]


# -- the same output of the same input --------------------------------------------------------------------------------


def identities(talk: Talk) -> list[str | None]:
    """The duplicate id of each SEND that was written since the last look."""
    return [
        frame.headers.get("_AMQ_DUPL_ID")
        for action in talk.core.take_actions()
        if isinstance(action, Transmit)
        for frame in action.frames
        if isinstance(frame, Frame) and frame.command == "SEND"
    ]


def test_outputs_are_known_by_their_input() -> None:
    """Each has its input and its number, the same when the input is delivered again, in whatever company."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", "b")
    talk.wrote()
    talk.receive()
    talk.send()
    talk.send()
    talk.receive()
    talk.send()
    first = identities(talk)
    assert len(set(first)) == 3
    assert None not in first
    talk.rollback()
    talk.core.take_actions()
    talk.drain()
    talk.rollback()
    talk.receive()
    talk.core.take_actions()
    talk.send()
    talk.send()
    assert identities(talk) == first[:2]


def outputs_of(*inputs: str) -> list[str | None]:
    """The identities of what is sent for each of `inputs` once all of them are received: a batch."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes(*inputs)
    talk.wrote()
    for one in inputs:
        assert talk.receive() == f"{one}#1"
    talk.core.take_actions()
    for _ in inputs:
        talk.send()
    return identities(talk)


def test_outputs_of_several_inputs_are_known_by_all_of_them() -> None:
    """
    Nobody knows which output is of which input, if they are received together: the broker must not take what is sent
    for other inputs for a repetition, and drop it.
    """
    first = outputs_of("a", "b")
    assert outputs_of("a", "b") == first
    for others in (["c", "b"], ["a", "c"], ["b"], ["a", "b", "c"], ["c", "a", "b"]):
        assert not set(outputs_of(*others)) & set(first)


def test_an_input_that_is_given_back_has_no_outputs() -> None:
    """A `receive()` that raised did not return it, so what was received before is the only input."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", "b")
    found = []
    for _ in range(2):
        talk.receive()
        held = Held()
        assert talk.core.handing_out.deliver(["1"], talk.now, held) is not None
        assert talk.core.take_back(held)
        talk.core.take_actions()
        talk.send()
        found += identities(talk)
        talk.rollback()
    assert found[0] == found[1] == outputs_of("a")[0]


def test_an_input_that_nobody_could_handle_is_one_input_when_it_is_handed_out_again() -> None:
    """Else its output would have another identity, by which the broker does not know the earlier one."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a")
    talk.core.failed(talk.held(), Failure(disposition=Disposition.RELEASE), talk.now)
    assert talk.receive() == "a#1"
    talk.core.take_actions()
    talk.send()
    assert identities(talk) == outputs_of("a")


def test_what_is_given_back_brings_no_input_of_an_older_transaction_back() -> None:
    """Else what is sent without input would be known by an input of before, whose own output the broker drops then."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    talk.send()
    talk.receive()
    talk.rollback()
    talk.core.take_actions()
    held = Held()
    assert talk.core.handing_out.deliver(["1"], talk.now, held) is not None
    assert talk.core.take_back(held)
    talk.core.take_actions()
    talk.send()
    assert identities(talk) == [None]


def test_what_cannot_be_decoded_is_no_input() -> None:
    """It is a dead letter, so that what comes after it comes alone the next time."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("x", "a")
    talk.core.undecodable(talk.held(), LookupError("unknown encoding"), talk.now)
    talk.answer()
    assert talk.receive() == "a#1"
    talk.core.take_actions()
    talk.send()
    assert identities(talk) == outputs_of("a")


def test_an_output_without_an_input_has_no_identity() -> None:
    """Nobody would know it again."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.send()
    assert identities(talk) == [None]


# -- what an older commit may have sent -------------------------------------------------------------------------------

REHEARSAL = [
    "BEGIN in jmsx-rehearsal",
    "SEND queue:x 'out' in jmsx-rehearsal",
    "ABORT in jmsx-rehearsal ?",
]


def test_outputs_of_an_input_that_came_before_are_rehearsed() -> None:
    """Whoever had it may be dead in the middle of a commit, which the broker does not know yet; once will do."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    talk.receive()
    request = talk.send()
    assert request is not None
    assert talk.wrote() == [BEGIN, *REHEARSAL]
    assert outcome(request) == "open"
    talk.answer()
    assert outcome(request) == "done"
    assert talk.send("more") is None
    assert talk.wrote() == [OUT, "SEND queue:x 'more' in jmsx"]
    talk.commit()
    talk.answer()
    talk.answer()
    assert (sent(talk), transactions(talk)) == (["confirmed"] * 2, [("committed", 2, 1)])


def test_each_input_that_came_before_is_one_more_reason() -> None:
    """Its own commit may have been tried after the last rehearsal; the next transaction has none of them."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", "b", redelivered="true")
    talk.comes("c")
    for _ in range(2):
        talk.receive()
        assert talk.send() is not None
        talk.wrote()
        talk.answer()
    talk.commit()
    talk.answer()
    talk.answer()
    talk.receive()
    assert talk.send() is None


def test_input_that_comes_back_to_its_session_unflagged() -> None:
    """The broker flags only the oldest of what a lost link had; the session knows better."""
    talk = talk_with("a")
    talk.send()
    talk.cut()
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    talk.rollback()
    talk.reopen()
    talk.comes("a")
    talk.receive()
    assert talk.send() is not None


def test_link_that_is_lost_at_a_rehearsal() -> None:
    """As anywhere in a transaction: its commit tells."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    talk.receive()
    request = talk.send()
    talk.cut()
    assert request is not None
    assert outcome(request) == "done"
    assert isinstance(talk.commit().error, TransactionRolledBackError)


def test_what_was_not_sent_for_a_rehearsal_that_nobody_answered_is_not_committed() -> None:
    """`send()` has raised; the rest of the transaction is worth what it was."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    talk.receive()
    request = talk.send()
    assert request is not None
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("SEND was not answered"), talk.now)
    assert isinstance(talk.commit().error, TransactionRolledBackError)
    assert OUT not in talk.wrote()


def test_who_does_not_wait_for_a_rehearsal_cannot_commit() -> None:
    """An interrupt may have ended the wait."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    talk.receive()
    talk.send()
    talk.send()
    error = talk.commit().error
    assert isinstance(error, TransactionRolledBackError)
    assert "waits for the broker" in str(error)
    talk.wrote()
    talk.answer()
    talk.answer()
    assert talk.wrote() == []


def test_what_others_send_meanwhile_comes_behind() -> None:
    """Two threads, or tasks, of one handler: neither is refused, and the commit has both."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    talk.receive()
    first, second = talk.send("x"), talk.send("y")
    assert first is not None
    assert second is not None
    talk.wrote()
    talk.answer()
    assert (outcome(first), outcome(second)) == ("done", "open")
    assert [frame for frame in talk.wrote() if "SEND" in frame] == ["SEND queue:x 'x' in jmsx"]
    assert not talk.core.is_rollback_only
    talk.answer()
    assert outcome(second) == "done"
    assert [frame for frame in talk.wrote() if "SEND" in frame] == ["SEND queue:x 'y' in jmsx"]
    talk.commit()
    assert talk.wrote()[-1] == "COMMIT in jmsx ?"
