"""
Heart-beats: when to send one, and when the peer is late.

Source: STOMP 1.2 "Heart-beating". Classic checks strictly, without grace (classic.md 2.10), and its own gap can be
nearly twice what it promised; so we send at half the period and allow the peer two and a half.
"""

from __future__ import annotations

from typing import Final

#: Parts of what we promised after which we send, and of what the peer promised after which it is late.
SEND_AT: Final = 0.5
LATE_AT: Final = 2.5


class Heartbeat:
    """The heart-beats of one link; times are seconds, monotonic; a period of 0 means none."""

    def __init__(self, offered: tuple[float, float], answer: str, now: float) -> None:
        ours, theirs = offered
        promised, wanted = parse(answer)
        self._send_every = max(ours, wanted) * SEND_AT if ours and wanted else 0.0
        self._late_after = max(theirs, promised) * LATE_AT if theirs and promised else 0.0
        self._sent = now
        self._heard = now

    def sent(self, now: float) -> None:
        """Bytes were written."""
        self._sent = now

    def heard(self, now: float) -> None:
        """Bytes have arrived."""
        self._heard = max(self._heard, now)

    def next_timer(self) -> float | None:
        """When to look at `due` and `late` again."""
        timers = []
        if self._send_every:
            timers.append(self._sent + self._send_every)
        if self._late_after:
            timers.append(self._heard + self._late_after)
        return min(timers, default=None)

    def due(self, now: float) -> bool:
        """Whether a heart-beat has to be written now."""
        return bool(self._send_every) and now >= self._sent + self._send_every

    def late(self, now: float) -> bool:
        """Whether the peer is as good as dead."""
        return bool(self._late_after) and now >= self._heard + self._late_after


def header(offered: tuple[float, float]) -> str:
    """The `heart-beat` header of CONNECT for (send every, expect every) seconds."""
    return f"{round(offered[0] * 1000)},{round(offered[1] * 1000)}"


def parse(text: str) -> tuple[float, float]:
    """(promised, wanted) seconds from CONNECTED's `heart-beat` header; (0, 0) if there is none."""
    promised, comma, wanted = text.replace(" ", "").partition(",")
    if not comma or not promised.isdigit() or not wanted.isdigit():
        return 0.0, 0.0
    return int(promised) / 1000, int(wanted) / 1000
