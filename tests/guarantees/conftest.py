"""What tests of guarantees take as arguments: each runs on both brokers."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

import jmsx
from tests.integration.support import AT_ONCE, fresh_queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker


@pytest.fixture(params=["classic", "artemis"])
def kind(request: pytest.FixtureRequest) -> str:
    """Which broker."""
    return str(request.param)


@pytest.fixture
def broker(kind: str, request: pytest.FixtureRequest) -> Broker:
    """The broker of that kind."""
    running: Broker = request.getfixturevalue(f"{kind}_broker")
    return running


@pytest.fixture
def queue() -> jmsx.Queue:
    """A queue of the test's own."""
    return fresh_queue()


@pytest.fixture
def connection(broker: Broker) -> Iterator[jmsx.Connection]:
    """A started connection that redelivers at once."""
    with jmsx.Connection(broker.url, redelivery_policy=AT_ONCE) as made:
        made.start()
        yield made
