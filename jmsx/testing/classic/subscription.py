"""
The broker's side of subscriptions and transactions: a subscription's window, what is dispatched, what an ACK does.

A subscription does not know STOMP: `deliver` hands a message to the connection, and acknowledgements come as
`Acknowledgement` values.
Source: jmsx_classic/BROKER.md; activemq-broker 6.1.8 AbstractSubscription, PrefetchSubscription, Transaction and
LocalTransaction.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Protocol

from jmsx.testing.classic.message import Destination, StoredMessage
from jmsx.testing.faults import BrokerFault
from jmsx.testing.selector import Selector, SelectorValueError


class Region(Protocol):
    """What a destination needs from its broker."""

    def now_ms(self) -> int:
        """Return epoch milliseconds."""

    def send_to_dead_letter_queue(self, message: StoredMessage, cause: str | None) -> None:
        """Copy `message` into the broker's dead letter queue."""


def expiry_cause(message: StoredMessage) -> str:
    """Return the broker's text for the cause of an expired message's dead letter."""
    return f"java.lang.Throwable: Message Expired. Expiration:{message.expires}"


def _nothing() -> None:
    """Do nothing."""


@dataclass(slots=True, eq=False)
class ClassicTransaction:
    """One local transaction; it outlives its STOMP name when a COMMIT fails."""

    rollback_only: bool = False
    _steps: list[tuple[Callable[[], None], Callable[[], None]]] = field(default_factory=list)

    def enlist(
        self,
        *,
        on_commit: Callable[[], None] = _nothing,
        on_rollback: Callable[[], None] = _nothing,
    ) -> None:
        """Remember what is to be done when the transaction commits or rolls back."""
        self._steps.append((on_commit, on_rollback))

    def commit(self) -> None:
        """
        Do all commit steps, oldest first.

        Raises BrokerFault if rollback-only; the transaction then stays open and nothing is undone, until its
        connection dies (LocalTransaction.commit rethrows without rolling back).
        """
        if self.rollback_only:
            raise BrokerFault(
                "COMMIT FAILED: Transaction marked rollback only xaErrorCode:100",
                "javax.transaction.xa.XAException",
            )
        steps, self._steps = self._steps, []
        for on_commit, _ in steps:
            on_commit()

    def rollback(self) -> None:
        """Do all rollback steps, newest first."""
        steps, self._steps = self._steps, []
        for _, on_rollback in reversed(steps):
            on_rollback()


class AckType(StrEnum):
    """What an acknowledgement inside the broker means; the value is ActiveMQ's number."""

    DELIVERED = "0"  #: widens the window, settles nothing
    POISON = "1"  #: to the dead letter queue
    STANDARD = "2"  #: everything up to `last`
    INDIVIDUAL = "4"  #: only `last`


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One acknowledgement command (ActiveMQ's MessageAck) as the STOMP converter makes it."""

    type: AckType
    last: str  #: message id
    count: int

    def __str__(self) -> str:
        return (
            f"MessageAck {{ackType = {self.type.value}, lastMessageId = {self.last},"
            f" messageCount = {self.count}}}"
        )


@dataclass(slots=True, eq=False, kw_only=True)
class ConsumerOptions:
    """What a SUBSCRIBE asked for."""

    connection_id: str
    destination: Destination
    prefetch: int  #: messages; 0: none ever come, as STOMP cannot pull
    selector_text: str | None = None
    selector: Selector | None = None
    subscription_name: str | None = None  #: of a durable subscription; else None
    no_local: bool = False  #: do not deliver what the same connection sent
    browser: bool = False
    transformation: str | None = None  #: how bodies that STOMP lacks are encoded


class Subscription(ABC):
    """One consumer: its messages in flight, and how many more it takes."""

    def __init__(
        self, options: ConsumerOptions, region: Region, deliver: Callable[[StoredMessage], None]
    ) -> None:
        self.options = options
        self.region = region
        self.deliver = deliver
        self.dispatched: dict[str, StoredMessage] = {}  #: by message id, in order of dispatch
        self.extension = 0  #: by how many messages the window exceeds `options.prefetch`

    @property
    def is_full(self) -> bool:
        """Whether its prefetch window is full, so that it takes no more."""
        prefetch = self.options.prefetch
        return prefetch == 0 or len(self.dispatched) - self.extension >= prefetch

    def matches(self, message: StoredMessage) -> bool:
        """
        Return whether its selector and noLocal let `message` in.

        Raises NotImplementedError where the selector calculates with a string: on the real broker that stops the
        dispatch of the whole queue, for all its consumers, until this one is gone (seen live on 6.1.8).
        """
        options = self.options
        if options.no_local and message.connection_id == options.connection_id:
            return False
        try:
            return options.selector is None or options.selector.matches(message.lookup)
        except SelectorValueError as error:
            raise NotImplementedError(
                f"the fake broker has no way to break a queue as this selector would:"
                f" {options.selector_text}: {error}"
            ) from error

    def dispatch(self, message: StoredMessage) -> None:
        """Put `message` in flight."""
        self.dispatched[message.message_id] = message
        self.deliver(message)

    def expand(self, messages: int) -> None:
        """Widen the window by a number of messages; with prefetch 0 nothing happens."""
        if self.options.prefetch:
            self.extension += messages

    def contract(self, messages: int) -> None:
        """Narrow a widened window by a number of messages, never below the prefetch."""
        if self.options.prefetch:
            self.extension = max(0, self.extension - messages)

    @abstractmethod
    def acknowledge(self, ack: Acknowledgement, transaction: ClassicTransaction | None) -> None:
        """Carry out `ack`; raises BrokerFault if it does not match the dispatched messages."""

    @abstractmethod
    def open_window(self) -> None:
        """Dispatch what the window now allows."""

    @abstractmethod
    def close(self) -> None:
        """End the subscription; its messages in flight go back to a queue or durable subscription, or are lost."""


class StoreSubscription(Subscription):
    """A subscription whose messages are stored until they are settled: to a queue, or a durable one."""

    @abstractmethod
    def settle(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Remove `message` from its store, now or when `transaction` commits."""

    def acknowledge(self, ack: Acknowledgement, transaction: ClassicTransaction | None) -> None:
        """Do what `ack` says, then dispatch what the window now allows."""
        if ack.type is AckType.STANDARD:
            self._acknowledge_range(ack, transaction)
        elif ack.last not in self.dispatched:
            if ack.type is not AckType.INDIVIDUAL:  # the broker ignores an unknown INDIVIDUAL
                raise BrokerFault(
                    f"Could not correlate acknowledgment with dispatched message: {ack}"
                )
            return
        elif ack.type is AckType.DELIVERED:
            self.expand(ack.count)
        elif ack.type is AckType.INDIVIDUAL:
            self._acknowledge_one(self.dispatched[ack.last], transaction)
        else:
            self._poison(self.dispatched[ack.last], ack, transaction)
        self.open_window()  # twice, because PrefetchSubscription.acknowledge wakes its queue twice:
        self.open_window()  # so an ACK pages in 400, not 200 (BROKER.md C10)

    def _acknowledge_range(
        self, ack: Acknowledgement, transaction: ClassicTransaction | None
    ) -> None:
        for message in self._range_up_to(ack, transaction):
            if transaction is None:
                self._leave(message)
            else:
                self._leave_at_end(message, transaction)
            self.settle(message, transaction)

    def _range_up_to(
        self, ack: Acknowledgement, transaction: ClassicTransaction | None
    ) -> list[StoredMessage]:
        """Return what `ack` covers; raises BrokerFault if it does not match what is dispatched."""
        if ack.last not in self.dispatched:
            raise BrokerFault(
                f"Unmatched acknowledge: {ack}; Could not find Message-ID {ack.last}"
                " in dispatched-list (end of ack)"
            )
        covered = list(self.dispatched).index(ack.last) + 1
        if transaction is None and covered != ack.count:
            raise BrokerFault(
                f"Unmatched acknowledge: {ack}; Expected message count ({ack.count})"
                f" differs from count in dispatched-list ({covered})"
            )
        return list(self.dispatched.values())[:covered]

    def _acknowledge_one(
        self, message: StoredMessage, transaction: ClassicTransaction | None
    ) -> None:
        if transaction is None:
            self._leave(message)
        else:
            self._leave_at_end(message, transaction)
            self.expand(1)
        self.settle(message, transaction)

    def _poison(
        self, message: StoredMessage, ack: Acknowledgement, transaction: ClassicTransaction | None
    ) -> None:
        if transaction is not None:
            raise BrokerFault(f"Poison ack cannot be transacted: {ack}")
        self.region.send_to_dead_letter_queue(message, None)
        self._leave(message)
        self.settle(message, None)

    def _leave(self, message: StoredMessage) -> None:
        """Remove `message` from the window."""
        self.dispatched.pop(message.message_id, None)
        self.contract(1)

    def _leave_at_end(self, message: StoredMessage, transaction: ClassicTransaction) -> None:
        """
        Leave `message` in the window until the end of `transaction`.

        COMMIT and ABORT both contract the window by one. So an ABORT of INDIVIDUAL acks leaves the window as it was,
        but an ABORT of DELIVERED acks leaves it wider for good.
        """

        def commit() -> None:
            self._leave(message)
            self.open_window()

        transaction.enlist(on_commit=commit, on_rollback=lambda: self.contract(1))
