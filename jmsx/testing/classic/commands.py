"""
What each frame of a client does.

Source: activemq-stomp 6.1.8 ProtocolConverter, with the words of its errors as a live broker writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx.core.headers import INT, whole
from jmsx.testing.classic.consumer import StompAck, StompConsumer
from jmsx.testing.classic.message import MAP_XML, from_send
from jmsx.testing.classic.subscription import ConsumerOptions
from jmsx.testing.classic.transaction import FakeTransaction
from jmsx.testing.faults import BrokerFault, ProtocolFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.testing.classic.destination import Destination
    from jmsx.testing.classic.link import ClassicLink
    from jmsx.testing.classic.message import StoredMessage
    from jmsx.testing.classic.subscription import Acknowledgement

#: Headers that would change what happens in ways that are not modelled.
_NOT_MODELLED: Final = {
    "activemq.retroactive",
    "activemq.maximumPendingMessageLimit",
}


def execute(link: ClassicLink, frame: Frame) -> None:
    """Do what `frame` says; raises ProtocolFault for an ERROR and SocketFault for a closed socket."""
    if frame.command not in _COMMANDS:
        raise ProtocolFault(f"Unknown STOMP action: {frame.command}", fatal=True)
    if frame.command not in _BEFORE_CONNECTED and link.client_id is None:
        raise ProtocolFault("Not connected.")
    for name in _NOT_MODELLED & frame.headers.keys():
        raise NotImplementedError(f"the fake broker has no {name}")
    transformation = frame.headers.get("transformation", MAP_XML)
    if transformation != MAP_XML:
        raise NotImplementedError(f"the fake broker has no transformation {transformation}")
    _COMMANDS[frame.command](link, frame)


# -- connection -------------------------------------------------------------------------------


def _connect(link: ClassicLink, frame: Frame) -> None:
    if link.client_id is not None:
        raise ProtocolFault("Already connected.")
    link.version = _version(link, frame.headers)
    heart_beat = frame.headers.get("heart-beat", "0,0").strip()
    promised, comma, wanted = heart_beat.partition(",")
    receive, send = whole(promised), whole(wanted)
    if not comma or receive is None or send is None:
        raise ProtocolFault(f"Invalid heart-beat header:{heart_beat}", fatal=True)
    link.heart_beat = (send, receive)
    planned = link.broker.faults.take("CONNECT", link)
    try:
        if planned is not None:
            planned.before()
        link.client_id = link.house.register(link, frame.headers.get("client-id"))
    except BrokerFault as fault:
        link.write_error(fault, frame.headers.get("receipt"))
        link.lose()
        return
    if planned is not None:
        planned.after()
    _write_connected(link, frame)


def _version(link: ClassicLink, headers: Mapping[str, str]) -> str:
    """The best version both speak; the list is not trimmed, so `1.1, 1.2` means 1.1."""
    known = link.house.manners.versions
    wanted = headers.get("accept-version")
    if wanted is None:
        return "1.0"
    for version in known:
        if version in wanted.split(","):
            return version
    raise ProtocolFault(
        f"Invalid Protocol version[{wanted}], supported versions are: [{', '.join(known)}]",
        fatal=True,
    )


def _write_connected(link: ClassicLink, frame: Frame) -> None:
    headers = {
        "server": link.house.manners.server,
        "heart-beat": f"{link.heart_beat[0]},{link.heart_beat[1]}",
        "session": link.client_id or "",
        "version": link.version,
    }
    request_id = frame.headers.get("request-id", frame.headers.get("receipt"))
    if request_id is not None:
        headers |= {"response-id": request_id, "receipt-id": request_id}
    link.write(Frame("CONNECTED", headers))


def _disconnect(link: ClassicLink, frame: Frame) -> None:
    if link.client_id is None:
        return
    link.ask_broker(frame, lambda: None)
    link.lose()


# -- messages ---------------------------------------------------------------------------------


def _send(link: ClassicLink, frame: Frame) -> None:
    name = frame.headers.get("destination")
    if name is None:
        raise ProtocolFault("SEND received without a Destination specified!")
    transaction = _transaction(link, frame.headers)
    message_id = link.house.next_message_id(link)
    messages = [_message(link, frame, each, message_id) for each in name.split(",")]

    def send() -> None:
        for message in messages:
            link.house.send(message, transaction)

    link.ask_broker(frame, send, transaction)


def _message(link: ClassicLink, frame: Frame, destination: str, message_id: str) -> StoredMessage:
    """What a SEND brings to one of its destinations."""
    message = from_send(
        frame,
        link.destination(destination),
        message_id=message_id,
        connection_id=link.connection_id,
        now_ms=link.broker.now_ms(),
    )
    reply_to = frame.headers.get("reply-to")
    if reply_to is not None:
        try:
            message.reply_to = link.destination(reply_to, strict=True)
        except ProtocolFault:
            message.properties["reply-to"] = reply_to
    return message


def _ack(link: ClassicLink, frame: Frame) -> None:
    _settle(link, frame, StompConsumer.acknowledge)


def _nack(link: ClassicLink, frame: Frame) -> None:
    if link.version == "1.0":
        raise ProtocolFault("NACK received but connection is in v1.0 mode.")
    _settle(link, frame, StompConsumer.refuse)


def _settle(
    link: ClassicLink,
    frame: Frame,
    convert: Callable[[StompConsumer, str, FakeTransaction | None], Acknowledgement | None],
) -> None:
    """Find whose message it is, and tell the broker; nobody's is an ERROR that changes nothing."""
    _check_ack_headers(link, frame)
    transaction = _transaction(link, frame.headers)
    message_id = frame.headers.get("message-id")
    for consumer, known_id in _candidates(link, frame.headers):
        message_id = known_id
        ack = convert(consumer, known_id, transaction)
        if ack is not None:
            _pass_on(link, frame, consumer, ack, transaction)
            return
    raise ProtocolFault(
        f"Unexpected {frame.command} received for message-id [{message_id or 'null'}]"
    )


def _pass_on(
    link: ClassicLink,
    frame: Frame,
    consumer: StompConsumer,
    ack: Acknowledgement,
    transaction: FakeTransaction | None,
) -> None:
    link.ask_broker(frame, lambda: consumer.pass_on(ack, transaction), transaction)


def _check_ack_headers(link: ClassicLink, frame: Frame) -> None:
    headers, command = frame.headers, frame.command
    if link.version == "1.2":
        if "id" not in headers:
            article = "a ack id for" if command == "ACK" else "an ack header to"
            raise ProtocolFault(f"{command} received without {article} acknowledge!")
        return
    if "message-id" not in headers:
        raise ProtocolFault(f"{command} received without a message-id to acknowledge!")
    if "subscription" not in headers and link.version == "1.1":
        raise ProtocolFault(f"{command} received without a subscription id for acknowledge!")


def _candidates(link: ClassicLink, headers: Mapping[str, str]) -> list[tuple[StompConsumer, str]]:
    """Whose message it may be: by `id` (1.2), by `subscription` (1.1), or anyone's (1.0)."""
    if "id" in headers:
        entry = link.pending_acks.get(headers["id"])
        return [] if entry is None else [(entry.consumer, entry.message_id)]
    message_id = headers["message-id"]
    if "subscription" in headers:
        consumer = link.subscriptions.get(headers["subscription"])
        return [] if consumer is None else [(consumer, message_id)]
    return [(consumer, message_id) for consumer in link.consumers]


# -- transactions -----------------------------------------------------------------------------


def _transaction(link: ClassicLink, headers: Mapping[str, str]) -> FakeTransaction | None:
    name = headers.get("transaction")
    if name is None:
        return None
    if name not in link.transactions:
        raise ProtocolFault(f"Invalid transaction id: {name}")
    return link.transactions[name]


def _begin(link: ClassicLink, frame: Frame) -> None:
    name = frame.headers.get("transaction")
    if name is None:
        raise ProtocolFault("Must specify the transaction you are beginning")
    if name in link.transactions:
        raise ProtocolFault(f"The transaction was already started: {name}")
    transaction = FakeTransaction(name)
    link.transactions[name] = transaction
    link.ask_broker(frame, lambda: link.open_transactions.append(transaction))


def _take_transaction(link: ClassicLink, frame: Frame) -> FakeTransaction:
    """The transaction to end; its name is free from now on, whatever comes."""
    name = frame.headers.get("transaction")
    if name is None:
        raise ProtocolFault("Must specify the transaction you are committing")
    transaction = link.transactions.pop(name, None)
    if transaction is None:
        raise ProtocolFault(f"Invalid transaction id: {name}")
    return transaction


def _commit(link: ClassicLink, frame: Frame) -> None:
    transaction = _take_transaction(link, frame)
    for consumer in list(link.consumers):
        ack = consumer.commit()
        if ack is not None:
            _pass_on(link, Frame("(the ACK of a COMMIT)"), consumer, ack, transaction)

    def work() -> None:
        transaction.commit()
        link.open_transactions.remove(transaction)

    link.ask_broker(frame, work)


def _abort(link: ClassicLink, frame: Frame) -> None:
    transaction = _take_transaction(link, frame)
    for consumer in link.consumers:
        consumer.abort()

    def work() -> None:
        link.open_transactions.remove(transaction)
        transaction.rollback()

    link.ask_broker(frame, work)


# -- subscriptions ----------------------------------------------------------------------------


def _subscribe(link: ClassicLink, frame: Frame) -> None:
    headers = frame.headers
    subscription_id = headers.get("id")
    if subscription_id is None and link.version != "1.0":
        raise ProtocolFault("SUBSCRIBE received without a subscription id!")
    if not headers.get("destination"):
        raise ProtocolFault("Invalid empty or 'null' Destination header")
    options = _options(link, headers, link.destination(headers["destination"]))
    if options.subscription_name is not None and options.destination.is_queue:
        raise ProtocolFault(
            "Invalid Subscription: cannot durably subscribe to a Queue destination!"
        )
    mode = headers.get("ack", "auto")
    consumer = StompConsumer(
        link,
        subscription_id,
        StompAck(mode) if mode in set(StompAck) else StompAck.AUTO,
        options,
    )
    link.consumers.append(consumer)
    if subscription_id is not None:
        link.subscriptions[subscription_id] = consumer
    _open(link, frame, consumer)


def _open(link: ClassicLink, frame: Frame, consumer: StompConsumer) -> None:
    """
    Add the consumer; with a receipt its window stays shut until the RECEIPT is written.

    Source: ProtocolConverter.onStompSubscribe: both the new consumer and its opened window wake the queue.
    """
    prefetch = consumer.options.prefetch
    shut = "receipt" in frame.headers and prefetch > 0
    if shut:
        consumer.options.prefetch = 0
    done = link.ask_broker(frame, lambda: link.house.add_consumer(consumer))
    link.broker.settle()
    if done and shut and consumer.subscription is not None:
        consumer.options.prefetch = prefetch
        consumer.subscription.open_window()


def _options(
    link: ClassicLink, headers: Mapping[str, str], destination: Destination
) -> ConsumerOptions:
    """What a SUBSCRIBE asks for; what is unknown or not a number is ignored, as the broker does."""
    manners = link.house.manners
    name = headers.get("activemq.subscriptionName")
    if "*" in destination.name or ">" in destination.name:
        raise NotImplementedError(f"the fake broker has no wildcards: {destination}")
    prefetch = manners.queue_prefetch if destination.is_queue else manners.topic_prefetch
    if name is not None and not destination.is_queue:
        prefetch = manners.durable_prefetch
    return ConsumerOptions(
        consumer_id=link.house.next_consumer_id(link),
        connection_id=link.connection_id,
        destination=destination,
        prefetch=_number(headers.get("activemq.prefetchSize"), prefetch),
        selector_text=headers.get("selector"),
        subscription_name=name,
        exclusive=headers.get("activemq.exclusive") == "true",
        priority=_number(headers.get("activemq.priority"), 0),
        no_local=headers.get("activemq.noLocal") == "true",
        browser=headers.get("browser") == "true",
        transformation=headers.get("transformation"),
    )


def _number(text: str | None, default: int) -> int:
    number = whole(text, least=~INT, most=INT)
    return default if number is None else number


def _unsubscribe(link: ClassicLink, frame: Frame) -> None:
    headers = frame.headers
    subscription_id = headers.get("id")
    if subscription_id is None and link.version != "1.0":
        raise ProtocolFault("UNSUBSCRIBE received without a subscription id!")
    if subscription_id is None and "destination" not in headers:
        raise ProtocolFault(
            "Must specify the subscriptionId or the destination you are unsubscribing from"
        )
    durable = headers.get("activemq.subscriptionName")
    if durable is not None:
        client_id = durable if link.version == "1.0" else link.client_id or ""
        link.ask_broker(frame, lambda: link.house.delete_durable(client_id, durable))
        return
    consumer = _take_consumer(link, headers)
    if consumer is None:
        raise ProtocolFault("No subscription matched.")
    link.ask_broker(frame, lambda: link.house.remove_consumer(consumer))


def _take_consumer(link: ClassicLink, headers: Mapping[str, str]) -> StompConsumer | None:
    """The consumer to end, by `id` or else by `destination`; it is then forgotten here."""
    if "id" in headers:
        consumer = link.subscriptions.pop(headers["id"], None)
    else:
        destination = link.destination(headers["destination"])
        consumer = next((c for c in link.consumers if c.options.destination == destination), None)
    if consumer is not None:
        link.consumers.remove(consumer)
    return consumer


_BEFORE_CONNECTED: Final = frozenset({"CONNECT", "STOMP", "DISCONNECT"})
_COMMANDS: Final[dict[str, Callable[[ClassicLink, Frame], None]]] = {
    "CONNECT": _connect,
    "STOMP": _connect,
    "DISCONNECT": _disconnect,
    "SEND": _send,
    "ACK": _ack,
    "NACK": _nack,
    "BEGIN": _begin,
    "COMMIT": _commit,
    "ABORT": _abort,
    "SUBSCRIBE": _subscribe,
    "UNSUBSCRIBE": _unsubscribe,
}
