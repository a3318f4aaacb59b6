"""One round: load, a fault in the middle of it, and then what each side says of every message."""

from __future__ import annotations

import contextlib
import tempfile
import time
import uuid
from pathlib import Path
from typing import TYPE_CHECKING, Final

from jmsx_broker import ArtemisBroker, ClassicBroker
from tests.faults.account import Account, Traces
from tests.faults.cases import CASES, Scene
from tests.faults.process import Consumer
from tests.faults.proxy import Proxy
from tests.faults.workload import BenchError, Producer
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from random import Random

    from jmsx_broker.local import LocalBroker

_BROKERS: Final[dict[str, type[ClassicBroker | ArtemisBroker]]] = {
    "classic": ClassicBroker,
    "artemis": ArtemisBroker,
}

KINDS: Final = tuple(_BROKERS)

_DEAD_LETTERS: Final = ("ActiveMQ.DLQ", "DLQ")  #: of Classic and of Artemis


@contextlib.contextmanager
def running(kind: str) -> Iterator[LocalBroker]:
    """A broker to ill-treat."""
    with _BROKERS[kind]() as broker:
        yield broker


def run_case(case: str, broker: LocalBroker, chance: Random, *, rounds: int, size: int) -> Account:
    """The account of `rounds` rounds of `size` messages; raises BenchError when a round has no end."""
    account = Account(case)
    for _ in range(rounds):
        account = account.add(_run_round(case, broker, chance, size))
    return account


def _run_round(case: str, broker: LocalBroker, chance: Random, size: int) -> Traces:
    name = f"jmsx.faults.{uuid.uuid4().hex[:10]}"
    bodies = [f"{name}/{number}" for number in range(size)]
    with (
        tempfile.TemporaryDirectory(prefix="jmsx-faults-") as folder,
        Proxy(broker.url) as proxy,
        Consumer(proxy.url, name, Path(folder) / "journal") as consumer,
    ):
        # else a slow start of the program would leave no load for the fault
        if not eventually(lambda: broker.statistics(name).consumer_count > 0, 30):
            raise BenchError("the consumer did not subscribe within 30 s")
        producer = Producer(proxy.url, name, bodies)
        consumer.wait_count(max(1, int(size * chance.uniform(0.1, 0.5))), 60)
        CASES[case](Scene(broker=broker, proxy=proxy, consumer=consumer, chance=chance))
        lifted = time.monotonic()
        producer.join(120)
        consumer.wait_all(producer.sent)
        consumer.stop()
        stranded = _stranded(broker, name)
        if stranded:  # a new start is what sets them free
            broker.stop()
            broker.start()
        return Traces(
            sent=producer.sent,
            unconfirmed=producer.unconfirmed,
            deliveries=consumer.deliveries(),
            left=_bodies(broker, name),
            stranded=stranded,
            dead={body for queue in _DEAD_LETTERS for body in _bodies(broker, queue) & set(bodies)},
            lifted=lifted,
        )


def _stranded(broker: LocalBroker, queue: str) -> int:
    """
    Messages that are in delivery though their queue has no consumer, once the broker's counts have come to rest.

    Acknowledgements without a receipt are counted late, and links that froze are noticed late.
    """
    eventually(lambda: broker.statistics(queue).size == 0, 8)
    told = broker.statistics(queue)
    return 0 if told.consumer_count else told.inflight_count


def _bodies(broker: LocalBroker, queue: str) -> set[str]:
    return {message.body.decode() for message in broker.browse(queue)}
