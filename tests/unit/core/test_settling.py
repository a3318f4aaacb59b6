"""Ending a batch: each of its deliveries as it went, in one call."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

import pytest

from jmsx.core.dead_letters import SINGLE_ACKS
from jmsx.core.delivery import Delivery
from jmsx.core.events import MessagesAcknowledged
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import Disposition, Failure
from jmsx_artemis import DIALECT as ARTEMIS
from tests.unit.core.harness import (
    AUTO,
    BROKEN,
    DIALECT,
    DISCARDED,
    DUPLICATE,
    FAILED_ONCE,
    INDIVIDUAL,
    REJECTED,
    TRANSACTED,
    WALL,
    Talk,
    at_most,
    called,
    copies,
    dead_letters,
    settled,
    transactions,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.dialect import Dialect

UNSEEN = Failure(disposition=Disposition.RELEASE)
UNDONE = Failure(disposition=Disposition.UNDO)
LATER = Failure("Retry", "later", delay=9.0)


def taken(talk: Talk, *names: str) -> list[Delivery]:
    """Messages that have come, in the hands of the application."""
    talk.comes(*names)
    return [talk.held() for _ in names]


def settle(talk: Talk, batch: list[Delivery], **failures: Failure) -> list[str]:
    """End a batch, and see what is written; what is not named is done."""
    talk.wrote()
    outcomes = [(one, failures.get(one.message_id)) for one in batch]
    talk.core.settle(outcomes, talk.now)
    return talk.wrote()


def test_what_is_done_is_acknowledged_in_one_go() -> None:
    """And is settled: nothing comes again, and a second time nothing is written."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c")
    assert settle(talk, batch) == ["ACK a", "ACK b", "ACK c"]
    assert settle(talk, batch) == []
    assert talk.ended() == ["a#1 acknowledged", "b#1 acknowledged", "c#1 acknowledged"]
    assert talk.drain() == []


def test_what_is_in_hand() -> None:
    """What waits, is handed out, rests or is being moved; not what the broker has, be it again."""
    talk = Talk(INDIVIDUAL, dialect=ARTEMIS, dead_letter="queue://dead")
    later = at_most(3, initial_redelivery_delay=5.0)
    talk.subscribe(policy=later, scheduled=True)
    talk.subscribe("2", policy=later, non_blocking_redelivery=True)

    def after(step: Callable[[], object]) -> int:
        step()
        talk.wrote()
        return talk.core.in_hand

    assert talk.core.in_hand == 0
    assert after(lambda: talk.comes("a", "b")) == 2
    assert after(lambda: talk.listen(BROKEN)) == 2
    assert after(talk.answer) == 1
    assert after(lambda: talk.listen(REJECTED)) == 1
    assert after(talk.answer) == 0
    assert after(lambda: talk.comes("c", to="2")) == 1
    assert after(lambda: talk.listen(BROKEN, "2")) == 1
    assert after(lambda: talk.wait_until(6.0)) == 1
    assert after(lambda: talk.listen(DISCARDED, "2")) == 0
    assert after(lambda: talk.comes("d", "e")) == 2
    assert after(talk.held) == 2
    assert after(talk.lose) == 0
    assert after(lambda: talk.comes("a", redelivered="true")) == 1
    assert after(talk.take) == 1
    assert after(talk.answer) == 0


def test_a_probe_counts_while_consumers_come_and_go() -> None:
    """It has no lock, so it goes over those that were there when it began."""
    talk = Talk(AUTO)
    for name in "123":
        talk.subscribe(name)
    consumers = iter(talk.core._consumers)
    next(consumers)
    talk.subscribe("4")
    talk.core.close_consumer("2", talk.now)
    assert [one.settings.subscription_id for one in consumers] == ["2", "3"]
    assert talk.core.in_hand == 0


def test_only_what_failed_comes_again_and_in_its_order() -> None:
    """Before what waited behind the batch."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c", "d")
    talk.comes("e")
    assert settle(talk, batch, b=BROKEN, d=LATER, c=UNSEEN) == ["ACK a"]
    assert talk.receive() is None
    talk.wait_until(9.0)
    assert talk.drain() == ["b#2", "c#1", "d#2", "e#1"]


def test_each_fails_by_its_own_count() -> None:
    """One has failed before, and this is its end; the other one has not."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=at_most(1))
    settle(talk, taken(talk, "a"), a=BROKEN)
    old = talk.held()
    (new,) = taken(talk, "b")
    assert settle(talk, [old, new], a=BROKEN, b=BROKEN) == ["NACK a"]
    assert [(name, attempts) for name, attempts, *_ in dead_letters(talk)] == [("a", 2)]
    assert talk.drain() == ["b#2"]


def test_what_a_failure_says_holds_for_its_message_alone() -> None:
    """Rejected, discarded, done before, and delivered again."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c", "d", "e")
    wrote = settle(talk, batch, a=REJECTED, b=DISCARDED, c=DUPLICATE, d=BROKEN)
    assert wrote == ["ACK e", "ACK c", "ACK b", "NACK a"]
    assert [name for name, *_ in dead_letters(talk)] == ["a"]
    assert talk.drain() == ["d#2"]
    assert sorted(talk.ended()[:5]) == [
        "a#1 dead_lettered",
        "b#1 discarded",
        "c#1 duplicate",
        "d#1 rolled_back",
        "e#1 acknowledged",
    ]


def test_the_longest_delay_holds_up_the_rest() -> None:
    """Also where a shorter one belongs to the message that comes first, or a message has none."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=RedeliveryPolicy(maximum_redeliveries=-1))
    batch = taken(talk, "a", "b", "c")
    at_once = Failure("Retry", "now", delay=0.0)
    settle(talk, batch, a=at_once, b=LATER, c=BROKEN)
    talk.now = 8.9
    assert talk.receive() is None
    talk.wait_until(9.0)
    assert talk.drain() == ["a#2", "b#2", "c#2"]


def test_a_delay_holds_up_nobody_if_redelivery_does_not() -> None:
    """Each comes when its own delay is over."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(non_blocking_redelivery=True)
    batch = taken(talk, "a", "b")
    settle(talk, batch, a=LATER, b=Failure("Retry", "soon", delay=1.0))
    talk.comes("c")
    assert talk.drain() == ["c#1"]
    talk.wait_until(1.0)
    assert talk.drain() == ["b#2"]
    talk.wait_until(9.0)
    assert talk.drain() == ["a#2"]


def test_a_delay_that_goes_on_is_not_cut_short() -> None:
    """The handler has recovered, and what it does then with its batch ends no pause."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=at_most(5, initial_redelivery_delay=1.0))
    batch = taken(talk, "a", "b")
    talk.core.recover(talk.now)
    assert settle(talk, batch, b=UNSEEN) == []
    assert talk.receive() is None
    talk.wait_until(1.0)
    assert talk.drain() == ["a#2", "b#2"]


@pytest.mark.parametrize("failure", [BROKEN, UNSEEN, LATER])
def test_what_is_given_back_later_waits_behind_what_is_older(failure: Failure) -> None:
    """A part of what was handed out is settled; `recover()` gives back the rest, and ends no pause."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c", "d", "e")
    settle(talk, batch[1:4], b=failure, d=failure)
    talk.core.recover(talk.now)
    if failure is LATER:
        talk.wait_until(8.9)
        assert talk.receive() is None
        talk.wait_until(9.0)
    second = 1 if failure is UNSEEN else 2
    assert talk.drain() == ["a#2", f"b#{second}", f"d#{second}", "e#2"]


def test_a_transaction_is_rolled_back() -> None:
    """What did not fail itself is handed out again, uncounted; the sends are undone."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c")
    talk.send("out")
    settle(talk, batch, a=UNSEEN, b=BROKEN, c=UNSEEN)
    assert transactions(talk) == [("rolled_back", 1, 0)]
    again = [talk.held() for _ in "abc"]
    assert [called(one) for one in again] == ["a#1", "b#2", "c#1"]
    talk.commit()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK c in jmsx"]


def test_the_dead_of_a_transaction_take_nobody_along() -> None:
    """Where ACKs are cumulative, one for a dead letter must not cover what waits before it."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0), dead_letter="queue://dead")
    batch = taken(talk, "a", "b", "c")
    wrote = settle(talk, batch, a=UNSEEN, b=BROKEN, c=UNSEEN)
    assert not any(frame.startswith("ACK") for frame in wrote)
    assert talk.receive() is None  # until the copy is there
    talk.answer()
    assert not any(frame.startswith("ACK") for frame in talk.wrote())
    assert [called(talk.held()) for _ in "ac"] == ["a#1", "c#1"]
    talk.commit()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK c in jmsx"]
    assert [name for name, *_ in dead_letters(talk)] == ["b"]


@pytest.mark.parametrize("mode", [TRANSACTED, INDIVIDUAL])
def test_the_dead_of_a_batch_are_one_transaction(mode: AcknowledgeMode) -> None:
    """Whatever each one died of, and in their order: a link that is lost leaves a copy or the original of each."""
    talk = Talk(mode)
    talk.subscribe(policy=at_most(1), dead_letter="queue://dead")
    (first,) = taken(talk, "a")
    settle(talk, [first], a=BROKEN)
    batch = [talk.held(), *taken(talk, "b", "c")]
    wrote = settle(
        talk, batch, a=BROKEN, b=REJECTED, c=Failure("Odd", disposition=Disposition.REJECT)
    )
    assert wrote == copies("a", "b", "c", to="queue:dead")
    for _ in "abc":
        talk.answer()
    acks = ["c"] if mode is TRANSACTED else ["a", "b", "c"]
    assert talk.wrote() == settled(*acks)
    talk.answer()
    told = [(name, attempts, reason) for name, attempts, reason, *_ in dead_letters(talk)]
    assert told == [("a", 2, "max_redeliveries"), ("b", 1, "rejected"), ("c", 1, "rejected")]


def odd(name: str) -> Failure:
    """A cause of its own."""
    return Failure(name, disposition=Disposition.REJECT)


def test_more_dead_than_single_acks_fit() -> None:
    """The oldest are one transaction all the same."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(dead_letter="queue://dead")
    names = [str(number) for number in range(SINGLE_ACKS + 2)]
    wrote = settle(talk, taken(talk, *names), **{name: odd(name) for name in names})
    *within, last, newest = names
    assert wrote == [
        f"SEND queue:dead {last!r} ?",
        f"SEND queue:dead {newest!r} ?",
        *copies(*within, to="queue:dead"),
    ]


def test_one_refused_copy_keeps_no_other_waiting() -> None:
    """Where ACKs are single the others are one transaction at once."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(dead_letter="queue://dead")
    settle(talk, taken(talk, "a", "b", "c"), a=odd("x"), b=odd("y"), c=odd("z"))
    talk.answer()
    talk.refuse()
    talk.answer()
    wrote = talk.wrote()
    assert wrote == ["ABORT in jmsx-dead-1", *copies("a", "c", number=2, to="queue:dead")]
    talk.answer()
    talk.answer()
    assert talk.wrote() == settled("a", "c", number=2)
    talk.timer()
    assert talk.wrote() == ["SEND queue:dead 'b' ?"]


def test_a_dead_letter_behind_a_discarded_one_is_copied_first() -> None:
    """Its ACK would settle what was discarded; the older one has its own with its copy."""
    talk = Talk(TRANSACTED)
    talk.subscribe(dead_letter="queue://dead")
    batch = taken(talk, "a", "b", "c")
    wrote = settle(talk, batch, a=odd("x"), b=DISCARDED, c=odd("z"))
    assert wrote == ["SEND queue:dead 'c' ?", *copies("a", to="queue:dead")]
    talk.answer()
    talk.answer()
    assert talk.wrote() == settled("a")
    talk.answer()
    assert talk.receive() is None
    assert talk.wrote() == ["ACK b", "ACK c"]


def test_the_discarded_of_a_transaction_take_nobody_along() -> None:
    """Their ACK is written when it is their turn, and not before what is older and has not been done."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c", "d", "e")
    wrote = settle(talk, batch, a=DISCARDED, b=UNSEEN, c=DISCARDED, d=BROKEN, e=DUPLICATE)
    assert not any(frame.startswith("ACK") for frame in wrote)
    talk.comes("f")
    assert called(talk.held()) == "b#1"
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK a"]
    assert [called(talk.held()) for _ in "df"] == ["d#2", "f#1"]
    talk.commit()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK f in jmsx"]
    told = {"c#1 discarded", "e#1 duplicate", "d#2 committed"}
    assert "a#1 discarded" in talk.ended()
    assert not told & set(talk.ended())
    talk.answer()
    assert told < set(talk.ended())


@pytest.mark.parametrize("dialect", [DIALECT, ARTEMIS])
def test_what_is_sent_back_takes_nobody_along(dialect: Dialect) -> None:
    """A cumulative ACK for it would settle what is older and was not done; then the session redelivers it itself."""
    talk = Talk(TRANSACTED, dialect=dialect)
    talk.subscribe(scheduled=True, policy=at_most(5, initial_redelivery_delay=1.0))
    batch = taken(talk, "a", "b", "c")
    assert settle(talk, batch, a=UNSEEN, b=BROKEN, c=UNSEEN) == []
    talk.wait_until(1.0)
    assert [called(talk.held()) for _ in "abc"] == ["a#1", "b#2", "c#1"]
    assert settle(talk, batch[:1], a=BROKEN)[-1:] != ["ACK c"]


def test_what_was_copied_before_stays_in_its_place() -> None:
    """Between messages of the transaction: its ACK would settle what is older and waits again."""
    talk = Talk(TRANSACTED, dialect=replace(DIALECT, nack_dead_letters=False))
    talk.subscribe()
    first = taken(talk, "a")
    talk.comes("x", expires=str(round((WALL + 1) * 1000)), persistent="false")
    talk.now = 2.0
    batch = [*first, *taken(talk, "c")]
    assert settle(talk, batch, a=BROKEN, c=UNSEEN) == []
    talk.commit()
    assert talk.wrote() == []
    assert [called(talk.held()) for _ in "ac"] == ["a#2", "c#1"]
    talk.commit()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK c in jmsx"]


def test_a_consumer_that_closes_settles_nothing_before_its_copy() -> None:
    """What was discarded lies behind a dead letter that has no copy yet, which its ACK would cover."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe()
    settle(talk, taken(talk, "a", "b"), a=REJECTED, b=DISCARDED)
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == []
    talk.answer()
    assert talk.wrote() == settled("a")


def failed_behind_a_refused_copy(odd: str = "c") -> Talk:
    """`a` and `b` fail for good together, while the copy of what was not understood waits for its next try."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(0), dead_letter="queue://dead")
    *_, last = taken(talk, "a", "b", odd)
    talk.core.undecodable(last, ValueError("odd"), talk.now)
    talk.refuse()
    talk.rollback(BROKEN)
    talk.wrote()
    return talk


def test_copies_are_settled_together_in_whatever_order_they_are_confirmed() -> None:
    """The ACK of the newest covers the others, and the broker knows none of their ACKs then (Classic)."""
    talk = failed_behind_a_refused_copy()
    # the copies of a and b, and their COMMIT, which may not settle them beside c
    for _ in range(3):
        talk.answer()
    assert talk.wrote() == ["COMMIT in jmsx-dead-1 ?"]
    talk.timer()
    talk.answer()
    assert talk.wrote() == ["SEND queue:dead 'c' ?", "ACK c"]


@pytest.mark.parametrize("refused", ["a", "ab"])
def test_the_newest_copy_settles_nothing_that_has_none(refused: str) -> None:
    """The consumer closes, so that copies which were refused twice are not tried again: their originals stay."""
    talk = failed_behind_a_refused_copy()
    talk.refuse()
    talk.answer()
    talk.timer()
    assert talk.wrote()[-3:] == [f"SEND queue:dead {one!r} ?" for one in "cab"]
    for name in "cab":
        if name in refused:
            talk.refuse()
        else:
            talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    assert {f"{one}#1 released" for one in refused} < set(talk.ended())
    talk.answer()
    talk.subscribe(policy=at_most(0), dead_letter="queue://dead")
    talk.comes("a", "b", redelivered="true")
    for number, name in enumerate(refused, start=2):
        assert talk.receive() is None
        assert talk.wrote() == copies(name, to="queue:dead", number=number)
        talk.answer()
        assert talk.wrote() == settled(name, number=number)
        talk.answer()
    assert talk.receive() is None
    assert talk.wrote() == ["ACK b"] * ("b" not in refused)


def test_a_copied_message_settles_nothing_before_its_nack_is_answered() -> None:
    """Its ACK covers what is older, which stays with the broker if the NACK is refused."""
    talk = Talk(TRANSACTED)
    talk.answers_nacks = False
    talk.subscribe(policy=at_most(0))
    taken(talk, "a")
    talk.comes("java-x", **FAILED_ONCE)
    assert talk.receive() is None
    talk.answer()  # its copy
    talk.wrote()
    talk.rollback(BROKEN)
    assert talk.wrote() == ["NACK a"]
    talk.refuse_nack()
    talk.timer()
    assert talk.wrote() == ["NACK a"]
    talk.answers_nacks = True
    assert talk.wrote() == ["ACK java-x"]


@pytest.mark.parametrize("failure", [DISCARDED, DUPLICATE])
def test_what_was_discarded_is_not_told_so_before_its_ack(failure: Failure) -> None:
    """The consumer closes first: then the broker delivers it again, to whomever."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    settle(talk, taken(talk, "a", "b"), a=UNSEEN, b=failure)
    assert (talk.ended(), talk.reported(MessagesAcknowledged)) == ([], [])
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["b#1 released"]


def test_what_was_discarded_is_told_so_when_its_ack_is_written() -> None:
    """As the consumer closes, behind nothing that was not done."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    assert settle(talk, taken(talk, "a", "b"), a=DISCARDED, b=UNSEEN) == []
    talk.core.close_consumer("1", talk.now)
    assert talk.wrote() == ["ACK a", "UNSUBSCRIBE 1 ?"]
    assert talk.ended() == ["a#1 discarded"]
    assert [one.messages for one in talk.reported(MessagesAcknowledged)] == [1]


def test_what_was_discarded_and_lost_with_its_link_is_not_handed_out_again() -> None:
    """It has ended without an ACK; when it comes again it gets one in its turn, and ends as it was said."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    settle(talk, taken(talk, "a", "b"), a=UNSEEN, b=DISCARDED)
    talk.cut()
    assert talk.ended() == ["b#1 abandoned"]
    talk.reopen()
    talk.comes("a", "b", redelivered="true")
    assert talk.drain() == ["a#2"]
    talk.commit()
    talk.answer()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK b in jmsx"]
    assert talk.ended()[1:] == ["b#1 discarded", "a#2 committed"]


@pytest.mark.parametrize(
    ("failure", "told"), [(DISCARDED, "released"), (REJECTED, "dead_lettered")]
)
def test_what_has_ended_without_an_ack_when_its_consumer_closes(
    failure: Failure, told: str
) -> None:
    """The session knows it again: the next consumer hands out what was not done, and acknowledges the other."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe()
    settle(talk, taken(talk, "a", "b"), a=UNSEEN, b=failure)
    if failure is REJECTED:
        talk.answer()
    talk.core.close_consumer("1", talk.now)
    assert talk.ended() == [f"b#1 {told}"]
    assert talk.wrote()[-1:] == ["UNSUBSCRIBE 1 ?"]
    talk.answer()
    talk.subscribe()
    talk.comes("a", "b", redelivered="true")
    assert talk.drain() == ["a#2"]
    talk.commit()
    assert [one for one in talk.wrote() if one.startswith("ACK")] == ["ACK b in jmsx"]
    talk.answer()
    assert talk.ended()[1:] == (["b#1 discarded"] if told == "released" else []) + ["a#2 committed"]


@pytest.mark.parametrize("behind", [True, False])
def test_what_was_discarded_and_lies_in_a_transaction_that_is_undone(*, behind: bool) -> None:
    """It goes with what becomes of the others, and ends once."""
    talk = Talk(TRANSACTED, dead_letter="queue://dead")
    talk.subscribe(policy=at_most(0))
    settle(talk, taken(talk, "a", "b"), a=UNSEEN, b=DISCARDED)
    assert talk.drain() == ["a#1"]
    talk.rollback(BROKEN if behind else DISCARDED)
    if behind:
        assert talk.ended() == []
        talk.answer()
        assert talk.wrote()[-2:] == settled("b")
        talk.answer()
    else:
        assert talk.wrote() == ["ACK b"]
    first = "a#1 dead_lettered" if behind else "a#1 discarded"
    assert talk.ended() == [first, "b#1 discarded"]


def test_all_that_a_transaction_has_received_is_given_back() -> None:
    """Also what another consumer of the session was handed: the next commit would settle it otherwise."""
    talk = Talk(TRANSACTED)
    talk.subscribe()
    talk.subscribe("2")
    batch = taken(talk, "a")
    talk.comes("x", to="2")
    talk.held("2")
    settle(talk, batch, a=BROKEN)
    talk.commit()
    assert talk.wrote() == []
    assert [called(talk.held(one)) for one in "12"] == ["a#2", "x#1"]


def test_a_copy_of_a_consumer_that_closes_settles_nothing_that_was_given_back() -> None:
    """Its ACK would cover what is older and was not done; what is newer may be there."""
    for undone in "ac":
        talk = Talk(TRANSACTED, dead_letter="queue://dead")
        talk.subscribe()
        batch = taken(talk, *("ab" if undone == "a" else "bc"))
        settle(talk, batch, **{undone: UNSEEN, "b": REJECTED})
        talk.core.close_consumer("1", talk.now)
        talk.answer()
        wrote = talk.wrote()
        assert any(one.startswith("ACK") for one in wrote) is (undone == "c")
        assert wrote[-1:] == (["UNSUBSCRIBE 1 ?"] if undone == "a" else ["COMMIT in jmsx-dead-1 ?"])


@pytest.mark.parametrize("dead_letter", ["queue://dead", "safe"])
def test_a_consumer_that_closes_writes_nothing_to_a_lost_link(dead_letter: str) -> None:
    """It waited for an answer about a dead letter, and the broker has it as it was."""
    talk = Talk(TRANSACTED, dead_letter=dead_letter)
    talk.answers_nacks = False
    talk.subscribe()
    settle(talk, taken(talk, "a", "b"), a=REJECTED, b=UNSEEN)
    talk.core.close_consumer("1", talk.now)
    talk.cut()
    assert talk.wrote() == []
    assert talk.ended() == ["a#1 abandoned"]


@pytest.mark.parametrize("mode", [INDIVIDUAL, TRANSACTED])
def test_a_batch_whose_link_is_lost(mode: AcknowledgeMode) -> None:
    """Nothing of it reaches the new link; what nobody has handled has not failed."""
    talk = Talk(mode)
    talk.subscribe()
    batch = taken(talk, "a", "b", "c")
    talk.cut()
    failures = {"b": BROKEN, "c": UNSEEN} | ({} if mode is INDIVIDUAL else {"a": UNSEEN})
    assert settle(talk, batch, **failures) == []
    talk.reopen()
    again = taken(talk, "a", "b", "c")
    assert [one.failures for one in again] == [0, 1, 0]


def test_a_batch_whose_consumer_is_closed() -> None:
    """Its messages are the broker's again."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    batch = taken(talk, "a", "b")
    talk.core.close_consumer("1", talk.now)
    assert not any(frame.startswith("ACK") for frame in settle(talk, batch, a=BROKEN))


def test_what_is_undone_has_not_failed() -> None:
    """It was handled, so it is flagged and counted when it comes again; its attempts are whole."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=at_most(1))
    batch = taken(talk, "a", "b")
    settle(talk, batch, a=UNDONE, b=BROKEN)
    a, b = talk.held(), talk.held()
    assert [(called(one), one.redelivered, one.failures) for one in (a, b)] == [
        ("a#2", True, 0),
        ("b#2", True, 1),
    ]
    settle(talk, [a, b], a=BROKEN, b=UNDONE)
    assert [called(talk.held()) for _ in "ab"] == ["a#3", "b#3"]
