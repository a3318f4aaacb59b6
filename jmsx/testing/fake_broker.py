"""
A broker in memory, at the level of STOMP frames.

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

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final, Protocol

from jmsx.core.option_checks import wrong_type
from jmsx.testing.artemis.link import ArtemisLink
from jmsx.testing.artemis.post_office import PostOffice
from jmsx.testing.classic.link import ClassicLink
from jmsx.testing.classic.regions import RegionBroker
from jmsx.testing.faults import BrokerFault, FaultPlan, PlannedFault, SocketFault
from jmsx.testing.link import FakeLink
from jmsx.testing.profiles import ArtemisProfile, ClassicProfile, Profile
from jmsx.testing.runtime import Runtime

_ORIGIN: Final = 1_700_000_000.0
_PROFILES: Final[Mapping[str, Profile]] = {
    "classic": ClassicProfile(),
    "artemis": ArtemisProfile(),
}

#: Words by which a refusal is known on both brokers.
REFUSAL: Final = "ProtocolException (AMQ339013): refused by the test"


class MessageView(Protocol):
    """A message, as tests may look at it."""

    @property
    def body(self) -> bytes:
        """The bytes that were sent."""

    @property
    def properties(self) -> Mapping[str, str | int]:
        """The headers that are the sender's own, and what the broker added."""

    @property
    def priority(self) -> int:
        """0 to 9."""

    @property
    def persistent(self) -> bool:
        """Whether a real broker would have it on its disk."""


class QueueView(Protocol):
    """A queue, as tests may look at it."""

    @property
    def waiting(self) -> Sequence[MessageView]:
        """Messages that nobody has in flight, in the order in which they will be given out; delayed ones last."""

    @property
    def in_flight(self) -> Sequence[MessageView]:
        """Messages that are dispatched and not settled, oldest first."""

    def browse(self) -> Sequence[MessageView]:
        """Return messages that are not acknowledged, in flight or not, oldest first."""

    def __len__(self) -> int: ...


class FakeBroker:
    """
    One broker in memory, with its links and its time.

    Args:
        profile: which broker to be like: "classic", "artemis", or one from `jmsx.testing.profiles`.
        origin: the wall-clock time at `now` = 0, in seconds since 1970; it dates messages and expires them.

    Raises:
        ValueError: on an unknown name.
    """

    def __init__(self, profile: Profile | str = "classic", *, origin: float = _ORIGIN) -> None:
        self.profile = _named(profile)
        self.links: list[FakeLink] = []  #: those that are open, oldest first
        self._runtime = runtime = Runtime(origin)
        self._connect: Callable[[], FakeLink]
        self._queue: Callable[[str], QueueView]
        if isinstance(self.profile, ClassicProfile):
            regions = RegionBroker(runtime, self.profile)
            self._queue = regions.queue
            self._connect = partial(ClassicLink, runtime, self.links, regions)
        else:
            office = PostOffice(runtime, self.profile)
            self._queue = office.queue
            self._connect = partial(ArtemisLink, runtime, self.links, office)

    def open_link(self, now: float) -> FakeLink:
        """Open a new connection, on which the client has not said CONNECT; `now` in seconds, monotonic."""
        self._runtime.advance_to(now)
        link = self._connect()
        self.links.append(link)
        return link

    def drop(self, link: FakeLink, now: float) -> None:
        """Let the socket of `link` die."""
        self._runtime.advance_to(now)
        link.lose()
        self._runtime.settle()

    def queue(self, name: str) -> QueueView:
        """Show the queue called `name`, made if it is not there."""
        return self._queue(name)

    # -- faults ---------------------------------------------------------------------------------

    @property
    def faults(self) -> FaultPlan:
        """The faults that are planned and have not happened yet."""
        return self._runtime.faults

    def refuse_next(
        self, command: str, message: str = REFUSAL, *, link: FakeLink | None = None
    ) -> None:
        """
        Have the broker fail the next `command`: ERROR instead of RECEIPT.

        A `message` that is no refusal of either broker's, such as `java.io.IOException`, leaves SEND and COMMIT in
        doubt.

        What STOMP's side of the broker does before has been done by then, as on a real broker. Classic: a refused
        COMMIT has lost its name, a refused ACK its ack id, and a frame in a transaction without `receipt` makes it
        rollback-only. Artemis: a refused COMMIT has lost its messages, and the connection is closed.
        """
        self.faults.add(PlannedFault(command, BrokerFault(message), link))

    def cut_next(self, command: str, *, applied: bool, link: FakeLink | None = None) -> None:
        """Let the socket die at the next `command`: before the broker saw it, or `applied` but not answered."""
        self.faults.add(PlannedFault(command, SocketFault("cut by the test"), link, applied))

    # -- time -----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The time that was last told (seconds, monotonic)."""
        return self._runtime.now

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self._runtime.now_ms()

    def next_timer(self) -> float | None:
        """Return when `handle_timer` is next due (seconds, monotonic), or None if nothing waits for a time."""
        return self._runtime.next_timer()

    def handle_timer(self, now: float) -> None:
        """Let time go on to `now`, and do what is due: delayed messages; raises ValueError if it would go back."""
        self._runtime.advance_to(now)
        self._runtime.settle()


def _named(profile: Profile | str) -> Profile:
    if isinstance(profile, ClassicProfile | ArtemisProfile):
        return profile
    if not isinstance(profile, str):
        raise wrong_type("broker", "classic, artemis or a profile", profile)
    if profile not in _PROFILES:
        raise ValueError(f"no profile is called {profile!r}; there are {', '.join(_PROFILES)}")
    return _PROFILES[profile]
