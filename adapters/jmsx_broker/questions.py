"""Ask a broker for its counts of a queue, or what lies in it; its kind is read from its greeting."""

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
    """Return the URL of each broker of one as an App has it, and whom to trust where that speaks TLS."""
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
    Return all messages that lie in `queue`, oldest first. None is taken or changed.

    Those in flight at a consumer are among them on Classic, and are not on Artemis. Neither broker shows a deep queue
    whole in every case, and they do not say so. Therefore its own count is asked before and after, and
    ResourceAllocationError is raised when messages are missing. Also the errors of `queue_statistics`.
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
    """Return the one who knows how to ask this broker."""
    return ArtemisWitness(wire) if wire.is_artemis else ClassicWitness(wire)
