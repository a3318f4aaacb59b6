"""
The pytest plugin: real brokers for tests, yours too.

It is active wherever jmsx is installed; a test that takes the argument `classic_broker` or `artemis_broker` gets a
running broker::

    def test_orders_arrive(classic_broker):
        connection = jmsx.Connection(classic_broker.url)

Nothing is imported before a test asks for a broker.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker.broker import Broker


@pytest.fixture(scope="session")
def classic_broker() -> Iterator[Broker]:
    """
    One ActiveMQ Classic for the whole test run, on free ports and an empty store; give each test queues of its own.

    With JMSX_BROKER_URL set it is that broker (`url`, `statistics`, `browse` only), and nothing is started. A test that
    kills or restarts a broker takes its own: `with ClassicBroker() as broker`.
    """
    from jmsx_broker import ClassicBroker, ExternalBroker  # noqa: PLC0415 - the plugin must load light

    if url := os.environ.get("JMSX_BROKER_URL"):
        yield ExternalBroker(url)
    else:
        with ClassicBroker() as broker:
            yield broker


@pytest.fixture(scope="session")
def artemis_broker() -> Iterator[Broker]:
    """
    One ActiveMQ Artemis for the whole test run, on free ports and an empty store; give each test queues of its own.

    With JMSX_ARTEMIS_URL set it is that broker (`url`, `statistics`, `browse` only), and nothing is started.
    """
    from jmsx_broker import ArtemisBroker, ExternalBroker  # noqa: PLC0415 - the plugin must load light

    if url := os.environ.get("JMSX_ARTEMIS_URL"):
        yield ExternalBroker(url)
    else:
        with ArtemisBroker() as broker:
            yield broker
