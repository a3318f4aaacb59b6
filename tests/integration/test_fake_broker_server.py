"""The fake broker behind a socket, with stomp.py as its client."""

from __future__ import annotations

import queue
import socket
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING

import pytest
import stomp

from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx.testing.link import FakeLink

PATIENCE = 5.0


class Heard(stomp.ConnectionListener):  # type: ignore[misc]  # stomp.py ships no types
    """All that stomp.py's thread tells, in queues."""

    def __init__(self) -> None:
        self.messages: queue.Queue[str] = queue.Queue()
        self.gone = threading.Event()

    def on_message(self, frame: stomp.utils.Frame) -> None:
        """Note a MESSAGE."""
        self.messages.put(frame.body)

    def on_disconnected(self) -> None:
        """Note the end."""
        self.gone.set()


@contextmanager
def client(server: FakeBrokerServer, beats: int = 0) -> Iterator[tuple[stomp.Connection12, Heard]]:
    """A stomp.py connection that is up."""
    heard = Heard()
    connection = stomp.Connection12([("127.0.0.1", server.port)], heartbeats=(beats, beats))
    connection.set_listener("", heard)
    connection.connect(wait=True)
    try:
        yield connection, heard
    finally:
        connection.disconnect()


def test_round_trip() -> None:
    """What one connection sends another gets, and the broker knows both."""
    with (
        FakeBrokerServer() as server,
        client(server) as (sender, _),
        client(server) as (reader, heard),
    ):
        assert server.url == f"stomp://127.0.0.1:{server.port}"
        reader.subscribe("/queue/q", id="s", ack="client")
        for number in range(300):
            sender.send("/queue/q", f"message {number}", headers={"persistent": "true"})
        got = [heard.messages.get(timeout=PATIENCE) for _ in range(300)]
        with server.broker() as broker:
            assert len(broker.links) == 2
            assert len(broker.queue("q").in_flight) == 300
    assert got == [f"message {number}" for number in range(300)]


def test_planned_fault_and_new_connection() -> None:
    """A cut connection is seen by stomp.py; the message comes again on the next one."""
    with FakeBrokerServer() as server:
        with client(server) as (connection, heard):
            connection.send("/queue/q", "a")
            connection.subscribe("/queue/q", id="s", ack="client")
            assert heard.messages.get(timeout=PATIENCE) == "a"
            with server.broker() as broker:
                broker.cut_next("BEGIN", applied=False)
            connection.begin("t")
            assert heard.gone.wait(PATIENCE)
        with client(server) as (connection, heard):
            connection.subscribe("/queue/q", id="s", ack="client")
            assert heard.messages.get(timeout=PATIENCE) == "a"


def test_drop_connections() -> None:
    """All sockets die, the broker serves on."""
    with FakeBrokerServer() as server:
        with client(server) as (_, heard):
            server.drop_connections()
            assert heard.gone.wait(PATIENCE)
        with client(server) as (connection, _):
            assert connection.is_connected()


def test_heart_beats_keep_a_quiet_connection() -> None:
    """The server beats as promised: stomp.py would leave after 1.5 intervals without."""
    with FakeBrokerServer() as server, client(server, beats=1000) as (connection, heard):
        assert not heard.gone.wait(2.5)
        assert connection.is_connected()


def test_artemis_by_stomp_py() -> None:
    """Its frames end as a real one's do, and its beats keep the connection."""
    with FakeBrokerServer("artemis") as server, client(server, beats=500) as (connection, heard):
        anycast = {"destination-type": "ANYCAST"}
        connection.subscribe("q", id="s", ack="client", headers={"subscription-type": "ANYCAST"})
        for number in range(300):
            connection.send("q", f"message {number}", headers=anycast)
        got = [heard.messages.get(timeout=PATIENCE) for _ in range(30)]
        assert got == [f"message {number}" for number in range(30)]
        assert not heard.gone.wait(2.0)
        with server.broker() as broker:
            assert len(broker.queue("q")) == 300


def test_scheduled_message_comes_by_itself() -> None:
    """Time goes on without any frame."""
    with FakeBrokerServer() as server, client(server) as (connection, heard):
        connection.subscribe("/queue/q", id="s", ack="client")
        connection.send("/queue/q", "late", headers={"AMQ_SCHEDULED_DELAY": "300"})
        started = time.monotonic()
        assert heard.messages.get(timeout=PATIENCE) == "late"
        assert time.monotonic() - started > 0.2


def test_what_it_cannot_do_reaches_the_test() -> None:
    """The connection is closed, and `with` raises the reason."""
    with (  # noqa: PT012 - the fault is planted inside and raised at the end
        pytest.raises(NotImplementedError, match="composite"),
        FakeBrokerServer() as server,
        client(server) as (connection, heard),
    ):
        connection.subscribe("/queue/a,/queue/b", id="s", ack="client")
        assert heard.gone.wait(PATIENCE)


def test_a_client_that_goes_on_where_it_is_refused_keeps_nobody_busy() -> None:
    """It reads nothing, says more, and ends its side; the server waits for it, and does nothing."""
    with FakeBrokerServer() as server:
        with socket.create_connection(("127.0.0.1", server.port)) as plug:
            plug.sendall(
                b"CONNECT\naccept-version:1.2\n\n\0SUBSCRIBE\nid:1\ndestination:/queue/q\n\n\0"
            )
            for _ in range(60):
                plug.sendall(b"SEND\ndestination:/queue/q\n\n" + b"x" * 200_000 + b"\0")
            plug.sendall(b"NONSENSE\n\n\0")
            assert eventually(lambda: not links(server))
            plug.sendall(b"NONSENSE\n\n\0")
            plug.shutdown(socket.SHUT_WR)
            time.sleep(0.1)
            before = time.process_time()
            time.sleep(1.0)
            assert time.process_time() - before < 0.1
        with client(server) as (connection, _):
            assert connection.is_connected()


def links(server: FakeBrokerServer) -> list[FakeLink]:
    """The connections that its broker has."""
    with server.broker() as broker:
        return list(broker.links)


def test_stop_frees_the_port() -> None:
    """Afterwards nobody listens and no thread is left."""
    before = set(threading.enumerate())
    with FakeBrokerServer() as server, client(server):
        port = server.port
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", port))
    assert not [t for t in threading.enumerate() if t not in before and t.name == "fake-broker"]
