"""Dead letters by copy: on Classic the copy and the ACK of its original are one transaction."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jmsx.core.dead_letters import SINGLE_ACKS
from jmsx.core.events import DeadLetterFailed, MessageDeadLettered, SubscriptionClosed
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.process_memory import ProcessMemory
from jmsx.core.values import DeadLetterStrategy, DestinationKind, Failure
from tests.unit.core.harness import (
    ASKS_FOR_ROOM,
    AUTO,
    BROKEN,
    CLASSIC,
    CLIENT,
    DIALECT,
    DUPS_OK,
    FAILED_ONCE,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
    copies,
    dead_letters,
    settled,
)

ONCE = at_most(0)


DLQ = "queue:ActiveMQ.DLQ"


@pytest.mark.parametrize(
    "headers",
    [
        pytest.param({"persistent": ""}, id="not persistent"),
        pytest.param({"destination": "/queue/ActiveMQ.DLQ"}, id="from the dead letter queue"),
        pytest.param({"destination": "/queue/ActiveMQ.DLQ.Queue.q"}, id="from an individual one"),
    ],
)
def test_what_nack_would_delete_is_copied(headers: dict[str, Any]) -> None:
    """The ACK waits for the receipt of the copy, and both are final together."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe(policy=ONCE)
    talk.comes("a", **headers)
    talk.listen(BROKEN)
    assert talk.wrote() == copies("a")
    assert (dead_letters(talk), talk.ended()) == ([], [])
    talk.answer()
    assert talk.wrote() == settled("a")
    assert (dead_letters(talk), talk.ended()) == ([], [])
    talk.answer()
    assert talk.wrote() == []
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", "queue://ActiveMQ.DLQ", True)]
    assert talk.ended() == ["a#1 dead_lettered"]


def test_copy_of_a_topics_message() -> None:
    """A NACK of a message from a topic without durable subscription deletes it (BROKER.md C43)."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE, kind=DestinationKind.TOPIC)
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == copies("a")


def test_durable_subscription_leaves_it_to_the_broker() -> None:
    """Classic makes a dead letter of it, as for a queue."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE, kind=DestinationKind.DURABLE)
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == ["NACK a"]


def test_named_destination_gets_copies_of_all() -> None:
    """`dead_letter="queue://…"` chooses the copy."""
    talk = Talk(AUTO, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == copies("a", to="queue:dead")
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", "queue://dead", True)]


@pytest.mark.parametrize(
    ("subscribed", "came_from"),
    [
        pytest.param("queue://dead.orders", "/queue/dead.orders", id="its reader"),
        pytest.param("queue://dead.orders", "/queue/q", id="whatever its header says"),
        pytest.param("queue://dead.>", "/queue/dead.orders", id="by a wildcard"),
    ],
)
def test_what_lay_in_the_named_queue_goes_to_the_brokers(subscribed: str, came_from: str) -> None:
    """A copy beside it would come again for ever, to who reads that queue."""
    talk = Talk(AUTO, dead_letter="queue://dead.orders")
    talk.subscribe(policy=ONCE, destination=subscribed)
    while talk.wrote():  # a wildcard's opening asks more than once
        talk.answer()
    talk.comes("a", destination=came_from)
    talk.listen(BROKEN)
    assert talk.wrote() == copies("a")
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", "queue://ActiveMQ.DLQ", True)]


def test_who_sends_a_message_does_not_say_where_its_copy_goes() -> None:
    """A Java property may overwrite the header that tells where it lay (BROKER.md C46)."""
    talk = Talk(AUTO, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("java-a", destination="/queue/dead")
    talk.listen(BROKEN)
    assert talk.wrote() == copies("java-a", to="queue:dead")


def test_strategy_of_the_broker_alone() -> None:
    """As the Java client does it: what the broker has no place for it deletes."""
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
    assert talk.wrote() == settled("a")
    assert talk.receive() is None
    talk.answer()
    assert talk.receive() == "b#1"


def test_single_acks_need_no_parking() -> None:
    """Each original is acknowledged on its own, when its copy is confirmed."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.listen(BROKEN)
    second = talk.held()
    assert talk.wrote() == copies("a")
    talk.core.acknowledge(second, talk.now)
    assert talk.wrote() == ["ACK b"]
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()


def test_cumulative_ack_only_after_every_receipt() -> None:
    """Three copies, three receipts, one ACK, of the newest, in one transaction."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", "c", persistent="")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == copies("a", "b", "c")
    talk.answer()
    talk.answer()
    assert talk.wrote() == []
    assert talk.receive() is None
    talk.answer()
    assert talk.wrote() == settled("c")
    assert talk.receive() is None
    talk.answer()
    assert talk.ended() == [f"{name}#1 dead_lettered" for name in "abc"]


def test_batch_of_both_kinds() -> None:
    """What the broker makes a dead letter of it does; the ACK of the copies comes when they are safe."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.comes("b", persistent="")
    talk.comes("c")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == ["NACK a", "NACK c", *copies("b")]
    talk.answer()
    assert talk.wrote() == settled("b")


def test_batch_of_both_kinds_with_a_nack_that_is_answered_last() -> None:
    """The COMMIT waits for that, and has the ACK in it: else a link lost behind it leaves a copy and its original."""
    talk = Talk(TRANSACTED)
    talk.answers_nacks = False
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.comes("b", persistent="")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == ["NACK a", *copies("b")]
    talk.answer()
    assert talk.wrote() == []
    talk.answers_nacks = True
    assert talk.wrote() == settled("b")


def test_batch_of_both_kinds_with_a_nack_that_is_refused() -> None:
    """An ACK behind it would cover what may not become a dead letter: the copy is committed, and the ACK waits."""
    talk = Talk(TRANSACTED)
    talk.answers_nacks = False
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.comes("b", persistent="")
    talk.drain()
    talk.rollback()
    assert talk.wrote() == ["NACK a", *copies("b")]
    talk.answer()
    assert talk.wrote() == []
    talk.refuse_nack()
    assert talk.wrote() == settled()
    talk.answer()
    assert talk.wrote() == []
    talk.answers_nacks = True
    talk.timer()
    assert talk.wrote() == ["NACK a", "ACK b"]


def test_refused_copy_is_sent_again() -> None:
    """
    Five seconds later, as often as it takes; the original is never acknowledged and the alert is raised.

    The transaction is undone and the link kept: then it goes on without one.
    """
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.listen(BROKEN)
    talk.wrote()
    for n in range(1, 4):
        talk.refuse("ResourceAllocationException: Usage Manager Memory Limit reached")
        assert talk.receive() is None
        assert talk.wrote() == (["ABORT in jmsx-dead-1"] if n == 1 else [])
        failures = talk.reported(DeadLetterFailed)
        assert len(failures) == n
        assert "Usage Manager Memory Limit reached" in failures[-1].reason
        assert talk.timer() == n * 5.0
        assert talk.wrote() == [f"SEND {DLQ} 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert talk.receive() == "b#1"


def test_refused_copy_among_several() -> None:
    """None of them is made; they are sent again singly, and the ACK waits for the last."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.drain()
    talk.rollback()
    talk.wrote()
    talk.refuse()
    talk.answer()
    assert talk.wrote() == ["ABORT in jmsx-dead-1"]
    assert len(talk.reported(DeadLetterFailed)) == 1
    talk.now = 4.999
    talk.core.handle_timer(talk.now)
    assert talk.wrote() == []
    talk.timer()
    assert talk.wrote() == [f"SEND {DLQ} 'a' ?", f"SEND {DLQ} 'b' ?"]
    talk.refuse()
    talk.answer()
    assert talk.wrote() == []
    talk.timer()
    assert talk.wrote() == [f"SEND {DLQ} 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK b"]


def test_lost_link_begins_the_burial_anew() -> None:
    """The broker has the original and delivers it again; it is a dead letter then, and nobody sees it once more."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONCE)
    talk.comes("a", persistent="")
    talk.listen(BROKEN)
    talk.cut()
    assert talk.ended() == ["a#1 abandoned"]
    assert talk.core.next_timer() is None
    talk.reopen()
    talk.wrote()
    talk.comes("a", persistent="", redelivered="true")
    assert talk.receive() is None
    assert talk.wrote() == copies("a", number=2)
    talk.answer()
    assert talk.wrote() == settled("a", number=2)
    talk.answer()
    assert talk.ended()[1:] == ["a#2 dead_lettered"]
    (dead,) = talk.reported(MessageDeadLettered)
    assert (dead.attempts, dead.error_type) == (1, BROKEN.error_type)


def test_a_copy_that_is_too_large_becomes_smaller_and_then_the_brokers() -> None:
    """The broker ends the link over it (C53), each time: its queue must not wait for it for ever."""
    talk = Talk(AUTO, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b")
    talk.listen(replace(BROKEN, stack="in shop.py"))
    whole = {"jmsx_exception", "jmsx_exception_message", "jmsx_stack"}
    for number, told in enumerate([whole, {"jmsx_exception"}], 1):
        assert talk.wrote() == copies("a", to="queue:dead", number=number)
        assert whole & talk.frames[-1].headers.keys() == told
        talk.complain("The maximum frame size was exceeded")
        talk.lose()
        talk.comes("a", "b", redelivered="true")
        assert talk.receive() is None
    assert talk.wrote() == ASKS_FOR_ROOM
    talk.answer()
    assert talk.wrote() == ["NACK a"]
    assert talk.receive() == "b#1"
    assert dead_letters(talk) == [("a", 1, "max_redeliveries", None, False)]


def test_one_that_cannot_be_read_leaves_its_queue_too() -> None:
    """It goes in a copy as a rule, for whoever reads the broker's own would not understand it either."""
    talk = Talk(CLIENT, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.core.undecodable(talk.held(), ValueError("odd"), talk.now)
    for number in (1, 2):
        assert talk.wrote() == copies("a", to="queue:dead", number=number)
        talk.complain("The maximum frame size was exceeded")
        talk.lose()
        talk.comes("a", redelivered="true")
        assert talk.take() is None
    assert talk.wrote() == ASKS_FOR_ROOM


def test_one_whose_sender_is_not_known_leaves_its_queue_by_the_brokers_word() -> None:
    """Anybody may have written that it is persistent; the broker is asked, and then moves the whole of it."""
    talk = Talk(AUTO, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("java", "b")
    talk.listen(BROKEN)
    for _ in range(2):
        assert talk.wrote() != []
        assert talk.frames[-1].command == "SEND"
        talk.complain("The maximum frame size was exceeded")
        talk.lose()
        talk.comes("java", "b", redelivered="true")
        assert talk.receive() is None
    (asked,) = talk.wrote()
    assert asked.startswith("SUBSCRIBE")
    selector = talk.frames[-1].headers["selector"]
    assert "JMSDeliveryMode = 'PERSISTENT'" in selector
    talk.comes("java", to=talk.frames[-1].headers["id"], ack="other")
    assert talk.wrote()[-len(ASKS_FOR_ROOM) :] == ASKS_FOR_ROOM


def test_one_that_the_broker_would_delete_ends_no_link_after_the_other() -> None:
    """It is not persistent, so that it stays: its copy is tried after 5 s, 10 s and so on, at most 80."""
    talk = Talk(AUTO, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a", persistent="false")
    talk.listen(BROKEN)
    waited = []
    for _ in range(8):
        began = talk.now
        if not talk.wrote():
            talk.timer()
            talk.wrote()
        assert talk.frames[-1].command == "SEND"
        waited.append(talk.now - began)
        talk.complain("The maximum frame size was exceeded")
        talk.lose()
        talk.comes("a", persistent="false", redelivered="true")
        assert talk.receive() is None
    assert waited == [0, 0, 5, 10, 20, 40, 80, 80]


def test_only_the_copy_that_the_broker_would_answer_next_is_too_large() -> None:
    """Those before it are answered, and those behind it were not read."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", "c")
    for _ in range(3):
        talk.listen(BROKEN)
    talk.wrote()
    talk.answer()
    talk.complain("The maximum frame size was exceeded")
    talk.lose()
    talk.comes("a", "b", "c", redelivered="true")
    assert talk.receive() is None
    assert len(talk.wrote()) == 3 * len(copies("a"))
    again = [one for one in talk.frames if one.command == "SEND"][3:]
    assert [one.body for one in again if "jmsx_exception_message" not in one.headers] == [b"b"]


def test_another_complaint_says_nothing_of_a_copy() -> None:
    """It keeps why its message died."""
    talk = Talk(AUTO, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    talk.complain("ProtocolException: of something else")
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    talk.wrote()
    assert "jmsx_exception_message" in talk.frames[-1].headers


# -- closing while a copy is awaited ----------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL, TRANSACTED])
def test_unsubscribe_waits_for_the_copy(mode: AcknowledgeMode) -> None:
    """An ACK after UNSUBSCRIBE is ignored: the message would be in the queue and in the dlq."""
    talk = Talk(mode, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    if mode is TRANSACTED:
        talk.receive()
    else:
        talk.listen(BROKEN)
    (request,) = talk.core.close(talk.now)
    assert talk.wrote() == copies("a", to="queue:dead")
    assert not request.done
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    assert not request.done
    talk.answer()
    assert request.done
    assert request.error is None
    assert talk.ended() == ["a#1 dead_lettered"]


def test_unsubscribe_waits_for_every_copy() -> None:
    """One ACK, of the newest, and then the farewell."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b")
    talk.drain()
    talk.core.close(talk.now)
    talk.wrote()
    talk.answer()
    assert talk.wrote() == []
    talk.answer()
    assert talk.wrote() == settled("b")
    talk.answer()
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_other_consumers_do_not_wait() -> None:
    """Only the one whose copy it is."""
    talk = Talk(AUTO, dead_letter="queue://dead")
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
    talk = Talk(AUTO, dead_letter="queue://dead")
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
    assert talk.wrote() == ["ABORT in jmsx-dead-1", "UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#1 released"]
    assert len(talk.reported(DeadLetterFailed)) == 1
    assert dead_letters(talk) == []
    talk.answer()
    assert request.done
    assert talk.core.next_timer() is None
    assert len(talk.reported(SubscriptionClosed)) == 1


def test_link_that_is_lost_while_a_closing_consumer_waits() -> None:
    """The question fails, the message is no dead letter, and the next link hears nothing of it."""
    talk = Talk(AUTO, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(BROKEN)
    (request,) = talk.core.close(talk.now)
    talk.cut()
    assert request.error is not None
    assert len(talk.ended()) == 1
    assert dead_letters(talk) == []
    talk.wrote()  # what is asked of a dead link is never written
    talk.reopen()
    talk.wait_until(60.0)
    assert talk.wrote() == []


# -- copy and ACK are one ---------------------------------------------------------------------------------------------


def committing(mode: AcknowledgeMode = AUTO) -> Talk:
    """The copy of `a` is there, and the COMMIT is written."""
    talk = Talk(mode, dead_letter="queue://dead", dialect=CLASSIC)
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.listen(REJECTED)
    assert talk.wrote() == copies("a", to="queue:dead")
    talk.answer()
    assert talk.wrote() == settled("a")
    return talk


def test_a_commit_that_is_answered_with_a_fault_drops_the_link() -> None:
    """Both may have been done; what the broker has open for it ends with the link, as when that is lost."""
    talk = committing()
    talk.refuse("java.io.IOException")
    assert talk.wrote() == ["DROP"]
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.comes("a")
    assert talk.receive() == "a#2"


def test_refused_commit_costs_one_link_and_no_more() -> None:
    """Only another link frees the original; there the copy comes first and the ACK after it."""
    talk = committing()
    talk.refuse("ProtocolException: Invalid transaction id")
    assert talk.wrote() == ["DROP"]
    assert len(talk.reported(DeadLetterFailed)) == 1
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.comes("a")
    assert talk.receive() is None
    assert talk.wrote() == ["SEND queue:dead 'a' ?"]
    talk.refuse()
    assert talk.wrote() == []
    talk.timer()
    assert talk.wrote() == ["SEND queue:dead 'a' ?"]
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert [entry[0] for entry in dead_letters(talk)] == ["a"]


@pytest.mark.parametrize("mode", [AUTO, INDIVIDUAL])
def test_lost_commit_that_was_not_done(mode: AcknowledgeMode) -> None:
    """The message comes again, flagged: it is a dead letter unseen."""
    talk = committing(mode)
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.comes("a", redelivered="true")
    assert talk.receive() is None
    assert talk.wrote() == copies("a", to="queue:dead", number=2)


def test_lost_commit_that_was_done() -> None:
    """The message does not come, until somebody moves it back: then it is new."""
    talk = committing()
    talk.cut()
    assert dead_letters(talk) == []
    talk.reopen()
    talk.wrote()
    talk.comes("a")
    assert talk.receive() == "a#2"


def test_copies_of_several_consumers_at_once() -> None:
    """Each has a transaction of its own, and no ACK is in one before its COMMIT."""
    talk = Talk(INDIVIDUAL, dead_letter="queue://dead")
    talk.subscribe("1", policy=ONCE)
    talk.subscribe("2", policy=ONCE)
    talk.comes("a")
    talk.comes("x", to="2")
    talk.listen(BROKEN, "1")
    talk.listen(BROKEN, "2")
    assert talk.wrote() == [
        *copies("a", to="queue:dead"),
        *copies("x", to="queue:dead", number=2),
    ]
    talk.answer()
    talk.answer()
    assert talk.wrote() == [*settled("a"), *settled("x", number=2)]


def test_a_transaction_of_the_application_meanwhile() -> None:
    """Its sends may be open beside the copy, and its ACKs come later: an ACK is in none but its own transaction."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.comes("a")
    talk.receive()
    talk.rollback()
    assert talk.wrote() == copies("a", to="queue:dead")
    talk.send()
    talk.wrote()
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.comes("b")
    assert talk.receive() is None
    talk.answer()
    assert talk.receive() == "b#1"
    talk.commit()
    assert talk.wrote() == ["ACK b in jmsx", "COMMIT in jmsx ?"]


@pytest.mark.parametrize("single", [False, True])
def test_a_copy_that_is_taken_while_others_are_committed(*, single: bool) -> None:
    """A cumulative ACK would settle them, if that is refused; a single one is part of the copy's transaction."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead", single=single)
    talk.subscribe(policy=ONCE)
    talk.comes("old")
    talk.comes("a", **FAILED_ONCE)
    talk.drain()
    talk.send()
    talk.commit()
    assert "COMMIT in jmsx ?" in talk.wrote()
    talk.answer()
    assert talk.wrote() == (settled("a") if single else [])


def test_copy_while_the_application_has_sent_in_a_transaction() -> None:
    """The copy and its ACK are one transaction all the same: what is open has no ACKs before its COMMIT."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    talk.send()
    talk.comes("a", **FAILED_ONCE)
    talk.wrote()
    assert talk.receive() is None
    assert talk.wrote() == copies("a", to="queue:dead")
    talk.answer()
    assert talk.wrote() == settled("a")


@pytest.mark.parametrize("mode", [INDIVIDUAL, TRANSACTED])
@pytest.mark.parametrize("sure", [False, True])
def test_a_copy_whose_ack_is_lost_is_not_made_by_another_session(
    mode: AcknowledgeMode, *, sure: bool
) -> None:
    """Any session of the process knows that only the ACK is owed, unless it may be another message that looks so."""
    name, memory = "a" if sure else "java-a", ProcessMemory()
    dialect = replace(DIALECT, transactional_ack=False)
    one, two = (
        Talk(mode, dead_letter="queue://dead", dialect=dialect, memory=memory) for _ in "12"
    )
    for talk in (one, two):
        talk.subscribe(policy=ONCE)
    one.comes(name)
    if mode is TRANSACTED:
        one.held()
        one.rollback()
    else:
        one.listen(BROKEN)
    assert one.wrote() == [f"SEND queue:dead {name!r} ?"]
    one.answer()
    assert one.wrote() == [f"ACK {name}"]
    one.cut()
    two.comes(name, redelivered="true")
    two.comes("b")
    if sure:
        assert two.receive() == "b#1"
        assert two.wrote() == [f"ACK {name}"]
    elif mode is TRANSACTED:
        assert two.receive() is None
        assert two.wrote() == [f"SEND queue:dead {name!r} ?"]
    else:
        assert two.receive() == "java-a#2"


@pytest.mark.parametrize("mode", [AUTO, CLIENT, INDIVIDUAL, TRANSACTED])
@pytest.mark.parametrize("disposition", [BROKEN, REJECTED], ids=["broken", "rejected"])
def test_a_copy_that_is_lost_is_made_by_another_session(
    mode: AcknowledgeMode, disposition: Failure
) -> None:
    """Its handler has failed as often as it may: nobody calls it once more, and the cause is told."""
    memory = ProcessMemory()
    one, two = (Talk(mode, dead_letter="queue://dead", memory=memory) for _ in "12")
    for talk in (one, two):
        talk.subscribe(policy=ONCE)
    one.comes("a")
    if mode is TRANSACTED:
        one.held()
        one.rollback(disposition)
    elif mode is CLIENT:
        one.held()
        one.core.recover(one.now, disposition)
    else:
        one.listen(disposition)
    assert one.wrote() == copies("a", to="queue:dead")
    one.cut()
    two.comes("a", redelivered="true")
    assert two.receive() is None
    assert two.wrote() == copies("a", to="queue:dead")
    two.answer()
    assert two.wrote() == settled("a")
    two.answer()
    (event,) = two.reported(MessageDeadLettered)
    assert (event.reason, event.error_type) == (
        "rejected" if disposition is REJECTED else "max_redeliveries",
        disposition.error_type,
    )


def test_single_acks_in_transactions_are_bounded() -> None:
    """Classic forgets none of them before the link ends; on the next one there may be as many again."""
    talk = Talk(INDIVIDUAL, dead_letter="queue://dead")
    talk.subscribe(policy=ONCE)
    for n in range(1, SINGLE_ACKS + 1):
        talk.comes(f"m{n}")
        talk.listen(BROKEN)
        talk.answer()
        assert talk.wrote()[-2:] == settled(f"m{n}", number=n)
        talk.answer()
    talk.comes("a")
    talk.listen(BROKEN)
    assert talk.wrote() == ["SEND queue:dead 'a' ?"]
    talk.cut()
    talk.reopen()
    talk.wrote()
    talk.comes("a", redelivered="true")
    talk.receive()
    assert talk.wrote() == copies("a", to="queue:dead", number=SINGLE_ACKS + 1)


def test_hold_of_another_consumer_ends_first() -> None:
    """STOMP's bookkeeping does not tell one transaction's ACKs from another's (BROKER.md C30)."""
    talk = Talk(INDIVIDUAL, dead_letter="queue://dead", dialect=CLASSIC)
    talk.subscribe("1", policy=ONCE)
    talk.subscribe("2", prefetch=1)
    talk.comes("x", to="2")
    talk.held("2")
    assert talk.receive("2") is None
    talk.wait_until(1.0)
    assert "BEGIN in hold-2" in talk.wrote()
    talk.comes("a")
    talk.listen(BROKEN)
    talk.wrote()
    talk.answer()
    assert talk.wrote() == ["ABORT in hold-2", *settled("a")]


@pytest.mark.parametrize("read", ["queue://B.>", "queue://B.a,queue://B.b"])
def test_a_copy_tells_the_queue_of_a_consumer_that_reads_several(read: str) -> None:
    """Else nobody could move it back."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC, dead_letter="queue://D")
    talk.subscribe(destination=read, origin=read, policy=at_most(0))
    talk.comes("a", destination="/queue/B.a")
    talk.listen(BROKEN)
    talk.wrote()
    (copy,) = [one for one in talk.frames if one.command == "SEND"]
    assert copy.headers["jmsx_original_destination"] == "queue://B.a"


@pytest.mark.parametrize("read", ["queue://B.>", "queue://B.*", "queue://B.a,queue://B.b"])
def test_a_copy_tells_no_queue_that_its_consumer_does_not_read(read: str) -> None:
    """On Classic a property of the application may stand where the broker tells it; who replays would send it there."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC, dead_letter="queue://D")
    talk.subscribe(destination=read, origin=read, policy=at_most(0))
    talk.comes("a", destination="/queue/secret")
    talk.listen(BROKEN)
    talk.wrote()
    (copy,) = [one for one in talk.frames if one.command == "SEND"]
    assert copy.headers["jmsx_original_destination"] == read


def test_a_copy_tells_the_key_that_log_and_events_have() -> None:
    """Also of a message whose sender gave none: by id and time of the copy nobody would find it there."""
    talk = Talk(INDIVIDUAL, dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=at_most(0))
    talk.comes("47", timestamp="1700000000000")
    talk.listen(BROKEN)
    talk.wrote()
    (copy,) = (frame for frame in talk.frames if frame.command == "SEND")
    talk.answer()
    talk.answer()
    (died,) = talk.reported(MessageDeadLettered)
    assert copy.headers["jmsx_original_key"] == died.message_key


@pytest.mark.parametrize("mode", [AUTO, DUPS_OK])
def test_recover_acknowledges_first_what_was_done_before(mode: AcknowledgeMode) -> None:
    """The cumulative ACK of the dead letter would settle it, too, and Classic refuse its own behind that."""
    talk = Talk(mode, dialect=CLASSIC)
    talk.subscribe(policy=ONCE)
    talk.comes("a", "b", persistent="")
    talk.listen()
    talk.held()
    talk.core.recover(talk.now)
    assert talk.wrote() == ["ACK a", *copies("b")]
    talk.answer()
    assert talk.wrote() == settled("b")
    talk.answer()
    talk.wait_until(1.0)
    assert talk.wrote() == []
