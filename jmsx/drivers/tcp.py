"""A connected socket: reading waits as long as it takes, writing has a deadline."""

from __future__ import annotations

import contextlib
import errno
import math
import os
import select
import socket
import struct
import time
from typing import TYPE_CHECKING, Any, Final

from jmsx.drivers.locks import mutex
from jmsx.drivers.process import tell_of_forks

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

#: Bytes read at once; a full chunk holds some hundred messages, which then cost one hand-over.
CHUNK: Final = 256 * 1024

#: Why a broker that is there may not take what is sent to it, and what to do.
HELD_BACK: Final = (
    "a full broker holds its senders back (producer flow control): make room in it, or raise its limits of store,"
    " memory or temp"
)

#: Linux's way to acknowledge what has come at once. A broker that leaves Nagle's algorithm on, as Classic does, sends a
#: small frame behind another one only when that is acknowledged, which the kernel puts off for 40 ms.
QUICK_ACK: Final[int | None] = getattr(socket, "TCP_QUICKACK", None)

#: Seconds that a write, or an attempt to connect, blocks at most before it checks whether going on is of any use.
GLANCE: Final = 0.25

#: Seconds that one thread gives another to end a connection, which takes it microseconds.
_PATIENCE: Final = 1.0


class TcpStream:
    """
    A TCP connection to `address`, read by one thread while another writes.

    A write that blocks ends when the other side is `silent()`, or takes nothing for `write_timeout`. Times are seconds;
    None is no limit. The search for the host's name has no limit. While more is `awaited()`, TCP acknowledges at once
    what comes. The constructor raises OSError, as `read_before` does, also when the attempt is `given_up()`.
    """

    def __init__(
        self,
        address: tuple[str, int],
        *,
        connect_timeout: float | None,
        write_timeout: float | None,
        silent: Callable[[], bool],
        awaited: Callable[[], bool] = lambda: False,
        given_up: Callable[[], bool] = lambda: False,
    ) -> None:
        self._given_up = given_up
        self._write_timeout = write_timeout
        #: Seconds without a byte taken after which the present write ends, if less than `write_timeout`
        self.patience = math.inf
        self._silent = silent
        self._awaited = awaited
        self.writing = b""  #: what was written last
        self.sent: list[int] = []  #: how many bytes of it, call by call
        #: Whether the reader has bytes that it may not have passed on yet; set before they leave the socket
        self.taken = False
        self._writing = mutex()
        self._ending = mutex()
        places = socket.getaddrinfo(*address, type=socket.SOCK_STREAM)
        patience = math.inf if connect_timeout is None else connect_timeout
        #: When the broker must have let us in (seconds, monotonic): the search for its name takes no time of that
        self.let_in_by = time.monotonic() + patience
        self._socket = _dial(places, self.let_in_by, given_up)
        tell_of_forks(self)
        self._socket.settimeout(None)
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        # A broker that does not read must not hold a sender for ever; reading is not touched by this.
        glance = GLANCE if write_timeout is None else min(GLANCE, write_timeout)
        limit = struct.pack("ll", 0, int(glance * 1e6))
        self._socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, limit)

    def after_fork(self) -> None:
        """
        Close the descriptor in the child of a fork, and write nothing: the parent's connection goes on undisturbed.

        Else the connection would stay open when the parent dies, which the broker has to see.
        """
        self._writing, self._ending = mutex(), mutex()
        with contextlib.suppress(OSError):  # it is closed nevertheless
            self._socket.close()

    def read(self) -> bytes:
        """Return what has come, at least one byte; b"" at the end; raises OSError."""
        self.taken = False  # whoever comes for more has passed on what was read before
        self._socket.recv(1, socket.MSG_PEEK)  # waits, and takes nothing
        self.taken = True
        data = b""
        try:
            data = self._socket.recv(CHUNK)
        finally:
            self.taken = bool(data)
        if QUICK_ACK is not None and self._awaited():
            with contextlib.suppress(OSError):  # the connection is gone, which the next read tells
                self._socket.setsockopt(socket.IPPROTO_TCP, QUICK_ACK, 1)
        return data

    def unread(self) -> bool:
        """Return whether bytes have come that are not read; never waits."""
        try:
            return bool(self._socket.recv(1, socket.MSG_PEEK | socket.MSG_DONTWAIT))
        except OSError:  # nothing has come, or the connection is gone
            return False

    def read_before(self, deadline: float | None) -> bytes:
        """Do as `read` does, but raises TimeoutError at `deadline` (seconds, monotonic; None: never)."""
        try:
            while True:
                self._socket.settimeout(_glance(deadline))
                try:
                    return self.read()
                except TimeoutError:
                    _look_up(deadline, self._given_up)
        finally:
            self._socket.settimeout(None)

    def write(self, data: bytes, deadline: float = math.inf) -> None:
        """
        Write all of it; raises OSError when the connection is gone or takes nothing in time.

        However slowly the broker takes it, the write ends at `deadline` (seconds, monotonic).
        """
        with self._writing:
            self.writing = data
            self.sent.clear()
            self._send_all(memoryview(data), deadline)

    def _send_all(self, left: memoryview, deadline: float) -> None:
        patience = self.patience
        if self._write_timeout is not None:
            patience = min(patience, self._write_timeout)
        taken_at = time.monotonic()
        while left:
            try:
                # One step for Python: a signal handler that raises cannot come before the number is kept.
                self.sent += map(self._socket.send, (left,))
                left = left[self.sent[-1] :]
                taken_at = time.monotonic()
            except BlockingIOError:
                if self._silent():
                    raise TimeoutError(
                        "the broker sent nothing for too long, and did not read what was written"
                    ) from None
            now = time.monotonic()
            if left and now > min(taken_at + patience, deadline):
                within = f"for {round(patience, 3):g} s" if now > taken_at + patience else "in time"
                raise TimeoutError(
                    f"the broker did not read what was written {within}; {HELD_BACK}"
                )

    def written(self, data: bytes) -> int:
        """Return how many bytes of `data` the last write, perhaps interrupted, wrote."""
        return sum(self.sent) if self.writing is data else 0

    def send(self, data: bytes) -> None:
        """Write as `write` does."""
        self.write(data)

    def shutdown(self) -> None:
        """
        End reading and writing at once, also where another thread waits in them; `close` is for the reader.

        If another thread is doing the same, this waits only _PATIENCE: that thread may be in a signal handler which
        waits for this one.
        """
        taken: list[bool] = []
        try:
            # In one step for Python, as in locks.py.
            taken += map(self._ending.acquire, (True,), (_PATIENCE,))
            if taken == [True]:
                with contextlib.suppress(OSError):  # closed already: that is what is wanted
                    self._socket.shutdown(socket.SHUT_RDWR)
        finally:
            if taken == [True]:
                self._ending.release()

    def close(self) -> None:
        """
        Give the descriptor back, when nobody uses it any more.

        Its number may be another connection's the next moment, and what is written then would go there.
        """
        self.shutdown()
        with self._writing, self._ending:
            self._socket.close()


def _dial(
    places: Sequence[tuple[Any, ...]], until: float, given_up: Callable[[], bool]
) -> socket.socket:
    """Do as `socket.create_connection` does, until it is given up; the addresses of a host share the time."""
    failed: OSError | None = None
    try:
        for number, (*kind, _, place) in enumerate(places):
            now = time.monotonic()
            deadline = now + (until - now) / (len(places) - number)
            try:
                return _connected(kind, place, deadline, given_up)
            except OSError as error:
                failed = error
        raise failed or OSError("its name has no address")
    finally:
        failed = None  # its traceback refers to this frame, which would keep it in memory


def _connected(
    kind: list[Any], place: Any, deadline: float | None, given_up: Callable[[], bool]
) -> socket.socket:
    _look_up(None, given_up)
    with contextlib.ExitStack() as unless_connected:
        dialled = unless_connected.enter_context(socket.socket(*kind))
        dialled.settimeout(0)
        number = dialled.connect_ex(place)
        if number == errno.EINPROGRESS:
            _await_answer(dialled, deadline, given_up)
            number = dialled.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if number:
            raise OSError(number, os.strerror(number))
        unless_connected.pop_all()
    return dialled


def _await_answer(
    dialled: socket.socket, deadline: float | None, given_up: Callable[[], bool]
) -> None:
    poll = select.poll()
    poll.register(dialled, select.POLLOUT)
    while not poll.poll(_glance(deadline) * 1000):
        _look_up(deadline, given_up)


def _glance(deadline: float | None) -> float:
    """Return seconds until the next look whether to go on waiting."""
    left = GLANCE if deadline is None else deadline - time.monotonic()
    return min(max(left, 0.001), GLANCE)


def _look_up(deadline: float | None, given_up: Callable[[], bool]) -> None:
    """Raise OSError if there is no use in waiting any longer."""
    if given_up():
        raise ConnectionAbortedError(errno.ECONNABORTED, "the attempt was given up")
    if deadline is not None and time.monotonic() >= deadline:
        raise TimeoutError("timed out")
