"""With `commit_markers`: a commit whose answer was lost is done once more on the next link, and never twice."""

from __future__ import annotations

import pytest

from jmsx.errors import (
    ConnectionFailedError,
    LinkError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx_artemis import DIALECT
from tests.unit.core.harness import LINK_ERRORS, TRANSACTED, Talk, outcome, sent, transactions

#: What is sent again is rehearsed first, so that the broker knows what it has.
REHEARSED = [
    "BEGIN in jmsx-rehearsal",
    "SEND queue:x 'out' in jmsx-rehearsal",
    "ABORT in jmsx-rehearsal ?",
]
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
    assert talk.wrote() == REHEARSED
    talk.answer()
    assert talk.wrote() == [AGAIN]
    assert outcome(request) == "open"
    talk.answer()
    assert outcome(request) == "done"
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]
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
    assert talk.wrote()[:3] == REHEARSED
    talk.answer()
    assert talk.wrote() == [AGAIN]
    talk.answer()
    assert outcome(request) == "done"
    assert transactions(talk) == [("committed", 1, 0)]


@pytest.mark.parametrize("rehearsed", [False, True])
def test_nobody_subscribes_on_a_link_that_may_end(*, rehearsed: bool) -> None:
    """Artemis closes a link on which it refuses; a consumer that it makes meanwhile holds messages for nobody."""
    talk = talk_with("a")
    request = talk.commit()
    talk.cut()
    talk.wrote()
    waiting = talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED
    if rehearsed:
        talk.answer()
        assert talk.wrote() == [AGAIN]
    talk.refuse("AMQ339040 Error sending")
    assert isinstance(request.error, TransactionRolledBackError)
    assert set(talk.wrote()) == {"DROP"}
    assert [one.done for one in waiting] == [False]
    talk.cut()
    assert isinstance(waiting[0].error, ConnectionFailedError)
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_commit_is_repeated_whatever_ended_the_link(kind: type[LinkError]) -> None:
    """None of them is a refusal, after which sends alone are not repeated."""
    talk = talk_with()
    request = talk.commit()
    talk.unanswered(kind)
    assert outcome(request) == "open"
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_send_whose_rehearsal_is_lost_is_not_refused(kind: type[LinkError]) -> None:
    """The commit, which is lost with it, says so."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    assert talk.drain() == ["a#2"]
    request = talk.send()
    assert request is not None
    talk.unanswered(kind)
    assert (request.done, request.error) == (True, None)


@pytest.mark.parametrize("rehearsed", [False, True])
def test_it_is_repeated_until_it_is_answered(*, rehearsed: bool) -> None:
    """The next link may be lost, too, before or behind the rehearsal."""
    talk = talk_with()
    request = talk.commit()
    for _ in range(3):
        talk.cut()
        talk.wrote()
        talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
        assert talk.wrote()[:3] == REHEARSED
        if rehearsed:
            talk.answer()
            assert talk.wrote() == [AGAIN]
        assert outcome(request) == "open"
    while outcome(request) == "open":
        talk.answer()
    assert outcome(request) == "done"
    assert sent(talk) == ["confirmed"]


def test_a_refused_rehearsal_is_the_end() -> None:
    """What is refused then would be refused again."""
    talk = talk_with()
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    talk.refuse("AMQ339040 Error sending")
    assert AGAIN not in talk.wrote()
    assert isinstance(request.error, TransactionRolledBackError)


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


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("AMQ339031 Error handling send", TransactionRolledBackError),
        ("AMQ339013 Error committing jmsx", TransactionInDoubtError),  # it stands for anything
    ],
)
def test_sends_that_are_refused_are_not_repeated(told: str, kind: type[Exception]) -> None:
    """Nothing came of an input, so nothing was there before: one by one, some of them would be sent all the same."""
    talk = talk_with()
    request = talk.commit()
    talk.refuse(told)
    assert isinstance(request.error, kind)
