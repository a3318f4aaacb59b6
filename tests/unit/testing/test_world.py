"""Who moves the world, where threads wait in it that it has not made."""

from __future__ import annotations

import threading

from jmsx.testing.fake_broker import FakeBroker
from jmsx.testing.world import World


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
