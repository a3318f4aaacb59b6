"""
The name of a temporary queue for others.

`/temp-queue/x` means something on the socket of the session that made it only; on another it would silently be a queue
that nobody reads. The broker tells its real name where it shows a reply-to to others, so that is how we ask. With each
link of its session it is another queue: a reply to the name that was told on an older one is refused by the broker.
Source: `LegacyFrameTranslator.java:154-221`; jmsx_classic/BROKER.md C63.
"""

from __future__ import annotations

import uuid

from jmsx.core.destination_names import is_composite, parts
from jmsx.errors import InvalidDestinationError
from jmsx.jms.destination import Destination, Temporary
from jmsx.jms.link import SessionLink


def reachable(given: Destination, link: SessionLink) -> Destination:
    """Return `given` as it can be named on `link`; raises InvalidDestinationError if it is gone, or nobody made it."""
    if not isinstance(given, Temporary):
        _check_made(given.address.kind, given.name, given.uri, link)
        return given
    given.check()
    if given.owner is link:
        return given
    if link.dialect.global_temporaries:
        return given
    epoch = 0 if given.owner is None else given.owner.epoch
    if given.public is None or given.public_epoch != epoch:
        given.public, given.public_epoch = _ask(given, link), epoch
    return given.public


def check_parts(given: Destination, link: SessionLink) -> None:
    """Raise InvalidDestinationError if `given` lists a temporary queue or topic that nobody made."""
    if is_composite(given.uri):
        for kind, name in parts(given.uri):
            _check_made(kind, name, given.uri, link)


def _check_made(kind: str, name: str, uri: str, link: SessionLink) -> None:
    """
    Refuse what only looks like a temporary destination, and would be one that nobody reads.

    Where each connection has names of its own, the name that another one's has is `remote-temp-queue://ID:…`, and the
    broker refuses that if it is gone. Where there is one name for all, the management knows whether it is there.
    """
    temporary = kind in ("temp-queue", "temp-topic")
    if not temporary or link.dialect.global_temporaries or name.startswith(f"{link.session_id}-"):
        return
    raise InvalidDestinationError(
        f"{uri} would be a {kind.removeprefix('temp-')} that nobody reads: at this broker a temporary destination has"
        " another name on each connection. Send to message.reply_to, to what session.create_temporary_queue() returned,"
        " or to a queue with a name"
    )


def _ask(queue: Temporary, link: SessionLink) -> Destination:
    owner = queue.owner
    if owner is None:
        raise InvalidDestinationError(
            f"{queue} was made by no session; session.create_temporary_queue() makes one"
        )
    dialect, name = link.dialect, link.next_subscription_id()
    meeting = f"queue://jmsx.temporary.{uuid.uuid4().hex}"
    headers = {**dialect.writing.send_headers(meeting), "ack": "auto"}
    link.calls.ask(
        f"SUBSCRIBE {meeting}",
        lambda core, _now: core.browsers.open(name, meeting, headers),
        repeat=True,
    )
    try:
        owner.tell_name(queue, meeting)
        delivery = link.calls.look(name, meeting)
    finally:
        link.calls.finish(lambda core, _now: core.browsers.close(name, meeting))
    told = None if delivery is None else dialect.reading.addresses(delivery.headers).reply_to
    if told is None:
        raise InvalidDestinationError(
            f"the broker does not tell the name of {queue}; use it in its own session, or a queue with a name"
        )
    return Destination.told(told)
