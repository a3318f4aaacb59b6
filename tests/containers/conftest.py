"""Brokers in containers, under the names that the integration suite knows."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import pytest

from jmsx_broker import ArtemisContainer, ClassicContainer
from jmsx_broker.docker import why_no_docker
from tests.guarantees.conftest import broker, connection, kind, queue

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker

__all__ = ["artemis_broker", "broker", "classic_broker", "connection", "kind", "queue"]


@pytest.fixture(scope="session", autouse=True)
def docker() -> None:
    """Without a Docker daemon these tests are skipped; in CI, which starts one, that would hide a failure."""
    why = why_no_docker()
    if why and os.environ.get("CI") == "true":
        pytest.fail(why)
    if why:
        pytest.skip(why)


@pytest.fixture(scope="session")
def classic_broker(docker: None) -> Iterator[Broker]:  # noqa: ARG001 - first the daemon
    """One Classic in a container."""
    with ClassicContainer() as running:
        yield running


@pytest.fixture(scope="session")
def artemis_broker(docker: None) -> Iterator[Broker]:  # noqa: ARG001 - first the daemon
    """One Artemis in a container."""
    with ArtemisContainer() as running:
        yield running
