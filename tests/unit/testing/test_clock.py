"""The clock that tests move."""

from __future__ import annotations

import pytest

from jmsx.testing import FakeClock


def test_advance_moves_forward() -> None:
    """Both ways of advancing say the new time, and so does the clock."""
    clock = FakeClock(10.0)
    assert clock.advance(1.5) == 11.5
    assert clock.advance_to(20.0) == 20.0
    assert clock.monotonic() == clock.now == 20.0


@pytest.mark.parametrize("seconds", [-0.001, float("nan")])
def test_advance_refuses_to_go_back(seconds: float) -> None:
    """A negative or meaningless step is refused, and the clock stands where it was."""
    clock = FakeClock(10.0)
    with pytest.raises(ValueError, match="does not go back"):
        clock.advance(seconds)
    assert clock.now == 10.0
