"""Fixtures of the tests of `jmsx.testing`."""

from __future__ import annotations

import pytest

from jmsx.testing import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """A Classic broker with nothing in it."""
    return FakeBroker()
