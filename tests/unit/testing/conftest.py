"""Fixtures of the tests of `jmsx.testing`."""

from __future__ import annotations

import pytest

from jmsx.testing import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """A broker with Classic's manners and nothing in it."""
    return FakeBroker()
