"""Headers that a Java program's properties may have overwritten on Classic delete nothing; nothing dies unseen."""

from __future__ import annotations

from typing import Any

import pytest

from jmsx.core.dead_letters import RETRY
from jmsx.core.frames import Frame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DeadLetterStrategy
from jmsx_artemis.dialect import DIALECT as ARTEMIS
from tests.unit.core.harness import (
    ASKS_FOR_ROOM,
    AUTO,
    BROKEN,
    CLASSIC,
    CLIENT,
    INDIVIDUAL,
    REJECTED,
    WALL,
    Talk,
    at_most,
    copies,
    dead_letters,
    settled,
)

DLQ = "queue:ActiveMQ.DLQ"
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
    assert dead_letters(talk) == [("java", 1, "expired", "queue://ActiveMQ.DLQ", True)]


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
    talk = Talk(mode)  # type: ignore[arg-type]  # pytest gives it one of the modes above
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
    assert dead_letters(talk) == [("a", 1, "expired", "queue://Expired", True)]


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


UNREAD = "java-ID:host-1-1-1:1:1:1:1"

#: What is written to ask for it.
ASKED = "SUBSCRIBE jmsx-question-1 ?"


def rejecting(mode: AcknowledgeMode) -> Talk:
    """A session that rejects a message without a body, and has another one behind it."""
    talk = Talk(mode, dialect=CLASSIC)
    talk.subscribe(policy=at_most(0))
    talk.comes(UNREAD, "b", body="")
    talk.take()
    talk.core.recover(talk.now, REJECTED)
    return talk


def test_the_broker_is_asked_whether_it_keeps_what_came_without_a_body() -> None:
    """Its headers prove nothing, a selector does; nothing is translated for it, for that may end the link."""
    talk = rejecting(CLIENT)
    assert talk.wrote() == [ASKED]
    asked = talk.frames[-1].headers
    selector = f"JMSMessageID = '{UNREAD}' AND JMSDeliveryMode = 'PERSISTENT'"
    assert (asked["selector"], asked["browser"]) == (selector, "true")
    assert (asked["destination"], "transformation" in asked) == ("/queue/q", False)


def test_what_it_keeps_is_left_to_it() -> None:
    """Whole, and once; an ACK of what comes behind would cover the original, so that waits."""
    talk = rejecting(CLIENT)
    talk.wrote()
    talk.answer()
    assert talk.receive() is None
    talk.comes(UNREAD, to="jmsx-question-1", body="", ack="other", redelivered="true")
    assert talk.wrote() == ["UNSUBSCRIBE jmsx-question-1", *ASKS_FOR_ROOM]
    assert talk.receive() is None
    talk.answer()
    assert talk.wrote() == [f"NACK {UNREAD}"]
    assert [(one[0], one[4]) for one in dead_letters(talk)] == [(UNREAD, False)]
    assert talk.receive() == "b#1"


@pytest.mark.parametrize(
    "shown",
    [
        pytest.param({"browser": "end"}, id="nothing"),
        pytest.param({"message-id": UNREAD, "body": "", "kind": "other"}, id="another message"),
    ],
)
def test_what_it_may_delete_is_copied_before_it_is_left_to_it(shown: dict[str, Any]) -> None:
    """It may be what it says, but the broker does not show it as persistent."""
    talk = rejecting(CLIENT)
    talk.wrote()
    talk.answer()
    talk.comes("0", to="jmsx-question-1", **shown)
    assert talk.wrote() == ["UNSUBSCRIBE jmsx-question-1", "SEND queue:ActiveMQ.DLQ '' ?"]
    assert talk.receive() is None
    talk.answer()
    assert talk.wrote() == [f"NACK {UNREAD}"]
    assert [(one[0], one[4]) for one in dead_letters(talk)] == [(UNREAD, False)]
    assert talk.receive() == "b#1"


@pytest.mark.parametrize("how", ["refused", "silent"])
def test_a_question_without_an_answer_is_none(how: str) -> None:
    """It is copied first, as what is not shown."""
    talk = rejecting(INDIVIDUAL)
    talk.wrote()
    ended = []
    if how == "refused":
        talk.refuse()
    else:
        talk.answer()
        assert talk.timer() == 5.0
        ended = ["UNSUBSCRIBE jmsx-question-1"]
    assert talk.wrote() == [*ended, "SEND queue:ActiveMQ.DLQ '' ?"]
    talk.comes(UNREAD, to="jmsx-question-1", body="")  # late
    assert talk.wrote() == []


@pytest.mark.parametrize("destination", ["/queue/other", "²", ""])
def test_the_question_goes_by_what_its_consumer_reads(destination: str) -> None:
    """A property may overwrite the header."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe(policy=at_most(0))
    talk.comes(UNREAD, body="", destination=destination)
    talk.take()
    talk.core.recover(talk.now, REJECTED)
    assert talk.wrote() == [ASKED]
    assert talk.frames[-1].headers["destination"] == "/queue/q"


def test_where_it_lies_cannot_be_told() -> None:
    """A consumer of several queues has only the header: a copy comes first, and nothing is asked."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC)
    talk.subscribe(policy=at_most(0), destination="queue://q.>")
    talk.answer()
    talk.wrote()
    talk.comes(UNREAD, body="", destination="²")
    talk.take()
    talk.core.recover(talk.now, REJECTED)
    assert talk.wrote() == ["SEND queue:ActiveMQ.DLQ '' ?"]


def test_what_lies_in_the_dead_letter_queue_is_not_left_to_the_broker() -> None:
    """It deletes what comes from there, whatever a header says that it comes from; a copy without its body is left."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=at_most(0), destination="queue://ActiveMQ.DLQ")
    talk.comes(UNREAD, body="", destination="/queue/q")
    talk.take()
    talk.core.recover(talk.now, REJECTED)
    assert "NACK" not in " ".join(talk.wrote())


def test_a_question_dies_with_its_link() -> None:
    """The message comes again, and is asked for again, unseen."""
    talk = rejecting(INDIVIDUAL)
    talk.wrote()
    talk.cut()
    talk.reopen()
    assert talk.wrote() == []
    talk.comes(UNREAD, body="", redelivered="true")
    assert talk.receive() is None
    assert talk.wrote() == ["SUBSCRIBE jmsx-question-2 ?"]


def test_a_consumer_that_closes_waits_for_the_answer() -> None:
    """The NACK of what it has needs its subscription."""
    talk = rejecting(INDIVIDUAL)
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == []
    talk.answer()
    talk.comes(UNREAD, to="jmsx-question-1", body="")
    assert talk.wrote() == ["UNSUBSCRIBE jmsx-question-1", *ASKS_FOR_ROOM]
    talk.answer()
    assert talk.wrote() == [f"NACK {UNREAD}", "SUBSCRIBE jmsx-question-2 ?"]
    talk.comes("0", to="jmsx-question-2", browser="end")
    assert talk.wrote() == ["UNSUBSCRIBE jmsx-question-2", "UNSUBSCRIBE 1 ?"]


def test_a_copy_that_is_refused_keeps_the_original() -> None:
    """It is tried again, and nothing is given to the broker before."""
    talk = rejecting(INDIVIDUAL)
    talk.refuse("no such thing")
    talk.wrote()
    talk.refuse()
    assert (talk.wrote(), dead_letters(talk)) == ([], [])
    talk.wait_until(RETRY)
    assert talk.wrote() == ["SEND queue:ActiveMQ.DLQ '' ?"]
    talk.answer()
    assert talk.wrote()[-1].startswith("NACK java-ID")
