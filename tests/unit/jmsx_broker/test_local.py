"""The parts of the broker's process that need no process."""

from __future__ import annotations

import pytest

from jmsx.errors import IllegalStateError
from jmsx_broker.artemis import ArtemisBroker
from jmsx_broker.classic import ClassicBroker
from jmsx_broker.own import log_tail

both = pytest.mark.parametrize("kind", [ClassicBroker, ArtemisBroker])


def test_log_tail_keeps_what_tells_something() -> None:
    """Java's stack lines are left out, long lines are cut, the last lines are kept."""
    frames = "\tat org.apache.Some.method(Some.java:1)\n\t... 12 more\n"
    log = f"first\nsecond\n{frames}Caused by: no space {'!' * 50}\n{frames}"
    assert log_tail(log, lines=2, width=20) == "  second\n  Caused by: no space "


def test_log_tail_of_nothing_says_so() -> None:
    """An empty quotation would look like a mistake of ours."""
    assert log_tail("\n\n") == "  (empty)"


@both
@pytest.mark.parametrize("name", ["url", "openwire_url", "pid", "log"])
def test_broker_that_never_ran_is_nowhere(
    kind: type[ClassicBroker | ArtemisBroker], name: str
) -> None:
    """Nothing can be asked of a broker before its first start."""
    with pytest.raises(IllegalStateError):
        getattr(kind(), name)


@both
def test_broker_that_never_ran_can_be_closed(kind: type[ClassicBroker | ArtemisBroker]) -> None:
    """Stopping, killing and closing do nothing where nothing is."""
    broker = kind()
    broker.stop()
    broker.kill()
    broker.close()
    assert not broker.running
