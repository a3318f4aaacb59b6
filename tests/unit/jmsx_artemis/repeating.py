"""Commits that are repeated on Artemis: sessions that have received and sent something, and what they write then."""

from __future__ import annotations

from jmsx.core.process_memory import ProcessMemory
from jmsx.core.requests import Request
from jmsx_artemis import DIALECT
from tests.unit.core.harness import TRANSACTED, Talk

#: What is sent again is rehearsed first, so that the broker knows what it has.
REHEARSED = [
    "BEGIN in jmsx-rehearsal",
    "SEND queue:x 'out' in jmsx-rehearsal",
    "ABORT in jmsx-rehearsal ?",
]
AGAIN = "SEND queue:x 'out' ?"

#: Then the session no longer gets only what it has waited for; `wholly` has it get everything again.
NARROW_ENDS = "UNSUBSCRIBE 1+again ?"

#: How Artemis refuses a commit with an identity that it has, and others (BROKER.md A34).
NOT_TOLD = "AMQ339013 Error committing jmsx"


def talk_with(*messages: str) -> Talk:
    """A transacted session that has received these, and has sent something."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes(*messages)
    talk.drain()
    talk.send()
    talk.wrote()
    return talk


def refuse_commit(talk: Talk) -> Request:
    """Commit; the broker refuses that, and the link is gone."""
    request = talk.commit()
    talk.refuse(NOT_TOLD)
    talk.cut()
    return request


def reopen(talk: Talk) -> None:
    """
    A new link is up, and the broker confirms every consumer.

    If a commit is to be repeated, it is rehearsed before they are subscribed: that may be refused, and end the link.
    They are subscribed only to what it waits for then.
    """
    talk.wrote()
    requests = talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    frames, subscribed = talk.wrote(), "SUBSCRIBE 1 ?"
    if talk.core.committing:
        assert frames == REHEARSED
        talk.answer()
        frames, subscribed = talk.wrote(), "SUBSCRIBE 1+again ?"
    assert frames == [subscribed]
    talk.answer()
    assert all(request.done for request in requests)


def wholly(talk: Talk) -> None:
    """The broker confirms that the narrow subscription has ended, and the session is given everything again."""
    talk.answer()
    assert talk.wrote() == ["SUBSCRIBE 1"]
    assert "selector" not in talk.frames[-1].headers


def marked(*messages: str, memory: ProcessMemory | None = None, anywhere: bool = False) -> Talk:
    """As `talk_with`, without doubts."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000, memory=memory, anywhere=anywhere)
    talk.subscribe()
    talk.comes(*messages)
    talk.drain()
    talk.send()
    assert talk.core.may_commit()
    talk.wrote()
    return talk
