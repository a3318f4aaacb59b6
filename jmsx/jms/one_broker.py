"""A connection to one broker of the several that a URL may name, for questions about just that broker."""

from __future__ import annotations

from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.jms.connection import Connection
from jmsx.observe import Observer

if TYPE_CHECKING:
    from collections.abc import Iterable


def connect_to(
    address: BrokerAddress,
    options: ConnectionOptions,
    observers: Iterable[Observer] = (),
    **own: Any,
) -> Connection:
    """
    Return a connection to the broker at `address` and no other, which does not reconnect.

    `options` apply to it, except for the client id and the ledger, which belong to the application's own connection;
    keyword arguments `own` override them.
    """
    plain = replace(options, **{"reconnect": None, "client_id": None, "ledger": None, **own})
    given = {one.name: getattr(plain, one.name) for one in fields(plain)}
    scheme = "stomp+ssl" if address.tls else "stomp"
    return Connection(f"{scheme}://{address}", observers=observers, **given)
