"""The exception listener of a connection hears of what the broker refuses on a thread of its own."""

from __future__ import annotations

import queue
import threading
from typing import TYPE_CHECKING

from jmsx.config.uri import parse_broker_uri
from jmsx.drivers.machine import Machine
from jmsx.errors import BrokerError, ConnectionFailedError
from jmsx.jms.link import MOST_UNTOLD, ConnectionLinks

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest

#: Seconds in which a thread begins.
PATIENCE = 30


class Full(Machine):
    """A machine that gives no further thread while it is full."""

    full = True

    def thread(self, target: Callable[[], object], name: str) -> threading.Thread:
        """Return one that cannot be started."""
        made = super().thread(target, name)
        if self.full:
            made.start = self._refuse  # type: ignore[method-assign]  # as the system would
        return made

    def _refuse(self) -> None:
        raise RuntimeError("can't start new thread")


def links(machine: Machine) -> ConnectionLinks:
    """What a connection has, not connected to anything."""
    return ConnectionLinks(parse_broker_uri("stomp://mq:61613"), (), machine)


def test_refusals_are_told_one_after_the_other() -> None:
    """All on one thread that is not the caller's, in their order, also those that come meanwhile."""
    told: queue.SimpleQueue[tuple[str, threading.Thread]] = queue.SimpleQueue()
    go = threading.Event()
    made = links(Machine())

    def listener(error: Exception) -> None:
        go.wait(PATIENCE)
        told.put((str(error), threading.current_thread()))

    made.exception_listener = listener
    for number in range(5):
        made.refused(BrokerError(str(number)))
    go.set()
    texts, threads = zip(*[told.get(timeout=PATIENCE) for _ in range(5)], strict=True)
    assert texts == ("0", "1", "2", "3", "4")
    assert len(set(threads)) == 1
    assert threading.current_thread() not in threads


def test_a_refusal_that_no_thread_can_tell(caplog: pytest.LogCaptureFixture) -> None:
    """The log has it, nothing else is disturbed, and the next one is told when there are threads again."""
    told: queue.SimpleQueue[str] = queue.SimpleQueue()
    machine = Full()
    made = links(machine)
    made.exception_listener = lambda error: told.put(str(error))
    made.refused(BrokerError("first"))
    assert "exception listener not called" in caplog.text
    assert "first" in caplog.text
    assert told.empty()
    machine.full = False
    made.refused(BrokerError("second"))
    assert told.get(timeout=PATIENCE) == "second"


def test_a_listener_that_does_not_come_to_them() -> None:
    """A broker that refuses and refuses takes no memory; a lost link is told all the same."""
    told: list[str] = []
    go, done = threading.Event(), threading.Event()
    made = links(Machine())

    def listener(error: Exception) -> None:
        go.wait(PATIENCE)
        told.append(str(error))
        if told[-1] == "lost":
            done.set()

    made.exception_listener = listener
    for number in range(2 * MOST_UNTOLD):
        made.refused(BrokerError(str(number)))
    made.lost(ConnectionFailedError("lost"))
    go.set()
    assert done.wait(PATIENCE)
    assert told == [*map(str, range(MOST_UNTOLD)), "lost"]
