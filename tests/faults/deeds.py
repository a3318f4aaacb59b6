"""The faults: each does one thing to a scene under load, and returns when it is over."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from tests.faults.brokers import full
from tests.faults.settings import HEARTBEAT, SLOW
from tests.faults.workload import BenchError
from tests.integration.broker_support import eventually

if TYPE_CHECKING:
    from tests.faults.scene import Scene

#: Bytes: a cut falls somewhere in the first few frames of either direction.
_REACH: Final = 2000

#: Where the link of a commit is lost: a word, whether it goes to the broker, and how much of it gets there at least.
_CUTS: Final = (
    (b"COMMIT", True, 0.0),
    (b"COMMIT", True, None),
    (b"COMMIT", True, 1.0),
    (b"ACK", True, None),
    (b"RECEIPT", False, 0.0),
    (b"RECEIPT", False, None),
    (b"RECEIPT", False, 1.0),
)

#: Bytes that a journal may still grow by while its program's disk is full; its event log grows ten times as fast.
_ROOM: Final = 32 * 1024

#: Bytes: in TLS no word can be seen; this many are a few messages and their commits.
_TLS_REACH: Final = 3000


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
    """Cut one connection in the middle of what it sends, then one in the middle of what it gets, three times each."""
    for to_broker in (True, False) * 3:
        _cut_after(scene, scene.chance.randint(1, _REACH), to_broker=to_broker)


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


def crash_loop(scene: Scene) -> None:
    """Wait until a message has killed the consuming program for the first time; it is started again and again."""

    def died() -> bool:
        scene.consumer.tend()
        return scene.consumer.deaths > 0

    if not eventually(died, 30):
        raise BenchError("no message has killed the consumer")


def commit_cut(scene: Scene) -> None:
    """Cut connections before, within and behind what commits, and what answers it, in a random order."""
    cuts = list(_CUTS)
    scene.chance.shuffle(cuts)
    for word, to_broker, passed in cuts:
        scene.consumer.wait_count(len(scene.consumer.read()) + 5, 30)  # links are up again
        if scene.tls:
            _cut_after(scene, scene.chance.randint(1, _TLS_REACH), to_broker=to_broker)
            continue
        share = scene.chance.random() if passed is None else passed
        scene.proxy.cut_at(word, to_broker=to_broker, passed=share)
        if not scene.proxy.sprung.wait(30):
            raise BenchError(f"no {word.decode()} came by")


def dlq_refused(scene: Scene) -> None:
    """The dead letter queue is full until a message has died without a place for it."""
    limit = 1 + scene.task.plan.maximum_redeliveries
    with full(scene.broker, scene.task.dlq):
        dead = {message.body.decode() for message in scene.broker.browse(scene.task.dlq)}
        waiting = [body for body in scene.marked if body not in dead]
        if not eventually(lambda: any(scene.consumer.times(body) == limit for body in waiting), 30):
            raise BenchError("no message died while its dlq was full")
        time.sleep(1)
        now_dead = {message.body.decode() for message in scene.broker.browse(scene.task.dlq)}
        if now_dead & set(waiting):
            raise BenchError("the dlq took a message although it was full")


def slow_handler(scene: Scene) -> None:
    """All handlers are at work for longer than a silent link lives; none may be lost."""
    before = scene.proxy.visitors
    if not eventually(lambda: all(map(scene.consumer.times, scene.marked)), 30):
        raise BenchError("no handler is slow")
    time.sleep(SLOW)
    if scene.proxy.visitors != before:
        scene.broken.append("a slow handler has cost a link")


def disk_full(scene: Scene) -> None:
    """None of the consuming program's files grows any more, and then they may again."""
    journal = scene.task.journal.stat().st_size
    scene.consumer.limit_files(journal + _ROOM)
    bitten = eventually(lambda: "event log cannot be written" in scene.consumer.words(), 30)
    time.sleep(scene.chance.uniform(0, 1))
    scene.consumer.limit_files(-1)
    if not bitten:
        raise BenchError("the event log has found room on a full disk")


def clock_stepped(scene: Scene) -> None:
    """The time of day jumps hours forth and back."""
    for hours in (2, -3, scene.chance.uniform(-100, 100), 0):
        scene.consumer.step_clock(hours * 3600)
        time.sleep(0.3)


def sigterm(scene: Scene) -> None:
    """Twice SIGTERM to the consuming program, and a new start of it, as in a rolling restart."""
    for _ in range(2):
        scene.consumer.stop()
        scene.consumer.restart()
        scene.consumer.wait_count(len(scene.consumer.read()) + 5, 30)


def failover(scene: Scene) -> None:
    """Kill the broker that everybody is connected to, and start it again when they are with the other one."""
    one, other = scene.brokers
    one.kill()
    if not eventually(lambda: other.statistics(scene.task.queue).consumer_count > 0, 30):
        raise BenchError("nobody went to the other broker")
    one.start()


def drain_both(scene: Scene) -> None:
    """Stop each broker for as long as the consumer needs for what waits on the other one."""
    one, other = scene.brokers
    for stopped, drained in ((other, one), (one, other)):
        stopped.stop()
        scene.empty(drained)
        stopped.start()


def _cut_after(scene: Scene, size: int, *, to_broker: bool) -> None:
    scene.proxy.cut_after(size, to_broker=to_broker)
    if not scene.proxy.sprung.wait(30):
        raise BenchError(f"too few bytes went {'to' if to_broker else 'from'} the broker for a cut")
