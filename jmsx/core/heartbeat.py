"""
Heart-beats: when to send one, and when the peer is late.

Source: STOMP 1.2 "Heart-beating". Classic checks strictly, without grace, and its own gap can be nearly twice what it
promised (BROKER.md C3). So we send twice as often as we promise, and ask the peer for beats twice as often as we
need them: its worst gap is then one period, and after two of them it is as good as dead.
"""

from __future__ import annotations

from typing import Final

from jmsx.core.headers import whole

#: We send after this part of the period that we promised, and ask the peer for this part of the period that we need.
SEND_AT: Final = 0.5
ASK_FOR: Final = 0.5

#: Periods after which the peer is late.
LATE_AT: Final = 2.0

#: Periods that the peer promised, after which it is late, if that is longer: its gap, and some grace.
GRACE: Final = 2.5


class Heartbeat:
    """
    The heart-beats of one link; times are seconds, monotonic; a period of 0 means none.

    `offered` is how often we can send and how often we need to hear, `answer` the header of CONNECTED.
    """

    def __init__(
        self, offered: tuple[float, float], answer: str, now: float, patience: float = 0.0
    ) -> None:
        """Start the clocks. `patience`: seconds of silence that the peer allows where nothing was promised; 0: any."""
        ours, theirs = offered
        promised, wanted = parse(answer)
        agreed = max(ours, wanted) if ours and wanted else patience
        self._send_every = agreed * SEND_AT
        self._late_after = max(theirs * LATE_AT, promised * GRACE) if theirs and promised else 0.0
        self._sent = now
        self._heard = now

    @property
    def silence(self) -> float | None:
        """Seconds without a byte after which the peer counts as dead; None: it may be silent for ever."""
        return self._late_after or None

    def sent(self, now: float) -> None:
        """Note that bytes were written."""
        self._sent = now

    def heard(self, now: float) -> None:
        """Note that bytes have arrived."""
        self._heard = max(self._heard, now)

    def next_timer(self) -> float | None:
        """Return when to look at `due` and `late` again (seconds, monotonic)."""
        timers = []
        if self._send_every:
            timers.append(self._sent + self._send_every)
        if self._late_after:
            timers.append(self._heard + self._late_after)
        return min(timers, default=None)

    def due(self, now: float) -> bool:
        """Return whether a heart-beat has to be written now."""
        return bool(self._send_every) and now >= self._sent + self._send_every

    def late(self, now: float) -> bool:
        """Return whether the peer has been silent for so long that it counts as dead."""
        return bool(self._late_after) and now >= self._heard + self._late_after


def header(offered: tuple[float, float]) -> str:
    """Return the `heart-beat` header of CONNECT for (send every, expect every) seconds."""
    ours, theirs = offered
    asked = max(round(theirs * ASK_FOR * 1000), 1) if theirs else 0
    return f"{round(ours * 1000)},{asked}"


def parse(text: str) -> tuple[float, float]:
    """Return (promised, wanted) seconds from CONNECTED's `heart-beat` header; (0, 0) if there is none."""
    promised, comma, wanted = text.replace(" ", "").partition(",")
    send, expect = whole(promised), whole(wanted)
    if not comma or send is None or expect is None:
        return 0.0, 0.0
    return send / 1000, expect / 1000
