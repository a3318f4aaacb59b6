"""
Classic deletes what is refused by NACK where it has no room for the dead letter, and says nothing (BROKER.md C76).

So it is asked first: a dead letter is sent in a transaction that is aborted.
"""

from __future__ import annotations

import pytest

from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DeadLetterStrategy
from jmsx.errors import InvalidSelectorError
from tests.unit.core.harness import (
    ASKS_FOR_ROOM,
    AUTO,
    BROKEN,
    CLASSIC,
    INDIVIDUAL,
    Talk,
    at_most,
    dead_letters,
)

FULL = "jakarta.jms.ResourceAllocationException: Persistent store is Full, 100% of 9437184"


def failed(dead_letter: str = DeadLetterStrategy.SAFE) -> Talk:
    """A session whose only message has failed for good."""
    talk = Talk(AUTO, dialect=CLASSIC, dead_letter=dead_letter)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    talk.listen(BROKEN)
    return talk


def test_room_is_asked_for_first() -> None:
    """What comes behind waits until the broker has the dead letter."""
    talk = failed()
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.comes("b")
    assert talk.receive() is None
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert talk.receive() == "b#1"
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", None, False)]


def test_without_room_the_message_stays() -> None:
    """And is tried again after a while."""
    talk = failed()
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.refuse(FULL)
    talk.wait_until(talk.now + 4.9)
    assert talk.wrote() == []
    assert dead_letters(talk) == []
    talk.wait_until(talk.now + 0.2)
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert len(dead_letters(talk)) == 1


def test_what_does_not_tell_that_there_is_no_room() -> None:
    """Who may not send to that queue may have the broker do so."""
    talk = failed()
    talk.wrote()
    talk.refuse("User clerk is not authorized to write to: queue://ActiveMQ.DLQ")
    assert talk.wrote() == ["NACK a"]


def test_a_link_that_is_lost_meanwhile() -> None:
    """It is no delivery more, and asked again."""
    talk = failed()
    talk.wrote()
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    assert talk.wrote() == ASKS_FOR_ROOM


def test_as_in_java_nothing_is_asked() -> None:
    """Where the broker's own strategy is wanted, whatever it does."""
    assert failed(DeadLetterStrategy.BROKER).wrote() == ["NACK a"]


MEMORY = "jakarta.jms.ResourceAllocationException: Usage Manager Memory Limit reached on queue://ActiveMQ.DLQ"


def test_memory_that_is_short_keeps_no_dead_letter_away() -> None:
    """The broker has the dead letter all the same, and deletes nothing."""
    talk = failed()
    talk.wrote()
    talk.refuse(MEMORY)
    assert talk.wrote() == ["NACK a"]
    assert len(dead_letters(talk)) == 1


def test_a_question_that_waits_for_memory() -> None:
    """It is over when its transaction has ended; a late answer is nobody else's, and spoils nothing."""
    talk = failed()
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer_aborts()
    assert talk.wrote() == ["NACK a"]
    assert len(dead_letters(talk)) == 1
    wanted = talk.core.subscribe(talk.settings("2", destination="queue://a.>"), talk.now)
    talk.complain("jakarta.jms.InvalidSelectorException: odd")  # names no receipt: the SUBSCRIBE's
    assert isinstance(wanted.error, InvalidSelectorError)
    talk.refuse("jakarta.jms.JMSException: Send transaction completed while waiting for space")
    assert "DROP" not in talk.wrote()


def expired(mode: AcknowledgeMode, dead_letter: str = DeadLetterStrategy.SAFE) -> Talk:
    """A session that has found a message expired, before another one."""
    talk = Talk(mode, dialect=CLASSIC, dead_letter=dead_letter)
    talk.subscribe()
    talk.comes("a", expires="1")
    talk.comes("b")
    return talk


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL])
def test_room_for_what_has_expired_is_asked_for_first(mode: AcknowledgeMode) -> None:
    """Its NACK would delete it, too."""
    talk = expired(mode)
    got = talk.receive()
    assert got == ("b#1" if mode is INDIVIDUAL else None)
    assert talk.wrote() == ASKS_FOR_ROOM
    assert talk.ended() == []
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert talk.ended() == ["a#1 expired"]
    assert dead_letters(talk) == []
    assert got or talk.receive() == "b#1"


def test_without_room_what_has_expired_stays() -> None:
    """And no ACK covers it."""
    talk = expired(AUTO)
    talk.receive()
    talk.wrote()
    talk.refuse(FULL)
    assert talk.receive() is None
    talk.wait_until(talk.now + 5.1)
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert talk.receive() == "b#1"


def test_what_has_expired_when_the_link_is_lost() -> None:
    """It comes again, and is as expired as before."""
    talk = expired(AUTO)
    talk.receive()
    talk.lose()
    talk.comes("a", redelivered="true", expires="1")
    talk.wrote()
    talk.receive()
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert talk.ended()[-1] == "a#1 expired"
    assert dead_letters(talk) == []


def test_one_question_for_several() -> None:
    """Where messages are settled singly, what is found while the broker has not answered goes with the first."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe()
    talk.comes("a", expires="1")
    talk.comes("b", expires="1")
    assert talk.receive() is None
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer()
    assert talk.wrote() == ["NACK a", "NACK b"]


def test_the_brokers_own_strategy_asks_for_nothing() -> None:
    """Whatever it does with what has expired."""
    talk = expired(AUTO, DeadLetterStrategy.BROKER)
    assert talk.receive() == "b#1"
    assert talk.wrote()[0] == "NACK a"


def test_a_nack_that_was_refused_asks_again() -> None:
    """There may be no room any more; its message left the window with the first NACK."""
    talk = failed()
    talk.answers_nacks = False
    talk.wrote()
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    talk.refuse_nack()
    talk.wait_until(talk.now + 5.1)
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.refuse(FULL)
    talk.wait_until(talk.now + 5.1)
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer()
    assert talk.wrote() == ["NACK a"]
