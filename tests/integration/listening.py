"""What the servers of these tests share: a port of this machine, and a thread for whatever serves a client."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

HOST = "127.0.0.1"


class Listener:
    """
    Takes clients at `port` from now on, until `close()`.

    `meet` is called with one client's socket after the other, and gives what shall be run for it, each in a thread of
    its own. Those close the socket.
    """

    def __init__(self, meet: Callable[[socket.socket], Iterable[Callable[[], object]]]) -> None:
        self._meet = meet
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self._clients: list[socket.socket] = []
        self._threads: list[threading.Thread] = []
        self._run(self._accept)

    def close(self) -> None:
        """Take nobody any more, shut down the sockets there are, and wait until all threads have ended."""
        self._shut_down(self._server)
        self._server.close()
        self._threads[0].join(10)  # after which there is no further client
        for client in self._clients:
            self._shut_down(client)
        for thread in self._threads:
            thread.join(10)
            assert not thread.is_alive()

    @staticmethod
    def _shut_down(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            self._clients = [one for one in self._clients if one.fileno() >= 0] + [client]
            self._threads = [one for one in self._threads if one.is_alive()]
            for work in self._meet(client):
                self._run(work)

    def _run(self, work: Callable[[], object]) -> None:
        thread = threading.Thread(target=work, daemon=True)
        self._threads.append(thread)
        thread.start()
