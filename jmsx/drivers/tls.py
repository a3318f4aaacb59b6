"""
TLS over a TcpStream, with the socket left blocking.

stomp.py's own TLS does not notice the end of a connection, locks itself up when the reading thread writes, and closes
the socket from another thread than reads it. Here OpenSSL works in memory: the socket is read without any lock, so
neither a blocked write nor another thread's wait holds up reading, and an end is seen when TCP sees it.
"""

from __future__ import annotations

import contextlib
import ssl
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx.config.options import TlsOptions
from jmsx.drivers.locks import mutex
from jmsx.drivers.tcp import CHUNK, TcpStream
from jmsx.errors import ConfigurationError, TlsError

if TYPE_CHECKING:
    from os import PathLike


#: Bytes encrypted at once, so that a large body is not held twice.
_PIECE: Final = 256 * 1024

#: Python's errors for TLS that the peer ended without a word: 3.11.2 raises the second where later ones raise the
#: first.
ENDED: Final = (ssl.SSLEOFError, ssl.SSLZeroReturnError)

#: Reasons for which a first answer is no TLS; later ones mean a record that somebody has broken.
_NOT_TLS: Final = (
    "WRONG_VERSION_NUMBER",
    "HTTP_REQUEST",
    "HTTPS_PROXY_REQUEST",  # how OpenSSL reads CONNECTED
    "UNKNOWN_PROTOCOL",
    "RECORD_LAYER",
)
_WANTS_CERTIFICATE: Final = (
    "CERTIFICATE_REQUIRED",
    "BAD_CERTIFICATE",
    "HANDSHAKE_FAILURE",
    "UNKNOWN_CA",
    "CERTIFICATE_UNKNOWN",
    "CERTIFICATE_EXPIRED",
    "ACCESS_DENIED",
)

# OpenSSL's numbers of what is wrong with a certificate (x509_vfy.h).
_EXPIRED: Final = (10,)
_NOT_YET: Final = (9,)
_UNTRUSTED: Final = (2, 18, 19, 20, 21)
_OTHER_NAME: Final = (62, 64)


class TlsStream:
    """TLS on `tcp`; one thread reads while another writes."""

    def __init__(self, tcp: TcpStream, context: ssl.SSLContext, server_name: str) -> None:
        self._tcp = tcp
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_hostname=server_name)
        self._state = mutex()  #: OpenSSL's, held for its work in memory only
        self._fault: TlsError | None = None  #: what ended reading
        #: The data of the last write, and of the last one that was completed
        self._begun = self._written = b""
        self._order = mutex()  #: records go out in the order in which they were made

    def handshake(self, deadline: float) -> None:
        """Agree on keys before `deadline` (seconds, monotonic); raises OSError, ssl.SSLError too."""
        while True:
            try:
                self._tls.do_handshake()
            except ssl.SSLWantReadError:
                self._tcp.write(self._outgoing.read(), deadline)
                self._take_in(self._tcp.read_before(deadline))
            except ssl.SSLError:
                with contextlib.suppress(OSError):  # the alert, which tells the broker why
                    self._tcp.write(self._outgoing.read(), deadline)
                raise
            else:
                self._tcp.write(self._outgoing.read(), deadline)
                return

    def read(self) -> bytes:
        """Return what has come, at least one byte; b"" at the end; raises OSError, or TlsError."""
        while True:
            with self._state:
                data = self._decrypted()
            if data is not None:
                return data
            received = self._tcp.read()
            with self._state:
                self._take_in(received)

    def unread(self) -> bool:
        """Return whether bytes have come that are not read; never waits."""
        return self._tcp.unread()

    @property
    def let_in_by(self) -> float:
        """When the broker must have answered CONNECT (seconds, monotonic)."""
        return self._tcp.let_in_by

    @property
    def taken(self) -> bool:
        """Whether the reader has, or is about to have, bytes that it has not passed on; as `TcpStream.taken`."""
        return self._tcp.taken

    @property
    def patience(self) -> float:
        """Seconds without a byte taken after which the present write ends; as `TcpStream.patience`."""
        return self._tcp.patience

    @patience.setter
    def patience(self, seconds: float) -> None:
        self._tcp.patience = seconds

    def send(self, data: bytes) -> None:
        """Write as `TcpStream.write` does."""
        with self._order:
            self._begun = data
            self._send_pieces(memoryview(data))
            self._written = data

    def _send_pieces(self, left: memoryview) -> None:
        while left:
            with self._state:
                left = left[self._tls.write(left[:_PIECE]) :]
                records = self._outgoing.read()
            self._tcp.write(records)

    def written(self, data: bytes) -> int:
        """Return how many bytes of `data` the last write, perhaps interrupted, wrote; 1 stands for a part."""
        if self._written is data:
            return len(data)
        return int(self._begun is data)

    def shutdown(self) -> None:
        """End reading and writing at once, also where another thread waits in them."""
        self._tcp.shutdown()

    def close(self) -> None:
        """Give the descriptor back."""
        self._tcp.close()

    def _take_in(self, received: bytes) -> None:
        if received:
            self._incoming.write(received)
        else:
            self._incoming.write_eof()

    def _decrypted(self) -> bytes | None:
        """Return all that can be read now; b"" at the end; None if more bytes must come first."""
        if self._fault is not None:
            raise self._fault
        parts = []
        try:
            while part := self._tls.read(CHUNK):
                parts.append(part)
        except ssl.SSLWantReadError:
            return b"".join(parts) or None
        except ENDED:
            pass  # a killed broker says no DISCONNECT; STOMP's frames show what is whole
        except ssl.SSLError as error:
            self._fault = TlsError(explain(error, agreed=True))
            self._fault.__cause__ = error
            if not parts:  # else return them first; OpenSSL would not raise this again
                raise self._fault from error
        return b"".join(parts)


def make_context(options: TlsOptions) -> ssl.SSLContext:
    """
    Return a TLS context of what is trusted and our certificate, read from the files now, as they may have been renewed.

    Raises ConfigurationError if a file is missing or no PEM, or the password of the key is wrong.
    """
    authority = _existing(options.ca_file, "ca_file")
    certificate = _existing(options.certificate_file, "certificate_file")
    key = _existing(options.key_file, "key_file")
    try:
        context = ssl.create_default_context(cafile=authority)
    except (ssl.SSLError, OSError) as error:
        raise _unreadable("ca_file", authority, error) from None
    context.options |= ssl.OP_NO_RENEGOTIATION
    context.check_hostname = options.verify_hostname
    if certificate is not None:
        try:
            context.load_cert_chain(certificate, key, password=lambda: _password(options))
        except (ssl.SSLError, OSError, ValueError) as error:
            raise _unreadable("certificate_file or key_file", certificate, error) from None
    return context


def explain(error: ssl.SSLError, *, agreed: bool = False) -> str:
    """Return what is wrong, and what to do about it, in words; `agreed`: after the handshake."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return f"its certificate is refused: {error.verify_message}; {_advice(error.verify_code)}"
    reason = error.reason or ""
    if not agreed and any(word in reason for word in _NOT_TLS):
        return "it does not speak TLS; a port without TLS is written stomp://"
    if any(word in reason for word in _WANTS_CERTIFICATE):
        return (
            f"the broker refuses us ({reason}): it wants a client certificate that it trusts and that has not expired;"
            " name one with certificate_file and key_file"
        )
    return f"TLS failed: {reason or error}"


def _advice(code: int) -> str:
    if code in _UNTRUSTED:
        return "name the file of the authority that signed it with ca_file"
    if code in _OTHER_NAME:
        return "connect by a name that is in it, or say with server_name which one to expect"
    if code in _EXPIRED:
        return "the broker needs a new one (or this machine's clock is wrong)"
    if code in _NOT_YET:
        return "this machine's clock is wrong, or the broker's was"
    return "the broker needs another one"


def _existing(file: str | PathLike[str] | None, option: str) -> str | None:
    if file is not None and not Path(file).is_file():
        raise ConfigurationError(f"{option}: there is no file {file}")
    return None if file is None else str(file)


def _password(options: TlsOptions) -> str:
    """Return the password of an encrypted key to OpenSSL, which would else ask for it at the terminal."""
    if options.key_password is None:
        raise ConfigurationError("the client's key is encrypted: give its key_password")
    return options.key_password


def _unreadable(option: str, file: str | None, error: Exception) -> ConfigurationError:
    if getattr(error, "reason", None) == "KEY_VALUES_MISMATCH":
        return ConfigurationError(
            f"certificate_file {file} and key_file do not belong together; who renews them has to replace both"
        )
    text = (
        getattr(error, "reason", None) or getattr(error, "strerror", None) or type(error).__name__
    )
    return ConfigurationError(
        f"{option}: {file} cannot be used: {text}. It has to be PEM (a Java key store is turned into PEM by keytool"
        " -importkeystore -deststoretype PKCS12, then openssl pkcs12), and a key_password has to fit."
    )
