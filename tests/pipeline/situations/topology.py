"""Several brokers, forwarding, failover, and clocks that do not go evenly."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, SECOND_BROKER, START, Line
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)

if TYPE_CHECKING:
    from tests.pipeline.situations.shop import Shop


def _forwarded(shop: Shop, *, lost: int = 0, repeated: int = 0) -> None:
    """Each order is done, and sent on to the ledger under the key that it has."""
    worker = shop.consumers["queue://orders"][0]
    for number in range(20):
        shop.now = START + number * 5 * MINUTE
        message = shop.done("queue://orders", by=worker)
        onward = shop.send("queue://ledger", by=worker, key=message.key, at=shop.now + SECOND)
        if number >= lost:
            shop.deliver(onward)
        else:
            shop.books.add("queue://ledger", "unaccounted")
            shop.books.lost.add(message.key)
        if number < repeated:
            shop.deliver(message, after=40 * SECOND)
            shop.books.add("queue://orders", "duplicates")


@situation
def forwarded_under_its_key(scene: Scene) -> Truth:
    """A service does a message and sends it on under the same key: once in each queue."""
    shop = scene.shop().usual()
    _forwarded(shop)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def forwarded_under_its_key_and_lost(scene: Scene) -> Truth:
    """The same, and in the second queue messages were lost."""
    shop = scene.shop().usual()
    _forwarded(shop, lost=2)
    shop.ship(scene.directory)
    verdicts = {"queue://orders": BALANCED, "queue://ledger": SUSPECT}
    return shop.truth(SUSPECT, complete=True, verdicts=verdicts)


@situation
def repeated_here_and_lost_there_under_one_key(scene: Scene) -> Truth:
    """One key, two queues: done twice in the first, never in the second; the totals agree."""
    shop = scene.shop().usual()
    _forwarded(shop, lost=1, repeated=1)
    shop.ship(scene.directory)
    verdicts = {"queue://orders": SUSPECT, "queue://ledger": SUSPECT, "queue://mail": BALANCED}
    return shop.truth(SUSPECT, complete=True, verdicts=verdicts)


def _bridged(shop: Shop, *, lost: int = 0) -> None:
    """A process takes orders from one broker and sends them to another, to a queue of the same name."""
    bridge = shop.fleet.process("bridge", "bridge-a")
    shop.reads(bridge, "queue://orders")
    session = bridge.connects_to(SECOND_BROKER, START)
    reader = shop.fleet.process("east", "east-a", broker=SECOND_BROKER)
    reader.consumers["queue://orders"] = "east.orders"
    for number in range(20):
        shop.now = START + number * 5 * MINUTE
        message = shop.done("queue://orders", by=bridge)
        onward = shop.send(
            "queue://orders",
            by=bridge,
            key=message.key,
            at=shop.now + SECOND,
            session_id=session,
        )
        if number >= lost:
            shop.deliver(onward, by=reader)
        else:
            shop.books.add("queue://orders", "unaccounted")
            shop.books.lost.add(message.key)


@situation
def bridged_to_another_broker(scene: Scene) -> Truth:
    """One process with two sessions takes from one broker and sends to another, under the same key and name."""
    shop = scene.shop().usual()
    _bridged(shop)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def bridged_to_another_broker_and_lost(scene: Scene) -> Truth:
    """The same, and on the second broker messages were lost."""
    shop = scene.shop().usual()
    _bridged(shop, lost=2)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, complete=True, verdicts={"queue://orders": SUSPECT})


def _bridged_and_half_of(scene: Scene, host: str) -> Truth:
    shop = scene.shop().usual()
    _bridged(shop)
    segments = shop.fleet.segments()
    for segment in segments:
        if segment.writer.startswith(host):
            del segment.lines[len(segment.lines) // 2 :]
    scene.write(segments)
    return Truth(UNVERIFIABLE, numbers={"duplicates": 0})


@situation
def bridged_to_another_broker_with_half_of_its_log(scene: Scene) -> Truth:
    """The same without losses, and of the log of the bridge lines are missing: what it sent on is no repeat."""
    return _bridged_and_half_of(scene, "bridge-a")


@situation
def bridged_to_another_broker_with_half_of_a_senders_log(scene: Scene) -> Truth:
    """The same, and lines of a sender are missing: what the bridge sent on is known, and what it was sent is not."""
    return _bridged_and_half_of(scene, "web-a")


def _is_second(line: Line | bytes, keys: set[str]) -> bool:
    """Whether it tells of a send, half a second or more after the key of it was made."""
    if isinstance(line, bytes) or line["kind"] != "send" or line["msg_key"] not in keys:
        return False
    made_us = int(line["msg_key"][:12], 16) * 1000
    return bool(line["start_us"] > made_us + SECOND // 2)


@situation
def sent_to_two_brokers_with_the_second_send_missing(scene: Scene) -> Truth:
    """A sender whose log has gaps gave a message to both; nobody who did it can have sent it on: it is a repeat."""
    shop = scene.shop().usual()
    web = shop.senders[0]
    reader = shop.fleet.process("east", "east-a", broker=SECOND_BROKER)
    reader.consumers["queue://orders"] = "east.orders"
    again = set()
    for number in range(10):
        shop.now = START + number * 5 * MINUTE
        message = shop.send("queue://orders", by=web)
        shop.deliver(message)
        shop.send("queue://orders", by=web, key=message.key, at=shop.now + SECOND)
        shop.deliver(message, by=reader, after=2 * SECOND)
        again.add(message.key)
    segments = shop.fleet.segments()
    for segment in segments:
        segment.lines[:] = [line for line in segment.lines if not _is_second(line, again)]
    scene.write(segments)
    return Truth(SUSPECT, numbers={"duplicates": len(again)})


@situation
def a_network_of_brokers(scene: Scene) -> Truth:
    """Sent to one broker, consumed from another that is joined to it: nothing is lost."""
    shop = scene.shop().usual()
    reader = shop.fleet.process("east", "east-a", broker=SECOND_BROKER)
    reader.consumers["queue://transfers"] = "east.transfers"
    for number in range(30):
        shop.now = START + number * 3 * MINUTE
        shop.deliver(shop.send("queue://transfers"), by=reader)
    shop.ship(scene.directory)
    truth = shop.truth(NOT_SUSPECT)
    truth.verdicts = dict.fromkeys(shop.queues, BALANCED) | {"queue://transfers": NOT_SUSPECT}
    return truth


@situation
def failover_to_another_broker(scene: Scene) -> Truth:
    """Half-way, the reserve took over under another address; what was sent before was consumed after."""
    shop = scene.shop().usual()
    half = START + shop.span // 2
    for process in shop.fleet.processes:
        process.noted_of_session("conn.lost", half, reason="io")
        process.noted_of_session(
            "conn.up",
            half + SECOND,
            epoch=2,
            server="ActiveMQ/6.1.8",
            connect_us=900,
            broker="10.0.0.2:61613",
            broker_kind="classic",
            conn_id=process.session.removesuffix("-1"),
        )
        process.noted_of_session(
            "conn.restored", half + 2 * SECOND, epoch=2, attempts=3, outage_us=2 * SECOND
        )
    for number in range(20):
        shop.now = half - MINUTE + number * SECOND
        shop.done("queue://orders", after=3 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth()


@situation
def sent_after_the_last_consumer_closed(scene: Scene) -> Truth:
    """The consumers ended first; what was sent afterwards lies in its queue: not balanced."""
    shop = scene.shop().usual()
    for number in range(10):
        shop.now = shop.fleet.closed + HOUR + number * SECOND
        shop.send("queue://orders")
    shop.ship(scene.directory)
    verdicts = {"queue://orders": NOT_BALANCED, "queue://mail": BALANCED}
    return Truth(NOT_BALANCED, numbers={"duplicates": 0}, verdicts=verdicts)


@situation
def a_clock_of_1970(scene: Scene) -> Truth:
    """A consumer's host has no clock: its lines are of 1970, and all is done."""
    shop = scene.shop(skews=(0, 0, -START // SECOND, 0)).usual()
    shop.ship(scene.directory)
    return Truth(
        NOT_SUSPECT,
        numbers={"unaccounted": 0, "duplicates": 0, "sent": shop.truth().numbers["sent"]},
    )


@situation
def a_sender_of_1970(scene: Scene) -> Truth:
    """A sender's host has no clock: its keys are of 1970, and all is done."""
    shop = scene.shop(skews=(-START // SECOND, 0, 0, 0)).usual()
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


def _stepping(scene: Scene, number: int, seconds: int, *, lost: int = 0) -> Shop:
    """A trade in which the clock of one process is put right by `seconds` half-way."""
    shop = scene.shop().usual()
    shop.fleet.processes[number].skew = seconds * SECOND
    begun = shop.fleet.closed
    for step in range(60):
        shop.now = begun + step * 10 * SECOND
        fate = "lost" if step < lost else "done"
        getattr(shop, fate)(shop.chance.choice(shop.queues))
    shop.ends_at(shop.now + 2 * MINUTE)
    return shop


@situation
def a_consumers_clock_is_set_back(scene: Scene) -> Truth:
    """Half-way, the clock of a consumer is put back by five minutes."""
    shop = _stepping(scene, 2, -300)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def a_senders_clock_is_set_back(scene: Scene) -> Truth:
    """Half-way, the clock of a sender is put back by an hour, so that hours come twice in its keys."""
    shop = _stepping(scene, 0, -3600)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def a_clock_is_set_back_and_messages_are_lost(scene: Scene) -> Truth:
    """The clock of a sender is put on by five minutes, and then messages are lost."""
    shop = _stepping(scene, 0, 300, lost=4)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, complete=True)


@situation
def an_abandoned_open_segment(scene: Scene) -> Truth:
    """One process died early and left an open segment that nobody recovered; its queue is not proven after that."""
    shop = scene.shop(span=4 * HOUR).usual()
    worker = shop.fleet.process("exporter", "export-a", ends="killed")
    shop.reads(worker, "queue://exports")
    for number in range(20):
        shop.now = START + number * MINUTE
        shop.done("queue://exports")
    segments = shop.fleet.segments()
    mine = [segment for segment in segments if segment.writer == worker.writer]
    mine[-1].suffix = ".jsonl.open"
    scene.write(segments)
    return Truth(BALANCED | UNVERIFIABLE, numbers={"unaccounted": 0, "duplicates": 0, "unsent": 0})
