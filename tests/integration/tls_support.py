"""Certificates of every kind, and a TLS server that does as a test says."""

from __future__ import annotations

import contextlib
import datetime as dt
import ssl
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final, Self

import trustme
from cryptography.hazmat.primitives import serialization

from tests.integration.liar import Client
from tests.integration.listening import HOST, Listener

if TYPE_CHECKING:
    import socket
    from collections.abc import Callable, Iterable
    from pathlib import Path


_LONG_AGO: Final = dt.datetime(2020, 1, 1, tzinfo=dt.UTC)


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
        return self.ca.issue_cert(*names, not_after=_LONG_AGO if expired else None)

    def client(self, password: str | None = None, *, expired: bool = False) -> tuple[str, str]:
        """The files of a client's certificate and of its key, encrypted if there is a password."""
        leaf = self.certificate("client.example", expired=expired)
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
    Serves every client by `script`, each in a thread of its own, with this certificate.

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
        self._listener = Listener(self._meet)
        self.port = self._listener.port
        self.url = f"stomp+ssl://{HOST}:{self.port}"

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._listener.close()

    def _meet(self, client: socket.socket) -> Iterable[Callable[[], None]]:
        client.settimeout(10)
        return (partial(self._serve, client),)

    def _serve(self, client: socket.socket) -> None:
        with (
            client,
            contextlib.suppress(OSError),
            self._context.wrap_socket(client, server_side=True) as tls,
        ):
            self._script(tls)


def greet(client: ssl.SSLSocket) -> None:
    """Answer as a broker does, until the client goes."""
    Client(client).obey()
