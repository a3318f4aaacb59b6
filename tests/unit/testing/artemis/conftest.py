"""Fixtures of the tests of Artemis' manners."""

from __future__ import annotations

import pytest

from jmsx.testing import FakeBroker


@pytest.fixture
def broker() -> FakeBroker:
    """A broker with Artemis' manners and nothing in it."""
    return FakeBroker("artemis")
