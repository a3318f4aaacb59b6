"""
Throw-away certificates for a broker's TLS: an authority, a server and a client, new for each broker.

They come from trustme, in the package's extra: `pip install 'jmsx[broker]'`.
"""

from __future__ import annotations

import secrets
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, cast

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from pathlib import Path

    import trustme
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePrivateKey

#: Names that a client may use for the broker on this machine.
LOCAL_NAMES: Final = ("localhost", "127.0.0.1", "::1")


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsOptions:
    """How a broker offers STOMP over TLS."""

    names: tuple[str, ...] = LOCAL_NAMES  #: host names and addresses in the server's certificate
    #: Refuse clients without a certificate of our authority.
    require_client_certificate: bool = False


@dataclass(frozen=True, slots=True, kw_only=True)
class Certificates:
    """The files of one broker's TLS. Those for clients are PEM, those for its Java are PKCS #12."""

    authority: Path  #: what a client must trust
    client_certificate: Path  #: signed by the authority, for a broker that requires one
    client_key: Path  #: its private key, without password
    key_store: Path  #: the server's key and certificate
    trust_store: Path  #: the authority alone
    password: str  #: of both stores


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsConnector:
    """The TLS settings for a broker's configuration; paths are relative to its working folder."""

    port: int
    password: str  #: of both stores
    require_client_certificate: bool
    key_store: str = "tls/server.p12"
    trust_store: str = "tls/authority.p12"


def make_certificates(folder: Path, names: tuple[str, ...] = LOCAL_NAMES) -> Certificates:
    """
    Make certificates in `folder`, which is created and which only its owner may read; takes milliseconds.

    Raises ConfigurationError when the library that makes them is not installed.
    """
    try:
        import trustme  # noqa: PLC0415 - the extra may be missing, and only TLS needs it
    except ImportError as error:
        raise ConfigurationError("TLS needs trustme: pip install 'jmsx[broker]'") from error
    authority = trustme.CA(organization_name="jmsx, for tests")
    client = authority.issue_cert("jmsx-client@localhost")
    made = Certificates(
        authority=folder / "authority.pem",
        client_certificate=folder / "client.pem",
        client_key=folder / "client-key.pem",
        key_store=folder / "server.p12",
        trust_store=folder / "authority.p12",
        password=secrets.token_hex(16),
    )
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    authority.cert_pem.write_to_path(str(made.authority))
    client.cert_chain_pems[0].write_to_path(str(made.client_certificate))
    client.private_key_pem.write_to_path(str(made.client_key))
    _write_stores(made, authority, authority.issue_cert(*names))
    return made


def _write_stores(made: Certificates, authority: trustme.CA, server: trustme.LeafCert) -> None:
    """Write the PKCS #12 stores that the broker's Java reads."""
    from cryptography.hazmat.primitives.serialization import (  # noqa: PLC0415 - comes with trustme
        BestAvailableEncryption,
        load_pem_private_key,
        pkcs12,
    )
    from cryptography.x509 import load_pem_x509_certificate  # noqa: PLC0415 - comes with trustme

    closing = BestAvailableEncryption(made.password.encode())
    key = cast(
        "EllipticCurvePrivateKey",  # trustme's default
        load_pem_private_key(server.private_key_pem.bytes(), password=None),
    )
    own, *others = (load_pem_x509_certificate(each.bytes()) for each in server.cert_chain_pems)
    made.key_store.write_bytes(
        pkcs12.serialize_key_and_certificates(b"server", key, own, others, closing)
    )
    trusted = pkcs12.PKCS12Certificate(
        load_pem_x509_certificate(authority.cert_pem.bytes()), b"authority"
    )
    made.trust_store.write_bytes(pkcs12.serialize_java_truststore([trusted], closing))
