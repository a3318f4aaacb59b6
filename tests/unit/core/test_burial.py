"""Dead letters: who is buried how, and that no original is acknowledged before its copy is confirmed."""

from __future__ import annotations

import pytest

from jmsx.core.events import DeadLetterFailed, MessageDeadLettered, SubscriptionClosed
from jmsx.core.values import NO_FAILURE, AcknowledgeMode, DeadLetterStrategy, DestinationKind
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    DISCARDED,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
)

ONCE = at_most(0)
GRAVE = "queue:ActiveMQ.DLQ"


def buried(talk: Talk) -> list[tuple[str, int, str, str | None, bool]]:
    """Message, attempts, reason, grave and whether by copy, of each dead letter so far."""
    return [
        (e.message_id, e.attempts, e.reason, e.dead_letter_destination, e.by_copy)
        for e in talk.reported(MessageDeadLettered)
    ]


# -- by NACK ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("most", [0, 1, 2, 6])
def test_poison_after_the_maximum_and_one_delivery(most: int) -> None:
    """Exactly 1 + maximum_redeliveries deliveries, then the broker's own strategy (DESIGN.md section 9)."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(most))
    talk.comes("a", "b")
    seen = [talk.listen(BROKEN) for _ in range(most + 2)]
    assert seen == [*(f"a#{n}" for n in range(1, most + 2)), "b#1"]
    assert talk.wrote()[0] == "NACK a"
    assert buried(talk)[0] == ("a", most + 1, "max_redeliveries", None, False)
    assert talk.ended()[most] == f"a#{most + 1} dead_lettered"


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
    """-1 never buries (upstream row 9)."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(-1))
    talk.comes("a")
    for n in range(1, 51):
        assert talk.listen(BROKEN) == f"a#{n}"
    assert talk.receive() == "a#51"
    assert talk.wrote() == ["ACK a"]


def test_whole_batch_dies_by_its_newest() -> None:
    """One NACK each, of every message that was delivered; the older one is below its limit (classic.md 1.4)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    talk.comes("b", redelivered="true")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == ["NACK a", "NACK b"]
    assert [entry[:2] for entry in buried(talk)] == [("a", 1), ("b", 2)]


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
    """In one transaction a message of one dies while that of the other comes again (classic.md 1.4 step 6)."""
    talk = Talk(TRANSACTED)
    talk.subscribe("1", policy=at_most(0))
    talk.subscribe("2", policy=at_most(1))
    talk.comes("a", to="1")
    talk.comes("x", to="2")
    assert talk.drain("1", "2") == ["a#1", "x#1"]
    talk.rollback()
    assert talk.wrote() == ["NACK a"]
    assert talk.drain("1", "2") == ["x#2"]


def test_rollback_aborts_before_it_buries() -> None:
    """NACK in a transaction loses the message (probes-classic.md part 2)."""
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
    assert buried(talk) == [("a", 1, "rejected", None, False)]
    assert talk.receive() == "b#1"


def test_rejected_leaves_the_others_in_the_hands_of_the_application() -> None:
    """Source: DESIGN.md section 6; INDIVIDUAL is where others can be unsettled."""
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
    assert buried(talk) == []
    assert talk.receive() == "b#1"


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


# -- by copy ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"persistent": ""}, id="not persistent"),
        pytest.param({"destination": "/queue/ActiveMQ.DLQ"}, id="from the dead letter queue"),
        pytest.param({"destination": "/queue/ActiveMQ.DLQ.Queue.q"}, id="from an individual one"),
    ],
)
def test_what_nack_would_delete_is_copied(headers: dict[str, str]) -> None:
    """The ACK waits for the receipt of the copy (DESIGN.md section 6; classic.md 1.13)."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE)
    talk.comes("a", **headers)
    talk.listen(BROKEN)
    assert talk.wrote() == [f"SEND {GRAVE} 'a' ?"]
    assert (buried(talk), talk.ended()) == ([], [])
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert buried(talk) == [("a", 1, "max_redeliveries", "queue://ActiveMQ.DLQ", True)]
    assert talk.ended() == ["a#1 dead_lettered"]


def test_copy_of_a_topics_message() -> None:
    """A NACK of a message from a topic without durable subscription deletes it (classic.md 2.7)."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE, kind=DestinationKind.TOPIC)
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == [f"SEND {GRAVE} 'a' ?"]


def test_durable_subscription_leaves_it_to_the_broker() -> None:
    """Classic buries for it as for a queue."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE, kind=DestinationKind.DURABLE)
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == ["NACK a"]


def test_named_destination_gets_copies_of_all() -> None:
    """`dead_letter="queue://…"` chooses the copy (DESIGN.md section 6)."""
    talk = Talk(AUTO, dead_letter="queue://grave")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == ["SEND queue:grave 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert buried(talk) == [("a", 1, "max_redeliveries", "queue://grave", True)]


def test_strategy_of_the_broker_alone() -> None:
    """As the Java client does it: what the broker cannot bury it deletes."""
    talk = Talk(AUTO, dead_letter=DeadLetterStrategy.BROKER)
    talk.subscribe(policy=ONCE)
    talk.comes("a", persistent="")
    talk.listen(BROKEN)
    assert talk.wrote() == ["NACK a"]


def test_parked_consumer_hands_out_nothing() -> None:
    """A cumulative ACK of a later message would cover the original whose copy nobody has yet."""
    talk = Talk(AUTO)
    talk.subscribe("1", policy=ONCE)
    talk.subscribe("2")
    talk.comes("a", "b", persistent="")
    talk.comes("x", to="2")
    talk.listen(BROKEN)
    assert talk.receive() is None
    assert talk.core.next_timer() is None
    assert talk.receive("1", "2") == "x#1"
    talk.wrote()
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert talk.receive() == "b#1"


def test_single_acks_need_no_parking() -> None:
    """Each original is acknowledged on its own, when its copy is confirmed."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.listen(BROKEN)
    second = talk.held()
    assert talk.wrote() == [f"SEND {GRAVE} 'a' ?"]
    talk.core.acknowledge(second, talk.now)
    assert talk.wrote() == ["ACK b"]
    talk.answer()
    assert talk.wrote() == ["ACK a"]


def test_cumulative_ack_only_after_every_receipt() -> None:
    """Three copies, three receipts, one ACK, of the newest."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", "c", persistent="")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == [f"SEND {GRAVE} {name!r} ?" for name in "abc"]
    talk.answer()
    talk.answer()
    assert talk.wrote() == []
    assert talk.receive() is None
    talk.answer()
    assert talk.wrote() == ["ACK c"]
    assert talk.ended() == [f"{name}#1 dead_lettered" for name in "abc"]


def test_batch_of_both_kinds() -> None:
    """What the broker buries it buries; the ACK of the copies comes when they are safe."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.comes("b", persistent="")
    talk.comes("c")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == ["NACK a", "NACK c", f"SEND {GRAVE} 'b' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK b"]


def test_refused_copy_is_sent_again() -> None:
    """Five seconds later, as often as it takes; the original is never acknowledged and the alert is raised."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.listen(BROKEN)
    talk.wrote()
    for n in range(1, 4):
        talk.refuse("Usage Manager Memory Limit reached")
        assert talk.receive() is None
        assert talk.wrote() == []
        failures = talk.reported(DeadLetterFailed)
        assert len(failures) == n
        assert "Usage Manager Memory Limit reached" in failures[-1].reason
        assert talk.timer() == n * 5.0
        assert talk.wrote() == [f"SEND {GRAVE} 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert talk.receive() == "b#1"


def test_refused_copy_among_several() -> None:
    """The confirmed ones are not sent again; the ACK waits for the last."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.drain()
    talk.rollback()
    talk.wrote()
    talk.refuse()
    talk.answer()
    assert talk.wrote() == []
    talk.now = 4.999
    talk.core.handle_timer(talk.now)
    assert talk.wrote() == []
    talk.timer()
    assert talk.wrote() == [f"SEND {GRAVE} 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK b"]


def test_lost_link_forgets_the_burial() -> None:
    """The broker has the original and delivers it again; no timer and no late receipt acts on it."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE)
    talk.comes("a", persistent="")
    talk.listen(BROKEN)
    talk.cut()
    assert talk.ended() == ["a#1 abandoned"]
    assert talk.core.next_timer() is None
    talk.reopen()
    talk.subscribe()
    talk.comes("a", persistent="", redelivered="true")
    assert talk.receive() == "a#2"


# -- over the limit on arrival ----------------------------------------------------------------------------------------


def test_over_the_limit_on_arrival_is_buried_unseen() -> None:
    """Transacted sessions only (classic.md 1.6, preDispatchCheck)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a", redelivered="true")
    talk.comes("b")
    assert talk.receive() == "b#1"
    assert talk.wrote() == ["NACK a"]
    assert buried(talk) == [("a", 2, "max_redeliveries", None, False)]


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL])
def test_other_sessions_do_not_look_on_arrival(mode: AcknowledgeMode) -> None:
    """Source: classic.md 1.6."""
    talk = Talk(mode)
    talk.subscribe(policy=ONCE)
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


def test_look_on_arrival_can_be_switched_off() -> None:
    """Then it is delivered (upstream row 17)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0, pre_dispatch_check=False))
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


def test_at_the_limit_on_arrival_is_delivered() -> None:
    """Over it is more than the maximum."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


# -- over the limit on arrival, by copy, while older messages are uncommitted -----------------------------------------


def with_one_buried_behind_an_open_one(*, single: bool = False) -> Talk:
    """`old` is delivered and not committed; `poison`, behind it, was buried unseen, and its copy is confirmed."""
    talk = Talk(TRANSACTED, dead_letter="queue://grave", single=single)
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("poison", redelivered="true")
    assert talk.receive() == "old#1"
    assert talk.receive() is None
    assert talk.wrote() == ["SEND queue:grave 'poison' ?"]
    talk.answer()
    return talk


def test_buried_message_waits_for_the_older_ones() -> None:
    """Its ACK would settle them, although nobody has committed them."""
    talk = with_one_buried_behind_an_open_one()
    assert talk.wrote() == []
    assert buried(talk) == [("poison", 2, "max_redeliveries", "queue://grave", True)]
    assert talk.ended() == ["poison#2 dead_lettered"]


def test_single_ack_of_a_buried_message_does_not_wait() -> None:
    """It settles nothing else."""
    talk = with_one_buried_behind_an_open_one(single=True)
    assert talk.wrote() == ["ACK poison"]
    talk.commit()
    assert talk.wrote() == ["ACK old ?"]


@pytest.mark.parametrize("sends", [False, True])
def test_commit_settles_the_buried_message_too(*, sends: bool) -> None:
    """One ACK for both; each delivery ends once."""
    talk = with_one_buried_behind_an_open_one()
    if sends:
        talk.send()
    talk.commit()
    assert talk.wrote() == (
        ["BEGIN in jmsx", "SEND queue:x 'out' in jmsx", "ACK poison in jmsx", "COMMIT in jmsx ?"]
        if sends
        else ["ACK poison ?"]
    )
    talk.answer()
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 committed"]
    assert talk.receive() is None


def test_commit_before_the_copy_is_confirmed() -> None:
    """Then the ACK of the buried message has nobody to wait for."""
    talk = Talk(TRANSACTED, dead_letter="queue://grave")
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("poison", redelivered="true")
    talk.drain()
    talk.commit()
    assert talk.wrote() == ["SEND queue:grave 'poison' ?", "ACK old ?"]
    talk.answer()
    assert talk.wrote() == ["ACK poison"]
    talk.answer()
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 committed"]


def test_messages_behind_a_buried_one_go_on() -> None:
    """They are in the same transaction, and one ACK settles all three."""
    talk = with_one_buried_behind_an_open_one()
    talk.comes("new")
    assert talk.drain() == ["new#1"]
    talk.commit()
    assert talk.wrote() == ["ACK new ?"]
    talk.answer()
    assert talk.ended()[1:] == ["old#1 committed", "new#1 committed"]


@pytest.mark.parametrize("next_one", ["taken before the commit", "taken after it"])
def test_rollback_brings_the_older_one_again_and_not_the_buried_one(next_one: str) -> None:
    """The ACK of the buried one is sent as soon as the older one is settled, and its copy only once."""
    talk = Talk(TRANSACTED, dead_letter="queue://grave")
    for _ in range(2):  # two refused commits: the third delivery of it is one too many
        talk.subscribe(policy=at_most(1))
        talk.comes("poison")
        talk.drain()
        talk.commit()
        talk.refuse()
        talk.cut()
        talk.reopen()
    talk.subscribe(policy=at_most(1))
    talk.comes("old", "poison")
    talk.wrote()
    assert talk.drain() == ["old#1"]
    assert talk.wrote() == ["SEND queue:grave 'poison' ?"]
    talk.answer()
    talk.rollback()
    assert talk.receive() == "old#2"
    if next_one == "taken before the commit":
        assert talk.receive() is None
        talk.commit()
        assert talk.wrote() == ["ACK poison ?"]
        talk.answer()
    else:
        talk.commit()
        assert talk.wrote() == ["ACK old ?"]
        talk.answer()
        assert talk.receive() is None
        assert talk.wrote() == ["ACK poison"]
    assert [entry[0] for entry in buried(talk)] == ["poison"]
    assert [end for end in talk.ended() if "abandoned" not in end] == [
        "poison#3 dead_lettered",
        "old#1 rolled_back",
        "old#2 committed",
    ]


@pytest.mark.parametrize("settle", ["discarded", "over the limit"])
def test_other_ends_of_a_transaction_settle_the_buried_message(settle: str) -> None:
    """Once the older one is out of the way, one ACK, and no second copy."""
    talk = with_one_buried_behind_an_open_one()
    talk.rollback(DISCARDED if settle == "discarded" else NO_FAILURE)
    if settle == "discarded":
        assert talk.wrote() == ["ACK poison"]
        assert talk.ended()[1:] == ["old#1 discarded"]
    else:
        assert talk.wrote() == ["SEND queue:grave 'old' ?"]
        talk.answer()
        assert talk.wrote() == ["ACK poison"]
        assert talk.ended()[1:] == ["old#1 dead_lettered"]


def test_older_one_that_the_broker_buries() -> None:
    """NACK for it, and then the ACK that the buried one was waiting with."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("poison", redelivered="true", persistent="")
    talk.drain()
    talk.answer()
    talk.wrote()
    talk.rollback()
    assert talk.wrote() == ["NACK old", "ACK poison"]
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 dead_lettered"]


def test_lost_link_gives_the_older_one_back() -> None:
    """Nothing was acknowledged, so both are the broker's; the one that is a dead letter has ended already."""
    talk = with_one_buried_behind_an_open_one()
    talk.cut()
    assert talk.wrote() == []
    assert talk.ended() == ["poison#2 dead_lettered", "old#1 abandoned"]


# -- closing while a copy is awaited ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL, TRANSACTED])
def test_unsubscribe_waits_for_the_copy(mode: AcknowledgeMode) -> None:
    """An ACK after UNSUBSCRIBE is ignored: the message would be in the queue and in the grave."""
    talk = Talk(mode, dead_letter="queue://grave")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    if mode is TRANSACTED:
        talk.receive()
    else:
        talk.listen(BROKEN)
    (request,) = talk.core.close(talk.now)
    assert talk.wrote() == ["SEND queue:grave 'a' ?"]
    assert not request.done
    talk.answer()
    assert talk.wrote() == ["ACK a", "UNSUBSCRIBE 1 ?"]
    assert not request.done
    talk.answer()
    assert request.done
    assert request.error is None
    assert talk.ended() == ["a#1 dead_lettered"]


def test_unsubscribe_waits_for_every_copy() -> None:
    """One ACK, of the newest, and then the farewell."""
    talk = Talk(TRANSACTED, dead_letter="queue://grave")
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b")
    talk.drain()
    talk.core.close(talk.now)
    talk.wrote()
    talk.answer()
    assert talk.wrote() == []
    talk.answer()
    assert talk.wrote() == ["ACK b", "UNSUBSCRIBE 1 ?"]


def test_other_consumers_do_not_wait() -> None:
    """Only the one whose copy it is."""
    talk = Talk(AUTO, dead_letter="queue://grave")
    talk.subscribe("1", policy=ONCE)
    talk.subscribe("2")
    talk.comes("a")
    talk.listen(BROKEN)
    talk.wrote()
    talk.core.close_consumer("2", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 2 ?"]
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == []


@pytest.mark.parametrize("refused", ["before", "after"])
def test_copy_that_is_refused_while_closing(refused: str) -> None:
    """The original stays the broker's, and that is what is told; nobody tries again."""
    talk = Talk(AUTO, dead_letter="queue://grave")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    talk.wrote()
    if refused == "before":
        talk.refuse()
    (request,) = talk.core.close(talk.now)
    if refused == "after":
        assert talk.wrote() == []
        talk.refuse()
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#1 released"]
    assert len(talk.reported(DeadLetterFailed)) == 1
    assert buried(talk) == []
    talk.answer()
    assert request.done
    assert talk.core.next_timer() is None
    assert len(talk.reported(SubscriptionClosed)) == 1


def test_link_that_is_lost_while_a_closing_consumer_waits() -> None:
    """The question fails, the message is no dead letter, and the next link hears nothing of it."""
    talk = Talk(AUTO, dead_letter="queue://grave")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    (request,) = talk.core.close(talk.now)
    talk.cut()
    assert request.error is not None
    assert len(talk.ended()) == 1
    assert buried(talk) == []
    talk.wrote()  # what is asked of a dead link is never written
    talk.reopen()
    talk.subscribe()
    talk.wait_until(60.0)
    assert talk.wrote() == []
