"""The app's own sender where signal handlers come in between: an error, never a dead thread."""

from __future__ import annotations

import subprocess
import sys
import time
from functools import partial
from typing import TYPE_CHECKING, Any

import pytest

from jmsx import Message
from jmsx.app.sender import Sender
from jmsx.core.durations import LONGEST
from jmsx.drivers.locks import NonReentrantLock
from jmsx.drivers.machine import Machine
from jmsx.errors import ConnectionFailedError, IllegalStateError
from tests.depth import some
from tests.unit.interrupts import Alarm, Interrupt

if TYPE_CHECKING:
    from collections.abc import Callable

pytestmark = pytest.mark.timeout(30)


class Line:
    """A connection, session and producer of nobody's, which calls `meanwhile` while it is opened."""

    lost_for_good = False

    def __init__(self, meanwhile: Callable[[], object]) -> None:
        self._meanwhile = meanwhile
        self.aborted = False
        self._link = self

    def create_session(self) -> Line:
        """Open it."""
        self._meanwhile()
        return self

    def create_producer(self) -> Line:
        """The same."""
        return self

    def send(self, message: Message, **_: Any) -> str:
        """Its text for a key."""
        return message.text

    def abort(self) -> None:
        """Close it."""
        self.aborted = True


def sender(meanwhile: Callable[[], object]) -> Sender:
    """Over such lines."""
    connect: Any = lambda: Line(meanwhile)  # noqa: E731 - stands in for a Connection
    return Sender(connect, Machine())


def test_a_send_that_interrupts_the_first_one_is_refused() -> None:
    """A signal handler runs on the thread that opens the line; the send that it interrupts is done."""
    refused: list[str] = []

    def handler() -> None:
        with pytest.raises(IllegalStateError, match="signal handler") as told:
            made.send(Message("handler"), "queue://q", {})
        refused.append(str(told.value))

    made = sender(handler)
    assert made.send(Message("main"), "queue://q", {}) == "main"
    assert len(refused) == 1
    assert made.send(Message("next"), "queue://q", {}) == "next"


def test_an_error_that_many_wait_for_does_not_grow() -> None:
    """By what each of them was about to send, and by its line in the log."""

    def fail() -> None:
        raise ConnectionFailedError("no broker")

    shared = sender(fail)._current()
    depths = []
    for _ in range(3):
        with pytest.raises(ConnectionFailedError, match="no broker") as told:
            shared.ready(None)
        depths.append(len(told.traceback))
    assert depths == [depths[0]] * 3


def test_a_send_that_may_take_for_ever() -> None:
    """Longer than Python waits."""
    made = sender(lambda: time.sleep(0.05))
    assert made.send(Message("x"), "queue://q", {"timeout": LONGEST}) == "x"


def test_a_send_that_is_interrupted_anywhere_leaves_a_sender_that_sends() -> None:
    """Nobody waits for a line that nobody opens."""
    clean, first = Interrupt(within=["/jmsx/app/sender.py"]), sender(lambda: None)
    clean.run(lambda: first.send(Message("a"), "queue://q", {}))
    assert clean.steps > 10
    for step in some(range(1, clean.steps + 1)):
        made, interrupt = sender(lambda: None), Interrupt(step, within=["/jmsx/app/sender.py"])
        with pytest.raises(Alarm):
            interrupt.run(partial(made.send, Message("a"), "queue://q", {}))
        assert made.send(Message("b"), "queue://q", {}) == "b", step


def test_who_is_alone_is_told_so_and_others_come_after() -> None:
    """Also behind an exception."""
    alone = NonReentrantLock("this")
    with alone(), pytest.raises(IllegalStateError, match="this was called"), alone():
        pass
    with pytest.raises(ValueError, match="x"), alone():
        raise ValueError("x")
    with alone():
        pass


_DIES = """
import sys
from jmsx import App

class Last:
    def __del__(self):
        try:
            app.send("queue://q", "x")
        except Exception as error:
            print(error)

app = App("stomp://127.0.0.1:1", reconnect=False)
sys.modules["kept"] = [Last(), app, print]
"""


def test_what_sends_as_the_interpreter_ends_does_not_keep_it() -> None:
    """Python 3.11 waits there for ever for a thread that never runs."""
    ended = subprocess.run(
        [sys.executable, "-c", _DIES], stdout=subprocess.PIPE, text=True, timeout=20, check=True
    )
    assert "the interpreter ends" in ended.stdout
