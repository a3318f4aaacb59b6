"""The faults: each does one thing to a scene under load, and returns when it is over."""

from __future__ import annotations

import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from tests.faults.proxy import Direction
from tests.faults.settings import HEARTBEAT
from tests.faults.workload import BenchError

if TYPE_CHECKING:
    from collections.abc import Callable
    from random import Random

    from jmsx_broker.local import LocalBroker
    from tests.faults.process import Consumer
    from tests.faults.proxy import Proxy

#: Bytes: a cut falls somewhere in the first few frames of either direction.
_REACH: Final = 2000


@dataclass(frozen=True, slots=True, kw_only=True)
class Scene:
    """What a fault can touch."""

    broker: LocalBroker
    proxy: Proxy
    consumer: Consumer
    chance: Random


def broker_killed(scene: Scene) -> None:
    """SIGKILL, a moment of nothing, and a start on the same data."""
    scene.broker.kill()
    time.sleep(scene.chance.uniform(0, 0.5))
    scene.broker.start()


def broker_restarted(scene: Scene) -> None:
    """SIGTERM and a new start."""
    scene.broker.stop()
    scene.broker.start()


def connection_cut(scene: Scene) -> None:
    """Cut one connection in the middle of what it sends, and then one in the middle of what it gets."""
    for direction in Direction:
        scene.proxy.cut_after(scene.chance.randint(1, _REACH), direction)
        if not scene.proxy.wait_cut(30):
            raise BenchError(f"too few bytes went {direction.value} for a cut")


def half_open(scene: Scene) -> None:
    """Drop all packets of the connections there are, silently; whoever connects anew is served."""
    scene.proxy.freeze()


def broker_paused(scene: Scene) -> None:
    """SIGSTOP for longer than a silent broker is believed in."""
    scene.broker.pause()
    try:
        time.sleep(2 * max(HEARTBEAT) + scene.chance.uniform(1, 2))
    finally:
        scene.broker.resume()


def consumer_killed(scene: Scene) -> None:
    """SIGKILL to the consuming program, and a new start of it."""
    scene.consumer.kill()
    scene.consumer.restart()


CASES: Final[dict[str, Callable[[Scene], None]]] = {
    "broker-killed": broker_killed,
    "broker-restarted": broker_restarted,
    "connection-cut": connection_cut,
    "half-open": half_open,
    "broker-paused": broker_paused,
    "consumer-killed": consumer_killed,
}
