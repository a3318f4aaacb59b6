"""
Every arrow of a delivery's states is walked, by an application that a machine of machines.py plays.

Drawn programs walk the rare ones by luck, or not at all. So each arrow has a walk here, and one that nobody walks, or
that its walk does not walk any more, is named.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.delivery_state import ARROWS, DeliveryInput
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import OptimizeAcknowledge
from tests.depth import some
from tests.property.machines import (
    BROKEN,
    CLIENT,
    DISCARDED,
    INDIVIDUAL,
    TRANSACTED,
    ArtemisMachine,
    Meanwhile,
    ScheduledMachine,
    SessionMachine,
)
from tests.property.peer import Habit
from tests.property.world import AUTO, held

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence


#: Where a message is handed out, and settled.
SETTLES: Final = ("/jmsx/core/consumer.py", "/jmsx/core/delivery.py")
#: As many as there may be.
STEPS: Final = range(1, 1000)

#: Each walk with the arrows that it is for.
WALKS: Final[dict[Callable[[], None], tuple[str, ...]]] = {}


def walks(*arrows: str) -> Callable[[Callable[[], None]], Callable[[], None]]:
    """Enter a walk, with its arrows as `STATE/INPUT`."""

    def enter(walk: Callable[[], None]) -> Callable[[], None]:
        WALKS[walk] = arrows
        return walk

    return enter


@pytest.fixture
def walked(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """The arrows that deliveries have walked since."""
    seen: set[str] = set()
    step = Delivery.step

    def noted(delivery: Delivery, given: DeliveryInput) -> None:
        before = delivery.state
        step(delivery, given)
        seen.add(f"{before.name}/{given.name}")

    monkeypatch.setattr(Delivery, "step", noted)
    return seen


def test_no_arrow_is_walked_by_nobody() -> None:
    """What nothing can bring about is not in the table, and raises by name if something does."""
    arrows = {f"{state.name}/{given.name}" for state, given in ARROWS}
    told = {arrow for each in WALKS.values() for arrow in each}
    assert sorted(arrows - told) == []
    assert sorted(told - arrows) == []


# The walks -----------------------------------------------------------------------------------------------------------


def policy(redeliveries: int = -1, *, first: float = 0.0, later: float = 0.0) -> RedeliveryPolicy:
    """So many redeliveries, after so many seconds."""
    return RedeliveryPolicy(
        maximum_redeliveries=redeliveries, initial_redelivery_delay=first, redelivery_delay=later
    )


AT_ONCE: Final = Habit(mode=AUTO, policy=policy(), prefetch=5, dead_letter="queue://dead")


def begin(machine: SessionMachine, habit: Habit, messages: int = 2) -> SessionMachine:
    """A machine whose sessions have that habit, with so many messages in the queue of the first."""
    machine.connect((habit, habit))
    if messages:
        machine.somebody_sends("q0", messages, persistent=True)
    return machine


def interrupted(
    make: Callable[[], SessionMachine],
    meanwhile: Meanwhile | None = None,
    steps: Sequence[int] = STEPS,
) -> Iterator[SessionMachine]:
    """A machine for each step at which its `receive()` was interrupted; what is done with it comes to its end."""
    for step in steps:
        machine = make()
        machine.within = SETTLES
        machine.receive_is_interrupted(0, step, None, meanwhile)
        if not machine.alarms:
            return
        yield machine
        machine.teardown()
    raise AssertionError(f"receive() has more than {len(STEPS)} steps")


@walks("WAITING/HAND_OUT", "HELD/CONSUME", "OWED/ACK", "ACKING/ACKED")
def a_listener_returns() -> None:
    """Its ACK waits for others."""
    machine = begin(SessionMachine(), AT_ONCE)
    machine.listener_begins(0)
    machine.listener_ends(0, None)
    machine.teardown()


@walks("HELD/ACK")
def the_application_acknowledges() -> None:
    """By `message.acknowledge()`."""
    machine = begin(SessionMachine(), replace(AT_ONCE, mode=CLIENT))
    machine.receive(0, "own", 2)
    machine.acknowledge_one(0, held(machine.peers[0])[0])
    machine.teardown()


@walks("HELD/COMMIT", "COMMITTING/SETTLE")
def the_application_commits() -> None:
    """What it has received."""
    machine = begin(SessionMachine(), replace(AT_ONCE, mode=TRANSACTED))
    machine.receive(0, "own", 2)
    machine.commit(0)
    machine.teardown()


@walks("HELD/FAIL")
def a_listener_raises() -> None:
    """Its message is delivered again, in front of the others."""
    machine = begin(SessionMachine(), AT_ONCE)
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.teardown()


@walks("HELD/REST", "RESTING/DUE")
def a_failed_message_lets_others_pass() -> None:
    """And is due later."""
    machine = begin(SessionMachine(), replace(AT_ONCE, policy=policy(first=0.5), non_blocking=True))
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.pass_to(machine.time + 1.0)
    machine.teardown()


@walks("HELD/SEND_BACK", "LEAVING/COPY", "COPIED/SETTLE")
def the_broker_delivers_later() -> None:
    """A copy, in one transaction with the ACK."""
    later = replace(AT_ONCE, policy=policy(first=0.5), scheduled=True)
    machine = begin(ScheduledMachine(), later)
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.frames_arrive(0)
    machine.teardown()


@walks("LEAVING/TAKE_BACK", "WAITING/TAKE_BACK")
def the_broker_refuses_to_deliver_later() -> None:
    """It stays here."""
    later = replace(AT_ONCE, policy=policy(first=0.5), scheduled=True)
    machine = begin(ScheduledMachine(), later)
    machine.broker_will_refuse(0, "COMMIT")
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.frames_arrive(0)
    machine.teardown()


@walks("HELD/DEAD_LETTER", "DYING/MOVED")
def a_message_fails_once_too_often() -> None:
    """Its copy and its ACK are one transaction."""
    machine = begin(SessionMachine(), replace(AT_ONCE, policy=policy(0)))
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.frames_arrive(0)
    machine.teardown()


@walks("DYING/COPY", "COPIED/COPY", "COPIED/ACK", "CLOSING/ACKED")
def a_message_fails_once_too_often_on_artemis() -> None:
    """Its ACK follows its copy."""
    machine = begin(ArtemisMachine(), replace(AT_ONCE, policy=policy(0)))
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.frames_arrive(0)
    machine.teardown()


@walks("HELD/COPY")
def the_ack_of_a_dead_letter_is_lost() -> None:
    """The message comes again, to another session of its process, which acknowledges it."""
    machine = begin(ArtemisMachine(), replace(AT_ONCE, policy=policy(0)))
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.link_will_die(0, "ACK", applied=False)
    machine.frames_arrive(0)
    machine.session_comes_back(0, fresh=True)
    machine.receive(0, "own", 1)
    machine.teardown()


@walks("DYING/KEEP")
def a_consumer_closes_whose_copy_is_refused() -> None:
    """The message stays with the broker."""
    machine = begin(SessionMachine(), replace(AT_ONCE, policy=policy(0)))
    machine.broker_will_refuse(0, "SEND")
    machine.listener_begins(0)
    machine.listener_ends(0, BROKEN)
    machine.close_and_open_again(0, "own")
    machine.teardown()


def with_a_copy_behind(redeliveries: int = -1) -> SessionMachine:
    """A transaction that holds a message, and behind it one that was not understood, and is copied."""
    habit = replace(AT_ONCE, mode=TRANSACTED, policy=policy(redeliveries))
    machine = begin(SessionMachine(), habit)
    machine.receive(0, "own", 1)
    assert machine.next_is_not_understood(0)
    machine.frames_arrive(0)
    return machine


@walks("COPIED/COMMIT")
def what_was_copied_is_committed() -> None:
    """With what came before it."""
    machine = with_a_copy_behind()
    machine.commit(0)
    machine.teardown()


@walks("WAITING/COPY")
def what_was_copied_comes_again() -> None:
    """Its session knows that only its ACK is owed."""
    machine = with_a_copy_behind()
    machine.link_dies(0, unread=False)
    machine.session_comes_back(0, fresh=False)
    machine.frames_arrive(0)
    machine.teardown()


@walks("COPIED/FAIL")
def what_was_copied_is_rolled_back() -> None:
    """It waits for its ACK behind what came before it."""
    machine = with_a_copy_behind()
    machine.rollback(0, BROKEN)
    machine.teardown()


@walks("COPIED/TAKE_BACK")
def a_batch_in_a_transaction_discards_one() -> None:
    """Its ACK would settle what comes before."""
    machine = begin(SessionMachine(), replace(AT_ONCE, mode=TRANSACTED))
    machine.batch(0, [BROKEN, DISCARDED])
    machine.teardown()


@walks("WAITING/ACK", "SETTLED/HAND_OUT")
def what_waits_again_is_acknowledged() -> None:
    """It is handed out once more, as in Java."""
    machine = begin(SessionMachine(), replace(AT_ONCE, mode=INDIVIDUAL))
    machine.receive(0, "own", 1)
    machine.recover(0)
    machine.acknowledge_one(0, machine.got[0][0])
    machine.receive(0, "own", 1)
    machine.teardown()


@walks("RESTING/ACK", "SETTLED/DUE", "SETTLED/REST")
def what_rests_is_acknowledged() -> None:
    """It comes once more, and fails once more."""
    rests = replace(AT_ONCE, mode=INDIVIDUAL, policy=policy(first=0.5), non_blocking=True)
    machine = begin(SessionMachine(), rests, 1)
    machine.receive(0, "own", 1)
    machine.recover(0)
    machine.acknowledge_one(0, machine.got[0][0])
    machine.pass_to(machine.time + 1.0)
    machine.listener_begins(0)
    machine.recover(0)
    machine.teardown()


@walks("SETTLED/SETTLE")
def what_is_acknowledged_is_sent_back_with_another_one() -> None:
    """It waited, and was handed out once more: the broker has nothing of it to deliver later."""
    later = replace(AT_ONCE, mode=INDIVIDUAL, policy=policy(later=0.5), scheduled=True)
    machine = begin(ScheduledMachine(), later)
    machine.hand_out(0, ("own",))
    machine.frames_arrive(0)
    machine.receive(0, "own", 2)
    machine.recover(0)
    machine.acknowledge_one(0, machine.got[0][0])
    while machine.hand_out(0, ("own",)) is not None:
        pass
    machine.recover(0)
    machine.frames_arrive(0)
    machine.teardown()


@walks("HELD/TAKE_BACK", "ACKING/TAKE_BACK", "SETTLED/TAKE_BACK")
def a_receive_is_interrupted() -> None:
    """At any step: its message is put back."""
    for _ in interrupted(lambda: begin(SessionMachine(), AT_ONCE)):
        pass


@walks("OWED/TAKE_BACK")
def a_receive_whose_ack_is_put_off_is_interrupted() -> None:
    """The message is taken out of the batch again."""
    optimized = replace(AT_ONCE, optimize=OptimizeAcknowledge(timeout=0.3))
    for _ in interrupted(lambda: begin(SessionMachine(), optimized)):
        pass


@pytest.mark.parametrize("single", [False, True])
def test_a_batch_is_acknowledged_though_its_ack_is_interrupted(*, single: bool) -> None:
    """At any step: nothing of it is left behind, on the link that stays."""
    optimized = replace(
        AT_ONCE, optimize=OptimizeAcknowledge(timeout=0.3), single=single, prefetch=5
    )

    def make() -> SessionMachine:
        machine = begin(SessionMachine(), optimized, 5)
        machine.receive(0, "own", 3)
        return machine

    for _ in interrupted(make, steps=some(STEPS)):
        pass


@walks("ACKING/ACK", "SETTLED/ACK")
def a_consumer_closes_whose_receive_is_interrupted() -> None:
    """Another thread closes it before the message is put back: it acknowledges what was handed out."""
    for _ in interrupted(lambda: begin(SessionMachine(), AT_ONCE), Meanwhile.CLOSE):
        pass


@walks("SETTLED/ACKED")
def a_link_is_lost_whose_receive_is_interrupted() -> None:
    """Its ACK may be written, and is not written once more."""
    for _ in interrupted(lambda: begin(SessionMachine(), AT_ONCE), Meanwhile.LOSE):
        pass


@walks("SETTLED/FAIL")
def what_an_interrupted_receive_had_acknowledged_fails() -> None:
    """It is handed out again, as any other."""
    for machine in interrupted(lambda: begin(SessionMachine(), AT_ONCE)):
        machine.listener_begins(0)
        machine.listener_ends(0, BROKEN)


@walks("SETTLED/DEAD_LETTER", "SETTLED/MOVED")
def what_an_interrupted_receive_had_acknowledged_fails_once_too_often() -> None:
    """The broker has it no more: it is copied."""
    for machine in interrupted(lambda: begin(SessionMachine(), replace(AT_ONCE, policy=policy(0)))):
        machine.listener_begins(0)
        machine.listener_ends(0, BROKEN)
        machine.frames_arrive(0)


@walks("SETTLED/COPY")
def so_it_does_on_artemis() -> None:
    """Without a transaction, in which its ACK would be."""
    for machine in interrupted(lambda: begin(ArtemisMachine(), replace(AT_ONCE, policy=policy(0)))):
        machine.listener_begins(0)
        machine.listener_ends(0, BROKEN)
        machine.frames_arrive(0)


@walks("SETTLED/KEEP")
def so_it_does_and_its_copy_is_refused() -> None:
    """Then its consumer closes."""
    for machine in interrupted(lambda: begin(SessionMachine(), replace(AT_ONCE, policy=policy(0)))):
        machine.broker_will_refuse(0, "SEND")
        machine.listener_begins(0)
        machine.listener_ends(0, BROKEN)
        machine.close_and_open_again(0, "own")


@pytest.mark.parametrize("walk", WALKS, ids=lambda walk: walk.__name__)
def test_a_walk_goes_where_it_says(walk: Callable[[], None], walked: set[str]) -> None:
    """And what must hold for the machine holds at every step of it."""
    walk()
    assert sorted(set(WALKS[walk]) - walked) == []
