"""Who moves the world, where threads wait in it that it has not made."""

from __future__ import annotations

import contextvars
import queue
import threading
import time
from types import SimpleNamespace
from typing import TYPE_CHECKING

import pytest

from jmsx.app.loops import CALL
from jmsx.config.options import ConnectionOptions
from jmsx.config.uri import BrokerAddress
from jmsx.drivers.link import Inbox, LinkLost
from jmsx.errors import ConnectionFailedError
from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.link import FakeLink
from jmsx.testing.world import BlockedError, MemoryLink, World

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


def test_who_waited_for_another_to_move_it_moves_it_when_that_one_has_done() -> None:
    """As a send of a test does, while a task that outlives its handler sends, too."""
    world = World(FakeBroker("classic"), 0.0, 5.0)
    moves, waits = threading.Event(), threading.Event()

    def check() -> bool:
        moves.set()
        return waits.wait(5.0)

    other = threading.Thread(target=world.wait, args=[check])
    other.start()
    assert moves.wait(5.0)

    def is_parked() -> bool:
        waits.set()
        return False

    before = world.monotonic()
    waiting = threading.Thread(target=world.wait, args=[is_parked, 3.0], daemon=True)
    waiting.start()
    waiting.join(5.0)
    assert not waiting.is_alive()
    assert world.monotonic() == before + 3.0
    other.join()


def test_who_was_let_on_may_do_what_the_mover_waits_for() -> None:
    """It is none of the world's threads, so that nobody is told when it is done."""
    world = World(FakeBroker("classic"), 0.0, 5.0)
    moves, waits, done = threading.Event(), threading.Event(), threading.Event()

    def work() -> None:
        assert moves.wait(5.0)
        world.wait(waits_once)
        time.sleep(0.1)
        done.set()

    def waits_once() -> bool:
        had_waited = waits.is_set()
        waits.set()
        return had_waited

    def is_done() -> bool:
        moves.set()
        return waits.wait(5.0) and done.is_set()

    other = threading.Thread(target=work, daemon=True)
    other.start()
    assert world.wait(is_done)
    other.join(5.0)


def test_who_moved_before_may_do_what_the_mover_waits_for() -> None:
    """A test goes on while a thread of its own waits: it may send what that waits for, or let time go on."""
    world = World(FakeBroker("classic"), 0.0, 5.0)
    world.settle()
    begun, done = threading.Event(), threading.Event()

    def is_done() -> bool:
        begun.set()
        return done.is_set()

    waiting = threading.Thread(target=world.wait, args=[is_done], daemon=True)
    waiting.start()
    assert begun.wait(5.0)
    time.sleep(0.1)
    world.advance_to(world.monotonic() + 1.0)
    time.sleep(0.1)
    assert waiting.is_alive()
    done.set()
    waiting.join(5.0)
    assert not waiting.is_alive()


def test_who_waits_for_what_nobody_does_is_told_so() -> None:
    """At once where it is alone, and after the world's patience where others do nothing."""
    world = World(FakeBroker("classic"), 0.0, 0.2)
    with pytest.raises(BlockedError, match="waits for ever"):
        world.wait(lambda: False)
    raised: list[BlockedError] = []

    def wait() -> None:
        try:
            world.wait(lambda: False)
        except BlockedError as error:
            raised.append(error)

    waiting = threading.Thread(target=wait, daemon=True)
    waiting.start()
    waiting.join(5.0)
    assert len(raised) == 1


def awaited_by(handler: threading.Thread, work: Callable[[], object]) -> threading.Thread:
    """A thread that does what a handler of the thread `handler` awaits on an event loop."""
    context = contextvars.copy_context()
    context.run(CALL.set, SimpleNamespace(thread=handler.ident))
    return threading.Thread(target=context.run, args=[work], daemon=True)


@pytest.fixture
def handling() -> Iterator[tuple[World, threading.Thread, threading.Event]]:
    """A world that nobody moves, a thread of it whose handler is at work, and what ends that."""
    world = World(FakeBroker("classic"), 0.0, 1.0)
    begun, over = threading.Event(), threading.Event()

    def handle() -> None:
        begun.set()
        over.wait(10.0)

    handler = world.thread(handle, "handler")
    handler.start()
    world.thread(lambda: world.wait(begun.is_set), "other").start()
    assert world.wait(begun.is_set)
    yield world, handler, over
    over.set()
    handler.join(5.0)


def test_whom_a_handler_awaits_may_move_the_world(
    handling: tuple[World, threading.Thread, threading.Event],
) -> None:
    """Where nobody else does: time goes on until it has waited long enough."""
    world, handler, over = handling
    before = world.monotonic()
    returned: list[bool] = []

    def wait() -> None:
        returned.append(world.wait(lambda: False, 30.0))
        over.set()

    awaited = awaited_by(handler, wait)
    awaited.start()
    awaited.join(5.0)
    assert returned == [False]
    assert world.monotonic() == before + 30.0


def test_whom_a_handler_awaits_leaves_time_to_the_test(
    handling: tuple[World, threading.Thread, threading.Event],
) -> None:
    """It moves the world, as nobody did, and parks when the test does."""
    world, handler, over = handling
    before = world.monotonic()
    moves = threading.Event()

    def check() -> bool:
        moves.set()
        return False

    def wait() -> None:
        world.wait(check, 30.0)
        over.set()

    awaited = awaited_by(handler, wait)
    awaited.start()
    assert moves.wait(5.0)
    world.advance_to(before + 10.0)
    assert world.monotonic() == before + 10.0
    assert not over.is_set()
    world.advance_to(before + 30.0)
    assert over.wait(5.0)


def test_a_link_that_is_cut_before_it_says_connect_is_lost_as_any_other() -> None:
    """A handler cuts all links while another thread opens one."""
    world = World(FakeBroker("classic"), 0.0, 5.0)
    arrivals: Inbox = queue.SimpleQueue()
    link = MemoryLink(world, BrokerAddress("harness", 61613), ConnectionOptions(), arrivals)
    dial = world.dial

    def cut_at_once(link: MemoryLink) -> FakeLink:
        wire = dial(link)
        world.cut()
        return wire

    world.dial = cut_at_once  # type: ignore[method-assign]  # as a thread that comes between
    with pytest.raises(ConnectionFailedError, match="the broker closed the connection"):
        link.open(None)
    assert arrivals.get_nowait() == (link, LinkLost("the broker closed the connection", "io"))
