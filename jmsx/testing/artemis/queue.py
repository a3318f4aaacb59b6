"""
A queue and its consumers: which consumer gets which message, redelivery, and when a message becomes a dead letter.

Source: jmsx_artemis/BROKER.md; artemis-server 2.44.0 QueueImpl, ServerConsumerImpl, QueueConsumersImpl and
ScheduledDeliveryHandlerImpl, artemis-commons 2.44.0 PriorityLinkedListImpl and ArrayResettableIterator.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import Enum, auto
from operator import attrgetter
from typing import Final, Protocol

from jmsx.testing.artemis.message import CoreMessage, Filter, Routing
from jmsx.testing.profiles import ArtemisProfile
from jmsx.testing.runtime import Runtime

#: The `consumer-window-size` that means no flow control: there are no credits to use up or give back.
UNLIMITED: Final = -1

_LEVELS: Final = 10
_PLACE: Final = attrgetter("place")


@dataclass(slots=True, eq=False)
class Reference:
    """A message in one queue; the same message of a topic stands in the queues of other subscribers, too."""

    message: CoreMessage
    sequence: int = 0  #: order of arrival; 0 for messages that were sent with a delay
    delivery_count: int = 0  #: deliveries, without those that were given back uncounted
    place: int = 0  #: its position among the messages of the same priority

    @property
    def level(self) -> int:
        """The index of its priority in the order of dispatch: 0 for priority 9, which goes first."""
        return _LEVELS - 1 - self.message.priority


class QueueOrder:
    """
    The messages that wait: highest priority first, then by arrival.
    Within a priority, messages that were delayed go before all others.
    """

    def __init__(self) -> None:
        self._levels: list[list[Reference]] = [[] for _ in range(_LEVELS)]
        self._first = 0

    def add(self, reference: Reference) -> None:
        """Insert `reference`, when redelivered at its old place; cursors that are past it miss it until their reset."""
        if reference.sequence:
            reference.place = reference.sequence
        else:
            self._first -= 1
            reference.place = self._first
        insort(self._levels[reference.level], reference, key=_PLACE)

    def remove(self, reference: Reference) -> None:
        """Take `reference` out."""
        level = self._levels[reference.level]
        del level[bisect_left(level, reference.place, key=_PLACE)]

    def after(self, cursor: dict[int, int]) -> Reference | None:
        """Return the first message after `cursor`, which has a place for each level; None if there is none."""
        for number, level in enumerate(self._levels):
            start = bisect_right(level, cursor[number], key=_PLACE) if number in cursor else 0
            if start < len(level):
                return level[start]
        return None

    def __iter__(self) -> Iterator[Reference]:
        for level in self._levels:
            yield from level

    def __len__(self) -> int:
        return sum(map(len, self._levels))


class RoundRobin:
    """The consumers in turn, going on after the one that was served last; a round ends when each had its turn."""

    def __init__(self) -> None:
        self._consumers: list[ArtemisConsumer] = []
        self._next = 0
        self._left = 0

    def add(self, consumer: ArtemisConsumer) -> None:
        """Add `consumer` at the end, and let the turn begin again at the first consumer."""
        self._consumers.append(consumer)
        self._next = 0

    def remove(self, consumer: ArtemisConsumer) -> None:
        """Remove `consumer`, and let the turn begin again at the first consumer."""
        self._consumers.remove(consumer)
        self._next = 0

    def restart(self) -> None:
        """Begin a new round at the consumer whose turn it is."""
        self._left = len(self._consumers)

    def next(self) -> ArtemisConsumer | None:
        """Return the consumer whose turn it is, and pass the turn on; None if the round is over."""
        if not self._left:
            return None
        consumer = self._consumers[self._next]
        self._next = (self._next + 1) % len(self._consumers)
        self._left -= 1
        return consumer

    def repeat(self) -> None:
        """Give the turn back to the consumer that `next` returned last."""
        self._next = (self._next - 1) % len(self._consumers)
        self._left += 1


class Handled(Enum):
    """A consumer's answer to a message that is offered to it."""

    TAKEN = auto()
    BUSY = auto()  #: no credits: not now
    UNWANTED = auto()  #: its selector does not match: never


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerOptions:
    """What a SUBSCRIBE asked for."""

    subscription_id: str
    mode: str  #: `auto` or `client-individual`; any other value means `client`
    window: int  #: bytes
    no_local: bool = False  #: do not deliver what the same connection sent


class ArtemisConsumer:
    """
    One consumer: its credits, and its messages in flight. It takes no message before `open_window`.

    The window is counted in bytes of whole frames; credits come back with an acknowledgement.

    Args:
        number: a new one for every SUBSCRIBE, and the first part of the `message-id` headers.
        queue: the queue whose messages it gets.
        options: what its SUBSCRIBE asked for.
        wants: tells whether its selector and no-local let a message in.
        write: writes a MESSAGE frame and returns its length in bytes.
    """

    def __init__(
        self,
        number: int,
        queue: ArtemisQueue,
        options: ConsumerOptions,
        wants: Callable[[CoreMessage], bool],
        write: Callable[[ArtemisConsumer, Reference], int],
    ) -> None:
        self.number = number
        self.queue = queue
        self.options = options
        self.delivering: dict[int, Reference] = {}  #: by message id, in order of dispatch
        self.cursor: dict[int, int] = {}  #: by level: the last place it was offered
        self._wants = wants
        self._write = write
        self._credits: int | None = 0  #: bytes; None: unlimited

    def open_window(self) -> None:
        """Let messages come, after the RECEIPT; a window of 0 lets one message come, a window below -1 none ever."""
        if self.options.window == UNLIMITED:
            self._credits = None
            self.queue.wake()
        else:
            self.give_credits(self.options.window or 1)

    def give_credits(self, size: int) -> None:
        """Let `size` more bytes come."""
        if self._credits is None:
            return
        was_dry = self._credits <= 0
        self._credits += size
        if was_dry and self._credits > 0:
            self.queue.wake()

    def offer(self, reference: Reference) -> Handled:
        """Take `reference` or return why not; taking it raises its delivery count at once."""
        if self._credits is not None and self._credits <= 0:
            return Handled.BUSY
        if not self._wants(reference.message):
            return Handled.UNWANTED
        self.delivering[reference.message.message_id] = reference
        reference.delivery_count += 1
        return Handled.TAKEN

    def deliver(self, reference: Reference) -> None:
        """Write the MESSAGE for a message that was taken; the last frame may exceed the window."""
        size = self._write(self, reference)
        if self._credits is not None:
            self._credits -= size

    def acknowledge(self, message_id: int) -> list[int]:
        """Settle `message_id`, and in mode `client` all before it; returns the ids of what was settled."""
        if self.options.mode == "client-individual":
            settled = [message_id]
        else:
            settled = list(self.delivering)
            settled = settled[: settled.index(message_id) + 1]
        for each in settled:
            del self.delivering[each]
        return settled

    def close(self, attempts: int | None = None) -> None:
        """Give back the messages in flight; the oldest `attempts` of them (None: all) count as delivery attempts."""
        taken = list(self.delivering.values())
        self.delivering.clear()
        for reference in [] if attempts is None else taken[attempts:]:
            reference.delivery_count -= 1
        self.queue.give_back(taken)
        self.queue.remove_consumer(self)


class Office(Protocol):
    """What a queue needs of its broker."""

    runtime: Runtime
    profile: ArtemisProfile

    def move(
        self,
        queue: ArtemisQueue,
        message: CoreMessage,
        address: str | None,
        expired_at: int | None = None,
    ) -> None:
        """Route a copy of a message of `queue` to `address`; if that is None the message is lost."""


class ArtemisQueue:
    """
    One queue; `waiting`, `in_flight` and `browse` are for tests to look at.

    Args:
        office: the broker that it belongs to.
        name: unique in the whole broker.
        address: the address whose messages it gets.
        routing: the routing type.
        selector: the filter of a subscription to a topic.
        temporary: whether it is deleted with its only consumer.
    """

    def __init__(
        self,
        office: Office,
        name: str,
        address: str,
        routing: Routing,
        *,
        selector: Filter | None = None,
        temporary: bool = False,
    ) -> None:
        self.name = name
        self.address = address
        self.routing = routing
        self.selector = selector
        self.temporary = temporary
        self.consumers: list[ArtemisConsumer] = []  #: oldest first
        self._office = office
        self._runtime = office.runtime
        self._order = QueueOrder()
        self._delayed: list[Reference] = []  #: not yet due
        self._turns = RoundRobin()
        self._group_owners: dict[str, ArtemisConsumer] = {}
        self._next_sequence = 0
        self._is_awake = False

    @property
    def waiting(self) -> list[CoreMessage]:
        """Messages that nobody has in flight, in the order in which they will be given out; delayed ones last."""
        late = sorted(self._delayed, key=lambda reference: reference.message.scheduled)
        return [reference.message for reference in (*self._order, *late)]

    @property
    def in_flight(self) -> list[CoreMessage]:
        """Messages that are dispatched and not settled, oldest first."""
        held = [r for consumer in self.consumers for r in consumer.delivering.values()]
        return [r.message for r in sorted(held, key=lambda r: (r.sequence, r.message.message_id))]

    def browse(self) -> list[CoreMessage]:
        """Return messages that are not settled, in flight or not, oldest first."""
        return sorted((*self.in_flight, *self.waiting), key=lambda message: message.message_id)

    def __len__(self) -> int:
        waiting = len(self._order) + len(self._delayed)
        return waiting + sum(len(consumer.delivering) for consumer in self.consumers)

    # -- messages come and go -------------------------------------------------------------------

    def add(self, message: CoreMessage) -> None:
        """Enqueue a message, or keep it aside until its delay is over."""
        reference = Reference(message)
        if message.scheduled:
            self._delay(reference)
            return
        self._next_sequence += 1
        reference.sequence = self._next_sequence
        self._order.add(reference)
        self.wake()

    def give_back(self, references: list[Reference]) -> None:
        """
        Take back messages that a consumer had in flight: to their old places, or to the dead letter address.

        Source: RefsOperation.afterRollback, QueueImpl.checkRedelivery.
        """
        profile = self._office.profile
        alive = []
        for reference in references:
            if 0 < profile.max_delivery_attempts <= reference.delivery_count:
                self._office.move(self, reference.message, profile.dead_letter_address)
            else:
                alive.append(reference)
        for reference in reversed(alive):
            self._order.add(reference)
        self._look_again()

    def _expire(self, reference: Reference) -> None:
        self._order.remove(reference)
        address = self._office.profile.expiry_address
        self._office.move(self, reference.message, address, self._runtime.now_ms())

    def _delay(self, reference: Reference) -> None:
        self._delayed.append(reference)
        seconds = (reference.message.scheduled - self._runtime.now_ms()) / 1000
        if seconds > 0:
            self._runtime.at(self._runtime.now + seconds, self._release_due)
        else:
            self._runtime.later(self._release_due)

    def _release_due(self) -> None:
        """Put delayed messages that are now due before all others of their priority, as the real broker does."""
        now_ms = self._runtime.now_ms()
        due = [r for r in self._delayed if r.message.scheduled <= now_ms]
        self._delayed = [r for r in self._delayed if r.message.scheduled > now_ms]
        for reference in sorted(due, key=lambda r: r.message.scheduled, reverse=True):
            self._order.add(reference)
        self._look_again()

    # -- consumers come and go ------------------------------------------------------------------

    def add_consumer(self, consumer: ArtemisConsumer) -> None:
        """Let `consumer` get messages of this queue."""
        self.consumers.append(consumer)
        self._turns.add(consumer)

    def remove_consumer(self, consumer: ArtemisConsumer) -> None:
        """Remove `consumer`; its message groups may go to others."""
        self.consumers.remove(consumer)
        self._turns.remove(consumer)
        self._group_owners = {g: o for g, o in self._group_owners.items() if o is not consumer}
        self._look_again()

    # -- dispatch -------------------------------------------------------------------------------

    def wake(self) -> None:
        """Schedule a dispatch for when the current step is done."""
        if not self._is_awake:
            self._is_awake = True
            self._runtime.later(self._give_out)

    def _look_again(self) -> None:
        for consumer in self.consumers:
            consumer.cursor.clear()
        self.wake()

    def _give_out(self) -> None:
        """
        Offer messages to the consumers in turn, until each consumer is busy or was offered all messages.

        A message whose group belongs to a busy consumer stops everything behind it.
        Source: QueueImpl.deliver.
        """
        self._is_awake = False
        self._turns.restart()
        idle = 0
        while self._order and (consumer := self._turns.next()) is not None:
            reference = self._order.after(consumer.cursor)
            if reference is None:
                idle += 1
                continue
            if reference.message.is_expired(self._runtime.now_ms()):
                self._expire(reference)
                self._turns.restart()
                continue
            owner = self._owner(reference.message)
            taker = owner or consumer
            match taker.offer(reference):
                case Handled.TAKEN:
                    idle = 0
                    self._hand_over(reference, taker)
                case Handled.BUSY:
                    idle += 1
                case Handled.UNWANTED:
                    consumer.cursor[reference.level] = reference.place
                    self._turns.restart()
            if owner is not None and idle:
                return

    def _hand_over(self, reference: Reference, taker: ArtemisConsumer) -> None:
        self._join_group(reference.message, taker)
        self._turns.restart()
        self._order.remove(reference)
        taker.deliver(reference)

    # -- groups ---------------------------------------------------------------------------------

    def _owner(self, message: CoreMessage) -> ArtemisConsumer | None:
        group = message.group_id
        return None if group is None else self._group_owners.get(group)

    def _join_group(self, message: CoreMessage, taker: ArtemisConsumer) -> None:
        """
        Make `taker` the owner of the message's group, if the group has none: it gets all later messages of the group.

        A message of a group that has an owner does not use up a turn. Source: QueueImpl.handleMessageGroup.
        """
        group = message.group_id
        if group is None:
            return
        if group in self._group_owners:
            self._turns.repeat()
        else:
            self._group_owners[group] = taker
