"""Signals that do not wake the thread that waits for them."""

from __future__ import annotations

import signal
import threading

import pytest

from jmsx.app.signals import Signals

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


def test_a_signal_raises_nothing() -> None:
    """
    Whatever the main thread does goes on, and whoever waits is told.

    Raised in an import it left Python's own lock held: all threads waited at their next import, for ever.
    """
    with Signals() as signals:
        signal.raise_signal(signal.SIGTERM)
        assert signals.wait_briefly(0) is signal.SIGTERM


def test_what_is_done_beside() -> None:
    """Signals are told meanwhile, then its end; who else woke the main thread has woken it afterwards."""
    goes_on, done = threading.Event(), list[str]()

    def work() -> None:
        signals.wake()
        signal.raise_signal(signal.SIGTERM)
        goes_on.wait()
        done.append("all of it")

    with Signals() as signals:
        beside = signals.beside(work, "work")
        assert beside.wait() is signal.SIGTERM
        assert beside.wait(0) is None
        assert not beside.over
        goes_on.set()
        assert beside.wait() is None
        assert beside.over
        assert done == ["all of it"]
        assert signals.wait() is None


def test_what_is_done_beside_raises() -> None:
    """On the thread that waits."""
    with Signals() as signals, pytest.raises(ZeroDivisionError):
        signals.beside(lambda: 1 // 0, "work").wait()
