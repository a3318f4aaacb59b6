"""Dead letters that nobody saw when they came last: they tell of the deliveries that the application has seen."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.events import MessageDeadLettered
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.process_memory import ProcessMemory
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT as CLASSIC
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    DUPS_OK,
    REJECTED,
    TRANSACTED,
    WALL,
    Talk,
    at_most,
)
from tests.unit.core.test_ledger import Book, Counted

if TYPE_CHECKING:
    from jmsx.core.dialect import Dialect

DIALECTS = pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
MODES = pytest.mark.parametrize("mode", AcknowledgeMode)


def start(mode: AcknowledgeMode, dialect: Dialect, book: Book | None, **settings: Any) -> Talk:
    """A session that gives up at the second failure."""
    if book is None:
        talk = Talk(mode, dialect=dialect, dead_letter="queue://dead", **settings)
    else:
        talk = Counted(mode, book, dialect=dialect, dead_letter="queue://dead", **settings)
    talk.subscribe(policy=at_most(1))
    return talk


def fail(talk: Talk, failure: Any) -> None:
    """Have the next message fail."""
    if talk.mode in (CLIENT, TRANSACTED):
        talk.held()
        (talk.rollback if talk.mode is TRANSACTED else lambda x: talk.core.recover(talk.now, x))(
            failure
        )
    else:
        talk.listen(failure)


def copied(talk: Talk) -> list[str]:
    """How often the message was delivered, by each copy that was written."""
    talk.wrote()
    counts = (frame.headers.get("jmsx_delivery_count") for frame in talk.frames)
    return [count for count in counts if count is not None]


@DIALECTS
@MODES
@pytest.mark.parametrize("who", ["its session", "another session", "another process"])
@pytest.mark.parametrize("counted", [False, True], ids=["no ledger", "ledger"])
@pytest.mark.parametrize(("failure", "seen"), [(BROKEN, 2), (REJECTED, 1)])
def test_a_copy_whose_link_was_lost_is_made_again(
    dialect: Dialect, mode: AcknowledgeMode, who: str, *, counted: bool, failure: Any, seen: int
) -> None:
    """However often that happens, it says the same."""
    if who == "another process" and (not counted or failure is REJECTED):
        return  # it does not know that it is a dead letter
    book = Book() if counted else None
    memory = ProcessMemory()
    first = start(mode, dialect, book, memory=memory)
    first.comes("a")
    for _ in range(seen):
        fail(first, failure)
    talks = [first]
    for _ in range(3):
        talks[-1].cut()
        talks[-1].wrote()
        if who == "its session":
            first.reopen()
        else:
            other = memory if who == "another session" else ProcessMemory()
            talks.append(start(mode, dialect, book, memory=other))
        talks[-1].comes("a", redelivered="true")
        assert talks[-1].take() is None
    assert [count for talk in talks for count in copied(talk)] == [str(seen)] * 4
    last = talks[-1]
    last.answer()
    last.wrote()
    if dialect.transactional_ack:
        last.answer()
    (dead,) = last.reported(MessageDeadLettered)
    assert dead.attempts == seen
    assert last.ended()[-1] == f"a#{seen + 1} dead_lettered"


@DIALECTS
@MODES
def test_over_the_limit_when_it_comes(dialect: Dialect, mode: AcknowledgeMode) -> None:
    """Two processes had it and died; a third one's copies are lost with their links, and a fourth makes the last."""
    book = Book(a=2)
    talks = [start(mode, dialect, book) for _ in range(3)]
    for talk in talks:
        talk.comes("a", redelivered="true")
        assert talk.take() is None
        talk.cut()
        talk.wrote()
    assert [count for talk in talks for count in copied(talk)] == ["2"] * 3


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
@pytest.mark.parametrize("persistent", ["true", "false"])
def test_an_expired_message_settles_nothing_twice(mode: AcknowledgeMode, persistent: str) -> None:
    """What was consumed before it is acknowledged first: Artemis ends the link for an ACK of what is settled."""
    talk = Talk(mode, dialect=ARTEMIS)
    talk.subscribe(dead_letter_queue="queue://DLQ")
    talk.comes("a")
    talk.comes("b", expires=str(round((WALL + 2) * 1000)), persistent=persistent)
    talk.listen()
    talk.now = 2.001
    assert talk.listen() is None
    if persistent == "true":
        talk.answer()
    if talk.core.next_timer() is not None:
        talk.timer()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK a", "ACK b"]
