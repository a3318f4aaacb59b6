"""What a fault can touch, and the look at what it has left."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from tests.faults.workload import BenchError
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from random import Random

    from jmsx_broker.local import LocalBroker
    from tests.faults.process import Consumer
    from tests.faults.settings import Task
    from tests.faults.workload import Producer
    from tests.integration.proxy import Proxy

#: Seconds without progress after which no more is expected.
_QUIET: Final = 12.0


@dataclass(kw_only=True)
class Scene:
    """One round on its stage."""

    task: Task
    chance: Random
    tls: bool
    marked: Sequence[str]  #: bodies
    brokers: Sequence[LocalBroker]
    proxies: Sequence[Proxy]  #: one before each broker
    consumers: Sequence[Consumer]  #: processes that share a task
    producer: Producer
    broken: list[str] = field(default_factory=list)  #: what was promised and not kept

    @property
    def broker(self) -> LocalBroker:
        """The first, or only, one."""
        return self.brokers[0]

    @property
    def proxy(self) -> Proxy:
        """The way to it."""
        return self.proxies[0]

    @property
    def consumer(self) -> Consumer:
        """The first, or only, one."""
        return self.consumers[0]

    @property
    def waiting(self) -> int:
        """Messages in the queue, of all brokers; those in delivery too."""
        return sum(broker.statistics(self.task.queue).size for broker in self.brokers)

    def settle(self, quiet: float = _QUIET, done: Callable[[], bool] = lambda: True) -> None:
        """Wait until every message that was sent is done, and `done()`, or nothing has moved for `quiet` seconds."""
        seen, since = (-1, -1), time.monotonic()
        while time.monotonic() - since < quiet:
            for consumer in self.consumers:
                consumer.tend()
            deliveries = self.consumer.read()
            waiting = -1
            if self.producer.sent <= {delivery.body for delivery in deliveries}:
                waiting = self.waiting
                if waiting == 0 and done():
                    return
            if (len(deliveries), waiting) != seen:
                seen, since = (len(deliveries), waiting), time.monotonic()
            time.sleep(0.1)

    def empty(self, broker: LocalBroker) -> None:
        """Wait until the consumer has done all that waits on this one; raises BenchError after 30 s."""
        if not eventually(lambda: broker.statistics(self.task.queue).size == 0, 30):
            raise BenchError(f"the consumer left messages behind; {self.consumer.words()}")
