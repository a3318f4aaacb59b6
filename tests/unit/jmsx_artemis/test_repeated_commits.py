"""With `commit_markers`: a commit whose answer was lost is done once more on the next link, and never twice."""

from __future__ import annotations

import pytest

from jmsx.errors import TransactionInDoubtError, TransactionRolledBackError
from jmsx_artemis import DIALECT
from tests.unit.core.harness import TRANSACTED, Talk, outcome, sent, transactions

AGAIN = "SEND queue:x 'out' ?"


def talk_with(*messages: str) -> Talk:
    """A transacted session without doubts that has received these, has sent something and commits."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.comes(*messages)
    talk.drain()
    talk.send()
    return talk


@pytest.mark.parametrize("step", [1, 2])
def test_a_lost_answer_is_no_doubt(step: int) -> None:
    """What was sent is sent again with its identities, outside any transaction; what comes again is acknowledged."""
    talk = talk_with("a")
    request = talk.commit()
    if step == 2:
        talk.answer()
    talk.wrote()
    talk.cut()
    assert outcome(request) == "open"
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote()[0] == AGAIN
    talk.answer()
    assert outcome(request) == "done"
    talk.answer()
    talk.comes("a", redelivered="true")
    assert talk.drain() == []
    assert talk.wrote() == ["ACK a"]
    assert sent(talk) == ["confirmed"]
    assert transactions(talk) == [("committed", 1, 1)]


def test_what_comes_of_no_input_can_be_repeated_too() -> None:
    """It has an identity of its transaction, another one for each send and for each transaction."""
    talk = talk_with()
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote()[0] == AGAIN
    talk.answer()
    assert outcome(request) == "done"
    assert transactions(talk) == [("committed", 1, 0)]


def test_it_is_repeated_until_it_is_answered() -> None:
    """The next link may be lost, too."""
    talk = talk_with("a")
    request = talk.commit()
    for _ in range(3):
        talk.cut()
        talk.wrote()
        talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
        assert talk.wrote()[0] == AGAIN
        assert outcome(request) == "open"
    talk.answer()
    assert outcome(request) == "done"


def test_without_another_link_the_doubt_stays() -> None:
    """And is told."""
    talk = talk_with("a")
    request = talk.commit()
    talk.cut()
    talk.core.give_up(talk.now)
    assert isinstance(request.error, TransactionInDoubtError)


def test_another_broker_cannot_know_what_the_first_one_has() -> None:
    """The doubt stays, and says so; nothing is sent there."""
    talk = talk_with("a")
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now, broker="other:61613")
    assert not [frame for frame in talk.wrote() if frame.startswith("SEND")]
    assert isinstance(request.error, TransactionInDoubtError)
    assert "other:61613, to which the session goes now" in str(request.error)


def test_receives_alone_stay_in_doubt() -> None:
    """They may come again to anybody, and nothing of them can be known again."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.comes("a")
    talk.drain()
    request = talk.commit()
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)


def test_sends_that_are_refused_are_rolled_back() -> None:
    """Nothing came of an input, so nothing was there before: one by one, some of them would be sent all the same."""
    talk = talk_with()
    request = talk.commit()
    talk.refuse("AMQ339013 Error committing jmsx")
    assert isinstance(request.error, TransactionRolledBackError)
