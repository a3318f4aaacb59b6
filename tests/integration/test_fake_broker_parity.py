"""
The fake broker against real ones: the same frames go in, the same frames must come out.

Each program in `parity` runs on both, and what its clients saw is compared. On the real broker they run side by side,
since they mostly wait.
"""

from __future__ import annotations

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import pytest

from jmsx.testing.profiles import ArtemisProfile
from jmsx_broker import ArtemisBroker, ClassicBroker
from tests.integration.broker_support import eventually
from tests.integration.parity import artemis
from tests.integration.parity.deliveries import DELIVERIES
from tests.integration.parity.frames import FRAMES
from tests.integration.parity.selecting import SELECTING
from tests.integration.parity.sides import Side, fake_side, real_side
from tests.integration.parity.transactions import (
    TRANSACTIONS,
    window_individual,
    window_is_stable,
)
from tests.integration.parity.vocabulary import ArtemisVocabulary, ClassicVocabulary

if TYPE_CHECKING:
    from collections.abc import Iterator
    from concurrent.futures import Future

    from jmsx.testing.profiles import Profile
    from jmsx_broker import Broker
    from tests.integration.parity.sides import Entry
    from tests.integration.parity.vocabulary import Vocabulary

pytestmark = pytest.mark.broker

Program = Callable[[Side], None]

#: Programs that run on a real broker at a time.
ABREAST = 8

CLASSIC_PROGRAMS = [*FRAMES, *DELIVERIES, *TRANSACTIONS, *SELECTING]

#: Programs that show how many messages Classic hands out at a COMMIT. Its subscription takes each message from what is
#: out and only then takes back the window that its ACK had opened, with no lock around both, so that a thread of the
#: queue's in between finds room for one more
#: (6.1.8: `afterCommit` in PrefetchSubscription).
RACING = (window_is_stable, window_individual)

#: What the programs need to be otherwise than `artemis create` makes it.
PROFILE = ArtemisProfile(max_delivery_attempts=3)
REAL_SETTINGS = {"#": {"max-delivery-attempts": 3}}


class Diaries:
    """What the clients of all programs saw on a real broker."""

    def __init__(
        self,
        pool: ThreadPoolExecutor,
        programs: list[Program],
        broker: Broker,
        vocabulary: type[Vocabulary],
        profile: Profile | str,
    ) -> None:
        self._broker = broker
        self._vocabulary = vocabulary
        self._profile = profile
        self._futures: dict[Program, Future[Side]] = {
            run: pool.submit(self._run, run) for run in programs
        }

    def of(self, run: Program) -> list[Entry]:
        """That of one program; raises what went wrong with it."""
        return self._futures[run].result().diary

    def is_whole(self, run: Program) -> bool:
        """
        Whether the broker gave all that it had.

        Artemis 2.44.0 may keep the oldest message of a consumer whose socket died "in delivery" for nobody: in 1 of 200
        runs of such a program (measured). What it shows then is not how it behaves.
        """
        queues = self._futures[run].result().destinations
        return eventually(
            lambda: not any(self._broker.statistics(queue).inflight_count for queue in queues), 3
        )

    def again(self, run: Program) -> list[Entry]:
        """Run a program once more, on queues of its own."""
        return self._run(run).diary

    def fake(self, run: Program) -> Side:
        """What its clients see on a fake broker."""
        side = fake_side(self._profile, self._vocabulary())
        run(side)
        return side

    def _run(self, run: Program) -> Side:
        # the real one, on a busy machine, is given time for all that the fake one says
        port, coming = urlsplit(self._broker.url).port or 0, self.fake(run).came
        side = real_side(port, self._vocabulary(), coming)
        try:
            run(side)
        finally:
            side.close()
        return side


@pytest.fixture(scope="module")
def classic_diaries() -> Iterator[Diaries]:
    """
    What Classic shows, and one that nobody has used: the programs look for their dead letters by a selector, for which
    the broker looks at the first 200 messages of its queue alone.
    """
    with ClassicBroker() as broker, ThreadPoolExecutor(ABREAST) as pool:
        yield Diaries(pool, CLASSIC_PROGRAMS, broker, ClassicVocabulary, "classic")


@pytest.fixture(scope="module")
def artemis_diaries() -> Iterator[Diaries]:
    """What Artemis shows."""
    with (
        ArtemisBroker(address_settings=REAL_SETTINGS) as broker,
        ThreadPoolExecutor(ABREAST) as pool,
    ):
        yield Diaries(pool, artemis.PROGRAMS, broker, ArtemisVocabulary, PROFILE)


@pytest.mark.parametrize("run", CLASSIC_PROGRAMS, ids=lambda run: run.__name__)
def test_same_frames_as_classic(run: Program, classic_diaries: Diaries) -> None:
    """Both brokers show the clients of a program the same."""
    fake = classic_diaries.fake(run)
    seen = classic_diaries.of(run)
    if seen != fake.diary and run in RACING:
        seen = classic_diaries.again(run)
    assert seen == fake.diary
    assert len(fake.diary) > 1


@pytest.mark.parametrize("run", artemis.PROGRAMS, ids=lambda run: run.__name__)
def test_same_frames_as_artemis(run: Program, artemis_diaries: Diaries) -> None:
    """Both brokers show the clients of a program the same."""
    fake = artemis_diaries.fake(run)
    seen = artemis_diaries.of(run)
    if seen != fake.diary and not artemis_diaries.is_whole(run):
        seen = artemis_diaries.again(run)
    assert seen == fake.diary
    assert len(fake.diary) > 1
