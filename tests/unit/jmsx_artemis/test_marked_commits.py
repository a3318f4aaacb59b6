"""Commit markers of sessions that only send, where ACKs take no part in transactions."""

from __future__ import annotations

import pytest

from jmsx.errors import (
    ConnectionFailedError,
    LinkError,
    SecurityError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx_artemis import DIALECT
from tests.unit.core.harness import (
    LINK_ERRORS,
    TRANSACTED,
    Talk,
    marker,
    outcome,
    sent,
    transactions,
)

MARKER = "SEND jmsx.commits ''"
COMMITS = "SUBSCRIBE commits ?"

#: Behind it the disk has all that was committed before.
BARRIER = [
    "BEGIN in jmsx-rehearsal",
    f"{MARKER} in jmsx-rehearsal",
    "ABORT in jmsx-rehearsal ?",
]


def talk_with() -> Talk:
    """A transacted session without consumers, and with a marker in hand, that has sent something."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.send()
    talk.wrote()
    assert not talk.core.may_commit()
    assert talk.wrote() == [COMMITS, f"{MARKER} ?"]
    talk.answer()
    talk.answer()
    marker(talk, 1)
    assert talk.core.may_commit()
    return talk


def reopen(talk: Talk, *, broker: str | None = None) -> None:
    """A new link is up, and the broker confirms what is asked for on it."""
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now, broker=broker)
    frames = talk.wrote()
    assert [one for one in frames if one.startswith("SUBSCRIBE")] == [COMMITS]
    for _ in range(sum(frame.endswith("?") for frame in frames)):
        talk.answer()


def test_the_marker_before_is_acknowledged_when_the_commit_is_confirmed() -> None:
    """An ACK in the transaction would hold at once; its own marker goes with what was sent."""
    talk = talk_with()
    request = talk.commit()
    assert talk.wrote() == [f"{MARKER} in jmsx", "COMMIT in jmsx ?"]
    talk.answer()
    assert talk.wrote() == ["ACK m1"]
    assert outcome(request) == "done"
    assert transactions(talk) == [("committed", 1, 0)]
    talk.send()
    assert not talk.core.may_commit()
    marker(talk, 2)
    assert talk.core.may_commit()
    talk.wrote()
    talk.commit()
    talk.answer()
    assert talk.wrote()[-1] == "ACK m2"


def test_a_marker_of_a_dead_session_does_not_hide_the_one_before() -> None:
    """Its ACK would settle that as well, before the commit is answered; then neither of the two might come again."""
    talk = talk_with()
    talk.rollback()
    talk.cut()
    reopen(talk)
    marker(talk, 1)
    talk.send()
    assert talk.core.may_commit()
    request = talk.commit()
    marker(talk, 7, session="dead")
    talk.wrote()
    marker(talk, 2)  # of this link
    assert talk.wrote() == []
    talk.cut()
    reopen(talk)
    marker(talk, 1)
    assert talk.wrote() == BARRIER
    assert outcome(request) == "open"


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_its_own_marker_says_that_it_was_committed(kind: type[LinkError]) -> None:
    """It is not sent again."""
    talk = talk_with()
    request = talk.commit()
    talk.unanswered(kind)
    talk.cut()
    assert outcome(request) == "open"
    reopen(talk)
    marker(talk, 2)
    assert outcome(request) == "done"
    assert (sent(talk), transactions(talk)) == (["confirmed"], [("committed", 1, 0)])
    assert not [one for one in talk.wrote() if "SEND queue:x" in one]


@pytest.mark.parametrize("committed", [True, False])
def test_the_marker_before_says_only_that_the_old_link_has_ended(*, committed: bool) -> None:
    """The commit may still be on its way to the disk: what comes behind a barrier and a further marker was before."""
    talk = talk_with()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    marker(talk, 1)
    assert talk.wrote() == BARRIER
    talk.answer()
    assert talk.wrote() == [MARKER]
    assert outcome(request) == "open"
    if committed:
        marker(talk, 2)
    marker(talk, 3)
    assert outcome(request) == ("done" if committed else "TransactionRolledBackError")
    talk.send()
    assert talk.core.may_commit()


def test_rolled_back_is_told_on_a_link_that_stays() -> None:
    """The next commit takes the further marker along, and all older ones."""
    talk = talk_with()
    talk.commit()
    talk.cut()
    reopen(talk)
    marker(talk, 1)
    talk.answer()
    marker(talk, 3)
    assert transactions(talk) == [("rolled_back", 1, 0)]
    talk.send()
    assert talk.core.may_commit()
    talk.wrote()
    talk.commit()
    talk.answer()
    assert talk.wrote()[-1] == "ACK m3"
    assert "DROP" not in talk.wrote()


def test_further_markers_of_older_links_say_nothing() -> None:
    """Only behind this link's own is everything that was committed before."""
    talk = talk_with()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    marker(talk, 1)
    talk.answer()
    talk.cut()
    reopen(talk)
    marker(talk, 1, 3)
    assert outcome(request) == "open"
    talk.answer()
    marker(talk, 2, 4)
    assert outcome(request) == "done"


def test_marker_that_was_faster_than_the_answer() -> None:
    """It came on the link that was lost then."""
    talk = talk_with()
    request = talk.commit()
    marker(talk, 2)
    talk.cut()
    assert outcome(request) == "done"


def test_a_failure_that_tells_nothing_is_looked_up() -> None:
    """It stands for anything; a refusal with a cause is one."""
    talk = talk_with()
    request = talk.commit()
    talk.refuse("AMQ339013 Error committing jmsx")
    assert outcome(request) == "open"
    talk.cut()
    reopen(talk)
    marker(talk, 1)
    talk.answer()
    marker(talk, 3)
    assert isinstance(request.error, TransactionRolledBackError)
    talk = talk_with()
    request = talk.commit()
    talk.refuse("AMQ229032 User x does not have permission")
    assert isinstance(request.error, TransactionRolledBackError)


def test_without_another_link_the_doubt_stays() -> None:
    """And is told."""
    talk = talk_with()
    request = talk.commit()
    talk.cut()
    talk.core.give_up(talk.now)
    assert isinstance(request.error, TransactionInDoubtError)


def test_markers_that_the_broker_keeps_for_nobody_leave_the_doubt() -> None:
    """Until nobody waits any longer; then the session asks for a new one, and goes on (BROKER.md A66)."""
    talk = talk_with()
    request = talk.commit()
    talk.cut()
    reopen(talk, broker="backup:61613")
    assert not talk.core.may_commit() or talk.wrote() == []
    talk.core.abandon(request, ConnectionFailedError("too late"), talk.now)
    assert isinstance(request.error, TransactionInDoubtError)
    talk.send()
    talk.wrote()
    assert not talk.core.may_commit()
    assert talk.wrote() == [MARKER]
    marker(talk, 3)
    assert talk.core.may_commit()


def test_a_session_with_a_consumer_has_no_markers() -> None:
    """What was received tells as much; and Artemis may keep a message of two subscriptions for nobody (A66)."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.send()
    talk.wrote()
    assert talk.core.may_commit()
    request = talk.commit()
    assert talk.wrote() == ["COMMIT in jmsx ?"]
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)


def test_an_idle_session_holds_one_marker() -> None:
    """Each link counts what it holds, and the broker would bury it after ten (BROKER.md A43)."""
    talk = talk_with()
    talk.commit()
    talk.answer()
    marker(talk, 2)
    for number in (3, 4):
        talk.cut()
        reopen(talk)
        marker(talk, number - 1)
        assert talk.wrote() == []
        marker(talk, number)
        assert talk.wrote() == [f"ACK m{number - 1}"]
    talk.core.close(talk.now)
    assert talk.wrote() == ["ACK m4"]


@pytest.mark.parametrize("at", ["SUBSCRIBE", "SEND"])
def test_markers_that_are_refused_fail_the_commit_and_no_other_link(at: str) -> None:
    """Each ERROR ends a link; so they are asked for when somebody commits, and not on each link."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    for _ in range(2):
        talk.send()
        assert not talk.core.may_commit()
        if at == "SEND":
            talk.answer()
        talk.refuse("AMQ229213 User: x does not have permission='CONSUME'")
        talk.cut()
        with pytest.raises(SecurityError, match="does not have permission"):
            talk.core.may_commit()
        talk.rollback()
        talk.wrote()
        talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
        assert talk.wrote() == []
