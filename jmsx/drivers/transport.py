"""
stomp.py's transport, with the socket, the reading of frames and the writing of CONNECT replaced through its seams.

`attempt_connection`, `receive` and `send` are the methods that stomp.py's Transport names as "to be implemented in
subclasses"; `transmit` is public; no private member is touched. This avoids what is wrong with stomp.py's own: a
listener that raises ends the connection, TLS (tls.py), a hang in connect, the missing TCP_NODELAY, the lossy decoding
of bodies, undefined escapes, the slow parser. stomp.py keeps the thread and its end.

All frames are read by our Splitter, so they come in the order of the wire, and one parser judges them. By its source
stomp.py dies of a RECEIPT without id and of a heart-beat header without numbers, takes MESSAGEs of a chunk before its
RECEIPTs, and logs the password of CONNECT (its pattern for hiding it expects a blank that it does not write).
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Protocol

from stomp.connect import BaseConnection, StompConnection12
from stomp.protocol import Protocol12
from stomp.transport import Transport

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.wire import Splitter

if TYPE_CHECKING:
    from collections.abc import Callable


class Stream(Protocol):
    """A connected socket, in the clear or under TLS; one thread reads while another writes."""

    #: Seconds without a byte taken after which a write ends, if they are less than the limit of every write
    patience: float

    def read(self) -> bytes:
        """Return what has come, at least one byte; b"" at the end; raises OSError or TlsError."""

    def unread(self) -> bool:
        """Return whether bytes have come that are not read; never waits."""

    @property
    def let_in_by(self) -> float:
        """When the broker must have answered CONNECT (seconds, monotonic)."""

    @property
    def taken(self) -> bool:
        """Whether the reader has taken bytes from the socket, or is about to, that it has not passed on yet."""

    def send(self, data: bytes) -> None:
        """Write all of it; raises OSError when the connection is gone or takes nothing in time."""

    def written(self, data: bytes) -> int:
        """Return how many bytes of `data` the last write, perhaps interrupted, wrote."""

    def shutdown(self) -> None:
        """End reading and writing at once, also where another thread waits in them."""

    def close(self) -> None:
        """Give the descriptor back."""


class DriverTransport(Transport):  # type: ignore[misc]  # stomp.py ships no types
    """
    One socket of one epoch.

    `sink` is called with the frames of each chunk, on stomp.py's thread; with none, if only the broker's next frame
    will show what has come. If it raises, the link ends with that error as its cause.
    """

    def __init__(
        self,
        address: tuple[str, int],
        connect: Callable[[], Stream],
        sink: Callable[[list[Frame | MessageFrame]], None],
        body_limit: int,
    ) -> None:
        super().__init__([address], prefer_localhost=False, auto_decode=False)
        self._address = address
        self._connect = connect
        self._sink = sink
        self._splitter = Splitter(body_limit)
        self.cause: Exception | None = None  #: why reading ended; None: the broker closed
        self._last_call: threading.Timer | None = None  #: closes the socket if the broker does not
        self.bytes_in = 0
        self.frames_in = 0
        self.touched: Callable[[], None] = lambda: None  #: bytes have arrived

    def attempt_connection(self) -> None:
        """Open the socket, once; raises OSError or TlsError."""
        self.socket = self._connect()
        self.current_host_and_port = self._address

    def receive(self) -> bytes:
        """Read, and pass the frames on, until there is no more: b"" tells stomp.py's thread to end."""
        try:
            while data := self.socket.read():
                self.touched()
                self.bytes_in += len(data)
                frames = self._splitter.feed(data)
                self.frames_in += len(frames)
                if frames or self._splitter.unclear is not None:
                    self._sink(frames)
                if self._splitter.fault is not None:
                    self.cause = self._splitter.fault
                    break
        except Exception as error:  # noqa: BLE001 - stomp.py would swallow it; here it ends the link with its cause
            self.cause = error
        self.drop()  # stomp.py only closes the descriptor, which would leave a blocked write where it is
        return b""

    def send(self, encoded_frame: bytes) -> None:
        """Write all of it; raises OSError when the socket is gone or takes nothing in time. The caller serialises."""
        stream: Stream | None = self.socket
        if stream is None:
            raise ConnectionResetError("the socket is closed")
        stream.send(encoded_frame)

    def written(self, data: bytes) -> int:
        """Return how many bytes of `data` the last `send`, perhaps interrupted, wrote."""
        stream: Stream | None = self.socket
        return 0 if stream is None else stream.written(data)

    def transmit(self, frame: Any) -> None:
        """Write stomp.py's own frame, CONNECT, without logging it: it holds the password."""
        self.send(Frame(frame.cmd, frame.headers).encode())

    @property
    def splitter(self) -> Splitter:
        """What cuts the bytes into frames."""
        return self._splitter

    @property
    def unread(self) -> bool:
        """Whether bytes have come that are not read, or not passed on yet."""
        stream: Stream | None = self.socket
        return stream is not None and (stream.unread() or stream.taken)  # in this order bytes move

    def drop(self, *, after: float = 0.0) -> None:
        """
        Close the socket without DISCONNECT; stomp.py's thread then ends by itself.

        The broker may close it first, within `after` seconds. No lock is held: a signal handler may come in between
        and wait for a thread that is dropping the link, too.
        """
        if after:
            if self._last_call is None:
                timer = threading.Timer(after, self.drop)
                timer.daemon = True
                self._last_call = timer
                try:
                    timer.start()  # it does nothing if another thread has cancelled it meanwhile
                except RuntimeError:  # the process gets no further thread
                    self.drop()
            return
        last_call, self._last_call = self._last_call, None
        if last_call is not None:
            last_call.cancel()
        stream: Stream | None = self.socket
        if stream is not None:
            stream.shutdown()

    def close(self) -> None:
        """Close the descriptor where no thread reads: a thread that does closes it at its end."""
        stream: Stream | None = self.socket
        if stream is not None:
            stream.close()

    def forget(self) -> None:
        """
        Drop the references to those who were told of this link, and need not hear of it any more.

        They refer to the link in turn; without this, dead links stay in memory until the garbage collector looks at the
        oldest objects, hundreds of links later.
        """
        self._connect, self._sink, self.touched = _give_up, _overhear, _overhear
        self.listeners.clear()  # in one step, without stomp.py's lock


def _give_up() -> Stream:
    raise ConnectionResetError("the link was dropped")


def _overhear(*_: object) -> None:
    """Ignore what the broker says on a connection that it is left to close."""


class DriverConnection(StompConnection12):  # type: ignore[misc]  # stomp.py ships no types
    """stomp.py's STOMP 1.2 connection on a DriverTransport; heart-beats are the session's own affair."""

    def __init__(self, transport: DriverTransport) -> None:
        BaseConnection.__init__(self, transport)
        Protocol12.__init__(self, transport, (0, 0), True)  # noqa: FBT003 - stomp.py's signature
