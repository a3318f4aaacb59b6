"""The demo's own record of messages, by message key: which were sent, which were settled, and how often."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

from jmsx.core.events import (
    DeliveryEnded,
    Event,
    MessageDeadLettered,
    MessageSent,
    Outcome,
    RedeliveryScheduled,
    Source,
)
from jmsx.drivers.locks import mutex

if TYPE_CHECKING:
    from collections.abc import Iterable

#: Outcomes by which a message is done, because its handler did it or a setting of the application says so.
_DONE = frozenset({Outcome.ACKNOWLEDGED, Outcome.COMMITTED, Outcome.DISCARDED, Outcome.EXPIRED})


class Books:
    """An observer that remembers every message key; for runs that fit into memory."""

    def __init__(self) -> None:
        self._lock = mutex()
        self.sent: dict[str, str] = {}  #: key -> destination
        self.settled: Counter[str] = Counter()  #: key -> how often the message was handled
        self.settled_at: Counter[str] = Counter()  #: destination -> messages settled, dead ones too
        self.dead: dict[str, int] = {}  #: key -> deliveries of the message before it was dead
        self.dead_letter_queues: set[str] = set()  #: URIs of the queues that got the copies
        self.processed = 0  #: deliveries that the handler finished
        self.redelivered = 0  #: redeliveries that were decided on

    def observe(self, event: Event, source: Source) -> None:  # noqa: ARG002 - an observer's signature
        """Record `event`, if it is one about a message."""
        with self._lock:
            match event:
                case MessageSent(outcome="confirmed"):
                    self.sent[event.message_key] = event.destination
                case DeliveryEnded() if event.outcome in _DONE:
                    self.settled[event.message_key] += 1
                    self.settled_at[event.destination] += 1
                    self.processed += event.outcome is not Outcome.EXPIRED
                case DeliveryEnded(outcome=Outcome.DUPLICATE):
                    # handled before by a process that could not report it
                    self.settled.setdefault(event.message_key, 1)
                    self.settled_at[event.destination] += 1
                case MessageDeadLettered():
                    self.dead[event.message_key] = event.attempts
                    if event.dead_letter_destination is not None:
                        self.dead_letter_queues.add(event.dead_letter_destination)
                    self.settled_at[event.destination] += 1
                case RedeliveryScheduled():
                    self.redelivered += 1
                case _:
                    pass

    def close(self) -> None:
        """Do nothing: an observer's `close()`, and nothing is held."""

    def open_keys(self) -> int:
        """Return how many sent messages are neither settled nor dead yet."""
        with self._lock:
            return len(self.sent.keys() - self.settled.keys() - self.dead.keys())

    def sent_to(self) -> Counter[str]:
        """Return messages sent, by destination."""
        with self._lock:
            return Counter(self.sent.values())

    def duplicates(self) -> int:
        """Return how many messages were handled more than once."""
        with self._lock:
            return sum(1 for times in self.settled.values() if times > 1)

    def lost(self, on_broker: Iterable[str]) -> set[str]:
        """Return the keys of messages that were sent, were not settled, and are not on the broker either."""
        with self._lock:
            return self.sent.keys() - self.settled.keys() - set(on_broker)
