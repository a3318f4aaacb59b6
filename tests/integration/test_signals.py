"""Signals that do not wake the thread that waits for them."""

from __future__ import annotations

import contextlib
import signal
import threading

import pytest

from jmsx.app.signals import Interrupted, Signals

pytestmark = pytest.mark.timeout(20)


def test_a_signal_that_another_thread_gets() -> None:
    """The main thread waits on; it sees the signal when it looks the next time."""

    def get_it() -> None:
        signal.pthread_kill(threading.get_ident(), signal.SIGTERM)

    with Signals() as signals:
        other = threading.Timer(0.2, get_it)  # when this thread waits
        other.start()
        assert signals.wait() is signal.SIGTERM
        other.join()


def test_a_signal_whose_exception_is_swallowed() -> None:
    """It came while the app started, and ended in somebody's `except:`; the app is told to stop all the same."""
    with Signals() as signals:
        with signals.interrupting(), contextlib.suppress(BaseException):
            signal.raise_signal(signal.SIGTERM)
        assert signals.wait_briefly(0) is signal.SIGTERM
        with pytest.raises(Interrupted), signals.interrupting():
            signal.raise_signal(signal.SIGTERM)
