"""
SUBSCRIBE and UNSUBSCRIBE: which queue a destination means, and what becomes of it.

Source: artemis-stomp-protocol 2.44.0 StompConnection.subscribe and StompSession.addSubscription.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.headers import INT, whole
from jmsx.testing.artemis.consumer import UNLIMITED, ArtemisConsumer, Terms
from jmsx.testing.artemis.faults import Refused, bundled, carried
from jmsx.testing.artemis.message import SENDER, CoreMessage
from jmsx.testing.artemis.names import Routing, no_destination, routing_of, split
from jmsx.testing.artemis.selecting import parse_selector, suits

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.core.frames import Frame
    from jmsx.testing.artemis.link import ArtemisLink
    from jmsx.testing.artemis.queue import ArtemisQueue
    from jmsx.testing.artemis.selecting import Filter

_DURABLE_NAMES: Final = (
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
)


def subscribe(link: ArtemisLink, frame: Frame) -> None:
    """Make a consumer; nothing comes before the RECEIPT."""
    opened: list[ArtemisConsumer] = []
    link.ask_broker(frame, lambda: opened.append(_open(link, frame.headers)))
    link.acknowledge_frame(frame)
    opened[0].open_window()


def _open(link: ArtemisLink, headers: Mapping[str, str]) -> ArtemisConsumer:
    destination = headers.get("destination")
    routing = _routing(headers)
    window = _window(headers)
    if destination is None:
        raise no_destination()
    subscription_id = headers.get("id", f"subscription/{destination}")
    selector = parse_selector(headers.get("selector"))
    link.house.provide(destination, routing)
    if any(c.terms.subscription_id == subscription_id for c in link.consumers.values()):
        raise Refused(
            f"There already is a subscription for: {subscription_id}. Either use unique subscription IDs or do not"
            " create multiple subscriptions for the same destination"
        )
    mode = headers.get("ack", "auto")
    if window is None:
        window = UNLIMITED if mode == "auto" else link.house.manners.window
    address, queue_name = split(destination)
    is_topic = queue_name is None and link.house.addresses[address].is_topic
    terms = Terms(
        subscription_id=subscription_id,
        mode=mode,
        window=window,
        no_local=_is_true(headers, "no-local", "activemq.noLocal"),
        is_topic=is_topic,
    )
    queue = (
        _subscription_queue(link, headers, terms, address, selector)
        if is_topic
        else link.house.queues.get(queue_name or address)
    )
    if queue is None:
        raise bundled(339016, f"Error creating subscription {subscription_id}")
    consumer = ArtemisConsumer(
        link.house.next_id(),
        queue,
        terms,
        _wants(link, None if is_topic else selector, terms),
        link.deliver,
    )
    link.consumers[consumer.number] = consumer
    queue.add_consumer(consumer)
    return consumer


def _subscription_queue(
    link: ArtemisLink,
    headers: Mapping[str, str],
    terms: Terms,
    address: str,
    selector: Filter | None,
) -> ArtemisQueue:
    """The queue of a durable subscription, found or made, or one that lives as long as the consumer."""
    name = _durable_name(headers, *_DURABLE_NAMES)
    if name is None:
        own = f"{address}-{link.house.next_id()}"
        return link.house.subscription_queue(own, address, selector, temporary=True)
    if link.client_id is None:
        raise bundled(339016, f"Error creating subscription {terms.subscription_id}")
    durable = f"{link.client_id}.{name}"
    return link.house.subscription_queue(durable, address, selector, temporary=False)


def _wants(
    link: ArtemisLink, selector: Filter | None, terms: Terms
) -> Callable[[CoreMessage], bool]:
    def wants(message: CoreMessage) -> bool:
        if terms.no_local and message.properties.get(SENDER) == link.connection_id:
            return False
        return suits(selector, message)

    return wants


def _routing(headers: Mapping[str, str]) -> Routing | None:
    try:
        return routing_of(headers["subscription-type"]) if "subscription-type" in headers else None
    except ValueError as error:
        raise carried(str(error)) from error


def _window(headers: Mapping[str, str]) -> int | None:
    """Bytes, also where the header is Classic's, which means messages there."""
    text = headers.get("consumer-window-size", headers.get("activemq.prefetchSize"))
    if text is None:
        return None
    number = whole(text, least=~INT, most=INT)
    if number is None:
        raise carried(f'For input string: "{text}"')
    return number


def _is_true(headers: Mapping[str, str], name: str, other: str) -> bool:
    return headers.get(name, headers.get(other, "")).lower() == "true"


def _durable_name(headers: Mapping[str, str], *names: str) -> str | None:
    return next((headers[name] for name in names if name in headers), None)


def unsubscribe(link: ArtemisLink, frame: Frame) -> None:
    """End a consumer, and with a name its durable subscription; one that others use is an ERROR, but this one ends."""
    headers = frame.headers
    name = _durable_name(headers, *_DURABLE_NAMES)
    subscription_id = headers.get("id")
    if subscription_id is None and link.version == "1.0":
        if "destination" not in headers:
            raise bundled(
                339035,
                "Must specify the subscription's id or the destination you are unsubscribing from",
            )
        subscription_id = f"subscription/{headers['destination']}"
    if subscription_id is None and name is None:
        raise bundled(339037, "Must specify the subscription's id")
    found = [c for c in link.consumers.values() if c.terms.subscription_id == subscription_id]
    for consumer in found:
        del link.consumers[consumer.number]
        consumer.release()
        if consumer.queue.temporary:
            link.house.delete_queue(consumer.queue)
    if name is not None and link.client_id is not None:
        _delete_durable(link, f"{link.client_id}.{name}", subscription_id)
    elif not found:
        raise Refused(f"Cannot unsubscribe as no subscription exists for id: {subscription_id}")


def _delete_durable(link: ArtemisLink, name: str, subscription_id: str | None) -> None:
    queue = link.house.queues.get(name)
    if queue is not None and queue.consumers:
        raise bundled(339017, f"Error unsubscribing {subscription_id}")
    if queue is not None:
        link.house.delete_queue(queue)
