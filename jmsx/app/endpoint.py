"""
The HTTP endpoint for health probes and metrics: `/healthz`, `/readyz`, and `/metrics` if an observer provides it.

It is a WSGI application, so that a program with a web server of its own can mount `App.wsgi` there instead.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

from jmsx.app.health import HealthReport
from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Self
    from wsgiref.types import StartResponse, WSGIApplication, WSGIEnvironment


_ADDRESS: Final = re.compile(r"(?:(?P<host>[^:\[\]]*|\[[0-9A-Fa-f:.]+\]):)?(?P<port>\d{1,5})")


def application(
    probes: Mapping[str, Callable[[], HealthReport]], metrics: WSGIApplication | None
) -> WSGIApplication:
    """Return the WSGI application that answers `probes` by their paths, and `/metrics` if there are metrics."""

    def respond(environ: WSGIEnvironment, start: StartResponse) -> Iterable[bytes]:
        path = environ.get("PATH_INFO", "").rstrip("/")
        if path == "/metrics" and metrics is not None:
            return metrics(environ, start)
        if environ.get("REQUEST_METHOD") not in ("GET", "HEAD"):
            return _answer(start, "405 Method Not Allowed", {"status": "only GET and HEAD"})
        if path not in probes:
            known = [*probes, "/metrics"] if metrics is not None else list(probes)
            return _answer(start, "404 Not Found", {"status": "unknown path", "paths": known})
        report = probes[path]()
        return _answer(start, "200 OK" if report.ok else "503 Service Unavailable", report.body)

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
    """A web server for `app` at `address` (HOST:PORT, or PORT for all addresses of the machine), after `begin()`."""

    def __init__(self, address: str, app: WSGIApplication) -> None:
        self._address, self._app = address, app
        self._close: Callable[[], object] = lambda: None  #: closes the server, if there is one
        self.port = 0  #: set by `begin()`
        self.url = ""  #: set by `begin()`

    def begin(self) -> Self:
        """Begin to serve, and return self; raises ConfigurationError if the address makes no sense or is in use."""
        from jmsx.drivers.web import WebServer  # noqa: PLC0415 - 20 ms of http.server, for those who serve

        host, port = parse_address(self._address)
        try:
            server = WebServer(host, port, self._app, name="jmsx-health")
            self._close = server.close
            server.begin()
        except OSError as error:
            raise ConfigurationError(
                f"cannot serve health at {self._address}: {error}; name a free port of this machine, such as 8081"
            ) from error
        self.port, self.url = server.port, server.url
        return self

    def close(self) -> None:
        """Stop serving, and give the port back; idempotent."""
        self._close()


def parse_address(text: str) -> tuple[str, int]:
    """Return (host, port) of HOST:PORT, [IPV6]:PORT, :PORT or PORT; raises ConfigurationError."""
    found = _ADDRESS.fullmatch(text.strip())
    if found is None or int(found["port"]) > 65_535:  # noqa: PLR2004 - the greatest port
        raise ConfigurationError(f"{text!r} is not an address to serve at; write HOST:PORT or PORT")
    return (found["host"] or "").strip("[]"), int(found["port"])
