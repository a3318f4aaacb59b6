"""The parts of the broker's process that need no process."""

from __future__ import annotations

import pytest

from jmsx.errors import IllegalStateError
from jmsx_broker.classic import ClassicBroker, log_tail


def test_log_tail_keeps_what_tells_something() -> None:
    """Java's stack lines are left out, long lines are cut, the last lines are kept."""
    frames = "\tat org.apache.Some.method(Some.java:1)\n\t... 12 more\n"
    log = f"first\nsecond\n{frames}Caused by: no space {'!' * 50}\n{frames}"
    assert log_tail(log, lines=2, width=20) == "  second\n  Caused by: no space "


def test_log_tail_of_nothing_says_so() -> None:
    """An empty quotation would look like a mistake of ours."""
    assert log_tail("\n\n") == "  (empty)"


@pytest.mark.parametrize("name", ["url", "openwire_url", "pid", "log"])
def test_broker_that_never_ran_is_nowhere(name: str) -> None:
    """Nothing can be asked of a broker before its first start."""
    with pytest.raises(IllegalStateError):
        getattr(ClassicBroker(), name)


def test_broker_that_never_ran_can_be_closed() -> None:
    """Stopping, killing and closing do nothing where nothing is."""
    broker = ClassicBroker()
    broker.stop()
    broker.kill()
    broker.close()
    assert not broker.running
