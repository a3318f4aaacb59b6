"""A commit that Artemis refuses, perhaps because it has a part of it, is repeated by who holds what was received."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.commit_repeat import LOOK, PATIENCE
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.requests import Request
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    LinkError,
    TransactionInDoubtError,
    TransactionRolledBackError,
)
from jmsx_artemis import DIALECT
from tests.unit.core.harness import LINK_ERRORS, TRANSACTED, Talk, outcome, sent, transactions
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

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


def test_a_session_that_waits_takes_nothing_that_another_one_may_wait_for() -> None:
    """Two that hold each other's inputs would wait until their patience ends; so each gets its own alone."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", jmsx_key="k-1")
    talk.comes("b", timestamp="1700000000001")
    talk.drain()
    talk.send()
    refuse_commit(talk)
    reopen(talk)
    assert [one.headers.get("selector") for one in talk.frames if one.command == "SUBSCRIBE"] == [
        None,
        "convert_string_expressions:AMQTimestamp = 1700000000001 OR jmsx_key = 'k-1'",
    ]
    talk.comes("a", to="1+again", jmsx_key="k-1")
    talk.comes("b", to="1+again", timestamp="1700000000001")
    talk.answer()
    talk.answer()
    assert talk.wrote()[-2:] == ["ACK b", NARROW_ENDS]
    talk.comes("late", to="1+again")  # the broker takes it back with the subscription
    wholly(talk)
    talk.comes("c")
    assert talk.drain() == ["c#1"]


def test_what_has_come_in_vain_comes_again_by_the_whole_subscription() -> None:
    """A queue that gives a group to one subscription would offer what follows to the narrow one, and to nobody else."""
    talk = talk_with("a", "b")
    refuse_commit(talk)
    reopen(talk)
    talk.comes("a", to="1+again")
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    assert talk.drain() == []
    wholly(talk)
    talk.comes("a", "c")
    assert talk.drain() == ["a#2", "c#1"]
    talk.commit()
    assert talk.wrote() == ["ACK c ?"]
    talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_what_came_beside_the_inputs_keeps_its_count() -> None:
    """It is like an input in the filter, and was never handed out: what the session knows of it is not forgotten."""
    talk = talk_with("a")
    talk.comes("x")
    request = refuse_commit(talk)
    reopen(talk)
    talk.comes("a", "x", to="1+again", redelivered="true")
    talk.answer()
    talk.answer()
    assert outcome(request) == "done"
    assert talk.wrote()[-2:] == ["ACK a", NARROW_ENDS]
    wholly(talk)
    talk.comes("x", redelivered="true")
    assert talk.drain() == ["x#1"]


@pytest.mark.parametrize("closed", [False, True])
def test_what_is_done_with_behind_what_is_not_is_not_given_back(*, closed: bool) -> None:
    """
    Whoever got it would do it once more; its ACK would settle what is before it.

    So its subscription stays until all that has come by it is settled: a group that it has is offered to nobody else.
    """
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.comes("x", "a", to="1+again")
    talk.answer()
    talk.answer()
    assert talk.wrote()[-1] == "SUBSCRIBE 1"
    if closed:
        talk.core.close_consumer("1", talk.now)
        assert talk.wrote() == ["UNSUBSCRIBE 1+again", "UNSUBSCRIBE 1 ?"]
        return
    talk.comes("y", to="1+again")
    assert talk.held().message_id == "x"
    talk.commit()
    assert talk.wrote() == ["ACK x ?"]
    talk.answer()
    assert talk.wrote() == []
    assert talk.drain() == ["y#1"]
    talk.commit()
    assert talk.wrote() == ["ACK a", "ACK y ?"]
    talk.answer()
    assert talk.wrote() == ["UNSUBSCRIBE 1+again"]
    talk.comes("late", to="1+again")
    assert talk.drain() == []
    talk.comes("z")
    assert talk.drain() == ["z#1"]
    talk.commit()
    talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK z ?", "UNSUBSCRIBE 1 ?"]


@pytest.mark.parametrize("lost", [False, True])
def test_a_narrow_subscription_whose_end_is_not_confirmed(*, lost: bool) -> None:
    """A consumer that is closed then is not subscribed any more; on another link it gets everything at once."""
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    if lost:
        talk.cut()
        reopen(talk)
        talk.comes("a")
        assert talk.drain() == ["a#2"]
    else:
        assert talk.core.close_consumer("1", talk.now).done
        talk.answer()
        assert talk.wrote() == []


def test_a_session_that_is_closed_while_it_waits() -> None:
    """Its consumer has the narrow subscription alone."""
    talk = talk_with("a")
    refuse_commit(talk)
    reopen(talk)
    talk.core.close(talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1+again ?"]


def test_a_doubt_that_is_told_before_the_session_is_subscribed() -> None:
    """Then it waits for nothing, and gets everything."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert talk.wrote() == REHEARSED
    talk.answer()
    assert talk.wrote() == ["SUBSCRIBE 1 ?"]


def test_a_filter_keeps_what_its_consumer_asked_for() -> None:
    """And names no message where they are too many, or their keys cannot stand in it."""
    narrowed = DIALECT.writing.narrowed
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe()
    talk.comes("a", jmsx_key="it's", timestamp="7")
    delivery = talk.held()
    asked = {"destination": "q", "selector": "convert_string_expressions:x = 1 OR y = 2"}
    assert narrowed(asked, [delivery]) == {
        "destination": "q",
        "selector": "convert_string_expressions:(x = 1 OR y = 2) AND (AMQTimestamp = 7)",
    }
    assert narrowed(asked, [delivery] * 101) is None


@pytest.mark.parametrize(("prefetch", "given"), [(1, "1"), (1000, "511489")])
def test_there_is_room_for_all_that_is_waited_for(prefetch: int, given: str) -> None:
    """None of it is acknowledged before all of it is here, however few messages the consumer has at a time."""
    talk = Talk(TRANSACTED, dialect=DIALECT)
    talk.subscribe(prefetch=prefetch)
    talk.comes("a", "b", "c")
    talk.drain()
    talk.send()
    refuse_commit(talk)
    reopen(talk)
    narrow, whole = talk.frames[-1], talk.frames[0]
    size = 3 * Talk.message("a").size
    assert whole.headers["consumer-window-size"] == given
    assert narrow.headers["consumer-window-size"] == str(max(size, int(given)))


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


def test_nobody_subscribes_on_a_link_that_may_end() -> None:
    """Artemis closes a link on which it refuses; a consumer that it makes meanwhile holds messages for nobody."""
    talk = talk_with("a")
    request = refuse_commit(talk)
    talk.wrote()
    (waiting,) = talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED
    talk.refuse("AMQ229032 User x does not have permission")
    assert isinstance(request.error, TransactionRolledBackError)
    assert set(talk.wrote()) == {"DROP"}
    assert not waiting.done
    talk.cut()
    assert isinstance(waiting.error, ConnectionFailedError)
    reopen(talk)


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


# -- whose answer is lost, with `commit_markers` -----------------------------------------------------------------------


def marked(*messages: str, memory: ProcessMemory | None = None) -> Talk:
    """As `talk_with`, without doubts."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000, memory=memory)
    talk.subscribe()
    talk.comes(*messages)
    talk.drain()
    talk.send()
    assert talk.core.may_commit()
    talk.wrote()
    return talk


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_lost_answer_is_no_doubt(kind: type[LinkError]) -> None:
    """What was sent is sent again with its identities, once the session holds its input again."""
    talk = marked("a")
    request = talk.commit()
    talk.unanswered(kind)
    assert outcome(request) == "open"
    talk.cut()
    reopen(talk)
    assert (talk.wrote(), outcome(request)) == ([], "open")
    talk.comes("a", redelivered="true")
    assert talk.wrote() == REHEARSED
    talk.answer()
    assert talk.wrote() == [AGAIN]
    talk.answer()
    assert outcome(request) == "done"
    assert talk.drain() == []
    assert talk.wrote() == ["ACK a", NARROW_ENDS]
    wholly(talk)
    assert sent(talk) == ["confirmed"]
    assert transactions(talk) == [("committed", 1, 1)]


def test_a_lost_answer_is_a_doubt_while_somebody_else_has_the_input() -> None:
    """He may have sent the same in a transaction that is open."""
    talk = marked("a")
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert isinstance(request.error, TransactionInDoubtError)
    assert "somebody else has it" in str(request.error)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)


@pytest.mark.parametrize("failed_before", [False, True])
def test_what_another_session_of_the_process_was_handed_is_not_waited_for(
    *, failed_before: bool
) -> None:
    """It comes to this session no more; what else the commit received may be kept by the broker for long."""
    memory = ProcessMemory()
    talk, other = marked("a", "b", memory=memory), Talk(TRANSACTED, dialect=DIALECT, memory=memory)
    other.subscribe()
    if failed_before:
        talk.rollback()
        talk.drain()
        talk.send()
        talk.wrote()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.wait_until(2.0)
    assert outcome(request) == "open"
    other.comes("b")
    talk.wait_until(4.0)
    assert outcome(request) == "open"
    assert other.drain() == ["b#2"]
    talk.wait_until(4.0 + LOOK)
    assert isinstance(request.error, TransactionInDoubtError)
    assert "another session of this process has got it" in str(request.error)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)


@pytest.mark.parametrize("subscribed", [False, True])
def test_a_lost_answer_is_a_doubt_where_its_repetition_is_refused(*, subscribed: bool) -> None:
    """What the broker says of the rehearsal tells nothing of the COMMIT that it did not answer."""
    talk = marked("a")
    request = talk.commit()
    talk.cut()
    if subscribed:
        reopen(talk)
        talk.comes("a")
    else:
        talk.wrote()
        talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    assert talk.wrote() == REHEARSED
    talk.refuse("AMQ229032 User x does not have permission")
    assert isinstance(request.error, TransactionInDoubtError)
    assert "permission" in str(request.error)
    assert transactions(talk) == [("in_doubt", 1, 0)]


@pytest.mark.parametrize("marker_day", [None, 20_000])
def test_nothing_is_repeated_once_its_doubt_is_told(marker_day: int | None) -> None:
    """Who was told so may send the same in a transaction that is open, and the broker would take both."""
    talk = talk_with("a") if marker_day is None else marked("a")
    request = refuse_commit(talk)
    reopen(talk)
    talk.comes("a")
    assert talk.wrote() == REHEARSED
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert isinstance(request.error, TransactionInDoubtError)
    talk.answer()
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)


def test_a_commit_whose_acks_are_lost_is_done() -> None:
    """But for a link on which they are owed; without one it is in doubt, and the error says which half is."""
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.cut()
    assert outcome(request) == "open"
    talk.reopen()
    assert outcome(request) == "done"
    talk.comes("a")
    assert talk.drain() == []
    assert talk.wrote()[-1] == "ACK a"
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.cut()
    talk.core.give_up(talk.now)
    assert isinstance(request.error, TransactionInDoubtError)
    assert "what was sent is committed" in str(request.error)


def test_a_commit_whose_acks_are_lost_and_whose_doubt_is_told_owes_none() -> None:
    """What was received is handed out again, as its caller was told."""
    talk = marked("a")
    request = talk.commit()
    talk.answer()
    talk.cut()
    talk.core.abandon(request, BrokerTimeoutError("late"), talk.now)
    assert "may come again" in str(request.error)
    talk.reopen()
    talk.comes("a", redelivered="true")
    assert talk.drain() == ["a#2"]


def test_an_input_of_a_lost_answer_that_comes_later_is_committed_as_any() -> None:
    """Perhaps nothing was sent for it, and then all is sent together."""
    talk = marked("a")
    talk.commit()
    talk.cut()
    reopen(talk)
    talk.wait_until(talk.now + PATIENCE)
    assert talk.wrote() == [NARROW_ENDS]
    wholly(talk)
    talk.comes("a", redelivered="true")
    talk.drain()
    talk.send()
    talk.answer()  # it is rehearsed
    talk.wrote()
    talk.commit()
    assert talk.wrote() == ["COMMIT in jmsx ?"]


def test_what_was_sent_before_the_input_is_repeated_with_it() -> None:
    """It has an identity of its transaction."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.send("before")
    talk.comes("a")
    talk.drain()
    talk.send()
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ-Artemis", 0.01, talk.now)
    talk.answer()
    talk.answer()
    talk.comes("a")
    talk.answer()
    assert talk.wrote()[-2:] == ["SEND queue:x 'before'", AGAIN]
    talk.answer()
    assert outcome(request) == "done"


def test_receives_alone_stay_in_doubt() -> None:
    """They may come again to anybody, and nothing of them can be known again."""
    talk = Talk(TRANSACTED, dialect=DIALECT, marker_day=20_000)
    talk.subscribe()
    talk.comes("a")
    talk.drain()
    request = talk.commit()
    talk.cut()
    assert isinstance(request.error, TransactionInDoubtError)


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
    for step in range(1, interrupted(make)[0].steps + 1):
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
