"""Commit markers: what they say of a commit that lost its link, and that nothing of them is left behind."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import (
    DeliveryEnded,
    LinkClosed,
    MessageSent,
    SubscriptionClosed,
    TransactionEnded,
)
from jmsx.errors import (
    BrokerTimeoutError,
    ConnectionFailedError,
    LinkError,
    SecurityError,
    TransactionInDoubtError,
)
from tests.unit.core.harness import CLASSIC, CLIENT, LINK_ERRORS, TRANSACTED, Talk, marker, outcome

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jmsx.core.requests import Request

MARKER = "SEND queue:jmsx.commits '' in jmsx"

#: A consumer that closes: it leaves when nothing more is on its way.
ASKS_FOR_END = "SUBSCRIBE jmsx-question-1 ?"


def begin(*, today: int = 20_000) -> Talk:
    """A session with a consumer, a message in its transaction, and one marker in hand."""
    talk = Talk(TRANSACTED, marker_day=today, dialect=CLASSIC)
    talk.subscribe()
    talk.comes("a")
    assert talk.receive() == "a#1"
    talk.send()
    talk.wrote()
    assert not talk.core.may_commit()
    assert talk.wrote() == ["SUBSCRIBE commits ?", "SEND queue:jmsx.commits ''"]
    talk.answer()
    marker(talk, 1)
    assert talk.core.may_commit()
    return talk


def reopen(talk: Talk) -> None:
    """A new link is up, and the broker confirms the subscriptions on it."""
    talk.wrote()
    talk.core.link_opened("ActiveMQ/6.1.8", 0.01, talk.now)
    asked = sum(frame.endswith("?") for frame in talk.wrote())
    for _ in range(asked):
        talk.answer()


def outcomes(talk: Talk) -> tuple[list[str], list[str], list[str]]:
    """How the transaction, its message and its send ended."""

    def told(events: Iterable[DeliveryEnded | MessageSent | TransactionEnded]) -> list[str]:
        return [str(event.outcome) for event in events]

    return (
        told(talk.reported(TransactionEnded)),
        told(talk.reported(DeliveryEnded)),
        told(talk.reported(MessageSent)),
    )


def test_marker_goes_with_the_commit_and_the_last_one_goes_away() -> None:
    """In the transaction, both; so either all of it is done, or nothing."""
    talk = begin()
    request = talk.commit()
    assert talk.wrote() == ["ACK a in jmsx", MARKER, "ACK m1 in jmsx", "COMMIT in jmsx ?"]
    assert not request.done
    talk.answer()
    assert outcome(request) == "done"


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_the_marker_tells_whatever_ended_the_link(kind: type[LinkError]) -> None:
    """And not that the broker refused it."""
    talk = begin()
    request = talk.commit()
    talk.unanswered(kind)
    assert outcome(request) == "open"
    talk.cut()
    reopen(talk)
    marker(talk, 2)
    assert outcome(request) == "done"


def test_next_commit_waits_for_the_marker_of_the_last_one() -> None:
    """It comes right behind, also before the answer."""
    talk = begin()
    talk.commit()
    talk.wrote()
    marker(talk, 2)
    talk.answer()
    talk.send()
    assert talk.core.may_commit()
    talk.commit()
    assert talk.wrote()[-3:] == [MARKER, "ACK m2 in jmsx", "COMMIT in jmsx ?"]
    talk.answer()
    talk.send()
    assert not talk.core.may_commit()
    marker(talk, 3)
    assert talk.core.may_commit()


def test_receives_alone_have_a_marker_too() -> None:
    """A plain ACK would do without a transaction, and nobody would know of it."""
    talk = begin()
    talk.rollback()
    talk.receive()
    talk.wrote()
    talk.commit()
    assert talk.wrote() == ["BEGIN in jmsx", "ACK a in jmsx", MARKER, "ACK m1 in jmsx", "COMMIT in jmsx ?"]  # fmt: skip


def test_without_work_there_is_no_marker() -> None:
    """Nor after a rollback, nor where the session only rolls back."""
    talk = Talk(TRANSACTED, marker_day=20_000, dialect=CLASSIC)
    assert talk.core.may_commit()
    assert talk.commit().done
    assert talk.wrote() == []
    assert Talk(CLIENT, marker_day=20_000, dialect=CLASSIC).core.next_timer() is None


@pytest.mark.parametrize("seen", [(2,), (2, 4), (4, 2)])
def test_its_own_marker_says_that_it_was_committed(seen: tuple[int, ...]) -> None:
    """commit() returns as if its answer had come, and the evidence says so; a second loss on the way is no matter."""
    talk = begin()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.cut()
    reopen(talk)
    assert not request.done
    assert talk.take() is None  # nothing is handed out before this is clear
    marker(talk, *seen)
    assert outcome(request) == "done"
    assert outcomes(talk) == (["committed"], ["committed"], ["confirmed"])
    talk.send()
    assert talk.core.may_commit()


def test_a_lost_link_tells_that_a_commit_is_in_doubt() -> None:
    """Each time, until one has told how it ended."""
    talk = begin()
    talk.commit()
    for _ in range(2):
        talk.cut()
        reopen(talk)
    assert talk.reported(TransactionEnded) == []
    marker(talk, 2)
    assert len(talk.reported(TransactionEnded)) == 1
    talk.cut()
    assert [event.in_doubt for event in talk.reported(LinkClosed)] == [True, True, False]


def test_marker_of_the_last_commit_says_that_it_was_rolled_back() -> None:
    """It was acknowledged in the transaction, so only a rollback brings it again."""
    talk = begin()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.comes("a", redelivered="true")
    assert talk.take() is None
    marker(talk, 1)
    assert outcome(request) == "TransactionRolledBackError"
    assert "broker:61613" in str(request.error)
    assert outcomes(talk) == (["rolled_back"], ["abandoned"], ["rolled_back"])
    assert "DROP" not in talk.wrote()
    assert talk.receive() == "a#2"
    assert talk.core.may_commit()
    talk.commit()
    assert talk.wrote()[-3:] == [MARKER, "ACK m1 in jmsx", "COMMIT in jmsx ?"]


def test_a_lost_link_is_no_failure_of_what_its_marker_tells_of() -> None:
    """Only the link has failed, however often; what the broker refuses counts, with markers and without."""
    talk = begin()
    for losses in range(3):
        request = talk.commit()
        talk.wrote()
        talk.cut()
        reopen(talk)
        marker(talk, 1)
        assert outcome(request) == "TransactionRolledBackError"
        talk.comes("a", redelivered="true")
        delivery = talk.take()
        assert delivery is not None
        assert (delivery.failures, delivery.delivery_count) == (0, losses + 2)
        talk.send()
        assert talk.core.may_commit()
        talk.wrote()


def test_marker_that_was_faster_than_the_answer() -> None:
    """It came on the link that was lost then."""
    talk = begin()
    request = talk.commit()
    talk.wrote()
    marker(talk, 2)
    talk.cut()
    assert outcome(request) == "done"
    assert outcomes(talk)[0] == ["committed"]


@pytest.mark.parametrize("told", [True, False])
def test_a_consumer_that_closed_meanwhile_is_closed_then(*, told: bool) -> None:
    """Also if the commit was rolled back, or nobody ever tells: the link stays, and it is read no more."""
    talk = begin()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == []
    if told:
        marker(talk, 1)
    else:
        talk.core.abandon(request, BrokerTimeoutError("too late"), talk.now)
    assert request.done
    assert talk.wrote() == [ASKS_FOR_END]


@pytest.mark.parametrize("kind", LINK_ERRORS)
def test_a_consumer_that_closed_is_told_as_closed_when_its_link_is_lost(
    kind: type[LinkError],
) -> None:
    """Its transaction ends with the link; nothing is read on the next one."""
    talk = begin()
    talk.core.close_consumer("1", talk.now)
    talk.unanswered(kind)
    talk.cut()
    assert len(talk.reported(SubscriptionClosed)) == 1
    assert not talk.core.is_open("1")


def test_markers_of_others_say_nothing() -> None:
    """They are orphans, and go with the next commit."""
    talk = begin()
    request = talk.commit()
    talk.cut()
    reopen(talk)
    marker(talk, 1, 2, session="dead")
    assert not request.done
    marker(talk, 1)
    assert outcome(request) == "TransactionRolledBackError"


def test_doubt_that_nobody_clears_up_stays_one() -> None:
    """The broker is gone for good, or too slow; the error says that nobody knows."""
    for late in (True, False):
        talk = begin()
        request = talk.commit()
        talk.cut()
        talk.wrote()
        if late:
            talk.core.abandon(request, ConnectionFailedError("too late"), talk.now)
        else:
            talk.core.give_up(talk.now)
        assert isinstance(request.error, TransactionInDoubtError)
        assert outcomes(talk) == (["in_doubt"], ["abandoned"], ["unconfirmed"])
        assert talk.wrote() == []
        reopen(talk)
        marker(talk, 2)
        assert isinstance(request.error, TransactionInDoubtError)
        talk.send()
        assert talk.core.may_commit()


def test_session_goes_on_after_a_doubt_that_another_broker_cannot_clear_up() -> None:
    """Neither marker is there, nor will be: it asks for a new one. The error names who was asked to commit."""
    talk = begin()
    request = talk.commit()
    talk.cut()
    talk.wrote()
    talk.core.link_opened("ActiveMQ/6.1.8", 0.01, talk.now, broker="other:61613")
    for _ in range(sum(frame.endswith("?") for frame in talk.wrote())):
        talk.answer()
    assert not talk.core.may_commit()
    assert talk.wrote() == []  # while it may still be cleared up
    assert "a bridge of a network of brokers has moved it" in talk.core.lacks_marker
    talk.core.abandon(request, BrokerTimeoutError("too late"), talk.now)
    assert talk.core.lacks_marker == ""
    assert "was committed by broker:61613" in str(request.error)
    talk.send()
    talk.wrote()
    assert not talk.core.may_commit()
    assert not talk.core.may_commit()
    assert talk.wrote() == ["SEND queue:jmsx.commits ''"]
    marker(talk, 3)
    assert talk.core.may_commit()
    talk.commit()
    assert talk.wrote() == [MARKER, "ACK m3 in jmsx", "COMMIT in jmsx ?"]


def test_refused_commit_is_refused_with_markers_too() -> None:
    """The answer has come, and there is nothing to look for."""
    talk = begin()
    request = talk.commit()
    talk.wrote()
    talk.refuse()
    assert outcome(request) == "TransactionRolledBackError"
    assert talk.wrote() == ["DROP"]


def test_markers_that_are_refused_fail_the_commit() -> None:
    """Before anything is committed; with the broker's own words."""
    talk = Talk(TRANSACTED, marker_day=20_000, dialect=CLASSIC)
    talk.send()
    assert not talk.core.may_commit()
    talk.refuse(
        "java.lang.SecurityException: User x is not authorized to read from queue://jmsx.commits"
    )
    with pytest.raises(SecurityError, match="not authorized"):
        talk.core.may_commit()


def test_session_that_closes_takes_its_marker_along() -> None:
    """Nothing is left in the queue, nor asked of the broker twice."""
    talk = begin()
    talk.core.close(talk.now)
    assert talk.wrote() == ["ABORT in jmsx", "ACK m1", ASKS_FOR_END]
    talk = begin()
    talk.commit()
    talk.wrote()
    talk.answer()
    talk.core.close(talk.now)
    assert talk.wrote() == [ASKS_FOR_END]


def test_closing_ends_the_doubt() -> None:
    """Whoever waits for the commit is told that it is in doubt."""
    talk = begin()
    request: Request = talk.commit()
    talk.cut()
    talk.core.close(talk.now)
    assert isinstance(request.error, TransactionInDoubtError)


def test_marked_session_stays_on_its_link() -> None:
    """Its marker would be nobody's."""
    talk = Talk(TRANSACTED, marker_day=20_000, dialect=CLASSIC)
    talk.send()
    talk.core.may_commit()
    talk.answer()
    marker(talk, 1)
    talk.commit()
    talk.wrote()
    talk.answer()
    assert not talk.core.idle


def test_orphans_are_those_of_a_week_ago() -> None:
    """Of sessions that died: nobody else acknowledges their markers."""
    talk = Talk(TRANSACTED, marker_day=20_007, dialect=CLASSIC)
    talk.send()
    talk.core.may_commit()
    frames = [
        frame for action in talk.core.take_actions() for frame in getattr(action, "frames", ())
    ]
    (subscribe,) = [frame for frame in frames if frame.command == "SUBSCRIBE"]
    assert subscribe.headers["selector"] == "jmsx_session = 's' OR jmsx_day < 20000.0"
    assert frames[-1].headers["jmsx_day"] == "20007"
    assert frames[-1].headers["persistent"] == "true"
