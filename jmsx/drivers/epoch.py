"""
What lasts as long as one epoch: its link with its mark, and the heart-beats on it.

The mark tells the link's frames from what senders write. The broker repeats the id of a subscription in each MESSAGE,
and that of a receipt in each RECEIPT; both get a suffix that is drawn anew for each link. It is put on where
frames are written and taken off where they are read (wire.py), so nothing in between shows it, and nobody but the link
and its broker knows it.

There is a mark only where senders can write what looks like a frame (`Dialect.raw_names`). On Artemis they cannot, and
it shows the `receipt` of a SEND to whoever receives the message (BROKER.md A48): there a mark would become known, and a
message with the mark in its body would look torn.
"""

from __future__ import annotations

import math
import secrets
from typing import TYPE_CHECKING, Final

from jmsx.core.dialect import Dialect
from jmsx.core.events import LinkMeasured
from jmsx.core.frames import Frame
from jmsx.core.heartbeat import Heartbeat
from jmsx.core.requests import barrier
from jmsx.drivers.link import StompLink
from jmsx.drivers.reconnect import Connected

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


#: Bytes a second by which an incomplete frame grows at least if it is really coming in; a heart-beat adds one byte.
SLOWEST: Final = 1024

#: Times that an answer is waited for while messages come in, however little of them is on its way at that moment.
MOST_TIMES: Final = 10

#: Seconds after a failed write in which an ERROR that has come already may still say why the link ended.
LAST_WORDS: Final = 1.0

#: How often a frame is looked at until its time is over, and seconds between looks at least.
LOOKS: Final = 4
PAUSE: Final = 0.05


#: Seconds between two measurements of what went over a link: that it was silent for a minute must be seen.
MEASURE_EVERY: Final = 15.0

#: Random bytes in a mark.
_MARK_SIZE: Final = 8

#: Commands whose `id` is that of a subscription.
_SUBSCRIBING: Final = ("SUBSCRIBE", "UNSUBSCRIBE")


class Seal:
    """The mark of one link; none before `impress`."""

    def __init__(self) -> None:
        self._suffix = ""
        self._settle_nothing: Callable[[str], None] = lambda _id: None

    @property
    def mark(self) -> bytes:
        """What every MESSAGE and RECEIPT of the link has in its head; empty: nothing."""
        return self._suffix.encode()

    def impress(self, link: StompLink, dialect: Dialect, greeting: Mapping[str, str]) -> None:
        """Have `link` expect this epoch's mark, if its dialect needs one; `greeting`: the headers of CONNECTED."""
        heads = dialect.raw_names
        if heads is not None:
            self._suffix = f"~{secrets.token_hex(_MARK_SIZE)}"
            link.expect(self.mark, heads, origin=heads.origin(greeting.get("session", "")))
            self._settle_nothing = link.settle_nothing

    def put_on(self, frame: Frame) -> Frame:
        """Return `frame` with this link's mark behind its id and receipt, as it is written."""
        if not self._suffix or (
            "receipt" not in frame.headers and frame.command not in _SUBSCRIBING
        ):
            return frame
        if frame.command == "SUBSCRIBE" and frame.headers.get("ack", "auto") == "auto":
            self._settle_nothing(frame.headers["id"])
        names = ("id", "receipt") if frame.command in _SUBSCRIBING else ("receipt",)
        sealed = {
            name: frame.headers[name] + self._suffix for name in names if name in frame.headers
        }
        return Frame(frame.command, {**frame.headers, **sealed}, frame.body) if sealed else frame


class Patience:
    """
    Decides how often the `seconds` for an answer are waited once more.

    The answer may come behind all messages that the broker sent before it was asked, which take minutes on a slow link.
    """

    def __init__(self, link: StompLink, seconds: float) -> None:
        self._link = link
        self._seconds = seconds
        self._times = 0
        self._first, self._before = link.came_in

    def lasts(self, ahead: float) -> bool:
        """
        Return whether to wait once more: messages come in, and no more of them than the broker may send `ahead`.

        If little comes in, wait MOST_TIMES in all; on a slow link that is full, a part of a frame is here at any time,
        and there is no such limit.
        """
        self._times += 1
        last, now = self._link.came_in
        grown, self._before = now - self._before, now
        comes = last - self._first <= ahead and grown >= SLOWEST * self._seconds
        return comes and (self._times < MOST_TIMES or self._link.incomplete is not None)


class Epoch:
    """One link that has said CONNECTED; used under its engine's lock, save `drop`. Times are seconds, monotonic."""

    def __init__(
        self,
        connected: Connected,
        offered: tuple[float, float],
        now: float,
        limit: float | None = None,
    ) -> None:
        """`limit`: seconds that an incomplete frame may hardly grow; None: for ever."""
        self.link = connected.link
        self.greeting: Mapping[str, str] = connected.frame.headers  #: of CONNECTED
        self._seal = Seal()
        self._seal.impress(self.link, connected.dialect, self.greeting)
        self.patient = connected.dialect.errors_close  #: after ERROR the broker is to close first
        answer = self.greeting.get("heart-beat", "0,0")
        patience = 0.0 if self.link.in_memory else connected.dialect.patience
        self._heartbeat = Heartbeat(offered, answer, now, patience)
        self._limit = None if self.link.in_memory else limit
        self._write = connected.link.writer()
        self.written_at = now  #: when bytes were written last
        self._frames_out = self._bytes_out = 0  #: since CONNECT
        self._measure_at = math.inf if self.link.in_memory else now + MEASURE_EVERY
        self._look_at = now
        #: The incomplete frame and its size, as seen at `_since`
        self._frame: tuple[int, int] | None = None
        self._since = now
        #: The frame, by number, behind which a receipt was asked for last
        self._asked_behind: int | None = None
        self._unwritten: OSError | None = None  #: why nothing can be written any more
        self._over_at = math.inf  #: when that is told as the reason, unless an ERROR comes first
        self.torn = False  #: a frame may be written in part, and none may follow
        # A write blocks the thread that looks after heart-beats, so it looks itself whether the broker is silent.
        self.link.silence = self._heartbeat.silence or math.inf

    def write(self, data: bytes, now: float) -> bool:
        """
        Write to the socket; False if it is gone.

        The reader tells why, and ends in a moment: the broker may have said ERROR before it closed. See `cause`.
        """
        if self._unwritten is None:
            self.torn = True
            try:
                self._write(data)
            except OSError as error:
                self._unwritten, self._over_at = error, now + LAST_WORDS
                self.link.hang_up(at_once=not self.patient)
            else:
                self.torn = False
                self.written_at = now
                self._bytes_out += len(data)
        return self._unwritten is None

    @property
    def timed_out(self) -> bool:
        """Whether we ended the link, because a write took too long."""
        return isinstance(self._unwritten, TimeoutError)

    def cause(self, told: str) -> str:
        """Return why the link ended; `told`: what the reader says."""
        return str(self._unwritten) if self.timed_out else told

    def encode(self, frame: Frame) -> bytes:
        """Return the bytes of a frame on this link, and count it as written."""
        self._frames_out += 1
        return self._seal.put_on(frame).encode()

    def beat(self, now: float) -> tuple[str, str] | None:
        """Write a heart-beat if one is due. Returns why the link is dead (reason, detail), None if it lives."""
        if self._unwritten is not None:
            told = str(self._unwritten) or type(self._unwritten).__name__
            return ("io", told) if now >= self._over_at else None
        self._heartbeat.heard(self.link.heard_at)
        self._heartbeat.sent(self.written_at)
        if self._heartbeat.late(now):
            return "heartbeat", "the broker sent nothing for too long"
        if self._heartbeat.due(now) and not self.write(b"\n", now):
            return None
        return self._stuck(now)

    def measured(self, now: float, *, finally_: bool = False) -> LinkMeasured | None:
        """Return what has gone over the link; None if that was told not long ago, unless this is `finally_` the end."""
        if self.link.in_memory or not (finally_ or now >= self._measure_at):
            return None
        self._measure_at = now + MEASURE_EVERY
        frames_in, bytes_in = self.link.came_in
        return LinkMeasured(
            at=now,
            heard_at=self.link.heard_at,
            silence_limit=self._heartbeat.silence or 0.0,
            frames_in=frames_in,
            frames_out=self._frames_out,
            bytes_in=bytes_in,
            bytes_out=self._bytes_out,
        )

    def _stuck(self, now: float) -> tuple[str, str] | None:
        """
        Return reason and detail if a frame stays incomplete, whatever comes inside it.

        Its content-length is wrong: the broker will not send what is missing, and what it does send is swallowed. A
        receipt behind it shows that its body has ended long since. It is asked for at once where the frame itself tells
        that something is wrong with it, and else when the frame does not grow.
        """
        if self.link.in_memory:
            return None
        unclear = self.link.unclear
        if unclear is not None and unclear != self._asked_behind:
            self._ask_behind(unclear, now)
        if self._limit is None or now < self._look_at:
            return None
        self._look_at = now + max(self._limit / LOOKS, PAUSE)
        frame, before = self.link.incomplete, self._frame
        if (
            frame is None
            or before is None
            or frame[0] != before[0]
            or frame[1] - before[1] >= SLOWEST * self._limit
        ):
            self._frame, self._since = frame, now
        elif frame[0] != self._asked_behind:
            self._ask_behind(frame[0], now)
        elif now - self._since >= self._limit:
            told = self.link.describe_incomplete()
            return "protocol", f"a frame has been incomplete for {self._limit:g} s: {told}"
        return None

    def _ask_behind(self, frame: int, now: float) -> None:
        """Ask for a receipt behind this frame."""
        self._asked_behind = frame
        self.write(b"".join(self.encode(one) for one in barrier("whole")), now)

    def next_timer(self) -> float | None:
        """Return when `beat` is due."""
        if self._unwritten is not None:
            return self._over_at
        self._heartbeat.sent(self.written_at)
        looks = math.inf if self._limit is None else self._look_at
        timers = (self._heartbeat.next_timer() or math.inf, looks, self._measure_at)
        return None if min(timers) == math.inf else min(timers)

    def disconnect(self, now: float) -> bool:
        """Write DISCONNECT, on which the broker forgets us and closes; False if it cannot be written any more."""
        return not self.torn and self.write(self.encode(Frame("DISCONNECT", {})), now)

    def drop(self) -> None:
        """Close the socket without DISCONNECT; from any thread."""
        self.link.drop(at_once=not self.patient)
