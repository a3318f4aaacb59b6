"""What the core asks for is handed over once, in order."""

from __future__ import annotations

import math

from jmsx.core.events import (
    AckTrigger,
    DeadLetterFailed,
    DeliveryEnded,
    LinkOpened,
    MessagesAcknowledged,
    MessageSent,
    MessagesReceived,
    Outcome,
    SubscriptionOpened,
)
from jmsx.core.frames import Disconnect, Frame, Outbox, Transmit
from tests.unit.core.harness import AUTO, BROKEN, Talk, at_most


def test_actions_come_out_once_in_order() -> None:
    """Frames that were asked for together stay together: they are one burst."""
    outbox = Outbox()
    begin, commit = Frame("BEGIN"), Frame("COMMIT")
    event = LinkOpened(at=1.0, server="ActiveMQ/6.1.8", seconds=0.5)
    outbox.transmit(begin, commit)
    outbox.report(event)
    outbox.disconnect("enough")
    assert outbox.take() == [Transmit((begin, commit)), event, Disconnect("enough")]
    assert outbox.take() == []


def taken_in_turn(talk: Talk) -> None:
    """Two messages are received, and one is sent."""
    talk.subscribe()
    talk.comes("a", "b")
    assert talk.drain() == ["a#1", "b#1"]
    talk.send(persistent=False)


def test_each_message_is_told_of() -> None:
    """Whoever observes counts them."""
    talk = Talk(AUTO)
    taken_in_turn(talk)
    assert len(talk.reported(DeliveryEnded)) == 2
    assert [one.messages for one in talk.reported(MessagesReceived)] == [2]
    assert {one.trigger for one in talk.reported(MessagesAcknowledged)} == {AckTrigger.EACH}
    assert len(talk.reported(MessageSent)) == 1


def test_nobody_is_told_of_each_message_who_does_not_listen() -> None:
    """Its events are not made, for they cost more than to parse it; what is rare is told all the same."""
    talk, told = Talk(AUTO), Talk(AUTO)
    talk.core.detail(wanted=False)
    taken_in_turn(talk)
    taken_in_turn(told)
    often = (DeliveryEnded, MessagesReceived, MessagesAcknowledged, MessageSent)
    assert [talk.reported(kind) for kind in often] == [[], [], [], []]
    assert talk.reported(SubscriptionOpened) == told.reported(SubscriptionOpened) != []
    assert talk.bursts == told.bursts


def test_who_does_not_follow_ends_is_told_of_none() -> None:
    """What came and was sent is told; of the end of a message only when it was, and that to who asks."""
    talk, told = Talk(AUTO), Talk(AUTO)
    talk.core.detail(wanted=True, ends=False)
    assert talk.core.ended_at == -math.inf
    taken_in_turn(talk)
    taken_in_turn(told)
    assert talk.reported(DeliveryEnded) == talk.reported(MessagesAcknowledged) == []
    for kind in (MessagesReceived, MessageSent, SubscriptionOpened):
        assert talk.reported(kind) == told.reported(kind) != []
    assert talk.core.ended_at == told.core.ended_at == told.reported(DeliveryEnded)[-1].at
    assert talk.bursts == told.bursts


def test_behind_a_refused_dead_letter_each_end_is_told() -> None:
    """Whoever was told that it is refused has to know when it is settled after all, though it follows no ends."""
    talk = Talk(AUTO)
    talk.core.detail(wanted=True, ends=False)
    talk.subscribe(policy=at_most(0))
    talk.comes("a", "b", persistent="")
    talk.listen(BROKEN)
    talk.refuse("no room")
    (refused,) = talk.reported(DeadLetterFailed)
    assert talk.reported(DeliveryEnded) == []
    talk.timer()
    talk.answer()
    (ended,) = talk.reported(DeliveryEnded)
    assert (ended.message_key, ended.outcome) == (refused.message_key, Outcome.DEAD_LETTERED)


def test_a_core_that_tells_nobody_goes_on_so_behind_a_refused_dead_letter() -> None:
    """Nobody was told of that one either, save the log."""
    talk = Talk(AUTO)
    talk.core.detail(wanted=False)
    talk.subscribe(policy=at_most(0))
    talk.comes("a", persistent="")
    talk.listen(BROKEN)
    talk.refuse("no room")
    talk.timer()
    talk.answer()
    assert len(talk.reported(DeadLetterFailed)) == 1
    assert talk.reported(DeliveryEnded) == []
