"""
How a consumer that acknowledges late keeps messages coming.

The broker sends no more than `prefetch` unacknowledged messages, and pages a backlog in only when something wakes it.
The Java client opens the window with a DELIVERED acknowledgement at half the prefetch. STOMP's equal is an ACK inside a
transaction. jmsx sends one when the application waits and nothing is left to hand out, so that it does not stall where
the Java client does, and aborts that transaction at once: nothing of it is left but the wake-up and, with cumulative
ACKs, a window that is wider by what the ACK covered, until plain ACKs narrow it again.

An open transaction would do as well, but Classic searches the list of its messages once for each of them: with 20,000
unacknowledged messages one more ACK took it more than ten seconds (measured).

Source: classic.md 2.8 and 3.4, probes-classic.md part 1 and "window creep"; `PrefetchSubscription.java:193-398`.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.batching import IDLE, PAGE

#: Seconds that a waiting consumer with few unsettled messages waits before it asks for more: it is rarely the reason.
PATIENCE: Final = 0.1

#: Seconds after which a consumer that asked in vain asks once more, as if its model of the window were wrong.
DOUBT: Final = 1.0


class Window:
    """What the broker still sends: a model of one window, in messages; rather too narrow than too wide."""

    def __init__(self, prefetch: int, *, individual: bool) -> None:
        self._prefetch = prefetch
        self._individual = individual
        self._wider = 0  #: beyond the prefetch, by aborted ACKs or by messages that are held
        self._asked = 0  #: unsettled messages when more was last asked for
        self._sure = True  #: asking again would be of no use

    def patience(self, unsettled: int) -> float | None:
        """Seconds that a dry, waiting consumer waits before it asks for more; None: no use in asking."""
        fresh = unsettled - self._asked
        if fresh <= 0:
            return None if self._sure or unsettled == 0 else DOUBT
        return IDLE if fresh >= min(max(self._prefetch // 2, 1), PAGE // 2) else PATIENCE

    def ask(self, unsettled: int) -> int:
        """
        How many of the `unsettled` messages, oldest first, an ACK(tx) has to cover to get more; at least 1.

        While there is room 1 will do, as a mere wake-up.
        """
        again = unsettled <= self._asked
        full = again or self.is_full(unsettled)
        self._asked = unsettled
        self._sure = full or self._individual
        if not full:
            return 1
        growth = max(1, min(self._prefetch, PAGE))
        missing = growth + (unsettled - self._prefetch if self._individual else 0)
        return min(unsettled, max(missing, 1))

    def is_full(self, unsettled: int) -> bool:
        """Whether the broker may send no more."""
        return unsettled >= self._prefetch + self._wider

    def widened(self, messages: int) -> None:
        """The broker sends `messages` more, after a cumulative ACK that was aborted."""
        self._wider += messages

    def held(self, messages: int) -> None:
        """`messages` single ACKs are kept in an open transaction: the broker sends as many more meanwhile."""
        self._wider = messages

    def settled(self, messages: int) -> None:
        """`messages` messages were settled outside a transaction, which narrows a wide window."""
        self._asked = max(0, self._asked - messages)
        self._wider = max(0, self._wider - messages)

    def reset(self) -> None:
        """What was handed out is settled or will be handed out again: ask anew."""
        self._asked = 0
