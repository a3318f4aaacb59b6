"""Fixtures of the tests of the fake Artemis."""

from __future__ import annotations

import pytest

from jmsx.testing import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """An Artemis broker with nothing in it."""
    return FakeBroker("artemis")
