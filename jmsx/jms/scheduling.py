"""
Whether the broker delays messages: asked once for each connection, by sending one with a delay.

A broker without scheduler delivers it at once and says nothing, as one whose scheduler is off does.
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

#: Seconds that the message is to be delayed, and after which it counts as delayed.
DELAY: Final = 0.5
DELAYED: Final = 0.4

#: Seconds in which the broker is asked again when its link is cut, where requests have no limit of their own.
PATIENCE: Final = 30.0

_log = logger("jmsx.session")


def scheduled(link: SessionLink, destination: str, kind: DestinationKind, policy: Policy) -> bool:
    """
    Return whether redeliveries of the messages of `destination` are left to the broker.

    If they should be and cannot, that is logged, and they stay local. What is sent back to a topic would reach all who
    subscribe, what is sent to a wildcard none, and what is sent to a list all in it.
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
    """Return whether the broker delays messages that ask for it, as the connection knows since it was asked."""
    if link.shared.scheduler is None:
        link.shared.scheduler = probe(link)
    return link.shared.scheduler


def probe(link: SessionLink) -> bool:
    """
    Return whether the broker delays a message that asks for it; takes half a second if it does.

    A link that is cut meanwhile is waited for, and asked again. The answer is False, too, where this user may not use
    the queues of the probe, or the probe never comes back on a link that answers otherwise. Raises
    ConnectionFailedError if no link lasts, and BrokerTimeoutError where one is silent, which tells nothing.
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
            calls.finish(lambda core, _now: core.barrier())  # a silent link answers nothing else
            delivery, _ = engine.call(lambda core, _now: core.browsers.look(name))
    finally:
        calls.finish(lambda core, _now: core.browsers.close(name, private, delivery))
    return delivery is not None and engine.now() - began >= DELAYED
