"""Signals that do not wake the thread that waits for them."""

from __future__ import annotations

import asyncio
import signal
import threading
from typing import TYPE_CHECKING

import pytest

from jmsx.app.loops import on_signals
from jmsx.app.signals import Signals

if TYPE_CHECKING:
    from types import FrameType

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


def test_what_signals_do_after_serving() -> None:
    """What they did before: a handler of the program's own is called, and Ctrl-C cancels what asyncio runs."""
    heard = list[str]()

    def note(number: int, _frame: FrameType | None) -> None:
        heard.append(f"the program's {signal.Signals(number).name}")

    async def main() -> None:
        with on_signals(asyncio.get_running_loop(), lambda: heard.append("ours")):
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.05)
        signal.raise_signal(signal.SIGTERM)
        signal.raise_signal(signal.SIGINT)
        try:
            await asyncio.sleep(5)
        except asyncio.CancelledError:
            heard.append("cancelled")
            raise

    before = signal.signal(signal.SIGTERM, note)
    try:
        with pytest.raises(KeyboardInterrupt):
            asyncio.run(main())
    finally:
        signal.signal(signal.SIGTERM, before)
    assert heard == ["ours", "the program's SIGTERM", "cancelled"]


def test_what_a_program_s_loop_does_after_serving() -> None:
    """What it did before, also where one app is served within another: asyncio ended the process."""
    heard = list[str]()

    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.add_signal_handler(signal.SIGTERM, heard.append, "the program's")
        with on_signals(loop, lambda: heard.append("outer")):
            with on_signals(loop, lambda: heard.append("inner")):
                signal.raise_signal(signal.SIGTERM)
                await asyncio.sleep(0.05)
            signal.raise_signal(signal.SIGTERM)
            await asyncio.sleep(0.05)
        signal.raise_signal(signal.SIGTERM)
        await asyncio.sleep(0.05)

    asyncio.run(main())
    assert heard == ["inner", "outer", "the program's"]
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
