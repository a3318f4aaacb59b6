"""A connection to one broker of several, for questions about just that one."""

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
    Return a connection to the broker at `address` and no other, that is lost when its link is.

    All of `options` hold, save its `own`, and what belongs to an application's consumers: its client id and its ledger.
    """
    plain = replace(options, **{"reconnect": None, "client_id": None, "ledger": None, **own})
    given = {one.name: getattr(plain, one.name) for one in fields(plain)}
    scheme = "stomp+ssl" if address.tls else "stomp"
    return Connection(f"{scheme}://{address}", observers=observers, **given)
