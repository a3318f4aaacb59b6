"""A server of probes is there for probes, whatever else connects to it."""

from __future__ import annotations

import errno
import itertools
import socket
import socketserver
import struct
import sys
import threading
import time
import urllib.error
import urllib.request
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from jmsx.drivers import web
from jmsx.drivers.web import MOST, WebServer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from wsgiref.types import StartResponse, WSGIEnvironment


def answer(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
    """Say hello, or fail."""
    if environ["PATH_INFO"] == "/broken":
        raise KeyError("broken")
    start("200 OK", [("Content-Length", "2")])
    return [b"hi"]


@pytest.fixture(name="server")
def running() -> Iterator[WebServer]:
    """A server that says hello."""
    server = WebServer("127.0.0.1", 0, answer, name="test")
    server.begin()
    yield server
    server.close()


def fetch(server: WebServer, path: str = "/") -> tuple[int, bytes]:
    """Status and body."""
    try:
        with urllib.request.urlopen(server.url + path, timeout=5) as response:  # noqa: S310 - a server of the test
            return response.status, response.read()
    except urllib.error.HTTPError as error:
        with error:
            return error.code, error.read()


def threads() -> int:
    """How many threads serve."""
    return sum("process_request_thread" in thread.name for thread in threading.enumerate())


def sent_again(peer: socket.socket) -> int:
    """How often TCP asked again, a second later and more, because the server had no room."""
    told = peer.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, 104)
    again: int = struct.unpack_from("I", told, 100)[0]  # tcpi_total_retrans of Linux's tcp_info
    return again


def connected(server: WebServer) -> socket.socket:
    """A connection that says nothing."""
    return socket.create_connection(("127.0.0.1", server.port), timeout=5)


def test_idle_connections_take_no_more_than_their_threads(
    server: WebServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """A hundred of them leave room for a probe: the oldest go. Nothing is printed; nobody asks twice."""
    with ExitStack() as stack:
        again = [sent_again(stack.enter_context(connected(server))) for _ in range(100)]
        assert sum(again) == 0
        assert fetch(server) == (200, b"hi")
        assert threads() <= MOST
    assert capfd.readouterr() == ("", "")


@pytest.mark.parametrize("said", [b"", b"GET / HTTP/1.1\r\nHost: x\r\n"])
def test_a_connection_that_dawdles_is_ended(
    server: WebServer,
    said: bytes,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
) -> None:
    """A request that does not end is as good as none."""
    monkeypatch.setattr(web, "LONGEST", 0.3)
    with connected(server) as peer:
        peer.sendall(said)
        while peer.recv(4096):
            pass
    assert capfd.readouterr() == ("", "")


def test_dripping_does_not_help(server: WebServer, monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is on the whole connection, not on each silence."""
    monkeypatch.setattr(web, "LONGEST", 0.5)
    with connected(server) as peer:
        peer.settimeout(0.05)
        assert any(_is_ended_after_one_more_byte(peer) for _ in range(100))


def _is_ended_after_one_more_byte(peer: socket.socket) -> bool:
    try:
        peer.sendall(b"G")
        return not peer.recv(1)
    except TimeoutError:
        return False
    except ConnectionError:
        return True


def test_a_process_without_a_free_descriptor_is_not_kept_busy(
    server: WebServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A probe that it cannot take waits, and is served when it has one again; it took all of a processor meanwhile."""
    refused: list[float] = []

    def refuse(_server: object) -> None:
        refused.append(time.monotonic())
        raise OSError(errno.EMFILE, "Too many open files")

    with monkeypatch.context() as patch:
        patch.setattr(socketserver.TCPServer, "get_request", refuse)
        with connected(server) as other:
            other.sendall(b"GET / HTTP/1.0\r\n\r\n")
            assert eventually(lambda: len(refused) >= 3)
            patch.undo()
            assert other.recv(100).startswith(b"HTTP/1.0 200")
    pauses = [later - before for before, later in itertools.pairwise(refused)]
    assert min(pauses) >= 0.09


def test_rubbish_and_resets_are_not_worth_a_line(
    server: WebServer, capfd: pytest.CaptureFixture[str]
) -> None:
    """Neither on stderr nor in a log, and the next probe is served."""
    for said in (b"\x16\x03\x01\x00\xff", b"GET\r\n\r\n", b"GET / HTTP/9.9\r\n\r\n", b"\r\n" * 9):
        with connected(server) as peer:
            peer.sendall(said)
            peer.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, b"\1\0\0\0\0\0\0\0")
    assert fetch(server) == (200, b"hi")
    assert capfd.readouterr() == ("", "")


def test_a_fault_of_the_application_is_an_answer_and_a_line(
    server: WebServer, caplog: pytest.LogCaptureFixture, capfd: pytest.CaptureFixture[str]
) -> None:
    """No traceback on stderr."""
    assert fetch(server, "/broken") == (500, b"")
    assert "KeyError('broken')" in caplog.text
    assert capfd.readouterr() == ("", "")


def test_closing_ends_open_connections(server: WebServer) -> None:
    """And gives the port back; a second call does nothing."""
    with connected(server) as peer:
        while not threads():  # until it was taken in
            time.sleep(0.01)
        server.close()
        server.close()
        assert peer.recv(1) == b""
    with pytest.raises(OSError, match="refused"):
        connected(server)


@pytest.mark.skipif(sys.platform != "linux", reason="elsewhere the thread ends at its next look")
def test_closing_waits_for_no_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """The serving thread is woken: it would look by itself in an hour."""
    monkeypatch.setattr(web, "_LOOK", 3600.0)
    server = WebServer("127.0.0.1", 0, answer, name="test")
    server.begin()
    assert fetch(server) == (200, b"hi")

    server.close()

    with pytest.raises(OSError, match="refused"):
        connected(server)
