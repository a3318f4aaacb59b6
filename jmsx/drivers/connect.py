"""Open a socket to a broker, in the clear or under TLS."""

from __future__ import annotations

import ssl
from typing import TYPE_CHECKING, TypeGuard

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress, BrokerUri
from jmsx.drivers.tcp import TcpStream
from jmsx.drivers.tls import ENDED, TlsStream, explain, make_context
from jmsx.drivers.transport import Stream
from jmsx.errors import TlsError

if TYPE_CHECKING:
    from collections.abc import Callable


def connect(
    address: BrokerAddress,
    options: ConnectionOptions,
    silent: Callable[[], bool] = lambda: False,
    awaited: Callable[[], bool] = lambda: False,
    given_up: Callable[[], bool] = lambda: False,
) -> Stream:
    """
    Return a connection to `address`; TCP and TLS together may take `connect_timeout`; the search for its name is extra.

    `silent()` tells whether the broker has sent nothing for so long that a write which waits for it is of no use,
    `awaited()` whether it has yet to answer something.

    Raises OSError where the broker is not reached, hangs up or says nothing, TlsError where TLS could not be agreed on
    or it does not speak TLS, and ConfigurationError for files that cannot be used.
    """
    context = make_context(options.tls) if address.tls else None
    limit = options.connect_timeout
    try:
        tcp = TcpStream(
            (address.host, address.port),
            connect_timeout=limit,
            write_timeout=options.request_timeout,
            silent=silent,
            awaited=awaited,
            given_up=given_up,
        )
    except UnicodeError:  # from the encoding of host names, which no OSError tells
        raise OSError(f"{address.host!r} cannot be a host name") from None
    if context is None:
        return tcp
    try:
        tls = TlsStream(tcp, context, options.tls.server_name or address.host)
        tls.handshake(tcp.let_in_by)
    except BaseException as error:
        tcp.close()
        if _hung_up(error):  # as in the clear: the broker may only be stopping, or be started
            raise ConnectionError(_explain(error, limit)) from error
        if isinstance(error, OSError | ValueError):  # ValueError: of the name
            raise TlsError(_explain(error, limit)) from error
        raise
    return tls


def check_tls(uri: BrokerUri) -> None:
    """Raise ConfigurationError if a broker of `uri` wants TLS and the files for it cannot be used."""
    if any(address.tls for address in uri.addresses):
        make_context(uri.options.tls)


def _hung_up(error: BaseException) -> TypeGuard[OSError]:
    """Return whether the handshake was cut off, or timed out, without a word of TLS about the reason."""
    silent = not isinstance(error, ssl.SSLError) or isinstance(error, ENDED)
    return isinstance(error, OSError) and silent


def _explain(error: Exception, limit: float | None) -> str:
    hint = "is it a port without TLS, which is written stomp://?"
    if isinstance(error, TimeoutError):
        within = "in time" if limit is None else f"in {limit:g} s"
        return f"it did not agree on TLS {within}; {hint}"
    if isinstance(error, ssl.SSLError) and not isinstance(error, ENDED):
        return explain(error)
    if isinstance(error, OSError):
        return f"it ended the TLS handshake ({error.strerror or error}); {hint}"
    return f"its name cannot be asked for in TLS: {error}"
