"""Ask a broker for its counts of a queue, or for the queue's messages; CONNECTED tells the kind of broker."""

from __future__ import annotations

from urllib.parse import quote

from jmsx.config.options import TlsOptions
from jmsx.config.uri import parse_broker_uri
from jmsx.errors import ResourceAllocationError
from jmsx_broker.artemis_witness import ArtemisWitness
from jmsx_broker.classic_witness import ClassicWitness
from jmsx_broker.statistics import BrowsedMessage, QueueStatistics, queue_name
from jmsx_broker.wire import Wire


def plain_urls(url: str) -> list[tuple[str, TlsOptions | None]]:
    """Return, for each broker in the URL of an App, a plain URL, and the TLS options if it is reached by TLS."""
    uri = parse_broker_uri(url)
    name, password = uri.options.username, uri.options.password
    user = "" if name is None else f"{quote(name, safe='')}:{quote(password or '', safe='')}@"
    return [
        (f"stomp://{user}{address}", uri.options.tls if address.tls else None)
        for address in uri.addresses
    ]


def queue_statistics(url: str, queue: str, *, tls: TlsOptions | None = None) -> QueueStatistics:
    """
    Ask the broker at `url` for its counts of `queue` (a name, or queue://name); over TLS, if that is given.

    Raises UnsupportedError when a Classic has no statistics plugin, BrokerError when an Artemis does not let this user
    manage it, and the errors of `Wire`.
    """
    name = queue_name(queue)
    with Wire(url, tls=tls) as wire:
        return _witness(wire).count(name)


def browse_queue(url: str, queue: str) -> list[BrowsedMessage]:
    """
    Return all messages in `queue`, oldest first. None is consumed or changed.

    Classic includes messages in flight at a consumer, Artemis does not. Either broker may show only part of a deep
    queue without saying so. Therefore the broker's count is asked for before and after, and ResourceAllocationError is
    raised if messages are missing. Also raises the errors of `queue_statistics`.
    """
    name = queue_name(queue)
    with Wire(url) as wire:
        witness = _witness(wire)
        before = witness.count(name)
        messages = witness.browse(name) if before.exists else []
        least = min(witness.visible(before), witness.visible(witness.count(name)))
    if len(messages) < least:
        raise ResourceAllocationError(
            f"{wire.broker} showed only {len(messages)} of at least {least} messages in {name}:"
            f" {witness.remedy}"
        )
    return messages


def _witness(wire: Wire) -> ClassicWitness | ArtemisWitness:
    """Return the witness for this kind of broker."""
    return ArtemisWitness(wire) if wire.is_artemis else ClassicWitness(wire)
