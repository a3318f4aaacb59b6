"""A commit whose answer is lost is repeated where `commit_markers` are asked for, by who holds what was received."""

from __future__ import annotations

import pytest

from jmsx.core.commit_repeat import LOOK, PATIENCE
from jmsx.core.process_memory import ProcessMemory
from jmsx.errors import BrokerTimeoutError, LinkError, TransactionInDoubtError
from jmsx_artemis import DIALECT
from tests.unit.core.harness import LINK_ERRORS, TRANSACTED, Talk, outcome, sent, transactions
from tests.unit.jmsx_artemis.repeating import (
    AGAIN,
    NARROW_ENDS,
    REHEARSED,
    marked,
    refuse_commit,
    reopen,
    talk_with,
    wholly,
)


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_lost_answer_is_no_doubt(kind: type[LinkError]) -> None:
    """What was sent is sent again with its identities, once the session holds its input again."""
    talk = marked("a")
    request = talk.commit()
    talk.unanswered(kind)
    assert outcome(request) == "open"
    talk.cut()
    reopen(talk)
    assert (talk.wrote(), outcome(request)) == ([], "open")
    talk.comes("a", redelivered="true")
    assert talk.wrote() == REHEARSED
    talk.answer()
    assert talk.wrote() == [AGAIN]
    talk.answer()
    assert outcome(request) == "done"
    assert talk.drain() == []
    assert talk.wrote() == ["ACK a", NARROW_ENDS]
    wholly(talk)
    assert sent(talk) == ["confirmed"]
    assert transactions(talk) == [("committed", 1, 1)]


@pytest.mark.parametrize("anywhere", [False, True])
def test_a_lost_answer_on_another_broker(*, anywhere: bool) -> None:
    """It knows what was sent if it has taken over from the first one, and only the user knows whether it has."""
    talk = marked("a", anywhere=anywhere)
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now, broker="other:61613")
    assert (talk.wrote() == REHEARSED) == anywhere
    if anywhere:
        assert outcome(request) == "open"
    else:
        assert isinstance(request.error, TransactionInDoubtError)
        assert "resend_unconfirmed=True" in str(request.error)


def test_a_lost_answer_is_a_doubt_while_somebody_else_has_the_input() -> None:
    """He may have sent the same in a transaction that is open."""
    talk = marked("a")
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert isinstance(request.error, TransactionInDoubtError)
    assert "somebody else has it" in str(request.error)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)


@pytest.mark.parametrize("failed_before", [False, True])
def test_what_another_session_of_the_process_was_handed_is_not_waited_for(
    *, failed_before: bool
) -> None:
    """It comes to this session no more; what else the commit received may be kept by the broker for long."""
    memory = ProcessMemory()
    talk, other = marked("a", "b", memory=memory), Talk(TRANSACTED, dialect=DIALECT, memory=memory)
    other.subscribe()
    if failed_before:
        talk.rollback()
        talk.drain()
        talk.send()
        talk.wrote()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.wait_until(2.0)
    assert outcome(request) == "open"
    other.comes("b")
    talk.wait_until(4.0)
    assert outcome(request) == "open"
    assert other.drain() == ["b#2"]
    talk.wait_until(4.0 + LOOK)
    assert isinstance(request.error, TransactionInDoubtError)
    assert "another session of this process has got it" in str(request.error)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_lost_answer_is_a_doubt_where_its_repetition_is_refused(*, subscribed: bool) -> None:
    """What the broker says of the rehearsal tells nothing of the COMMIT that it did not answer."""
    talk = marked("a")
    request = talk.commit()
    talk.cut()
    if subscribed:
        reopen(talk)
        talk.comes("a")
    else:
        talk.wrote()
        talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED
    talk.refuse("AMQ229032 User x does not have permission")
    assert isinstance(request.error, TransactionInDoubtError)
    assert "permission" in str(request.error)
    assert transactions(talk) == [("in_doubt", 1, 0)]


@pytest.mark.parametrize("marker_day", [None, 20_000])
def test_nothing_is_repeated_once_its_doubt_is_told(marker_day: int | None) -> None:
    """Who was told so may send the same in a transaction that is open, and the broker would take both."""
    talk = talk_with("a") if marker_day is None else marked("a")
    request = refuse_commit(talk)
    reopen(talk)
    talk.comes("a")
    assert talk.wrote() == REHEARSED
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert isinstance(request.error, TransactionInDoubtError)
    talk.answer()
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)


def test_a_commit_whose_acks_are_lost_is_done() -> None:
    """But for a link on which they are owed; without one it is in doubt, and the error says which half is."""
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.cut()
    assert outcome(request) == "open"
    talk.reopen()
    assert outcome(request) == "done"
    talk.comes("a")
    assert talk.drain() == []
    assert talk.wrote()[-1] == "ACK a"
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.cut()
    talk.core.give_up(talk.now)
    assert isinstance(request.error, TransactionInDoubtError)
    assert "what was sent is committed" in str(request.error)


def test_what_is_committed_is_refused_no_more() -> None:
    """An ERROR that ends the link behind that is of something else, such as a dead letter that is tried again."""
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.complain("AMQ339011 Error sending message")
    talk.cut()
    talk.reopen()
    assert outcome(request) == "done"
    talk.comes("a", redelivered="true")
    assert talk.drain() == []
    assert talk.wrote()[-1] == "ACK a"


def test_a_commit_whose_acks_are_lost_and_whose_doubt_is_told_owes_none() -> None:
    """What was received is handed out again, as its caller was told."""
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.cut()
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert "may come again" in str(request.error)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.drain() == ["a#2"]


def test_an_input_of_a_lost_answer_that_comes_later_is_committed_as_any() -> None:
    """Perhaps nothing was sent for it, and then all is sent together."""
    talk = marked("a")
    talk.commit()
    talk.cut()
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)
    talk.comes("a", redelivered="true")
    talk.drain()
    talk.send()
    talk.answer()  # it is rehearsed
    talk.wrote()
    talk.commit()
    assert talk.wrote() == ["COMMIT in jmsx ?"]


def test_what_was_sent_before_the_input_is_repeated_with_it() -> None:
    """It has an identity of its transaction."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.send("before")
    talk.comes("a")
    talk.drain()
    talk.send()
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    talk.answer()
    talk.answer()
    talk.comes("a")
    talk.answer()
    assert talk.wrote()[-2:] == ["SEND queue:x 'before'", AGAIN]
    talk.answer()
    assert outcome(request) == "done"


def test_receives_alone_stay_in_doubt() -> None:
    """They may come again to anybody, and nothing of them can be known again."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.comes("a")
    talk.drain()
    request = talk.commit()
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)
