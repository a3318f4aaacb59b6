"""A commit that Artemis refuses, perhaps because it has a part of it, is repeated by who holds what was received."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.commit_repeat import PATIENCE
from jmsx.core.requests import Request
from jmsx.errors import LinkError, TransactionInDoubtError, TransactionRolledBackError
from jmsx_artemis import DIALECT
from tests.depth import some
from tests.unit.core.harness import LINK_ERRORS, TRANSACTED, Talk, outcome, sent, transactions
from tests.unit.interrupts import Alarm, Interrupt
from tests.unit.jmsx_artemis.repeating import (
    AGAIN,
    NARROW_ENDS,
    NOT_TOLD,
    REHEARSED,
    marked,
    refuse_commit,
    reopen,
    talk_with,
    wholly,
)

if TYPE_CHECKING:
    from collections.abc import Callable


def given_up() -> Talk:
    """A commit was refused, and what it received did not come again in time."""
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)
    return talk


def test_a_refused_commit_is_repeated_when_its_inputs_have_come_again() -> None:
    """Not before: somebody else may have sent the same for them; and they are not handed out meanwhile."""
    talk = talk_with("a", "b")
    request = talk.commit()
    talk.refuse(NOT_TOLD)
    assert set(talk.wrote()) == {"COMMIT in jmsx ?", "DROP"}
    talk.cut()
    reopen(talk)
    talk.comes("a", redelivered="true")
    assert talk.drain() == []
    assert (talk.wrote(), outcome(request)) == ([], "open")
    talk.comes("b")
    assert talk.wrote() == REHEARSED
    talk.answer()
    assert talk.wrote() == [AGAIN]
    talk.comes("c", to="1+again")
    assert outcome(request) == "open"
    talk.answer()
    assert outcome(request) == "done"
    assert talk.drain() == []
    assert talk.wrote() == ["ACK b", NARROW_ENDS]
    wholly(talk)
    talk.comes("c")
    assert talk.drain() == ["c#1"]
    assert sent(talk) == ["confirmed"]
    assert transactions(talk) == [("committed", 1, 2)]


def test_an_input_may_come_to_another_consumer_of_the_session() -> None:
    """It is the session's all the same."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    for name in "12":
        talk.subscribe(name)
    talk.comes("a")
    talk.receive()
    talk.send()
    request = refuse_commit(talk)
    talk.reopen()
    talk.answer()
    talk.comes("a", to="2")
    talk.answer()
    talk.answer()
    assert outcome(request) == "done"
    assert talk.drain("1", "2") == []
    assert "ACK a" in talk.wrote()


def test_an_input_that_does_not_come_again_leaves_the_commit_in_doubt() -> None:
    """Somebody else has it; nothing is sent, and the session goes on, also with a consumer that was closed."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    began = talk.now
    reopen(talk)
    talk.core.close_consumer("1", talk.now)
    talk.wait_until(began + PATIENCE - 0.01)
    assert outcome(request) == "open"
    assert talk.timer() == began + PATIENCE
    assert isinstance(request.error, TransactionInDoubtError)
    assert "somebody else has it" in str(request.error)
    assert talk.wrote() == ["UNSUBSCRIBE 1+again ?"]
    assert talk.core.next_timer() is None
    talk.send()
    talk.commit()
    talk.answer()
    talk.answer()
    assert transactions(talk) == [("in_doubt", 1, 0), ("committed", 1, 0)]


def test_an_input_that_comes_later_is_not_refused_again() -> None:
    """Who holds it sends singly at once: each session is refused once at most, and nobody goes round for ever."""
    talk = given_up()
    for expected in ([REHEARSED, [AGAIN], ["ACK a ?"]], [["COMMIT in jmsx ?"], ["ACK b ?"]]):
        name = "a" if len(expected) > 2 else "b"
        talk.comes(name, redelivered="true")
        assert len(talk.drain()) == 1
        talk.send()
        talk.answer()  # it is rehearsed
        talk.wrote()
        request = talk.commit()
        first, *others = expected
        assert [one for one in talk.wrote() if one != "ABORT in jmsx"] == first
        for frames in others:
            talk.answer()
            assert talk.wrote() == frames
        talk.answer()
        assert outcome(request) == "done"
    assert transactions(talk)[1:] == [("committed", 1, 1)] * 2


def test_a_link_that_is_lost_while_all_is_sent_singly() -> None:
    """The next one goes on, when the input has come again."""
    talk = given_up()
    talk.comes("a", redelivered="true")
    talk.drain()
    talk.send()
    talk.answer()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    assert outcome(request) == "open"
    talk.comes("a", redelivered="true")
    talk.answer()
    talk.answer()
    assert outcome(request) == "done"
    assert talk.drain() == []


def test_each_link_has_its_time_to_bring_the_inputs() -> None:
    """And none while there is no link."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    for _ in range(3):
        assert talk.core.next_timer() is None
        talk.now += 60
        reopen(talk)
        talk.wait_until(talk.now + PATIENCE - 0.01)
        assert outcome(request) == "open"
        assert talk.core.next_timer() == talk.now + 0.01
        talk.cut()
    assert outcome(request) == "open"


def come_again() -> tuple[Talk, Request]:
    """A session whose commit was refused without a cause, and whose input has come again on the next link."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    reopen(talk)
    talk.comes("a")
    return talk, request


@pytest.mark.parametrize("rehearsed", [False, True])
def test_what_is_refused_then_is_refused(*, rehearsed: bool) -> None:
    """Of several that are sent singly the first ones may be there, so that is a doubt."""
    talk, request = come_again()
    if rehearsed:
        talk.answer()
    talk.refuse("AMQ229032 User x does not have permission")
    kind = TransactionInDoubtError if rehearsed else TransactionRolledBackError
    assert isinstance(request.error, kind)
    assert "permission" in str(request.error)
    assert "DROP" in talk.wrote()
    talk.cut()
    reopen(talk)
    talk.comes("a")
    assert talk.drain() == ["a#2"]


def test_what_is_refused_on_a_later_link_than_it_was_sent_on_is_a_doubt() -> None:
    """The broker may have some of what was sent singly."""
    talk, request = come_again()
    talk.answer()
    assert talk.wrote()[-1] == AGAIN
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED
    talk.refuse("AMQ229032 User x does not have permission")
    assert isinstance(request.error, TransactionInDoubtError)
    assert sent(talk) == ["unconfirmed"]


def test_nothing_is_owed_an_ack_where_one_of_the_sends_was_refused() -> None:
    """The last one may be confirmed all the same; what was received is handed out again."""
    talk = talk_with("a")
    talk.send("more")
    request = refuse_commit(talk)
    reopen(talk)
    talk.comes("a")
    talk.answer()
    talk.complain("AMQ339011 Error sending")
    talk.answer()
    assert isinstance(request.error, TransactionInDoubtError)
    talk.cut()
    reopen(talk)
    talk.comes("a")
    assert talk.drain() == ["a#2"]


@pytest.mark.parametrize("rehearsed", [False, True])
def test_it_is_repeated_until_it_is_answered(*, rehearsed: bool) -> None:
    """The next link may be lost, too, before or behind the rehearsal."""
    talk = talk_with("a")
    request = talk.commit()
    talk.refuse(NOT_TOLD)
    for _ in range(3):
        talk.cut()
        reopen(talk)
        talk.comes("a")
        assert talk.wrote() == REHEARSED
        if rehearsed:
            talk.answer()
            assert talk.wrote() == [AGAIN]
        assert outcome(request) == "open"
    while outcome(request) == "open":
        talk.answer()
    assert outcome(request) == "done"
    assert sent(talk) == ["confirmed"]


def test_another_broker_cannot_know_what_the_first_one_has() -> None:
    """The doubt stays, and says so; nothing is sent there."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now, broker="other:61613")
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]
    assert isinstance(request.error, TransactionInDoubtError)
    assert "other:61613, to which the session goes now" in str(request.error)


def test_without_another_link_the_doubt_stays() -> None:
    """And is told."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    talk.core.give_up(talk.now)
    assert isinstance(request.error, TransactionInDoubtError)


@pytest.mark.parametrize(
    "told",
    [
        "AMQ229032 User x does not have permission",
        "AMQ229102 Address x is full",
        "AMQ229999 Something else",
    ],
)
def test_what_is_refused_for_another_cause_is_not_repeated(told: str) -> None:
    """Some of what was sent together would be taken singly."""
    talk = talk_with("a")
    request = talk.commit()
    talk.refuse(told)
    assert isinstance(request.error, TransactionRolledBackError)
    talk.cut()
    reopen(talk)
    talk.comes("a")
    assert talk.wrote() == []


def test_a_send_that_was_refused_is_not_repeated() -> None:
    """The rest would be taken without it."""
    talk = talk_with("a")
    request = talk.commit()
    talk.complain("AMQ339011 Error sending")
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)
    reopen(talk)
    talk.comes("a")
    assert talk.wrote() == []


@pytest.mark.parametrize(
    ("told", "kind"),
    [
        ("AMQ339031 Error handling send", TransactionRolledBackError),
        (NOT_TOLD, TransactionInDoubtError),  # it stands for anything
    ],
)
def test_sends_that_are_refused_are_not_repeated(told: str, kind: type[Exception]) -> None:
    """Nothing came of an input, so nothing was there before: one by one, some of them would be sent all the same."""
    talk = talk_with()
    request = talk.commit()
    talk.refuse(told)
    assert isinstance(request.error, kind)


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_send_whose_rehearsal_is_lost_is_not_refused(kind: type[LinkError]) -> None:
    """The commit, which is lost with it, says so."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", redelivered="true")
    assert talk.drain() == ["a#2"]
    request = talk.send()
    assert request is not None
    talk.unanswered(kind)
    assert (request.done, request.error) == (True, None)


# -- that is interrupted -----------------------------------------------------------------------------------------------


def answer_all(talk: Talk) -> None:
    """The broker answers whatever it is asked."""
    talk.wrote()
    while talk._asked:
        talk.answer()
        talk.wrote()


def interrupted(make: Callable[[], Talk], *at: int) -> tuple[Interrupt, Talk]:
    """A commit() is interrupted at these steps, and the driver goes on with another link."""
    talk, interrupt = make(), Interrupt(*at, within=("/jmsx/core/",))
    try:
        interrupt.run(talk.commit)
    except Alarm:
        talk.cut()
        talk.wrote()
        talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
        answer_all(talk)
        talk.comes("a", redelivered="true")
    answer_all(talk)
    return interrupt, talk


def refused_once() -> Talk:
    """As `given_up`, and then the input has come, and something is sent for it."""
    talk = given_up()
    talk.comes("a", redelivered="true")
    talk.drain()
    talk.send()
    answer_all(talk)
    return talk


@pytest.mark.parametrize(
    "make",
    [lambda: talk_with("a"), lambda: marked("a"), refused_once],
    ids=["plain", "marked", "singly"],
)
def test_a_commit_that_is_interrupted_at_any_step(make: Callable[[], Talk]) -> None:
    """It has an end, and the session goes on; the next commit tells if this one was undone."""
    for step in some(range(1, interrupted(make)[0].steps + 1)):
        _, talk = interrupted(make, step)
        assert not talk.core.committing, step
        undone = transactions(talk)[-1][0] == "rolled_back"
        assert (outcome(talk.commit()) == "TransactionRolledBackError") is undone, step
        talk.rollback()
        talk.comes("b")
        assert "b#1" in talk.drain(), step
        talk.send("more")
        answer_all(talk)
        request = talk.commit()
        answer_all(talk)
        assert outcome(request) == "done", step
