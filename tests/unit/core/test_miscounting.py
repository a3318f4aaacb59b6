"""
Behind a NACK Classic may not know any more how many messages a cumulative ACK covers (BROKER.md C75).

Then it refuses each one that is in no transaction, and whatever is acknowledged comes again.
"""

from __future__ import annotations

import pytest

from jmsx.core.modes import AcknowledgeMode
from jmsx.core.values import DeadLetterStrategy
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLASSIC,
    CLIENT,
    DUPS_OK,
    INDIVIDUAL,
    TRANSACTED,
    WALL,
    Talk,
    at_most,
)

ONCE = at_most(0)

ROLLBACK_ONLY = "javax.transaction.xa.XAException: COMMIT FAILED: Transaction marked rollback only xaErrorCode:100"


def talk_of(mode: AcknowledgeMode) -> Talk:
    """A session on Classic with one consumer, whose failures NACK at once."""
    talk = Talk(mode, dialect=CLASSIC, dead_letter=DeadLetterStrategy.BROKER)
    talk.subscribe(policy=ONCE)
    return talk


def acks(name: str) -> list[str]:
    """The frames that acknowledge up to `name` in a transaction of jmsx's own."""
    return ["BEGIN in jmsx-ack", f"ACK {name} in jmsx-ack", "COMMIT in jmsx-ack ?"]


def expire(talk: Talk) -> None:
    """A message comes, and is expired when the application asks for it."""
    talk.comes("x", expires=str(int((WALL + talk.now) * 1000) + 1000))
    talk.now += 2.0
    assert talk.receive() is None
    assert talk.wrote() == ["NACK x"]


def fail(talk: Talk) -> None:
    """A message comes, and its listener raises."""
    talk.comes("x")
    talk.listen(BROKEN)
    assert talk.wrote() == ["NACK x"]


def test_client_acknowledges_in_a_transaction_behind_an_expired_message() -> None:
    """All that it covers, with one ACK."""
    talk = talk_of(CLIENT)
    expire(talk)
    talk.comes("a", "b")
    talk.held()
    talk.core.acknowledge(talk.held(), talk.now)
    assert talk.wrote() == acks("b")


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK], ids=lambda mode: mode.label)
def test_a_receive_acknowledges_in_a_transaction_behind_a_dead_letter(
    mode: AcknowledgeMode,
) -> None:
    """On this link each time, for the broker never counts anew."""
    talk = talk_of(mode)
    fail(talk)
    for name in ("a", "b"):
        talk.comes(name)
        assert talk.receive() == f"{name}#1"
        assert talk.wrote() == acks(name)


def test_what_is_refused_for_all_that_is_acknowledged_on_another_link() -> None:
    """The broker has lost the messages themselves; they are not handed out again."""
    talk = talk_of(AUTO)
    fail(talk)
    talk.comes("a")
    assert talk.receive() == "a#1"
    assert talk.wrote() == acks("a")
    talk.complain(
        'Cannot invoke "org.apache.activemq.command.MessageId.equals(Object)" because ...'
    )
    talk.refuse(ROLLBACK_ONLY)
    talk.wait_until(talk.now + 2.0)
    assert talk.wrote() == ["DROP"]
    talk.lose()
    talk.comes("a", redelivered="true")
    talk.comes("b")
    assert talk.receive() == "b#1"
    assert talk.wrote() == ["ACK a", "ACK b"]


def test_refusals_that_come_one_behind_the_other() -> None:
    """The broker may complain of both before it refuses the first; each is an answer."""
    talk = talk_of(AUTO)
    fail(talk)
    talk.comes("a", "b")
    assert [talk.receive(), talk.receive()] == ["a#1", "b#1"]
    assert talk.wrote() == [*acks("a"), *acks("b")]
    talk.refuse(ROLLBACK_ONLY)
    talk.refuse(ROLLBACK_ONLY)
    talk.lose()
    talk.comes("a", redelivered="true")
    talk.comes("b", redelivered="true")
    talk.comes("c")
    assert talk.receive() == "c#1"


def test_what_is_not_answered_comes_again() -> None:
    """Nobody knows whether it was done, as with a plain ACK."""
    talk = talk_of(AUTO)
    fail(talk)
    talk.comes("a")
    talk.receive()
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


def test_the_next_link_knows_nothing_of_it() -> None:
    """The broker has a new subscription there."""
    talk = talk_of(AUTO)
    fail(talk)
    talk.lose()
    talk.comes("a")
    talk.receive()
    assert talk.wrote() == ["ACK a"]


def test_before_the_first_nack_there_is_no_transaction() -> None:
    """It would have the broker write to its disk each time."""
    talk = talk_of(AUTO)
    talk.comes("a")
    talk.receive()
    assert talk.wrote() == ["ACK a"]


def test_single_acks_cover_nothing_else() -> None:
    """There is nothing to count."""
    talk = talk_of(INDIVIDUAL)
    expire(talk)
    talk.comes("a")
    talk.core.acknowledge(talk.held(), talk.now)
    assert talk.wrote() == ["ACK a"]


def test_another_consumers_ack_stays_plain() -> None:
    """The broker counts for each subscription."""
    talk = talk_of(AUTO)
    talk.subscribe("2")
    fail(talk)
    talk.comes("a", to="2")
    talk.receive("2")
    assert talk.wrote() == ["ACK a"]


def test_a_commit_of_one_receive_is_a_transaction() -> None:
    """Else a lone ACK does."""
    talk = talk_of(TRANSACTED)
    expire(talk)
    talk.comes("a")
    talk.held()
    commit = talk.commit()
    assert talk.wrote() == ["BEGIN in jmsx", "ACK a in jmsx", "COMMIT in jmsx ?"]
    talk.answer()
    assert commit.error is None


def test_a_window_that_is_kept_open_is_let_go_first() -> None:
    """STOMP's bookkeeping does not tell one transaction's ACKs from another's (BROKER.md C30)."""
    talk = talk_of(CLIENT)
    talk.subscribe("2", prefetch=1, non_blocking_redelivery=True)
    talk.comes("held", to="2")
    assert talk.held("2")
    assert talk.receive("2") is None
    talk.wait_until(1.0)
    assert "BEGIN in hold-2" in talk.wrote()
    talk.comes("x", expires=str(int((WALL + talk.now) * 1000) + 1000))
    talk.comes("a")
    talk.now += 2.0
    talk.core.acknowledge(talk.held(), talk.now)
    wrote = talk.wrote()
    assert wrote.index("ABORT in hold-2") < wrote.index("BEGIN in jmsx-ack")
    assert [one for one in wrote if "jmsx-ack" in one] == acks("a")
