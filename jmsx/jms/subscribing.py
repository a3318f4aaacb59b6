"""The settings of a new consumer: from its arguments, its destination's URI, the connection's options, the broker."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from jmsx.config.options import ConsumerOptions
from jmsx.core.destination_names import matches, parts, split_name
from jmsx.core.headers import INT, SENDER_HEADER, whole
from jmsx.core.option_checks import check_text
from jmsx.core.selectors import literal
from jmsx.core.values import ConsumerSettings, DeadLetterStrategy, DestinationKind, StompAck
from jmsx.errors import ConfigurationError, InvalidSelectorError
from jmsx.jms.destination import Destination
from jmsx.jms.link import SessionLink
from jmsx.jms.scheduling import scheduled

if TYPE_CHECKING:
    from collections.abc import Callable


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerRequest:
    """The arguments of a call that creates a consumer."""

    destination: Destination
    kind: DestinationKind
    selector: str | None
    no_local: bool
    name: str | None  #: in metrics and events
    options: ConsumerOptions
    durable_name: str | None = None


def stated(selector: str | None) -> str | None:
    """
    Return the selector, or None if it is blank, as in Java (`ActiveMQMessageConsumer.java`, its constructor).

    Raises InvalidSelectorError for a NUL character, which would end the STOMP frame for programs that split frames
    there, and ConfigurationError if `selector` is no text.
    """
    check_text("selector", selector)
    if selector is not None and "\0" in selector:
        raise InvalidSelectorError(f"the selector {selector!r} has a NUL character")
    return None if selector is None or not selector.strip() else selector


def check_elsewhere(source: str, dead_letter: str, queue_name: Callable[[str], str] = str) -> None:
    """
    Raise ConfigurationError if a consumer of `source` would receive its own dead letters.

    `queue_name` maps a name to that of the queue which the broker uses for it; the default returns the name itself.
    """
    if dead_letter in tuple(DeadLetterStrategy):
        return
    place_kind, place = split_name(dead_letter)
    named = queue_name(place).split(".")
    for kind, name in parts(source):
        if kind == place_kind and matches(queue_name(name).split("."), named):
            raise ConfigurationError(
                f"dead_letter={dead_letter!r} is read by this consumer of {source}, so what fails would come to it for"
                " ever; name another queue, or safe for the broker's own"
            )


def prefetch(link: SessionLink, wanted: ConsumerRequest) -> int:
    """Return the prefetch in messages; 0: each is fetched on demand. Raises ConfigurationError for a bad number."""
    given = wanted.destination.address.options.get("prefetchSize")
    if given is None:
        return link.options.prefetch(wanted.kind, wanted.options)
    number = whole(given, most=INT)
    if number is None:
        raise ConfigurationError(
            f"consumer.prefetchSize={given}: must be a whole number, 0 or more"
        )
    return number


def settings(link: SessionLink, wanted: ConsumerRequest, messages: int) -> ConsumerSettings:
    """
    Return the settings of a new consumer with a prefetch of `messages`; may ask the broker's management.

    Raises ConfigurationError and the like for options, of the URI or the consumer, that make no sense in this session.
    """
    destination, kind, own = wanted.destination, wanted.kind, wanted.options
    options = dict(destination.address.options)
    selector = options.pop("selector", None) if wanted.selector is None else wanted.selector
    selector = stated(selector)
    no_local = wanted.no_local
    if no_local and kind is not DestinationKind.QUEUE:
        selector, no_local = _of_others(link.sign(), selector), False
    options.pop("prefetchSize", None)
    policy = link.options.policy(destination.uri, own)
    non_blocking = own.non_blocking_redelivery
    if non_blocking is None:
        non_blocking = link.options.non_blocking_redelivery
    non_blocking = non_blocking or policy.non_blocking
    ack = _stomp_ack(link, non_blocking=non_blocking)
    own.check_mode(link.mode)
    if own.dead_letter is not None:
        check_elsewhere(destination.uri, own.dead_letter, link.dialect.writing.queue_name)
    optimizes = link.mode.does.may_optimize
    findings = link.examine(destination, kind, policy)
    dead_letter = own.dead_letter or link.options.dead_letter
    if dead_letter not in tuple(DeadLetterStrategy):
        link.examine_dead_letter_queue(dead_letter)
    queue, expired = findings.dead_letter_queue, findings.expired
    subscription_id = link.next_subscription_id()
    return ConsumerSettings(
        subscription_id=subscription_id,
        name=wanted.name or destination.uri,
        destination=destination.uri,
        kind=kind,
        mode=link.mode,
        stomp_ack=ack,
        headers=link.dialect.writing.subscribe_headers(
            destination=destination.uri,
            ack=ack,
            selector=selector,
            durable_name=wanted.durable_name,
            no_local=no_local,
            options=options,
        ),
        origin=_origin(link, wanted),
        subscription=_subscription(link, wanted, subscription_id),
        selective=bool(selector or no_local or options) or messages == 0,
        dead_letter_queue=queue.destination,
        dead_letter_queue_frames=queue.before,
        expired="" if expired is None else expired.destination,
        expired_frames=() if expired is None else expired.before,
        prefetch=max(messages, 1),
        policy=policy,
        dead_letter=dead_letter,
        optimize=link.options.optimize(own) if optimizes and messages > 0 else None,
        non_blocking_redelivery=non_blocking,
        scheduled=scheduled(link, destination.uri, kind, policy),
    )


def _of_others(sender: str, selector: str | None) -> str:
    """
    Return a selector that leaves out what a connection sent, by whichever of its sessions; the broker's own knows a
    socket.

    With a client id that is the sender, so that the selector of a durable subscription stays as it is when the program
    is started again: another one would begin it anew. Source: JMS 2.0, `Session.createDurableConsumer`.
    """
    others = f"({SENDER_HEADER} IS NULL OR {SENDER_HEADER} <> {literal(sender)})"
    return others if selector is None else f"({selector}) AND {others}"


def _origin(link: SessionLink, wanted: ConsumerRequest) -> str:
    """Return what names the queue or subscription for ever, wherever it is read."""
    uri = wanted.destination.uri
    if wanted.kind is DestinationKind.QUEUE:
        return uri
    if wanted.durable_name is None:
        return f"{uri}:{link.session_id}"
    return f"{uri}:{durable(link.options.client_id, wanted.durable_name)}"


def _subscription(link: SessionLink, wanted: ConsumerRequest, subscription_id: str) -> str | None:
    """Return whose copy of a topic's messages it is: each durable subscription has one, and each other consumer."""
    if wanted.kind is DestinationKind.QUEUE:
        return None
    if wanted.durable_name is None:
        return f"{link.session_id}:{subscription_id}"
    return durable(link.options.client_id, wanted.durable_name)


def durable(client_id: str | None, name: str) -> str:
    """Return the name of a durable subscription in events."""
    return f"durable:{client_id}.{name}"


def _stomp_ack(link: SessionLink, *, non_blocking: bool) -> StompAck:
    """Choose cumulative ACKs where local order is dispatch order, and single ones elsewhere."""
    single = (
        link.mode.does.single_acks
        or non_blocking
        or (link.transacted and link.options.transacted_individual_ack)
    )
    return StompAck.CLIENT_INDIVIDUAL if single else StompAck.CLIENT
