"""How many modules one message passes on the thread that asks for it: what a newcomer has to follow."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

import jmsx
from tests.benchmarks.one_thread import OneThread

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import FrameType

ROOT: Final = Path(jmsx.__file__).parents[1]

#: Makes Python's own locks, or in Python 3.14 some that stand in for them.
LOCKS: Final = Path("jmsx/drivers/locks.py")

#: Modules, at most: what has been reached, without the socket's. Lower the numbers when they have come down, and never
#: raise them.
MOST: Final = {"acknowledge": 10, "receive": 13}


def passed(call: Callable[[], Any]) -> list[str]:
    """The modules of jmsx and its adapters that `call` runs through."""
    modules: set[str] = set()

    def note(frame: FrameType, event: str, _argument: object) -> None:
        file = Path(frame.f_code.co_filename)
        if event == "call" and file.is_relative_to(ROOT) and "tests" not in file.parts:
            modules.add(str(file.relative_to(ROOT)))

    sys.setprofile(note)
    try:
        call()
    finally:
        sys.setprofile(None)
    return sorted(modules - {str(LOCKS)})


def acknowledged() -> list[str]:
    """One acknowledge() in INDIVIDUAL mode, of a message in the middle of others."""
    session = OneThread(jmsx.AcknowledgeMode.INDIVIDUAL_ACKNOWLEDGE, 20)
    consumer = session.consumer()
    taken = [consumer.receive(1) for _ in range(10)]
    message = taken[5]
    assert message is not None
    return passed(message.acknowledge)


def received() -> list[str]:
    """One receive() in AUTO mode, of a message that waits, with its ACK."""
    session = OneThread(jmsx.AcknowledgeMode.AUTO_ACKNOWLEDGE, 20)
    consumer = session.consumer()
    for _ in range(5):
        assert consumer.receive(1) is not None
    writes = session.recording.writes
    found = passed(lambda: consumer.receive(1))
    assert session.recording.writes == writes + 1
    return found


@pytest.mark.parametrize(("what", "trace"), [("acknowledge", acknowledged), ("receive", received)])
def test_path_is_no_longer(what: str, trace: Callable[[], list[str]]) -> None:
    """A room that is only passed through is one that everybody has to visit."""
    modules = trace()
    assert len(modules) <= MOST[what], modules
