"""A worker: one session that feeds one handler."""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.values import AcknowledgeMode
from jmsx.log import logger
from jmsx.steering import Reject

if TYPE_CHECKING:
    from jmsx.app.registration import Consumer
    from jmsx.jms.connection import Connection
    from jmsx.jms.message import Message

_log = logger("jmsx.app")


class Worker:
    """Runs `consumer.handler` for the messages of a session of its own, from construction on."""

    def __init__(self, consumer: Consumer, connection: Connection) -> None:
        self._consumer = consumer
        self._session = connection.create_session(consumer.mode)
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
        subscription.set_listener(
            {
                AcknowledgeMode.SESSION_TRANSACTED: self._transact,
                AcknowledgeMode.CLIENT_ACKNOWLEDGE: self._acknowledge_or_recover,
                AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE: self._acknowledge,
            }.get(consumer.mode, self._handle)
        )

    def _handle(self, message: Message) -> None:
        """Call the handler; an error that no retry can cure becomes a Reject."""
        try:
            if self._consumer.takes_session:
                self._consumer.handler(message, self._session)
            else:
                self._consumer.handler(message)
        except self._consumer.give_up_on as error:
            raise Reject from error

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
        except BaseException as error:  # noqa: BLE001 - whatever the handler raises rolls back
            _log.warning(
                "transaction rolled back",
                consumer=self._consumer.name,
                message_id=message.message_id,
                delivery_count=message.delivery_count,
                error=type(error).__name__,
            )
            self._session.rollback(error)
        else:
            self._session.commit()
