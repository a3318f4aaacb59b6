"""Which broker the fake is like."""

from __future__ import annotations

import pytest

from jmsx.testing import FakeBroker
from jmsx.testing.profiles import ArtemisProfile, ClassicProfile


def test_by_name_or_by_values() -> None:
    """Classic unless told otherwise."""
    assert FakeBroker().profile == FakeBroker("classic").profile == ClassicProfile()
    assert FakeBroker("artemis").profile == ArtemisProfile()
    own = ArtemisProfile(max_delivery_attempts=1)
    assert FakeBroker(own).profile is own


def test_unknown_name() -> None:
    """The error says which there are."""
    with pytest.raises(ValueError, match="'rabbit'; there are classic, artemis"):
        FakeBroker("rabbit")
