"""Whether messages move, session by session, as their events tell: what health is judged by."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from jmsx.core.dead_ends import DeadEnds
from jmsx.core.events import (
    DeadLetterFailed,
    DeliveryEnded,
    LinkClosed,
    LinkOpened,
    MessagesReceived,
    Outcome,
    RedeliveryScheduled,
    SubscriptionClosed,
    SubscriptionOpened,
)

if TYPE_CHECKING:
    from jmsx.core.events import Event, Source


@dataclass(slots=True)
class Movement:
    """
    Where one session stands; times are seconds, monotonic.

    Written by the session's own events, one after the other; read by others without a lock, for a probe never waits.
    """

    connected: bool = False
    subscribed: bool = False
    in_hand: int = 0  #: messages received and not ended: they wait here, or a handler has them
    received_at: float = -math.inf  #: the last message came, or the subscription was opened
    moved_at: float = -math.inf  #: a message came or went, or the link did
    due_at: float = -math.inf  #: the last of the redeliveries that were promised
    #: Dead letters that the broker does not take, by the keys of their messages: where they should go, and why not.
    refused: dict[str, tuple[str, str]] = field(default_factory=dict)

    dead_ends: DeadEnds = field(default_factory=DeadEnds)

    def note(self, event: Event) -> None:
        """Follow `event`."""
        self.dead_ends.note(event)
        match event:
            case DeadLetterFailed():
                place = event.dead_letter_destination or "the broker's dead letter queue"
                self.refused = {**self.refused, event.message_key: (place, event.reason)}
            case DeliveryEnded():
                if event.message_key in self.refused:
                    left = {**self.refused}
                    del left[event.message_key]
                    self.refused = left  # another one, for who reads it has no lock
                if event.outcome is not Outcome.ROLLED_BACK:  # else it waits here to come again
                    self.in_hand = max(self.in_hand - 1, 0)
                self.moved_at = event.at
            case MessagesReceived():
                self.in_hand += event.messages
                self.received_at = self.moved_at = event.at
            case RedeliveryScheduled():
                self.due_at = max(self.due_at, event.at + event.delay)
            case SubscriptionOpened():
                self.subscribed = True
                self.received_at = self.moved_at = event.at
            case SubscriptionClosed():
                self.subscribed, self.in_hand, self.refused = False, 0, {}
            case LinkOpened() | LinkClosed():
                self.connected, self.subscribed = isinstance(event, LinkOpened), False
                self.in_hand, self.due_at, self.moved_at = 0, -math.inf, event.at
                self.refused = {}


class Progress:
    """An observer that follows every session."""

    def __init__(self) -> None:
        self._movements: dict[str, Movement] = {}

    def movement(self, session_id: str) -> Movement:
        """Where a session stands; a new one for a session that has told nothing yet."""
        movement = self._movements.get(session_id)
        return movement or self._movements.setdefault(session_id, Movement())

    def observe(self, event: Event, source: Source) -> None:
        """Take note of one event."""
        self.movement(source.session_id).note(event)

    def close(self) -> None:
        """Nothing to release."""
