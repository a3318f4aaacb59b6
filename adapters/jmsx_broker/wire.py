"""
The smallest STOMP client that can ask a broker a question: one socket, one thread, no state.

It deliberately does not use the jmsx driver: code that checks the library's work must not share its faults.
"""

from __future__ import annotations

import contextlib
import socket
import ssl
from typing import Final, Self
from urllib.parse import unquote, urlsplit

from jmsx.config.options import TlsOptions
from jmsx.core.frames import Frame, parse_headers
from jmsx.core.headers import INT, whole
from jmsx.drivers.tls import explain, make_context
from jmsx.errors import (
    BrokerError,
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    ProtocolError,
)

#: The port of a STOMP broker whose URL names none.
_STOMP_PORT: Final = 61613

#: Seconds that Artemis is given to close the socket after an ERROR.
_YIELD: Final = 1.0


class Wire:
    """
    A connection to the broker at `url` (stomp://user:password@host:port); a context manager.

    Every wait is at most `timeout` seconds long, then BrokerTimeoutError is raised. ConnectionFailedError means that
    the broker is not there or hung up, BrokerError carries the text of an ERROR frame. `tls` is for a TLS port.
    """

    def __init__(self, url: str, *, timeout: float = 10.0, tls: TlsOptions | None = None) -> None:
        self.url = url
        self._timeout = timeout
        self.server = ""  #: as it calls itself in CONNECTED
        self._condemned = False  #: the broker has said ERROR
        address, headers = _parse(url)
        self.broker = f"{address[0]}:{address[1]}"  #: for errors, which must not show a password
        try:
            self._socket = socket.create_connection(address, timeout=timeout)
            if tls is not None:
                self._socket = _secured(self._socket, tls, address[0])
        except ssl.SSLError as error:
            raise ConnectionFailedError(f"no TLS with {self.broker}: {explain(error)}") from error
        except OSError as error:
            raise ConnectionFailedError(f"no broker answers at {self.broker}: {error}") from error
        self._reader = self._socket.makefile("rb")
        try:
            self.send(Frame("CONNECT", headers))
            self.server = self.receive("CONNECTED").headers.get("server", "")
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    @property
    def is_artemis(self) -> bool:
        """Whether the broker greeted as ActiveMQ Artemis."""
        return self.server.startswith("ActiveMQ-Artemis")

    def send(self, frame: Frame) -> None:
        """Write one frame and do not wait."""
        try:
            self._socket.sendall(frame.encode())
        except OSError as error:
            raise self._lost(error) from error

    def request(self, frame: Frame) -> None:
        """Write one frame and wait until the broker has done it; frames before its RECEIPT are dropped."""
        self.send(Frame(frame.command, {**frame.headers, "receipt": "done"}, frame.body))
        self.receive("RECEIPT")

    def receive(self, command: str) -> Frame:
        """Return the next frame called `command`; others are dropped, ERROR is raised as BrokerError."""
        while True:
            frame = self._read()
            if frame.command == "ERROR":
                self._condemned = True
                text = frame.headers.get("message") or frame.body.decode("utf-8", "replace")
                raise BrokerError(f"{self.broker} answered: {text}")
            if frame.command == command:
                return frame

    def close(self) -> None:
        """Close the connection; after an ERROR wait until Artemis closes first, or its threads may deadlock."""
        if self._condemned and self.is_artemis:
            self._socket.settimeout(_YIELD)
            with contextlib.suppress(OSError):
                while self._reader.read1():
                    pass
        self._reader.close()
        self._socket.close()

    def _read(self) -> Frame:
        """Return the next frame, whatever it is."""
        try:
            command = self._line()
            while not command:  # heart-beats and line ends between frames
                command = self._line()
            lines = []
            while line := self._line():
                lines.append(line)
            headers = parse_headers(b"\n".join(lines), escaped=command != b"CONNECTED")
            return Frame(command.decode("utf-8", "replace"), headers, self._body(headers))
        except TimeoutError as error:
            raise BrokerTimeoutError(f"{self.broker} said nothing for {self._timeout} s") from error
        except OSError as error:
            raise self._lost(error) from error

    def _line(self) -> bytes:
        """Return one line of a frame's head, without its end."""
        line = self._reader.readline()
        if not line.endswith(b"\n"):
            raise self._lost("the connection was closed")
        return line.rstrip(b"\r\n")

    def _body(self, headers: dict[str, str]) -> bytes:
        """Return the body that follows `headers`, and its closing NUL."""
        if "content-length" in headers:
            length = whole(headers["content-length"], most=INT)
            if length is None:
                raise ProtocolError(f"{self.broker} sent a content-length that is no number")
            body = self._reader.read(length + 1)
            if len(body) <= length:
                raise self._lost("the connection was closed within a frame")
        else:
            body = self._until_nul()
        if not body.endswith(b"\0"):
            raise ProtocolError(f"{self.broker} sent a frame without its closing NUL")
        return body[:-1]

    def _until_nul(self) -> bytes:
        """Return all bytes up to the next NUL, with it."""
        body = b""
        while not body.endswith(b"\0"):
            ready = self._reader.peek()
            if not ready:
                raise self._lost("the connection was closed within a frame")
            body += self._reader.read(ready.find(b"\0") + 1 or len(ready))
        return body

    def _lost(self, why: object) -> ConnectionFailedError:
        return ConnectionFailedError(f"lost the broker at {self.broker}: {why}")


def _secured(plain: socket.socket, tls: TlsOptions, host: str) -> socket.socket:
    """Return `plain` wrapped in TLS; if that fails, close it and raise."""
    try:
        context = make_context(tls)
        return context.wrap_socket(plain, server_hostname=tls.server_name or host)
    except BaseException:
        plain.close()
        raise


def _parse(url: str) -> tuple[tuple[str, int], dict[str, str]]:
    """Return the address and CONNECT headers of a stomp:// URL; raises ConfigurationError, without it, on any other."""
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:  # its text may hold a password: it must not be raised
        host = port = None
    if not host or parts.scheme not in {"stomp", "tcp"}:
        raise ConfigurationError("the broker's URL is not like stomp://host:61613")
    headers = {"accept-version": "1.2", "host": host}
    if parts.username is not None:
        headers |= {"login": unquote(parts.username), "passcode": unquote(parts.password or "")}
    return (host, _STOMP_PORT if port is None else port), headers
