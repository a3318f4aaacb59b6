"""
One connection of a Classic broker, and what STOMP keeps per connection.

Source: activemq-stomp 6.1.8 ProtocolConverter.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.core.frames import Frame
from jmsx.testing.classic import commands
from jmsx.testing.classic.destination import (
    TEMP_ALIASES,
    Destination,
    parse_broker_name,
    parse_stomp_name,
)
from jmsx.testing.fake_link import FakeLink
from jmsx.testing.faults import BrokerFault, Fault, ProtocolFault

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.classic.consumer import AckEntry, StompConsumer
    from jmsx.testing.classic.house import ClassicHouse
    from jmsx.testing.classic.transaction import FakeTransaction
    from jmsx.testing.fake_broker import FakeBroker


class ClassicLink(FakeLink):
    """One connection; `client_id` is None before CONNECTED."""

    def __init__(self, broker: FakeBroker, house: ClassicHouse, connection_id: str) -> None:
        super().__init__(broker, connection_id)
        self.house = house
        self.consumers: list[StompConsumer] = []  #: all that are not unsubscribed, oldest first
        self.subscriptions: dict[str, StompConsumer] = {}  #: by id; a repeated id hides the older
        self.pending_acks: dict[str, AckEntry] = {}
        self.transactions: dict[str, FakeTransaction] = {}  #: by the name that the client may use
        self.open_transactions: list[FakeTransaction] = []  #: with those whose COMMIT failed
        self._temporary: dict[str, Destination] = {}

    def _execute(self, frame: Frame) -> None:
        commands.execute(self, frame)

    def write_error(self, fault: Fault, receipt_id: str | None) -> None:
        """Tell the client; the body is what a Java stack trace would begin with."""
        headers = {"content-type": "text/plain", "message": fault.message}
        if receipt_id is not None:
            headers["receipt-id"] = receipt_id
        self.write(Frame("ERROR", headers, f"{fault.java_class}: {fault.message}\n".encode()))

    def _refuse(self, fault: Fault, frame: Frame) -> None:
        self.write_error(fault, frame.headers.get("receipt"))
        if isinstance(fault, ProtocolFault) and fault.fatal:
            self.lose()

    def ask_broker(
        self,
        frame: Frame,
        work: Callable[[], None],
        transaction: FakeTransaction | None = None,
    ) -> bool:
        """
        Have the broker do `work` for `frame` and answer; returns whether it was done.

        A failure without `receipt` makes `transaction` rollback-only; a failure with `receipt` does not.
        Source: TransportConnection.service; jmsx_classic/BROKER.md C31.
        """
        planned = self.broker.faults.take(frame.command, self)
        receipt_id = frame.headers.get("receipt")
        try:
            if planned is not None:
                planned.before()
            work()
        except BrokerFault as fault:
            if transaction is not None and receipt_id is None:
                transaction.rollback_only = True
            self.write_error(fault, receipt_id)
            return False
        if planned is not None:
            planned.after()
        if receipt_id is not None:
            self.write(Frame("RECEIPT", {"receipt-id": receipt_id}))
        return True

    def lose(self) -> None:
        """
        End the connection, from whichever side.

        Consumers go first, then temporary destinations, then transactions roll back (TransportConnection
        .processRemoveConnection; TransactionBroker.removeConnection).
        """
        if self.closed:
            return
        self.closed = True
        for consumer in self.consumers:
            if consumer.subscription is not None:
                self.house.remove_consumer(consumer)
        self.consumers.clear()
        for destination in self._temporary.values():
            self.house.delete(destination)
        for transaction in self.open_transactions:
            transaction.rollback()
        self.open_transactions.clear()
        self.broker.forget(self)

    # -- names ----------------------------------------------------------------------------------

    def destination(self, name: str, *, strict: bool = False) -> Destination:
        """
        The destination behind a STOMP name; `/temp-queue/x` is created at its first use.

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
                    real = f"{self.connection_id}:{len(self._temporary) + 1}"
                    self._temporary[name] = self.house.create(Destination(kind, real))
                return self._temporary[name]
        found = parse_stomp_name(name)
        if found is None and strict:
            raise ProtocolFault(
                f"Illegal destination name: [{name}] -- ActiveMQ STOMP destinations must begin with one of:"
                " /queue/ /topic/ /temp-queue/ /temp-topic/"
            )
        return found or parse_broker_name(name)

    def name_of(self, destination: Destination) -> str:
        """How this connection sees `destination`: its own temporary ones under their alias."""
        for alias, real in self._temporary.items():
            if real == destination:
                return alias
        return destination.stomp_name
