"""
The fake broker behind a real socket, for code that opens its own connections.

One thread owns the sockets and runs the broker in real time; tests access the broker between that thread's steps.

Source of the heart-beats: jmsx_classic/BROKER.md C3.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Final, Self

from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.link import FakeLink
from jmsx.testing.profiles import Profile
from jmsx.testing.wire import encode

_CHUNK: Final = 1 << 16  #: bytes that are read at once
_SLOWEST: Final = 3600.0  #: seconds that the thread sleeps at most


class _Connection:
    """One client's socket, its link, and the bytes that are not written yet."""

    def __init__(self, sock: socket.socket, link: FakeLink, now: float) -> None:
        self.sock = sock
        self.link = link
        self.unsent = bytearray()
        self._last_write = now  #: seconds, monotonic

    def next_beat(self) -> float | None:
        """Return when something must be written (seconds, monotonic), at half the promised interval; None: never."""
        promised, _ = self.link.heart_beat
        return self._last_write + promised / 2000 if promised else None

    def read(self, broker: FakeBroker, now: float) -> None:
        """Read from the socket and pass it to the broker; at its end or on an error, drop the link."""
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.link.receive(data, now)
        else:
            broker.drop(self.link, now)

    def write(self, now: float) -> None:
        """Send what the broker wrote, as much as the socket takes."""
        for frame in self.link.take_frames():
            self.unsent += encode(frame, self.link.end_of_frame)
        beat = self.next_beat()
        if not self.unsent and beat is not None and now >= beat:
            self.unsent += b"\n"
        if self.unsent:
            self._last_write = now
            with suppress(BlockingIOError):
                del self.unsent[: self.sock.send(self.unsent)]


class FakeBrokerServer:
    """
    A fake broker at `url`, from `start` (or `with`) to `stop`.

    When a client asks for something that the fake broker lacks, its connection is closed at once, and `stop` raises the
    NotImplementedError.
    """

    def __init__(self, profile: Profile | str = "classic") -> None:
        self._broker = FakeBroker(profile, origin=time.time())
        self._started = time.monotonic()
        self._lock = threading.Lock()
        self._selector = selectors.DefaultSelector()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._waker, self._alarm = socket.socketpair()
        self._connections: dict[socket.socket, _Connection] = {}
        self._failures: list[Exception] = []
        self._stopping = False
        self._thread = threading.Thread(target=self._run, name="fake-broker", daemon=True)

    @property
    def port(self) -> int:
        """The TCP port on 127.0.0.1 at which the server listens."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where to connect, such as `stomp://127.0.0.1:61613`."""
        return f"stomp://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Begin to serve; raises RuntimeError when called a second time."""
        for sock in (self._listener, self._alarm):
            sock.settimeout(0)
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all sockets; raises the first NotImplementedError or other failure of the fake broker, if any."""
        self._stopping = True
        self._wake()
        if self._thread.is_alive():
            self._thread.join()
        for sock in (*self._connections, self._listener, self._alarm, self._waker):
            sock.close()
        self._connections.clear()
        self._selector.close()
        failures, self._failures = self._failures, []
        if failures:
            raise failures[0]

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if error is None:
            self.stop()
            return
        with suppress(Exception):  # what the block raised matters more
            self.stop()

    @contextmanager
    def broker(self) -> Iterator[FakeBroker]:
        """Yield the broker while its thread is held, so that a test can inspect it or plan faults."""
        with self._lock:
            self._broker.handle_timer(self._now())
            yield self._broker
        self._wake()

    def drop_connections(self) -> None:
        """Let all sockets die; clients may connect again."""
        with self.broker() as broker:
            for link in list(broker.links):
                broker.drop(link, broker.now)

    # -- the thread -----------------------------------------------------------------------------

    def _now(self) -> float:
        return time.monotonic() - self._started

    def _wake(self) -> None:
        with suppress(OSError):
            self._waker.send(b"\0")

    def _run(self) -> None:
        while not self._stopping:
            ready = self._selector.select(self._patience())
            with self._lock:
                for key, _ in ready:
                    if key.fileobj is self._listener:
                        self._accept()
                    elif key.fileobj is self._alarm:
                        self._alarm.recv(_CHUNK)
                    elif key.fileobj in self._connections:
                        self._read(self._connections[key.fileobj])
                self._broker.handle_timer(self._now())
                for connection in list(self._connections.values()):
                    self._write(connection)

    def _patience(self) -> float:
        """Return seconds until something is due."""
        with self._lock:
            due = [each.next_beat() for each in self._connections.values()]
            moments = [at for at in (self._broker.next_timer(), *due) if at is not None]
        return max(0.0, min(moments, default=_SLOWEST) - self._now())

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # the client was gone before it was accepted
            return
        sock.settimeout(0)
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        now = self._now()
        self._connections[sock] = _Connection(sock, self._broker.open_link(now), now)
        self._selector.register(sock, selectors.EVENT_READ)

    def _read(self, connection: _Connection) -> None:
        try:
            connection.read(self._broker, self._now())
        except Exception as error:  # noqa: BLE001 - it belongs to the test's thread, which gets it from stop()
            self._failures.append(error)
            self._broker.drop(connection.link, self._now())

    def _write(self, connection: _Connection) -> None:
        now = self._now()
        try:
            connection.write(now)
        except OSError:
            connection.unsent.clear()
            self._broker.drop(connection.link, now)
        if connection.link.closed and not connection.unsent:
            self._selector.unregister(connection.sock)
            del self._connections[connection.sock]
            connection.sock.close()
            return
        events = 0 if connection.link.closed else selectors.EVENT_READ
        events |= selectors.EVENT_WRITE if connection.unsent else 0
        self._selector.modify(connection.sock, events)
