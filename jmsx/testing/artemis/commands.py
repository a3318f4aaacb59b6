"""
What each frame of a client does.

Source: artemis-stomp-protocol 2.44.0 VersionedStompFrameHandler, StompFrameHandlerV10 to V12, StompConnection and
StompSession, with the words of its errors as a live broker writes them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.frames import Frame
from jmsx.core.headers import INT, LONG, whole
from jmsx.testing.artemis import management, subscribing
from jmsx.testing.artemis.faults import Refused, bundled
from jmsx.testing.artemis.message import SENDER, from_send
from jmsx.testing.artemis.names import Routing, no_destination, routing_of
from jmsx.testing.artemis.transaction import ArtemisTransaction
from jmsx.testing.faults import BrokerFault

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from jmsx.testing.artemis.link import ArtemisLink

_VERSIONS: Final = ("1.2", "1.1", "1.0")
_SHORTEST_BEAT: Final = 500  #: milliseconds between two heart-beats of the broker, at least
_SHORTEST_TTL: Final = 1000  #: milliseconds
_TTL_PER_BEAT: Final = 2
_PRINTABLE: Final = range(ord(" "), ord("~") + 1)


def execute(link: ArtemisLink, frame: Frame) -> None:
    """Do what `frame` says, and give the RECEIPT; raises a Fault for an ERROR, SocketFault for a closed socket."""
    if not link.connected and frame.command not in _GREETINGS:
        raise NotImplementedError(
            "the fake broker has no connection that does not begin with CONNECT"
        )
    is_too_new = link.version == "1.0" and frame.command in _NOT_IN_1_0 and link.connected
    if frame.command not in _COMMANDS or is_too_new:
        raise _unknown(frame)
    _COMMANDS[frame.command](link, frame)


def _unknown(frame: Frame) -> Refused:
    """A command that is none: the frame is not even read, only shown, byte by byte."""
    raw = "".join(f"{chr(byte) if byte in _PRINTABLE else byte}," for byte in frame.encode())
    return Refused(
        bundled(339023, f"Invalid STOMP frame {raw}").message,
        body=f"AMQ339024: Invalid STOMP frame: {raw}",
        fatal=True,
        answers=False,
    )


def _answered(
    work: Callable[[ArtemisLink, Frame], None],
) -> Callable[[ArtemisLink, Frame], None]:
    """A command whose RECEIPT is written when it is done."""

    def command(link: ArtemisLink, frame: Frame) -> None:
        link.ask_broker(frame, lambda: work(link, frame))
        link.acknowledge_frame(frame)

    return command


# -- connection -------------------------------------------------------------------------------


def _connect(link: ArtemisLink, frame: Frame) -> None:
    headers = frame.headers
    if not link.connected:
        link.version = _version(headers.get("accept-version"))
    link.ask_broker(frame, lambda: None)
    link.client_id = headers.get("client-id")
    told = {"session": link.connection_id}
    if "accept-version" in headers:
        told["version"] = link.version
    if link.version != "1.0":
        told["server"] = link.house.manners.server
    if "request-id" in headers:
        told["response-id"] = headers["request-id"]
    if "heart-beat" in headers and link.version != "1.0":
        told["heart-beat"] = _agree_on_beats(link, headers["heart-beat"])
    if "receipt" in headers:
        told["receipt-id"] = headers["receipt"]
    link.connected = True
    link.write(Frame("CONNECTED", told))


def _version(wanted: str | None) -> str:
    """The best version both speak; the list is not trimmed, so `1.1, 1.2` means 1.1."""
    if wanted is None:
        return "1.0"
    for version in _VERSIONS:
        if version in wanted.split(","):
            return version
    raise Refused(
        bundled(339002, f"Stomp versions not supported {wanted}").message,
        body="Supported protocol versions are v1.0 v1.1 v1.2",
        headers={"version": "1.0,1.1,1.2"},
        fatal=True,
    )


def _agree_on_beats(link: ArtemisLink, wanted: str) -> str:
    """
    The beats that the client asked for, and half the time to live that the broker then has for it.

    Source: StompFrameHandlerV11.HeartBeater; jmsx_artemis/BROKER.md A3.
    """
    parts = wanted.split(",")
    if len(parts) != 2:  # noqa: PLR2004 - what we beat and what we expect
        raise Refused(f"Incorrect heartbeat header {wanted}")
    client, server = (_beat(part) for part in parts)
    _, ttl = link.heart_beat
    if client:
        ttl = max(client * _TTL_PER_BEAT, _SHORTEST_TTL)
    ours = max(server, _SHORTEST_BEAT) if server else 0
    link.heart_beat = (ours, ttl)
    return f"{ours},{ttl // _TTL_PER_BEAT}"


def _beat(text: str) -> int:
    number = whole(text, least=~INT, most=INT)
    if number is None:
        raise Refused(f'For input string: "{text}"')
    return number


def _stomp(link: ArtemisLink, frame: Frame) -> None:
    """As CONNECT, which it may be only once."""
    if link.connected:
        link.acknowledge_frame(frame)
    else:
        _connect(link, frame)


def _disconnect(link: ArtemisLink, frame: Frame) -> None:
    link.ask_broker(frame, lambda: None)
    link.acknowledge_frame(frame)
    link.close()


# -- messages ---------------------------------------------------------------------------------


def _send(link: ArtemisLink, frame: Frame) -> None:
    headers, house = frame.headers, link.house
    destination = headers.get("destination")
    routing = _routing(headers)
    if destination is None:
        raise no_destination()
    if destination != management.ADDRESS:
        house.provide(destination, routing)
    is_known = any(consumer.terms.no_local for consumer in link.consumers.values())
    if is_known and "transaction" not in headers:
        frame = Frame("SEND", {**headers, SENDER: link.connection_id}, frame.body)
    message = from_send(
        frame,
        address=destination,
        routing=routing,
        message_id=house.next_id(),
        now_ms=link.broker.now_ms(),
    )
    name = headers.get("transaction")
    if destination == management.ADDRESS:
        management.ask(house, message)
    else:
        house.route(message, None if name is None else _transaction(link, name))


def _routing(headers: Mapping[str, str]) -> Routing | None:
    try:
        return routing_of(headers["destination-type"]) if "destination-type" in headers else None
    except ValueError:
        raise bundled(339031, "Error handling send") from None


# -- acknowledgements -------------------------------------------------------------------------


def _settle(link: ArtemisLink, frame: Frame) -> None:
    """
    ACK and NACK, which both consume the message at once, whatever transaction they name.

    Source: StompSession.acknowledge; jmsx_artemis/BROKER.md A26, A27 and A29.
    """
    handle, subscription_id = _named_by(link, frame)
    told = [whole(part, least=~LONG) for part in (handle or "").split(",")]
    match told:
        case [int(consumer_id), int(message_id)]:
            key = consumer_id, message_id
        case _:
            raise _cannot_settle(handle)
    size = link.sizes.pop(key, None)
    if size is None:
        raise bundled(339025, f"failed to ack because no message with id {handle}")
    consumer = link.consumers.get(key[0])
    if consumer is None:
        raise _cannot_settle(handle)
    if subscription_id not in {None, consumer.terms.subscription_id}:
        real = consumer.terms.subscription_id
        raise bundled(339026, f"subscription id {subscription_id} does not match {real}")
    if consumer.terms.mode == "client-individual":
        consumer.acknowledge_one(key[1])
    else:
        for settled in consumer.acknowledge(key[1]):
            size += link.sizes.pop((key[0], settled), 0)
    if consumer.has_window:
        consumer.give_credits(size)


def _named_by(link: ArtemisLink, frame: Frame) -> tuple[str | None, str | None]:
    """The message that an ACK is for, and the subscription where STOMP 1.1 wants it named."""
    headers = frame.headers
    if link.version == "1.2":
        if "id" not in headers:
            raise bundled(339039, "No id header in ACK/NACK frame.")
        return headers["id"], None
    if link.version == "1.1":
        if "subscription" not in headers:
            raise bundled(339037, "Must specify the subscription's id")
        return headers.get("message-id"), headers["subscription"]
    return headers.get("message-id"), None


def _cannot_settle(handle: str | None) -> Refused:
    return bundled(339018, f"Error acknowledging message {'null' if handle is None else handle}")


# -- transactions -----------------------------------------------------------------------------


def _transaction(link: ArtemisLink, name: str) -> ArtemisTransaction:
    """The transaction of that name, which need not have begun."""
    return link.transactions.setdefault(name, ArtemisTransaction(name))


def _begin(link: ArtemisLink, frame: Frame) -> None:
    if "transaction" not in frame.headers:
        raise bundled(339032, "Need a transaction id to begin")
    _transaction(link, frame.headers["transaction"]).begin()


def _commit(link: ArtemisLink, frame: Frame) -> None:
    if "transaction" not in frame.headers:
        raise bundled(339030, "transaction header is mandatory to COMMIT a transaction")
    transaction = _transaction(link, frame.headers["transaction"])
    try:
        link.ask_broker(frame, transaction.commit)
    except BrokerFault:  # which a test has planned
        transaction.forget()
        raise
    link.acknowledge_frame(frame)


def _abort(link: ArtemisLink, frame: Frame) -> None:
    if "transaction" not in frame.headers:
        raise bundled(339033, "transaction header is mandatory to ABORT a transaction")
    _transaction(link, frame.headers["transaction"]).abort()


_NOT_IN_1_0: Final = frozenset({"STOMP", "NACK"})
_GREETINGS: Final = frozenset({"CONNECT", "STOMP"})
_COMMANDS: Final[Mapping[str, Callable[[ArtemisLink, Frame], None]]] = {
    "CONNECT": _connect,
    "STOMP": _stomp,
    "DISCONNECT": _disconnect,
    "SEND": _answered(_send),
    "ACK": _answered(_settle),
    "NACK": _answered(_settle),
    "BEGIN": _answered(_begin),
    "COMMIT": _commit,
    "ABORT": _answered(_abort),
    "SUBSCRIBE": subscribing.subscribe,
    "UNSUBSCRIBE": _answered(subscribing.unsubscribe),
}
