"""What lies unread in the socket is not "nothing comes": whoever reads may be late, without a processor of its own."""

from __future__ import annotations

import socket
import threading
import time
from contextlib import contextmanager
from functools import partialmethod
from typing import TYPE_CHECKING, cast

import pytest

from jmsx import Connection, MessageConsumer, Queue, TlsOptions
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.core.events import AckTrigger, MessagesAcknowledged
from jmsx.drivers.connect import connect
from jmsx.drivers.link import StompLink
from jmsx.drivers.tcp import TcpStream
from jmsx.drivers.transport import DriverTransport
from jmsx.testing import FakeBrokerServer
from tests.integration.broker_support import eventually
from tests.integration.listening import HOST
from tests.integration.support import AUTO, Diary, fresh_queue, put, text
from tests.integration.tls_support import Authority, TlsServer

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from jmsx_broker import Broker

pytestmark = pytest.mark.timeout(60)


def acks(diary: Diary) -> list[tuple[int, AckTrigger]]:
    """How many messages each ACK covers, and why it was written."""
    return [(e.messages, e.trigger) for e in diary.events if isinstance(e, MessagesAcknowledged)]


@contextmanager
def consuming(queue: Queue, diary: Diary) -> Iterator[tuple[Broker, MessageConsumer]]:
    """A broker, and a consumer of `queue` there that acknowledges in batches and has its events in `diary`."""
    with (
        FakeBrokerServer() as server,
        Connection(server.url, optimize_acknowledge=True, observers=[diary]) as connection,
    ):
        connection.start()
        consumer = connection.create_session(AUTO).create_consumer(queue)
        yield cast("Broker", server), consumer  # as far as its URL


def test_a_buffer_is_not_dry_while_messages_lie_in_the_socket(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The reader is held up between two messages, twenty times as long as a dry buffer waits: one ACK covers both."""
    leave, original = threading.Semaphore(1000), TcpStream.read

    def read(stream: TcpStream) -> bytes:
        assert leave.acquire(timeout=30)
        chunk = original(stream)
        # b lies in the socket before a is known
        if b"\n\na\0" in chunk and b"\n\nb\0" not in chunk:
            assert eventually(stream.unread)
        return chunk

    monkeypatch.setattr(TcpStream, "read", read)
    diary, queue = Diary(), fresh_queue()
    with consuming(queue, diary) as (broker, consumer):
        while leave.acquire(blocking=False):
            pass  # the read that waits is the last one
        put(broker, queue, "a", "b")
        assert text(consumer.receive(5.0)) == "a"
        time.sleep(0.1)
        held_back = acks(diary)
        leave.release(1000)
        assert text(consumer.receive(5.0)) == "b"
        assert eventually(lambda: bool(acks(diary)))

    assert held_back == []
    assert acks(diary) == [(2, AckTrigger.IDLE)]


def test_it_is_not_while_what_was_read_is_not_taken_in(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader hands the next message over while the timer of a dry buffer asks: one ACK covers both."""
    asked, read, there = threading.Event(), TcpStream.read, threading.Event()

    def held_up(stream: TcpStream) -> bytes:
        chunk = read(stream)
        assert b"\n\nb\0" not in chunk or asked.wait(30)
        return chunk

    def told(link: StompLink, handed_over: Callable[..., None], frames: Sequence[object]) -> None:
        handed_over(link, frames)
        if asked.is_set():
            there.set()

    def unread(_transport: DriverTransport) -> bool:
        asked.set()
        assert there.wait(30)
        return False

    monkeypatch.setattr(StompLink, "_hand_over", partialmethod(told, StompLink._hand_over))
    diary, queue = Diary(), fresh_queue()
    with consuming(queue, diary) as (broker, consumer):
        monkeypatch.setattr(TcpStream, "read", held_up)
        monkeypatch.setattr(DriverTransport, "unread", property(unread))
        put(broker, queue, "a")
        assert text(consumer.receive(5.0)) == "a"
        put(broker, queue, "b")
        assert text(consumer.receive(5.0)) == "b"
        assert eventually(lambda: bool(acks(diary)))

    assert acks(diary) == [(2, AckTrigger.IDLE)]


def test_a_stream_tells_what_is_unread() -> None:
    """Bytes that have come and are not read; neither an end nor a closed socket is any."""
    with socket.create_server((HOST, 0)) as server:
        address = BrokerAddress(HOST, server.getsockname()[1])
        stream = connect(address, ConnectionOptions())
        broker, _ = server.accept()
        with broker:
            assert not stream.unread()
            broker.sendall(b"MESSAGE")
            assert eventually(stream.unread)
            assert stream.read() == b"MESSAGE"
            assert not stream.unread()
        assert stream.read() == b""
        assert not stream.unread()
        stream.close()
        assert not stream.unread()


def test_so_does_one_under_tls(tmp_path: Path) -> None:
    """What is not decrypted yet is unread."""
    end = threading.Event()

    def serve(client: ssl.SSLSocket) -> None:
        client.sendall(b"MESSAGE")
        assert end.wait(10)

    authority = Authority.in_folder(tmp_path)
    options = ConnectionOptions(tls=TlsOptions(ca_file=authority.file))
    with TlsServer(authority.certificate(HOST), serve) as server:
        stream = connect(BrokerAddress(HOST, server.port, tls=True), options)
        assert eventually(stream.unread)
        assert stream.read() == b"MESSAGE"
        assert not stream.unread()
        end.set()
        stream.close()
