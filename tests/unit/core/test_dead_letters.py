"""Dead letters: by the broker where NACK makes them, and which messages die."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.core.events import (
    DeadLetterFailed,
    DeliveryEnded,
    DeliveryEndedLate,
    MessageDeadLettered,
)
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    DISCARDED,
    DUPLICATE,
    FAILED_ONCE,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
    copies,
    dead_letters,
)

if TYPE_CHECKING:
    from jmsx.core.modes import AcknowledgeMode

ONCE = at_most(0)


# -- by NACK ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2, 6])
def test_poison_after_the_maximum_and_one_delivery(most: int) -> None:
    """Exactly 1 + maximum_redeliveries deliveries, then the broker's own strategy."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(most))
    talk.comes("a", "b")
    seen = [talk.listen(BROKEN) for _ in range(most + 2)]
    assert seen == [*(f"a#{n}" for n in range(1, most + 2)), "b#1"]
    assert talk.wrote()[0] == "NACK a"
    assert dead_letters(talk)[0] == ("a", most + 1, "max_redeliveries", None, False)
    assert f"a#{most + 1} dead_lettered" in talk.ended()


def test_the_flag_of_the_broker_is_no_attempt() -> None:
    """Perhaps nobody has seen the message before: the dead letter tells of the attempts that the handler's log has."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(2))
    talk.comes("a", redelivered="true")
    assert [talk.listen(BROKEN) for _ in range(3)] == ["a#2", "a#3", "a#4"]
    assert dead_letters(talk)[0] == ("a", 3, "max_redeliveries", None, False)


def test_dead_letter_tells_why() -> None:
    """Class and text of what the handler raised."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    (event,) = talk.reported(MessageDeadLettered)
    assert (event.error_type, event.error_message) == ("ValueError", "no such order")
    assert (event.consumer, event.destination) == ("consumer-1", "queue://q")


def test_for_ever_means_for_ever() -> None:
    """-1 never makes a dead letter."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(-1))
    talk.comes("a")
    for n in range(1, 51):
        assert talk.listen(BROKEN) == f"a#{n}"
    assert talk.receive() == "a#51"
    assert talk.wrote() == ["ACK a"]


def test_whole_batch_dies_by_its_newest() -> None:
    """One NACK for every message that was delivered, though the older one is below its limit."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    talk.comes("b", **FAILED_ONCE)
    talk.drain()
    talk.rollback()
    assert talk.wrote() == ["NACK a", "NACK b"]
    assert [entry[:2] for entry in dead_letters(talk)] == [("a", 1), ("b", 2)]


def test_whole_batch_lives_by_its_newest() -> None:
    """Upstream row 14, to the letter: `1st` reaches count 3 with a maximum of 2, then both die together."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(2))
    talk.comes("1st", "2nd")
    assert talk.drain() == ["1st#1", "2nd#1"]
    talk.rollback()
    assert talk.receive() == "1st#2"
    talk.rollback()
    assert talk.drain() == ["1st#3", "2nd#2"]
    talk.rollback()
    assert talk.drain() == ["1st#4", "2nd#3"]
    assert talk.wrote() == []
    talk.rollback()
    assert talk.drain() == []
    assert talk.wrote() == ["NACK 1st", "NACK 2nd"]


def test_each_consumer_has_its_own_policy() -> None:
    """In one transaction a message of one dies while that of the other comes again."""
    talk = Talk(TRANSACTED)
    talk.subscribe("1", policy=at_most(0))
    talk.subscribe("2", policy=at_most(1))
    talk.comes("a", to="1")
    talk.comes("x", to="2")
    assert talk.drain("1", "2") == ["a#1", "x#1"]
    talk.rollback()
    assert talk.wrote() == ["NACK a"]
    assert talk.drain("1", "2") == ["x#2"]


def test_rollback_aborts_before_it_dead_letters() -> None:
    """NACK in a transaction loses the message (BROKER.md C29)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.receive()
    talk.send()
    talk.rollback()
    assert talk.wrote() == [
        "BEGIN in jmsx",
        "SEND queue:x 'out' in jmsx",
        "ABORT in jmsx",
        "NACK a",
    ]


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL])
def test_rejected_is_a_dead_letter_at_once(mode: AcknowledgeMode) -> None:
    """Whatever the policy says; only that message."""
    talk = Talk(mode)
    talk.subscribe(policy=at_most(6))
    talk.comes("a", "b")
    assert talk.listen(REJECTED) == "a#1"
    assert talk.wrote() == ["NACK a"]
    assert dead_letters(talk) == [("a", 1, "rejected", None, False)]
    assert talk.receive() == "b#1"


def test_rejected_leaves_the_others_in_the_hands_of_the_application() -> None:
    """INDIVIDUAL is where others can be unsettled."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a", "b")
    first, second = talk.held(), talk.held()
    talk.core.consumed(first, talk.now)
    talk.core.failed(second, REJECTED, talk.now)
    assert talk.wrote() == ["NACK b"]
    talk.core.acknowledge(first, talk.now)
    assert talk.wrote() == ["ACK a"]


def test_discarded_is_acknowledged_and_counted() -> None:
    """It is told apart from a message that was done."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b")
    assert talk.listen(DISCARDED) == "a#1"
    assert talk.wrote() == ["ACK a"]
    assert talk.ended() == ["a#1 discarded"]
    assert dead_letters(talk) == []
    assert talk.receive() == "b#1"


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
def test_a_duplicate_is_acknowledged_and_counted(mode: AcknowledgeMode) -> None:
    """In every mode, told apart from a message that was done and from one that failed."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a", **FAILED_ONCE)
    if mode in (AUTO, INDIVIDUAL):
        talk.listen(DUPLICATE)
    else:
        talk.held()
        talk.rollback(DUPLICATE) if mode is TRANSACTED else talk.core.recover(talk.now, DUPLICATE)
    assert talk.wrote() == ["ACK a"]
    assert talk.ended() == ["a#2 duplicate"]
    assert [event.error_type for event in talk.reported(DeliveryEnded)] == [None]


def test_rollback_with_a_verdict_settles_all_that_was_received() -> None:
    """`rollback(Reject(…))` and `rollback(Discard(…))`."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    talk.rollback(REJECTED)
    assert talk.wrote() == ["NACK a", "NACK b"]
    talk.receive()
    talk.rollback(DISCARDED)
    assert talk.wrote() == ["ACK c"]
    assert talk.ended() == ["a#1 dead_lettered", "b#1 dead_lettered", "c#1 discarded"]


# -- over the limit on arrival ----------------------------------------------------------------------------------------


def test_over_the_limit_on_arrival_is_dead_lettered_unseen() -> None:
    """Transacted sessions only (`ActiveMQMessageConsumer.java:556-568`, preDispatchCheck)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a", **FAILED_ONCE)
    talk.comes("b")
    assert talk.receive() == "b#1"
    assert talk.wrote() == ["NACK a"]
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", None, False)]


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL])
def test_other_sessions_do_not_look_on_arrival(mode: AcknowledgeMode) -> None:
    """Source: `ActiveMQMessageConsumer.java:556-568`."""
    talk = Talk(mode)
    talk.subscribe(policy=ONCE)
    talk.comes("a", **FAILED_ONCE)
    assert talk.receive() == "a#2"


def test_look_on_arrival_can_be_switched_off() -> None:
    """Then it is delivered."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0, pre_dispatch_check=False))
    talk.comes("a", **FAILED_ONCE)
    assert talk.receive() == "a#2"


def test_at_the_limit_on_arrival_is_delivered() -> None:
    """Over it is more than the maximum."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", **FAILED_ONCE)
    assert talk.receive() == "a#2"


# -- a NACK that nobody answers ---------------------------------------------------------------------------------------


def unanswered(mode: AcknowledgeMode = AUTO) -> Talk:
    """A session whose NACK of `a` was written when its link was lost; there is a new link."""
    talk = Talk(mode)
    talk.answers_nacks = False
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    assert talk.listen(REJECTED) == "a#1"
    assert talk.wrote() == ["NACK a"]
    assert dead_letters(talk) == []
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.answers_nacks = True
    return talk


def test_nack_that_is_lost_with_its_link_has_dead_lettered_nothing() -> None:
    """Nobody knows what became of the message, so it is no dead letter."""
    talk = unanswered()
    assert dead_letters(talk) == []
    assert talk.ended() == ["a#1 abandoned"]
    (late,) = talk.reported(DeliveryEndedLate)
    assert (late.outcome, late.epoch, late.error_type) == ("in_doubt", 1, REJECTED.error_type)


def test_lost_nack_is_written_again_when_the_message_comes_again() -> None:
    """Flagged, so the broker had it all the time: it is a dead letter unseen, with the reason that it had."""
    talk = unanswered()
    talk.comes("a", **FAILED_ONCE)
    assert talk.take() is None
    assert talk.wrote() == ["NACK a"]
    assert dead_letters(talk) == [("a", 1, "rejected", None, False)]


def test_lost_nack_that_was_done_and_undone() -> None:
    """Not flagged: somebody has moved it back, or the broker has crashed. It is delivered, and has all its chances."""
    talk = unanswered()
    talk.comes("a")
    assert [talk.listen(BROKEN) for _ in range(3)] == ["a#2", "a#3", None]
    assert dead_letters(talk) == [("a", 3, "max_redeliveries", None, False)]


@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED])
def test_no_ack_is_written_before_the_nack_of_what_is_older_is_answered(
    mode: AcknowledgeMode,
) -> None:
    """It would settle that if the NACK is refused, and there would be neither the message nor a dead letter."""
    talk = Talk(mode)
    talk.answers_nacks = False
    talk.subscribe(policy=at_most(0))
    talk.comes("a", "b")
    delivery = talk.held()
    if mode is AUTO:
        talk.core.failed(delivery, BROKEN, talk.now)
    elif mode is CLIENT:
        talk.core.recover(talk.now)
    else:
        talk.rollback()
    assert talk.wrote() == ["NACK a"]
    assert talk.receive() is None
    talk.refuse_nack()
    assert talk.receive() is None


def rejected(*, dead_letter: str = "safe") -> Talk:
    """The first of two messages is rejected, and the broker has not answered its NACK."""
    talk = Talk(AUTO, dead_letter=dead_letter)
    talk.answers_nacks = False
    talk.subscribe()
    talk.comes("a", "b")
    talk.listen(REJECTED)
    return talk


def test_a_nack_that_is_refused_twice_gives_up_the_link() -> None:
    """Classic forgets its id at the first one (C26), and nothing is handed out meanwhile; it comes again then."""
    talk = rejected()
    talk.wrote()
    talk.refuse_nack()
    talk.timer()
    assert talk.wrote() == ["NACK a"]
    talk.refuse_nack()
    assert talk.wrote() == ["DROP"]
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.answers_nacks = True
    talk.comes("a", redelivered="true")
    talk.comes("b")
    assert talk.receive() == "b#1"
    assert talk.wrote() == ["NACK a", "ACK b"]


def refuses_nacks_on_one_link(talk: Talk) -> float:
    """The broker refuses the NACK that is written, and the next one; return the pause between them."""
    assert talk.wrote() == ["NACK a"]
    began = talk.now
    talk.refuse_nack()
    assert talk.wrote() == []
    talk.timer()
    pause = talk.now - began
    assert talk.wrote() == ["NACK a"]
    talk.refuse_nack()
    assert talk.wrote() == ["DROP"]
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.comes("a", redelivered="true")
    talk.comes("b")
    assert talk.receive() is None
    return pause


@pytest.mark.parametrize("answered", [True, False])
def test_a_nack_that_is_refused_leaves_no_doubt(*, answered: bool) -> None:
    """A broker that crashes then gives its message unflagged: it is no new one, unless a NACK may have been done."""
    talk = rejected()
    talk.wrote()
    talk.refuse_nack()
    talk.timer()
    assert talk.wrote() == ["NACK a"]
    if answered:
        talk.refuse_nack()
    talk.lose()
    talk.answers_nacks = True
    talk.comes("a")
    assert talk.drain() == ([] if answered else ["a#2"])


def test_a_broker_that_always_refuses_a_nack_gets_a_copy() -> None:
    """Else the link would be given up again and again, and nothing behind the message would be handed out."""
    talk = rejected()
    for _ in range(2):
        refuses_nacks_on_one_link(talk)
    assert talk.wrote() == copies("a", to="queue:ActiveMQ.DLQ")
    talk.answer()
    talk.answer()
    assert dead_letters(talk) == [("a", 1, "rejected", "queue://ActiveMQ.DLQ", True)]
    assert talk.receive() == "b#1"


def test_a_broker_that_alone_may_dead_letter_is_asked_less_and_less_often() -> None:
    """The application wants no copy: then each refusal doubles the pause, up to some five minutes."""
    talk = rejected(dead_letter="broker")
    pauses = [refuses_nacks_on_one_link(talk) for _ in range(5)]
    assert pauses == [5.0, 20.0, 80.0, 320.0, 320.0]
    assert dead_letters(talk) == []


def test_a_refused_nack_ends_no_transaction() -> None:
    """What another consumer of the session has begun is finished first: its COMMIT would be in doubt."""
    talk = Talk(TRANSACTED)
    talk.answers_nacks = False
    talk.subscribe("1", policy=at_most(0))
    talk.subscribe("2")
    talk.comes("a", to="1")
    assert talk.receive("1") == "a#1"
    talk.rollback()
    talk.wrote()
    talk.refuse_nack()
    talk.send("out")
    talk.wrote()
    talk.timer()
    assert talk.wrote() == ["NACK a"]
    talk.refuse_nack()
    assert talk.wrote() == []
    talk.commit()
    talk.answer()
    talk.wrote()
    talk.timer()
    assert talk.wrote() == ["NACK a"]
    talk.refuse_nack()
    assert talk.wrote() == ["DROP"]


def test_refused_nack_is_tried_again_and_told() -> None:
    """It is no dead letter before the broker says so."""
    talk = Talk(AUTO)
    talk.answers_nacks = False
    talk.subscribe()
    talk.comes("a")
    talk.listen(REJECTED)
    talk.wrote()
    talk.refuse_nack()
    assert len(talk.reported(DeadLetterFailed)) == 1
    assert dead_letters(talk) == []
    talk.answers_nacks = True
    talk.timer()
    assert talk.wrote() == ["NACK a"]
    assert dead_letters(talk) == [("a", 1, "rejected", None, False)]
