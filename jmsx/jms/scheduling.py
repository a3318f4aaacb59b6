"""
Whether the broker can delay messages: found out once for each connection, by sending a message with a delay.

A broker without a scheduler, or with one that is off, delivers the message at once and reports no error.
"""

from __future__ import annotations

import uuid
from typing import Final

from jmsx.core.destination_names import is_pattern
from jmsx.core.frames import Frame
from jmsx.core.policy import Policy, RedeliveryMode
from jmsx.core.values import DestinationKind, StompAck
from jmsx.errors import BrokerTimeoutError, LinkError, SecurityError
from jmsx.jms.link import SessionLink
from jmsx.log import logger

#: The delay of the message that is sent, and the time after which it counts as delayed, in seconds.
DELAY: Final = 0.5
DELAYED: Final = 0.4

#: Seconds within which the message is sent again if the link is lost, where `request_timeout` is None.
PATIENCE: Final = 30.0

_log = logger("jmsx.session")


def scheduled(link: SessionLink, destination: str, kind: DestinationKind, policy: Policy) -> bool:
    """
    Return whether the broker's scheduler makes the redeliveries of messages from `destination`.

    If `policy` wants that but it is impossible, this logs why, and jmsx makes the redeliveries itself. It is possible
    only for a single queue: a message that is sent back to a topic would reach all its subscribers, to a wildcard no
    queue, and to a composite destination every queue in it.
    """
    if policy.mode != RedeliveryMode.SCHEDULED:
        return False
    why = None
    if kind is not DestinationKind.QUEUE:
        why = "it is no queue"
    elif is_pattern(destination):
        why = "it stands for several queues"
    elif not broker_schedules(link):
        why = f"the broker's scheduler is off{link.dialect.settings.scheduler}, or it has none"
    if why is not None:
        _log.warning("redelivery stays local", destination=destination, reason=why)
    return why is None


def broker_schedules(link: SessionLink) -> bool:
    """Return whether the broker can delay messages; the first call for a connection finds out by `probe`."""
    if link.shared.scheduler is None:
        link.shared.scheduler = probe(link)
    return link.shared.scheduler


def probe(link: SessionLink) -> bool:
    """
    Return whether the broker delays a message that is sent with a delay; takes half a second if it does.

    If the link is lost, this waits for the next one and sends the message again. It also returns False if the user may
    not use the probe's queue, or if the message never arrives although the broker answers other requests. Raises
    ConnectionFailedError if every link is lost, and BrokerTimeoutError if the broker answers nothing at all.
    """
    engine = link.engine
    deadline = engine.now() + (engine.request_timeout or PATIENCE)
    while True:
        try:
            return _ask(link)
        except SecurityError as error:
            _log.warning(
                "this user may not try the broker's scheduler, which is taken to be off",
                error=str(error),
            )
            return False
        except LinkError:
            if engine.error is not None or engine.now() >= deadline:
                raise


def _ask(link: SessionLink) -> bool:
    dialect, engine, calls = link.dialect, link.engine, link.calls
    if dialect.delay_header is None:
        return False
    name = link.next_subscription_id()
    private = f"queue://jmsx.scheduler.{uuid.uuid4().hex}"
    headers = dialect.writing.subscribe_headers(
        destination=private,
        ack=StompAck.CLIENT_INDIVIDUAL,
        selector=None,
        durable_name=None,
        no_local=False,
        options={},
    )
    calls.ask(
        f"SUBSCRIBE {private}",
        lambda core, _now: core.browsers.open(name, private, headers),
        repeat=True,
    )
    delay = {dialect.delay_header: str(round(DELAY * 1000))}
    asked = Frame("SEND", {**dialect.writing.send_headers(private), **delay})
    delivery, began = None, engine.now()
    try:
        calls.ask(f"SEND {private}", lambda core, _now: core.sending.send_own(asked))
        try:
            delivery = calls.look(name, private)
        except BrokerTimeoutError:
            calls.finish(lambda core, _now: core.barrier())  # raises if the broker is silent
            delivery, _ = engine.call(lambda core, _now: core.browsers.look(name))
    finally:
        calls.finish(lambda core, _now: core.browsers.close(name, private, delivery))
    return delivery is not None and engine.now() - began >= DELAYED
