"""
The fake broker against a real one: the same frames go in, the same frames must come out.

Each program in `manners` runs on both, and what its clients saw is compared.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol
from urllib.parse import urlsplit

import pytest

from tests.integration.manners.deliveries import DELIVERIES
from tests.integration.manners.frames import FRAMES
from tests.integration.manners.selecting import SELECTING
from tests.integration.manners.sides import Side, fake_side, real_side
from tests.integration.manners.transactions import TRANSACTIONS

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.broker

PROGRAMS = [*FRAMES, *DELIVERIES, *TRANSACTIONS, *SELECTING]


class Broker(Protocol):
    """What the fixture gives."""

    url: str


@pytest.mark.parametrize("run", PROGRAMS, ids=lambda run: run.__name__)
def test_same_frames(run: Callable[[Side], None], classic_broker: Broker) -> None:
    """Both brokers show the clients of a program the same."""
    real, fake = real_side(urlsplit(classic_broker.url).port or 0), fake_side()
    try:
        run(real)
    finally:
        real.close()
    run(fake)
    assert real.diary == fake.diary
    assert len(real.diary) > 1
