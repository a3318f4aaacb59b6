"""How a consumer is made of what was asked for, the URI of its destination, the connection's options and the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsx.core.headers import INT, SENDER_HEADER, whole
from jmsx.core.selectors import literal
from jmsx.core.values import AcknowledgeMode, ConsumerSettings, DestinationKind, StompAck
from jmsx.errors import ConfigurationError, InvalidSelectorError
from jmsx.jms.scheduling import scheduled

if TYPE_CHECKING:
    from jmsx.jms.destination import Destination
    from jmsx.jms.session import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class Wanted:
    """The consumer that was asked for."""

    destination: Destination
    kind: DestinationKind
    selector: str | None
    no_local: bool
    name: str | None  #: in metrics and events
    durable_name: str | None = None


def stated(selector: str | None) -> str | None:
    """
    A selector of blanks is none, as in Java (`ActiveMQMessageConsumer.java`, its constructor).

    Raises InvalidSelectorError for a NUL, which would end the frame for whoever splits frames there.
    """
    if selector is not None and "\0" in selector:
        raise InvalidSelectorError(f"the selector {selector!r} has a NUL character")
    return None if selector is None or not selector.strip() else selector


def prefetch(session: Session, wanted: Wanted) -> int:
    """Messages; 0: each is fetched when it is asked for. Raises ConfigurationError if the URI has no number."""
    given = wanted.destination.address.options.get("prefetchSize")
    if given is None:
        return session.options.prefetch_policy.prefetch(wanted.kind)
    number = whole(given, most=INT)
    if number is None:
        raise ConfigurationError(
            f"consumer.prefetchSize={given}: must be a whole number, 0 or more"
        )
    return number


def settings(session: Session, wanted: Wanted) -> ConsumerSettings:
    """The settings of a new consumer; may ask the broker. Raises what is wrong with the URI's options."""
    destination, kind = wanted.destination, wanted.kind
    options = dict(destination.address.options)
    selector = options.pop("selector", None) if wanted.selector is None else wanted.selector
    selector = stated(selector)
    no_local = wanted.no_local
    if no_local and kind is not DestinationKind.QUEUE:
        selector, no_local = _of_others(session.sign(), selector), False
    options.pop("prefetchSize", None)
    messages = prefetch(session, wanted)
    policy = session.options.policy(destination.uri)
    non_blocking = session.options.non_blocking_redelivery or policy.non_blocking
    ack = _stomp_ack(session, non_blocking=non_blocking)
    auto = session.mode is AcknowledgeMode.AUTO_ACKNOWLEDGE
    findings = session.examine(destination, kind)
    grave, expired = findings.grave, findings.expired
    subscription_id = session.next_subscription_id()
    return ConsumerSettings(
        subscription_id=subscription_id,
        name=wanted.name or destination.uri,
        destination=destination.uri,
        kind=kind,
        mode=session.mode,
        stomp_ack=ack,
        headers=session.dialect.subscribe_headers(
            destination=destination.uri,
            ack=ack,
            selector=selector,
            durable_name=wanted.durable_name,
            no_local=no_local,
            options=options,
        ),
        origin=_origin(session, wanted),
        subscription=_subscription(session, wanted, subscription_id),
        grave=grave.destination,
        grave_frames=grave.before,
        expired="" if expired is None else expired.destination,
        expired_frames=() if expired is None else expired.before,
        prefetch=max(messages, 1),
        policy=policy,
        optimize=session.options.optimize() if auto and messages > 0 else None,
        non_blocking_redelivery=non_blocking,
        scheduled=scheduled(session, destination.uri, kind, policy),
    )


def _of_others(sender: str, selector: str | None) -> str:
    """
    A selector that leaves out what a connection sent, by whichever of its sessions; the broker's own knows a socket.

    With a client id that is the sender, so that the selector of a durable subscription stays as it is when the program
    is started again: another one would begin it anew. Source: JMS 2.0, `Session.createDurableConsumer`.
    """
    others = f"({SENDER_HEADER} IS NULL OR {SENDER_HEADER} <> {literal(sender)})"
    return others if selector is None else f"({selector}) AND {others}"


def _origin(session: Session, wanted: Wanted) -> str:
    """What names the queue or subscription for ever, wherever it is read."""
    uri = wanted.destination.uri
    if wanted.kind is DestinationKind.QUEUE:
        return uri
    if wanted.durable_name is None:
        return f"{uri}:{session.session_id}"
    return f"{uri}:durable:{session.options.client_id}.{wanted.durable_name}"


def _subscription(session: Session, wanted: Wanted, subscription_id: str) -> str | None:
    """Whose copy of a topic's messages it is: each durable subscription has one, and each other consumer."""
    if wanted.kind is DestinationKind.QUEUE:
        return None
    if wanted.durable_name is None:
        return f"{session.session_id}:{subscription_id}"
    return f"durable:{session.options.client_id}.{wanted.durable_name}"


def _stomp_ack(session: Session, *, non_blocking: bool) -> StompAck:
    """Cumulative where local order is dispatch order; single ACKs elsewhere."""
    single = (
        session.mode is AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE
        or non_blocking
        or (session.transacted and session.options.transacted_individual_ack)
    )
    return StompAck.CLIENT_INDIVIDUAL if single else StompAck.CLIENT
