"""Messages that the broker gives as new, although this process was handed them before."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from jmsx.core.history import Remembered
from jmsx.core.ledger import Entry, StoreKey
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.process_memory import UNSEEN, ProcessMemory
from jmsx.core.values import DestinationKind
from jmsx_artemis import DIALECT as ARTEMIS
from jmsx_classic import DIALECT as CLASSIC
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    CLIENT,
    DISCARDED,
    DUPLICATE,
    DUPS_OK,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    Talk,
    at_most,
    called,
    copies,
    dead_letters,
    marker,
    settled,
)
from tests.unit.core.harness import CLASSIC as REAL_CLASSIC

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.core.dialect import Dialect


def told(talk: Talk, *consumers: str) -> tuple[str, bool]:
    """The next delivery and whether the application sees it as redelivered."""
    delivery = talk.held(*consumers)
    return called(delivery), delivery.redelivered


WAYS: dict[str, tuple[AcknowledgeMode, Any]] = {
    "received": (AUTO, lambda talk: talk.receive()),
    "listened": (AUTO, lambda talk: (talk.listen(), talk.wait_until(1.0))),
    "lazily": (DUPS_OK, lambda talk: talk.receive()),
    "explicitly": (CLIENT, lambda talk: talk.core.acknowledge(talk.held(), talk.now)),
    "one": (INDIVIDUAL, lambda talk: talk.core.acknowledge(talk.held(), talk.now)),
    "committed": (TRANSACTED, lambda talk: (talk.held(), talk.commit(), talk.answer())),
    "discarded": (AUTO, lambda talk: talk.listen(DISCARDED)),
    "duplicate": (AUTO, lambda talk: talk.listen(DUPLICATE)),
}


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize(("mode", "settle"), WAYS.values(), ids=WAYS)
def test_acknowledged_and_forgotten_by_the_broker(
    mode: AcknowledgeMode, settle: Any, dialect: Dialect
) -> None:
    """However it was settled: the broker gives it as new, and it is told as the repetition that it is."""
    talk = Talk(mode, dialect=dialect)
    talk.subscribe(policy=at_most(0))  # and no failure, so it is no dead letter for that
    talk.comes("x,a", "x,b")
    settle(talk)
    assert [frame.split()[0] for frame in talk.wrote()][-1:] in (["ACK"], ["COMMIT"])
    talk.lose()
    talk.comes("x,a", "x,c")
    assert [told(talk), told(talk)] == [
        (f"{name(dialect, 'a')}#2", True),
        (f"{name(dialect, 'c')}#1", False),
    ]


def test_map_that_the_broker_writes_anew_is_the_same() -> None:
    """Classic makes the XML of a map for each delivery, and tells its entries in any order."""
    ages, names = (
        "<entry><string>age</string><int>30</int></entry>",
        "<entry><string>name</string><string>Ada</string></entry>",
    )
    talk = Talk(AUTO, dialect=REAL_CLASSIC)
    talk.subscribe()
    for body, told in (
        (f"<map>{ages}{names}</map>", ("a#1", False)),
        (f"<map>{names}{ages}</map>", ("a#2", True)),
        (f"<map>{names}</map>", ("a#1", False)),
    ):
        talk.comes("a", body=body, transformation="jms-map-xml")
        delivery = talk.take()
        assert delivery is not None
        assert (called(delivery), delivery.redelivered) == told
        talk.core.consumed(delivery, talk.now, returning=True)
        talk.lose()


def name(dialect: Dialect, text: str) -> str:
    """What the message `x,text` is called."""
    return dialect.reading.message_id({"message-id": f"x,{text}"})


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
@pytest.mark.parametrize("settled", [True, False])
def test_another_session_of_the_process_knows_it_too(dialect: Dialect, *, settled: bool) -> None:
    """The queue has several consumers, each on a link of its own."""
    memory = ProcessMemory()
    one, two = (
        Talk(CLIENT, dialect=dialect, memory=memory),
        Talk(AUTO, dialect=dialect, memory=memory),
    )
    one.subscribe()
    two.subscribe()
    one.comes("a")
    delivery = one.held()
    if settled:
        one.core.acknowledge(delivery, one.now)
    for talk in (one, two):
        talk.lose()
    two.comes("a")
    assert told(two)[0].endswith("#2")


def two_sessions() -> tuple[Talk, Talk]:
    """Two consumers of a queue on Artemis, each on a link of its own."""
    memory = ProcessMemory()
    one, two = (Talk(CLIENT, dialect=ARTEMIS, memory=memory) for _ in range(2))
    one.subscribe()
    two.subscribe()
    return one, two


def test_what_another_session_got_meanwhile() -> None:
    """A link is lost with a message that nobody has seen; another session gets it, and loses it to this one again."""
    one, two = two_sessions()
    one.comes("a")
    one.lose()
    two.comes("a")
    assert told(two) == ("a#1", False)
    two.lose()
    one.comes("a")
    assert told(one) == ("a#2", True)


def test_what_a_dying_link_still_hands_out() -> None:
    """The broker has given the message to another session, whose buffer it is in, before ours knows of its loss."""
    one, two = two_sessions()
    one.comes("a")
    two.comes("a")
    assert told(one) == ("a#1", False)
    assert told(two) == ("a#2", True)


def test_counts_go_on_from_the_last_delivery() -> None:
    """It failed twice and was done at the third delivery; this is the fourth, and two of them have failed."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(3))
    talk.comes("a")
    assert [talk.listen(BROKEN), talk.listen(BROKEN), talk.receive()] == ["a#1", "a#2", "a#3"]
    talk.lose()
    talk.comes("a")
    assert [talk.listen(BROKEN), talk.listen(BROKEN), talk.listen()] == ["a#4", "a#5", None]
    assert talk.ended()[-1] == "a#5 dead_lettered"


def test_the_flag_of_the_broker_is_enough_where_it_is_sure() -> None:
    """Classic flags what was on its way, so what is merely handed out there is not noted."""
    memory = ProcessMemory()
    talk = Talk(CLIENT, memory=memory)
    talk.subscribe()
    talk.comes("a")
    talk.held()
    assert len(memory) == 0


def test_a_flag_is_no_count() -> None:
    """Artemis may flag it or not; two sessions had it before."""
    memory = ProcessMemory()
    for _ in range(2):
        talk = Talk(CLIENT, dialect=ARTEMIS, memory=memory)
        talk.subscribe()
        talk.comes("a")
        talk.held()
        talk.core.close(talk.now)
    last = Talk(CLIENT, dialect=ARTEMIS, memory=memory)
    last.subscribe()
    last.comes("a", redelivered="true")
    assert last.held().delivery_count == 3


def test_poison_of_another_session_is_dead_lettered_unseen() -> None:
    """In a transacted session, as if the broker had counted (pre-dispatch check)."""
    memory = ProcessMemory()
    one, two = (Talk(TRANSACTED, dialect=ARTEMIS, memory=memory) for _ in range(2))
    for talk in (one, two):
        talk.subscribe(policy=at_most(0))
        talk.comes("a")
        delivery = talk.take()
        assert (delivery is None) == (talk is two)
        talk.cut()
        talk.core.rollback(talk.now)


def test_artemis_does_not_flag_what_a_closed_consumer_had() -> None:
    """So what was handed out is remembered from then on, as the one delivery that the broker would have counted."""
    memory = ProcessMemory()
    one, two = (Talk(CLIENT, dialect=ARTEMIS, memory=memory) for _ in range(2))
    one.subscribe()
    one.comes("a", "b")
    one.held()
    one.core.recover(one.now)
    one.held()
    one.core.close(one.now)
    two.subscribe()
    two.comes("a", "b")
    assert [told(two), told(two)] == [("a#2", True), ("b#1", False)]


def test_moved_back_from_the_dead_letter_queue() -> None:
    """Classic keeps the message's id; whoever moves it back means it to be new."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    talk.listen(REJECTED)
    assert talk.wrote() == ["NACK a"]
    talk.comes("a")
    assert told(talk) == ("a#1", False)


def test_moved_back_after_all_sorts_of_things() -> None:
    """Lost with its link, and so remembered, before it was a dead letter."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a")
    talk.held()
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.listen(REJECTED) == "a#2"
    assert talk.wrote() == ["NACK a"]
    talk.comes("a")
    assert told(talk) == ("a#1", False)


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED], ids=str)
@pytest.mark.parametrize("committing", [False, True])
def test_a_copy_that_is_lost_with_its_link_is_no_new_start(
    mode: AcknowledgeMode, *, committing: bool
) -> None:
    """What comes to another session by its old id has failed so often: nobody can have moved the copy back to that."""
    memory = ProcessMemory()
    one, two = (Talk(mode, memory=memory, dead_letter="queue://dead") for _ in range(2))
    for talk in (one, two):
        talk.subscribe(policy=at_most(1))
    one.comes("a")
    for _ in range(2):
        one.listen(BROKEN)
        if mode is TRANSACTED:
            one.rollback(BROKEN)
    if committing:
        one.answer()
        assert one.wrote()[-2:] == settled("a")
    one.cut()
    two.comes("a", redelivered="true")
    assert two.take() is None
    assert two.wrote() == copies("a", to="queue:dead")


def test_original_of_a_dead_letters_copy() -> None:
    """Its ACK was forgotten with all else; it has failed before, and is a dead letter as soon as it fails again."""
    talk = Talk(AUTO, dead_letter="queue://dead")
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    assert [talk.listen(BROKEN), talk.listen(BROKEN)] == ["a#1", "a#2"]
    talk.answer()
    assert talk.wrote()[-2:] == settled("a")
    talk.answer()
    talk.lose()
    talk.comes("a")
    assert talk.listen(BROKEN) == "a#3"
    assert talk.wrote() == copies("a", to="queue:dead", number=2)


@pytest.mark.parametrize(
    "other",
    [{"timestamp": "1700000000001"}, {"destination": "/queue/r"}],
    ids=["later", "of another queue"],
)
def test_another_message_of_the_same_id(other: dict[str, Any]) -> None:
    """Brokers give numbers, and may give them again; a copy in another queue is another message."""
    talk = Talk(AUTO)
    talk.subscribe(origin="queue://>")
    talk.comes("a")
    talk.receive()
    talk.lose()
    talk.comes("a", **other)
    assert told(talk) == ("a#1", False)


def test_a_message_of_a_topic_does_not_come_again() -> None:
    """So one with its identity is another one."""
    talk = Talk(AUTO)
    talk.subscribe(kind=DestinationKind.TOPIC, origin="topic://q:s")
    talk.comes("a")
    talk.receive()
    talk.lose()
    talk.comes("a")
    assert told(talk) == ("a#1", False)


def test_a_ledger_that_has_forgotten_it_does_not_win() -> None:
    """What was settled has left the ledger; that it comes again is known all the same."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    talk.receive()
    talk.lose()
    talk.comes("a")
    delivery = talk.core.handing_out.offer(["1"], talk.now)
    assert delivery is not None
    assert talk.core.handing_out.admit(delivery, talk.now, Entry(StoreKey("queue://q", "a"), 1))
    assert (called(delivery), delivery.redelivered) == ("a#2", True)


def test_memory_is_bounded() -> None:
    """The oldest are forgotten; what is noted again is young."""
    memory = ProcessMemory(limit=2)
    a, b, c = (("queue://q", text, "", b"") for text in "abc")
    memory.note([(a, Remembered(1, 0)), (b, Remembered(1, 0))])
    memory.note([(a, Remembered(1, 1))])
    memory.note([(c, Remembered(1, 0))])
    assert [memory.recall(one) for one in (a, b, c)] == [Remembered(1, 1), None, Remembered(1, 0)]


def test_less_does_not_overwrite_more() -> None:
    """A session whose link died unnoticed is late with what it knows."""
    memory = ProcessMemory()
    name = ("queue://q", "a", "", b"")
    memory.note([(name, Remembered(3, 0))])
    memory.note([(name, Remembered(1, 1))])
    assert memory.recall(name) == Remembered(3, 0)


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
def test_another_session_is_told_what_the_broker_would_count(dialect: Dialect) -> None:
    """What was delivered again without the broker is the affair of the session that did it, as in Java."""
    memory = ProcessMemory()
    one, two = (Talk(CLIENT, dialect=dialect, memory=memory) for _ in range(2))
    one.subscribe()
    two.subscribe()
    one.comes("a")
    for _ in range(3):
        one.held()
        one.core.recover(one.now)
    one.held()
    one.lose()
    two.comes("a")
    one.comes("a")
    assert told(two)[0].endswith("#2")
    assert told(one)[0].endswith("#5")


@pytest.mark.parametrize("dialect", [CLASSIC, ARTEMIS], ids=["classic", "artemis"])
def test_a_dead_letter_tells_of_all_its_attempts(dialect: Dialect) -> None:
    """Two failed in one session and one in another, and that was the limit; the application was told of two."""
    memory = ProcessMemory()
    one, two = (
        Talk(mode, dialect=dialect, memory=memory, dead_letter="queue://dead")
        for mode in (TRANSACTED, AUTO)
    )
    for talk in (one, two):
        talk.subscribe(policy=at_most(2))
    one.comes("a")
    one.held()
    one.core.rollback(one.now)
    one.held()
    one.lose()
    one.core.rollback(one.now)
    two.comes("a")
    assert two.listen(BROKEN) == "a#2"
    two.wrote()
    [copy] = [frame for frame in two.frames if frame.command == "SEND"]
    assert copy.headers["jmsx_delivery_count"] == "3"
    for _ in range(1 + dialect.transactional_ack):  # the copy, and a COMMIT of its own
        two.answer()
    two.wrote()
    assert [letter[1] for letter in dead_letters(two)] == [3]


@pytest.mark.parametrize("end", ["lost", "closed", "cut"])
@pytest.mark.parametrize("mode", list(AcknowledgeMode), ids=str)
def test_the_flag_of_the_broker_stays_no_attempt_in_another_session(
    mode: AcknowledgeMode, end: str
) -> None:
    """It came with the flag, was handled here once, and then by another session of the process as often as is left."""
    memory = ProcessMemory()
    one, two = (Talk(way, memory=memory) for way in (mode, AUTO))
    for talk in (one, two):
        talk.subscribe(policy=at_most(2))
    one.comes("a", redelivered="true")
    assert called(one.held()) == "a#2"
    if end == "closed":
        (one.core.rollback if mode is TRANSACTED else one.core.recover)(one.now)
        one.core.close(one.now)
    else:
        one.lose()
        if end == "lost":
            (one.core.rollback if mode is TRANSACTED else one.core.recover)(one.now)
    two.comes("a", redelivered="true")
    seen = [call for call in (two.listen(BROKEN) for _ in range(4)) if call is not None]
    assert seen[0] == "a#3"
    assert [letter[:2] for letter in dead_letters(two)] == [("a", 1 + len(seen))]


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED, INDIVIDUAL], ids=str)
@pytest.mark.parametrize("confirmed", [True, False])
@pytest.mark.parametrize("to", ["same", "other"])
def test_an_original_whose_copy_may_be_there_is_sent_back_again(
    mode: AcknowledgeMode, to: str, *, confirmed: bool
) -> None:
    """The broker drops the second copy, by its identity; handed out, the message would be done twice."""
    memory = ProcessMemory()
    one, two = (Talk(mode, dialect=ARTEMIS, memory=memory) for _ in "12")
    for talk in (one, two):
        talk.subscribe(scheduled=True, policy=at_most(3, initial_redelivery_delay=1.0))
    one.comes("a")
    fail(one)
    one.wrote()
    sent = [frame for frame in one.frames if frame.command == "SEND"]
    if confirmed:
        one.answer()
        assert one.wrote()[-1] == "ACK a"
    talk = one if to == "same" else two
    one.lose()
    talk.wrote()
    for _ in "12":  # that may get lost, too
        talk.comes("a", redelivered="true")
        assert talk.take() is None
        assert talk.wrote() == ["SEND q 'a' ?"]
        again = [frame for frame in talk.frames if frame.command == "SEND"][-1]
        for name in ("_AMQ_DUPL_ID", "jmsx_redelivery_count", "jmsx_key"):
            assert again.headers[name] == sent[0].headers[name]
        talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.take() is None
    talk.wrote()
    talk.answer()
    assert talk.wrote() == ["ACK a"]
    assert (talk.take(), talk.ended()[1:]) == (None, [])


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED], ids=str)
@pytest.mark.parametrize("done", [True, False])
def test_an_original_is_sent_back_again_beside_a_held_message(
    mode: AcknowledgeMode, *, done: bool
) -> None:
    """A cumulative ACK would settle that, too, so it waits until the application says what became of it."""
    talk = Talk(mode, dialect=ARTEMIS)
    talk.subscribe(scheduled=True, policy=at_most(3, initial_redelivery_delay=1.0))
    talk.comes("a")
    talk.held()
    if mode is TRANSACTED:
        talk.rollback(BROKEN)
    else:
        talk.core.recover(talk.now, BROKEN)
    talk.wrote()
    talk.lose()
    talk.comes("b")
    talk.comes("a", redelivered="true")
    held = talk.held()
    assert (called(held), talk.take()) == ("b#1", None)
    assert talk.wrote() == ["SEND q 'a' ?"]
    talk.comes("c")
    assert talk.take() is None  # its ACK would settle the original before the broker has the copy
    talk.answer()
    assert talk.wrote() == []
    assert called(talk.held()) == "c#1"
    if not done:
        talk.lose()
        talk.comes("b", "a", "c", redelivered="true")
        assert [talk.receive() for _ in "123"] == ["b#2", "c#2", None]
        assert talk.wrote() == []
    elif mode is TRANSACTED:
        talk.commit()
        assert talk.wrote() == ["ACK c ?"]
        talk.answer()
    else:
        talk.core.acknowledge(held, talk.now)
        assert talk.wrote() == ["ACK c"]


@pytest.mark.parametrize("refused", [False, True])
def test_an_original_is_sent_back_again_while_others_are_committed(*, refused: bool) -> None:
    """Its ACK would settle them, too, although their COMMIT is refused."""
    talk = Talk(TRANSACTED, dialect=ARTEMIS)
    talk.subscribe(scheduled=True, policy=at_most(3, initial_redelivery_delay=1.0))
    talk.comes("a")
    talk.held()
    talk.rollback(BROKEN)
    talk.wrote()
    talk.lose()
    talk.comes("b")
    talk.comes("a", redelivered="true")
    assert called(talk.held()) == "b#1"
    talk.send()
    assert talk.take() is None
    talk.commit()
    talk.wrote()
    talk.answer()  # that the broker has the copy
    assert talk.wrote() == []
    if refused:
        talk.refuse()
        assert "DROP" in talk.wrote()
    else:
        talk.answer()
        assert talk.wrote() == ["ACK b ?"]
        talk.answer()
        assert talk.wrote() == ["ACK a"]


def test_an_original_whose_copy_was_refused_is_handed_out() -> None:
    """It is there once."""
    talk = Talk(INDIVIDUAL, dialect=ARTEMIS)
    talk.subscribe(scheduled=True, policy=at_most(3, initial_redelivery_delay=1.0))
    talk.comes("a")
    fail(talk)
    talk.refuse("AMQ229032: User: x does not have permission='SEND'")
    talk.lose()
    talk.comes("a", redelivered="true")
    assert talk.receive() == "a#2"


def fail(talk: Talk) -> None:
    """Take the next message, and do not get it done."""
    delivery = talk.held()
    if talk.mode is TRANSACTED:
        talk.rollback(BROKEN)
    else:
        talk.core.failed(delivery, BROKEN, talk.now)


def test_original_of_a_message_that_was_sent_back() -> None:
    """The broker forgot that it was acknowledged, so there are two of it now; this one was here before."""
    talk = Talk(AUTO, dialect=CLASSIC)
    talk.subscribe(scheduled=True, policy=at_most(3, initial_redelivery_delay=1.0))
    talk.comes("a")
    assert talk.listen(BROKEN) is not None
    talk.answer()
    talk.wrote()
    talk.lose()
    talk.comes("a")
    delivery = talk.held()
    assert (delivery.delivery_count, delivery.redelivered) == (2, True)


def flagged(talk: Talk, *names: str) -> list[tuple[str, bool]]:
    """What the application is told of messages that the broker flags."""
    talk.comes(*names, redelivered="true")
    return [told(talk) for _ in names]


@pytest.mark.parametrize("mode", [AUTO, CLIENT, TRANSACTED], ids=str)
def test_what_was_given_back_unseen_is_new(mode: AcknowledgeMode) -> None:
    """Classic flags all that a consumer had when it was closed; Java's clients tell it what they have handed out."""
    memory = ProcessMemory()
    one, two = (Talk(mode, memory=memory) for _ in range(2))
    one.subscribe(policy=at_most(0))
    one.comes("a", "b", "c")
    assert one.receive() == "a#1"
    if mode is TRANSACTED:
        one.commit()
        one.answer()
    one.core.close_consumer("1", one.now)
    one.comes("d")  # it was on its way
    two.subscribe(policy=at_most(0))
    assert flagged(two, "b", "c", "d") == [("b#1", False), ("c#1", False), ("d#1", False)]


def test_unseen_again_and_again() -> None:
    """At each of many restarts it goes back as new as it came; what came flagged for the first time stays so."""
    memory = ProcessMemory()
    for turn in range(5):
        talk = Talk(AUTO, memory=memory)
        talk.subscribe()
        talk.comes("a", redelivered="true" if turn else "")
        talk.comes("old", redelivered="true")
        if turn == 4:
            assert [told(talk), told(talk)] == [("a#1", False), ("old#2", True)]
        talk.core.close(talk.now)


def test_what_another_process_may_have_had_has_all_its_attempts() -> None:
    """The flag is shown, and is no count."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    talk.comes("a", redelivered="true")
    assert told(talk) == ("a#2", True)
    talk.rollback(BROKEN)
    assert told(talk) == ("a#3", True)
    talk.rollback(BROKEN)
    assert talk.wrote() == ["NACK a"]


@pytest.mark.parametrize("mode", [AUTO, TRANSACTED], ids=str)
def test_failures_before_an_orderly_close_count(mode: AcknowledgeMode) -> None:
    """Exactly 1 + maximum_redeliveries, whoever of the process calls the handler."""
    memory = ProcessMemory()
    talks = [Talk(mode, memory=memory) for _ in range(2)]
    attempts = 0
    for talk in talks:
        talk.subscribe(policy=at_most(3))
        talk.comes("a", redelivered="true" if attempts else "")
        for _ in range(2):
            if talk.listen(BROKEN):
                attempts += 1
                if mode is TRANSACTED:
                    talk.rollback(BROKEN)
        talk.core.close(talk.now)
    assert attempts == 4
    assert "NACK a" in talks[1].wrote()


def test_handed_out_and_given_back_is_counted_as_by_the_broker() -> None:
    """A session after the other receives it and does not acknowledge: 1, 2, 3 as in Java, not 1, 2, 2."""
    memory, counts = ProcessMemory(), []
    for turn in range(4):
        talk = Talk(CLIENT, memory=memory)
        talk.subscribe()
        talk.comes("a", redelivered="true" if turn else "")
        counts.append(told(talk))
        talk.core.close(talk.now)
    assert counts == [("a#1", False), ("a#2", True), ("a#3", True), ("a#4", True)]


def test_unseen_messages_push_out_nothing_that_failed() -> None:
    """A prefetch of thousands goes back at each restart."""
    memory = ProcessMemory(limit=2)
    one = Talk(CLIENT, memory=memory)
    one.subscribe(policy=at_most(0), prefetch=UNSEEN)
    one.comes("failed")
    one.held()
    one.comes(*[str(number) for number in range(UNSEEN + 5)])
    one.core.close(one.now)
    assert len(memory) == UNSEEN + 1
    two = Talk(CLIENT, memory=memory)
    two.subscribe()
    assert flagged(two, "failed", "0", "7") == [("failed#2", True), ("0#2", True), ("7#1", False)]


class Meddled(dict[int, Any]):
    """A signal handler notes a message between the two steps that find the oldest one, once."""

    meddled = False

    def __iter__(self) -> Iterator[int]:
        found = super().__iter__()
        if not self.meddled:
            self.meddled = True
            self[-1] = Remembered(0, 0)
        return found


def test_a_signal_handler_may_note_messages_meanwhile() -> None:
    """The oldest is looked for again; the error would cost the link."""
    memory = ProcessMemory()
    unseen = memory._unseen = Meddled()
    memory.note((str(number), Remembered(0, 0)) for number in range(UNSEEN + 1))
    assert unseen.meddled
    assert len(memory) == UNSEEN


def test_that_it_was_never_handed_out_is_known_once() -> None:
    """After that another process may have had it."""
    memory = ProcessMemory()
    name = ("queue://q", "a", "1", b"")
    memory.note([(name, Remembered(0, 0))])
    assert [memory.recall(name), memory.recall(name)] == [Remembered(0, 0), None]


@pytest.mark.parametrize("seen", [False, True])
@pytest.mark.parametrize("marker_day", [None, 20_000])
def test_a_flag_that_another_session_has_explained_is_explained_once(
    marker_day: int | None, *, seen: bool
) -> None:
    """
    One session loses a message unseen, another handles it, and the first gets it again.

    The flag that was explained then is another one now, also before the other session knows that its link is lost, and
    while nobody knows what became of its commit.
    """
    memory = ProcessMemory()
    one, two = (
        Talk(TRANSACTED, memory=memory, dialect=REAL_CLASSIC, marker_day=marker_day)
        for _ in range(2)
    )
    one.subscribe(policy=at_most(0))
    two.subscribe(policy=at_most(0))
    one.comes("a")
    one.lose()
    assert flagged(two, "a") == [("a#1", False)]
    two.send()
    if marker_day is not None:
        two.wrote()
        two.core.may_commit()
        two.answer()
        marker(two, 1)
    two.commit()
    if seen:
        two.cut()
        assert two.core.committing is (marker_day is not None)
    assert flagged(one, "a") == [("a#2", True)]
    assert dead_letters(one) == []


def test_what_a_commit_in_doubt_received_is_known() -> None:
    """The broker was killed, and gives it to another session as if for the first time."""
    memory = ProcessMemory()
    one, two = (
        Talk(TRANSACTED, memory=memory, dialect=REAL_CLASSIC, marker_day=20_000) for _ in range(2)
    )
    one.subscribe()
    two.subscribe(policy=at_most(0))
    one.comes("a")
    assert one.receive() == "a#1"
    one.send()
    one.core.may_commit()
    one.answer()
    marker(one, 1)
    one.commit()
    one.cut()
    assert one.core.committing
    two.lose()
    two.comes("a")
    assert told(two) == ("a#2", True)


#: The question for the end of what Classic has dispatched, and what is written when it has come.
ASKS, ENDED = "SUBSCRIBE jmsx-question-{} ?", "UNSUBSCRIBE jmsx-question-{}"


def closing(**subscription: Any) -> Talk:
    """A consumer of Classic that closes with nothing in hand."""
    talk = Talk(CLIENT, memory=ProcessMemory(), dialect=CLASSIC)
    talk.subscribe(**subscription)
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    return talk


def ends(talk: Talk, number: int) -> None:
    """The broker shows the end to a question."""
    talk.comes("0", to=f"jmsx-question-{number}", browser="end")


def test_a_consumer_leaves_when_nothing_more_is_on_its_way() -> None:
    """Classic flags what it has dispatched, and drops what an UNSUBSCRIBE overtakes."""
    talk = closing()
    assert talk.wrote() == [ASKS.format(1)]
    talk.comes("a")
    ends(talk, 1)
    assert talk.wrote() == [ENDED.format(1), ASKS.format(2)]  # something came: there may be more
    ends(talk, 2)
    assert talk.wrote() == [ENDED.format(2), "UNSUBSCRIBE 1 ?"]
    for _ in range(3):
        talk.answer()
    talk.subscribe("2")
    talk.comes("a", to="2", redelivered="true")
    assert told(talk, "2") == ("a#1", False)


def test_what_came_before_a_consumer_asked_keeps_it_no_longer() -> None:
    """It waited for the copy of a dead letter until then: the first end that it is told is the end."""
    talk = Talk(AUTO, memory=ProcessMemory(), dialect=CLASSIC, dead_letter="queue://dead")
    talk.subscribe(policy=at_most(0))
    talk.comes("a")
    assert talk.listen(BROKEN) == "a#1"
    talk.core.close_consumer("1", talk.now)
    talk.comes("b")
    assert talk.wrote()[-2:] == copies("a", to="queue:dead")
    talk.wait_until(0.8)
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert talk.wrote() == [ASKS.format(1)]
    talk.wait_until(1.2)
    ends(talk, 1)
    assert talk.wrote() == [ENDED.format(1), "UNSUBSCRIBE 1 ?"]


def test_a_consumer_leaves_though_the_broker_tells_no_end() -> None:
    """It is silent for half a second, or refuses the question, and would complain of an UNSUBSCRIBE for that."""
    talk = closing()
    talk.refuse("java.lang.SecurityException: User x is not authorized to read from queue://q")
    assert talk.wrote()[1:] == ["UNSUBSCRIBE 1 ?"]
    talk = closing()
    talk.wait_until(0.4)
    talk.comes("a")
    talk.wait_until(0.8)
    assert talk.wrote() == [ASKS.format(1)]
    talk.wait_until(1.0)
    assert talk.wrote() == [ENDED.format(1), "UNSUBSCRIBE 1 ?"]


def test_a_consumer_waits_while_messages_come() -> None:
    """Those of another one of its session may be in front of its own; five seconds at the most."""
    talk = Talk(CLIENT, memory=ProcessMemory(), dialect=CLASSIC)
    talk.subscribe()
    talk.subscribe("2", destination="queue://other")
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    for number in range(12):
        talk.wait_until(0.4 * number)
        talk.comes(str(number), to="2")
    talk.wait_until(4.8)
    assert talk.wrote() == [ASKS.format(1)]
    talk.wait_until(5.1)
    assert talk.wrote() == [ENDED.format(1), "UNSUBSCRIBE 1 ?"]


@pytest.mark.parametrize("here", ["half", "unread"])
def test_a_consumer_waits_while_a_message_is_here_that_nobody_has_read(here: str) -> None:
    """A large one takes a slow link longer than half a second, a busy process too; five seconds at the most."""
    talk = closing()
    assert talk.wrote() == [ASKS.format(1)]
    while (due := talk.core.next_timer()) is not None and due < 5:
        talk.core.handle_timer(due, **{here: True})
        assert talk.wrote() == []
    talk.core.handle_timer(5.0, **{here: True})
    assert talk.wrote() == [ENDED.format(1), "UNSUBSCRIBE 1 ?"]
    talk = closing()
    talk.wrote()
    talk.core.handle_timer(0.5, **{here: True})
    talk.core.handle_timer(1.0)
    assert talk.wrote() == [ENDED.format(1), "UNSUBSCRIBE 1 ?"]


def test_the_time_of_a_second_question_begins_when_it_is_asked() -> None:
    """However long ago the last message came."""
    talk = closing()
    talk.comes("a")
    talk.wait_until(0.4)
    ends(talk, 1)
    talk.wrote()
    talk.wait_until(0.8)
    assert talk.wrote() == []
    talk.wait_until(0.9)
    assert talk.wrote() == [ENDED.format(2), "UNSUBSCRIBE 1 ?"]


def test_a_question_for_the_end_dies_with_its_link() -> None:
    """The broker has forgotten the consumer."""
    talk = closing()
    talk.cut()
    talk.reopen()
    talk.wait_until(6.0)
    assert talk.wrote() == []


def test_who_is_given_nothing_more_leaves_at_once() -> None:
    """Its window is full, it reads a topic, or Artemis flags nothing then."""
    talk = Talk(CLIENT, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.held()
    talk.wrote()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    topic = closing(destination="topic://t", kind=DestinationKind.TOPIC)
    assert topic.wrote() == ["UNSUBSCRIBE 1 ?"]
    other = Talk(CLIENT, dialect=ARTEMIS)
    other.subscribe()
    other.wrote()
    other.core.close_consumer("1", other.now)
    assert other.wrote() == ["UNSUBSCRIBE 1 ?"]


def test_a_consumer_that_closed_in_a_transaction_leaves_like_others() -> None:
    """Its ACK opens the window when the transaction ends."""
    talk = Talk(TRANSACTED, dialect=CLASSIC)
    talk.subscribe(prefetch=1)
    talk.comes("a")
    talk.held()
    talk.core.close_consumer("1", talk.now)
    talk.commit()
    talk.wrote()
    talk.answer()
    assert talk.wrote() == [ASKS.format(1)]
    ends(talk, 1)
    assert talk.wrote() == [ENDED.format(1), "UNSUBSCRIBE 1 ?"]
