"""
A broker in memory, at the level of STOMP frames, with the manners of a real one.

It has no socket, thread, clock or randomness: `now` is an argument, ids are counters. What one frame causes happens
before the call returns, on all links, in the order in which the real broker's tasks would run:

>>> from jmsx.core.frames import Frame
>>> from jmsx.testing import FakeBroker
>>> broker = FakeBroker()
>>> link = broker.open_link(now=0.0)
>>> link.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), now=0.0)
>>> [frame.command for frame in link.take_frames()]
['CONNECTED']

What would silently go another way than on the real broker raises NotImplementedError. What each kind of broker has not,
and where it is not like a real one, is told in `jmsx.testing.classic` and `jmsx.testing.artemis`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from typing import TYPE_CHECKING, Final

from jmsx.testing.faults import Cut, FaultPlan, Refusal
from jmsx.testing.manners import named

if TYPE_CHECKING:
    from collections.abc import Callable

    from jmsx.testing.fake_link import FakeLink
    from jmsx.testing.house import Manners, QueueView, TopicView

_ORIGIN = 1_700_000_000.0

#: Words by which a refusal is known on both brokers.
REFUSAL: Final = "ProtocolException (AMQ339013): refused by the test"


class FakeBroker:
    """
    One broker in memory, with its links and its time.

    Args:
        manners: which broker to be like: "classic", "artemis", or values made from those in `jmsx.testing.manners`.
        origin: the wall-clock time at `now` = 0, in seconds since 1970; it dates messages and expires them.
    """

    def __init__(self, manners: Manners | str = "classic", *, origin: float = _ORIGIN) -> None:
        self.manners = named(manners)
        self.faults = FaultPlan()
        self.links: list[FakeLink] = []  #: those that are open, oldest first
        self._origin = origin
        self._now = 0.0
        self._todo: deque[Callable[[], None]] = deque()
        self._timers: list[tuple[float, int, Callable[[], None]]] = []
        self._ids = itertools.count(1)
        self.house = self.manners.house(self)

    # -- for tests ------------------------------------------------------------------------------

    def open_link(self, now: float) -> FakeLink:
        """A new connection, on which the client has not said CONNECT; `now` in seconds, monotonic."""
        self.arrive(now)
        link = self.house.open_link(f"ID:fake-1-1:{self.next_id()}")
        self.links.append(link)
        return link

    def drop(self, link: FakeLink, now: float) -> None:
        """Let the socket of `link` die."""
        self.arrive(now)
        link.lose()
        self.settle()

    def silence(self, link: FakeLink, now: float) -> None:
        """Have the broker notice that nothing came on `link` for as long as it waits."""
        self.arrive(now)
        link.silent()
        self.settle()

    def queue(self, name: str) -> QueueView:
        """The queue called `name`, made if it is not there."""
        return self.house.queue(name)

    def topic(self, name: str) -> TopicView:
        """The topic called `name`, made if it is not there."""
        return self.house.topic(name)

    def refuse_next(
        self, command: str, message: str = REFUSAL, *, link: FakeLink | None = None
    ) -> None:
        """
        Have the broker fail the next `command`: ERROR instead of RECEIPT.

        A `message` that is no refusal of either broker's, such as `java.io.IOException`, leaves SEND and COMMIT in
        doubt.

        What STOMP's side of the broker does before has been done by then, as on a real broker. Classic: a refused
        COMMIT has lost its name, a refused ACK its ack id, and a frame in a transaction without `receipt` makes it
        rollback-only. Artemis: a refused COMMIT has lost its messages, and in STOMP 1.2 the connection is closed.
        """
        self.faults.add(Refusal(command, message, link))

    def cut_next(self, command: str, *, applied: bool, link: FakeLink | None = None) -> None:
        """Let the socket die at the next `command`: before the broker saw it, or `applied` but not answered."""
        self.faults.add(Cut(command, applied, link))

    # -- time -----------------------------------------------------------------------------------

    def next_timer(self) -> float | None:
        """When `handle_timer` is next due (seconds, monotonic), or None if nothing waits."""
        return self._timers[0][0] if self._timers else None

    def handle_timer(self, now: float) -> None:
        """Do what is due: scheduled messages, and each queue's look for expired messages."""
        self.arrive(now)

    def arrive(self, now: float) -> None:
        """Let time go on to `now`, doing what is due on the way; raises ValueError if it would go back."""
        if not now >= self._now:  # also refuses NaN
            raise ValueError(f"time does not go back: it is {self._now}, not {now}")
        while self._timers and self._timers[0][0] <= now:
            due, _, work = heapq.heappop(self._timers)
            self._now = due
            work()
            self.settle()
        self._now = now

    @property
    def now(self) -> float:
        """The time that was last told (seconds, monotonic)."""
        return self._now

    def now_ms(self) -> int:
        """Epoch milliseconds."""
        return round((self._origin + self._now) * 1000)

    def at(self, moment: float, work: Callable[[], None]) -> None:
        """Do `work` when it is `moment` (seconds, monotonic)."""
        heapq.heappush(self._timers, (moment, self.next_id(), work))

    # -- work that waits for the end of what is going on ----------------------------------------

    def later(self, work: Callable[[], None]) -> None:
        """Do `work` after what is going on now: the broker's other threads."""
        self._todo.append(work)

    def settle(self) -> None:
        """Do all that waits, until the broker is at rest."""
        while self._todo:
            self._todo.popleft()()

    # -- links ------------------------------------------------------------------------------------

    def forget(self, link: FakeLink) -> None:
        """The connection is over."""
        self.links.remove(link)

    def next_id(self) -> int:
        """A number that was never given before."""
        return next(self._ids)
