"""
One STOMP connection to a Classic broker: the state that the broker keeps for it, and what each client frame does.

Source: jmsx_classic/BROKER.md; activemq-stomp 6.1.8 ProtocolConverter; error texts are those of a live broker.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Final

from jmsx.core.frames import Frame, MessageFrame
from jmsx.core.headers import INT, whole
from jmsx.testing.classic.consumer import AckEntry, StompAck, StompConsumer
from jmsx.testing.classic.message import (
    MAP_XML,
    TEMP_ALIASES,
    Destination,
    StoredMessage,
    from_send,
    parse_broker_name,
    parse_stomp_name,
    to_message_frame,
)
from jmsx.testing.classic.regions import RegionBroker
from jmsx.testing.classic.subscription import (
    Acknowledgement,
    AckType,
    ClassicTransaction,
    ConsumerOptions,
)
from jmsx.testing.faults import BrokerFault, Fault, ProtocolFault
from jmsx.testing.link import FakeLink, newest_version
from jmsx.testing.runtime import Runtime

#: Begins error texts that go into the body of an ERROR unchanged: a whole trace given by a test, or a lack of rights.
_TRACE: Final = re.compile(r"[\w.$]+Exception\b|User ")

#: SUBSCRIBE headers whose effects are not modelled.
_NOT_MODELLED: Final = {
    "activemq.retroactive",
    "activemq.maximumPendingMessageLimit",
    "activemq.exclusive",
    "activemq.priority",
}
#: How many unacknowledged messages a consumer may have if its SUBSCRIBE names no prefetch size.
_QUEUE_PREFETCH: Final = 1000
_TOPIC_PREFETCH: Final = 32767
_DURABLE_PREFETCH: Final = 100

_SERVER: Final = "ActiveMQ/6.1.8"
_BEFORE_CONNECTED: Final = frozenset({"CONNECT", "STOMP", "DISCONNECT"})


class ClassicLink(FakeLink):
    """One STOMP connection to the fake Classic broker; `client_id` is None before CONNECTED."""

    def __init__(self, runtime: Runtime, links: list[FakeLink], regions: RegionBroker) -> None:
        super().__init__(runtime, links, f"ID:fake-1-1:{runtime.next_id()}")
        self.regions = regions
        self._consumers: list[StompConsumer] = []  #: all that are not unsubscribed, oldest first
        self._subscriptions: dict[str, StompConsumer] = {}  #: by id; a repeated id hides the older
        self._pending_acks: dict[str, AckEntry] = {}  #: by ack id
        self._transactions: dict[str, ClassicTransaction] = {}  #: by the name the client may use
        self._open_transactions: list[ClassicTransaction] = []  #: with those whose COMMIT failed
        self._temporary: dict[str, Destination] = {}  #: by alias
        self._commands: Mapping[str, Callable[[Frame], None]] = {
            "CONNECT": self._connect,
            "STOMP": self._connect,
            "DISCONNECT": self._disconnect,
            "SEND": self._send,
            "ACK": self._ack,
            "NACK": self._nack,
            "BEGIN": self._begin,
            "COMMIT": self._commit,
            "ABORT": self._abort,
            "SUBSCRIBE": self._subscribe,
            "UNSUBSCRIBE": self._unsubscribe,
        }

    def _execute(self, frame: Frame) -> None:
        if frame.command not in self._commands:
            raise ProtocolFault(f"Unknown STOMP action: {frame.command}", fatal=True)
        if frame.command not in _BEFORE_CONNECTED and self.client_id is None:
            raise ProtocolFault("Not connected.")
        for name in _NOT_MODELLED & frame.headers.keys():
            raise NotImplementedError(f"the fake broker has no {name}")
        transformation = frame.headers.get("transformation", MAP_XML)
        if transformation != MAP_XML:
            raise NotImplementedError(f"the fake broker has no transformation {transformation}")
        self._commands[frame.command](frame)

    # -- answers --------------------------------------------------------------------------------

    def _write_error(self, fault: Fault, receipt_id: str | None) -> None:
        """Write an ERROR; its body is the first line of a Java stack trace, except where the client lacks rights."""
        whole_trace = _TRACE.match(fault.message)
        trace = fault.message if whole_trace else f"{fault.java_class}: {fault.message}"
        headers = {"content-type": "text/plain", "message": fault.message}
        if receipt_id is not None:
            headers["receipt-id"] = receipt_id
        self.write(Frame("ERROR", headers, f"{trace}\n".encode()))

    def _refuse(self, fault: Fault, frame: Frame) -> None:
        self._write_error(fault, frame.headers.get("receipt"))
        if isinstance(fault, ProtocolFault) and fault.fatal:
            self.lose()

    def _ask_broker(
        self,
        frame: Frame,
        work: Callable[[], None],
        transaction: ClassicTransaction | None = None,
    ) -> bool:
        """
        Have the broker do `work` for `frame`, and write a RECEIPT or ERROR; returns whether the work was done.

        A failure without `receipt` makes `transaction` rollback-only; a failure with `receipt` does not.
        Source: activemq-broker 6.1.8 TransportConnection.service.
        """
        receipt_id = frame.headers.get("receipt")
        try:
            self.runtime.faults.perform(frame.command, self, work)
        except BrokerFault as fault:
            if transaction is not None and receipt_id is None:
                transaction.rollback_only = True
            self._write_error(fault, receipt_id)
            return False
        if receipt_id is not None:
            self.write(Frame("RECEIPT", {"receipt-id": receipt_id}))
        return True

    # -- connection -----------------------------------------------------------------------------

    def _connect(self, frame: Frame) -> None:
        if self.client_id is not None:
            raise ProtocolFault("Already connected.")
        version = newest_version(frame.headers.get("accept-version"))
        heart_beat = frame.headers.get("heart-beat", "0,0").strip()
        promised, comma, wanted = heart_beat.partition(",")
        receive, send = whole(promised), whole(wanted)
        if not comma or receive is None or send is None:
            raise ProtocolFault(f"Invalid heart-beat header:{heart_beat}", fatal=True)
        self.heart_beat = (send, receive)
        name = frame.headers.get("client-id", self.connection_id)
        try:
            self.runtime.faults.perform("CONNECT", self, lambda: self._register(name))
        except BrokerFault as fault:
            self._write_error(fault, frame.headers.get("receipt"))
            self.lose()
            return
        headers = {
            "server": _SERVER,
            "heart-beat": f"{send},{receive}",
            "session": name,
            "version": version,
        }
        if "receipt" in frame.headers:
            headers |= dict.fromkeys(("response-id", "receipt-id"), frame.headers["receipt"])
        self.write(Frame("CONNECTED", headers))

    def _register(self, client_id: str) -> None:
        if any(other.client_id == client_id for other in self.links):
            raise BrokerFault(
                f"Broker: localhost - Client: {client_id} already connected from tcp://127.0.0.1:1",
                "jakarta.jms.InvalidClientIDException",
            )
        self.client_id = client_id

    def _disconnect(self, frame: Frame) -> None:
        if self.client_id is not None:
            self._ask_broker(frame, lambda: None)
            self.lose()

    def lose(self) -> None:
        """
        End the connection, whether the client or the broker ends it.

        Consumers go first, then temporary destinations, then transactions roll back
        (TransportConnection.processRemoveConnection, TransactionBroker.removeConnection).
        """
        if self.closed:
            return
        self._close()
        for consumer in self._consumers:
            if consumer.subscription is not None:
                consumer.subscription.close()
                consumer.subscription = None
        for destination in self._temporary.values():
            self.regions.delete(destination)
        for transaction in self._open_transactions:
            transaction.rollback()

    # -- names ----------------------------------------------------------------------------------

    def _destination(self, name: str, *, strict: bool = False) -> Destination:
        """
        Return the destination behind a STOMP name; `/temp-queue/x` is created at its first use.

        A name without a prefix is a queue, or if `strict` a ProtocolFault.
        """
        name = name.strip()
        if "," in name:
            raise NotImplementedError(
                f"the fake broker has no composite destinations, save to send to: {name}"
            )
        for prefix, kind in TEMP_ALIASES.items():
            if name.startswith(prefix):
                if name not in self._temporary:
                    real = Destination(kind, f"{self.connection_id}:{len(self._temporary) + 1}")
                    self._temporary[name] = real
                    self.regions.create(real)
                return self._temporary[name]
        found = parse_stomp_name(name)
        if found is None and strict:
            raise ProtocolFault(
                f"Illegal destination name: [{name}] -- ActiveMQ STOMP destinations must begin with one of:"
                " /queue/ /topic/ /temp-queue/ /temp-topic/"
            )
        return found or parse_broker_name(name)

    def _name_of(self, destination: Destination) -> str:
        """Return the STOMP name of `destination` on this connection: its own temporary destinations have an alias."""
        for alias, real in self._temporary.items():
            if real == destination:
                return alias
        return destination.stomp_name

    # -- messages -------------------------------------------------------------------------------

    def _send(self, frame: Frame) -> None:
        name = frame.headers.get("destination")
        if name is None:
            raise ProtocolFault("SEND received without a Destination specified!")
        transaction = self._transaction(frame.headers)
        message_id = f"{self.connection_id}:-1:1:{self.runtime.next_id()}"
        messages = [self._message(frame, each, message_id) for each in name.split(",")]

        def send() -> None:
            for message in messages:
                self.regions.send(message, transaction)

        self._ask_broker(frame, send, transaction)

    def _message(self, frame: Frame, destination: str, message_id: str) -> StoredMessage:
        """Return the message that a SEND delivers to one of its destinations."""
        message = from_send(
            frame,
            self._destination(destination),
            message_id=message_id,
            connection_id=self.connection_id,
            now_ms=self.runtime.now_ms(),
        )
        reply_to = frame.headers.get("reply-to")
        if reply_to is not None:
            try:
                message.reply_to = self._destination(reply_to, strict=True)
            except ProtocolFault:
                message.properties["reply-to"] = reply_to
        return message

    def _deliver(self, consumer: StompConsumer, message: StoredMessage) -> None:
        """Write a MESSAGE; in mode AUTO the message is acknowledged even before the client can see it."""
        ack_id = None
        if consumer.mode is not StompAck.AUTO:
            ack_id = f"ID:fake-1-2:{self.runtime.next_id()}"
            consumer.expect_ack(message.message_id, ack_id)
        elif not consumer.options.browser:
            ack = Acknowledgement(AckType.STANDARD, message.message_id, 1)
            self.runtime.later(lambda: consumer.pass_on(ack, None))
        self.write(
            to_message_frame(
                message,
                name_of=self._name_of,
                subscription=consumer.subscription_id,
                ack_id=ack_id,
                transformation=consumer.options.transformation,
            )
        )

    def _end_browse(self, consumer: StompConsumer) -> None:
        """Write the frame that ends a queue browser's messages."""
        headers = {
            "browser": "end",
            "destination": self._name_of(consumer.options.destination),
            "message-id": "0",
            "subscription": consumer.subscription_id,
        }
        self.write(MessageFrame.of(headers))

    def _ack(self, frame: Frame) -> None:
        if "id" not in frame.headers:
            raise ProtocolFault("ACK received without a ack id for acknowledge!")
        self._settle(frame, StompConsumer.acknowledge)

    def _nack(self, frame: Frame) -> None:
        if "id" not in frame.headers:
            raise ProtocolFault("NACK received without an ack header to acknowledge!")
        self._settle(frame, StompConsumer.refuse)

    def _settle(
        self,
        frame: Frame,
        convert: Callable[[StompConsumer, str, ClassicTransaction | None], Acknowledgement | None],
    ) -> None:
        """Pass an ACK or NACK of a message to the broker; an unknown ack id is answered with an ERROR."""
        transaction = self._transaction(frame.headers)
        entry = self._pending_acks.get(frame.headers["id"])
        ack = None if entry is None else convert(entry.consumer, entry.message_id, transaction)
        if entry is None or ack is None:
            message_id = frame.headers.get("message-id") if entry is None else entry.message_id
            raise ProtocolFault(
                f"Unexpected {frame.command} received for message-id [{message_id or 'null'}]"
            )
        self._ask_broker(frame, lambda: entry.consumer.pass_on(ack, transaction), transaction)

    # -- transactions ---------------------------------------------------------------------------

    def _transaction(self, headers: Mapping[str, str]) -> ClassicTransaction | None:
        name = headers.get("transaction")
        if name is None:
            return None
        if name not in self._transactions:
            raise ProtocolFault(f"Invalid transaction id: {name}")
        return self._transactions[name]

    def _begin(self, frame: Frame) -> None:
        name = frame.headers.get("transaction")
        if name is None:
            raise ProtocolFault("Must specify the transaction you are beginning")
        if name in self._transactions:
            raise ProtocolFault(f"The transaction was already started: {name}")
        transaction = self._transactions[name] = ClassicTransaction()
        self._ask_broker(frame, lambda: self._open_transactions.append(transaction))

    def _take_transaction(self, frame: Frame) -> ClassicTransaction:
        """Return the transaction to end; its name may be used anew at once, even if the frame then fails."""
        name = frame.headers.get("transaction")
        if name is None:
            raise ProtocolFault("Must specify the transaction you are committing")
        transaction = self._transactions.pop(name, None)
        if transaction is None:
            raise ProtocolFault(f"Invalid transaction id: {name}")
        return transaction

    def _commit(self, frame: Frame) -> None:
        transaction = self._take_transaction(frame)
        for consumer in list(self._consumers):
            ack = consumer.commit()
            if ack is not None:
                self._commit_ack(consumer, ack, transaction)

        def work() -> None:
            transaction.commit()
            self._open_transactions.remove(transaction)

        self._ask_broker(frame, work)

    def _commit_ack(
        self, consumer: StompConsumer, ack: Acknowledgement, transaction: ClassicTransaction
    ) -> None:
        """Settle what cumulative ACKs in the transaction only announced; the converter does so itself at COMMIT."""
        self._ask_broker(
            Frame("(the ACK of a COMMIT)"), lambda: consumer.pass_on(ack, transaction), transaction
        )

    def _abort(self, frame: Frame) -> None:
        transaction = self._take_transaction(frame)
        for consumer in self._consumers:
            consumer.abort()

        def work() -> None:
            self._open_transactions.remove(transaction)
            transaction.rollback()

        self._ask_broker(frame, work)

    # -- subscriptions --------------------------------------------------------------------------

    def _subscribe(self, frame: Frame) -> None:
        headers = frame.headers
        if "id" not in headers:
            raise ProtocolFault("SUBSCRIBE received without a subscription id!")
        if not headers.get("destination"):
            raise ProtocolFault("Invalid empty or 'null' Destination header")
        options = self._options(headers, self._destination(headers["destination"]))
        if options.subscription_name is not None and options.destination.is_queue:
            raise ProtocolFault(
                "Invalid Subscription: cannot durably subscribe to a Queue destination!"
            )
        mode = headers.get("ack", "auto")
        ack = StompAck(mode) if mode in set(StompAck) else StompAck.AUTO
        consumer = StompConsumer(headers["id"], ack, options, self._pending_acks)
        self._consumers.append(consumer)
        self._subscriptions[consumer.subscription_id] = consumer
        self._open(frame, consumer)

    def _options(self, headers: Mapping[str, str], destination: Destination) -> ConsumerOptions:
        """Return what a SUBSCRIBE asks for; unknown options and bad numbers are ignored, as on the real broker."""
        name = headers.get("activemq.subscriptionName")
        if "*" in destination.name or ">" in destination.name:
            raise NotImplementedError(f"the fake broker has no wildcards: {destination}")
        prefetch = _QUEUE_PREFETCH if destination.is_queue else _TOPIC_PREFETCH
        if name is not None:
            prefetch = _DURABLE_PREFETCH
        told = whole(headers.get("activemq.prefetchSize"), least=~INT, most=INT)
        return ConsumerOptions(
            connection_id=self.connection_id,
            destination=destination,
            prefetch=prefetch if told is None else told,
            selector_text=headers.get("selector"),
            subscription_name=name,
            no_local=headers.get("activemq.noLocal") == "true",
            browser=headers.get("browser") == "true",
            transformation=headers.get("transformation"),
        )

    def _open(self, frame: Frame, consumer: StompConsumer) -> None:
        """
        Add the consumer; with a receipt its window stays shut until the RECEIPT is written.

        The new consumer wakes the queue, and so does its window when it opens.
        Source: ProtocolConverter.onStompSubscribe.
        """
        options = consumer.options
        prefetch = options.prefetch
        shut = "receipt" in frame.headers and prefetch > 0
        if shut:
            options.prefetch = 0

        def work() -> None:
            consumer.subscription = self.regions.subscribe(
                options,
                self.client_id or "",
                lambda message: self._deliver(consumer, message),
                lambda: self._end_browse(consumer),
            )

        done = self._ask_broker(frame, work)
        self.runtime.settle()
        if done and shut and consumer.subscription is not None:
            options.prefetch = prefetch
            consumer.subscription.open_window()

    def _unsubscribe(self, frame: Frame) -> None:
        headers = frame.headers
        if "id" not in headers:
            raise ProtocolFault("UNSUBSCRIBE received without a subscription id!")
        durable = headers.get("activemq.subscriptionName")
        if durable is not None:
            client_id = self.client_id or ""
            self._ask_broker(frame, lambda: self.regions.delete_durable(client_id, durable))
            return
        consumer = self._subscriptions.pop(headers["id"], None)
        if consumer is None:
            raise ProtocolFault("No subscription matched.")
        self._consumers.remove(consumer)
        self._ask_broker(frame, lambda: self._end(consumer))

    def _end(self, consumer: StompConsumer) -> None:
        subscription, consumer.subscription = consumer.subscription, None
        if subscription is None:
            raise BrokerFault(
                "Cannot remove a consumer that had not been registered:"
                f" {self.connection_id}:-1:{self.runtime.next_id()}",
                "java.lang.IllegalStateException",
            )
        subscription.close()
