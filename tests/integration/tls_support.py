"""Certificates of every kind, and a TLS server that does as a test says."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
import ssl
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Self

import trustme
from cryptography.hazmat.primitives import serialization

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

HOST = "127.0.0.1"
CONNECTED = b"CONNECTED\nversion:1.2\nserver:ActiveMQ/6.1.8\nheart-beat:0,0\n\n\0"


@dataclass(frozen=True)
class Authority:
    """A certificate authority whose files lie in `folder`."""

    ca: trustme.CA
    folder: Path

    @classmethod
    def in_folder(cls, folder: Path) -> Authority:
        """A new one."""
        authority = cls(trustme.CA(), folder)
        authority.ca.cert_pem.write_to_path(authority.file)
        return authority

    @property
    def file(self) -> str:
        """Its own certificate."""
        return str(self.folder / "ca.pem")

    def certificate(self, *names: str, expired: bool = False) -> trustme.LeafCert:
        """A certificate for these hosts."""
        day = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)
        return self.ca.issue_cert(*names, not_after=day if expired else None)

    def client(self, password: str | None = None) -> tuple[str, str]:
        """The files of a client's certificate and of its key, encrypted if there is a password."""
        leaf = self.ca.issue_cert("client.example")
        certificate, key = self.folder / "client.pem", self.folder / "client.key"
        certificate.write_bytes(b"".join(blob.bytes() for blob in leaf.cert_chain_pems))
        pem = leaf.private_key_pem.bytes()
        if password is not None:
            private = serialization.load_pem_private_key(pem, None)
            pem = private.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.BestAvailableEncryption(password.encode()),
            )
        key.write_bytes(pem)
        return str(certificate), str(key)


class TlsServer:
    """
    Serves one client after the other by `script`, with this certificate.

    The socket is closed when the script returns. `clients`: whose certificates the clients need.
    """

    def __init__(
        self,
        certificate: trustme.LeafCert,
        script: Callable[[ssl.SSLSocket], None],
        *,
        clients: Authority | None = None,
        version: ssl.TLSVersion | None = None,
    ) -> None:
        self._context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        certificate.configure_cert(self._context)
        if clients is not None:
            clients.ca.configure_trust(self._context)
            self._context.verify_mode = ssl.CERT_REQUIRED
        if version is not None:
            self._context.maximum_version = version
        self.asked_for: list[str | None] = []  #: the names that clients asked for (SNI)
        self._context.sni_callback = lambda _tls, name, _context: self.asked_for.append(name)
        self._script = script
        self._server = socket.create_server((HOST, 0))
        self.port: int = self._server.getsockname()[1]
        self.url = f"stomp+ssl://{HOST}:{self.port}"
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        with contextlib.suppress(OSError):
            self._server.shutdown(socket.SHUT_RDWR)
        self._server.close()
        self._thread.join(10)
        assert not self._thread.is_alive()

    def _run(self) -> None:
        while True:
            try:
                client, _ = self._server.accept()
            except OSError:
                return
            client.settimeout(10)
            with client, contextlib.suppress(OSError):
                tls = self._context.wrap_socket(client, server_side=True)
                with tls:
                    self._script(tls)


def greet(client: ssl.SSLSocket) -> None:
    """Say CONNECTED, answer every receipt that is asked for, until the client goes."""
    while data := client.recv(65536):
        if data.startswith(b"CONNECT\n"):
            client.sendall(CONNECTED)
        for part in data.split(b"\nreceipt:")[1:]:
            receipt = part.partition(b"\n")[0]
            client.sendall(b"RECEIPT\nreceipt-id:" + receipt + b"\n\n\0")
        if b"DISCONNECT" in data:
            return
