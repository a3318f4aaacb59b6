"""What tests of applications share."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from jmsx.testing import FakeBrokerServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(params=["classic", "artemis"])
def server(request: pytest.FixtureRequest) -> Iterator[FakeBrokerServer]:
    """A broker of each kind, behind a socket."""
    with FakeBrokerServer(request.param) as running:
        yield running
