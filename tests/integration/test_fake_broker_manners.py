"""
The fake broker against real ones: the same frames go in, the same frames must come out.

Each program in `manners` runs on both, and what its clients saw is compared. On the real broker they run side by side,
since they mostly wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import pytest

from jmsx.testing.manners import AddressSettings, ArtemisManners
from jmsx_broker import ArtemisBroker
from tests.integration.manners import artemis
from tests.integration.manners.deliveries import DELIVERIES
from tests.integration.manners.frames import FRAMES
from tests.integration.manners.selecting import SELECTING
from tests.integration.manners.sides import Side, fake_side, real_side
from tests.integration.manners.transactions import TRANSACTIONS
from tests.integration.manners.words import ArtemisWords, ClassicWords

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from tests.integration.manners.sides import Entry
    from tests.integration.manners.words import Words

pytestmark = pytest.mark.broker

Program = Callable[[Side], None]

#: Programs that run on a real broker at a time.
ABREAST = 8

CLASSIC_PROGRAMS = [*FRAMES, *DELIVERIES, *TRANSACTIONS, *SELECTING]

#: Where the programs need other address-settings than those of `artemis create`.
THREE_ATTEMPTS = AddressSettings(max_delivery_attempts=3)
DELAYED = AddressSettings(redelivery_delay=0.8)
MANNERS = ArtemisManners(settings_of={"three.#": THREE_ATTEMPTS, "delayed.#": DELAYED})
REAL_SETTINGS = {
    "three.#": {"max-delivery-attempts": 3},
    "delayed.#": {"redelivery-delay": 800},
}


class Broker(Protocol):
    """What the fixture gives."""

    url: str


class Diaries:
    """What the clients of all programs saw on a real broker."""

    def __init__(
        self, pool: ThreadPoolExecutor, programs: list[Program], port: int, words: type[Words]
    ) -> None:
        def diary(run: Program) -> list[Entry]:
            side = real_side(port, words())
            try:
                run(side)
            finally:
                side.close()
            return side.diary

        self._futures: dict[Program, Future[list[Entry]]] = {
            run: pool.submit(diary, run) for run in programs
        }

    def of(self, run: Program) -> list[Entry]:
        """That of one program; raises what went wrong with it."""
        return self._futures[run].result()


@pytest.fixture(scope="module")
def classic_diaries(classic_broker: Broker) -> Iterator[Diaries]:
    """What Classic shows."""
    with ThreadPoolExecutor(ABREAST) as pool:
        port = urlsplit(classic_broker.url).port or 0
        yield Diaries(pool, CLASSIC_PROGRAMS, port, ClassicWords)


@pytest.fixture(scope="module")
def artemis_diaries() -> Iterator[Diaries]:
    """What Artemis shows."""
    with (
        ArtemisBroker(address_settings=REAL_SETTINGS) as broker,
        ThreadPoolExecutor(ABREAST) as pool,
    ):
        yield Diaries(pool, artemis.PROGRAMS, urlsplit(broker.url).port or 0, ArtemisWords)


@pytest.mark.parametrize("run", CLASSIC_PROGRAMS, ids=lambda run: run.__name__)
def test_same_frames_as_classic(run: Program, classic_diaries: Diaries) -> None:
    """Both brokers show the clients of a program the same."""
    fake = fake_side("classic", ClassicWords())
    run(fake)
    assert classic_diaries.of(run) == fake.diary
    assert len(fake.diary) > 1


@pytest.mark.parametrize("run", artemis.PROGRAMS, ids=lambda run: run.__name__)
def test_same_frames_as_artemis(run: Program, artemis_diaries: Diaries) -> None:
    """Both brokers show the clients of a program the same."""
    fake = fake_side(MANNERS, ArtemisWords())
    run(fake)
    assert artemis_diaries.of(run) == fake.diary
    assert len(fake.diary) > 1
