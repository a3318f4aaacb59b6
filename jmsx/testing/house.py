"""What a kind of broker must bring, to stand behind `FakeBroker`: its manners, and what it does with messages."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from jmsx.testing.fake_broker import FakeBroker
    from jmsx.testing.fake_link import FakeLink


class Manners(ABC):
    """How one kind of broker behaves: values only, with the numbers of its shipped configuration."""

    __slots__ = ()

    @abstractmethod
    def house(self, broker: FakeBroker) -> House:
        """A new broker of this kind with nothing in it, which lives by the time of `broker`."""


class House(ABC):
    """What lies behind the links: destinations, and the messages in them."""

    @abstractmethod
    def open_link(self, connection_id: str) -> FakeLink:
        """A new connection."""

    @abstractmethod
    def queue(self, name: str) -> QueueView:
        """The queue called `name`, made if it is not there."""

    @abstractmethod
    def topic(self, name: str) -> TopicView:
        """The topic called `name`, made if it is not there."""


class MessageView(Protocol):
    """A message, as tests may look at it."""

    @property
    def body(self) -> bytes:
        """As it was sent."""

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
        """Messages that nobody has in flight, in the order in which they will be given out."""

    @property
    def in_flight(self) -> Sequence[MessageView]:
        """Messages that are dispatched and not settled, oldest first."""

    @property
    def enqueued(self) -> int:
        """How many messages came in."""

    @property
    def dequeued(self) -> int:
        """How many are gone: acknowledged, dead or expired."""

    @property
    def expired(self) -> int:
        """How many are gone because their time was over."""

    def browse(self) -> Sequence[MessageView]:
        """Those that are not acknowledged, in flight or not, oldest first."""

    def __len__(self) -> int: ...


class TopicView(Protocol):
    """A topic, as tests may look at it."""

    @property
    def enqueued(self) -> int:
        """How many messages were published."""
