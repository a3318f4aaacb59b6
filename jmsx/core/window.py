"""
How a consumer that acknowledges late keeps messages coming.

The broker sends no more than `prefetch` unacknowledged messages, and pages a backlog in only when something wakes it.
The Java client opens the window with a DELIVERED acknowledgement at half the prefetch. STOMP's equal is an ACK inside
an open transaction; jmsx sends one when the application waits and nothing is left to hand out, so that it does not
stall where the Java client does.

Source: classic.md 2.8 and 3.4, probes-classic.md part 1 and "window creep": an ACK(tx) widens the window by the number
of messages it newly covers; COMMIT narrows it again, ABORT does not, a plain ACK narrows it by what it settles.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.batching import IDLE, PAGE

#: Seconds that a waiting consumer with few unsettled messages waits before it asks for more: it is rarely the reason.
PATIENCE: Final = 0.1


class Window:
    """What the broker still sends: a model of one subscription's window, in messages."""

    def __init__(self, prefetch: int) -> None:
        self.prefetch = prefetch
        self.covered = 0  #: unsettled messages covered by an ACK in an open transaction
        self._asked = 0  #: unsettled messages when more was last asked for
        self._widened = 0  #: left over from aborted transactions

    def patience(self, unsettled: int) -> float | None:
        """Seconds that a dry, waiting consumer waits before it asks for more; None: it has asked."""
        fresh = unsettled - self._asked
        if fresh <= 0:
            return None
        return IDLE if fresh >= min(max(self.prefetch // 2, 1), PAGE // 2) else PATIENCE

    def is_full(self, unsettled: int) -> bool:
        """Whether the broker may send no more, so that a mere wake-up would not help."""
        return unsettled >= self.prefetch + self._widened + self.covered

    def ask(self, unsettled: int) -> None:
        """More is being asked for; not again before more has come."""
        self._asked = unsettled

    def cover(self, messages: int) -> None:
        """`messages` unsettled messages, oldest first, are covered by the open transaction now."""
        self.covered = messages

    def aborted(self) -> None:
        """A cumulative ACK(tx) was aborted: the window stays as wide as it is."""
        self._widened += self.covered
        self.covered = self._asked = 0

    def released(self, messages: int) -> None:
        """`messages` single ACK(tx) were aborted: the window is narrower by as many."""
        self.covered -= messages

    def committed(self) -> None:
        """The open transaction was committed with an ACK of everything."""
        self.covered = self._asked = 0

    def acknowledged(self, messages: int) -> None:
        """A plain ACK settled `messages` messages."""
        self._widened = max(0, self._widened - messages)
        self._asked = max(0, self._asked - messages)

    def rolled_back(self) -> None:
        """What was handed out will be handed out again."""
        self._asked = 0
