"""
A broker in memory, at the level of STOMP frames.

It has no socket, thread, clock or randomness: `now` is an argument, ids are counters. All effects of a frame happen
before the call returns, on all links, in the order in which the real broker's tasks would run:

>>> from jmsx.core.frames import Frame
>>> from jmsx.testing import FakeBroker
>>> broker = FakeBroker()
>>> link = broker.open_link(now=0.0)
>>> link.feed(Frame("CONNECT", {"accept-version": "1.2", "host": "x"}), now=0.0)
>>> [frame.command for frame in link.take_frames()]
['CONNECTED']

Where the fake broker would silently behave unlike the real one, it raises NotImplementedError. The modules
`jmsx.testing.classic` and `jmsx.testing.artemis` list what each kind of broker lacks and where it differs.
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

#: An error text that jmsx takes for a refusal on both brokers.
REFUSAL: Final = "ProtocolException (AMQ339013): refused by the test"


class MessageView(Protocol):
    """A message, as tests may look at it."""

    @property
    def body(self) -> bytes:
        """The bytes that were sent."""

    @property
    def properties(self) -> Mapping[str, str | int]:
        """The sender's own headers, and those that the broker added."""

    @property
    def priority(self) -> int:
        """The JMS priority, 0 to 9."""

    @property
    def persistent(self) -> bool:
        """Whether a real broker would store the message on disk."""


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
        origin: the wall-clock time at `now` = 0, in seconds since 1970; used for timestamps and expiry.

    Raises:
        ValueError: on an unknown name.
    """

    def __init__(self, profile: Profile | str = "classic", *, origin: float = _ORIGIN) -> None:
        self.profile = _named(profile)
        self.links: list[FakeLink] = []  #: the open ones, oldest first
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
        """Open a new connection, on which no CONNECT has been sent yet; `now` is in seconds, monotonic."""
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
        """Return the queue called `name`; it is created if it does not exist."""
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

        If `message` is not the text of a refusal, for instance `java.io.IOException`, the outcome of a SEND or COMMIT
        is in doubt.

        The fault strikes after the broker's STOMP layer has done its part, as on a real broker. Classic: after a
        refused COMMIT the transaction's name, after a refused ACK the ack id, is no longer valid; a refused frame in a
        transaction without `receipt` makes the transaction rollback-only. Artemis: the messages of a refused COMMIT are
        lost, and the connection is closed.
        """
        self.faults.add(PlannedFault(command, BrokerFault(message), link))

    def cut_next(self, command: str, *, applied: bool, link: FakeLink | None = None) -> None:
        """Let the socket die at the next `command`: before the broker sees it, or if `applied` before it answers."""
        self.faults.add(PlannedFault(command, SocketFault("cut by the test"), link, applied))

    # -- time -----------------------------------------------------------------------------------

    @property
    def now(self) -> float:
        """The latest `now` that any call has given (seconds, monotonic)."""
        return self._runtime.now

    def now_ms(self) -> int:
        """Return epoch milliseconds."""
        return self._runtime.now_ms()

    def next_timer(self) -> float | None:
        """Return when `handle_timer` is next due (seconds, monotonic), or None if nothing waits for a time."""
        return self._runtime.next_timer()

    def handle_timer(self, now: float) -> None:
        """Advance time to `now`, and deliver delayed messages that are due; raises ValueError if time would go back."""
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
