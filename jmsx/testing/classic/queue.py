"""
A queue: a backlog that is paged in by wake-ups, and the messages that are ready to be given out.

Every wake-up runs `iterate` once, and one `iterate` pages in at most `max_page_size` messages. That is why a consumer
that waits with its acknowledgements stalls on a backlog.
Source: activemq-broker 6.1.8 Queue, QueueDispatchPendingList and QueueSubscription; jmsx_classic/BROKER.md C10.
"""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from jmsx.testing.classic.subscription import StoreSubscription, expiry_cause

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jmsx.testing.classic.destination import Destination
    from jmsx.testing.classic.house import ClassicHouse
    from jmsx.testing.classic.manners import ClassicManners
    from jmsx.testing.classic.message import StoredMessage
    from jmsx.testing.classic.subscription import Acknowledgement, ConsumerOptions
    from jmsx.testing.classic.transaction import FakeTransaction


class Backlog:
    """Messages that are not paged in: first in first out, or the highest priority first."""

    __slots__ = ("_levels", "_prioritized")

    def __init__(self, *, prioritized: bool) -> None:
        self._prioritized = prioritized
        self._levels: tuple[deque[StoredMessage], ...] = tuple(deque() for _ in range(10))

    def append(self, message: StoredMessage) -> None:
        """Put `message` behind those of its priority."""
        self._levels[message.priority if self._prioritized else 0].append(message)

    def popleft(self) -> StoredMessage:
        """Take the next one out; raises IndexError if there is none."""
        for level in reversed(self._levels):
            if level:
                return level.popleft()
        raise IndexError("the backlog is empty")

    def discard(self, message: StoredMessage) -> None:
        """Take `message` out."""
        self._levels[message.priority if self._prioritized else 0].remove(message)

    def __iter__(self) -> Iterator[StoredMessage]:
        for level in reversed(self._levels):
            yield from level

    def __len__(self) -> int:
        return sum(len(level) for level in self._levels)


class QueueSubscription(StoreSubscription):
    """One consumer of a queue."""

    def __init__(
        self,
        options: ConsumerOptions,
        house: ClassicHouse,
        deliver: Callable[[StoredMessage], None],
        queue: FakeQueue,
    ) -> None:
        super().__init__(options, house, deliver)
        self.queue = queue

    def add(self, message: StoredMessage) -> None:
        """Dispatch `message`, unless it expired meanwhile."""
        if message.is_expired(self.house.now_ms()):
            self.queue.expire(message)
            return
        self.dispatched[message.message_id] = message
        self.deliver(message)

    def settle(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Take `message` out of the queue, now or at the commit."""
        self.queue.remove(message, transaction)

    def open_window(self) -> None:
        """Wake the queue: it gives out what the window now allows."""
        self.queue.wake()


class BrowserSubscription(QueueSubscription):
    """A queue browser: it sees once what is there, then an end, and settles nothing."""

    def __init__(
        self,
        options: ConsumerOptions,
        house: ClassicHouse,
        deliver: Callable[[StoredMessage], None],
        queue: FakeQueue,
        finish: Callable[[], None],
    ) -> None:
        super().__init__(options, house, deliver, queue)
        self._finish = finish
        self._is_done = False

    def acknowledge(self, ack: Acknowledgement, transaction: FakeTransaction | None) -> None:
        """Nothing: a browser owns nothing."""

    def open_window(self) -> None:
        """Deliver what the queue holds now, in order, then the end; the second time nothing."""
        if self.options.prefetch == 0 or self._is_done:
            return
        self._is_done = True
        for message in self.queue.browse():
            if self.matches(message):
                self.deliver(message)
        self._finish()


class FakeQueue:
    """One queue; `waiting`, `in_flight` and the counts are for tests to look at."""

    def __init__(
        self,
        destination: Destination,
        house: ClassicHouse,
        manners: ClassicManners,
        wake: Callable[[FakeQueue], None],
    ) -> None:
        self.destination = destination
        self.house = house
        self.manners = manners
        self.enqueued = 0  #: messages that came in
        self.dequeued = 0  #: messages that are gone: acknowledged, dead or expired
        self.expired = 0  #: messages whose time was over
        self.consumers: list[QueueSubscription] = []  #: next in turn first
        self._wake = wake
        self._backlog = Backlog(prioritized=manners.prioritized)
        self._redelivered: dict[StoredMessage, None] = {}  #: given back by consumers, in order
        self._paged: dict[StoredMessage, None] = {}  #: paged in and not given out, in order
        self._exclusive: QueueSubscription | None = None
        self._group_owners: dict[str, QueueSubscription] = {}
        self._next_sequence = 0

    @property
    def waiting(self) -> list[StoredMessage]:
        """Messages that nobody has in flight, in the order in which they will be given out."""
        ready = [m for m in self._candidates() if not m.dropped]
        return [*ready, *self._backlog]

    @property
    def in_flight(self) -> list[StoredMessage]:
        """Messages that are dispatched and not settled, oldest first."""
        dispatched = [m for consumer in self.consumers for m in consumer.dispatched.values()]
        held = [message for message in dispatched if not message.dropped]
        return sorted(held, key=lambda message: message.sequence)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    def wake(self) -> None:
        """Ask for one `iterate`, after what is going on now."""
        self._wake(self)

    # -- messages come and go -------------------------------------------------------------------

    def send(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Store `message`, now or at the commit; one that is expired already is not even counted."""
        if message.is_expired(self.house.now_ms()):
            self.house.send_to_dead_letter_queue(message, expiry_cause(message))
            return
        self._next_sequence += 1
        message.sequence = self._next_sequence
        if transaction is None:
            self._store(message)
        else:
            transaction.enlist(on_commit=lambda: self._store(message))

    def _store(self, message: StoredMessage) -> None:
        self._backlog.append(message)
        self.enqueued += 1
        self.wake()

    def remove(self, message: StoredMessage, transaction: FakeTransaction | None) -> None:
        """Take `message` out, now or at the commit; a rollback makes it acknowledgeable again."""
        if transaction is None:
            self._drop(message)
        else:
            transaction.enlist(
                on_commit=lambda: self._drop_and_wake(message),
                on_rollback=lambda: self._restore(message),
            )
        message.acked = True

    def _drop(self, message: StoredMessage) -> None:
        if not message.dropped:
            message.dropped = True
            self.dequeued += 1

    def _drop_and_wake(self, message: StoredMessage) -> None:
        self._drop(message)
        self.wake()

    def _restore(self, message: StoredMessage) -> None:
        message.acked = False
        self.wake()

    def expire(self, message: StoredMessage) -> None:
        """Give up `message`: its time is over."""
        self.house.send_to_dead_letter_queue(message, expiry_cause(message))
        self.expired += 1
        self.remove(message, None)

    def sweep(self) -> None:
        """Give up all that is waiting and expired, and wake up."""
        now_ms = self.house.now_ms()
        for message in [m for m in self._backlog if m.is_expired(now_ms)]:
            self._backlog.discard(message)
            self.expire(message)
        for message in [m for m in self._candidates() if m.is_expired(now_ms) and not m.dropped]:
            self._redelivered.pop(message, None)
            self._paged.pop(message, None)
            self.expire(message)
        self.wake()

    def browse(self) -> list[StoredMessage]:
        """What a browser sees: the oldest messages that are not acknowledged, in flight or not."""
        held = [m for m in (*self.in_flight, *self.waiting) if not m.acked]
        held.sort(key=lambda message: message.sequence)
        return held[: self.manners.max_browse_page_size]

    # -- consumers come and go ------------------------------------------------------------------

    def add_consumer(self, consumer: QueueSubscription) -> None:
        """Let `consumer` take part; the exclusive one is the first of the highest priority."""
        self._enqueue(consumer)
        self._choose_exclusive(consumer)
        self.wake()

    def remove_consumer(self, consumer: QueueSubscription) -> None:
        """
        Take `consumer` out; all that it had in flight goes back to the front with its counter raised.

        Source: Queue.removeSubscription with LAST_DELIVERED_UNKNOWN, which is all STOMP can say; jmsx_classic/BROKER.md
        C37.
        """
        self.consumers.remove(consumer)
        if self._exclusive is consumer:
            self._exclusive = None
            for candidate in self.consumers:
                self._choose_exclusive(candidate)
        self._group_owners = {g: o for g, o in self._group_owners.items() if o is not consumer}
        for message in consumer.dispatched.values():
            message.redelivery_counter += 1
            if not message.dropped:
                self._redelivered[message] = None
        consumer.dispatched.clear()
        if self._redelivered:
            self._dispatch([])
        self.wake()

    def _enqueue(self, consumer: QueueSubscription) -> None:
        self.consumers.append(consumer)
        self.consumers.sort(key=lambda each: -each.options.priority)

    def _choose_exclusive(self, consumer: QueueSubscription) -> None:
        if consumer.options.exclusive and (
            self._exclusive is None or consumer.options.priority > self._exclusive.options.priority
        ):
            self._exclusive = consumer

    # -- dispatch -------------------------------------------------------------------------------

    def iterate(self) -> None:
        """Page in once and dispatch: what one wake-up does."""
        if self._backlog or self._paged or self._redelivered:
            self._dispatch(self._page_in())

    def _page_in(self) -> list[StoredMessage]:
        ready = len(self._paged) + len(self._redelivered)
        if not self.consumers or ready >= self.manners.max_page_size:
            return []
        page: list[StoredMessage] = []
        now_ms = self.house.now_ms()
        wanted = min(self.manners.max_page_size, len(self._backlog))
        while self._backlog and len(page) < wanted:
            message = self._backlog.popleft()
            if message.is_expired(now_ms):
                self.expire(message)
            else:
                page.append(message)
        return page

    def _dispatch(self, page: list[StoredMessage]) -> None:
        """First what was ready before; a fresh page must wait if any of that is left."""
        if self.manners.prioritized:
            self._paged.update(dict.fromkeys(page))
            page = []
        self._give_out(self._candidates())
        if page:
            must_wait = bool(self._paged or self._redelivered)
            self._paged.update(dict.fromkeys(page))
            if must_wait:
                self.wake()
            else:
                self._give_out(page)

    def _candidates(self) -> list[StoredMessage]:
        ready = [*self._redelivered, *self._paged]
        if self.manners.prioritized:
            ready.sort(key=lambda message: -message.priority)
        return ready

    def _give_out(self, messages: Iterable[StoredMessage]) -> None:
        """Offer each message to the consumers in turn, until all are full."""
        full: set[QueueSubscription] = set()
        for message in messages:
            taker = self._taker_of(message, full)
            if taker is not None or message.dropped:
                self._redelivered.pop(message, None)
                self._paged.pop(message, None)
            if taker is None:
                if len(full) == len(self.consumers):
                    return
                continue
            taker.add(message)
            if taker is not self._exclusive and len(self.consumers) > 1:
                self.consumers.remove(taker)
                self._enqueue(taker)

    def _taker_of(
        self, message: StoredMessage, full: set[QueueSubscription]
    ) -> QueueSubscription | None:
        for consumer in self.consumers:
            if consumer in full:
                continue
            if consumer.is_full:
                full.add(consumer)
            elif not message.acked and self._may_have(consumer, message):
                return consumer
        return None

    def _may_have(self, consumer: QueueSubscription, message: StoredMessage) -> bool:
        if self._exclusive not in {None, consumer} or not consumer.matches(message):
            return False
        return self._joins_group(consumer, message)

    def _joins_group(self, consumer: QueueSubscription, message: StoredMessage) -> bool:
        """
        Whether the message's group is, or now becomes, that of `consumer`.

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
