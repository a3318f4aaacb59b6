"""
One STOMP connection to an Artemis broker: the state that the broker keeps for it, and what each client frame does.

Source: jmsx_artemis/BROKER.md; artemis-stomp-protocol 2.44.0 VersionedStompFrameHandler, StompFrameHandlerV12,
StompConnection and StompSession; error texts are those of a live broker.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from jmsx.core.frames import Frame
from jmsx.core.headers import INT, LONG, whole
from jmsx.testing.artemis import management
from jmsx.testing.artemis.message import (
    SENDER,
    CoreMessage,
    Filter,
    Refused,
    Routing,
    destination_of,
    explained,
    from_send,
    numbered,
    split,
    to_message_frame,
)
from jmsx.testing.artemis.post_office import ArtemisTransaction, PostOffice
from jmsx.testing.artemis.queue import (
    UNLIMITED,
    ArtemisConsumer,
    ArtemisQueue,
    ConsumerOptions,
    Reference,
)
from jmsx.testing.faults import Fault
from jmsx.testing.link import FakeLink, newest_version
from jmsx.testing.runtime import Runtime

_SERVER: Final = "ActiveMQ-Artemis/2.44.0 ActiveMQ Artemis Messaging Engine"
#: Bytes that a consumer may have in flight, if its SUBSCRIBE names no window.
_WINDOW: Final = 10 * 1024
_TTL: Final = 60_000  #: milliseconds without a byte that a client without heart-beats survives
_SHORTEST_TTL: Final = 1000
_TTL_PER_BEAT: Final = 2
_SHORTEST_BEAT: Final = 500  #: milliseconds between two heart-beats of the broker, at least

_GREETINGS: Final = frozenset({"CONNECT", "STOMP"})
_DURABLE_NAMES: Final = (
    "durable-subscription-name",
    "durable-subscriber-name",
    "activemq.subscriptionName",
)


class ArtemisLink(FakeLink):
    """One STOMP connection to the fake Artemis broker."""

    end_of_frame = b"\0\n"

    def __init__(self, runtime: Runtime, links: list[FakeLink], office: PostOffice) -> None:
        super().__init__(runtime, links, f"{runtime.next_id():08x}")
        self.office = office
        self._is_connected = False
        self.heart_beat = (0, _TTL)
        self._consumers: dict[int, ArtemisConsumer] = {}  #: by number, oldest first
        self._transactions: dict[str, ArtemisTransaction] = {}  #: by id, ended ones too
        #: The size in bytes of each message that may be acknowledged, by consumer number and message id.
        self._sizes: dict[tuple[int, int], int] = {}
        self._commands: Mapping[str, Callable[[Frame], None]] = {
            "CONNECT": self._connect,
            "STOMP": self._stomp,
            "DISCONNECT": self._disconnect,
            "SEND": self._answered(self._send),
            "ACK": self._answered(self._settle),
            "NACK": self._answered(self._settle),
            "BEGIN": self._answered(self._begin),
            "COMMIT": self._answered(self._commit),
            "ABORT": self._answered(self._abort),
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._answered(self._unsubscribe),
        }

    def _execute(self, frame: Frame) -> None:
        if frame.command not in self._commands:
            raise NotImplementedError(f"the fake broker has no answer to {frame.command}")
        if not self._is_connected and frame.command not in _GREETINGS:
            raise NotImplementedError(
                "the fake broker has no connection that does not begin with CONNECT"
            )
        self._commands[frame.command](frame)

    # -- answers --------------------------------------------------------------------------------

    def _ask_broker(self, frame: Frame, work: Callable[[], None]) -> None:
        """Do `work` for `frame`, unless a fault that a test has planned prevents it, and write the RECEIPT."""
        self.runtime.faults.perform(frame.command, self, work)
        self._write_receipt(frame)

    def _write_receipt(self, frame: Frame) -> None:
        if "receipt" in frame.headers:
            self.write(Frame("RECEIPT", {"receipt-id": frame.headers["receipt"]}))

    def _answered(self, work: Callable[[Frame], None]) -> Callable[[Frame], None]:
        """Return a command whose RECEIPT is written when it is done."""
        return lambda frame: self._ask_broker(frame, lambda: work(frame))

    def _refuse(self, fault: Fault, frame: Frame) -> None:
        """Write an ERROR and close, as STOMP 1.2 demands; the ERROR of a SUBSCRIBE has no `receipt-id`."""
        headers = {"message": fault.message}
        body = b""
        if isinstance(fault, Refused) and fault.body is not None:
            body = fault.body.encode()
            headers["content-type"] = "text/plain"
        if frame.command != "SUBSCRIBE" and "receipt" in frame.headers:
            headers["receipt-id"] = frame.headers["receipt"]
        if body:
            headers["content-length"] = str(len(body))
        self.write(Frame("ERROR", headers, body))
        self._end(attempts=1)

    # -- connection -----------------------------------------------------------------------------

    def _connect(self, frame: Frame) -> None:
        headers = frame.headers
        version = newest_version(headers.get("accept-version"))
        self.runtime.faults.perform("CONNECT", self, lambda: None)
        self.client_id = headers.get("client-id")
        told = {"session": self.connection_id, "version": version, "server": _SERVER}
        if "heart-beat" in headers:
            told["heart-beat"] = self._agree_on_beats(headers["heart-beat"])
        if "receipt" in headers:
            told["receipt-id"] = headers["receipt"]
        self._is_connected = True
        self.write(Frame("CONNECTED", told))

    def _agree_on_beats(self, wanted: str) -> str:
        """
        Return the broker's `heart-beat` header: it sends as often as asked, and wants beats at half the time to live.

        Source: artemis-stomp-protocol 2.44.0 StompFrameHandlerV11.HeartBeater.
        """
        parts = wanted.split(",")
        if len(parts) != 2:  # noqa: PLR2004 - what we beat and what we expect
            raise Refused(f"Incorrect heartbeat header {wanted}")
        client, server = map(_beat, parts)
        _, ttl = self.heart_beat
        if client:
            ttl = max(client * _TTL_PER_BEAT, _SHORTEST_TTL)
        ours = max(server, _SHORTEST_BEAT) if server else 0
        self.heart_beat = (ours, ttl)
        return f"{ours},{ttl // _TTL_PER_BEAT}"

    def _stomp(self, frame: Frame) -> None:
        """Connect, which STOMP may do only once."""
        if self._is_connected:
            self._write_receipt(frame)
        else:
            self._connect(frame)

    def _disconnect(self, frame: Frame) -> None:
        self._ask_broker(frame, lambda: None)
        self._end(attempts=1)

    def lose(self) -> None:
        """End the connection because its socket is dead: every message in flight counts as a delivery attempt."""
        self._end(attempts=None)

    def _end(self, *, attempts: int | None) -> None:
        """
        Give back the messages in flight, and discard open transactions.

        The temporary queues of its subscriptions are deleted. For `attempts` see `ArtemisConsumer.close`.
        """
        if self.closed:
            return
        self._close()
        for consumer in list(self._consumers.values()):
            self._end_consumer(consumer, attempts)

    def _end_consumer(self, consumer: ArtemisConsumer, attempts: int | None) -> None:
        del self._consumers[consumer.number]
        consumer.close(attempts)
        if consumer.queue.temporary:
            self.office.delete_queue(consumer.queue)

    # -- messages -------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        headers = frame.headers
        is_known = any(consumer.options.no_local for consumer in self._consumers.values())
        if is_known and "transaction" not in headers:
            frame = Frame("SEND", {**headers, SENDER: self.connection_id}, frame.body)
        message = from_send(frame, message_id=self.runtime.next_id(), now_ms=self.runtime.now_ms())
        if message.address == management.ADDRESS:
            management.ask(self.office, message)
            return
        self.office.provide(message.address, message.routing)
        name = headers.get("transaction")
        self.office.route(message, None if name is None else self._transaction(name))

    def _deliver(self, consumer: ArtemisConsumer, reference: Reference) -> int:
        """Write a MESSAGE and return its bytes; in mode `auto` it is acknowledged at once."""
        message_id = reference.message.message_id
        is_auto = consumer.options.mode == "auto"
        frame = to_message_frame(
            reference.message,
            subscription=consumer.options.subscription_id,
            handle=f"{consumer.number},{message_id}",
            redelivered=reference.delivery_count > 1,
            acknowledged=not is_auto,
        )
        size = len(b"MESSAGE\n\n\n") + len(frame.block) + len(frame.body) + len(self.end_of_frame)
        if is_auto:
            self.runtime.later(lambda: self._acknowledge_by_itself(consumer, message_id))
        else:
            self._sizes[consumer.number, message_id] = size
        self.write(frame)
        return size

    def _acknowledge_by_itself(self, consumer: ArtemisConsumer, message_id: int) -> None:
        if message_id in consumer.delivering:
            consumer.acknowledge(message_id)

    def _settle(self, frame: Frame) -> None:
        """
        ACK and NACK, which both consume the message at once, whatever transaction they name.

        Source: artemis-stomp-protocol 2.44.0 StompSession.acknowledge.
        """
        if "id" not in frame.headers:
            raise numbered(339039, "No id header in ACK/NACK frame.")
        handle = frame.headers["id"]
        cannot = numbered(339018, f"Error acknowledging message {handle}")
        match [whole(part, least=~LONG) for part in handle.split(",")]:
            case [int(number), int(message_id)]:
                size = self._sizes.pop((number, message_id), None)
            case _:
                raise cannot
        if size is None:
            raise numbered(339025, f"failed to ack because no message with id {handle}")
        if number not in self._consumers:
            raise cannot
        consumer = self._consumers[number]
        for settled in consumer.acknowledge(message_id):
            size += self._sizes.pop((number, settled), 0)
        if consumer.options.window != UNLIMITED:
            consumer.give_credits(size)

    # -- transactions ---------------------------------------------------------------------------

    def _transaction(self, name: str) -> ArtemisTransaction:
        """Return the transaction of that name, which need not have begun."""
        return self._transactions.setdefault(name, ArtemisTransaction(name))

    def _begin(self, frame: Frame) -> None:
        if "transaction" not in frame.headers:
            raise numbered(339032, "Need a transaction id to begin")
        self._transaction(frame.headers["transaction"]).begin()

    def _commit(self, frame: Frame) -> None:
        if "transaction" not in frame.headers:
            raise numbered(339030, "transaction header is mandatory to COMMIT a transaction")
        self._transaction(frame.headers["transaction"]).commit()

    def _abort(self, frame: Frame) -> None:
        if "transaction" not in frame.headers:
            raise numbered(339033, "transaction header is mandatory to ABORT a transaction")
        self._transaction(frame.headers["transaction"]).abort()

    # -- subscriptions --------------------------------------------------------------------------

    def _subscribe(self, frame: Frame) -> None:
        """Make a consumer, which gets no message before the RECEIPT is written."""
        opened: list[ArtemisConsumer] = []
        self._ask_broker(frame, lambda: opened.append(self._open(frame.headers)))
        opened[0].open_window()

    def _open(self, headers: Mapping[str, str]) -> ArtemisConsumer:
        routing = _routing(headers.get("subscription-type"))
        window = _window(headers)
        destination = destination_of(headers)
        subscription_id = headers.get("id", f"subscription/{destination}")
        selector = Filter(headers["selector"]) if "selector" in headers else None
        self.office.provide(destination, routing)
        if any(c.options.subscription_id == subscription_id for c in self._consumers.values()):
            raise Refused(
                f"There already is a subscription for: {subscription_id}. Either use unique subscription IDs or do not"
                " create multiple subscriptions for the same destination"
            )
        mode = headers.get("ack", "auto")
        if window is None:
            window = UNLIMITED if mode == "auto" else _WINDOW
        options = ConsumerOptions(
            subscription_id=subscription_id,
            mode=mode,
            window=window,
            no_local=headers.get("no-local", headers.get("activemq.noLocal", "")).lower() == "true",
        )
        address, queue_name = split(destination)
        queue: ArtemisQueue | None
        if queue_name is None and self.office.addresses[address].is_topic:
            queue = self._subscription_queue(headers, options, address, selector)
            selector = None  # the subscription's queue filters already
        else:
            queue = self.office.queues.get(queue_name or address)
        if queue is None:
            raise numbered(339016, f"Error creating subscription {subscription_id}")

        def wants(message: CoreMessage) -> bool:
            if options.no_local and message.properties.get(SENDER) == self.connection_id:
                return False
            return selector is None or selector.wants(message)

        consumer = ArtemisConsumer(self.runtime.next_id(), queue, options, wants, self._deliver)
        self._consumers[consumer.number] = consumer
        queue.add_consumer(consumer)
        return consumer

    def _subscription_queue(
        self,
        headers: Mapping[str, str],
        options: ConsumerOptions,
        address: str,
        selector: Filter | None,
    ) -> ArtemisQueue:
        """Return the queue of a durable subscription, made if need be, or a new one that goes with the consumer."""
        name = _durable_name(headers)
        if name is None:
            own = f"{address}-{self.runtime.next_id()}"
            return self.office.provide_subscription(own, address, selector, temporary=True)
        if self.client_id is None:
            raise numbered(339016, f"Error creating subscription {options.subscription_id}")
        durable = f"{self.client_id}.{name}"
        return self.office.provide_subscription(durable, address, selector, temporary=False)

    def _unsubscribe(self, frame: Frame) -> None:
        """End a consumer; with a durable name also delete that subscription, which is an ERROR while others use it."""
        name = _durable_name(frame.headers)
        subscription_id = frame.headers.get("id")
        if subscription_id is None and name is None:
            raise numbered(339037, "Must specify the subscription's id")
        found = [
            consumer
            for consumer in self._consumers.values()
            if consumer.options.subscription_id == subscription_id
        ]
        for consumer in found:
            self._end_consumer(consumer, attempts=0)
        if name is not None and self.client_id is not None:
            queue = self.office.queues.get(f"{self.client_id}.{name}")
            if queue is not None and queue.consumers:
                raise numbered(339017, f"Error unsubscribing {subscription_id}")
            if queue is not None:
                self.office.delete_queue(queue)
        elif not found:
            raise Refused(f"Cannot unsubscribe as no subscription exists for id: {subscription_id}")


def _beat(text: str) -> int:
    number = whole(text, least=~INT, most=INT)
    if number is None:
        raise Refused(f'For input string: "{text}"')
    return number


def _routing(text: str | None) -> Routing | None:
    if text is None or text in set(Routing):
        return None if text is None else Routing(text)
    kind = "org.apache.activemq.artemis.api.core.RoutingType"
    raise explained(f"No enum constant {kind}.{text}")


def _window(headers: Mapping[str, str]) -> int | None:
    """Return the window in bytes. Artemis also takes Classic's `activemq.prefetchSize`, but reads it as bytes."""
    text = headers.get("consumer-window-size", headers.get("activemq.prefetchSize"))
    if text is None:
        return None
    number = whole(text, least=~INT, most=INT)
    if number is None:
        raise explained(f'For input string: "{text}"')
    return number


def _durable_name(headers: Mapping[str, str]) -> str | None:
    return next((headers[name] for name in _DURABLE_NAMES if name in headers), None)
