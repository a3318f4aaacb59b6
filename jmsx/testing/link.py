"""One connection of the fake broker: frames in, frames out."""

from __future__ import annotations

from abc import ABC, abstractmethod

from jmsx.core.frames import Frame, MessageFrame
from jmsx.testing.faults import Fault, SocketFault
from jmsx.testing.runtime import Runtime
from jmsx.testing.wire import FrameParser


class FakeLink(ABC):
    """
    One connection; made by `FakeBroker.open_link`.

    A client calls `feed` or `receive`, then `take_frames`. What it writes on a closed link is lost, as on a dead
    socket. The other attributes are for tests to look at.
    """

    end_of_frame = b"\0"  #: what this broker writes after a body

    def __init__(self, runtime: Runtime, links: list[FakeLink], connection_id: str) -> None:
        self.runtime = runtime
        self.links = links  #: all open links of the broker
        self.connection_id = connection_id
        self.client_id: str | None = None
        self.heart_beat = (0, 0)  #: milliseconds: what the broker sends, what it expects
        self.closed = False
        self._parser = FrameParser()
        self._out: list[Frame | MessageFrame] = []

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes as they come from a socket, in any chunks; `now` is in seconds, monotonic."""
        self.runtime.advance_to(now)
        try:
            for frame in self._parser.feed(data):
                self.feed(frame, now)
        except Fault as fault:
            self._refuse(fault, Frame("ERROR"))
            self.runtime.settle()

    def feed(self, frame: Frame, now: float) -> None:
        """Take one frame of the client and carry out all its effects, on other links too."""
        self.runtime.advance_to(now)
        if self.closed:
            return
        try:
            self._execute(frame)
        except SocketFault:
            self.lose()
        except Fault as fault:
            self._refuse(fault, frame)
        self.runtime.settle()

    def take_frames(self) -> list[Frame | MessageFrame]:
        """Return the frames that the broker has written since the last call, oldest first."""
        frames, self._out = self._out, []
        return frames

    def write(self, frame: Frame | MessageFrame) -> None:
        """Write `frame` to the client."""
        if not self.closed:
            self._out.append(frame)

    def _close(self) -> None:
        """Write nothing more, and take no more frames."""
        self.closed = True
        self.links.remove(self)

    @abstractmethod
    def lose(self) -> None:
        """End the connection because its socket is dead."""

    @abstractmethod
    def _execute(self, frame: Frame) -> None:
        """Carry out `frame`; raises a Fault to be answered with an ERROR, or SocketFault to close the socket."""

    @abstractmethod
    def _refuse(self, fault: Fault, frame: Frame) -> None:
        """Answer `frame` with the ERROR for `fault`."""


def newest_version(wanted: str | None) -> str:
    """
    Return "1.2" if `accept-version` has it; raises NotImplementedError otherwise.
    Spaces are not trimmed: brokers, too, read `1.1, 1.2` as 1.1.
    """
    if wanted is None or "1.2" not in wanted.split(","):
        raise NotImplementedError(f"the fake broker has STOMP 1.2 only, and not {wanted or '1.0'}")
    return "1.2"
