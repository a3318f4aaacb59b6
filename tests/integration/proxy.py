"""A TCP relay in front of a broker that cuts or freezes connections when a test says so."""

from __future__ import annotations

import contextlib
import socket
import struct
import threading
from functools import partial
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class Proxy:
    """At `url` for the broker at `target`; a context manager."""

    def __init__(self, target: str) -> None:
        host, _, port = target.removeprefix("stomp://").rpartition(":")
        self._target = (host, int(port))
        self._lock = threading.Lock()
        self._pairs: list[tuple[socket.socket, socket.socket]] = []
        self._trap: tuple[bool, bytes, bool] | None = None  #: to the broker, word, let it pass
        self._frozen: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self.sprung = threading.Event()  #: the trap has cut a connection
        self.visitors = 0
        self._open = True
        self._server = socket.create_server(("127.0.0.1", 0))
        self.url = f"stomp://127.0.0.1:{self._server.getsockname()[1]}"
        self._begin(self._accept)

    def cut(self) -> None:
        """Reset every connection there is."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                _reset(sock)

    def hang_up(self) -> None:
        """End every connection in good order, on the broker's side behind what was sent to it."""
        with self._lock:
            pairs, self._pairs = self._pairs, []
        for pair in pairs:
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Every connection is reset, and who comes is turned away."""
        self._open = False
        self.cut()
        try:
            yield
        finally:
            self._open = True

    def cut_at(self, word: bytes, *, to_broker: bool, passed: bool) -> None:
        """Cut the next connection that carries `word` (`COMMIT`, …), which is still forwarded or not."""
        self.sprung.clear()
        self._trap = (to_broker, word, passed)

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """Nothing passes on the connections there are, not even their end; new ones live."""
        with self._lock:
            frozen, self._pairs = self._pairs, []
        self._frozen = {sock for pair in frozen for sock in pair}
        try:
            yield
        finally:
            for sock in self._frozen:
                _reset(sock)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self.cut()
        for thread in self._threads:
            thread.join(5)

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
            if not self._open:
                _reset(client)
                continue
            self.visitors += 1
            try:
                broker = socket.create_connection(self._target, timeout=5)
            except OSError:
                _reset(client)
                continue
            broker.settimeout(None)
            with self._lock:
                self._pairs.append((client, broker))
            self._begin(partial(self._relay, client, broker, to_broker=True))
            self._begin(partial(self._relay, broker, client, to_broker=False))

    def _relay(self, source: socket.socket, sink: socket.socket, *, to_broker: bool) -> None:
        with contextlib.suppress(OSError):
            while (data := source.recv(65536)) and self._pass_on(data, sink, to_broker=to_broker):
                pass
        if sink not in self._frozen:
            _close(sink)
        _close(source)

    def _pass_on(self, data: bytes, sink: socket.socket, *, to_broker: bool) -> bool:
        """Forward `data`; False if that was the end of the connection."""
        if sink in self._frozen:
            return True
        trap = self._trap
        if trap is None or trap[0] is not to_broker or trap[1] not in data:
            sink.sendall(data)
            return True
        self._trap = None
        if trap[2]:
            sink.sendall(data)
        self.sprung.set()
        return False


def _reset(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _close(sock)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
