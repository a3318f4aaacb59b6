"""
Two brokers, one way to talk to them, and a diary of what the clients saw that can be compared.

Only what a real broker leaves to chance is not compared: the place of a RECEIPT among MESSAGEs of one connection.
"""

from __future__ import annotations

import time
import uuid
from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx.testing import FakeBroker
from tests.integration.parity.wires import REPEATED, FakeWire, RealWire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from jmsx.testing.profiles import Profile
    from tests.integration.parity.vocabulary import Vocabulary
    from tests.integration.parity.wires import Seen, Wire

#: Seconds without a frame after which a real broker has nothing more to say, beyond what is known to come.
QUIET = 0.3
#: Seconds to wait for an answer that must come.
PATIENCE = 10.0


class Client:
    """One client of a program: it writes, and notes all it sees."""

    def __init__(self, side: Side, wire: Wire) -> None:
        self.side, self.wire = side, wire
        self.receipts = 0
        self.unread: list[Seen] = []  #: MESSAGEs that came while an answer was awaited
        self.ack_ids: dict[str, str] = {}  #: by body
        self.message_ids: dict[str, str] = {}  #: by body

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
        if "destination" in named:
            self.side.destinations.add(named["destination"])
        self.wire.write(Frame(command, named, body))

    def see(self, patience: float = QUIET) -> list[str]:
        """What came since the last look, until it is quiet: bodies, answers; all of it noted."""
        least = next(self.side.coming, 0)
        while (seen := self._next(patience, least)) is not None:
            self.unread.append(seen)
            if seen[0] == "CLOSED":
                break
        frames, self.unread = self.unread, []
        self.side.came.append(len(frames))
        frames.sort(key=self._place)
        return [self.side.note(self, each) for each in frames]

    def _next(self, patience: float, least: int) -> Seen | None:
        return self.wire.read(patience if len(self.unread) >= least else max(patience, PATIENCE))

    def see_end(self) -> list[str]:
        """What came since the last look, until the broker has closed the connection; it is given time for that."""
        return self.see(PATIENCE)

    def _place(self, seen: Seen) -> tuple[bool, str]:
        is_message = seen[0] == "MESSAGE"
        return is_message, self.side.vocabulary.place(seen[1]) if is_message else ""

    def put(self, destination: str, *bodies: str, **headers: str) -> None:
        """Send persistent messages, each with a receipt."""
        for body in bodies:
            given = {"persistent": "true", **self.side.vocabulary.sending, **headers}
            self.ask("SEND", body.encode(), destination=destination, **given)

    def subscribe(self, destination: str, /, id_: str = "s", **headers: str) -> list[str]:
        """Subscribe (`ack:client` unless told otherwise) with a receipt and see what comes."""
        given = {"ack": "client", **self.side.vocabulary.subscribing, **headers}
        answer = self.ask("SUBSCRIBE", id=id_, destination=destination, **given)
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
        vocabulary: Vocabulary,
        coming: Iterable[int] = (),
    ) -> None:
        self._open_wire = open_wire
        self._wall = wall
        #: How many frames each look is to see at least, however long they take: what another run of the program saw.
        self.coming = iter(coming)
        self.came: list[int] = []  #: how many each look saw
        self.vocabulary = vocabulary  #: what this kind of broker says, and wants to be told
        self.wait = wait  #: let so many seconds pass
        self.tokens = [uuid.uuid4().hex]
        self.diary: list[Entry] = []
        self.destinations: set[str] = set()  #: by their real names
        self.clients: list[Client] = []

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
        return self.vocabulary.real_id(plain)

    def real_name(self, value: str) -> str:
        """Names that a program marks with `~` are made unique to this run."""
        return value.replace("~", self.tokens[-1])

    def renew(self) -> None:
        """Let `~` stand for something else from now on."""
        self.tokens.append(uuid.uuid4().hex)

    def _unmarked(self, value: str) -> str:
        for token in self.tokens:
            value = value.replace(token, "~")
        return value

    def note(self, client: Client, seen: Seen) -> str:
        """Write down a frame, made comparable; returns its gist."""
        command, headers, body = seen
        if "ack" in headers:
            client.ack_ids[body.decode()] = headers["ack"]
        if "message-id" in headers:
            client.message_ids[body.decode()] = headers["message-id"].partition(REPEATED)[0]
        plain = {
            name: self.vocabulary.plain(name, self._unmarked(value))
            for name, value in headers.items()
        }
        told = self.vocabulary.plain_error(body) if command == "ERROR" else body
        body = self._unmarked(told.decode()).encode()
        self.diary.append(Entry(self.clients.index(client), command, plain, body))
        return body.decode() if command == "MESSAGE" else plain.get("message", command)

    def close(self) -> None:
        """Let all sockets die."""
        for client in self.clients:
            client.wire.cut()


def _headers(headers: dict[str, str]) -> dict[str, str]:
    """Keyword arguments as headers: `correlation__id` is `correlation-id`, `activemq___x` is `activemq.x`."""
    return {name.replace("___", ".").replace("__", "-"): value for name, value in headers.items()}


def real_side(port: int, vocabulary: Vocabulary, coming: Iterable[int] = ()) -> Side:
    """The broker at `port` of this machine."""
    return Side(lambda: RealWire(port), time.sleep, time.time, vocabulary, coming)


def fake_side(profile: Profile | str, vocabulary: Vocabulary) -> Side:
    """A fake broker, at today's date."""
    origin = time.time()
    broker = FakeBroker(profile, origin=origin)

    def wait(seconds: float) -> None:
        broker.handle_timer(broker.now + seconds)

    return Side(lambda: FakeWire(broker), wait, lambda: origin + broker.now, vocabulary)
