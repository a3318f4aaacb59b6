"""Counts links that end one after the other at an unreadable frame, while nothing is settled in between."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from jmsx.core.events import DeliveryEnded, Event, LinkClosed, Outcome

#: So many in a row are no accident: the same frame comes first each time.
MANY: Final = 3

#: Ends of a delivery that leave the queue as it was.
_UNSETTLED: Final = (Outcome.ROLLED_BACK, Outcome.RELEASED, Outcome.ABANDONED)


@dataclass(slots=True)
class PoisonFrames:
    """Counts the links of one session that ended at an unreadable frame, as its events tell."""

    count: int = 0  #: how many links in a row ended so
    cause: str = ""  #: why the last of them ended

    def note(self, event: Event) -> bool:
        """
        Count the link that `event` says has ended, or start again because a message was settled.

        Returns whether the link was counted; one that ended for another reason says nothing of frames.
        """
        if isinstance(event, DeliveryEnded):  # most events are
            if self.count and event.outcome not in _UNSETTLED:
                self.count = 0
            return False
        if isinstance(event, LinkClosed) and event.reason == "protocol":
            self.count, self.cause = self.count + 1, event.detail
            return True
        return False
