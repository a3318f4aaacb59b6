"""
A queue: a backlog that is paged in by wake-ups, and the messages that are ready to be dispatched.

Every wake-up runs `iterate` once, and one `iterate` pages in at most `max_page_size` messages. That is why a consumer
that delays its acknowledgements stalls on a backlog.
Source: jmsx_classic/BROKER.md; activemq-broker 6.1.8 Queue, QueueDispatchPendingList and QueueSubscription.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable
from typing import Final

from jmsx.testing.classic.message import StoredMessage
from jmsx.testing.classic.subscription import (
    Acknowledgement,
    ClassicTransaction,
    ConsumerOptions,
    Region,
    StoreSubscription,
    expiry_cause,
)

#: Messages that a queue browser sees, at most.
_BROWSED: Final = 400


class ClassicQueue:
    """
    One queue; `waiting`, `in_flight` and `browse` are for tests to look at.

    Args:
        region: the broker that it belongs to.
        max_page_size: how many messages one wake-up pages in at most.
        later: runs a function when the current step is done.
    """

    def __init__(
        self, region: Region, max_page_size: int, later: Callable[[Callable[[], None]], None]
    ) -> None:
        self.region = region
        self.consumers: list[QueueSubscription] = []  #: the one whose turn it is first
        self.delayed: list[StoredMessage] = []  #: messages that the scheduler holds
        self._max_page_size = max_page_size
        self._later = later
        self._backlog: deque[StoredMessage] = deque()
        self._redelivered: dict[StoredMessage, None] = {}  #: given back by consumers, in order
        self._paged: dict[StoredMessage, None] = {}  #: paged in and not given out, in order
        self._group_owners: dict[str, QueueSubscription] = {}
        self._next_sequence = 0

    @property
    def waiting(self) -> list[StoredMessage]:
        """Messages that nobody has in flight, in the order in which they will be given out; delayed ones last."""
        ready = [m for m in (*self._redelivered, *self._paged) if not m.dropped]
        return [*ready, *self._backlog, *self.delayed]

    @property
    def in_flight(self) -> list[StoredMessage]:
        """Messages that are dispatched and not settled, oldest first."""
        dispatched = [m for consumer in self.consumers for m in consumer.dispatched.values()]
        held = [message for message in dispatched if not message.dropped]
        return sorted(held, key=lambda message: message.sequence)

    def browse(self) -> list[StoredMessage]:
        """Return what a browser sees: the oldest messages that are not acknowledged, in flight or not."""
        held = [m for m in (*self.in_flight, *self.waiting) if m.sequence and not m.acked]
        return sorted(held, key=lambda message: message.sequence)[:_BROWSED]

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def wake(self) -> None:
        """Ask for one `iterate` when the current step is done."""
        self._later(self.iterate)

    # -- messages come and go -------------------------------------------------------------------

    def send(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Store `message`, now or at the commit; if it has already expired, it goes to the dead letter queue."""
        if message.is_expired(self.region.now_ms()):
            self.region.send_to_dead_letter_queue(message, expiry_cause(message))
            return
        self._next_sequence += 1
        message.sequence = self._next_sequence
        if transaction is None:
            self._store(message)
        else:
            transaction.enlist(on_commit=lambda: self._store(message))

    def _store(self, message: StoredMessage) -> None:
        self._backlog.append(message)
        self.wake()

    def remove(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Remove `message`, now or at the commit; after a rollback it can be acknowledged again."""
        message.acked = True
        if transaction is None:
            message.dropped = True
            return

        def commit() -> None:
            message.dropped = True
            self.wake()

        def rollback() -> None:
            message.acked = False
            self.wake()

        transaction.enlist(on_commit=commit, on_rollback=rollback)

    def expire(self, message: StoredMessage) -> None:
        """Remove `message`, whose time to live is over, and send it to the dead letter queue."""
        self.region.send_to_dead_letter_queue(message, expiry_cause(message))
        self.remove(message, None)

    # -- consumers come and go ------------------------------------------------------------------

    def add_consumer(self, consumer: QueueSubscription) -> None:
        """Let `consumer` get messages of this queue."""
        self.consumers.append(consumer)
        self.wake()

    def remove_consumer(self, consumer: QueueSubscription) -> None:
        """
        Remove `consumer`; its messages in flight go back to the front, with their redelivery counters raised.

        Source: Queue.removeSubscription with LAST_DELIVERED_UNKNOWN: STOMP cannot say what was delivered last.
        """
        self.consumers.remove(consumer)
        self._group_owners = {g: o for g, o in self._group_owners.items() if o is not consumer}
        for message in consumer.dispatched.values():
            message.redelivery_counter += 1
            if not message.dropped:
                self._redelivered[message] = None
        consumer.dispatched.clear()
        if self._redelivered:
            self._dispatch([])
        self.wake()

    # -- dispatch -------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Page in once and dispatch; one wake-up does exactly this."""
        if self._backlog or self._paged or self._redelivered:
            self._dispatch(self._page_in())

    def _page_in(self) -> list[StoredMessage]:
        ready = len(self._paged) + len(self._redelivered)
        if not self.consumers or ready >= self._max_page_size:
            return []
        page: list[StoredMessage] = []
        now_ms = self.region.now_ms()
        while self._backlog and len(page) < self._max_page_size:
            message = self._backlog.popleft()
            if message.is_expired(now_ms):
                self.expire(message)
            else:
                page.append(message)
        return page

    def _dispatch(self, page: list[StoredMessage]) -> None:
        """Dispatch first the messages that were ready before; a fresh page waits if any of these are left."""
        self._give_out([*self._redelivered, *self._paged])
        if page:
            must_wait = bool(self._paged or self._redelivered)
            self._paged.update(dict.fromkeys(page))
            if must_wait:
                self.wake()
            else:
                self._give_out(page)

    def _give_out(self, messages: Iterable[StoredMessage]) -> None:
        """Offer each message to the consumers, round robin, until all are full."""
        full: set[QueueSubscription] = set()
        for message in messages:
            taker = self._taker_of(message, full)
            if taker is not None or message.dropped:
                self._redelivered.pop(message, None)
                self._paged.pop(message, None)
            if taker is not None:
                taker.add(message)
                self.consumers.remove(taker)
                self.consumers.append(taker)
            elif len(full) == len(self.consumers):
                return

    def _taker_of(
        self, message: StoredMessage, full: set[QueueSubscription]
    ) -> QueueSubscription | None:
        for consumer in self.consumers:
            if consumer in full or consumer.is_full:
                full.add(consumer)
            elif not message.acked and self._may_have(consumer, message):
                return consumer
        return None

    def _may_have(self, consumer: QueueSubscription, message: StoredMessage) -> bool:
        return consumer.matches(message) and self._joins_group(consumer, message)

    def _joins_group(self, consumer: QueueSubscription, message: StoredMessage) -> bool:
        """
        Return whether the message's group is, or now becomes, that of `consumer`.

        The first consumer owns a group until it closes, or a negative sequence ends the group.
        Source: Queue.assignMessageGroup.
        """
        group = message.group_id
        if group is None:
            return True
        owner = self._group_owners.get(group)
        if owner is None or message.group_sequence == 1:
            self._group_owners[group] = consumer
            return True
        if owner is consumer and message.group_sequence < 0:
            del self._group_owners[group]
        return owner is consumer


class QueueSubscription(StoreSubscription):
    """One consumer of a queue."""

    def __init__(
        self,
        options: ConsumerOptions,
        queue: ClassicQueue,
        deliver: Callable[[StoredMessage], None],
    ) -> None:
        super().__init__(options, queue.region, deliver)
        self.queue = queue

    def add(self, message: StoredMessage) -> None:
        """Dispatch `message`, unless it expired meanwhile."""
        if message.is_expired(self.region.now_ms()):
            self.queue.expire(message)
        else:
            self.dispatch(message)

    def settle(self, message: StoredMessage, transaction: ClassicTransaction | None) -> None:
        """Take `message` out of the queue, now or at the commit."""
        self.queue.remove(message, transaction)

    def open_window(self) -> None:
        """Wake the queue: it gives out what the window now allows."""
        self.queue.wake()

    def close(self) -> None:
        """Give back what is in flight."""
        self.queue.remove_consumer(self)


class BrowserSubscription(QueueSubscription):
    """A queue browser: it sees once what is there, then an end, and settles nothing."""

    def __init__(
        self,
        options: ConsumerOptions,
        queue: ClassicQueue,
        deliver: Callable[[StoredMessage], None],
        finish: Callable[[], None],
    ) -> None:
        super().__init__(options, queue, deliver)
        self._finish = finish
        self._is_done = False

    def acknowledge(self, ack: Acknowledgement, transaction: ClassicTransaction | None) -> None:
        """Ignore `ack`: a browser has nothing to settle."""

    def open_window(self) -> None:
        """Deliver what the queue holds now, in order, then the end frame; a second call does nothing."""
        if self.options.prefetch == 0 or self._is_done:
            return
        self._is_done = True
        for message in self.queue.browse():
            if self.matches(message):
                self.deliver(message)
        self._finish()

    def close(self) -> None:
        """Do nothing: a browser has no messages to give back."""
