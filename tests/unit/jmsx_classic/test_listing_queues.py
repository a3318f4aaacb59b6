"""How long Classic is waited for that tells of its queues, with consumers that get what a busy one sent."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, cast

from jmsx import Message
from jmsx_classic.dead_letter_access import _PATIENCE, _queues_of

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx import Session


class Telling:
    """A session with two consumers: one gets a queue a second, the other the end behind all."""

    def __init__(self, queues: int, *, ends: bool = True) -> None:
        self.queues = queues
        self.told = 0
        self.now = 0.0
        self.ends = ends
        self.consumers: tuple[Iterator[Any], ...] = (self.advisories(), self.end())

    def advisories(self) -> Iterator[Any]:
        """What `receive(0.0)` of the one returns."""
        while True:
            if self.told < min(self.queues, int(self.now)):
                self.told += 1
                yield Message(
                    f'<destination class="ActiveMQQueue"><string>q{self.told}</string>'
                    "</destination><operationType>0</operationType>"
                )
            else:
                yield None

    def end(self) -> Iterator[Any]:
        """What that of the other does, `now` being when it returns."""
        while True:
            yield Message("") if self.ends and self.now > self.queues else None

    def create_consumer(self, _: object) -> Any:
        """First that of the queues; the third waits for nothing."""
        source, *others = self.consumers
        self.consumers = (*others, self.end())
        telling = self

        class Consumer:
            def receive(self, timeout: float) -> Any:
                telling.now += timeout
                return next(source)

        return Consumer()

    def create_temporary_topic(self) -> None:
        """It is told of."""


def test_a_broker_that_tells_more_is_waited_for() -> None:
    """15,000 queues took it 6 s; it was said to tell of none."""
    many = int(_PATIENCE) * 3
    found = _queues_of(cast("Session", Telling(many)))
    assert found == {f"q{number}" for number in range(1, many + 1)}


def test_a_broker_that_tells_no_more_is_not() -> None:
    """Its memory is full, or it sends no advisories."""
    assert _queues_of(cast("Session", Telling(0, ends=False))) is None
    assert _queues_of(cast("Session", Telling(3, ends=False))) is None
