"""The child process of a broker, with another command in the broker's place."""

from __future__ import annotations

import signal
import threading
from typing import TYPE_CHECKING, NoReturn

import pytest

from jmsx_broker.process import Child

if TYPE_CHECKING:
    from pathlib import Path
    from types import FrameType


class ToldError(Exception):
    """What the signal handler raises."""


@pytest.fixture
def child(tmp_path: Path) -> Child:
    """A child that ends by itself after ten seconds."""
    return Child(["sleep", "10"], folder=tmp_path, log=tmp_path / "child.log", scratch=None)


def test_wait_notes_a_signal_that_does_not_wake_the_thread(child: Child) -> None:
    """The system gives it to another thread, so nothing ends the waiting: as when it comes just before that."""

    def tell(_number: int, _frame: FrameType | None) -> NoReturn:
        raise ToldError

    before = signal.signal(signal.SIGUSR1, tell)
    another = threading.Timer(0.2, signal.raise_signal, [signal.SIGUSR1])
    another.start()
    try:
        with pytest.raises(ToldError):
            child.wait()
        assert child.exit_code is None
    finally:
        another.join()
        child.kill()
        signal.signal(signal.SIGUSR1, before)
