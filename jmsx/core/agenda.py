"""
Which consumer of a session is served next, and which has something due next.

A session may have a thousand consumers, of which a message changes one. So each consumer tells before it changes
(`note`), and only those that did are looked at again when something is asked. What is found is kept in heaps, whose old
entries are skipped. All steps are in an order in which one that is interrupted is done again.
"""

from __future__ import annotations

import math
from heapq import heapify, heappop, heappush
from typing import TYPE_CHECKING, Final

from jmsx.core.consumer import ConsumerCore

if TYPE_CHECKING:
    from collections.abc import Callable, Container

#: Old entries of a heap, beyond four for each consumer, from which on it is made anew.
SPARE: Final = 64


class _Heap:
    """Consumers by a number, the least first; a consumer has one number, or infinity: then it is not in it."""

    def __init__(self) -> None:
        self._entries: list[tuple[float, int, ConsumerCore]] = []
        self._number: dict[ConsumerCore, float] = {}

    def set(self, consumer: ConsumerCore, number: float, tie: int) -> None:
        """Give a consumer its number; of equal ones the least `tie` comes first."""
        if number == self._number.get(consumer, math.inf):
            return
        if number != math.inf:
            heappush(self._entries, (number, tie, consumer))
        self._number[consumer] = number
        if len(self._entries) > 4 * len(self._number) + SPARE:
            entries = [one for one in self._entries if self._number.get(one[2]) == one[0]]
            heapify(entries)
            self._entries = entries

    def first(self) -> tuple[float, ConsumerCore] | None:
        """Return the least number with its consumer, or None."""
        entries = self._entries
        while entries:
            number, _, consumer = entries[0]
            if self._number.get(consumer) == number:
                return number, consumer
            heappop(entries)
        return None

    def forget(self, consumer: ConsumerCore) -> None:
        """Take a consumer out."""
        self._number.pop(consumer, None)


class Agenda:
    """Keeps what is next for the consumers of one session; times are seconds, monotonic."""

    def __init__(self) -> None:
        #: Of the open consumers, in the order of their opening.
        self._ties: dict[ConsumerCore, int] = {}
        self._opened = 0
        #: Those that have changed since their timer was asked for, which is after each call, and since all else was.
        self._untimed: dict[ConsumerCore, None] = {}
        self._changed: dict[ConsumerCore, None] = {}
        self._timers = _Heap()
        self._paused = _Heap()  #: by the end of their pause
        self._ready = _Heap()  #: by the order of the message that would be handed out next
        #: Of which the application wants no message yet.
        self._unwanted: dict[ConsumerCore, None] = {}
        #: Consumers of which the application holds messages
        self._holding: dict[ConsumerCore, None] = {}
        self._widened: dict[ConsumerCore, None] = {}  #: whose window a transaction may keep open

    def add(self, consumer: ConsumerCore) -> None:
        """Keep a consumer that was opened."""
        self._opened += 1
        self._ties[consumer] = self._opened
        self.note(consumer)

    def remove(self, consumer: ConsumerCore) -> None:
        """Forget a consumer that is closed."""
        for heap in (self._timers, self._paused, self._ready):
            heap.forget(consumer)
        for some in (self._untimed, self._changed, self._unwanted, self._holding, self._widened):
            some.pop(consumer, None)
        self._ties.pop(consumer, None)

    def note(self, consumer: ConsumerCore) -> None:
        """Note that a consumer is about to change."""
        self._untimed[consumer] = self._changed[consumer] = None

    def next_timer(self) -> float | None:
        """Return when the first of them has something due, or None."""
        if self._untimed:
            self._look_at_all(self._untimed, self._set_timer)
        first = self._timers.first()
        return None if first is None else first[0]

    def take_due(self, now: float) -> list[ConsumerCore]:
        """Return those that have something due; they are looked at again, whether they do it or not."""
        self._look_at_all(self._untimed, self._set_timer)
        due = []
        while (first := self._timers.first()) is not None and first[0] <= now:
            due.append(first[1])
            self._again(self._timers, first[1])
        return due

    def next_ready(self, subscription_ids: Container[str], now: float) -> ConsumerCore | None:
        """Return the consumer among these whose message is next, by order, or None if none has one."""
        self._look()
        while (first := self._paused.first()) is not None and first[0] <= now:
            self._again(self._paused, first[1])
            first[1].end_pause(now)
        self._look()
        while (first := self._ready.first()) is not None:
            if first[1].settings.subscription_id in subscription_ids:
                return first[1]
            self._again(self._ready, first[1])
        return None

    def unwanted(self, subscription_ids: Container[str]) -> list[ConsumerCore]:
        """Return those among these of which the application wants no message yet."""
        self._look()
        return [one for one in self._unwanted if one.settings.subscription_id in subscription_ids]

    def holding(self) -> list[ConsumerCore]:
        """Return those of which the application holds messages, in the order of their opening."""
        self._look()
        return sorted(self._holding, key=self._ties.__getitem__)

    def widened(self) -> list[ConsumerCore]:
        """Return those whose window a transaction may keep open, in the order of their opening."""
        self._look()
        return sorted(self._widened, key=self._ties.__getitem__)

    def _again(self, heap: _Heap, consumer: ConsumerCore) -> None:
        """Take a consumer out of a heap; it comes in again at the next look."""
        self.note(consumer)
        heap.forget(consumer)

    def _look(self) -> None:
        """Look at those that have changed, but for their timers."""
        if self._changed:
            self._look_at_all(self._changed, self._look_at)

    def _look_at_all(
        self, noted: dict[ConsumerCore, None], look_at: Callable[[ConsumerCore, int], None]
    ) -> None:
        for consumer in list(noted):
            tie = self._ties.get(consumer)
            if tie is not None:
                look_at(consumer, tie)
            noted.pop(consumer, None)

    def _set_timer(self, consumer: ConsumerCore, tie: int) -> None:
        timer = consumer.next_timer()
        self._timers.set(consumer, math.inf if timer is None else timer, tie)

    def _look_at(self, consumer: ConsumerCore, tie: int) -> None:
        paused_until = consumer.paused_until
        if paused_until is None:
            self._ready.set(consumer, consumer.next_order, tie)
            self._paused.forget(consumer)
        else:
            self._paused.set(consumer, paused_until, tie)
            self._ready.forget(consumer)
        _keep(self._unwanted, consumer, belongs=consumer.wanted_since is None)
        _keep(self._holding, consumer, belongs=bool(consumer.delivered))
        _keep(self._widened, consumer, belongs=consumer.widened)


def _keep(some: dict[ConsumerCore, None], consumer: ConsumerCore, *, belongs: bool) -> None:
    if belongs:
        some[consumer] = None
    elif some:
        some.pop(consumer, None)
