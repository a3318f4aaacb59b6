"""Headers that a Java program's properties may have overwritten on Classic delete nothing, and bury nothing unseen."""

from __future__ import annotations

import pytest

from jmsx.core.frames import Frame
from jmsx.core.values import DeadLetterStrategy
from jmsx_artemis.dialect import DIALECT as ARTEMIS
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    INDIVIDUAL,
    REJECTED,
    WALL,
    Talk,
    at_most,
    buried,
    copies,
    settled,
)

GRAVE = "queue:ActiveMQ.DLQ"
SOON = str(int((WALL + 1) * 1000))


@pytest.mark.parametrize("expires", ["1", "1767225600", str(int(WALL * 1000))])
def test_what_expired_before_it_came_is_handed_out(expires: str) -> None:
    """The broker would not have sent it."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("java", expires=expires)
    assert talk.receive() == "java#1"


@pytest.mark.parametrize("persistent", ["true", ""])
def test_what_expires_while_it_waits_is_copied(persistent: str) -> None:
    """It may have, but whether NACK would put it aside or delete it cannot be told."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("java", "b", expires=SOON, persistent=persistent)
    talk.now = 2.0
    assert talk.receive() is None
    assert talk.wrote() == copies("java")
    talk.answer()
    assert talk.wrote() == settled("java")
    talk.answer()
    assert buried(talk) == [("java", 1, "expired", "queue://ActiveMQ.DLQ", True)]


def test_a_stomp_clients_expiry_is_believed() -> None:
    """Its header is the broker's own, whose strategy for expired messages it gets."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", expires=SOON)
    talk.now = 2.0
    assert talk.receive() is None
    assert talk.wrote() == ["NACK a"]


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL], ids=str)
def test_what_says_persistent_is_copied(mode: object) -> None:
    """It may be a property of a message that NACK would delete."""
    talk = Talk(mode)  # type: ignore[arg-type] # parametrized
    talk.subscribe(policy=at_most(0))
    talk.comes("java", persistent="true")
    if mode is AUTO:
        talk.listen(BROKEN)
    else:
        delivery = talk.held()
        talk.core.failed(delivery, BROKEN, talk.now)
    assert talk.wrote() == copies("java")
    talk.answer()
    assert talk.wrote() == settled("java")
    talk.answer()


def test_the_strategy_broker_is_believed() -> None:
    """Who chooses it has chosen what NACK does."""
    talk = Talk(AUTO, dead_letter=DeadLetterStrategy.BROKER)
    talk.subscribe(policy=at_most(0))
    talk.comes("java")
    talk.listen(BROKEN)
    assert talk.wrote() == ["NACK java"]


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_what_expires_on_artemis_lies_where_the_broker_puts_it(persistent: str) -> None:
    """Each message, as the broker does it itself; first the queue is made sure of."""
    talk = Talk(AUTO, dialect=ARTEMIS)
    sure = Frame("SEND", {"destination": "activemq.management"}, b"make it")
    talk.subscribe(expired="queue://Expired", expired_frames=(sure,))
    talk.comes("a", "b", expires=SOON, persistent=persistent)
    talk.now = 2.0
    assert talk.receive() is None
    assert talk.wrote() == ["SEND activemq.management 'make it'", "SEND Expired 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert buried(talk) == [("a", 1, "expired", "queue://Expired", True)]


@pytest.mark.parametrize("persistent", ["true", "false"])
def test_what_expires_where_artemis_has_no_place_for_it(persistent: str) -> None:
    """The broker would delete it; a persistent one becomes a dead letter."""
    talk = Talk(AUTO, dialect=ARTEMIS)
    talk.subscribe()
    talk.comes("a", expires=SOON, persistent=persistent)
    talk.now = 2.0
    assert talk.receive() is None
    copied = persistent == "true"
    assert talk.wrote() == (["SEND ActiveMQ.DLQ 'a' ?"] if copied else ["ACK a"])


def test_what_came_without_a_body_is_copied_before_it_is_left_to_the_broker() -> None:
    """Whether that moves it or deletes it, only a header says that its sender may have written."""
    name = "java-ID:host-1-1-1:1:1:1:1"
    talk = Talk(CLIENT)
    talk.subscribe(policy=at_most(0))
    talk.comes(name, "b", body="")
    talk.take()
    talk.core.recover(talk.now, REJECTED)
    assert talk.wrote() == ["SEND queue:ActiveMQ.DLQ '' ?"]
    assert talk.receive() is None  # an ACK of it would cover the original
    talk.answer()
    assert talk.wrote() == [f"NACK {name}"]
    assert [(one[0], one[4]) for one in buried(talk)] == [(name, False)]
    assert talk.receive() == "b#1"


def test_a_copy_that_is_refused_keeps_the_original() -> None:
    """It is tried again, and nothing is given to the broker before."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=at_most(0))
    talk.comes("java-ID:host-1-1-1:1:1:1:1", body="")
    talk.take()
    talk.core.recover(talk.now, REJECTED)
    talk.refuse()
    assert (talk.wrote(), buried(talk)) == (["SEND queue:ActiveMQ.DLQ '' ?"], [])
    talk.timer()
    talk.answer()
    assert talk.wrote()[-1].startswith("NACK java-ID")
