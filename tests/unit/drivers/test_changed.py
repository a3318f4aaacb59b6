"""What threads wait for, and how long."""

from __future__ import annotations

import math
import threading
from functools import partial

import pytest

from jmsx.core.durations import LONGEST
from jmsx.drivers.machine import Machine
from tests.depth import some
from tests.unit.interrupts import Alarm, Interrupt

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


@pytest.mark.parametrize("call", ["set", "wait", "clear"])
def test_an_event_that_a_signal_handler_interrupts_holds_nobody_up(call: str) -> None:
    """Its lock stayed held at some steps, and whoever ended the link hung with the session's lock, for ever."""
    within = ("/threading.py", "/jmsx/drivers/changed.py")

    def act(event: threading.Event) -> None:
        if call == "wait":
            event.wait(0.001)
        else:
            getattr(event, call)()

    def use(event: threading.Event) -> None:
        event.clear()
        event.set()

    clean = Interrupt(within=within)
    event = Machine().event()
    clean.run(partial(act, event))
    assert clean.steps
    for step in some(range(1, clean.steps + 1)):
        event = Machine().event()
        with pytest.raises(Alarm):
            Interrupt(step, within=within).run(partial(act, event))
        other = threading.Thread(target=use, args=(event,), daemon=True)
        other.start()
        other.join(1)
        assert not other.is_alive(), step
        assert event.wait(0)
