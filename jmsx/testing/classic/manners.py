"""The habits of ActiveMQ Classic, as values."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from jmsx.testing.classic.house import ClassicHouse
from jmsx.testing.house import Manners

if TYPE_CHECKING:
    from jmsx.testing.fake_broker import FakeBroker


@dataclass(frozen=True, slots=True, kw_only=True)
class ClassicManners(Manners):
    """
    The habits of ActiveMQ Classic, with the numbers of its shipped configuration.

    Source: activemq-broker 6.1.8 and a live one; jmsx_classic/BROKER.md.
    """

    server: str  #: what CONNECTED says
    versions: tuple[str, ...]  #: STOMP versions, best first
    max_page_size: int  #: messages that one wake-up of a queue pages in and dispatches, at most
    max_browse_page_size: int  #: messages that a queue browser sees, at most
    queue_prefetch: int  #: messages
    topic_prefetch: int  #: messages
    durable_prefetch: int  #: messages
    dead_letter_queue: str  #: one for all
    expiry_period: float  #: seconds between two looks for expired messages, each also a wake-up
    prioritized: bool  #: queues deliver by priority (a destination policy, off by default)
    scheduler: bool  #: AMQ_SCHEDULED_DELAY works

    def house(self, broker: FakeBroker) -> ClassicHouse:
        """A new broker of this kind with nothing in it."""
        return ClassicHouse(broker, self)


#: ActiveMQ Classic 6.1.8, default policies, `schedulerSupport="true"`.
CLASSIC: Final = ClassicManners(
    server="ActiveMQ/6.1.8",
    versions=("1.2", "1.1", "1.0"),
    max_page_size=200,
    max_browse_page_size=400,
    queue_prefetch=1000,
    topic_prefetch=32767,
    durable_prefetch=100,
    dead_letter_queue="ActiveMQ.DLQ",
    expiry_period=30.0,
    prioritized=False,
    scheduler=True,
)
