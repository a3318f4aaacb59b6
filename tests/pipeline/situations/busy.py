"""A day that gives every gold table something to tell: hogs, slow handlers, batches, runs of failures, lost links."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.situations.fleet import MINUTE, SECOND, START

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.scene import Scene
    from tests.pipeline.situations.shop import Shop

_TRIGGERS: Final = ("each", "threshold", "idle", "explicit", "commit", "close")
#: How the four workers share each queue, and how long its handler takes.
_QUEUES: Final = {
    "queue://orders": ((90, 6, 4, 0), 2_000),
    "queue://invoices": ((25, 25, 25, 25), 80_000),
    "queue://mail": ((50, 50, 0, 0), 1_500_000),
    "queue://ledger": ((70, 10, 10, 10), None),
}


def busy(scene: Scene) -> None:
    """Write a log of some thousand deliveries, many in a minute."""
    shop = scene.shop(hosts=4, segment_lines=200, span=40 * MINUTE)
    epochs: dict[str, int] = {}
    for step in range(scene.messages):
        shop.now = START + step * shop.span // scene.messages
        queue = shop.chance.choice(list(_QUEUES))
        shares, takes = _QUEUES[queue]
        (worker,) = shop.chance.choices(shop.consumers[queue], shares)
        if step % 97 == 96:
            epochs[worker.writer] = _loses_its_link(shop, worker, epochs.get(worker.writer, 1))
        epoch = epochs.get(worker.writer, 1)
        _deliver(shop, worker, queue, takes, epoch)
    shop.ends_at(START + shop.span + 2 * MINUTE)
    shop.ship(scene.directory)


def _deliver(shop: Shop, worker: Process, queue: str, takes: int | None, epoch: int) -> None:
    chance = shop.chance
    outcome = chance.choices(
        ("acknowledged", "committed", "rolled_back", "dead_lettered", "discarded", "released"),
        (60, 20, 10, 4, 3, 3),
    )[0]
    after = chance.choice((20_000, 20_000, 29_990_000, 40 * SECOND))
    told: dict[str, Any] = {"epoch": epoch, "attempt": chance.choice((1, 1, 2, 3))}
    message = shop.send(queue)
    at = shop.deliver(message, outcome, by=worker, after=after, takes=takes, **told)
    if chance.random() < 0.5:
        worker.noted_of_session(
            "ack.batch",
            at,
            epoch=epoch,
            dest=queue,
            consumer=worker.consumers[queue],
            messages=chance.choice((1, 3, 65, 65, 200)),
            trigger=chance.choice((*_TRIGGERS, None)),
        )


def _loses_its_link(shop: Shop, worker: Process, epoch: int) -> int:
    """Lose the link, at times again before it is restored, and at times for good; the next epoch."""
    worker.noted_of_session("conn.lost", shop.now, epoch=epoch, reason="io")
    queue = shop.chance.choice(list(_QUEUES))
    message = shop.send(queue)
    for _ in range(shop.chance.randrange(4)):
        shop.deliver(message, "abandoned", by=worker, after=10, epoch=epoch)
    epoch += 1
    _up(shop, worker, epoch)
    if shop.chance.random() < 0.3:
        worker.noted_of_session("conn.lost", shop.now + 2 * SECOND, epoch=epoch, reason="heartbeat")
        shop.deliver(message, "abandoned", by=worker, after=10, epoch=epoch)
        epoch += 1
        _up(shop, worker, epoch)
    if shop.chance.random() < 0.8:
        outage = shop.chance.choice((None, 3 * SECOND))
        worker.noted_of_session(
            "conn.restored", shop.now + 3 * SECOND, epoch=epoch, attempts=2, outage_us=outage
        )
    return epoch


def _up(shop: Shop, worker: Process, epoch: int) -> None:
    broker = shop.chance.choice((worker.broker, "10.0.0.2:61613"))
    worker.noted_of_session("conn.up", shop.now + SECOND, epoch=epoch, broker=broker)
    for queue, name in worker.consumers.items():
        told = {"ack_mode": "client", "prefetch": 1000} if epoch % 3 else {}
        worker.noted_of_session(
            "sub.open", shop.now + SECOND, epoch=epoch, dest=queue, consumer=name, **told
        )
