"""What threads wait for, and how long."""

from __future__ import annotations

import math
import threading

import pytest

from jmsx.core.durations import LONGEST
from jmsx.drivers.machine import Machine

pytestmark = pytest.mark.timeout(10)


@pytest.mark.parametrize("seconds", [LONGEST, math.inf, None])
def test_as_long_as_one_likes(seconds: float | None) -> None:
    """More than 292 years are too many for Python."""
    event, lock, told = Machine().event(), threading.RLock(), list[str]()
    changed = Machine().changed(lock, lambda: None)

    def tell() -> None:
        event.set()
        with lock:
            told.append("x")
            changed.notify_all()

    with lock:
        threading.Timer(0.05, tell).start()
        assert changed.wait_for(lambda: told, seconds)
    assert event.wait(seconds)
