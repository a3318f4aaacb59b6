"""The brokers that scenarios run on, each started fresh for the run."""

from __future__ import annotations

import time
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

from jmsx_broker import ArtemisBroker, ClassicBroker
from jmsx_broker.artefacts import classic_libraries
from jmsx_broker.java import find_java
from jmsx_classic.copies import DEAD_LETTER_QUEUE as CLASSIC_DEAD_LETTERS
from tests.conformance import artemis

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from tests.conformance.scenario import Json, Scenario

KINDS: Final = ("classic", "artemis", "fake", "fake-artemis")


@dataclass(frozen=True, slots=True, kw_only=True)
class OpenWire:
    """How the Java client reaches a broker."""

    url: str  #: tcp://host:port
    jars: Path  #: the folder with the ActiveMQ client and what it needs
    java: Path  #: the folder with the programs java and javac


@dataclass(frozen=True, slots=True, kw_only=True)
class Broker:
    """Where a broker listens."""

    url: str  #: STOMP
    openwire: OpenWire | None = None  #: None if the Java client cannot talk to it
    scheduler: bool = True  #: whether AMQ_SCHEDULED_DELAY works
    dead_letters: str = CLASSIC_DEAD_LETTERS  #: the queue where dead letters go
    #: how many consumers this queue has; 0 if nobody can tell
    consumers: Callable[[str], int] = lambda _queue: 0
    #: how many messages of this queue the broker keeps for consumers that have died, until it is restarted
    stranded: Callable[[str], int] = lambda _queue: 0
    #: why this broker cannot do what a scenario asks for, judged by its outcomes and by what is stranded of a
    #: destination; None if it can
    limit: Callable[[Scenario, Sequence[Json], Callable[[str], int]], str | None] = (
        lambda _scenario, _outcomes, _stranded: None
    )


_ARTEMIS: Final = Broker(url="", dead_letters="DLQ", limit=artemis.limit)


def _consumers(broker: ClassicBroker | ArtemisBroker) -> Callable[[str], int]:
    return lambda queue: broker.statistics(queue).consumer_count


#: Seconds in which Artemis takes back what a consumer had that has gone; what it keeps longer it keeps for ever.
_TAKING_BACK: Final = 2.0


def _strands(artemis: ArtemisBroker) -> Callable[[str], int]:
    def stranded(queue: str) -> int:
        deadline = time.monotonic() + _TAKING_BACK
        while (told := artemis.statistics(queue)).inflight_count and time.monotonic() < deadline:
            time.sleep(0.1)
        return 0 if told.consumer_count else told.inflight_count

    return stranded


@contextmanager
def running(kind: str) -> Iterator[Broker]:
    """Run a fresh broker of a kind of `KINDS` for the time of the `with` block."""
    from jmsx.testing import FakeBrokerServer  # noqa: PLC0415 - only who uses it needs it
    from jmsx.testing.profiles import ArtemisProfile  # noqa: PLC0415 - only who uses it needs it

    if kind == "classic":
        with ClassicBroker() as classic:
            java = find_java()
            openwire = OpenWire(
                url=classic.openwire_url, jars=classic_libraries(java), java=java.parent
            )
            yield Broker(url=classic.url, openwire=openwire, consumers=_consumers(classic))
    elif kind == "artemis":
        # as on Classic, what expires lies with the dead letters
        with ArtemisBroker(address_settings={"#": {"expiry-address": "DLQ"}}) as running_artemis:
            yield replace(
                _ARTEMIS,
                url=running_artemis.url,
                consumers=_consumers(running_artemis),
                stranded=_strands(running_artemis),
            )
    elif kind == "fake":
        with FakeBrokerServer() as fake:
            yield Broker(url=fake.url)
    else:
        profile = ArtemisProfile(expiry_address=_ARTEMIS.dead_letters)
        with FakeBrokerServer(profile) as fake:
            yield replace(_ARTEMIS, url=fake.url)
