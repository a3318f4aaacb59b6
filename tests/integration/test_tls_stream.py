"""The stream under TLS: both ways at once, deadlines and ends as without TLS (B3, B4 and B8 of stomp.py)."""

from __future__ import annotations

import contextlib
import hashlib
import os
import select
import socket
import ssl
import struct
import threading
import time
from functools import partial
from typing import TYPE_CHECKING

import pytest

from jmsx import TlsOptions
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.drivers.connect import connect
from jmsx.errors import TlsError
from tests.integration.listening import HOST
from tests.integration.support import Outcome, within
from tests.integration.tls_support import Authority, TlsServer

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from jmsx.drivers.transport import Stream

pytestmark = pytest.mark.timeout(60)

MEGABYTE = 1024 * 1024


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signs for brokers."""
    return Authority.in_folder(tmp_path_factory.mktemp("ca"))


@contextlib.contextmanager
def stream_to(
    authority: Authority,
    script: Callable[[ssl.SSLSocket], None],
    write_timeout: float | None = 30.0,
) -> Iterator[Stream]:
    """A stream to a server that does `script`."""
    options = ConnectionOptions(
        tls=TlsOptions(ca_file=authority.file), request_timeout=write_timeout, connect_timeout=5.0
    )
    with TlsServer(authority.certificate(HOST), script) as server:
        stream = connect(BrokerAddress(HOST, server.port, tls=True), options)
        try:
            yield stream
        finally:
            stream.shutdown()
            stream.close()


def digest_of(read: Callable[[], bytes], size: int) -> str:
    """A checksum of the next `size` bytes."""
    digest = hashlib.sha256()
    while size:
        data = read()
        assert data, "the end came early"
        digest.update(data)
        size -= len(data)
    return digest.hexdigest()


def exchanged(client: ssl.SSLSocket, data: bytes, size: int) -> str:
    """
    Write `data`, and give a checksum of `size` bytes that come meanwhile.

    In one thread: two of them in one SSLSocket (Python 3.11) see a false end of the connection now and then (measured).
    """
    digest, left = hashlib.sha256(), memoryview(data)
    client.settimeout(0)
    while left or size:
        select.select([client], [client] if left else [], [], 20)
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            left = left[client.send(left[:65536]) :]
        with contextlib.suppress(ssl.SSLWantReadError, ssl.SSLWantWriteError):
            while size:
                came = client.recv(65536)
                assert came, "the end came early"
                digest.update(came)
                size -= len(came)
    client.settimeout(None)
    return digest.hexdigest()


def test_both_ways_at_once(authority: Authority) -> None:
    """B4: 30 MB in and 30 MB out at the same time, in pieces of all sizes, whole and in order."""
    there, back = (
        bytes(range(256)) * 4 * 1024 * 30,
        bytes(reversed(range(256))) * 4 * 1024 * 30,
    )
    told: list[str] = []

    def serve(client: ssl.SSLSocket) -> None:
        told.append(exchanged(client, back, len(there)))
        client.recv(1)

    with stream_to(authority, serve) as stream:

        def write() -> None:
            position, size = 0, 1
            while position < len(there):
                stream.send(there[position : position + size])
                position, size = position + size, size * 2 % 1_000_003

        writer = Outcome(write)
        assert digest_of(stream.read, len(back)) == hashlib.sha256(back).hexdigest()
        assert writer.join(20).error is None
    assert told == [hashlib.sha256(there).hexdigest()]


def test_a_blocked_write_does_not_block_reading_and_ends_in_time(authority: Authority) -> None:
    """The server does not read, and sends on: we read, and the write ends with an error at its deadline."""
    stop = threading.Event()

    def serve(client: ssl.SSLSocket) -> None:
        while not stop.is_set():
            client.sendall(b"x" * 1000)
            time.sleep(0.01)

    with stream_to(authority, serve, write_timeout=1.0) as stream:
        write = Outcome(lambda: stream.send(b"y" * 64 * MEGABYTE))
        read, began = 0, time.monotonic()
        while write.waiting:
            read += len(within(1, stream.read).value or b"")
        stop.set()
    assert isinstance(write.error, TimeoutError)
    assert "did not read" in str(write.error)
    assert time.monotonic() - began < 3
    assert read > 10_000


def test_a_write_goes_on_while_some_of_it_is_taken(authority: Authority) -> None:
    """The server reads slowly, so that all of it takes longer than a write may block."""
    size, told = 12 * MEGABYTE, threading.Event()

    def serve(client: ssl.SSLSocket) -> None:
        left = size
        while left:
            left -= len(client.recv(16384))
            time.sleep(0.003)
        told.set()

    with stream_to(authority, serve, write_timeout=0.6) as stream:
        began = time.monotonic()
        stream.send(b"y" * size)
        assert told.wait(10)
    assert time.monotonic() - began > 2 * 0.6


def test_a_second_writer_waits_and_records_stay_in_order(authority: Authority) -> None:
    """B11: four threads; every piece arrives whole."""
    pieces = 200
    told: list[bytes] = []

    def serve(client: ssl.SSLSocket) -> None:
        data = b""
        while len(data) < 4 * pieces * 1000:
            data += client.recv(65536)
        told.append(data)

    with stream_to(authority, serve) as stream:

        def write(letter: bytes) -> None:
            for _ in range(pieces):
                stream.send(letter * 1000)

        for call in [Outcome(partial(write, letter)) for letter in (b"a", b"b", b"c", b"d")]:
            assert call.join(20).error is None
        assert within(10, stream.read).value == b""
    (data,) = told
    assert {data[at : at + 1000] for at in range(0, len(data), 1000)} == {
        letter * 1000 for letter in (b"a", b"b", b"c", b"d")
    }


def farewell(client: ssl.SSLSocket) -> None:
    """Say close_notify, as a broker does that is stopped."""
    client.sendall(b"last words")
    client.unwrap()


def vanish(client: ssl.SSLSocket) -> None:
    """Close without a word of TLS, as a broker does that is killed."""
    client.sendall(b"last words")
    socket.socket(fileno=client.detach()).close()


def reset(client: ssl.SSLSocket) -> None:
    """Reset the connection."""
    client.sendall(b"last words")
    time.sleep(0.2)  # or the reset takes them along
    client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    socket.socket(fileno=client.detach()).close()


@pytest.mark.parametrize("end", [farewell, vanish, reset])
def test_the_end_is_seen_at_once(
    authority: Authority, end: Callable[[ssl.SSLSocket], None]
) -> None:
    """B3: after the last bytes, and without spinning."""
    with stream_to(authority, end) as stream:
        assert within(5, stream.read).value == b"last words"
        before = time.process_time()
        call = within(5, stream.read)
        assert call.value == b"" or isinstance(call.error, ConnectionResetError)
        assert time.process_time() - before < 0.5


def test_what_is_no_record_is_named(authority: Authority) -> None:
    """Also when it came right behind the last bytes: OpenSSL tells it once, and then that the connection ended."""
    sent = threading.Event()

    def garble(client: ssl.SSLSocket) -> None:
        client.sendall(b"last words")
        with socket.socket(fileno=os.dup(client.fileno())) as bare:
            bare.sendall(b"\x17\x03\x03\xff\xff" + b"z" * 100)
        sent.set()

    with stream_to(authority, garble) as stream:
        assert sent.wait(5)
        assert within(5, stream.read).value == b"last words"
        for _ in range(2):
            error = within(5, stream.read).error
            assert isinstance(error, TlsError)
            # OpenSSL 3.0, 3.5
            assert any(word in str(error) for word in ("LENGTH", "RECORD_LAYER"))
            assert "does not speak TLS" not in str(error)


def wait_for(stop: threading.Event, _client: ssl.SSLSocket) -> None:
    """A server that says nothing."""
    stop.wait(20)


def test_shutdown_ends_what_waits(authority: Authority) -> None:
    """B8: from another thread, while one reads and one writes; neither crashes nor stays."""
    stop = threading.Event()
    with stream_to(authority, partial(wait_for, stop)) as stream:
        read = Outcome(stream.read)
        write = Outcome(lambda: stream.send(b"y" * 64 * MEGABYTE))
        time.sleep(0.2)  # so that both wait
        assert read.waiting
        assert write.waiting
        stream.shutdown()
        assert read.join(5).value == b""
        assert isinstance(write.join(5).error, OSError)
        stop.set()


def test_waiting_costs_nothing(authority: Authority) -> None:
    """B3: an idle stream uses no CPU."""
    stop = threading.Event()
    with stream_to(authority, partial(wait_for, stop)) as stream:
        read = Outcome(stream.read)
        before = time.process_time()
        time.sleep(1.0)  # what is measured is this time
        assert time.process_time() - before < 0.1
        stop.set()
        assert read.join(5).value == b""
