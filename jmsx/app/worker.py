"""A worker: one session that feeds one handler."""

from __future__ import annotations

import threading
import time
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any

from jmsx.app.health import WorkerState
from jmsx.app.signature import connection_parameter
from jmsx.core.values import AcknowledgeMode
from jmsx.errors import IllegalStateError, StoreError
from jmsx.handlers import check_ran
from jmsx.log import logger
from jmsx.steering import Duplicate, Reject

if TYPE_CHECKING:
    from collections.abc import Mapping

    from jmsx.app.progress import Progress
    from jmsx.app.registration import Consumer
    from jmsx.jms.connection import Connection
    from jmsx.jms.destination import Destination
    from jmsx.jms.message import Message
    from jmsx.uri import BrokerAddress

_log = logger("jmsx.app")


@dataclass(frozen=True, slots=True)
class Call:
    """A handler at work on one message."""

    message_id: str | None
    since: float = field(default_factory=time.monotonic)  #: seconds, monotonic
    thread: int = field(default_factory=threading.get_ident)


class Worker:
    """Runs `consumer.handler` for the messages of `connection`, which is its own, in one session."""

    def __init__(self, consumer: Consumer, connection: Connection) -> None:
        self.consumer = consumer
        self.call: Call | None = None  #: what its handler is doing
        self._connection = connection
        self._left = False  #: told to close: that its threads end is what is wanted
        self._database = connection_parameter(consumer.handler)
        self._session = connection.create_session(consumer.mode)
        self._producer = self._session.create_producer()
        if consumer.durable is not None:
            subscription = self._session.create_durable_consumer(
                consumer.destination,
                consumer.durable,
                selector=consumer.selector,
                name=consumer.name,
            )
        else:
            subscription = self._session.create_consumer(
                consumer.destination, selector=consumer.selector, name=consumer.name
            )
        self._settle = {
            AcknowledgeMode.SESSION_TRANSACTED: self._transact,
            AcknowledgeMode.CLIENT_ACKNOWLEDGE: self._acknowledge_or_recover,
            AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE: self._acknowledge,
        }.get(consumer.mode, self._handle)
        subscription.set_listener(self._listen)

    @property
    def transacted(self) -> bool:
        """Whether what its handler receives and sends takes effect together."""
        return self._session.transacted

    def send(self, message: Message, to: Destination | str, options: dict[str, Any]) -> str:
        """
        Send one message in the transaction of the handler that calls; returns its key.

        Raises IllegalStateError with an idempotency store: it would know the message as done before the transaction is
        committed, and what is lost with that would never be sent.
        """
        if self.consumer.dedupe is not None:
            raise IllegalStateError(
                f"consumer {self.consumer.name}: with dedupe= a SESSION_TRANSACTED handler cannot send: the message"
                " would be known as done although its sends were lost with their transaction; use another mode,"
                " where app.send() is confirmed at once"
            )
        return self._producer.send(message, destination=to, **options)

    @property
    def session_id(self) -> str:
        """Of its session."""
        return self._session.session_id

    @property
    def dialect(self) -> str:
        """The kind of its broker."""
        return self._session.dialect.name

    @property
    def address(self) -> BrokerAddress:
        """Of its broker."""
        return self._session.address

    @property
    def connected(self) -> bool:
        """Whether it has a link, as far as we know, and is subscribed on it."""
        return self._session.connected

    @property
    def greeting(self) -> Mapping[str, str]:
        """What the broker said when its link was opened; another object for each link."""
        return self._session.greeting

    @property
    def link(self) -> str:
        """What the broker calls the link that it has now."""
        return self.greeting.get("session", "")

    def renew(self, reason: str) -> None:
        """Subscribe anew, on a new link."""
        self._session.renew(reason)

    def begin(self) -> None:
        """Let messages flow."""
        self._connection.start()

    def rest(self, timeout: float) -> bool:
        """Begin nothing more, and wait for what runs; False if that still runs after `timeout` seconds."""
        return self._connection.stop(timeout)

    def close(self) -> None:
        """
        Give back what was not begun, and say farewell.

        When this returns, the broker has confirmed the UNSUBSCRIBE, and with it all acknowledgements before it on the
        same socket: it answers in order. Raises JmsxError if it did not.
        """
        self._left = True
        self._connection.close()

    def abort(self) -> None:
        """Drop the socket; what is not settled is the broker's again."""
        self._left = True
        self._connection.abort()

    def state(self, progress: Progress, stranded: int) -> WorkerState:
        """How it stands, for a probe."""
        call = self.call
        return WorkerState(
            consumer=self.consumer.name,
            destination=self.consumer.destination.uri,
            movement=progress.movement(self._session.session_id),
            alive=self._left or self._session.alive,
            running_since=call.since if call else None,
            message_id=call.message_id if call else None,
            stranded=stranded,
        )

    def _listen(self, message: Message) -> None:
        """Handle and settle one message, and let others see that it is being done."""
        self.call = Call(message.message_id)
        try:
            self._settle(message)
        finally:
            self.call = None

    def _handle(self, message: Message) -> None:
        """Call the handler, once; an error that no retry can cure becomes a Reject."""
        try:
            self._call_once(message)
        except self.consumer.give_up_on as error:
            raise Reject from error

    def _call_once(self, message: Message) -> None:
        consumer, store = self.consumer, self.consumer.dedupe
        client_id = self._session.options.client_id
        identity = None if store is None else consumer.identity(message, client_id)
        if store is None or identity is None:
            if self._database is not None:
                raise StoreError(
                    f"dedupe_by= names no key for message {message.message_id}, and without one there is no"
                    f" transaction for {self._database}="
                )
            self._call_handler(message, None)
        elif not store.once(identity, partial(self._call_handler, message)):
            _log.info("duplicate", consumer=consumer.name, message_id=message.message_id)
            raise Duplicate

    def _call_handler(self, message: Message, database: Any) -> None:
        arguments = (message, self._session) if self.consumer.takes_session else (message,)
        named = {self._database: database} if self._database is not None else {}
        handler = self.consumer.handler
        check_ran(handler, handler(*arguments, **named))

    def _acknowledge(self, message: Message) -> None:
        """Acknowledge what the handler has done; a second time does no harm."""
        self._handle(message)
        message.acknowledge()

    def _acknowledge_or_recover(self, message: Message) -> None:
        """The same, for a mode that would take a raising handler for one that has done its work."""
        try:
            self._acknowledge(message)
        except BaseException as error:  # noqa: BLE001 - whatever the handler raises
            self._session.recover(error)

    def _transact(self, message: Message) -> None:
        """Commit what the handler received and sent, or roll it back if it raised."""
        try:
            self._handle(message)
        except Duplicate as error:
            self._session.rollback(error)
        except BaseException as error:  # noqa: BLE001 - whatever the handler raises rolls back
            _log.warning(
                "transaction rolled back",
                consumer=self.consumer.name,
                message_id=message.message_id,
                delivery_count=message.delivery_count,
                error=type(error).__name__,
            )
            self._session.rollback(error)
        else:
            self._session.commit()
