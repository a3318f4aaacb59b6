"""What an interrupt does that comes out of a test in a worker process."""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Final

import pytest
from _pytest import runner
from _pytest.outcomes import TEST_OUTCOME

if TYPE_CHECKING:
    from collections.abc import Generator

    from execnet.gateway_base import Channel

#: Seconds in which the process that speaks, which Ctrl-C in a terminal reaches as well, tells us that the run is over;
#: one that is slower ends the next test.
TOLD_SECONDS: Final = 5.0


class Failing:
    """
    A pytest plugin for a worker: an interrupt that a test raises, or a fixture, is a failure of that test alone.

    pytest takes it for Ctrl-C, and would end the whole run.
    """

    def __init__(self, channel: Channel) -> None:
        self._channel = channel

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_setup(self) -> Generator[None, object, object]:
        """Before a test."""
        return (yield from self._failing())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_call(self) -> Generator[None, object, object]:
        """In a test."""
        return (yield from self._failing())

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_teardown(self) -> Generator[None, object, object]:
        """Behind a test."""
        return (yield from self._failing())

    def _failing(self) -> Generator[None, object, object]:
        try:
            return (yield)
        except KeyboardInterrupt as interrupt:
            if self._is_over():
                raise
            raise AssertionError("KeyboardInterrupt, and nobody pressed Ctrl-C") from interrupt

    def _is_over(self) -> bool:
        """Whether the process that speaks has ended the run."""
        try:
            with suppress(EOFError):
                self._channel.waitclose(TOLD_SECONDS)
        except self._channel.TimeoutError:
            return False
        return True


def fail_alone(config: pytest.Config) -> None:
    """Have an interrupt fail the test that raises it, where there is a process above that hears of Ctrl-C."""
    if not hasattr(config, "workerinput"):
        return
    channels = (getattr(one, "channel", None) for one in config.pluginmanager.get_plugins())
    config.pluginmanager.register(Failing(next(filter(None, channels))))
    # else fixtures behind one whose end was interrupted would not end, and the next test would find them as they are
    caught = (*TEST_OUTCOME, KeyboardInterrupt)
    runner.TEST_OUTCOME = caught  # type: ignore[assignment,attr-defined]  # pytest offers no way to it
