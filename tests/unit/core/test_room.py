"""
Classic deletes what is refused by NACK where it has no room for the dead letter, and says nothing (BROKER.md C76).

So it is asked first: a dead letter is sent in a transaction that is aborted.
"""

from __future__ import annotations

from jmsx.core.events import DeliveryEndedLate
from jmsx.core.values import DeadLetterStrategy
from tests.unit.core.harness import (
    ASKS_FOR_ROOM,
    AUTO,
    BROKEN,
    CLASSIC,
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
    """It is no delivery more, and asked again. The broker was not asked to move the message, which is in no doubt."""
    talk = failed()
    talk.wrote()
    talk.lose()
    assert talk.reported(DeliveryEndedLate) == []
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    assert talk.wrote() == ASKS_FOR_ROOM


def test_as_in_java_nothing_is_asked() -> None:
    """Where the broker's own strategy is wanted, whatever it does."""
    assert failed(DeadLetterStrategy.BROKER).wrote() == ["NACK a"]
