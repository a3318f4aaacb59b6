"""A TCP proxy before a broker: it passes bytes on, cuts a connection after so many of them, or swallows them all."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from enum import Enum
from typing import TYPE_CHECKING, Self
from urllib.parse import urlsplit

if TYPE_CHECKING:
    from collections.abc import Callable


class Direction(Enum):
    """Which way bytes go."""

    TO_BROKER = "to the broker"
    FROM_BROKER = "from the broker"


class Proxy:
    """At `url` for the broker at `target`; a context manager."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = (address.hostname, address.port)
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._frozen: set[socket.socket] = set()
        self._left: dict[Direction, int] = {}  #: bytes that still pass before the cut
        self._threads: list[threading.Thread] = []
        self._cut = threading.Event()
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"stomp://127.0.0.1:{self._server.getsockname()[1]}"

    def __enter__(self) -> Self:
        self._begin(self._accept)
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        with self._lock:
            pairs = list(self._pairs)
        for pair in pairs:
            for sock in pair:
                _reset(sock)
        for thread in self._threads:
            thread.join(5)

    def cut_after(self, size: int, direction: Direction) -> None:
        """Cut the connection that carries byte number `size` (from 1) this way, counted from now over all of them."""
        self._cut.clear()
        with self._lock:
            self._left[direction] = size

    def wait_cut(self, timeout: float) -> bool:
        """Whether that cut was made within `timeout` seconds."""
        return self._cut.wait(timeout)

    def freeze(self) -> None:
        """Swallow all that comes on the connections there are, even their end; new ones live."""
        with self._lock:
            self._frozen.update(sock for pair in self._pairs for sock in pair)

    def _begin(self, run: Callable[[], None]) -> None:
        thread = threading.Thread(target=run, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            try:
                broker = socket.create_connection(self._target, timeout=5)
            except OSError:
                _reset(client)
                continue
            broker.settimeout(None)
            with self._lock:
                self._pairs.append((client, broker))
            self._begin(lambda c=client, b=broker: self._relay(c, b, Direction.TO_BROKER))  # type: ignore[misc]
            self._begin(lambda c=client, b=broker: self._relay(b, c, Direction.FROM_BROKER))  # type: ignore[misc]

    def _relay(self, source: socket.socket, sink: socket.socket, direction: Direction) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if sink in self._frozen:
                    continue
                passing = self._allowed(len(data), direction)
                sink.sendall(data[:passing])
                if passing < len(data):
                    break
        if sink not in self._frozen:
            _close(sink)
        _close(source)

    def _allowed(self, size: int, direction: Direction) -> int:
        """How many of `size` bytes may pass; fewer than all of them is the cut."""
        with self._lock:
            left = self._left.get(direction)
            if left is None:
                return size
            if size < left:
                self._left[direction] = left - size
                return size
            del self._left[direction]
        self._cut.set()
        return left - 1


def _reset(sock: socket.socket) -> None:
    """Close it as a crash would: whoever sends there is told so."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _close(sock)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
