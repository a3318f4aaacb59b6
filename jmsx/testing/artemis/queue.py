"""
A queue: who gets which of its messages, what comes back, and when a message is dead.

Source: artemis-server 2.44.0 QueueImpl and ScheduledDeliveryHandlerImpl.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from jmsx.testing.artemis.consumer import Handled
from jmsx.testing.artemis.line import Cursor, Line, Reference
from jmsx.testing.artemis.turns import Turns

if TYPE_CHECKING:
    from jmsx.testing.artemis.consumer import ArtemisConsumer
    from jmsx.testing.artemis.house import ArtemisHouse
    from jmsx.testing.artemis.message import CoreMessage
    from jmsx.testing.artemis.names import Routing
    from jmsx.testing.artemis.selecting import Filter


class ArtemisQueue:
    """One queue; `waiting`, `in_flight` and the counts are for tests to look at."""

    def __init__(
        self,
        house: ArtemisHouse,
        name: str,
        address: str,
        routing: Routing,
        *,
        selector: Filter | None = None,
        temporary: bool = False,
    ) -> None:
        self.house = house
        self.name = name
        self.address = address
        self.routing = routing
        self.selector = selector  #: of a subscription to a topic
        self.temporary = temporary  #: it goes with its only consumer
        self.enqueued = 0  #: messages that came in
        self.dequeued = 0  #: messages that are gone: acknowledged, dead or expired
        self.expired = 0  #: messages whose time was over
        self._line = Line()
        self._scheduled: list[Reference] = []  #: not yet due
        self._cursors: dict[ArtemisConsumer, Cursor] = {}
        self._turns: Turns[ArtemisConsumer] = Turns()
        self._group_owners: dict[str, ArtemisConsumer] = {}
        self._next_sequence = 0
        self._is_awake = False

    # -- for tests to look at -------------------------------------------------------------------

    @property
    def consumers(self) -> list[ArtemisConsumer]:
        """Those who are there, oldest first."""
        return list(self._cursors)

    @property
    def waiting(self) -> list[CoreMessage]:
        """Messages that nobody has in flight, in the order in which they will be given out."""
        late = sorted(self._scheduled, key=lambda reference: reference.scheduled)
        return [reference.message for reference in (*self._line, *late)]

    @property
    def in_flight(self) -> list[CoreMessage]:
        """Messages that are dispatched and not settled, oldest first."""
        held = [r for consumer in self._cursors for r in consumer.delivering.values()]
        return [r.message for r in sorted(held, key=lambda r: (r.sequence, r.message.message_id))]

    def browse(self) -> list[CoreMessage]:
        """Messages that are not settled, in flight or not, oldest first."""
        return sorted((*self.in_flight, *self.waiting), key=lambda message: message.message_id)

    def __len__(self) -> int:
        return len(self.waiting) + len(self.in_flight)

    # -- messages come and go -------------------------------------------------------------------

    def add(self, message: CoreMessage) -> None:
        """Take a message in, at the end or, if it has a delay, apart."""
        self.enqueued += 1
        reference = Reference(message, scheduled=message.scheduled)
        if reference.scheduled:
            self._hold_back(reference)
            return
        self._next_sequence += 1
        reference.sequence = self._next_sequence
        self._line.add_tail(reference)
        self.wake()

    def settle(self, reference: Reference) -> None:
        """`reference` is acknowledged, dead or expired: gone."""
        del reference
        self.dequeued += 1

    def give_back(self, references: list[Reference], *, at_once: bool) -> None:
        """
        Take back what a consumer had in flight: to its old place, later, or to the dead letter address.

        Source: RefsOperation.afterRollback, QueueImpl.checkRedelivery; a delay is not looked at if `at_once`.
        """
        settings = self.house.manners.match(self.address)
        alive = []
        for reference in references:
            if 0 < settings.max_delivery_attempts <= reference.delivery_count:
                self.settle(reference)
                self.house.bury(self, reference.message, settings.dead_letter_address)
                continue
            if not at_once and settings.redelivery_delay > 0:
                delay = settings.delay_ms(reference.delivery_count)
                reference.scheduled = self.house.broker.now_ms() + delay
            alive.append(reference)
        for reference in reversed(alive):
            if reference.scheduled:
                self._hold_back(reference)
            else:
                self._line.add_sorted(reference)
        self._look_again()

    def sweep(self) -> None:
        """Give up all that waits and is expired."""
        now_ms = self.house.broker.now_ms()
        for reference in [r for r in self._line if r.message.is_expired(now_ms)]:
            self._expire(reference)

    def _expire(self, reference: Reference) -> None:
        self._line.remove(reference)
        self.expired += 1
        self.settle(reference)
        self.house.expire(self, reference.message)

    # -- what comes later -----------------------------------------------------------------------

    def _hold_back(self, reference: Reference) -> None:
        self._scheduled.append(reference)
        broker = self.house.broker
        seconds = (reference.scheduled - broker.now_ms()) / 1000
        if seconds > 0:
            broker.at(broker.now + seconds, self._release_due)
        else:
            broker.later(self._release_due)

    def _release_due(self) -> None:
        """What is due goes before all that waits: a delayed message overtakes."""
        now_ms = self.house.broker.now_ms()
        due = [reference for reference in self._scheduled if reference.scheduled <= now_ms]
        self._scheduled = [r for r in self._scheduled if r.scheduled > now_ms]
        for reference in sorted(due, key=lambda r: r.scheduled, reverse=True):
            reference.scheduled = 0
            self._line.add_head(reference)
        self._look_again()

    # -- consumers come and go ------------------------------------------------------------------

    def add_consumer(self, consumer: ArtemisConsumer) -> None:
        """Let `consumer` take part."""
        self._cursors[consumer] = Cursor()
        self._turns.add(consumer)

    def remove_consumer(self, consumer: ArtemisConsumer) -> None:
        """Take `consumer` out; its groups are free again."""
        del self._cursors[consumer]
        self._turns.remove(consumer)
        self._group_owners = {g: o for g, o in self._group_owners.items() if o is not consumer}
        self._look_again()

    # -- dispatch -------------------------------------------------------------------------------

    def wake(self) -> None:
        """Have messages given out after what is going on now."""
        if not self._is_awake:
            self._is_awake = True
            self.house.broker.later(self._give_out)

    def _look_again(self) -> None:
        for cursor in self._cursors.values():
            cursor.reset()
        self.wake()

    def _give_out(self) -> None:
        """
        Offer messages to the consumers in turn, until each is busy or has seen them all.

        A message whose group belongs to a busy consumer stops everything behind it.
        Source: QueueImpl.deliver.
        """
        self._is_awake = False
        self._turns.restart()
        idle = 0
        while self._line and (consumer := self._turns.next()) is not None:
            reference = self._line.after(self._cursors[consumer])
            if reference is None:
                idle += 1
                continue
            if reference.message.is_expired(self.house.broker.now_ms()):
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
                    self._cursors[consumer].pass_by(reference)
                    self._turns.restart()
            if owner is not None and idle:
                return

    def _hand_over(self, reference: Reference, taker: ArtemisConsumer) -> None:
        self._join_group(reference.message, taker)
        self._turns.restart()
        self._line.remove(reference)
        taker.deliver(reference)

    # -- groups ---------------------------------------------------------------------------------

    def _owner(self, message: CoreMessage) -> ArtemisConsumer | None:
        group = message.group_id
        return None if group is None else self._group_owners.get(group)

    def _join_group(self, message: CoreMessage, taker: ArtemisConsumer) -> None:
        """
        The first consumer of a group gets all the rest of it.

        A message of a group that has an owner does not use up a turn, nor does the one that ends its group.
        Source: QueueImpl.handleMessageGroup.
        """
        group = message.group_id
        if group is None:
            return
        if not message.ends_group and group not in self._group_owners:
            self._group_owners[group] = taker
            return
        if message.ends_group:
            self._group_owners.pop(group, None)
        self._turns.repeat()
