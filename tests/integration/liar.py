"""A broker that speaks STOMP until a test makes it say something else."""

from __future__ import annotations

import contextlib
import socket
from functools import partial
from typing import TYPE_CHECKING, Self

from jmsx.core.frames import Frame, parse_headers
from tests.integration.listening import HOST, Listener

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\nheart-beat:0,0\n\n\0"

#: The same of an Artemis.
ARTEMIS = CONNECTED.replace(b"ActiveMQ/6.1.8", b"ActiveMQ-Artemis/2.44.0 a broker")


def receipt(frame: Frame) -> bytes:
    """The RECEIPT that a frame asks for, if it does."""
    wanted = frame.headers.get("receipt")
    return f"RECEIPT\nreceipt-id:{wanted}\n\n\0".encode() if wanted else b""


def message(subscription: str, number: int, body: bytes = b"x", more: str = "") -> bytes:
    """A MESSAGE as Classic sends it."""
    head = (
        f"MESSAGE\nack:a-{number}\nmessage-id:m-{number}\nsubscription:{subscription}\n"
        f"destination:/queue/q\npersistent:true\n{more}content-length:{len(body)}\n\n"
    )
    return head.encode() + body + b"\0"


class Client:
    """One who has connected."""

    def __init__(self, plug: socket.socket) -> None:
        self.socket = plug
        self.said = b""  #: all that it wrote

    def frames(self) -> Iterator[Frame]:
        """What it writes, until it goes; bodies are cut at their first NUL."""
        rest = b""
        while data := self.socket.recv(65536):
            self.said += data
            *whole, rest = (rest + data).split(b"\0")
            for text in whole:
                head, _, body = text.lstrip(b"\r\n").partition(b"\n\n")
                command, _, block = head.partition(b"\n")
                if command:
                    escaped = command != b"CONNECT"
                    yield Frame(command.decode(), parse_headers(block, escaped=escaped), body)

    def say(self, *data: bytes) -> None:
        """Write."""
        self.socket.sendall(b"".join(data))

    def obey(self, until: str | None = None, *, greeting: bytes = CONNECTED) -> Frame | None:
        """Answer as a broker does, up to a frame with this command, which is returned and not answered."""
        for frame in self.frames():
            if frame.command == until:
                return frame
            if frame.command == "CONNECT":
                self.say(greeting)
            else:
                self.say(receipt(frame))
            if frame.command == "DISCONNECT":
                return None
        return None


class Liar:
    """
    Serves every client by `script`, each in a thread of its own; hangs up when that returns.

    The first client of all gets the first script, the second the second, and so on; the last serves all others.
    """

    def __init__(self, *scripts: Callable[[Client], object]) -> None:
        self._scripts = scripts
        self.clients: list[Client] = []
        self._listener = Listener(self._meet)
        self.url = f"stomp://{HOST}:{self._listener.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _meet(self, plug: socket.socket) -> Iterable[Callable[[], None]]:
        client = Client(plug)
        self.clients.append(client)
        script = self._scripts[min(len(self.clients), len(self._scripts)) - 1]
        return (partial(_serve, client, script),)


def _serve(client: Client, script: Callable[[Client], object]) -> None:
    with client.socket, contextlib.suppress(OSError):
        script(client)
        with contextlib.suppress(OSError):  # let the client read what was said before it is gone
            client.socket.shutdown(socket.SHUT_WR)
            while client.socket.recv(65536):
                pass
