"""
One small HTTP server for probes and scrapes: `/healthz`, `/readyz`, and `/metrics` of an observer that has them.

It is WSGI all through, so that an application with a web server of its own can mount `App.wsgi` there instead.
"""

from __future__ import annotations

import json
import re
import socket
import socketserver
import threading
from typing import TYPE_CHECKING, Any, Final
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment

    from jmsx.app.health import Verdict

_ADDRESS: Final = re.compile(r"(?:(?P<host>[^:\[\]]*|\[[0-9A-Fa-f:.]+\]):)?(?P<port>\d{1,5})")


def application(
    probes: Mapping[str, Callable[[], Verdict]], metrics: WSGIApplication | None
) -> WSGIApplication:
    """The WSGI application that answers `probes` by path, and `/metrics` if there are any."""

    def respond(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "").rstrip("/")
        if path == "/metrics" and metrics is not None:
            return metrics(environ, start)
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _answer(start, "405 Method Not Allowed", {"status": "only GET and HEAD"})
        if path not in probes:
            known = [*probes, "/metrics"] if metrics is not None else list(probes)
            return _answer(start, "404 Not Found", {"status": "unknown path", "paths": known})
        verdict = probes[path]()
        return _answer(start, "200 OK" if verdict.ok else "503 Service Unavailable", verdict.body)

    return respond


def _answer(start: StartResponse, status: str, body: dict[str, Any]) -> list[bytes]:
    text = json.dumps(body, indent=1).encode() + b"\n"
    headers = [
        ("Content-Type", "application/json"),
        ("Content-Length", str(len(text))),
        ("Cache-Control", "no-store"),
    ]
    start(status, headers)
    return [text]


class Endpoint:
    """A running server for `app` at `address` (HOST:PORT, or PORT for all of the machine's addresses)."""

    def __init__(self, address: str, app: WSGIApplication) -> None:
        """Begin to serve; raises ConfigurationError if the address makes no sense, or is not free."""
        host, port = parse_address(address)
        kind = _Server6 if ":" in host else _Server
        try:
            self._server = make_server(host, port, app, server_class=kind, handler_class=_Handler)
        except OSError as error:
            raise ConfigurationError(f"cannot serve health at {address}: {error}") from error
        self.port: int = self._server.server_port  #: also when a free one was asked for (0)
        shown = f"[{host}]" if ":" in host else host or "0.0.0.0"  # noqa: S104 - what was asked for
        self.url = f"http://{shown}:{self.port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, args=(0.1,), name="jmsx-health", daemon=True
        )
        self._thread.start()

    def close(self) -> None:
        """Stop serving, and give the port back; idempotent."""
        if self._thread.is_alive():
            self._server.shutdown()
            self._thread.join()
            self._server.server_close()


def parse_address(text: str) -> tuple[str, int]:
    """(host, port) of HOST:PORT, [IPV6]:PORT, :PORT or PORT; raises ConfigurationError."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > 65_535:  # noqa: PLR2004 - the greatest port
        raise ConfigurationError(f"{text!r} is not an address to serve at; write HOST:PORT or PORT")
    return (found["host"] or "").strip("[]"), int(found["port"])


class _Server(socketserver.ThreadingMixIn, WSGIServer):
    """A thread for each request: a slow reader must not keep a probe waiting."""

    daemon_threads = True
    block_on_close = False

    def server_bind(self) -> None:
        """As the base class, which would ask the name service for our own name, and perhaps wait for it."""
        socketserver.TCPServer.server_bind(self)
        self.server_name, self.server_port = str(self.server_address[0]), self.server_address[1]
        self.setup_environ()


class _Server6(_Server):
    """The same on IPv6."""

    address_family = socket.AF_INET6


class _Handler(WSGIRequestHandler):
    """Gives up on a peer that does not speak, and logs nothing: probes come every few seconds."""

    timeout = 10.0

    def log_message(self, format: str, *args: Any) -> None:  # noqa: A002 - the name is the base class's
        """Say nothing."""

    def log_error(self, format: str, *args: Any) -> None:  # noqa: A002 - the same
        """Say nothing."""
