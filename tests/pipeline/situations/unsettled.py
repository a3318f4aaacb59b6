"""Messages without an end in the log that are not lost: expired, unconfirmed, in flight, in doubt."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
    either,
)

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Shop

ORDERS = "queue://orders"


def stats(process: Process, at: int, dest: str, **counts: int) -> None:
    """Note what the broker says of a queue."""
    usual = {"enqueued": 0, "dequeued": 0, "expired": 0, "size": 0}
    process.noted_of_session("broker.stats", at, dest=dest, **(usual | counts))


# Time to live.


@situation
def expired_in_the_broker(scene: Scene) -> Truth:
    """Messages whose time was over were never delivered: expired or lost, and not called lost."""
    shop = scene.shop().usual()
    _short_lived(shop, 20)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


@situation
def expired_in_the_broker_and_counted(scene: Scene) -> Truth:
    """The same, and the broker says that it expired as many."""
    shop = scene.shop().usual()
    _short_lived(shop, 20)
    before = shop.books.exact()[ORDERS]["sent"]
    stats(shop.senders[0], START, ORDERS)
    stats(shop.senders[0], shop.fleet.closed, ORDERS, enqueued=before, dequeued=before, expired=20)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0}, findings=[("expired",)])


def _short_lived(shop: Shop, count: int) -> None:
    for number in range(count):
        shop.now = START + number * 3 * MINUTE + 11 * SECOND
        shop.send(ORDERS, expires_us=shop.now + 2 * SECOND)


@situation
def lost_long_before_its_time(scene: Scene) -> Truth:
    """Messages that would have lived for days were never settled."""
    shop = scene.shop().usual()
    for number in range(4):
        shop.now = START + number * 3 * MINUTE + 11 * SECOND
        message = shop.send(ORDERS, expires_us=shop.now + 48 * HOUR)
        shop.books.add(ORDERS, "unaccounted")
        shop.books.lost.add(message.key)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, verdicts={ORDERS: SUSPECT})


@situation
def long_lived_and_done(scene: Scene) -> Truth:
    """Every message has a time to live, and was done in it."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * 3 * MINUTE + 11 * SECOND
        shop.deliver(shop.send(ORDERS, expires_us=shop.now + HOUR))
    shop.ship(scene.directory)
    return shop.truth(complete=True)


# Sends without a receipt.


def _unconfirmed(shop: Shop, count: int, *, done: int) -> None:
    for number in range(count):
        shop.now = START + number * 3 * MINUTE + 13 * SECOND
        message = shop.send(ORDERS, outcome="unconfirmed")
        if number < done:
            shop.deliver(message)
            shop.books.add(ORDERS, "sent")


@situation
def receipts_lost(scene: Scene) -> Truth:
    """Sends got no receipt, and every message was done: it was sent."""
    shop = scene.shop().usual()
    _unconfirmed(shop, 20, done=20)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def receipts_lost_and_not_done(scene: Scene) -> Truth:
    """Half of the sends without a receipt were never settled: nobody knows whether the broker has them."""
    shop = scene.shop().usual()
    _unconfirmed(shop, 20, done=10)
    shop.ship(scene.directory)
    return Truth(NOT_BALANCED, numbers={"duplicates": 0, "unsent": 0})


@situation
def receipts_lost_and_done_twice(scene: Scene) -> Truth:
    """A send without a receipt was done twice."""
    shop = scene.shop().usual()
    _unconfirmed(shop, 20, done=20)
    message = shop.send(ORDERS, outcome="unconfirmed")
    shop.deliver(message)
    shop.deliver(message, after=30 * SECOND)
    shop.books.add(ORDERS, "sent")
    shop.books.add(ORDERS, "duplicates")
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, verdicts={ORDERS: SUSPECT})


@situation
def receipts_lost_beside_a_suppressed_repeat(scene: Scene) -> Truth:
    """In one second, a send without a receipt was done, and another message came twice and was done once."""
    shop = scene.shop().usual()
    for number in range(8):
        shop.now = START + number * 11 * MINUTE + 13 * SECOND
        shop.suppressed(ORDERS)
        shop.deliver(shop.send(ORDERS, outcome="unconfirmed"))
        shop.books.add(ORDERS, "sent")
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def refused_sends(scene: Scene) -> Truth:
    """The broker refused sends: nothing was sent, nothing is missing."""
    shop = scene.shop().usual()
    for number in range(10):
        shop.now = START + number * 3 * MINUTE + 13 * SECOND
        shop.send(ORDERS, outcome="error")
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def sent_again_after_no_receipt(scene: Scene) -> Truth:
    """A send got no receipt and was sent again with its key; the broker had it once."""
    shop = scene.shop().usual()
    for number in range(10):
        shop.now = START + number * 3 * MINUTE + 13 * SECOND
        message = shop.send(ORDERS, outcome="unconfirmed")
        shop.send(ORDERS, key=message.key, by=message.sender, at=shop.now + SECOND)
        shop.deliver(message, after=2 * SECOND)
    shop.ship(scene.directory)
    truth = shop.truth()
    for numbers in (truth.numbers, truth.by_destination[ORDERS]):
        sent = numbers["sent"]
        assert isinstance(sent, int)
        numbers["sent"] = either(sent, sent + 10)
    return truth


# In flight.


@situation
def in_flight(scene: Scene) -> Truth:
    """The youngest messages still wait in their queue, and the deadline allows it."""
    shop = _waiting(scene.shop().usual())
    shop.ship(scene.directory)
    return shop.truth(options={"deadline": 60})


def _waiting(shop: Shop) -> Shop:
    end = shop.fleet.closed
    for number in range(25):
        shop.now = end - 30 * SECOND + number * SECOND
        shop.send(ORDERS)
        shop.books.add(ORDERS, "in_flight")
    return shop


@situation
def in_flight_with_skews(scene: Scene) -> Truth:
    """The same, and the clock of an idle writer is ten minutes ahead: the deadline goes by each writer's own end."""
    shop = _waiting(scene.shop().usual())
    idle = shop.fleet.process("archive", "archive-a", skew=600 * SECOND)
    shop.reads(idle, "queue://archive")
    shop.ship(scene.directory)
    return shop.truth(options={"deadline": 60})


@situation
def overdue_by_a_clock_behind_that_the_broker_takes(scene: Scene) -> Truth:
    """Classic has the time of a message from its sender, whose clock is four minutes behind: two are overdue."""
    shop = scene.shop(skews=(-240, 0, 0, 0), own_times=True).usual()
    for process in shop.fleet.processes:
        for at in (START, shop.fleet.closed):
            told = {"broker": process.broker, "ahead_us": -process.skew, "within_us": 900}
            process.noted_of_session("broker.clock", at, **told)
    for number in range(5):
        shop.now = shop.fleet.closed - (100 if number < 2 else 20) * SECOND + number
        key = shop.send(ORDERS, by=shop.senders[0]).key
        if number < 2:
            shop.books.lost.add(key)
        shop.books.add(ORDERS, "unaccounted" if number < 2 else "in_flight")
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, options={"deadline": 60}, verdicts={ORDERS: SUSPECT})


@situation
def in_flight_too_long(scene: Scene) -> Truth:
    """The deadline is over for what was never settled."""
    shop = scene.shop().usual()
    for number in range(5):
        shop.now = START + 30 * MINUTE + number * SECOND
        shop.books.lost.add(shop.send(ORDERS).key)
        shop.books.add(ORDERS, "unaccounted")
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, options={"deadline": 60}, verdicts={ORDERS: SUSPECT})


@situation
def waits_for_its_redelivery(scene: Scene) -> Truth:
    """The broker is to deliver it again when everybody has ended; a consumer would have given it back by then."""
    shop = scene.shop().usual()
    for number in range(4):
        shop.now = START + number * 9 * MINUTE
        message = shop.send(ORDERS)
        worker = shop.consumers[ORDERS][0]
        shop._failed(message, worker, 1, 20_000, delay_us=9 * HOUR, blocking=False, by_broker=True)
        shop.books.add(ORDERS, "in_flight")
    shop.ship(scene.directory)
    return shop.truth(options={"deadline": 60})


@situation
def waited_with_a_consumer_that_was_closed(scene: Scene) -> Truth:
    """It was to wait longer than its consumer lived: the broker has had it since, and nobody took it."""
    shop = scene.shop().usual()
    shop.now = START + 30 * MINUTE
    message = shop.send(ORDERS)
    worker = shop.consumers[ORDERS][0]
    shop._failed(message, worker, 1, 20_000, delay_us=9 * HOUR)
    closed = {"dest": ORDERS, "consumer": worker.consumers[ORDERS]}
    worker.noted_of_session("sub.close", shop.fleet.closed - 30 * MINUTE, **closed)
    shop.books.add(ORDERS, "unaccounted")
    shop.books.lost.add(message.key)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, options={"deadline": 60}, verdicts={ORDERS: SUSPECT})


# A fleet that lives.


def _living(shop: Shop) -> Shop:
    for process in shop.fleet.processes:
        process.ends = "living"
    return shop


@situation
def living_fleet(scene: Scene) -> Truth:
    """Every process runs; the last segment of each is open, and all that was sent was done."""
    shop = _living(scene.shop().usual())
    shop.ship(scene.directory)
    return Truth(BALANCED, numbers={"unaccounted": 0, "duplicates": 0, "unsent": 0})


@situation
def living_fleet_with_torn_tails(scene: Scene) -> Truth:
    """The open segments end in the middle of a line, as they do while they are written."""
    shop = _living(scene.shop().usual())
    for segment in shop.ship(scene.directory):
        if segment.suffix == ".jsonl.open":
            path = scene.directory / segment.path
            path.write_bytes(segment.content() + b'{"v":1,"kind":"deliv')
    return Truth(BALANCED, numbers={"unaccounted": 0, "duplicates": 0, "unsent": 0})


@situation
def living_fleet_with_messages_under_way(scene: Scene) -> Truth:
    """What was sent in the last seconds is not settled yet: balanced until then."""
    shop = _living(scene.shop().usual())
    for process in shop.fleet.processes:
        process.noted_of_session(
            "conn.restored", shop.fleet.closed + SECOND, attempts=1, outage_us=5
        )
    for number in range(25):
        shop.now = shop.fleet.closed - 20 * SECOND + number * SECOND // 2
        shop.send(ORDERS)
    shop.ship(scene.directory)
    return Truth(BALANCED, numbers={"unaccounted": 0, "duplicates": 0}, options={"deadline": 60})


@situation
def living_fleet_and_a_loss(scene: Scene) -> Truth:
    """A running fleet lost messages an hour ago: that is before the horizon."""
    shop = _living(scene.shop().usual())
    for number in range(5):
        shop.now = START + 9 * MINUTE + number * 10 * MINUTE
        shop.lost(ORDERS)
    shop.ship(scene.directory)
    return Truth(SUSPECT, numbers={"unaccounted": 5, "duplicates": 0}, options={"deadline": 60})


@situation
def living_fleet_and_an_idle_writer(scene: Scene) -> Truth:
    """One of the running processes has had nothing to write for two hours."""
    shop = scene.shop().usual()
    idle = shop.fleet.process("archive", "archive-a")
    shop.reads(idle, "queue://archive")
    _living(shop).ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


@situation
def living_consumer_of_a_closed_sender(scene: Scene) -> Truth:
    """Senders have ended, consumers run; all is done."""
    shop = scene.shop().usual()
    for process in shop.fleet.processes:
        process.ends = "closed" if process in shop.senders else "living"
    shop.ship(scene.directory)
    return Truth(BALANCED, numbers={"unaccounted": 0, "duplicates": 0, "unsent": 0})


@situation
def only_open_segments(scene: Scene) -> Truth:
    """A fleet that was just started has closed no segment yet."""
    shop = scene.shop(messages=20, span=MINUTE, segment_lines=10**6).trade()
    _living(shop).ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


# Transactions.


def transaction(shop: Shop, worker: Process, kind: str, number: int, *, acks: int) -> str:
    """Note how a transaction of `worker` with one send ended; returns its id."""
    tx_id = f"{worker.session}-tx-{number}"
    worker.noted_of_session(
        kind,
        shop.now + 3 * SECOND,
        tx_id=tx_id,
        start_us=worker.at(shop.now),
        tx_sends=1,
        tx_acks=acks,
    )
    return tx_id


@situation
def transactions_committed(scene: Scene) -> Truth:
    """Orders become invoices in transactions, all committed."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(20):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS)
        tx_id = transaction(shop, worker, "tx.commit", number, acks=1)
        shop.deliver(message, "committed", by=worker, tx_id=tx_id)
        shop.deliver(shop.send("queue://invoices", by=worker, tx_id=tx_id), after=5 * SECOND)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def transactions_rolled_back(scene: Scene) -> Truth:
    """Transactions were rolled back, done again and committed: sends in the first were never sent."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(20):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS)
        tx_id = transaction(shop, worker, "tx.rollback", 2 * number, acks=0)
        shop.deliver(message, "rolled_back", by=worker, tx_id=tx_id, error="ValueError")
        shop.send("queue://invoices", by=worker, tx_id=tx_id, outcome="rolled_back")
        shop.now += 10 * SECOND
        tx_id = transaction(shop, worker, "tx.commit", 2 * number + 1, acks=1)
        shop.deliver(message, "committed", attempt=2, by=worker, tx_id=tx_id, after=11 * SECOND)
        shop.deliver(shop.send("queue://invoices", by=worker, tx_id=tx_id), after=5 * SECOND)
    shop.ship(scene.directory)
    return shop.truth(complete=True, quarantined=0)


@situation
def transactions_in_doubt_that_were_committed(scene: Scene) -> Truth:
    """The answer to COMMIT was lost; the broker had done it: the sends arrived, and nothing came again."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(5):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS)
        tx_id = transaction(shop, worker, "tx.in_doubt", number, acks=0)
        shop.deliver(message, "abandoned", by=worker, tx_id=tx_id)
        made = shop.send("queue://invoices", by=worker, tx_id=tx_id, outcome="unconfirmed")
        shop.deliver(made, after=5 * SECOND)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"duplicates": 0, "unsent": 0}, findings=[("doubt",)])


@situation
def transactions_in_doubt_that_were_rolled_back(scene: Scene) -> Truth:
    """The answer to COMMIT was lost, and the broker had not done it: all was done again."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(5):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS)
        tx_id = transaction(shop, worker, "tx.in_doubt", 2 * number, acks=0)
        shop.deliver(message, "abandoned", by=worker, tx_id=tx_id)
        shop.send("queue://invoices", by=worker, tx_id=tx_id, outcome="unconfirmed")
        shop.now += 10 * SECOND
        tx_id = transaction(shop, worker, "tx.commit", 2 * number + 1, acks=1)
        shop.deliver(message, "committed", attempt=2, by=worker, tx_id=tx_id, after=11 * SECOND)
        shop.deliver(shop.send("queue://invoices", by=worker, tx_id=tx_id), after=5 * SECOND)
    shop.ship(scene.directory)
    return Truth(UNVERIFIABLE | BALANCED, numbers={"duplicates": 0, "unaccounted": 0})


@situation
def sends_in_doubt(scene: Scene) -> Truth:
    """A sender's transactions are in doubt, and what was sent in them is nowhere."""
    shop = scene.shop().usual()
    sender = shop.senders[0]
    for number in range(5):
        shop.now = START + number * 3 * MINUTE
        tx_id = transaction(shop, sender, "tx.in_doubt", number, acks=0)
        shop.send(ORDERS, by=sender, tx_id=tx_id, outcome="unconfirmed")
    shop.ship(scene.directory)
    return Truth(UNVERIFIABLE, numbers={"duplicates": 0}, findings=[("doubt",)])
