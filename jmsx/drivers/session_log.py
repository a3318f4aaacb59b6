"""Logs ERRORs of the broker that nobody waits for, and dead letters, of which nobody would know otherwise."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from jmsx.core.events import (
    DeadLetterFailed,
    DeliveryEnded,
    ErrorReceived,
    Event,
    LinkClosed,
    MessageDeadLettered,
    Source,
)
from jmsx.core.frames import Refused
from jmsx.core.poison_frames import MANY, PoisonFrames
from jmsx.log import Seldom, logger, shortened

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds between two lines of one session.
PAUSE: Final = 10.0

#: Where a dead letter goes without a copy.
_BROKERS: Final = "where the broker's strategy puts it"

_log = logger("jmsx.session")


class SessionLog:
    """
    Logs a session's dead letters, those that the broker refuses, ERRORs that answer nothing, and a frame that ends one
    link after the other.
    """

    def __init__(self) -> None:
        self._lines = Seldom(PAUSE)
        self._refused = Seldom(PAUSE)
        self._poison_frames = PoisonFrames()
        #: What is done about an event, by its class; most classes are not here. DeliveryEnded is here only while links
        #: end at unreadable frames, so that a healthy link does no work for each message.
        self._notes: dict[type, Callable[[Any, Source], object]] = {
            LinkClosed: self._note_end,
            MessageDeadLettered: lambda event, _: _tell_of_dead_letter(event),
            DeadLetterFailed: lambda event, _: self._tell_of_refusal(event),
            ErrorReceived: self._complain,
        }

    def observe(self, event: Event, source: Source) -> None:
        """Log `event` if it tells of one of these; ERRORs and refusals at most once in `PAUSE` seconds each."""
        note = self._notes.get(type(event))
        if note is not None:
            note(event, source)

    def _note_end(self, event: LinkClosed, source: Source) -> None:
        if not self._poison_frames.note(event):
            return
        self._notes[DeliveryEnded] = self._note_delivery
        if self._poison_frames.count != MANY:
            return
        _log.error(
            "link ends again and again at a frame that cannot be read: remove that message at the broker",
            broker=source.broker,
            session=source.session_id,
            times=MANY,
            error=self._poison_frames.cause,
        )

    def _note_delivery(self, event: DeliveryEnded, _source: Source) -> None:
        self._poison_frames.note(event)
        if not self._poison_frames.count:
            del self._notes[DeliveryEnded]

    def _tell_of_refusal(self, event: DeadLetterFailed) -> None:
        left_out = self._refused.due(event.at)
        if left_out is None:
            return
        _log.error(
            "dead letter not confirmed: its message stays in the queue",
            consumer=event.consumer,
            destination=event.destination,
            to=event.dead_letter_destination or _BROKERS,
            key=event.message_key,
            error=event.reason,
            left_out=left_out,
        )

    def refusal(self, refused: Refused) -> None:
        """Log what the broker has refused, if the caller did not wait for the answer, or not so long."""
        if refused.message_key is not None:
            _log.error("send refused", key=refused.message_key, error=str(refused.error))
        elif refused.late:  # else its ERROR is logged, as "broker complained"
            _log.error("refused after its caller had stopped waiting", error=str(refused.error))

    def _complain(self, event: ErrorReceived, source: Source) -> None:
        # It answers a frame, whose sender is told; or see `refusal`.
        if event.receipt_id is not None:
            return
        left_out = self._lines.due(event.at)
        if left_out is not None:
            _log.warning(
                "broker complained", broker=source.broker, error=event.message, left_out=left_out
            )


def _tell_of_dead_letter(event: MessageDeadLettered) -> None:
    _log.error(
        "dead letter",
        consumer=event.consumer,
        destination=event.destination,
        to=event.dead_letter_destination or _BROKERS,
        reason=event.reason,
        attempts=event.attempts,
        key=event.message_key,
        message_id=event.message_id,
        error=shortened(f"{event.error_type}: {event.error_message}") if event.error_type else None,
        place=event.error_place,
    )
