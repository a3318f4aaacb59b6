"""
How fast a backlog is consumed: `uv run python -m tests.benchmarks [--messages N] [--rounds R]`.

Every way consumes the same persistent messages of 256 bytes from one real Classic broker, with prefetch 1000, in turns.
Printed are the median of messages a second, CPU microseconds of this process a message, and both as ratios to a bare
socket that acknowledges each message. Machines are noisy: trust the ratios, and CPU more than the clock.
"""

from __future__ import annotations

import argparse
import socket
import statistics
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Any

import stomp

import jmsx
from jmsx.config.uri import parse_broker_uri
from jmsx.core.frames import Frame
from jmsx.core.wire import Splitter
from jmsx_broker import ClassicBroker

if TYPE_CHECKING:
    from collections.abc import Callable

PREFETCH = "1000"


def fill(url: str, queue: str, messages: int) -> None:
    """Put the backlog into `queue`."""
    with jmsx.Connection(url) as connection:
        session = connection.create_session(jmsx.AcknowledgeMode.SESSION_TRANSACTED)
        producer = session.create_producer(jmsx.Queue(queue))
        for number in range(messages):
            producer.send(jmsx.Message("x" * 256))
            if number % 1000 == 999:
                session.commit()
        session.commit()


def bare_socket(url: str, queue: str, messages: int) -> None:
    """No library: one ACK for each message, one write for each read."""
    address = parse_broker_uri(url).addresses[0]
    with socket.create_connection((address.host, address.port)) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        link.sendall(Frame("CONNECT", {"accept-version": "1.2", "host": "/"}).encode())
        link.sendall(
            Frame(
                "SUBSCRIBE",
                {
                    "id": "1",
                    "destination": f"/queue/{queue}",
                    "ack": "client-individual",
                    "activemq.prefetchSize": PREFETCH,
                },
            ).encode()
        )
        splitter, got = Splitter(), 0
        while got < messages:
            frames = splitter.feed(link.recv(262144))
            ids = [frame.headers["ack"] for frame in frames if "ack" in frame.headers]
            link.sendall(b"".join(Frame("ACK", {"id": each}).encode() for each in ids))
            got += len(ids)
        link.sendall(Frame("DISCONNECT", {"receipt": "bye"}).encode())
        while link.recv(65536):
            pass


class _StompPyListener(stomp.ConnectionListener):  # type: ignore[misc]  # ships no types
    def __init__(self, connection: Any, messages: int) -> None:
        self.connection = connection
        self.left = messages
        self.done = threading.Event()

    def on_message(self, frame: Any) -> None:
        """Acknowledge on stomp.py's own thread, as its documentation does."""
        self.connection.ack(frame.headers["ack"])
        self.left -= 1
        if not self.left:
            self.done.set()


def stomp_py(url: str, queue: str, messages: int) -> None:
    """stomp.py as its documentation uses it."""
    address = parse_broker_uri(url).addresses[0]
    connection = stomp.Connection12([(address.host, address.port)])
    listener = _StompPyListener(connection, messages)
    connection.set_listener("", listener)
    connection.connect(wait=True)
    connection.subscribe(
        f"/queue/{queue}", "1", "client-individual", {"activemq.prefetchSize": PREFETCH}
    )
    listener.done.wait(120)
    connection.disconnect(receipt="bye")


def jmsx_listener(**options: Any) -> Callable[[str, str, int], None]:
    """A listener in AUTO mode."""

    def consume(url: str, queue: str, messages: int) -> None:
        done, seen = threading.Event(), [0]

        def listen(_message: jmsx.Message) -> None:
            seen[0] += 1
            if seen[0] == messages:
                done.set()

        with jmsx.Connection(url, **options) as connection:
            connection.start()
            session = connection.create_session()
            session.create_consumer(jmsx.Queue(queue)).set_listener(listen)
            done.wait(120)

    return consume


def counted_listener(url: str, queue: str, messages: int) -> None:
    """A listener in AUTO mode whose deliveries a ledger counts."""
    with tempfile.TemporaryDirectory() as folder:
        jmsx_listener(ledger=Path(folder) / "ledger.db")(url, queue, messages)


def jmsx_receive(url: str, queue: str, messages: int) -> None:
    """AUTO mode, with receive()."""
    with jmsx.Connection(url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(jmsx.Queue(queue))
        for _ in range(messages):
            consumer.receive(30)


WAYS: dict[str, Callable[[str, str, int], None]] = {
    "bare socket": bare_socket,
    "stomp.py listener": stomp_py,
    "jmsx listener": jmsx_listener(),
    "jmsx with ledger": counted_listener,
    "jmsx optimized": jmsx_listener(optimize_acknowledge=True),
    "jmsx receive()": jmsx_receive,
}


def main() -> None:
    """Measure all ways in turns, and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--messages", type=int, default=10_000)
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    rates: dict[str, list[float]] = {way: [] for way in WAYS}
    costs: dict[str, list[float]] = {way: [] for way in WAYS}
    with ClassicBroker() as broker:
        for _ in range(arguments.rounds):
            for way, consume in WAYS.items():
                queue = f"jmsx.benchmark.{uuid.uuid4().hex[:8]}"
                fill(broker.url, queue, arguments.messages)
                clock, cpu = time.perf_counter(), time.process_time()
                consume(broker.url, queue, arguments.messages)
                rates[way].append(arguments.messages / (time.perf_counter() - clock))
                costs[way].append((time.process_time() - cpu) / arguments.messages * 1e6)
    floor_rate = statistics.median(rates["bare socket"])
    floor_cost = statistics.median(costs["bare socket"])
    print(f"{'':20} {'messages/s':>12} {'ratio':>6} {'CPU us':>8} {'ratio':>6}")
    for way in WAYS:
        rate, cost = statistics.median(rates[way]), statistics.median(costs[way])
        print(
            f"{way:20} {rate:12,.0f} {rate / floor_rate:6.2f} {cost:8.1f} {cost / floor_cost:6.2f}"
        )


if __name__ == "__main__":
    main()
