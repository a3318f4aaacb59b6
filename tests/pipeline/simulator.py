"""A shop of which the truth is known: writes real segments, with losses and repeats put in on purpose."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from jmsx.core.events import (
    AckTrigger,
    DeliveryEnded,
    MessageDeadLettered,
    MessagesAcknowledged,
    MessageSent,
    MessagesReceived,
    Outcome,
    RedeliveryScheduled,
    Source,
    SubscriptionOpened,
)
from jmsx_eventlog import EventLog

if TYPE_CHECKING:
    from pathlib import Path

    from jmsx.core.events import Event

#: Seconds since the epoch at monotonic 0 of the simulated process.
EPOCH: Final = 1_790_000_000.0
SOURCE: Final = Source("127.0.0.1:61613", "classic", "c1", "c1-s1", 1)
QUEUES: Final = ("queue://orders", "queue://payments", "queue://mail")


@dataclass
class Clock:
    """Both clocks of the simulated process, in seconds; they only go when told."""

    now: float = 1000.0

    def monotonic(self) -> float:
        """Tell the monotonic clock."""
        return self.now

    def wall(self) -> float:
        """Tell the wall clock."""
        return EPOCH + self.now


@dataclass
class Truth:
    """What really happened."""

    sent: dict[str, str] = field(default_factory=dict)  #: key -> destination
    lost: set[str] = field(default_factory=set)
    duplicated: set[str] = field(default_factory=set)
    dead: set[str] = field(default_factory=set)
    discarded: set[str] = field(default_factory=set)
    expired: set[str] = field(default_factory=set)
    deliveries: int = 0
    again: int = 0  #: deliveries with attempt > 1


def seeded(seed: int) -> random.Random:
    """Make chance that comes out the same each time."""
    return random.Random(seed)


def key_at(wall: float, chance: random.Random) -> str:
    """Make a message key as jmsx senders do: 12 hex digits of epoch ms, 20 at random."""
    return f"{round(wall * 1000):012x}{chance.getrandbits(80):020x}"


def open_log(directory: Path, clock: Clock, **options: Any) -> EventLog:
    """Open an event log that goes by the simulated clocks."""
    return EventLog(
        directory, service="shop", wall=clock.wall, monotonic=clock.monotonic, **options
    )


def delivery(
    key: str, destination: str, at: float, chance: random.Random, **members: Any
) -> DeliveryEnded:
    """Make one delivery that was sent shortly before `at` (seconds, monotonic)."""
    received = at + chance.expovariate(20)
    started = received + chance.expovariate(100)
    ended = started + chance.lognormvariate(-5, 1)
    story = DeliveryEnded(
        at=ended + chance.expovariate(200),
        consumer=f"shop.{destination.rpartition('/')[2]}",
        destination=destination,
        message_id=f"ID:shop-1:1:1:1:{key[-6:]}",
        message_key=key,
        correlation_id=None,
        ack_mode="auto",
        prefetch=1000,
        attempt=1,
        redelivered=False,
        sent_ms=round((EPOCH + at) * 1000),
        received_at=received,
        started_at=started,
        ended_at=ended,
        outcome=Outcome.ACKNOWLEDGED,
        size=64,
    )
    return replace(story, **members)


def sent(key: str, destination: str, at: float, outcome: str = "confirmed") -> MessageSent:
    """Make one SEND that took a millisecond."""
    return MessageSent(
        at=at,
        destination=destination,
        message_key=key,
        outcome=outcome,
        started_at=at - 0.001,
        size=64,
    )


class Shop:
    """Two processes, one that sends and one that consumes, and what truly happened to each message."""

    def __init__(self, directory: Path, seed: int, **options: Any) -> None:
        self.clock = Clock()
        self.chance = seeded(seed)
        self.truth = Truth()
        self.producer = open_log(directory, self.clock, **options)
        self.consumer = open_log(directory, self.clock, **options)
        for queue in QUEUES:
            self._consumed(
                SubscriptionOpened(
                    at=self.clock.now,
                    consumer=f"shop.{queue.rpartition('/')[2]}",
                    destination=queue,
                    ack_mode="auto",
                    prefetch=1000,
                    maximum_redeliveries=2,
                    optimize_acknowledge=False,
                )
            )

    def trade(self, messages: int, **injected: int) -> Truth:
        """
        Send `messages` and consume them, spread over five minutes.

        `injected` names how many meet another fate: lost, duplicated, suppressed, dead, discarded, expired, retried.
        """
        fates = [fate for fate, count in injected.items() for _ in range(count)]
        fates += ["done"] * (messages - len(fates))
        self.chance.shuffle(fates)
        for fate in fates:
            self.clock.now += 300 / messages
            self._send_and(fate)
        return self.truth

    def close(self) -> None:
        """End both processes in order."""
        self.producer.close()
        self.consumer.close()

    def _send_and(self, fate: str) -> None:
        key, queue = key_at(self.clock.wall(), self.chance), self.chance.choice(QUEUES)
        self.truth.sent[key] = queue
        self.producer.observe(sent(key, queue, self.clock.now), SOURCE)
        getattr(self, f"_{fate}")(key, queue)

    def _consumed(self, event: Event) -> None:
        self.consumer.observe(event, SOURCE)

    def _deliver(
        self, key: str, queue: str, outcome: Outcome, attempt: int = 1, after: float = 0.0
    ) -> float:
        """Deliver once; returns when it was settled."""
        story = delivery(
            key, queue, self.clock.now + after, self.chance, outcome=outcome, attempt=attempt
        )
        consumer = story.consumer
        self._consumed(
            MessagesReceived(
                at=story.received_at,
                consumer=consumer,
                destination=queue,
                messages=1,
                redelivered=0,
            )
        )
        self._consumed(story)
        if outcome is Outcome.ACKNOWLEDGED:
            self._consumed(
                MessagesAcknowledged(
                    at=story.at,
                    consumer=consumer,
                    destination=queue,
                    messages=1,
                    trigger=AckTrigger.EACH,
                )
            )
        self.truth.deliveries += 1
        self.truth.again += attempt > 1
        return story.at

    def _done(self, key: str, queue: str) -> None:
        self._deliver(key, queue, Outcome.ACKNOWLEDGED)

    def _lost(self, key: str, queue: str) -> None:
        self.truth.lost.add(key)
        if self.chance.random() < 0.5:  # some were seen before they were lost
            self._deliver(key, queue, Outcome.ABANDONED)

    def _duplicated(self, key: str, queue: str) -> None:
        self.truth.duplicated.add(key)
        self._deliver(key, queue, Outcome.ACKNOWLEDGED)
        self._deliver(
            key, queue, self.chance.choice((Outcome.ACKNOWLEDGED, Outcome.COMMITTED)), after=20
        )

    def _discarded(self, key: str, queue: str) -> None:
        self.truth.discarded.add(key)
        self._deliver(key, queue, Outcome.DISCARDED)

    def _suppressed(self, key: str, queue: str) -> None:
        self._deliver(key, queue, Outcome.ACKNOWLEDGED)
        self._deliver(key, queue, Outcome.DUPLICATE, after=20)

    def _expired(self, key: str, queue: str) -> None:
        self.truth.expired.add(key)
        self._deliver(key, queue, Outcome.EXPIRED)

    def _retried(self, key: str, queue: str) -> None:
        self._fail(key, queue, 1)
        self._deliver(key, queue, Outcome.ACKNOWLEDGED, attempt=2, after=1)

    def _dead(self, key: str, queue: str) -> None:
        self.truth.dead.add(key)
        self._fail(key, queue, 1)
        self._fail(key, queue, 2)
        at = self._deliver(key, queue, Outcome.DEAD_LETTERED, attempt=3, after=2)
        self._consumed(
            MessageDeadLettered(
                at=at,
                consumer=f"shop.{queue.rpartition('/')[2]}",
                destination=queue,
                message_id="ID:x",
                message_key=key,
                attempts=3,
                reason="max_redeliveries",
                error_type=self.chance.choice(("ValueError", "KeyError")),
                error_message="the customer's name is in here",
                dead_letter_destination=None,
                by_copy=False,
            )
        )

    def _fail(self, key: str, queue: str, attempt: int) -> None:
        at = self._deliver(key, queue, Outcome.ROLLED_BACK, attempt=attempt, after=attempt - 1)
        self._consumed(
            RedeliveryScheduled(
                at=at,
                consumer=f"shop.{queue.rpartition('/')[2]}",
                destination=queue,
                message_key=key,
                next_attempt=attempt + 1,
                delay=1.0,
                blocking=True,
                by_broker=False,
            )
        )
