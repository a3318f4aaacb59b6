"""A broker's TLS, as a client without jmsx sees it."""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from jmsx_broker import ArtemisBroker, ClassicBroker, TlsOptions

if TYPE_CHECKING:
    from jmsx_broker.local import LocalBroker

pytestmark = pytest.mark.broker

both = pytest.mark.parametrize("kind", [ClassicBroker, ArtemisBroker])

CONNECT = b"CONNECT\naccept-version:1.2\nhost:localhost\n\n\0"


@both
def test_client_that_trusts_the_authority_is_served(
    kind: type[ClassicBroker | ArtemisBroker],
) -> None:
    """By each name of this machine, again after a restart; who does not trust it is not fooled."""
    with kind(tls=True) as broker:
        for name in ("localhost", "127.0.0.1"):
            assert greet(broker, trusting(broker), name).startswith(b"CONNECTED")
        broker.kill()
        broker.start()
        assert greet(broker, trusting(broker), "localhost").startswith(b"CONNECTED")
        with pytest.raises(ssl.SSLCertVerificationError, match="unable to get local issuer"):
            greet(broker, ssl.create_default_context(), "localhost")


@both
def test_required_client_certificate(kind: type[ClassicBroker | ArtemisBroker]) -> None:
    """A client without one is refused, a client with one is served; names are those that were asked for."""
    options = TlsOptions(names=("broker.example",), require_client_certificate=True)
    with kind(tls=options) as broker:
        with pytest.raises((ssl.SSLError, ConnectionResetError)):
            greet(broker, trusting(broker), "broker.example")
        known = trusting(broker)
        files = broker.certificates
        known.load_cert_chain(files.client_certificate, files.client_key)
        assert greet(broker, known, "broker.example").startswith(b"CONNECTED")
        with pytest.raises(ssl.SSLCertVerificationError, match="Hostname mismatch"):
            greet(broker, known, "localhost")


def trusting(broker: LocalBroker) -> ssl.SSLContext:
    """A client's context that trusts the broker's authority, and no other."""
    return ssl.create_default_context(cafile=broker.certificates.authority)


def greet(broker: LocalBroker, context: ssl.SSLContext, name: str) -> bytes:
    """The beginning of the broker's answer to CONNECT."""
    port = urlsplit(broker.tls_url).port
    with (
        socket.create_connection(("127.0.0.1", port or 0), timeout=10) as plain,
        context.wrap_socket(plain, server_hostname=name) as wrapped,
    ):
        wrapped.sendall(CONNECT)
        return wrapped.recv(9)
