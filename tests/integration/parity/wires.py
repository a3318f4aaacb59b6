"""One connection to a broker, real or fake: frames in, frames out."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Protocol

from jmsx.core.frames import Frame, parse_headers
from jmsx.testing.wire import encode

if TYPE_CHECKING:
    from jmsx.testing import FakeBroker

#: Stands between the values of a header that a frame has more than once.
REPEATED = " | "

Seen = tuple[str, dict[str, str], bytes]


class Wire(Protocol):
    """One connection, to whichever broker."""

    def write(self, frame: Frame) -> None:
        """Send `frame`."""

    def read(self, patience: float) -> Seen | None:
        """The next frame; None if none comes within `patience` seconds. CLOSED is the last one."""

    def cut(self) -> None:
        """Let the socket die."""


class Splitter:
    """Bytes of a broker to frames."""

    def __init__(self) -> None:
        self._buffer = b""

    def feed(self, data: bytes) -> None:
        """Take more bytes."""
        self._buffer += data

    def next(self) -> Seen | None:
        """The next frame, if it is whole."""
        self._buffer = self._buffer.lstrip(b"\n")
        head, blank, rest = self._buffer.partition(b"\n\n")
        if not blank:
            return None
        line, _, block = head.partition(b"\n")
        headers = _all_headers(block, escaped=line != b"CONNECTED")
        length = headers.get("content-length", "").partition(REPEATED)[0]
        end = int(length) if length else rest.find(b"\0")
        if end < 0 or end >= len(rest):
            return None
        self._buffer = rest[end + 1 :]
        return line.decode(), headers, rest[:end]


def _all_headers(block: bytes, *, escaped: bool) -> dict[str, str]:
    """The headers of a block; values of a repeated header stand together, in order."""
    found: dict[str, str] = {}
    for line in block.split(b"\n"):
        for name, value in parse_headers(line, escaped=escaped).items():
            found[name] = found[name] + REPEATED + value if name in found else value
    return found


class FakeWire:
    """A connection to the fake broker."""

    def __init__(self, broker: FakeBroker) -> None:
        self.broker = broker
        self.link = broker.open_link(broker.now)
        self.frames = Splitter()

    def write(self, frame: Frame) -> None:
        """Send `frame` as bytes."""
        self.link.receive(frame.encode(), self.broker.now)

    def read(self, patience: float) -> Seen | None:
        """The next frame, without waiting."""
        del patience
        for frame in self.link.take_frames():
            self.frames.feed(encode(frame, self.link.end_of_frame))
        if (seen := self.frames.next()) is not None:
            return seen
        return ("CLOSED", {}, b"") if self.link.closed else None

    def cut(self) -> None:
        """Let the socket die."""
        self.broker.drop(self.link, self.broker.now)


class RealWire:
    """A connection to a real broker, on a plain socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.frames = Splitter()

    def write(self, frame: Frame) -> None:
        """Send `frame`; a dead socket takes it too."""
        with suppress(OSError):
            self.socket.sendall(frame.encode())

    def read(self, patience: float) -> Seen | None:
        """The next frame, waiting for it."""
        end = time.monotonic() + patience
        while (seen := self.frames.next()) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                return ("CLOSED", {}, b"")
            self.frames.feed(data)
        return seen

    def cut(self) -> None:
        """Let the socket die."""
        self.socket.close()
