"""
One consumer of a queue: its credits, its selector, and what it has in flight.

The window is counted in bytes, by the length of whole frames; credits come back with an acknowledgement, not before.
Source: artemis-server 2.44.0 ServerConsumerImpl; jmsx_artemis/BROKER.md A16 and A18.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.artemis.line import Reference
    from jmsx.testing.artemis.message import CoreMessage
    from jmsx.testing.artemis.queue import ArtemisQueue

UNLIMITED: Final = -1


class Handled(Enum):
    """What a consumer says to a message that is offered to it."""

    TAKEN = auto()
    BUSY = auto()  #: not now
    UNWANTED = auto()  #: never


@dataclass(frozen=True, slots=True, kw_only=True)
class Terms:
    """What a SUBSCRIBE asked for."""

    subscription_id: str
    mode: str  #: `auto`, `client-individual`, and whatever else, which all is `client`
    window: int  #: bytes
    no_local: bool = False
    is_topic: bool = False  #: the queue is that of a subscription to a topic


class ArtemisConsumer:
    """One consumer; it takes nothing before `open_window`."""

    def __init__(
        self,
        number: int,
        queue: ArtemisQueue,
        terms: Terms,
        wants: Callable[[CoreMessage], bool],
        write: Callable[[ArtemisConsumer, Reference], int],
    ) -> None:
        self.number = number  #: new with every SUBSCRIBE; the first part of message ids
        self.queue = queue
        self.terms = terms
        self.delivering: dict[int, Reference] = {}  #: by message id, in order of dispatch
        self._wants = wants
        self._write = write  #: returns the bytes that it wrote
        self._credits: int | None = 0  #: bytes; None: no end of them

    @property
    def has_window(self) -> bool:
        """Whether acknowledgements give credits back."""
        return self.terms.window != UNLIMITED

    def open_window(self) -> None:
        """Let messages come, after the RECEIPT; a window of 0 lets one come, one below -1 never any."""
        if self.has_window:
            self.give_credits(self.terms.window or 1)
        else:
            self._credits = None
            self.queue.wake()

    def give_credits(self, size: int) -> None:
        """Let `size` more bytes come."""
        if self._credits is None:
            return
        was_dry = self._credits <= 0
        self._credits += size
        if was_dry and self._credits > 0:
            self.queue.wake()

    def offer(self, reference: Reference) -> Handled:
        """Take `reference`, or say why not; taking it counts as a delivery at once."""
        if self._credits is not None and self._credits <= 0:
            return Handled.BUSY
        if not self._wants(reference.message):
            return Handled.UNWANTED
        self.delivering[reference.message.message_id] = reference
        reference.delivery_count += 1
        return Handled.TAKEN

    def deliver(self, reference: Reference) -> None:
        """Write what was taken; the last frame may go beyond the window."""
        size = self._write(self, reference)
        if self._credits is not None:
            self._credits -= size

    def acknowledge(self, message_id: int) -> list[int]:
        """Settle all up to and with `message_id`; returns their ids."""
        settled = []
        for each in list(self.delivering):
            settled.append(each)
            self.queue.settle(self.delivering.pop(each))
            if each == message_id:
                break
        return settled

    def acknowledge_one(self, message_id: int) -> None:
        """Settle `message_id` alone."""
        self.queue.settle(self.delivering.pop(message_id))

    # -- its end --------------------------------------------------------------------------------

    def release(self) -> None:
        """UNSUBSCRIBE: nothing was an attempt, and nothing waits for a redelivery delay."""
        self.queue.give_back(self._take_back(counted=0), at_once=True)
        self._close()

    def fail(self) -> None:
        """A dead socket: every delivery was an attempt, and nothing waits for a redelivery delay."""
        self.queue.give_back(self._take_back(counted=len(self.delivering)), at_once=True)
        self._close()

    def roll_back(self) -> None:
        """DISCONNECT or an ERROR: the oldest was an attempt, and all wait for the redelivery delay."""
        self.queue.give_back(self._take_back(counted=1), at_once=False)
        self._close()

    def _take_back(self, counted: int) -> list[Reference]:
        """All that is in flight, oldest first; only the first `counted` keep their delivery."""
        taken = list(self.delivering.values())
        self.delivering.clear()
        for reference in taken[counted:]:
            reference.delivery_count -= 1
        return taken

    def _close(self) -> None:
        self.queue.remove_consumer(self)
