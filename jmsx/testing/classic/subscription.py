"""
The broker's side of a subscription: its window, what is dispatched, and what an acknowledgement does.

A subscription does not know STOMP: `deliver` hands a message to the connection, and acknowledgements come as
`Acknowledgement` values.

Source: activemq-broker 6.1.8 AbstractSubscription, PrefetchSubscription, QueueSubscription, TopicSubscription and
DurableTopicSubscription.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import deque
from dataclasses import dataclass
from enum import StrEnum
from typing import TYPE_CHECKING

from jmsx.testing.faults import BrokerFault
from jmsx.testing.selector import SelectorValueError

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.classic.destination import Destination
    from jmsx.testing.classic.house import ClassicHouse
    from jmsx.testing.classic.message import StoredMessage
    from jmsx.testing.classic.transaction import FakeTransaction
    from jmsx.testing.selector import Selector


class AckType(StrEnum):
    """What an acknowledgement inside the broker means; the value is ActiveMQ's number."""

    DELIVERED = "0"  #: opens the window, settles nothing
    POISON = "1"  #: to the dead letter queue
    STANDARD = "2"  #: everything up to `last`
    INDIVIDUAL = "4"  #: only `last`


@dataclass(frozen=True, slots=True)
class Acknowledgement:
    """One MessageAck as the STOMP converter makes it."""

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

    consumer_id: str
    connection_id: str
    destination: Destination
    prefetch: int  #: messages; 0: nothing, for ever, as STOMP cannot pull
    selector_text: str | None = None
    selector: Selector | None = None
    subscription_name: str | None = None  #: a durable subscription
    exclusive: bool = False
    priority: int = 0  #: higher is served first
    no_local: bool = False  #: nothing that the own connection sent
    browser: bool = False
    transformation: str | None = None  #: how bodies that STOMP does not know are shown


class Subscription(ABC):
    """One consumer: what it has in flight and how much more it takes."""

    def __init__(
        self,
        options: ConsumerOptions,
        house: ClassicHouse,
        deliver: Callable[[StoredMessage], None],
    ) -> None:
        self.options = options
        self.house = house
        self.deliver = deliver
        self.dispatched: dict[str, StoredMessage] = {}  #: by message id, in order of dispatch
        self.extension = 0  #: messages that the window is wider than `options.prefetch`

    @property
    def is_full(self) -> bool:
        """Whether it takes no more."""
        prefetch = self.options.prefetch
        return prefetch == 0 or len(self.dispatched) - self.extension >= prefetch

    def matches(self, message: StoredMessage) -> bool:
        """
        Whether its selector and noLocal let `message` in.

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

    def expand(self, messages: int) -> None:
        """Open the window; nothing happens with prefetch 0."""
        if self.options.prefetch:
            self.extension += messages

    def contract(self, messages: int) -> None:
        """Close what was opened, never below the prefetch."""
        if self.options.prefetch:
            self.extension = max(0, self.extension - messages)

    @abstractmethod
    def acknowledge(self, ack: Acknowledgement, transaction: FakeTransaction | None) -> None:
        """Do what `ack` says; raises BrokerFault if it does not fit."""

    @abstractmethod
    def open_window(self) -> None:
        """Dispatch what the window now allows."""


class StoreSubscription(Subscription):
    """A subscription whose messages are settled one by one: of a queue, or durable."""

    @abstractmethod
    def settle(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Take `message` out of where it is stored, now or when `transaction` commits."""

    def acknowledge(self, ack: Acknowledgement, transaction: FakeTransaction | None) -> None:
        """Do what `ack` says, then dispatch what the window now allows."""
        if ack.type is AckType.STANDARD:
            self._acknowledge_range(ack, transaction)
        elif ack.last not in self.dispatched:
            if ack.type is not AckType.INDIVIDUAL:  # an INDIVIDUAL of nothing is ignored
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
        self.open_window()  # so an ACK pages in 400, not 200 (seen live)

    def _acknowledge_range(self, ack: Acknowledgement, transaction: FakeTransaction | None) -> None:
        nodes = self._range_up_to(ack, transaction)
        for message in nodes:
            if transaction is None:
                self.contract(1)
            else:
                self._remove_at_commit(message, transaction)
            self.settle(message, transaction)
        if transaction is None:
            for message in nodes:
                del self.dispatched[message.message_id]

    def _range_up_to(
        self, ack: Acknowledgement, transaction: FakeTransaction | None
    ) -> list[StoredMessage]:
        """What `ack` covers; raises BrokerFault if it does not match what is dispatched."""
        if ack.last not in self.dispatched:
            raise BrokerFault(
                f"Unmatched acknowledge: {ack}; Could not find Message-ID {ack.last}"
                " in dispatched-list (end of ack)"
            )
        nodes = []
        for message in self.dispatched.values():
            nodes.append(message)
            if message.message_id == ack.last:
                break
        if transaction is None and len(nodes) != ack.count:
            raise BrokerFault(
                f"Unmatched acknowledge: {ack}; Expected message count ({ack.count})"
                f" differs from count in dispatched-list ({len(nodes)})"
            )
        return nodes

    def _acknowledge_one(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        if transaction is None:
            del self.dispatched[message.message_id]
            self.contract(1)
        else:
            self._remove_at_commit(message, transaction)
            self.expand(1)
        self.settle(message, transaction)

    def _poison(
        self, message: StoredMessage, ack: Acknowledgement, transaction: FakeTransaction | None
    ) -> None:
        if transaction is not None:
            raise BrokerFault(f"Poison ack cannot be transacted: {ack}")
        self.house.send_to_dead_letter_queue(message, None)
        self.settle(message, None)
        del self.dispatched[message.message_id]
        self.contract(1)

    def _remove_at_commit(self, message: StoredMessage, transaction: FakeTransaction) -> None:
        """
        Leave `message` in the window until the end of `transaction`.

        Both ends contract the window by one: that is why an ABORT of INDIVIDUAL acks is balanced and one of DELIVERED
        acks leaves it wider for good (jmsx_classic/BROKER.md C34).
        """

        def commit() -> None:
            self.dispatched.pop(message.message_id, None)
            self.contract(1)
            self.open_window()

        transaction.enlist(on_commit=commit, on_rollback=lambda: self.contract(1))


class TopicSubscription(Subscription):
    """
    A subscription to a topic that is not durable: what it does not take is gone.

    Source: activemq-broker 6.1.8 TopicSubscription. NACK only counts: there is no dead letter.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        house: ClassicHouse,
        deliver: Callable[[StoredMessage], None],
    ) -> None:
        super().__init__(options, house, deliver)
        self.pending: deque[StoredMessage] = deque()

    def add(self, message: StoredMessage) -> None:
        """Take a message that was published, now or when there is room."""
        self.pending.append(message)
        self.open_window()

    def open_window(self) -> None:
        """Dispatch what the window now allows; expired messages vanish."""
        while self.pending and not self.is_full:
            message = self.pending.popleft()
            if not message.is_expired(self.house.now_ms()):
                self.dispatched[message.message_id] = message
                self.deliver(message)

    def acknowledge(self, ack: Acknowledgement, transaction: FakeTransaction | None) -> None:
        """Do what `ack` says; raises BrokerFault on a NACK in a transaction."""
        if ack.type is AckType.DELIVERED:
            self.expand(ack.count)
        elif transaction is None:
            self._forget(ack)
            self.contract(ack.count)
        elif ack.type is AckType.POISON:
            raise BrokerFault(f"Poison ack cannot be transacted: {ack}")
        else:
            self._forget_at_commit(ack, transaction)
            if ack.type is AckType.INDIVIDUAL:
                self.expand(1)
        self.open_window()

    def _forget_at_commit(self, ack: Acknowledgement, transaction: FakeTransaction) -> None:
        def commit() -> None:
            self.contract(ack.count)
            self._forget(ack)
            self.open_window()

        transaction.enlist(on_commit=commit, on_rollback=lambda: self.contract(ack.count))

    def _forget(self, ack: Acknowledgement) -> None:
        if ack.type is not AckType.STANDARD:
            self.dispatched.pop(ack.last, None)
            return
        for message_id in list(self.dispatched):
            del self.dispatched[message_id]
            if message_id == ack.last:
                break


class DurableSubscription(StoreSubscription):
    """
    A named subscription to a topic that keeps its messages while nobody is there.

    It never raises the counter of a message: over STOMP nothing of it is ever `redelivered`.
    Source: activemq-broker 6.1.8 DurableTopicSubscription; jmsx_classic/BROKER.md C41.
    """

    def __init__(
        self,
        options: ConsumerOptions,
        house: ClassicHouse,
        deliver: Callable[[StoredMessage], None],
    ) -> None:
        super().__init__(options, house, deliver)
        self.active = True
        self.pending: deque[StoredMessage] = deque()

    def add(self, message: StoredMessage) -> None:
        """Keep a message that was published, and dispatch it if somebody is there."""
        self.pending.append(message)
        self.open_window()

    def open_window(self) -> None:
        """Dispatch what the window now allows; expired messages become dead letters."""
        while self.active and self.pending and not self.is_full:
            message = self.pending.popleft()
            if message.is_expired(self.house.now_ms()):
                self.house.send_to_dead_letter_queue(message, expiry_cause(message))
                continue
            self.dispatched[message.message_id] = message
            self.deliver(message)

    def settle(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Nothing is left to do: leaving the window is leaving the store."""

    def deactivate(self) -> None:
        """Nobody is there any more: what was in flight goes back to the front, in order."""
        self.active = False
        self.pending.extendleft(reversed(self.dispatched.values()))
        self.dispatched.clear()
        self.extension = 0

    def activate(self, options: ConsumerOptions, deliver: Callable[[StoredMessage], None]) -> None:
        """Somebody is back; persistent messages come before the others, each in order."""
        self.options = options
        self.deliver = deliver
        self.pending = deque(sorted(self.pending, key=lambda message: not message.persistent))
        self.active = True
        self.open_window()


def expiry_cause(message: StoredMessage) -> str:
    """The broker's words for a message whose time is over."""
    return f"java.lang.Throwable: Message Expired. Expiration:{message.expires}"
