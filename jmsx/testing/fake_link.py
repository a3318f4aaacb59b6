"""One connection of the fake broker: frames in, frames out."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx.testing.faults import Fault, SocketFault
from jmsx.testing.wire import FrameParser

if TYPE_CHECKING:
    from jmsx.core.frames import MessageFrame
    from jmsx.testing.fake_broker import FakeBroker


class FakeLink(ABC):
    """
    One connection; made by `FakeBroker.open_link`.

    The client's side: `feed` or `receive`, then `take_frames`. What it writes on a closed link is lost, as on a dead
    socket. The other attributes are for tests to look at.
    """

    end_of_frame = b"\0"  #: what this broker writes behind a body

    def __init__(self, broker: FakeBroker, connection_id: str) -> None:
        self.broker = broker
        self.connection_id = connection_id
        self.client_id: str | None = None
        self.version = "1.0"
        self.heart_beat = (0, 0)  #: milliseconds: what we promised to send, what we expect
        self.closed = False
        self._parser = FrameParser()
        self._out: list[Frame | MessageFrame] = []

    # -- the client's side ----------------------------------------------------------------------

    def receive(self, data: bytes, now: float) -> None:
        """Take bytes as they come from a socket, in any chunks; `now` is in seconds, monotonic."""
        self.broker.arrive(now)
        try:
            for frame in self._parser.feed(data):
                self.feed(frame, now)
        except Fault as fault:
            self._refuse(fault, Frame("ERROR"))
            self.broker.settle()

    def feed(self, frame: Frame, now: float) -> None:
        """Take one frame of the client and do all that follows from it, on other links too."""
        self.broker.arrive(now)
        if self.closed:
            return
        try:
            self._execute(frame)
        except SocketFault:
            self.lose()
        except Fault as fault:
            self._refuse(fault, frame)
        self.broker.settle()

    def take_frames(self) -> list[Frame | MessageFrame]:
        """Hand over what the broker wrote, oldest first, and forget it."""
        frames, self._out = self._out, []
        return frames

    # -- the broker's side ----------------------------------------------------------------------

    def write(self, frame: Frame | MessageFrame) -> None:
        """Put `frame` on the wire."""
        if not self.closed:
            self._out.append(frame)

    def silent(self) -> None:
        """The client has not kept its promise to send something."""
        self.lose()

    @abstractmethod
    def lose(self) -> None:
        """The socket is dead."""

    @abstractmethod
    def _execute(self, frame: Frame) -> None:
        """Do what `frame` says; raises a Fault for an ERROR and SocketFault for a closed socket."""

    @abstractmethod
    def _refuse(self, fault: Fault, frame: Frame) -> None:
        """Answer `frame` with the ERROR that `fault` means."""
