"""What the core asks for is handed over once, in order."""

from __future__ import annotations

from jmsx.core.events import (
    AckTrigger,
    DeliveryEnded,
    LinkOpened,
    MessagesAcknowledged,
    MessageSent,
    MessagesReceived,
    SubscriptionOpened,
)
from jmsx.core.frames import Disconnect, Frame, Outbox, Transmit
from tests.unit.core.harness import AUTO, Talk


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
