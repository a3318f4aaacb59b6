"""Nothing is left when all is closed, nothing spins while all is idle, and Ctrl-C ends a wait."""

from __future__ import annotations

import contextlib
import gc
import os
import signal
import threading
import time
import weakref
from typing import TYPE_CHECKING

import pytest

from jmsx import Connection, Queue
from jmsx.drivers.link import StompLink
from tests.integration.broker_support import eventually
from tests.integration.proxy import Proxy
from tests.integration.support import (
    AUTO,
    TRANSACTED,
    nothing_left,
    put,
    settles,
)

if TYPE_CHECKING:
    from collections.abc import Iterator

    from jmsx_broker import Broker

pytestmark = [pytest.mark.broker, pytest.mark.timeout(60)]


def test_connecting_and_closing_leaks_nothing(classic_broker: Broker, queue: Queue) -> None:
    """300 cycles, with and without consumers and listeners: no thread, no descriptor, no consumer at the broker."""
    with nothing_left():
        for turn in range(300):
            connection = Connection(classic_broker.url)
            session = connection.create_session(TRANSACTED if turn % 2 else AUTO)
            if turn % 3:
                connection.start()
                consumer = session.create_consumer(queue)
                if turn % 3 == 1:
                    consumer.set_listener(lambda _message: None)
            if turn % 5:
                connection.close()
            else:
                connection.abort()
    assert eventually(lambda: classic_broker.statistics(queue.name).consumer_count == 0)


def links() -> weakref.WeakSet[StompLink]:
    """Those in memory."""
    return weakref.WeakSet(each for each in gc.get_objects() if isinstance(each, StompLink))


@contextlib.contextmanager
def uncollected() -> Iterator[None]:
    """The garbage collector stays away."""
    gc.collect()
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


def test_links_that_end_are_freed_at_once(classic_broker: Broker, queue: Queue) -> None:
    """One that is lost, and those that never came up: none waits for the collector, which may be hundreds later."""
    with uncollected(), Proxy(classic_broker.url) as proxy:
        others = links()
        with Connection(f"failover:({proxy.url})?useExponentialBackOff=false") as connection:
            connection.start()
            consumer = connection.create_session().create_consumer(queue)
            with proxy.closed():
                assert eventually(lambda: proxy.turned_away > 3)
            put(classic_broker, queue, "a")
            assert consumer.receive(10) is not None
            assert eventually(lambda: len(links() - others) == 1)


def test_idle_sessions_cost_no_time(classic_broker: Broker, queue: Queue) -> None:
    """Five sessions that wait use next to no CPU: no timer spins."""
    with Connection(classic_broker.url, optimize_acknowledge=True) as connection:
        connection.start()
        for number in range(5):
            put(classic_broker, queue, f"{number}")
            consumer = connection.create_session().create_consumer(queue)
            consumer.set_listener(lambda _message: None)
        assert settles(classic_broker, queue, size=0)
        before = time.process_time()
        time.sleep(1.5)  # what is measured is this time
        assert time.process_time() - before < 0.15


@contextlib.contextmanager
def interrupted_after(seconds: float) -> Iterator[None]:
    """Press Ctrl-C in this process after `seconds`."""
    timer = threading.Timer(seconds, os.kill, [os.getpid(), signal.SIGINT])
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


def test_ctrl_c_while_receive_waits(classic_broker: Broker, queue: Queue) -> None:
    """KeyboardInterrupt comes out of receive(), and neither the session nor a message is lost by it."""
    with nothing_left(), Connection(classic_broker.url) as connection:
        connection.start()
        consumer = connection.create_session().create_consumer(queue)
        with pytest.raises(KeyboardInterrupt), interrupted_after(0.3):
            consumer.receive(10)
        put(classic_broker, queue, "a")
        message = consumer.receive(5)
        assert message is not None
        assert message.text == "a"
    assert settles(classic_broker, queue, size=0)
