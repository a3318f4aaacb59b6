"""All is well, and the logs are whole: the audit has to say so, with every number."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, SECOND_BROKER, START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import BALANCED, UNVERIFIABLE, Truth

if TYPE_CHECKING:
    from tests.pipeline.situations.shop import Shop


def _whole(scene: Scene, shop: Shop) -> Truth:
    shop.ship(scene.directory)
    return shop.truth(quarantined=0, complete=True)


@situation
def clean(scene: Scene) -> Truth:
    """Retries, dead letters, discards, suppressed repeats and expiry, and nothing wrong."""
    return _whole(scene, scene.shop().usual())


@situation
def clean_hours(scene: Scene) -> Truth:
    """The same; each hour in which something was sent has its own verdict."""
    shop = scene.shop().usual()
    truth = _whole(scene, shop)
    truth.hours = {(queue, START): BALANCED for queue in shop.queues}
    return truth


@situation
def clean_with_skews(scene: Scene) -> Truth:
    """Clocks from two minutes behind to four minutes ahead, the broker's half a minute."""
    return _whole(scene, scene.shop(skews=(-120, 240, 45, -90), broker_skew=30).usual())


@situation
def clean_with_a_clock_an_hour_ahead(scene: Scene) -> Truth:
    """The clock of one host is set to another time zone."""
    return _whole(scene, scene.shop(skews=(0, 0, 3600, 0)).usual())


@situation
def clean_with_a_clock_a_day_behind(scene: Scene) -> Truth:
    """The clock of one sender shows yesterday."""
    return _whole(scene, scene.shop(skews=(-86_400, 0, 0, 0)).usual())


@situation
def one_message(scene: Scene) -> Truth:
    """One message, sent and done."""
    return _whole(scene, scene.shop(messages=1, queues=("queue://orders",)).trade())


@situation
def no_messages(scene: Scene) -> Truth:
    """Processes came and went; nothing was sent, so nothing is proven."""
    shop = scene.shop(messages=0)
    shop.ends_at(START + HOUR)
    shop.ship(scene.directory)
    return Truth(UNVERIFIABLE, numbers={"sent": 0, "settled": 0, "unaccounted": 0})


@situation
def many_small_segments(scene: Scene) -> Truth:
    """A segment holds five lines."""
    return _whole(scene, scene.shop(segment_lines=5).usual())


@situation
def one_large_segment(scene: Scene) -> Truth:
    """A writer has one segment an hour."""
    return _whole(scene, scene.shop(segment_lines=10**6).usual())


@situation
def two_brokers(scene: Scene) -> Truth:
    """The same queue name on two brokers, each with its senders and consumers."""
    shop = scene.shop().usual()
    sender = shop.fleet.process("web", "east-a", broker=SECOND_BROKER, kind="artemis")
    worker = shop.fleet.process("worker", "east-b", broker=SECOND_BROKER, kind="artemis")
    shop.reads(worker, "queue://orders")
    for number in range(30):
        shop.now = START + number * MINUTE
        shop.deliver(shop.send("queue://orders", by=sender), by=worker)
    return _whole(scene, shop)


@situation
def rolling_deploy(scene: Scene) -> Truth:
    """Each consumer was closed and another process took its place."""
    shop = scene.shop().usual()
    for number, queue in enumerate(shop.queues):
        fresh = shop.fleet.process("worker", f"worker-{number}")
        shop.consumers[queue] = []
        shop.reads(fresh, queue)
    for number in range(40):
        shop.now = START + shop.span + number * SECOND
        shop.done(shop.queues[number % len(shop.queues)])
    return _whole(scene, shop)


@situation
def over_midnight(scene: Scene) -> Truth:
    """The log goes over the end of a day."""
    shop = scene.shop(span=19 * HOUR)
    return _whole(scene, shop.usual())


@situation
def settled_hours_later(scene: Scene) -> Truth:
    """Messages waited four hours for a consumer that was down."""
    shop = scene.shop().usual()
    for number in range(12):
        shop.now = START + number * MINUTE
        shop.done("queue://mail", after=4 * HOUR + number * SECOND)
    return _whole(scene, shop)


@situation
def options_in_names(scene: Scene) -> Truth:
    """A consumer asks for options behind its destination's name; they are not a part of it."""
    shop = scene.shop().usual()
    worker = shop.fleet.process("worker", "worker-z")
    shop.reads(worker, "queue://orders?consumer.prefetchSize=1")
    for number in range(10):
        shop.now = START + number * MINUTE
        shop.deliver(
            shop.send("queue://orders"), by=worker, dest="queue://orders?consumer.prefetchSize=1"
        )
    return _whole(scene, shop)


@situation
def an_idle_consumer(scene: Scene) -> Truth:
    """A queue has a consumer, and nobody sends to it."""
    shop = scene.shop().usual()
    worker = shop.fleet.process("archive", "archive-a")
    shop.reads(worker, "queue://archive")
    return _whole(scene, shop)


@situation
def three_hundred_writers(scene: Scene) -> Truth:
    """Many short processes, each of which sends one message."""
    shop = scene.shop(messages=20).trade()
    for number in range(300):
        shop.now = START + number * SECOND
        job = shop.fleet.process("job", f"node-{number % 7}")
        shop.deliver(shop.send("queue://orders", by=job))
    return _whole(scene, shop)


@situation
def ten_thousand_destinations(scene: Scene) -> Truth:
    """One message to each of 10,000 queues (fewer where the trade is smaller), all done."""
    queues = tuple(f"queue://tenant.{number}" for number in range(42 * scene.messages))
    shop = scene.shop(messages=0, queues=queues, hosts=1, segment_lines=20_000)
    for number, queue in enumerate(queues):
        shop.now = START + number * SECOND // 4
        shop.done(queue)
    shop.ends_at(START + HOUR)
    return _whole(scene, shop)
