"""
What the machines of machines.py find: programs that are drawn, and examples that were found.

What must hold is said there.
"""

from __future__ import annotations

from dataclasses import replace

from hypothesis import settings

from jmsx.core.modes import AcknowledgeMode
from jmsx.core.policy import RedeliveryPolicy
from tests.depth import rounds
from tests.property.machines import (
    BROKEN,
    CLIENT,
    INDIVIDUAL,
    LATER,
    TRANSACTED,
    ArtemisMachine,
    ScheduledMachine,
    SessionMachine,
)
from tests.property.peer import Habit


def habit(mode: AcknowledgeMode, redeliveries: int, *, single: bool = False) -> Habit:
    """Whose failed messages come again at once."""
    policy = RedeliveryPolicy(
        maximum_redeliveries=redeliveries, initial_redelivery_delay=0.0, redelivery_delay=0.0
    )
    return Habit(mode=mode, policy=policy, prefetch=5, dead_letter="safe", single=single)


def test_what_is_given_back_waits_behind_what_is_older() -> None:
    """A part of what is held is settled, and fails; `recover()` gives back the rest. An example that was found."""
    machine = SessionMachine()
    machine.connect(habits=(habit(INDIVIDUAL, -1), habit(TRANSACTED, -1)))
    machine.somebody_sends(queue="q0", number=1, persistent=False)
    machine.receive(which=0, name="own", number=1)
    machine.batch(which=0, ends=[None, BROKEN])
    machine.recover(which=0)
    machine.teardown()


def test_what_dies_unseen_is_passed() -> None:
    """It was over its limit when it came again, and its copy is not confirmed. An example that was found."""
    machine = ArtemisMachine()
    machine.connect(habits=(habit(TRANSACTED, 1, single=True),) * 2)
    machine.batch(which=1, ends=[BROKEN, None])
    machine.listener_begins(which=1)
    machine.link_dies(which=1, unread=False)
    machine.teardown()


def test_a_commit_of_sends_alone_settles_nothing_that_holds_a_window_open() -> None:
    """Classic settles the ACKs of every open transaction at the end of one of them. An example that was found."""
    machine = SessionMachine()
    waits = RedeliveryPolicy(maximum_redeliveries=-1, initial_redelivery_delay=0.5)
    given = Habit(mode=TRANSACTED, policy=waits, prefetch=1, dead_letter="safe", non_blocking=True)
    machine.connect(habits=(given, given))
    machine.batch(which=0, ends=[BROKEN, None])
    machine.next_timer()
    machine.send(which=0)
    machine.commit(which=0)
    machine.teardown()


def test_what_was_not_understood_comes_to_another_consumer() -> None:
    """It has its copy, and is known again. An example that was found."""
    machine = ScheduledMachine()
    later = replace(habit(CLIENT, 0), dead_letter="queue://dead", scheduled=True)
    machine.connect(habits=(later, later))
    machine.one_is_not_understood(which=0, number=1, refuse=False)
    machine.close_and_open_again(which=0, name="own")
    machine.teardown()


def test_what_rests_is_acknowledged_and_holds_no_window_open() -> None:
    """Classic complains of a second ACK, even in a transaction that is not committed. An example that was found."""
    machine = SessionMachine()
    rests = replace(habit(INDIVIDUAL, -1), prefetch=2, non_blocking=True)
    machine.connect(habits=(rests, rests))
    machine.batch(which=0, ends=[None, LATER, None])
    machine.acknowledge_one(0, machine.got[0][1])
    machine.teardown()


TestScheduled = ScheduledMachine.TestCase
TestScheduled.settings = settings(
    max_examples=rounds(150), stateful_step_count=40, derandomize=True, deadline=None
)

TestSessionsOnArtemis = ArtemisMachine.TestCase
TestSessionsOnArtemis.settings = settings(
    max_examples=rounds(100), stateful_step_count=40, derandomize=True, deadline=None
)

TestSessions = SessionMachine.TestCase
TestSessions.settings = settings(
    max_examples=rounds(200),
    stateful_step_count=40,
    derandomize=True,  # the same programs in every run, and more of them in a whole one
    deadline=None,
)
