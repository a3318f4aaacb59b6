"""A TCP proxy in front of a broker that passes bytes on, and cuts or freezes connections when it is told to."""

from __future__ import annotations

import contextlib
import re
import socket
import struct
import threading
from functools import partial
from typing import TYPE_CHECKING, Self, TypeAlias
from urllib.parse import urlsplit

from tests.integration.listening import HOST, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    #: How many bytes of a chunk still pass before the cut; None: the time has not come, all of them pass.
    Trap: TypeAlias = Callable[[bytes], int | None]


class Proxy:
    """At `url` for the broker at `target`, with its scheme; what is in TLS stays in it. A context manager."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = (address.hostname, address.port)
        self._lock = threading.Lock()
        self._pairs: set[tuple[socket.socket, socket.socket]] = set()
        self._traps: dict[bool, Trap] = {}  #: by whether they wait for bytes to the broker
        self._frozen: frozenset[socket.socket] = frozenset()
        #: At what, how many connections that carry it go silent, and whether the broker gets it
        self._silencing = re.compile(b""), 0, False
        self._deaf: set[socket.socket] = set()  #: are being cut, and hear nothing more
        self.sprung = threading.Event()  #: the trap has cut a connection
        self.visitors = 0
        self.turned_away = 0
        self._open = True
        self._passing = threading.Event()  #: bytes may pass
        self._passing.set()
        self._listener = Listener(self._meet)
        self.url = f"{address.scheme}://{HOST}:{self._listener.port}"

    def cut(self) -> None:
        """Reset every connection there is."""
        for pair in self._take():
            for sock in pair:
                _reset(sock)

    def hang_up(self) -> None:
        """End every connection in good order, on the broker's side behind what was sent to it."""
        for pair in self._take():
            for sock in pair:
                with contextlib.suppress(OSError):
                    sock.shutdown(socket.SHUT_WR)

    @contextlib.contextmanager
    def shut(self) -> Iterator[None]:
        """Who comes is turned away; the connections there are live on."""
        self._open = False
        try:
            yield
        finally:
            self._open = True

    @contextlib.contextmanager
    def closed(self) -> Iterator[None]:
        """Every connection is reset, and who comes is turned away."""
        with self.shut():
            self.cut()
            yield

    def cut_at(self, word: bytes, *, to_broker: bool, passed: float) -> None:
        """Cut the next connection that carries `word` (`COMMIT`, …); of that chunk this share (0 to 1) is forwarded."""
        self._set_trap(
            lambda chunk: round(len(chunk) * passed) if word in chunk else None, to_broker=to_broker
        )

    def cut_beside(self, frame: str, *, behind: bool) -> None:
        """Cut the next connection whose bytes to the broker match the pattern `frame`, before or `behind` it."""
        pattern = re.compile(frame.encode())

        def meet(chunk: bytes) -> int | None:
            found = pattern.search(chunk)
            if found is None:
                return None
            return chunk.index(b"\0", found.end()) + 1 if behind else found.start()

        self._set_trap(meet, to_broker=True)

    def cut_after(self, size: int, *, to_broker: bool) -> None:
        """Cut the connection that carries byte number `size` (from 1) this way, counted from now over all of them."""
        left = size

        def meet(chunk: bytes) -> int | None:
            nonlocal left
            if len(chunk) >= left:
                return left - 1
            left -= len(chunk)
            return None

        self._set_trap(meet, to_broker=to_broker)

    def disarm(self) -> None:
        """Cut nothing more of what was to be cut."""
        with self._lock:
            self._traps.clear()

    @contextlib.contextmanager
    def held(self) -> Iterator[None]:
        """In the block nothing passes, either way; it does so afterwards."""
        self._passing.clear()
        try:
            yield
        finally:
            self._passing.set()

    def freeze(self) -> None:
        """Swallow all that comes on the connections there are, even their end; new ones live."""
        self._frozen |= {sock for pair in self._take() for sock in pair}

    def silence_at(self, frame: str, connections: int, *, passed: bool = False) -> None:
        """
        Freeze each of the next `connections` whose bytes to the broker match the pattern `frame`.

        The broker gets that frame if it is `passed`.
        """
        self._silencing = re.compile(frame.encode()), connections, passed

    @property
    def silencing(self) -> int:
        """How many connections are yet to go silent."""
        return self._silencing[1]

    @contextlib.contextmanager
    def frozen(self) -> Iterator[None]:
        """As `freeze()`, and at the end of the block those connections are reset."""
        self.freeze()
        try:
            yield
        finally:
            self.thaw()

    def thaw(self) -> None:
        """Reset what is frozen."""
        for sock in self._frozen:
            _reset(sock)
        self._frozen = frozenset()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.cut()
        self.thaw()
        self._listener.close()

    def _set_trap(self, trap: Trap, *, to_broker: bool) -> None:
        self.sprung.clear()
        with self._lock:
            self._traps[to_broker] = trap

    def _take(self) -> set[tuple[socket.socket, socket.socket]]:
        """The connections there are, which are somebody else's from now on."""
        with self._lock:
            pairs, self._pairs = self._pairs, set()
        return pairs

    def _meet(self, client: socket.socket) -> Iterable[Callable[[], None]]:
        """The two relays of a connection; none if the client is turned away."""
        if not self._open:
            self.turned_away += 1
            _reset(client)
            return ()
        self.visitors += 1
        try:
            broker = socket.create_connection(self._target, timeout=5)
        except OSError:
            _reset(client)
            return ()
        broker.settimeout(None)
        with self._lock:
            self._pairs.add((client, broker))
        return (
            partial(self._relay, client, broker, to_broker=True),
            partial(self._relay, broker, client, to_broker=False),
        )

    def _relay(self, source: socket.socket, sink: socket.socket, *, to_broker: bool) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                if not self._pass_on(data, source, sink, to_broker=to_broker):
                    break
        if sink not in self._frozen:
            _close(sink)
        _close(source)
        with self._lock:
            self._pairs.discard((source, sink) if to_broker else (sink, source))
            self._deaf.discard(source)

    def _pass_on(
        self, data: bytes, source: socket.socket, sink: socket.socket, *, to_broker: bool
    ) -> bool:
        """Forward `data`; False if that was the end of the connection."""
        self._passing.wait()
        if to_broker and self._goes_silent(data, source, sink):
            return True
        if sink in self._frozen or sink in self._deaf:
            return True
        with self._lock:
            trap = self._traps.get(to_broker)
            passing = None if trap is None else trap(data)
            if passing is not None:
                del self._traps[to_broker]
                self._deaf.add(source)  # an answer must not be quicker than the cut
        sink.sendall(data[:passing])
        if passing is None:
            return True
        self.sprung.set()
        return False

    def _goes_silent(self, data: bytes, source: socket.socket, sink: socket.socket) -> bool:
        with self._lock:
            frame, left, passed = self._silencing
            if not left or sink in self._frozen or frame.search(data) is None:
                return False
            self._silencing = frame, left - 1, passed
            self._pairs.discard((source, sink))
            self._frozen |= {source, sink}
        if passed:
            sink.sendall(data)
        return True


def _reset(sock: socket.socket) -> None:
    """Close it as a crash would: whoever sends there is told so."""
    with contextlib.suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    _close(sock)


def _close(sock: socket.socket) -> None:
    with contextlib.suppress(OSError):
        sock.shutdown(socket.SHUT_RDWR)
    sock.close()
