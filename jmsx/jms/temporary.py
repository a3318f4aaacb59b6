"""
The name of a temporary queue for others.

`/temp-queue/x` means something on the socket of the session that made it only; on another it would silently be a queue
that nobody reads. The broker tells its real name where it shows a reply-to to others, so that is how we ask. With each
link of its session it is another queue: a reply to the name that was told on an older one is refused by the broker.
Source: `LegacyFrameTranslator.java:154-221`; jmsx_classic/BROKER.md C63.
"""

from __future__ import annotations

import uuid
from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx.errors import InvalidDestinationError
from jmsx.jms.destination import Destination, Temporary

if TYPE_CHECKING:
    from jmsx.jms.session import Session


def reachable(given: Destination, session: Session) -> Destination:
    """`given` as `session` can name it on its socket; raises InvalidDestinationError if it is gone."""
    if not isinstance(given, Temporary):
        return given
    given.check()
    if given.owner is session:
        return given
    if session.dialect.global_temporaries:
        return given
    epoch = 0 if given.owner is None else given.owner.pump.core.epoch
    if given.public is None or given.public_epoch != epoch:
        given.public, given.public_epoch = _ask(given, session), epoch
    return given.public


def _ask(queue: Temporary, session: Session) -> Destination:
    owner = queue.owner
    if owner is None:
        raise InvalidDestinationError(f"{queue} has no session that could tell its name")
    dialect, name = session.dialect, session.next_subscription_id()
    meeting = f"queue://jmsx.temporary.{uuid.uuid4().hex}"
    headers = {**dialect.send_headers(meeting), "ack": "auto"}
    session.pump.ask(
        f"SUBSCRIBE {meeting}",
        lambda core, _now: core.browsings.open(name, meeting, headers),
        repeat=True,
    )
    try:
        asked = {**headers, "reply-to": owner.dialect.reply_to(queue.uri)}
        del asked["ack"]
        owner.pump.ask(
            f"SEND {meeting}", lambda core, _now: core.sending.aside(Frame("SEND", asked))
        )
        delivery = session.pump.look(name)
    finally:
        session.pump.finish(lambda core, _now: core.browsings.close(name, meeting))
    told = None if delivery is None else dialect.addresses(delivery.headers).reply_to
    if told is None:
        raise InvalidDestinationError(f"the broker does not tell the name of {queue}")
    return Destination.told(told)
