"""TLS against a server that does as it is told: whom we trust, who we are, and that nothing hangs."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
import time
from pathlib import Path
from typing import Any

import pytest

from jmsx import Connection, TlsOptions
from jmsx.errors import (
    BrokerTimeoutError,
    ConfigurationError,
    ConnectionFailedError,
    JmsxError,
    TlsError,
)
from tests.integration.broker_support import eventually
from tests.integration.listening import HOST
from tests.integration.proxy import Proxy
from tests.integration.support import Outcome, nothing_left, within
from tests.integration.tls_support import Authority, TlsServer, greet

pytestmark = pytest.mark.timeout(60)


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """The authority that signs for brokers and clients."""
    return Authority.in_folder(tmp_path_factory.mktemp("ca"))


@pytest.fixture(scope="module")
def stranger(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    """Another authority."""
    return Authority.in_folder(tmp_path_factory.mktemp("stranger"))


def attempt(url: str, **options: Any) -> JmsxError | None:
    """The error of connecting there, if there is one."""
    with nothing_left():
        connection = Connection(url, connect_timeout=2.0, **options)
        call = within(10, connection.create_session)
        connection.close()
    assert call.error is None or isinstance(call.error, JmsxError), call.error
    return call.error


# Whom we trust -------------------------------------------------------------------------------------------------------


def test_a_broker_that_we_trust(authority: Authority) -> None:
    """By keyword and by URI, inside failover as well."""
    with TlsServer(authority.certificate(HOST), greet) as server:
        assert attempt(server.url, tls=TlsOptions(ca_file=authority.file)) is None
        assert attempt(f"{server.url}?tls.caFile={authority.file}") is None
        assert attempt(f"failover:({server.url})?tls.caFile={authority.file}") is None
        assert attempt(f"ssl://localhost:{server.port}?tls.caFile={authority.file}") is not None


@pytest.mark.parametrize(
    ("names", "expired", "trusted", "words"),
    [
        ([HOST], False, False, ("unable to get local issuer", "ca_file")),
        (["other.example"], False, True, ("not valid for", "server_name")),
        ([HOST], True, True, ("expired", "a new one")),
    ],
    ids=["unknown authority", "another name", "expired"],
)
def test_a_broker_that_we_do_not_trust(
    authority: Authority, names: list[str], words: tuple[str, ...], *, expired: bool, trusted: bool
) -> None:
    """The error says which broker, what is wrong with its certificate and what to do, and CONNECT is not sent."""
    heard: list[bytes] = []
    certificate = authority.certificate(*names, expired=expired)
    with TlsServer(certificate, lambda client: heard.append(client.recv(9))) as server:
        tls = TlsOptions(ca_file=authority.file if trusted else None)
        error = attempt(server.url, tls=tls, username="u", password="geheim")  # noqa: S106 - no real account has it
    assert isinstance(error, TlsError)
    for word in (f"127.0.0.1:{server.port}", *words):
        assert word in str(error)
    assert heard == []


def test_names_in_the_certificate(authority: Authority) -> None:
    """`server_name` is asked for and expected; without `verify_hostname` any name will do, but not any authority."""
    with TlsServer(authority.certificate("mq.example"), greet) as server:
        tls = TlsOptions(ca_file=authority.file, server_name="mq.example")
        assert attempt(server.url, tls=tls) is None
        assert attempt(f"{server.url}?tls.caFile={authority.file}&tls.verifyHostName=false") is None
        assert isinstance(attempt(f"{server.url}?socket.verifyHostName=false"), TlsError)
        assert server.asked_for[0] == "mq.example"


def test_a_renewed_authority_counts_for_the_next_connection(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """Files are read when a session connects, not when the program starts."""
    file = tmp_path / "ca.pem"
    stranger.ca.cert_pem.write_to_path(str(file))
    with TlsServer(authority.certificate(HOST), greet) as server:
        connection = Connection(server.url, tls=TlsOptions(ca_file=file))
        with pytest.raises(TlsError):
            connection.create_session()
        authority.ca.cert_pem.write_to_path(str(file))
        connection.create_session()
        file.unlink()
        with pytest.raises(TlsError, match="there is no file"):
            connection.create_session()
        connection.close()


def test_two_brokers_with_certificates_of_two_authorities(
    authority: Authority, stranger: Authority, tmp_path: Path
) -> None:
    """One file has both authorities, and one broker after the other is trusted."""
    both = tmp_path / "both.pem"
    both.write_bytes(b"".join(Path(each.file).read_bytes() for each in (authority, stranger)))
    servers = [TlsServer(each.certificate(HOST), greet) for each in (authority, stranger)]
    url = f"failover:({','.join(server.url for server in servers)})?randomize=false"
    for server in servers:
        with server:
            assert attempt(url, tls=TlsOptions(ca_file=both)) is None
            assert server.asked_for


# Who we are ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
def test_a_broker_that_wants_a_certificate(
    authority: Authority, stranger: Authority, version: ssl.TLSVersion
) -> None:
    """Ours lets us in; none, and one of a stranger, is an error that says so, under TLS 1.3 after the handshake."""
    ours, theirs = authority.client(), stranger.client()

    def tls(files: tuple[str, str] | tuple[None, None]) -> TlsOptions:
        return TlsOptions(ca_file=authority.file, certificate_file=files[0], key_file=files[1])

    server = TlsServer(authority.certificate(HOST), greet, clients=authority, version=version)
    with server:
        assert attempt(server.url, tls=tls(ours)) is None
        for files in ((None, None), theirs):
            error = attempt(server.url, tls=tls(files))
            # the alert is lost where the reset that follows it overtakes it
            assert isinstance(error, TlsError | ConnectionFailedError)
            assert "client certificate" in str(error)


def test_a_certificate_and_the_key_of_another_one(authority: Authority, tmp_path: Path) -> None:
    """The error says so, as while both are being renewed, and not that one of them is no PEM."""
    certificate, key = authority.client()
    kept = tmp_path / "old.key"
    kept.write_bytes(Path(key).read_bytes())
    authority.client()
    tls = TlsOptions(ca_file=authority.file, certificate_file=certificate, key_file=kept)
    with pytest.raises(ConfigurationError, match="do not belong together"):
        Connection("stomp+ssl://localhost", tls=tls).create_session()


def test_our_certificate_has_expired(authority: Authority) -> None:
    """The error names that among its causes: the broker does not tell which it is."""
    certificate, key = authority.client(expired=True)
    tls = TlsOptions(ca_file=authority.file, certificate_file=certificate, key_file=key)
    with TlsServer(authority.certificate(HOST), greet, clients=authority) as server:
        error = attempt(server.url, tls=tls)
    assert isinstance(error, TlsError | ConnectionFailedError)
    assert "client certificate" in str(error)
    assert "not expired" in str(error) or isinstance(error, ConnectionFailedError)


def test_an_encrypted_key(authority: Authority) -> None:
    """It opens with its password; without, or with another, there is an error before anything is connected."""
    certificate, key = authority.client("geheim")

    def tls(password: str | None) -> TlsOptions:
        return TlsOptions(
            ca_file=authority.file,
            certificate_file=certificate,
            key_file=key,
            key_password=password,
        )

    with TlsServer(authority.certificate(HOST), greet, clients=authority) as server:
        assert attempt(server.url, tls=tls("geheim")) is None
        with pytest.raises(ConfigurationError, match="is encrypted: give its key_password"):
            Connection(server.url, tls=tls(None))
        with pytest.raises(ConfigurationError, match="key_password has to fit") as caught:
            Connection(server.url, tls=tls("geheimer"))
        assert "geheimer" not in str(caught.value)


@pytest.mark.parametrize("option", ["ca_file", "certificate_file", "key_file"])
def test_files_that_cannot_be_used(authority: Authority, tmp_path: Path, option: str) -> None:
    """A missing one, and one that is no PEM (such as a Java key store), is refused at the door."""
    certificate, key = authority.client()
    files: dict[str, Any] = {
        "ca_file": authority.file,
        "certificate_file": certificate,
        "key_file": key,
    }
    with pytest.raises(ConfigurationError, match=f"{option}: there is no file"):
        Connection("ssl://h", tls=TlsOptions(**{**files, option: "nowhere.pem"}))
    keystore = tmp_path / "client.ks"
    keystore.write_bytes(b"\xfe\xed\xfe\xed\0\0\0\2")
    with pytest.raises(ConfigurationError, match="has to be PEM"):
        Connection("ssl://h", tls=TlsOptions(**{**files, option: str(keystore)}))


# The wrong port ------------------------------------------------------------------------------------------------------


def test_plain_stomp_to_a_port_of_tls(authority: Authority) -> None:
    """The error names the scheme to write."""
    with TlsServer(authority.certificate(HOST), greet) as server:
        error = attempt(server.url.replace("stomp+ssl", "stomp"))
    assert isinstance(error, ConnectionFailedError)
    assert "stomp+ssl://" in str(error)


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (None, ConnectionFailedError),
        (b"ERROR\nmessage:what\n\n\0", TlsError),
        (b"CONNECTED\nversion:1.2\n\n\0", TlsError),
        (b"", ConnectionFailedError),
    ],
)
def test_tls_to_a_plain_port(answer: bytes | None, kind: type[JmsxError]) -> None:
    """Whether it is silent, answers in clear or hangs up: the error comes in time and names the scheme to write."""

    def serve() -> None:
        with contextlib.suppress(OSError), server.accept()[0] as client:
            client.recv(4096)
            if answer is None:
                client.recv(1)
            client.sendall(answer or b"")

    with socket.create_server((HOST, 0)) as server:
        thread = threading.Thread(target=serve)
        thread.start()
        error = attempt(f"ssl://{HOST}:{server.getsockname()[1]}")
        thread.join(5)
    assert isinstance(error, kind)
    assert "stomp://" in str(error)


def test_a_broker_that_hangs_up_in_the_handshake_is_waited_for(authority: Authority) -> None:
    """As it is in the clear: it may be stopping, or have only begun; one that we do not trust is not waited for."""
    with (
        TlsServer(authority.certificate(HOST), greet) as server,
        Proxy(server.url) as proxy,
        nothing_left(),
    ):
        url = f"failover:({proxy.url})?initialReconnectDelay=50"
        connection = Connection(url, tls=TlsOptions(ca_file=authority.file), connect_timeout=2.0)
        with proxy.shut():
            opening = Outcome(connection.create_session)
            assert eventually(lambda: proxy.turned_away > 2)
        assert opening.join(10).error is None
        connection.close()
        doubtful = Connection(url, connect_timeout=2.0)
        assert isinstance(within(10, doubtful.create_session).error, TlsError)


def test_a_handshake_that_drips(authority: Authority) -> None:
    """One byte now and then does not keep us beyond connect_timeout."""

    def drip() -> None:
        with contextlib.suppress(OSError), server.accept()[0] as client:
            for _ in range(100):
                client.sendall(b"\x16")
                time.sleep(0.05)

    with socket.create_server((HOST, 0)) as server, nothing_left():
        thread = threading.Thread(target=drip)
        thread.start()
        connection = Connection(
            f"ssl://{HOST}:{server.getsockname()[1]}?tls.caFile={authority.file}",
            connect_timeout=0.5,
        )
        call = within(3, connection.create_session)
        assert isinstance(call.error, TlsError)
        assert call.seconds < 2.5
        thread.join(10)


def test_tls_and_the_answer_share_the_time(authority: Authority) -> None:
    """Who is slow at the one, and silent then, keeps us no longer than connect_timeout."""

    class Slow(TlsServer):
        def _serve(self, client: socket.socket) -> None:
            time.sleep(1.0)
            super()._serve(client)

    def say_nothing(client: ssl.SSLSocket) -> None:
        while client.recv(1024):
            pass

    with Slow(authority.certificate(HOST), say_nothing) as server, nothing_left():
        trust = TlsOptions(ca_file=authority.file)
        connection = Connection(server.url, tls=trust, connect_timeout=1.5)
        call = within(5, connection.create_session)
        assert isinstance(call.error, BrokerTimeoutError)
        assert 1.4 < call.seconds < 2.2
