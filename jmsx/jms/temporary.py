"""
The name by which other sessions can send to a temporary queue.

`/temp-queue/x` names it only on the socket of the session that created it; on any other socket it would silently be
another queue, which nobody reads. The broker reveals the real name in the reply-to of a message that others receive, so
jmsx sends such a message to learn it. On each link of its session the queue is a new one: the broker refuses a reply to
a name from an older link.
Source: `LegacyFrameTranslator.java:154-221`; jmsx_classic/BROKER.md C63.
"""

from __future__ import annotations

import uuid

from jmsx.core.destination_names import is_composite, parts
from jmsx.errors import InvalidDestinationError
from jmsx.jms.destination import Destination, Temporary
from jmsx.jms.link import SessionLink


def reachable(given: Destination, link: SessionLink) -> Destination:
    """
    Return `given` under a name to which `link` can send.

    Raises InvalidDestinationError if it is a temporary destination that no longer exists, or that no session created.
    """
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
    """Raise InvalidDestinationError if the composite `given` names a temporary destination that no session created."""
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
