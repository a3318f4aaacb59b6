"""
The pytest plugin: real brokers for the tests of jmsx and of applications.

It is active wherever jmsx is installed; a test that takes the argument `classic_broker` or `artemis_broker` gets a
running broker::

    def test_orders_arrive(classic_broker):
        connection = jmsx.Connection(classic_broker.url)

A test that takes `jmsx_harness` gets a broker in memory, in virtual time (`jmsx.testing.harness`).

Brokers are processes, unless one option says `container`: `--jmsx-broker` on the command line, else the environment
variable JMSX_BROKER, else `jmsx_broker` in the ini file. Nothing is imported before a test asks for a broker.
"""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx_broker.broker import Broker

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


_WAYS: Final = ("process", "container")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option that says how brokers are run."""
    text = "how the fixtures classic_broker and artemis_broker run their brokers"
    parser.getgroup("jmsx").addoption("--jmsx-broker", choices=_WAYS, help=text)
    parser.addini("jmsx_broker", f"{text}: process or container", default="process")


@pytest.fixture(scope="session")
def classic_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """
    One ActiveMQ Classic for the whole test run, on free ports and an empty store; give each test queues of its own.

    With JMSX_BROKER_URL set it is that broker (`url`, `statistics`, `browse` only), and nothing is started. A test that
    kills or restarts a broker takes its own: `with ClassicBroker() as broker`.
    """
    from jmsx_broker import (  # noqa: PLC0415 - the plugin must load light
        ClassicBroker,
        ClassicContainer,
        ExternalBroker,
    )

    if url := os.environ.get("JMSX_BROKER_URL"):
        yield ExternalBroker(url)
        return
    with ClassicContainer() if _in_container(pytestconfig) else ClassicBroker() as broker:
        yield broker


@pytest.fixture(scope="session")
def artemis_broker(pytestconfig: pytest.Config) -> Iterator[Broker]:
    """
    One ActiveMQ Artemis for the whole test run, on free ports and an empty store; give each test queues of its own.

    With JMSX_ARTEMIS_URL set it is that broker (`url`, `statistics`, `browse` only), and nothing is started.
    """
    from jmsx_broker import (  # noqa: PLC0415 - the plugin must load light
        ArtemisBroker,
        ArtemisContainer,
        ExternalBroker,
    )

    if url := os.environ.get("JMSX_ARTEMIS_URL"):
        yield ExternalBroker(url)
        return
    with ArtemisContainer() if _in_container(pytestconfig) else ArtemisBroker() as broker:
        yield broker


@pytest.fixture
def jmsx_harness() -> Iterator[Callable[..., Any]]:
    """
    Give the test a function like `jmsx.testing.harness`, whose harnesses end with the test; no real broker is needed.

    Call it with the app: `mq = jmsx_harness(app, "artemis")`. A handler that has not returned when the test ends is an
    error of the test.
    """
    from jmsx.testing import harness  # noqa: PLC0415 - the plugin must load light

    with contextlib.ExitStack() as harnesses:
        yield lambda *given, **options: harnesses.enter_context(harness(*given, **options))


def _in_container(config: pytest.Config) -> bool:
    """Return whether brokers shall be containers; raises UsageError on a word that says neither."""
    way = (
        config.getoption("--jmsx-broker")
        or os.environ.get("JMSX_BROKER")
        or config.getini("jmsx_broker")
    )
    if way not in _WAYS:
        raise pytest.UsageError(f"jmsx_broker is {way!r}; it can be {' or '.join(_WAYS)}")
    return bool(way == "container")
