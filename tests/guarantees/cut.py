"""A wire that breaks at the worst moment: the broker gets a COMMIT, and its answer is lost."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import Self
from urllib.parse import urlsplit


class CutAtCommit:
    """A proxy to the broker at `target`; `url` is where to connect."""

    def __init__(self, target: str) -> None:
        address = urlsplit(target)
        self._target = (address.hostname, address.port)
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.url = f"stomp://127.0.0.1:{self._listener.getsockname()[1]}"

    def __enter__(self) -> Self:
        threading.Thread(target=self._accept, daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                threading.Thread(target=self._serve, args=(client,), daemon=True).start()

    def _serve(self, client: socket.socket) -> None:
        with client, socket.create_connection(self._target) as broker:
            deaf = threading.Event()
            args = (broker, client, deaf)
            threading.Thread(target=self._answers, args=args, daemon=True).start()
            with contextlib.suppress(OSError):
                while data := client.recv(65536):
                    if b"COMMIT\n" in data:
                        deaf.set()  # before the broker can answer
                    broker.sendall(data)
                    if deaf.is_set():
                        broker.shutdown(socket.SHUT_WR)
                        while broker.recv(65536):  # it has answered, and gone
                            pass
                        return

    def _answers(self, broker: socket.socket, client: socket.socket, deaf: threading.Event) -> None:
        with contextlib.suppress(OSError):
            while not deaf.is_set() and (data := broker.recv(65536)) and not deaf.is_set():
                client.sendall(data)
