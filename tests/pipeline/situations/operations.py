"""What people and machines do to services that run: renamed, restarted, copied, set to another time."""

from __future__ import annotations

import gzip
from typing import TYPE_CHECKING, Final

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START, Line, rewritten
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.shop import QUEUES
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Shop

ORDERS: Final = QUEUES[0]
#: From START to half past ten at night before the 29th of February 2028, in seconds.
_TO_LEAP_DAY: Final = 40_185_000


# Services.


@situation
def a_service_is_renamed(scene: Scene) -> Truth:
    """At noon all workers end, and the same program starts on the same hosts under another name."""
    shop = scene.shop().usual()
    for queue in shop.queues:
        shop.consumers[queue] = []
    for host in ("worker-a", "worker-b"):
        fresh = shop.fleet.process("dispatcher", host, skew=_skew_of(shop, host))
        for queue in shop.queues:
            shop.reads(fresh, queue)
    for number in range(60):
        shop.now = START + shop.span + 3 * MINUTE + number * SECOND
        shop.done(shop.queues[number % len(shop.queues)])
    shop.ends_at(shop.now + MINUTE)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


def _skew_of(shop: Shop, host: str) -> int:
    return next(one.skew for one in shop.fleet.processes if one.host == host)


@situation
def a_service_that_only_forwards(scene: Scene) -> Truth:
    """One process takes from each queue and sends to the next, under keys of its own; the last one is settled."""
    shop = scene.shop().usual()
    middle = shop.fleet.process("pipe", "pipe-a")
    stages = [f"queue://stage.{number}" for number in range(4)]
    for stage in stages:
        shop.reads(middle, stage)
    for number in range(15):
        shop.now = START + number * 4 * MINUTE
        message = shop.send(stages[0])
        for stage in stages[1:]:
            shop.deliver(message, by=middle)
            shop.now += 10 * SECOND
            message = shop.send(stage, by=middle)
        shop.deliver(message, by=middle)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def a_writer_is_restarted_from_zero(scene: Scene) -> Truth:
    """A container came up again with the same name, process id and chance: its numbers begin at 0 again."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    again = shop.fleet.process(worker.service, worker.host, skew=worker.skew)
    again.writer = worker.writer
    for queue in shop.queues:
        shop.consumers[queue] = []
        shop.reads(again, queue)
    for number in range(40):
        shop.now = START + 3 * HOUR + number * SECOND
        shop.done(shop.queues[number % len(shop.queues)])
    segments = shop.fleet.segments()
    second = [segment for segment in segments if segment.writer == worker.writer]
    for segment in second[len(shop.fleet.segments_of(worker)) :]:
        segment.folder = f"second-life/{segment.folder}"
    scene.write(segments)
    return Truth(UNVERIFIABLE, findings=[(worker.writer,)], complete=False)


# Files.


@situation
def a_whole_log_in_itself(scene: Scene) -> Truth:
    """Somebody copied the folder of the log into itself: each line is there twice, and counts once."""
    shop = scene.shop().usual(lost=3, twice=2)
    for segment in shop.ship(scene.directory):
        segment.write(scene.directory / "backup" / "of-today")
    return shop.truth(SUSPECT, complete=True)


@situation
def a_compressed_copy_beside_each_segment(scene: Scene) -> Truth:
    """A job that saves the logs leaves its compressed files beside the segments; what is in them is not known."""
    shop = scene.shop().usual()
    for segment in shop.ship(scene.directory):
        path = scene.directory / f"{segment.path}.gz"
        path.write_bytes(gzip.compress(segment.content()))
    return Truth(NOT_SUSPECT, numbers=shop.truth().numbers, findings=[(".jsonl.gz",)])


@situation
def lines_of_a_newer_release(scene: Scene) -> Truth:
    """Lines have fields that this release does not know, as a later one of the same version may write."""
    shop = scene.shop().usual(lost=2)

    def newer(line: Line) -> Line:
        return line | {"region": "eu-1", "span_id": line["seq"], "tags": ["a", {"b": None}]}

    scene.write([rewritten(segment, newer) for segment in shop.fleet.segments()])
    return shop.truth(SUSPECT, complete=True, quarantined=0)


@situation
def half_of_the_lines_of_a_newer_release(scene: Scene) -> Truth:
    """A rolling upgrade: every second process writes further fields, in another order."""
    shop = scene.shop().usual()
    some = {process.writer for process in shop.fleet.processes[::2]}

    def newer(line: Line) -> Line:
        return {"v": line["v"], "region": "eu-1"} | dict(sorted(line.items(), reverse=True))

    segments = shop.fleet.segments()
    scene.write([rewritten(one, newer) if one.writer in some else one for one in segments])
    return shop.truth(complete=True, quarantined=0)


# Names.


@situation
def names_of_every_sort(scene: Scene) -> Truth:
    """Queues are called by dots, slashes, blanks, brackets, percents, accents and letters of other scripts."""
    names = (
        "queue://eu.orders/2026.Q4",
        "queue://Straße/ÄÖÜ.größe",
        "queue://a b%20c+d&e=f;g",
        "queue://[list]{of}(all)|'sorts'\"",
        "queue://заказы.注文.طلبات",
        "queue://cafe\u0301",
        "queue://caf\u00e9",
        "queue://.",
        "queue://a..b",
        "queue://Orders",
        "queue://orders",
    )
    shop = scene.shop(queues=names).usual(lost=3, twice=2)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, complete=True, quarantined=0)


@situation
def one_name_of_a_queue_and_a_topic(scene: Scene) -> Truth:
    """A queue and a topic with one name are two destinations; a message of each was lost in the queue only."""
    shop = scene.shop(queues=("queue://news", *QUEUES[1:])).usual(lost=2)
    reader = shop.fleet.process("reader", "reader-a")
    reader.copies["topic://news"] = "durable:reader.news"
    shop.reads(reader, "topic://news")
    for number in range(20):
        shop.now = START + number * 5 * MINUTE
        shop.deliver(shop.send("topic://news"))
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, complete=True, verdicts={"topic://news": BALANCED})


# Transactions.


@situation
def a_transaction_in_doubt_done_again_by_another(scene: Scene) -> Truth:
    """The answer to COMMIT was lost and its process closed; another took the same messages again and was done."""
    shop = scene.shop(messages=60).usual()
    one, two = shop.consumers[ORDERS]
    for number in range(5):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS)
        tx_id = f"{one.session}-tx-{number}"
        shop.deliver(message, "abandoned", by=one, tx_id=tx_id)
        one.noted_of_session(
            "tx.in_doubt",
            shop.now + 3 * SECOND,
            tx_id=tx_id,
            start_us=one.at(shop.now),
            tx_sends=0,
            tx_acks=1,
        )
        shop.deliver(message, "acknowledged", attempt=2, by=two, after=20 * SECOND)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"duplicates": 0, "unaccounted": 0, "unsent": 0})


# Clocks.


@situation
def over_a_leap_day(scene: Scene) -> Truth:
    """The 28th, the 29th of February and the 1st of March of 2028."""
    shop = scene.shop(skews=(_TO_LEAP_DAY,) * 4, broker_skew=_TO_LEAP_DAY, span=27 * HOUR)
    shop.usual(lost=2).ship(scene.directory)
    return shop.truth(SUSPECT, complete=True)


def _set(processes: list[Process], seconds: int) -> None:
    for process in processes:
        process.skew += seconds * SECOND


def _goes_on(shop: Shop, **fates: int) -> Shop:
    """Trade on for ten minutes."""
    told = [fate for fate, count in fates.items() for _ in range(count)]
    told += ["done"] * (60 - len(told))
    begun = shop.fleet.closed
    for number, fate in enumerate(told):
        shop.now = begun + number * 10 * SECOND
        getattr(shop, fate)(shop.chance.choice(shop.queues))
    shop.ends_at(shop.now + 2 * MINUTE)
    return shop


@situation
def summer_time_ends(scene: Scene) -> Truth:
    """All hosts and the broker keep local time, and put it back by an hour half-way."""
    shop = scene.shop().usual()
    _set(shop.fleet.processes, -3600)
    shop.broker_skew -= HOUR
    _goes_on(shop).ship(scene.directory)
    return shop.truth(complete=True)


@situation
def summer_time_begins_and_messages_are_lost(scene: Scene) -> Truth:
    """The same, put on by an hour; a few messages before and after were never settled."""
    shop = scene.shop().usual(lost=2)
    _set(shop.fleet.processes, 3600)
    shop.broker_skew += HOUR
    _goes_on(shop, lost=2).ship(scene.directory)
    return shop.truth(SUSPECT, complete=True)


def _waits(shop: Shop) -> Shop:
    """The youngest messages still lie in their queue."""
    for number in range(25):
        shop.now = shop.fleet.closed - 30 * SECOND + number * SECOND
        shop.send(ORDERS)
        shop.books.add(ORDERS, "in_flight")
    return shop


@situation
def in_flight_and_a_consumers_clock_was_put_on(scene: Scene) -> Truth:
    """Half-way, a consumer's clock is put on by an hour; its end is no time at which the youngest were overdue."""
    shop = scene.shop().usual()
    _set(shop.fleet.processes[2:], 3600)
    _waits(_goes_on(shop)).ship(scene.directory)
    return shop.truth(NOT_SUSPECT, options={"deadline": 60})


@situation
def in_flight_and_a_senders_clock_was_put_back(scene: Scene) -> Truth:
    """Half-way, the senders' clocks are put back by an hour: the youngest look an hour old."""
    shop = scene.shop().usual()
    _set(shop.senders, -3600)
    _waits(_goes_on(shop)).ship(scene.directory)
    return shop.truth(NOT_SUSPECT, options={"deadline": 60})


@situation
def living_fleet_and_a_consumers_clock_was_put_on(scene: Scene) -> Truth:
    """A fleet runs, one host's clock was put on by an hour, and the youngest messages are not settled yet."""
    shop = scene.shop().usual()
    _set(shop.fleet.processes[2:3], 3600)
    _goes_on(shop)
    for process in shop.fleet.processes:
        process.ends = "living"
        process.noted_of_session(
            "conn.restored", shop.fleet.closed + SECOND, attempts=1, outage_us=5
        )
    _waits(shop).ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0}, options={"deadline": 60})


@situation
def lost_and_a_consumers_clock_was_put_back(scene: Scene) -> Truth:
    """A consumer's clock is put back by an hour after messages were lost: they are lost all the same, or not proven."""
    shop = scene.shop().usual(lost=4)
    _set(shop.fleet.processes[2:3], -3600)
    _goes_on(shop).ship(scene.directory)
    return Truth(SUSPECT | UNVERIFIABLE, numbers={"duplicates": 0}, options={"deadline": 60})


@situation
def lost_just_before_a_consumers_clock_was_put_on(scene: Scene) -> Truth:
    """Messages were lost less than an hour before the end, and a clock that was put on by an hour hides it."""
    shop = scene.shop().usual()
    _set(shop.fleet.processes[2:], 3600)
    _goes_on(shop, lost=4).ship(scene.directory)
    return Truth(SUSPECT | UNVERIFIABLE, numbers={"duplicates": 0})
