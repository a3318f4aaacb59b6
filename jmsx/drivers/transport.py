"""
stomp.py's transport, with the socket and the way of MESSAGE frames replaced through its documented seams.

`attempt_connection`, `receive` and `send` are the methods that stomp.py's Transport names as "to be implemented in
subclasses"; no private member is touched. What this absorbs of stomp.py is numbered in reference/peers.md 2.1: a
listener that raises (B1), a hang in connect (B5), the missing TCP_NODELAY, the lossy decoding of bodies, the slow
parser (B14).
"""

from __future__ import annotations

import contextlib
import socket
import struct
import time
from typing import TYPE_CHECKING, Final

from stomp.connect import BaseConnection, StompConnection12
from stomp.protocol import Protocol12
from stomp.transport import Transport

from jmsx.drivers.splitter import Splitter

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.core.frames import MessageFrame

#: Bytes read at once; a full chunk holds some hundred messages, which then cost one hand-over.
CHUNK: Final = 256 * 1024


class DriverTransport(Transport):  # type: ignore[misc]  # stomp.py ships no types
    """One socket of one epoch; `sink` is given each chunk's messages, on stomp.py's thread."""

    def __init__(
        self,
        address: tuple[str, int],
        *,
        timeout: float,
        write_timeout: float,
        sink: Callable[[list[MessageFrame]], None],
    ) -> None:
        super().__init__([address], prefer_localhost=False, auto_decode=False)
        self._address = address
        self._timeout = timeout
        self._write_timeout = write_timeout
        self._sink = sink
        self._splitter = Splitter()
        self.failure = ""  #: why reading ended, for the error that the user sees
        self.touched: Callable[[], None] = lambda: None  #: bytes have arrived

    def attempt_connection(self) -> None:
        """Open the socket, once; raises OSError."""
        self.socket = socket.create_connection(self._address, timeout=self._timeout)
        self.socket.settimeout(None)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A broker that does not read must not hold a sender for ever; reading is not touched by this.
        seconds, fraction = divmod(self._write_timeout, 1)
        limit = struct.pack("ll", int(seconds), int(fraction * 1e6))
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)
        self.current_host_and_port = self._address

    def receive(self) -> bytes:
        """Read; pass MESSAGE frames on; return the bytes of other frames to stomp.py, or b"" at the end."""
        try:
            while True:
                data = self.socket.recv(CHUNK)
                if not data:
                    self.failure = self.failure or "the broker closed the connection"
                    return b""
                self.touched()
                messages, other = self._splitter.feed(data)
                if messages:
                    self._sink(messages)
                if other:
                    return other
        except Exception as error:  # noqa: BLE001 - stomp.py would swallow it; here it ends the link with its cause
            self.failure = self.failure or str(error) or type(error).__name__
            return b""

    def send(self, encoded_frame: bytes) -> None:
        """Write all of it; raises OSError when the socket is gone or takes nothing in time. The caller serialises."""
        connection = self.socket
        if connection is None:
            raise ConnectionResetError("the socket is closed")
        left, deadline = memoryview(encoded_frame), time.monotonic() + self._write_timeout
        while left:
            try:
                left = left[connection.send(left) :]
            except BlockingIOError as error:
                raise self._late() from error
            if left and time.monotonic() > deadline:
                raise self._late()

    def _late(self) -> TimeoutError:
        return TimeoutError(
            f"the broker did not read what was written for {self._write_timeout:g} s"
        )

    def drop(self) -> None:
        """Close the socket without farewell; stomp.py's thread then ends by itself."""
        connection = self.socket
        if connection is not None:
            with contextlib.suppress(OSError):  # closed already, which is what is wanted
                connection.shutdown(socket.SHUT_RDWR)


class DriverConnection(StompConnection12):  # type: ignore[misc]  # stomp.py ships no types
    """stomp.py's STOMP 1.2 connection on a DriverTransport; heart-beats are the session's own affair."""

    def __init__(self, transport: DriverTransport) -> None:
        BaseConnection.__init__(self, transport)
        Protocol12.__init__(self, transport, (0, 0), True)  # noqa: FBT003 - stomp.py's signature
