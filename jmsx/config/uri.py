"""
Broker URIs, with options as Java users write them.

``failover:(stomp://a:61613,stomp+ssl://b:61614)?jms.optimizeAcknowledge=true&jms.redeliveryPolicy.maximumRedeliveries=4``.
Times in options are milliseconds, as in Java; an unknown option is an error that names the nearest known one.

A URI may contain passwords, and a mistake in it may put one where something else is expected. So errors repeat nothing
of it except a scheme, a host of a URI without a user, and the names of options.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from typing import Final
from urllib.parse import unquote

from jmsx.config.options import ConnectionOptions, ReconnectPolicy, TlsOptions
from jmsx.config.query import PERCENT, apply_query, check_agreement
from jmsx.core.option_checks import kind_of
from jmsx.errors import ConfigurationError

#: The ports if a URI names none: those in the brokers' manuals.
DEFAULT_PORT: Final = 61613
DEFAULT_TLS_PORT: Final = 61612

#: The schemes of a URI, and whether they mean TLS; schemes of Java's transports are accepted, too.
_SCHEMES: Final = {
    "stomp": False,
    "stomp+nio": False,
    "tcp": False,
    "nio": False,
    "stomp+ssl": True,
    "stomp+nio+ssl": True,
    "ssl": True,
    "nio+ssl": True,
}

_SCHEME: Final = re.compile(r"[a-z][a-z0-9+.-]{0,30}", re.IGNORECASE)
_HOST_PORT: Final = re.compile(
    r"(?:\[([0-9a-f:.]+(?:%[\w.-]+)?)\]|([^][:/?#@\s]+))(?::([0-9]{1,5}))?/?", re.IGNORECASE
)


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """The address at which one broker listens."""

    host: str
    port: int
    tls: bool = False

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerUri:
    """A parsed broker URI: the addresses of the brokers, in order, and the options."""

    addresses: tuple[BrokerAddress, ...]
    options: ConnectionOptions

    def __str__(self) -> str:
        return ",".join(str(address) for address in self.addresses)


def parse_broker_uri(text: str, options: ConnectionOptions | None = None) -> BrokerUri:
    """
    Return the brokers and options of a URI; options in the URI win over `options`.

    Raises ConfigurationError, which says what is wrong.
    """
    if not isinstance(text, str):
        raise ConfigurationError(f"a broker URI must be a str, not {kind_of(text)}")
    options = options or ConnectionOptions()
    parts, query, failover = _parts(text.strip())
    if failover:
        options = replace(options, reconnect=options.reconnect or ReconnectPolicy())
    show = "@" not in text
    brokers = [_broker(bare, show=show) for bare, _ in parts]
    if not brokers:
        raise ConfigurationError("there is no broker in the URI; write stomp://HOST:PORT")
    users = {user for _, user in brokers if user is not None}
    if len(users) > 1:
        raise ConfigurationError(
            "the brokers of one URI have different users or passwords, and a connection has one: write it at one of"
            " them, or at none and give username= and password="
        )
    for username, password in users:
        options = replace(options, username=username)
        options = options if password is None else replace(options, password=password)
    check_agreement(
        [
            (own_query, address.tls)
            for (_, own_query), (address, _) in zip(parts, brokers, strict=True)
        ],
        query,
    )
    for _, own_query in parts:
        options = apply_query(own_query, options, failover=False)
    options = apply_query(query, options, failover=failover)
    addresses = tuple(address for address, _ in brokers)
    if options.tls != TlsOptions() and not any(address.tls for address in addresses):
        raise ConfigurationError(
            "TLS options are of no use without TLS; write stomp+ssl://HOST:PORT"
        )
    return BrokerUri(addresses, options)


def _parts(uri: str) -> tuple[list[tuple[str, str]], str, bool]:
    """Return each broker with its own query, the query of all, and whether that is failover's."""
    if not uri.startswith("failover:"):
        bare, _, query = uri.partition("?")
        return [(bare, "")], query, False
    brokers, query = _failover_parts(uri.removeprefix("failover:").removeprefix("//"))
    parts = [part.strip().partition("?") for part in brokers.split(",") if part.strip()]
    return [(bare, query) for bare, _, query in parts], query, True


def _failover_parts(text: str) -> tuple[str, str]:
    """Return the brokers and the query of `(a,b)?query` or `a,b?query`."""
    if not text.startswith("("):
        brokers, _, query = text.partition("?")
        return brokers, query
    brokers, closed, rest = text[1:].partition(")")
    if not closed:
        raise ConfigurationError("failover:( lacks its closing parenthesis")
    if rest and not rest.startswith("?"):
        raise ConfigurationError(f"after failover:(…) only ?options may follow; {PERCENT}")
    return brokers, rest.removeprefix("?")


def _broker(text: str, *, show: bool) -> tuple[BrokerAddress, tuple[str, str | None] | None]:
    """Return the address, and (user, password) if the text has them; only with `show` do errors repeat the host."""
    scheme, separator, rest = text.partition("://")
    if not separator:
        scheme, rest = "stomp", text
    if scheme.lower() not in _SCHEMES:
        name = f"{scheme}://" if _SCHEME.fullmatch(scheme) else "what stands before ://"
        raise ConfigurationError(f"{name} is not a STOMP broker; write stomp:// or stomp+ssl://")
    userinfo, has_user, place = rest.rpartition("@")
    found = _HOST_PORT.fullmatch(place)
    if found is None or not 0 < int(found[3] or DEFAULT_PORT) < 2**16:
        raise ConfigurationError(
            f"{f'{place!r} is' if show else 'there is'} no host with a port from 1 to 65535;"
            f" write stomp://HOST:PORT{'' if show else f'; {PERCENT}'}"
        )
    tls = _SCHEMES[scheme.lower()]
    port = int(found[3] or (DEFAULT_TLS_PORT if tls else DEFAULT_PORT))
    user, has_password, password = userinfo.partition(":")
    given = (unquote(user), unquote(password) if has_password else None)
    host = re.sub("%25(?=.)", "%", found[1]) if found[1] else found[2]  # of a zone; RFC 6874
    return BrokerAddress(host, port, tls), given if has_user else None
