"""Delivering again: after which delay, in which order, and who waits for it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from jmsx.core.delivery import Delivery
from jmsx.core.events import (
    ConsumerMeasured,
    DeliveryEnded,
    MessageDeadLettered,
    RedeliveryScheduled,
)
from jmsx.core.frames import MessageFrame
from jmsx.core.modes import AcknowledgeMode
from jmsx.core.non_blocking_redelivery import NonBlockingRedelivery
from jmsx.core.policy import RedeliveryPolicy
from jmsx.core.values import Failure
from jmsx_artemis import DIALECT as ARTEMIS
from tests.unit.core.harness import (
    AT_ONCE,
    AUTO,
    BROKEN,
    CLIENT,
    INDIVIDUAL,
    TRANSACTED,
    Talk,
    at_most,
    called,
)

#: Upstream rows 5 and 20: at once, then 1 s, 2 s.
GROWING = RedeliveryPolicy(
    maximum_redeliveries=3,
    initial_redelivery_delay=0,
    redelivery_delay=1.0,
    back_off_multiplier=2,
    use_exponential_back_off=True,
)
ONE_SECOND = RedeliveryPolicy(maximum_redeliveries=3)


def delivery(name: str) -> Delivery:
    """A delivery that has nothing but a name."""
    frame = MessageFrame.of({"message-id": name})
    return Delivery.of(frame, 1, name, epoch=1, now=0.0, wall=0.0)


def spread(talk: Talk) -> list[tuple[str, int, float, bool]]:
    """Message, next attempt, delay and whether others wait, of each redelivery so far."""
    return [
        (event.message_key, event.next_attempt, event.delay, event.blocking)
        for event in talk.reported(RedeliveryScheduled)
    ]


# -- the schedule -----------------------------------------------------------------------------------------------------


def test_schedule_gives_what_is_due_in_order_of_time() -> None:
    """Batches that are due together come out in the order they went in; the rest stays."""
    schedule = NonBlockingRedelivery()
    a, b, c, d, e = (delivery(name) for name in "abcde")
    schedule.add(3.0, [c])
    schedule.add(1.0, [a, b])
    schedule.add(3.0, [d])
    schedule.add(3.5, [e])
    assert schedule.deadline() == 1.0
    assert schedule.take_due(0.999) == []
    assert schedule.take_due(3.0) == [a, b, c, d]
    assert schedule.deadline() == 3.5
    assert schedule.pending() == [e]
    assert schedule.clear() == [e]
    assert (schedule.deadline(), schedule.pending(), schedule.take_due(9.0)) == (None, [], [])


# -- blocking ---------------------------------------------------------------------------------------------------------


def test_blocking_redelivery_holds_up_later_messages() -> None:
    """Order 1, 1, 2, and nothing before the delay is over (`RedeliveryPolicyTest.testInitialRedeliveryDelayOne`)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONE_SECOND)
    talk.comes("a", "b")
    assert talk.receive() == "a#1"
    talk.rollback()
    talk.comes("c")
    talk.now = 0.999
    assert talk.receive() is None
    assert talk.core.next_timer() == 1.0
    talk.timer()
    assert talk.drain() == ["a#2", "b#1", "c#1"]
    assert spread(talk) == [("a", 2, 1.0, True)]


def test_blocking_redelivery_without_delay_is_at_once() -> None:
    """A delay of 0, or less, waits for no timer (`ActiveMQMessageConsumer.java:1249-1391`)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=AT_ONCE)
    talk.comes("a", "b", "c")
    talk.receive()
    talk.receive()
    talk.rollback()
    assert talk.drain() == ["a#2", "b#2", "c#1"]
    assert spread(talk) == [("a", 2, 0, True), ("b", 2, 0, True)]


def test_delay_grows_from_redelivery_to_redelivery() -> None:
    """Upstream row 20: a listener that always raises is called at 0, at once, after 1 s and after 2 s."""
    talk = Talk(AUTO)
    talk.subscribe(policy=GROWING)
    talk.comes("a")
    calls = []
    for _ in range(8):
        name = talk.listen(BROKEN)
        if name is not None:
            calls.append((name, talk.now))
        elif talk.core.next_timer() is not None:
            talk.timer()
    assert calls == [("a#1", 0.0), ("a#2", 0.0), ("a#3", 1.0), ("a#4", 3.0)]
    assert talk.wrote() == ["NACK a"]


@pytest.mark.parametrize(
    ("given", "delays"),
    [
        pytest.param({"initial": 0, "delay": 0.5}, [0, 0.5, 0.5], id="upstream 6: fixed"),
        pytest.param(
            {"initial": 0, "delay": 0.5, "exponential": True},
            [0, 0.5, 1.0],
            id="upstream 5: exponential",
        ),
        pytest.param({"initial": 1.0, "delay": 0.1}, [1.0, 0.1, 0.1], id="upstream 13: initial"),
    ],
)
def test_rollbacks_follow_the_policy(given: dict[str, Any], delays: list[float]) -> None:
    """The delay is computed from the message's own counter."""
    talk = Talk(TRANSACTED)
    policy = RedeliveryPolicy(
        initial_redelivery_delay=given["initial"],
        redelivery_delay=given["delay"],
        use_exponential_back_off=given.get("exponential", False),
        back_off_multiplier=2,
    )
    talk.subscribe(policy=policy)
    talk.comes("a")
    for n, delay in enumerate(delays, 1):
        began = talk.now
        assert talk.receive() == f"a#{n}"
        talk.rollback()
        if delay:
            assert talk.receive() is None
            talk.timer()
        assert talk.now == began + delay
    assert [entry[2] for entry in spread(talk)] == delays


def test_flag_of_the_broker_is_no_failure() -> None:
    """A message that comes flagged gets delay number 1 at its first failure here: nobody knows of another."""
    talk = Talk(AUTO)
    talk.subscribe(policy=GROWING)
    talk.comes("a", redelivered="true")
    assert talk.listen(BROKEN) == "a#2"
    assert spread(talk) == [("a", 3, 0.0, True)]


def test_commit_does_not_carry_the_delay_over() -> None:
    """The next message begins with the initial delay again (AMQ-8617)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=GROWING)
    talk.comes("a", "b")
    talk.receive()
    talk.rollback()
    talk.receive()
    talk.rollback()
    talk.timer()
    assert talk.receive() == "a#3"
    talk.commit()
    talk.answer()
    assert talk.receive() == "b#1"
    talk.rollback()
    assert [entry[2] for entry in spread(talk)] == [0, 1.0, 0]


def test_newest_of_the_batch_decides_the_delay() -> None:
    """Both wait for the delay of the message that was delivered last (`ActiveMQMessageConsumer.java:1249-1391`)."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=GROWING)
    talk.comes("a", "b")
    talk.receive()
    talk.rollback()
    assert [talk.receive(), talk.receive()] == ["a#2", "b#1"]
    talk.rollback()
    assert spread(talk)[1:] == [("a", 3, 0, True), ("b", 2, 0, True)]
    assert talk.drain() == ["a#3", "b#2"]


def test_chance_is_drawn_by_whoever_made_the_session() -> None:
    """Collision avoidance takes the next number that it is given."""
    draws = iter([1.0, -1.0])
    talk = Talk(AUTO, draw=lambda: next(draws))
    policy = RedeliveryPolicy(use_collision_avoidance=True)
    talk.subscribe(policy=policy)
    talk.comes("a")
    for _ in range(3):
        talk.listen(BROKEN)
        talk.timer()
    assert [entry[2] for entry in spread(talk)] == [1.0, 1.15, 0.85]


@pytest.mark.parametrize("delay", [0.0, 7.5])
def test_retry_names_its_own_delay(delay: float) -> None:
    """It counts as a delivery, and the policy's delay does not matter."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(1, initial_redelivery_delay=1.0))
    talk.comes("a", "b")
    talk.listen(Failure("Retry", "later", None, delay=delay))
    assert spread(talk) == [("a", 2, delay, True)]
    if delay:
        assert talk.listen() is None
        assert talk.timer() == delay
    assert talk.listen(Failure("Retry", "later", None, delay=delay)) == "a#2"
    assert talk.wrote() == ["NACK a"]


def test_pause_is_the_consumers_own() -> None:
    """Other consumers of the session go on (`ActiveMQMessageConsumer.java:1249-1391`)."""
    talk = Talk(AUTO)
    talk.subscribe("1", policy=ONE_SECOND)
    talk.subscribe("2", policy=ONE_SECOND)
    talk.comes("a", "b", to="1")
    talk.comes("x", "y", to="2")
    assert talk.listen(BROKEN, "1", "2") == "a#1"
    assert [talk.listen(None, "1", "2") for _ in range(3)] == ["x#1", "y#1", None]
    talk.now = 1.0
    assert [talk.listen(None, "1", "2") for _ in range(3)] == ["a#2", "b#1", None]


@pytest.mark.parametrize(
    ("mode", "order", "again"),
    [
        (CLIENT, "ab", ["b#2", "a#2"]),
        (CLIENT, "ba", ["b#2", "a#2"]),
        (TRANSACTED, "ab", ["b#2", "a#2"]),
        (TRANSACTED, "ba", ["a#2", "b#2"]),
    ],
)
def test_consumer_that_is_given_back_last_is_served_first(
    mode: AcknowledgeMode, order: str, again: list[str]
) -> None:
    """Recover goes from consumer to consumer as they were made, rollback as the transaction met them."""
    talk = Talk(mode)
    talk.subscribe("1", policy=AT_ONCE)
    talk.subscribe("2", policy=AT_ONCE)
    for name in order:
        talk.comes(name, to={"a": "1", "b": "2"}[name])
        talk.now += 0.1
        talk.receive("1", "2")
    talk.comes("c", to="1")
    if mode is CLIENT:
        talk.core.recover(talk.now)
    else:
        talk.core.rollback(talk.now)
    assert [talk.receive("1", "2") for _ in range(3)] == [*again, "c#1"]


def test_after_a_delay_what_failed_comes_before_all_others() -> None:
    """Also before what was given back meanwhile, at once."""
    talk = Talk(AUTO)
    talk.subscribe("1", policy=ONE_SECOND)
    talk.subscribe("2", policy=AT_ONCE)
    talk.comes("x", to="2")
    talk.comes("a", to="1")
    assert talk.listen(BROKEN, "1") == "a#1"
    assert talk.listen(BROKEN, "2") == "x#1"
    talk.now = 1.0
    assert [talk.listen(None, "1", "2") for _ in range(2)] == ["a#2", "x#2"]


def test_recover_redelivers_all_that_is_not_acknowledged() -> None:
    """Upstream rows 53 and 56: in order, flagged, with the count raised, and not what was acknowledged."""
    talk = Talk(CLIENT)
    talk.subscribe()
    talk.comes("a", "b", "c", "d")
    talk.receive()
    talk.core.acknowledge(talk.held(), talk.now)
    talk.receive()
    talk.core.recover(talk.now)
    assert talk.drain() == ["c#2", "d#1"]
    assert talk.wrote() == ["ACK b"]


def test_recover_in_the_own_listener_of_auto() -> None:
    """Upstream row 58: the message comes again, and its listener's return owes nothing."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes("a", "b")
    delivery = talk.held()
    talk.core.recover(talk.now)
    talk.core.consumed(delivery, talk.now)
    assert talk.core.next_timer() is None
    assert [talk.receive(), talk.receive(), talk.receive()] == ["a#2", "b#1", None]
    assert talk.wrote() == ["ACK a", "ACK b"]
    assert talk.ended() == ["a#1 rolled_back", "a#2 acknowledged", "b#1 acknowledged"]


def test_listener_that_recovers_and_raises_fails_once() -> None:
    """The message is in nobody's hands any more when the exception comes."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(1))
    talk.comes("a")
    delivery = talk.held()
    talk.core.recover(talk.now)
    talk.core.failed(delivery, BROKEN, talk.now)
    assert talk.receive() == "a#2"
    assert talk.wrote() == ["ACK a"]


def test_individual_failure_redelivers_the_others_too() -> None:
    """All that is delivered and not acknowledged is rolled back (`ActiveMQMessageConsumer.java:1460-1470`)."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes("a", "b", "c")
    first, second = talk.held(), talk.held()
    talk.core.consumed(first, talk.now)
    talk.core.failed(second, BROKEN, talk.now)
    assert talk.drain() == ["a#2", "b#2", "c#1"]
    assert talk.wrote() == []


@pytest.mark.parametrize("mode", [CLIENT, TRANSACTED])
def test_failure_is_as_good_as_delivered_where_the_application_decides(
    mode: AcknowledgeMode,
) -> None:
    """CLIENT and TRANSACTED: the next message comes; redelivery only by recover or rollback."""
    talk = Talk(mode)
    talk.subscribe()
    talk.comes("a", "b")
    assert [talk.listen(BROKEN), talk.listen()] == ["a#1", "b#1"]
    assert talk.wrote() == []
    assert spread(talk) == []


# -- non-blocking -----------------------------------------------------------------------------------------------------


def test_non_blocking_redelivery_lets_others_pass() -> None:
    """Order 1, 2, 1."""
    talk = Talk(AUTO)
    talk.subscribe(policy=ONE_SECOND, non_blocking_redelivery=True)
    talk.comes("a", "b")
    assert [talk.listen(BROKEN), talk.listen()] == ["a#1", "b#1"]
    talk.timer()
    assert talk.wrote() == ["ACK b"]
    assert talk.listen() is None
    talk.now = 0.999
    talk.core.handle_timer(talk.now)
    assert talk.listen() is None
    assert talk.timer() == 1.0
    assert talk.listen() == "a#2"
    assert spread(talk) == [("a", 2, 1.0, False)]


@pytest.mark.parametrize(
    ("how", "told"),
    [
        ({}, (True, False)),
        ({"non_blocking_redelivery": True}, (False, False)),
        ({"scheduled": True}, (False, True)),
    ],
)
def test_who_keeps_the_message_till_its_redelivery(
    how: dict[str, Any], told: tuple[bool, bool]
) -> None:
    """The consumer, which holds others back or not, or the broker's scheduler."""
    talk = Talk(AUTO, dialect=ARTEMIS)
    talk.subscribe(policy=ONE_SECOND, **how)
    talk.comes("a")
    talk.listen(BROKEN)
    assert [(one.blocking, one.by_broker) for one in talk.reported(RedeliveryScheduled)] == [told]


def test_non_blocking_redelivery_keeps_the_order_of_the_batch() -> None:
    """Upstream row 24: all that was rolled back comes again in its original order."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=ONE_SECOND, non_blocking_redelivery=True, prefetch=200)
    talk.comes("a", "b", "c")
    talk.drain()
    talk.rollback()
    talk.comes("d")
    assert talk.drain() == ["d#1"]
    talk.wait_until(1.0)
    assert talk.drain() == ["a#2", "b#2", "c#2"]


def test_non_blocking_redelivery_without_delay_waits_for_no_time() -> None:
    """Upstream row 25: it is due at once, behind what is here already."""
    talk = Talk(TRANSACTED)
    talk.subscribe(policy=AT_ONCE, non_blocking_redelivery=True)
    talk.comes("a", "b")
    talk.receive()
    talk.rollback()
    assert talk.timer() == 0.0
    assert talk.drain() == ["b#1", "a#2"]


def test_non_blocking_row_seven() -> None:
    """Upstream row 7: max 4, ten messages, each rolled back at once: fifty receives, and no fifty-first."""
    talk = Talk(TRANSACTED)
    policy = RedeliveryPolicy(
        maximum_redeliveries=4,
        initial_redelivery_delay=0,
        redelivery_delay=0.5,
        back_off_multiplier=2,
        use_exponential_back_off=True,
        maximum_redelivery_delay=1.5,
    )
    talk.subscribe(policy=policy, non_blocking_redelivery=True, prefetch=100)
    names = [f"m{n}" for n in range(10)]
    talk.comes(*names)
    seen = []
    for _ in range(100):
        delivery = talk.take()
        if delivery is not None:
            seen.append(called(delivery))
            talk.rollback()
        elif talk.core.next_timer() is not None:
            talk.timer()
    assert sorted(seen) == sorted(f"{name}#{n}" for name in names for n in range(1, 6))
    assert sorted(talk.wrote()) == sorted(f"NACK {name}" for name in names)
    assert talk.now == 3.0


# -- what is told of it -----------------------------------------------------------------------------------------------


def stacks(talk: Talk) -> list[tuple[str, str | None]]:
    """How each delivery ended, and the way to its error, if that is told; dead letters behind them."""
    ended = [(event.outcome.value, event.error_stack) for event in talk.reported(DeliveryEnded)]
    dead = [(event.reason, event.error_stack) for event in talk.reported(MessageDeadLettered)]
    return ended + dead


def test_the_way_to_the_error_is_told_at_the_first_failure_and_at_death() -> None:
    """Once each, however often it fails in between; and nothing of a delivery that does not fail."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(2))
    talk.comes("b", "a")
    assert talk.listen() == "b#1"
    for number in range(3):
        assert talk.listen(replace(BROKEN, trace=f"a.py:{number} f")) == f"a#{number + 1}"
    assert stacks(talk) == [
        ("acknowledged", None),
        ("rolled_back", "a.py:0 f"),
        ("rolled_back", None),
        ("dead_lettered", None),
        ("max_redeliveries", "a.py:2 f"),
    ]


def test_a_failure_after_one_on_a_lost_link_is_not_the_first() -> None:
    """Nor is one of a message that was sent back to the broker for later."""
    talk = Talk(AUTO)
    talk.subscribe(policy=at_most(5))
    talk.comes("a")
    talk.listen(replace(BROKEN, trace="a.py:1 f"))
    talk.lose()
    talk.comes("a", redelivered="true")
    talk.listen(replace(BROKEN, trace="a.py:2 f"))
    told = [stack for _, stack in stacks(talk)]
    assert [one for one in told if one] == ["a.py:1 f"]


def test_what_is_here_is_told_when_asked() -> None:
    """What waits, for its turn or the end of a back-off, and what the application has."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe(policy=ONE_SECOND, non_blocking_redelivery=True)
    talk.comes(*"abcd")
    talk.listen(BROKEN)
    talk.held()
    talk.core.measure(talk.now)
    told = talk.reported(ConsumerMeasured)
    assert [(one.consumer, one.buffered, one.in_process) for one in told] == [("consumer-1", 3, 1)]


def test_a_dead_letter_that_the_broker_refuses_is_here() -> None:
    """Its reader, whose only message it may be, gets no other one before it is taken: it has not read all there is."""
    talk = Talk(INDIVIDUAL, dead_letter="queue://full")
    talk.subscribe(policy=at_most(0), prefetch=1)
    talk.comes("a")
    talk.listen(BROKEN)
    talk.refuse()
    talk.core.measure(talk.now)
    assert [(one.buffered, one.in_process) for one in talk.reported(ConsumerMeasured)] == [(1, 0)]


def test_what_is_done_and_has_no_ack_yet_is_here() -> None:
    """The broker has it, too."""
    talk = Talk(AUTO)
    talk.subscribe()
    talk.comes(*"ab")
    talk.listen()
    talk.core.measure(talk.now)
    talk.wait_until(1.0)
    talk.core.measure(talk.now)
    told = talk.reported(ConsumerMeasured)
    assert [(one.buffered, one.in_process) for one in told] == [(1, 1), (1, 0)]


def test_what_the_application_has_for_long_is_told() -> None:
    """Of two messages it had one already when that was told before; it is told again until it is settled."""
    talk = Talk(INDIVIDUAL)
    talk.subscribe()
    talk.comes(*"ab")
    first = talk.held()
    talk.wait_until(1.0)
    talk.core.measure(talk.now)
    talk.held()
    talk.wait_until(2.0)
    talk.core.measure(talk.now)
    talk.wait_until(3.0)
    talk.core.measure(talk.now)
    talk.core.acknowledge(first, talk.now)
    talk.wait_until(4.0)
    talk.core.measure(talk.now)
    told = talk.reported(ConsumerMeasured)
    assert [(one.in_process, one.still_in_process) for one in told] == [
        (1, 0),
        (2, 1),
        (2, 2),
        (1, 1),
    ]
