"""
A small web server for probes and scrapes that no peer can hold up: time, threads and log lines are limited.

It serves a WSGI application, which a program with a web server of its own can mount there instead.
"""

from __future__ import annotations

import contextlib
import io
import socket
import socketserver
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer

from jmsx.drivers.locks import mutex
from jmsx.drivers.process import tell_of_forks
from jmsx.drivers.threads import start
from jmsx.errors import JmsxError
from jmsx.log import logger

if TYPE_CHECKING:
    from collections.abc import Iterable
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

#: Seconds that a connection may last, from its first byte to our last.
LONGEST: Final = 10.0
#: Connections at once, each with a thread. For one more the oldest has to go.
MOST: Final = 16
#: Seconds that a connection beyond these waits for the oldest to end.
_PATIENCE: Final = 1.0
#: Seconds between two looks for connections that last too long.
_LOOK: Final = 0.1
#: Seconds before the next accept() when one has failed, such as for want of a descriptor: the connection goes on
#: waiting.
_AGAIN: Final = 0.1

_log = logger("jmsx.drivers.web")


class WebServer:
    """
    A server of `app`, on a thread of its own; `begin()` it, and close it.

    Raises OSError where the machine has no such addresses.

    Args:
        host: the address at which it serves; "": all of the machine's addresses.
        port: its port; 0 takes a free one.
        app: what is served.
        name: the name of the thread.

    """

    def __init__(self, host: str, port: int, app: WSGIApplication, *, name: str) -> None:
        kind = _Server6 if ":" in host else _Server
        self._server = kind((host, port), _Handler)
        self._server.set_app(_guarded(app))
        self._shown = f"[{host}]" if ":" in host else host or "0.0.0.0"  # noqa: S104 - what was asked for
        self.port = port  #: the actual one, once it serves
        self.url = ""  #: once it serves
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(_LOOK,), name=name, daemon=True
        )

    def begin(self) -> None:
        """Serve; raises OSError, and ResourceAllocationError where the process gets no thread for it."""
        try:
            self._server.server_bind()
            self._server.server_activate()
            self.port = self._server.server_port
            self.url = f"http://{self._shown}:{self.port}"
            start(self._thread, f"nothing is served at {self.url}", "ask for it again")
        except (OSError, JmsxError):
            self._server.server_close()
            raise
        tell_of_forks(self)

    def after_fork(self) -> None:
        """Leave the port to the parent, in the child of a fork: it is free when that has ended."""
        self._server.let_go()

    def close(self) -> None:
        """Stop serving, and give the port back; idempotent, also where it was interrupted."""
        if self._thread.is_alive():
            # On Linux this wakes the thread, which would else end at its next look
            with contextlib.suppress(OSError):
                self._server.socket.shutdown(socket.SHUT_RDWR)
            self._server.shutdown()
            self._thread.join()
        self._server.server_close()
        self._server.hang_up(0.0)


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each connection: a slow reader must not keep a probe waiting."""

    daemon_threads = True
    block_on_close = False
    #: Connections that may wait to be accepted; TCP tries one more again after a second.
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[WSGIRequestHandler]) -> None:
        self._places = threading.BoundedSemaphore(MOST)
        self._lock = mutex()
        #: Open connections, and since when; oldest first.
        self._begun: dict[socket.socket, float] = {}
        super().__init__(address, handler, bind_and_activate=False)

    def server_bind(self) -> None:
        """Bind as the base class does, but ask no name service for our own name, which may take a while."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()

    def get_request(self) -> tuple[Any, Any]:
        """Accept a connection; raises OSError, but after a pause, for the caller tries again at once."""
        try:
            return super().get_request()
        except OSError:
            time.sleep(_AGAIN)
            raise

    def process_request(self, request: Any, client_address: Any) -> None:
        """Give a connection a thread; if too many are open, end the oldest for it."""
        if not self._places.acquire(blocking=False):
            self._hang_up_oldest()
            if not self._places.acquire(timeout=_PATIENCE):
                self.shutdown_request(request)
                return
        with self._lock:
            self._begun[request] = time.monotonic()
        try:
            super().process_request(request, client_address)
        except BaseException:
            self._ended(request)
            raise

    def process_request_thread(self, request: Any, client_address: Any) -> None:
        """Serve one connection, and give its place back."""
        try:
            super().process_request_thread(request, client_address)
        finally:
            self._ended(request)

    def service_actions(self) -> None:
        """End the connections that last too long, whatever they do; the base class calls this now and then."""
        self.hang_up(LONGEST)

    def hang_up(self, age: float) -> None:
        """End the connections that are older than `age` seconds."""
        now = time.monotonic()
        with self._lock:
            for request in [r for r, begun in self._begun.items() if now - begun >= age]:
                self._cut(request)

    def let_go(self) -> None:
        """Close the parent's descriptors in the child of a fork, which says nothing to the peers."""
        self._lock = mutex()
        for each in (self.socket, *self._begun):
            each.close()
        self._begun.clear()

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: it was the peer's doing."""

    def _hang_up_oldest(self) -> None:
        with self._lock:
            for request in list(self._begun)[:1]:
                self._cut(request)

    def _cut(self, request: socket.socket) -> None:
        """End a connection, which its thread notices, and forget it, so that the next one to be ended is another."""
        del self._begun[request]
        with contextlib.suppress(OSError):
            request.shutdown(socket.SHUT_RDWR)

    def _ended(self, request: socket.socket) -> None:
        with self._lock:
            self._begun.pop(request, None)
        self._places.release()


class _Server6(_Server):
    """The web server on IPv6."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Logs nothing: probes come every few seconds, and peers may send what they like."""

    timeout = LONGEST

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def get_stderr(self) -> Any:
        """Return where wsgiref writes the traceback of a peer that went away."""
        return io.StringIO()


def _guarded(app: WSGIApplication) -> WSGIApplication:
    """Return `app`, guarded: a fault of its own is a line in the log and an answer."""

    def respond(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        try:
            return app(environ, start)
        except Exception as error:  # noqa: BLE001 - whatever it is, the next probe wants an answer
            _log.error(
                "request failed: answered with 500",
                path=environ.get("PATH_INFO"),
                error=repr(error),
            )
            start("500 Internal Server Error", [("Content-Length", "0")], sys.exc_info())
            return []

    return respond
