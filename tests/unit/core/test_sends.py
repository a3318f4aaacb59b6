"""What a session sends: who waits for its receipt, and what is told when there is none."""

from __future__ import annotations

import pytest

from jmsx.core.events import MessageSent
from jmsx.core.frames import Frame
from jmsx.errors import (
    BrokerError,
    BrokerTimeoutError,
    LinkError,
    SecurityError,
    SendUnconfirmedError,
)
from jmsx_artemis import DIALECT as ARTEMIS
from tests.unit.core.harness import AUTO, CLASSIC, LINK_ERRORS, TRANSACTED, Talk


def test_persistent_send_is_confirmed() -> None:
    """By receipt: the broker has it on disk (BROKER.md C25)."""
    talk = Talk(AUTO)
    request = talk.send()
    assert request is not None
    assert talk.wrote() == ["SEND queue:x 'out' ?"]
    assert talk.reported(MessageSent) == []
    talk.now = 0.25
    talk.answer()
    assert (request.done, request.error) == (True, None)
    assert talk.reported(MessageSent) == [
        MessageSent(
            at=0.25,
            destination="queue://x",
            message_key="key-1",
            outcome="confirmed",
            started_at=0.0,
            size=3,
        )
    ]


def test_other_send_waits_for_nothing() -> None:
    """As the Java client sends what is not persistent."""
    talk = Talk(AUTO)
    assert talk.send(persistent=False) is None
    assert talk.wrote() == ["SEND queue:x 'out'"]
    assert [event.outcome for event in talk.reported(MessageSent)] == ["unconfirmed"]


def test_refused_send_says_why() -> None:
    """With the broker's words and the destination."""
    talk = Talk(AUTO)
    request = talk.send()
    talk.refuse("ProtocolException: something")
    assert request is not None
    assert isinstance(request.error, BrokerError)
    assert "broker:61613 refused SEND queue://x: ProtocolException: something" in str(request.error)
    assert [event.outcome for event in talk.reported(MessageSent)] == ["error"]


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_send_whose_answer_is_lost_is_not_said_to_have_failed(kind: type[LinkError]) -> None:
    """Nobody knows whether the broker has it, whatever ended the link."""
    talk = Talk(AUTO)
    request = talk.send()
    talk.unanswered(kind)
    assert request is not None
    assert isinstance(request.error, SendUnconfirmedError)
    assert [event.outcome for event in talk.reported(MessageSent)] == ["unconfirmed"]


def test_abandoned_send_keeps_the_link() -> None:
    """Only a COMMIT without an answer makes it useless."""
    talk = Talk(AUTO)
    request = talk.send()
    assert request is not None
    talk.wrote()
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert talk.wrote() == []
    assert isinstance(request.error, BrokerTimeoutError)


def test_own_messages_of_jmsx_are_not_told() -> None:
    """They are asked for, and are in no transaction and no evidence."""
    talk = Talk(TRANSACTED)
    request = talk.core.sending.send_own(Frame("SEND", {"destination": "/queue/own"}, b"x"))
    assert talk.wrote() == ["SEND queue:own 'x' ?"]
    talk.answer()
    assert request.done
    assert talk.reported(MessageSent) == []


def test_a_refusal_ends_the_counting_of_sends() -> None:
    """The broker does not number what it could not read, so what comes behind has a number that nobody here knows."""
    talk = Talk(AUTO)
    talk.send()
    talk.answer()
    assert talk.core.sends == 1

    talk.send()
    talk.refuse()
    talk.send()
    assert talk.core.sends is None

    talk.cut()
    talk.reopen()
    talk.send()
    assert talk.core.sends == 1


def test_a_send_that_is_answered_with_a_fault_is_in_doubt() -> None:
    """The broker may have the message: it was there after a ConcurrentModificationException (measured)."""
    talk = Talk(AUTO, dialect=CLASSIC)
    request = talk.send()
    talk.refuse("java.util.ConcurrentModificationException")
    assert request is not None
    assert isinstance(request.error, SendUnconfirmedError)
    assert "ConcurrentModificationException" in str(request.error)
    assert [event.outcome for event in talk.reported(MessageSent)] == ["unconfirmed"]


def told(talk: Talk) -> list[tuple[type, str | None]]:
    """The class and the message of each refusal that the exception listener hears of."""
    talk.wrote()
    return [(type(one.error), one.message_key) for one in talk.refusals]


def test_what_nobody_waits_for_is_told_if_it_is_refused() -> None:
    """By the exception listener, as in Java: the sender hears nothing."""
    talk = Talk(AUTO, dialect=CLASSIC)
    for text in ("User x is not authorized to write", "java.util.ConcurrentModificationException"):
        talk.send(awaited=False)
        talk.refuse(text)
    assert told(talk) == [(SecurityError, "key-1"), (SendUnconfirmedError, "key-2")]
    assert "refused SEND queue://x: User x is not authorized" in str(talk.refusals[0].error)


def test_who_waits_is_told_alone() -> None:
    """And a lost link is told as such, and not once more for each message that was under way."""
    talk = Talk(AUTO)
    talk.send()
    talk.refuse()
    talk.send(awaited=False)
    talk.answer()
    for _ in range(3):
        talk.send(awaited=False)
    talk.cut()
    assert told(talk) == []


def test_a_refusal_that_names_no_frame_is_told() -> None:
    """As of a message that is not persistent, which asks for no receipt."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.send(persistent=False, awaited=False)
    talk.complain("User x is not authorized to write to: queue://x")
    assert told(talk) == [(SecurityError, None)]
    assert "queue://x" in str(talk.refusals[0].error)


def test_what_is_said_behind_the_end_of_a_connection_is_no_refusal() -> None:
    """Artemis answers so what was written behind a SEND that it refused (BROKER.md A74): the lost link tells enough."""
    talk = Talk(AUTO, dialect=ARTEMIS)
    for _ in range(3):
        talk.send(persistent=False, awaited=False)
    talk.complain("AMQ339011 Error sending message")
    for _ in range(2):
        talk.complain("AMQ339010 Connection is not valid.")
    assert told(talk) == [(BrokerError, None)]


def test_a_refusal_that_comes_too_late_is_told() -> None:
    """Who waited in vain knows only that the message is in doubt."""
    talk = Talk(AUTO, dialect=CLASSIC)
    request = talk.send()
    assert request is not None
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    talk.refuse("User x is not authorized to write to: queue://x")
    assert told(talk) == [(SecurityError, None)]
    assert "a frame that nobody waits for" in str(talk.refusals[0].error)
    assert talk.refusals[0].late


def test_a_refusal_of_an_ack_is_logged_alone() -> None:
    """Where nothing was sent that asks for no receipt; its message comes again."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.send()
    talk.complain("Unexpected ACK received for message-id [null]")
    assert told(talk) == []


def test_a_refusal_in_a_transaction_is_told_by_its_end() -> None:
    """It cannot be committed any more, and says why."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.send(persistent=False)
    talk.complain("refused by the test")
    assert told(talk) == []
    assert "refused by the test" in str(talk.commit().error)


def test_expiry_of_a_send_is_told() -> None:
    """What the broker may throw away is not lost; a time that no calendar has is none."""
    talk = Talk(AUTO)
    for expires in ("1790000000000", "0", "soon"):
        headers = {"destination": "/queue/x", "persistent": "false", "expires": expires}
        talk.core.send(Frame("SEND", headers, b""), "key", "queue://x", 0.0)

    assert [event.expires_ms for event in talk.reported(MessageSent)] == [1790000000000, None, None]


def test_the_cause_of_a_send_is_told() -> None:
    """Alone and in a transaction; nothing of it goes over the wire."""
    for mode in (AUTO, TRANSACTED):
        talk = Talk(mode)
        for cause in ("of it", None):
            headers = {"destination": "/queue/x", "persistent": "false"}
            talk.core.send(Frame("SEND", headers, b""), "key", "queue://x", 0.0, cause_key=cause)
        if mode is TRANSACTED:
            talk.rollback()
        assert [event.cause_key for event in talk.reported(MessageSent)] == ["of it", None]
