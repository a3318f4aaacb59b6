"""What the probes share: clients of raw frames, a broker's queues and log, and how a probe says what it has seen."""

from __future__ import annotations

import socket
import struct
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from jmsx.core.frames import Frame
from jmsx_broker.products import ARTEMIS
from tests.integration.parity.sides import Client, Side, real_side
from tests.integration.parity.vocabulary import ArtemisVocabulary, ClassicVocabulary
from tests.integration.parity.wires import RealWire

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx_broker.local import LocalBroker
    from tests.integration.artemis_support import Console
    from tests.integration.parity.wires import Seen

#: Seconds for an answer that must come.
PATIENCE: Final = 10.0

#: Seconds without a frame after which a broker has nothing more to say.
QUIET: Final = 0.5


#: What names a queue of Artemis in a SUBSCRIBE, and in a SEND.
FROM_A_QUEUE: Final = {"subscription-type": "ANYCAST"}
TO_A_QUEUE: Final = {"destination-type": "ANYCAST"}

#: Artemis sends all that there is, however much of it is not acknowledged.
NO_WINDOW: Final = {"consumer-window-size": "-1"}


class OtherwiseError(Exception):
    """The broker does otherwise than BROKER.md says; says what it did."""


def expect(holds: bool, otherwise: str) -> None:
    """Raise OtherwiseError with what was seen instead, unless it `holds`."""
    if not holds:
        raise OtherwiseError(otherwise)


@contextmanager
def clients(broker: LocalBroker) -> Iterator[Side]:
    """Where clients of raw frames come from; their sockets die with the block."""
    vocabulary = ArtemisVocabulary() if broker.product is ARTEMIS else ClassicVocabulary()
    side = real_side(urlsplit(broker.url).port or 0, vocabulary)
    try:
        yield side
    finally:
        side.close()


def wire_of(client: Client) -> RealWire:
    """A client's connection, for frames by the thousand, which need no diary; a small one waits for no other."""
    assert isinstance(client.wire, RealWire)
    client.wire.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return client.wire


def write_all(wire: RealWire, *frames: Frame) -> None:
    """Send frames in one go."""
    wire.socket.sendall(b"".join(frame.encode() for frame in frames))


def await_receipt(wire: RealWire, seconds: float = PATIENCE) -> None:
    """Read until an answer comes, which must be a RECEIPT."""
    while (seen := wire.read(seconds)) is not None and seen[0] == "MESSAGE":
        pass
    assert seen is not None, f"no answer in {seconds:g} s"
    assert seen[0] == "RECEIPT", seen


def ack_ids(wire: RealWire, count: int) -> list[str]:
    """Those of the next `count` messages."""
    ids: list[str] = []
    while len(ids) < count:
        seen = wire.read(PATIENCE)
        assert seen is not None, f"{len(ids)} of {count} messages came"
        if seen[0] == "MESSAGE":
            ids.append(seen[1]["ack"])
    return ids


def holding(
    side: Side, count: int, ack: str = "client-individual", **headers: str
) -> tuple[RealWire, str, list[str]]:
    """
    A connection to Classic that has read `count` messages of a queue and acknowledged none; the queue's name; ack ids.

    The broker hands out 200 at a wake-up (C10), so that they are sent while the subscription is there.
    """
    step = 100
    wire = wire_of(side.open())
    name = side.real_name("~")
    told = {
        "id": "s",
        "destination": f"/queue/{name}",
        "ack": ack,
        "activemq.prefetchSize": "30000",
    }
    wire.write(Frame("SUBSCRIBE", {**told, "receipt": "r"}))
    await_receipt(wire)
    ids: list[str] = []
    while len(ids) < count:
        write_all(wire, *[Frame("SEND", {"destination": f"/queue/{name}", **headers}, b"x")] * step)
        ids += ack_ids(wire, step)
    return wire, name, ids


def socket_of(client: Client) -> socket.socket:
    """The socket that a client reads."""
    return wire_of(client).socket


def reset(client: Client) -> None:
    """Let a socket die as in a crash: whoever writes to it is told so."""
    sock = socket_of(client)
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    sock.close()


def next_message(client: Client, seconds: float = PATIENCE) -> Seen | None:
    """The next MESSAGE that was not looked at; None if there is none within `seconds`, or the connection is closed."""
    if client.unread:
        return client.unread.pop(0)
    end = time.monotonic() + seconds
    while (seen := client.wire.read(max(end - time.monotonic(), 0.0))) is not None:
        if seen[0] in {"MESSAGE", "CLOSED"}:
            return seen if seen[0] == "MESSAGE" else None
    return None


def the_next(client: Client) -> Seen:
    """The next MESSAGE, which must come."""
    message = next_message(client)
    if message is None:
        raise OtherwiseError(f"no message came in {PATIENCE:g} s")
    return message


def messages(client: Client, quiet: float = QUIET) -> list[Seen]:
    """All MESSAGEs that come until none came for `quiet` seconds."""
    found = []
    while (seen := next_message(client, quiet)) is not None:
        found.append(seen)
    return found


def silence(of: socket.socket, seconds: float) -> float | None:
    """After how many seconds the next bytes come, which are taken; None if none come within `seconds`."""
    began = time.monotonic()
    of.settimeout(seconds)
    try:
        of.recv(65536)
    except TimeoutError:
        return None
    return time.monotonic() - began


def end_of(client: Client, seconds: float) -> tuple[float, list[str]] | None:
    """After how many seconds the broker closes a connection, and the ERRORs before; None if it does not."""
    errors: list[str] = []
    began = time.monotonic()
    while (seen := client.wire.read(max(began + seconds - time.monotonic(), 0.0))) is not None:
        if seen[0] == "CLOSED":
            return time.monotonic() - began, errors
        if seen[0] == "ERROR":
            errors.append(seen[1].get("message", ""))
    return None


def which_comes_first(client: Client, subscribe: Frame, behind: Callable[[int], Frame]) -> str:
    """
    Whether the RECEIPT of what stands behind a SUBSCRIBE comes before the queue's one message: how often, in words.

    `behind` gives the frame of each round. It is written at once with `subscribe`, and a moment later, 200 times each.

    Raises:
        OtherwiseError: one of the two never came first.

    """
    rounds, moment = 400, 0.005  # times; seconds
    wire = wire_of(client)
    first = {"RECEIPT": 0, "MESSAGE": 0}
    for number in range(rounds):
        if number % 2:
            write_all(wire, subscribe, behind(number))
        else:
            wire.write(subscribe)
            time.sleep(moment)
            wire.write(behind(number))
        seen = [wire.read(PATIENCE) for _ in first]
        assert None not in seen
        first[seen[0][0] if seen[0] else ""] += 1
        client.ask("UNSUBSCRIBE", id="s")
    told = f"the RECEIPT came first {first['RECEIPT']} times, the MESSAGE {first['MESSAGE']} times"
    expect(all(first.values()), told)
    return told


def delivering(console: Console, name: str) -> int:
    """How many messages of a queue of Artemis are in delivery."""
    return int(console.ask(f"queue.{name}", "getDeliveringCount"))


def logged(broker: LocalBroker, word: str) -> bool:
    """Whether the broker's log has a word."""
    return word in broker.log.read_text("utf-8", "replace")
