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

    The client's side: `feed` or `receive`, then `take_frames`. What it writes on a closed link is lost, as on a dead
    socket. The other attributes are for tests to look at.
    """

    end_of_frame = b"\0"  #: what this broker writes behind a body

    def __init__(self, runtime: Runtime, links: list[FakeLink], connection_id: str) -> None:
        self.runtime = runtime
        self.links = links  #: all that the broker has, this one among them while it is open
        self.connection_id = connection_id
        self.client_id: str | None = None
        self.heart_beat = (0, 0)  #: milliseconds: what we promised to send, what we expect
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
        """Take one frame of the client and do all that follows from it, on other links too."""
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
        """Hand over what the broker wrote, oldest first, and forget it."""
        frames, self._out = self._out, []
        return frames

    def write(self, frame: Frame | MessageFrame) -> None:
        """Put `frame` on the wire."""
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
        """Do what `frame` says; raises a Fault for an ERROR and SocketFault for a closed socket."""

    @abstractmethod
    def _refuse(self, fault: Fault, frame: Frame) -> None:
        """Answer `frame` with the ERROR that `fault` means."""


def newest_version(wanted: str | None) -> str:
    """STOMP 1.2, if `accept-version` has it; the list is not trimmed: brokers read `1.1, 1.2` as 1.1."""
    if wanted is None or "1.2" not in wanted.split(","):
        raise NotImplementedError(f"the fake broker has STOMP 1.2 only, and not {wanted or '1.0'}")
    return "1.2"
