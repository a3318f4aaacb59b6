"""A connected socket acknowledges what comes at once while an answer is awaited, and else as the kernel likes."""

from __future__ import annotations

import contextlib
import socket
import threading
import time
from typing import TYPE_CHECKING

import pytest

from jmsx.drivers.tcp import QUICK_ACK, TcpStream

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

pytestmark = pytest.mark.skipif(QUICK_ACK is None, reason="only Linux has TCP_QUICKACK")


class Pair:
    """A stream, and its other end."""

    def __init__(self, write_timeout: float | None = 5.0) -> None:
        self.awaited = False
        with socket.create_server(("127.0.0.1", 0)) as server:
            self.stream = TcpStream(
                server.getsockname(),
                connect_timeout=5.0,
                write_timeout=write_timeout,
                silent=lambda: False,
                awaited=lambda: self.awaited,
            )
            self.other = server.accept()[0]

    def settles(self) -> bool:
        """Whether talking has the kernel put its acknowledgements off; a pause of 40 ms undoes that for a while."""
        for _ in range(500):
            self.talk()
            if not self.quick:
                return True
        return False

    def talk(self) -> None:
        """A question and its answer."""
        self.stream.send(b"?")
        self.other.recv(1)
        self.other.sendall(b"!")
        assert self.stream.read() == b"!"

    @property
    def quick(self) -> bool:
        """Whether what came last was acknowledged at once."""
        assert QUICK_ACK is not None
        return bool(self.stream._socket.getsockopt(socket.IPPROTO_TCP, QUICK_ACK))


@pytest.fixture
def pair() -> Iterator[Pair]:
    """Both ends, closed at last."""
    made = Pair()
    yield made
    made.stream.close()
    made.other.close()


def test_acknowledges_at_once_while_an_answer_is_awaited(pair: Pair) -> None:
    """Classic's RECEIPT waits for it, behind the messages that it sent before."""
    assert pair.settles()
    pair.awaited = True
    pair.talk()
    assert pair.quick


def test_leaves_it_to_the_kernel_otherwise(pair: Pair) -> None:
    """One packet for each message that comes would cost more than it gains."""
    pair.awaited = True
    pair.talk()
    pair.awaited = False
    assert pair.settles()


def test_connection_that_is_gone_tells_at_the_next_read(pair: Pair) -> None:
    """What came before its end is read."""
    pair.awaited = True
    pair.other.sendall(b"last")
    pair.other.close()
    assert pair.stream.read() == b"last"
    assert pair.stream.read() == b""


def test_a_write_ends_only_when_nothing_of_it_is_taken_for_too_long() -> None:
    """A broker behind a slow link reads on, however long a large message takes; then it stops."""
    made = Pair(write_timeout=1.0)
    with contextlib.closing(made.other), contextlib.closing(made.stream):
        made.stream._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 100_000)
        made.other.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 100_000)
        sizes: list[int] = []

        def read() -> None:
            while sum(sizes) < 8_000_000:
                sizes.append(len(made.other.recv(400_000)))
                time.sleep(0.1)

        reader = threading.Thread(target=read)
        reader.start()
        began = time.monotonic()
        made.stream.send(bytes(8_000_000))
        assert time.monotonic() - began > 1.5
        reader.join()
        with pytest.raises(TimeoutError, match="did not read what was written for 1 s"):
            made.stream.send(bytes(8_000_000))


def test_a_write_ends_at_its_deadline_though_it_has_no_timeout() -> None:
    """A handshake has one with `request_timeout=None`, too; then no number of seconds tells what was waited for."""
    for timeout in (None, 5.0):
        made = Pair(write_timeout=timeout)
        with (
            contextlib.closing(made.other),
            contextlib.closing(made.stream),
            pytest.raises(TimeoutError, match="did not read what was written in time"),
        ):
            made.stream.write(bytes(16_000_000), time.monotonic() + 0.3)


def test_a_host_is_tried_at_all_of_its_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """One of a family that this machine has not, and one at which nobody listens, are in no one's way."""
    with socket.create_server(("127.0.0.1", 0)) as server, socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        ours = (socket.AF_INET, socket.SOCK_STREAM, 0, "")
        theirs = (socket.AF_APPLETALK, socket.SOCK_STREAM, 0, "")
        places = [(*theirs, nobody.getsockname()), (*ours, nobody.getsockname())]
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_address, **_kind: places)
        with pytest.raises(ConnectionRefusedError):
            dialled("host")
        places.append((*ours, server.getsockname()))
        dialled("host").close()


def test_an_attempt_that_is_given_up_tries_no_further_address(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Nobody would want that connection any more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        place = (socket.AF_INET, socket.SOCK_STREAM, 0, "", server.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_address, **_kind: [place])
        with pytest.raises(ConnectionAbortedError):
            dialled("host", given_up=lambda: True)
        server.settimeout(0.1)
        with pytest.raises(TimeoutError):
            server.accept()


def test_the_addresses_of_a_host_share_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where nobody answers it takes no longer than of one; what the first has not used the others have."""
    with contextlib.ExitStack() as sockets:
        server = sockets.enter_context(socket.create_server(("127.0.0.1", 0), backlog=0))
        for _ in range(4):  # its queue is full: it answers no SYN
            guest = sockets.enter_context(socket.socket())
            guest.settimeout(0)
            guest.connect_ex(server.getsockname())
        place = (socket.AF_INET, socket.SOCK_STREAM, 0, "", server.getsockname())
        monkeypatch.setattr(socket, "getaddrinfo", lambda *_address, **_kind: [place] * 4)
        began = time.monotonic()
        with pytest.raises(TimeoutError):
            dialled("host", limit=0.6)
        assert 0.5 < time.monotonic() - began < 1.2


def dialled(
    host: str, given_up: Callable[[], bool] = lambda: False, limit: float = 5.0
) -> TcpStream:
    """A connection to it."""
    return TcpStream(
        (host, 1),
        connect_timeout=limit,
        write_timeout=None,
        silent=lambda: False,
        given_up=given_up,
    )
