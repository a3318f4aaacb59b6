"""
Two brokers, one way to talk to them, and a diary of what the clients saw that can be compared.

Only what a real broker leaves to chance is not compared: the place of a RECEIPT among MESSAGEs of one connection.
"""

from __future__ import annotations

import re
import socket
import time
import uuid
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from jmsx.core.frames import Frame, parse_headers
from jmsx.testing import FakeBroker, FakeClock

if TYPE_CHECKING:
    from collections.abc import Callable

#: Seconds without a frame after which a real broker has nothing more to say.
QUIET = 0.25
#: Seconds to wait for an answer that must come.
PATIENCE = 10.0

Seen = tuple[str, dict[str, str], bytes]


class Wire(Protocol):
    """One connection, to whichever broker."""

    def write(self, frame: Frame) -> None:
        """Send `frame`."""

    def read(self, patience: float) -> Seen | None:
        """The next frame; None if none comes within `patience` seconds. CLOSED is the last one."""

    def cut(self) -> None:
        """Let the socket die."""


class FakeWire:
    """A connection to the fake broker."""

    def __init__(self, broker: FakeBroker, clock: FakeClock) -> None:
        self.broker, self.clock = broker, clock
        self.link = broker.open_link(clock.now)
        self.frames: list[Seen] = []

    def write(self, frame: Frame) -> None:
        """Send `frame` as bytes."""
        self.link.receive(frame.encode(), self.clock.now)

    def read(self, patience: float) -> Seen | None:
        """The next frame, without waiting."""
        del patience
        for frame in self.link.take_frames():
            self.frames.append((frame.command, dict(frame.headers), frame.body))
        if self.frames:
            return self.frames.pop(0)
        return ("CLOSED", {}, b"") if self.link.closed else None

    def cut(self) -> None:
        """Let the socket die."""
        self.broker.drop(self.link, self.clock.now)


class RealWire:
    """A connection to a real broker, on a plain socket."""

    def __init__(self, port: int) -> None:
        self.socket = socket.create_connection(("127.0.0.1", port))
        self.buffer = b""

    def write(self, frame: Frame) -> None:
        """Send `frame`; a dead socket takes it too."""
        with suppress(OSError):
            self.socket.sendall(frame.encode())

    def read(self, patience: float) -> Seen | None:
        """The next frame, waiting for it."""
        end = time.monotonic() + patience
        while (seen := self._split()) is None:
            left = end - time.monotonic()
            if left <= 0:
                return None
            self.socket.settimeout(left)
            try:
                data = self.socket.recv(65536)
            except TimeoutError:
                return None
            except OSError:
                data = b""
            if not data:
                return ("CLOSED", {}, b"")
            self.buffer += data
        return seen

    def _split(self) -> Seen | None:
        self.buffer = self.buffer.lstrip(b"\n")
        head, blank, rest = self.buffer.partition(b"\n\n")
        if not blank:
            return None
        line, _, block = head.partition(b"\n")
        headers = parse_headers(block, escaped=line != b"CONNECTED")
        end = int(headers["content-length"]) if "content-length" in headers else rest.find(b"\0")
        if end < 0 or end >= len(rest):
            return None
        self.buffer = rest[end + 1 :]
        return line.decode(), headers, rest[:end]

    def cut(self) -> None:
        """Let the socket die."""
        self.socket.close()


class Client:
    """One client of a program: it writes, and notes all it sees."""

    def __init__(self, side: Side, wire: Wire) -> None:
        self.side, self.wire = side, wire
        self.receipts = 0
        self.unread: list[Seen] = []  #: MESSAGEs that came while an answer was awaited
        self.ack_ids: dict[str, str] = {}  #: by body

    def ask(self, command: str, body: bytes = b"", /, **headers: str) -> str:
        """Send with a receipt and wait for the answer: its command, and why if it is an ERROR."""
        self.receipts += 1
        receipt = f"r{self.receipts}"
        self._write(command, {**_headers(headers), "receipt": receipt}, body)
        while (seen := self.wire.read(PATIENCE)) is not None:
            if seen[0] == "MESSAGE":
                self.unread.append(seen)
                continue
            return self.side.note(self, seen)
        raise AssertionError(f"no answer to {command}")

    def tell(self, command: str, body: bytes = b"", /, **headers: str) -> None:
        """Send without a receipt."""
        self._write(command, _headers(headers), body)

    def _write(self, command: str, headers: dict[str, str], body: bytes) -> None:
        named = {name: self.side.real_name(value) for name, value in headers.items()}
        self.wire.write(Frame(command, named, body))

    def see(self, patience: float = QUIET) -> list[str]:
        """What came since the last look, until it is quiet: bodies, answers; all of it noted."""
        while (seen := self.wire.read(patience)) is not None:
            self.unread.append(seen)
            if seen[0] == "CLOSED":
                break
        frames, self.unread = self.unread, []
        frames.sort(key=lambda each: each[0] == "MESSAGE")
        return [self.side.note(self, each) for each in frames]

    def put(self, destination: str, *bodies: str, **headers: str) -> None:
        """Send persistent messages, each with a receipt."""
        for body in bodies:
            headers = {"persistent": "true", **headers}
            self.ask("SEND", body.encode(), destination=destination, **headers)

    def subscribe(self, destination: str, /, id_: str = "s", **headers: str) -> list[str]:
        """Subscribe (`ack:client` unless told otherwise) with a receipt and see what comes."""
        headers = {"ack": "client", **headers}
        answer = self.ask("SUBSCRIBE", id=id_, destination=destination, **headers)
        return [answer, *self.see()]

    def ack(self, body: str, command: str = "ACK", **headers: str) -> str:
        """Acknowledge the message with `body`, with a receipt."""
        return self.ask(command, id=self.ack_ids[body], **headers)

    def cut(self) -> None:
        """Let the socket die, and give the broker time to notice."""
        self.wire.cut()
        self.side.wait(QUIET)


@dataclass(frozen=True, slots=True)
class Entry:
    """One frame that one client saw."""

    client: int
    command: str
    headers: dict[str, str]
    body: bytes


class Side:
    """One broker and the clients of one run of one program, with a diary of what they saw."""

    def __init__(
        self,
        open_wire: Callable[[], Wire],
        wait: Callable[[float], object],
        wall: Callable[[], float],
    ) -> None:
        self._open_wire = open_wire
        self._wall = wall
        self.wait = wait  #: let so many seconds pass
        self.token = uuid.uuid4().hex
        self.diary: list[Entry] = []
        self.clients: list[Client] = []
        self._ids: dict[str, str] = {}

    def open(self, **headers: str) -> Client:
        """A new client that is connected; its id, if given, is made unique."""
        client = self.open_silent()
        client.tell("CONNECT", **{"accept-version": "1.2", "host": "x", **_headers(headers)})
        seen = client.wire.read(PATIENCE)
        assert seen is not None
        self.note(client, seen)
        return client

    def open_silent(self) -> Client:
        """A new client that said nothing yet."""
        client = Client(self, self._open_wire())
        self.clients.append(client)
        return client

    def now_ms(self, seconds_from_now: float = 0.0) -> str:
        """Epoch milliseconds, as `expires` wants them."""
        return str(round((self._wall() + seconds_from_now) * 1000))

    def real_id(self, plain: str) -> str:
        """The id behind `ID-n` of the diary."""
        return next(real for real, name in self._ids.items() if name == plain)

    def real_name(self, value: str) -> str:
        """Names that a program marks with `~` are made unique to this run."""
        return value.replace("~", self.token)

    def note(self, client: Client, seen: Seen) -> str:
        """Write down a frame, made comparable; returns its gist."""
        command, headers, body = seen
        if "ack" in headers:
            client.ack_ids[body.decode()] = headers["ack"]
        plain = {name: self._plain(name, value) for name, value in headers.items()}
        if command == "ERROR":
            body = re.split(rb"[:\n]", body, maxsplit=1)[0]
        self.diary.append(Entry(self.clients.index(client), command, plain, body))
        return body.decode() if command == "MESSAGE" else plain.get("message", command)

    def _plain(self, name: str, value: str) -> str:
        value = value.replace(self.token, "~")
        if name == "ack":
            return "ACK-ID"
        value = re.sub(r"MessageAck \{.*?\}", "MessageAck", value)
        value = re.sub(r"ID:[\w.:-]+", self._numbered, value)
        value = re.sub(r"tcp://[\d.:]+", "TCP", value)
        value = re.sub(r"Broker: \w+", "Broker", value)
        return re.sub(r"\b\d{13}\b", "MS", value)

    def _numbered(self, match: re.Match[str]) -> str:
        return self._ids.setdefault(match[0], f"ID-{len(self._ids) + 1}")

    def close(self) -> None:
        """Let all sockets die."""
        for client in self.clients:
            client.wire.cut()


def _headers(headers: dict[str, str]) -> dict[str, str]:
    """Keyword arguments as headers: `correlation__id` is `correlation-id`, `activemq___x` is `activemq.x`."""
    return {name.replace("___", ".").replace("__", "-"): value for name, value in headers.items()}


def real_side(port: int) -> Side:
    """The broker at `port` of this machine."""
    return Side(lambda: RealWire(port), time.sleep, time.time)


def fake_side() -> Side:
    """A fake broker, at today's date."""
    broker, clock, origin = FakeBroker(origin=time.time()), FakeClock(), time.time()

    def wait(seconds: float) -> None:
        broker.handle_timer(clock.advance(seconds))

    return Side(lambda: FakeWire(broker, clock), wait, lambda: origin + clock.now)
