"""Whether messages move in each session, according to its events: the basis of the health probes."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from jmsx.app.counting import Places
from jmsx.core.events import (
    DeadLetterFailed,
    DeliveryEnded,
    Event,
    LinkClosed,
    LinkOpened,
    MessageSent,
    MessagesReceived,
    Outcome,
    RedeliveryScheduled,
    Source,
    SubscriptionClosed,
    SubscriptionOpened,
)
from jmsx.core.poison_frames import PoisonFrames

#: Seconds that a refused dead letter is remembered after its link has ended: if a broker ends the link with each
#: refusal, the next attempt comes later, and health must report the cause until then.
REMEMBERED: Final = 120.0


#: Events that name a destination which the app uses.
_NAMING: Final = (MessageSent, SubscriptionOpened)


class Refusal(NamedTuple):
    """A dead letter that the broker refused: its destination, and why."""

    place: str  #: its destination
    reason: str
    at: float = -math.inf  #: seconds, monotonic
    until: float = math.inf  #: seconds, monotonic: after that another consumer may have the message


@dataclass(slots=True)
class Movement:
    """
    When messages last moved in one session; times are seconds, monotonic.

    Only the session's own events change it, one at a time; health probes read it without a lock, so they never wait.
    """

    connected: bool = False
    subscribed: bool = False
    received_at: float = -math.inf  #: when the last message came, or the subscription was opened
    moved_at: float = -math.inf  #: when a message last came, or the link opened or closed
    due_at: float = -math.inf  #: when the last of the promised redeliveries is due
    refused: dict[str, Refusal] = field(default_factory=dict)  #: by message key

    poison_frames: PoisonFrames = field(default_factory=PoisonFrames)

    def idle_since(self, moment: float) -> bool:
        """Return whether it has been subscribed since `moment`, and no message came or went."""
        return self.subscribed and self.moved_at <= moment

    def note(self, event: Event) -> None:
        """Note what `event` says about messages that come and go."""
        self.poison_frames.note(event)
        if isinstance(event, DeliveryEnded):  # the most frequent kind
            self._note_end(event)
            return
        match event:
            case DeadLetterFailed():
                place = event.dead_letter_destination or "the broker's dead letter queue"
                refusal = Refusal(place, event.reason, event.at)
                self.refused = {**self.refused, event.message_key: refusal}
            case MessagesReceived():
                self.received_at = self.moved_at = event.at
            case RedeliveryScheduled():
                self.due_at = max(self.due_at, event.at + event.delay)
            case SubscriptionOpened():
                self.subscribed = True
                self.received_at = self.moved_at = event.at
            case SubscriptionClosed():
                self.subscribed, self.refused = False, {}
            case LinkOpened() | LinkClosed():
                self.connected, self.subscribed = isinstance(event, LinkOpened), False
                self.due_at, self.moved_at = -math.inf, event.at
                until = event.at + REMEMBERED
                self.refused = {
                    key: refusal._replace(until=min(refusal.until, until))
                    for key, refusal in self.refused.items()
                    if refusal.until > event.at and not _was_cut(refusal, event)
                }

    def _note_end(self, event: DeliveryEnded) -> None:
        if event.message_key in self.refused and event.outcome is not Outcome.ABANDONED:
            left = {**self.refused}
            del left[event.message_key]
            self.refused = left  # a new dict, for readers take no lock


def _was_cut(refusal: Refusal, event: LinkOpened | LinkClosed) -> bool:
    """Return whether nobody has refused it: its link has ended, and not by an ERROR, before the broker had answered."""
    return (
        isinstance(event, LinkClosed) and event.reason != "error_frame" and refusal.at == event.at
    )


class Progress:
    """An observer that follows every session."""

    #: It needs no event for each settled message: the session itself knows when one was settled last
    follows_ends: Final = False

    def __init__(self) -> None:
        self._movements: dict[str, Movement] = {}
        self.places = Places()

    def movement(self, session_id: str) -> Movement:
        """Return the Movement of a session, which is new for a session without events."""
        movement = self._movements.get(session_id)
        return movement or self._movements.setdefault(session_id, Movement())

    def observe(self, event: Event, source: Source) -> None:
        """Take note of one event."""
        if isinstance(event, _NAMING):
            self.places.note(event.destination, source)
        self.movement(source.session_id).note(event)

    def close(self) -> None:
        """Do nothing: observers have a `close()`, and this one holds nothing that must be closed."""
