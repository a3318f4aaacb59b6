"""
The fake broker behind a real socket, for code that opens its own connections.

One thread owns the sockets and runs the broker on real time; tests reach the broker between its steps.

Source of the heart-beats: jmsx_classic/BROKER.md C3.
"""

from __future__ import annotations

import selectors
import socket
import threading
import time
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Final, Self

from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.wire import encode

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import TracebackType

    from jmsx.testing.fake_link import FakeLink
    from jmsx.testing.house import Manners

_CHUNK: Final = 1 << 16  #: bytes that are read at once
_SLOWEST: Final = 3600.0  #: seconds that the thread sleeps at most


class _Beats:
    """The heart-beats of one connection; times are seconds, monotonic."""

    def __init__(self, link: FakeLink, now: float) -> None:
        self._link = link
        self._last_write = now
        self._checked = now
        self._heard = True

    def heard(self) -> None:
        """Note that bytes came."""
        self._heard = True

    def wrote(self, now: float) -> None:
        """Note that bytes went out."""
        self._last_write = now

    def next_timer(self) -> float | None:
        """When to look again; None without heart-beats."""
        promised, expected = self._link.heart_beat
        due = []
        if promised:
            due.append(self._last_write + promised / 2000)
        if expected:
            due.append(self._checked + expected / 1000)
        return min(due, default=None)

    def is_write_due(self, now: float) -> bool:
        """Whether we must write something; half the promised interval, which no client can miss."""
        promised, _ = self._link.heart_beat
        return promised > 0 and now >= self._last_write + promised / 2000

    def is_dead(self, now: float) -> bool:
        """Whether a whole interval passed without a byte: the broker gives no grace."""
        _, expected = self._link.heart_beat
        if not expected or now < self._checked + expected / 1000:
            return False
        self._checked = now
        heard, self._heard = self._heard, False
        return not heard


class _Connection:
    """One client's socket, its link, and what is not written yet."""

    def __init__(self, sock: socket.socket, link: FakeLink, now: float) -> None:
        self.sock = sock
        self.link = link
        self.beats = _Beats(link, now)
        self.unsent = bytearray()

    def read(self, broker: FakeBroker, now: float) -> None:
        """Give the broker what came; no bytes or an error mean that the client is gone."""
        try:
            data = self.sock.recv(_CHUNK)
        except BlockingIOError:
            return
        except OSError:
            data = b""
        if data:
            self.beats.heard()
            self.link.receive(data, now)
        else:
            broker.drop(self.link, now)

    def write(self, now: float) -> None:
        """Send what the broker wrote, as much as the socket takes."""
        for frame in self.link.take_frames():
            self.unsent += encode(frame, self.link.end_of_frame)
        if not self.unsent and self.beats.is_write_due(now):
            self.unsent += b"\n"
        if self.unsent:
            self.beats.wrote(now)
            with suppress(BlockingIOError):
                del self.unsent[: self.sock.send(self.unsent)]


class FakeBrokerServer:
    """
    A fake broker at `url`, from `start` (or `with`) to `stop`.

    What the fake broker cannot do (NotImplementedError) is raised by `stop`, and at once closes the connection that
    asked for it.
    """

    def __init__(self, manners: Manners | str = "classic") -> None:
        self._broker = FakeBroker(manners, origin=time.time())
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
        """The port on 127.0.0.1."""
        port: int = self._listener.getsockname()[1]
        return port

    @property
    def url(self) -> str:
        """Where to connect, such as `stomp://127.0.0.1:61613`."""
        return f"stomp://127.0.0.1:{self.port}"

    def start(self) -> Self:
        """Begin to serve; raises RuntimeError the second time."""
        for sock in (self._listener, self._alarm):
            sock.settimeout(0)
            self._selector.register(sock, selectors.EVENT_READ)
        self._thread.start()
        return self

    def stop(self) -> None:
        """Close all sockets; raises the first thing that the fake broker could not do, if there was one."""
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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        if error is None:
            self.stop()
            return
        with suppress(Exception):  # what the block raised matters more
            self.stop()

    @contextmanager
    def broker(self) -> Iterator[FakeBroker]:
        """The broker while it stands still, to look at it or to plan faults; afterwards it goes on."""
        with self._lock:
            self._broker.arrive(self._now())
            yield self._broker
            self._broker.settle()
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
        """Seconds until something is due."""
        with self._lock:
            due = [each.beats.next_timer() for each in self._connections.values()]
            moments = [at for at in (self._broker.next_timer(), *due) if at is not None]
        return max(0.0, min(moments, default=_SLOWEST) - self._now())

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:  # it was gone before we came
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
        if not connection.link.closed and connection.beats.is_dead(now):
            self._broker.silence(connection.link, now)
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
        events = selectors.EVENT_READ | (selectors.EVENT_WRITE if connection.unsent else 0)
        self._selector.modify(connection.sock, events)
