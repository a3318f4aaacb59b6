"""Two or three things that happen to the same messages, each of which alone is in another file."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from jmsx_report.compaction import compact
from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START
from tests.pipeline.situations.in_hand import alive
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)
from tests.pipeline.situations.unsettled import stats, transaction

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Message, Shop

ORDERS = "queue://orders"
_WELL: dict[str, Any] = {"unaccounted": 0, "duplicates": 0, "effect_duplicates": 0, "unsent": 0}


def _at(shop: Shop, number: int) -> None:
    shop.now = START + number * 3 * MINUTE + 11 * SECOND


def _not_settled(shop: Shop, message: Message) -> None:
    shop.books.add(message.to, "unaccounted")
    shop.books.lost.add(message.key)


def _suspect(shop: Shop, *queues: str, **more: Any) -> Truth:
    verdicts = {"queue://mail": BALANCED} | dict.fromkeys(queues, SUSPECT)
    return shop.truth(SUSPECT, verdicts=verdicts, **more)


# Planned waits.


@situation
def a_wait_outlives_a_deploy(scene: Scene) -> Truth:
    """Its consumer was closed while it waited, and gave it back; the one that took its place did it."""
    shop = scene.shop().usual()
    old, other = shop.consumers[ORDERS]
    for number in range(5):
        _at(shop, number)
        message = shop.send(ORDERS)
        shop._failed(message, old, 1, 20_000, delay_us=HOUR)
        shop.deliver(message, "released", by=old, attempt=2, after=5 * MINUTE, handled=False)
        shop.deliver(message, by=other, attempt=2, after=6 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def the_brokers_scheduler_gives_it_to_another(scene: Scene) -> Truth:
    """It waited in the broker's scheduler for an hour, and another consumer did it."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    for number in range(5):
        _at(shop, number)
        message = shop.send(ORDERS)
        shop._failed(message, one, 1, 20_000, delay_us=HOUR, blocking=False, by_broker=True)
        shop.deliver(message, by=two, attempt=2, after=HOUR + SECOND)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def the_brokers_scheduler_never_gave_it(scene: Scene) -> Truth:
    """It was to wait there for ten minutes, and never came."""
    shop = scene.shop().usual()
    for number in range(3):
        _at(shop, number)
        message = shop.send(ORDERS)
        worker = shop.consumers[ORDERS][0]
        shop._failed(
            message, worker, 1, 20_000, delay_us=10 * MINUTE, blocking=False, by_broker=True
        )
        _not_settled(shop, message)
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS, options={"deadline": 60})


@situation
def it_waited_in_a_process_that_was_killed(scene: Scene) -> Truth:
    """A wait that blocks nothing was the consumer's, which died; what the broker did with it nobody wrote down."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    _at(shop, 50)
    message = shop.send(ORDERS)
    shop._failed(message, one, 1, 20_000, delay_us=9 * HOUR, blocking=False)
    one.ends = "killed"
    one.note("log.recovered", shop.fleet.closed, lost_bytes=0, recovered_by=two.writer)
    shop.ship(scene.directory)
    return Truth(NOT_BALANCED, numbers={"duplicates": 0}, options={"deadline": 60})


@situation
def a_living_fleet_that_waits(scene: Scene) -> Truth:
    """Everybody runs, and seven messages wait in consumers for an hour: in flight, and told."""
    shop = scene.shop().usual()
    end = shop.fleet.closed + 20 * MINUTE
    for number in range(7):
        shop.now = end - 15 * MINUTE + number * SECOND
        message = shop.send(ORDERS)
        shop._failed(message, shop.consumers[ORDERS][number % 2], 1, 20_000, delay_us=HOUR)
        shop.books.add(ORDERS, "in_flight")
    alive(shop, until=end)
    shop.ship(scene.directory)
    return shop.truth(options={"deadline": 60}, findings=[("orders", "7 messages", "planned wait")])


# Expiry, dead letters, repeats.


@situation
def expired_beside_lost(scene: Scene) -> Truth:
    """Of messages that nobody settled five had a time to live that is over, and three would have lived for days."""
    shop = scene.shop().usual()
    for number in range(8):
        _at(shop, number)
        lives = 2 * SECOND if number < 5 else 48 * HOUR
        message = shop.send(ORDERS, expires_us=shop.now + lives)
        if number >= 5:
            _not_settled(shop, message)
    shop.ship(scene.directory)
    return Truth(
        SUSPECT,
        numbers={"unaccounted": 3, "expired_at_broker": 5, "duplicates": 0},
        verdicts={ORDERS: SUSPECT},
        may_be_lost=frozenset(shop.books.lost),
    )


@situation
def expired_by_a_clock_that_is_hours_ahead(scene: Scene) -> Truth:
    """Who sent them has a clock three hours ahead, and so says of their times; they are over all the same."""
    shop = scene.shop(skews=(3 * 3600, 0, 0, 0)).usual()
    ahead = shop.senders[0]
    for number in range(6):
        _at(shop, number)
        shop.send(ORDERS, by=ahead, expires_us=ahead.at(shop.now) + 2 * SECOND)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0})


@situation
def discarded_twice_beside_a_loss(scene: Scene) -> Truth:
    """In one second one message was discarded twice and another never settled: the counts agree."""
    shop = scene.shop().usual()
    for number in range(4):
        _at(shop, number)
        message = shop.send(ORDERS)
        shop.deliver(message, "discarded", error="Discard")
        shop.deliver(message, "discarded", error="Discard", attempt=2, after=2 * SECOND)
        _not_settled(shop, shop.send(ORDERS))
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


@situation
def dead_twice_beside_a_loss(scene: Scene) -> Truth:
    """In one second one message became a dead letter twice, for an ACK was lost, and another was never settled."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(4):
        _at(shop, number)
        message = shop.send(ORDERS)
        for attempt in (1, 2):
            at = shop.deliver(
                message, "dead_lettered", attempt=attempt, by=worker, after=attempt * SECOND
            )
            shop.dead_letter(message, worker, at, attempt, "max_redeliveries", error="ValueError")
        _not_settled(shop, shop.send(ORDERS))
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


@situation
def replayed_twice_and_done_twice(scene: Scene) -> Truth:
    """Two operators replayed the same dead letters by `jmsx dlq replay`, which writes no log; both copies were done."""
    shop = scene.shop().usual()
    for number in range(3):
        _at(shop, number)
        message = shop.dead(ORDERS)
        shop.deliver(message, after=20 * MINUTE)
        shop.deliver(message, after=21 * MINUTE)
        shop.books.add(ORDERS, "duplicates")
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


@situation
def suppressed_on_several_hosts(scene: Scene) -> Truth:
    """Done on one host, and twice more suppressed on the other, by a store that both share."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    for number in range(6):
        _at(shop, number)
        message = shop.done(ORDERS, by=one)
        for after in (3, 9):
            shop.deliver(
                message, "duplicate", by=two, attempt=2, after=after * SECOND, handled=False
            )
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def suppressed_beside_a_loss(scene: Scene) -> Truth:
    """In one second a repeat was suppressed and another message lost: the counts agree."""
    shop = scene.shop().usual()
    for number in range(4):
        _at(shop, number)
        shop.suppressed(ORDERS)
        _not_settled(shop, shop.send(ORDERS))
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


@situation
def a_store_forgot_and_the_handler_ran_again(scene: Scene) -> Truth:
    """Done, suppressed once, and then done again: the store had forgotten it."""
    shop = scene.shop().usual()
    _at(shop, 9)
    message = shop.suppressed(ORDERS)
    shop.deliver(message, attempt=3, after=50 * MINUTE)
    shop.books.add(ORDERS, "duplicates")
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


# Sends.


@situation
def sent_again_under_another_key(scene: Scene) -> Truth:
    """A send got no receipt and never came; the program sent it again, as another message, and that was done."""
    shop = scene.shop().usual()
    for number in range(5):
        _at(shop, number)
        shop.send(ORDERS, outcome="unconfirmed")
        shop.now += SECOND
        shop.done(ORDERS)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE, numbers={"duplicates": 0, "unaccounted": 0}, findings=[("without an answer",)]
    )


@situation
def refused_and_sent_again(scene: Scene) -> Truth:
    """The broker refused a send for its store was full, and took it at the second try, as another message."""
    shop = scene.shop().usual()
    for number in range(5):
        _at(shop, number)
        shop.send(ORDERS, outcome="error")
        shop.now += SECOND
        shop.done(ORDERS)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def sent_in_transactions_and_lost(scene: Scene) -> Truth:
    """Transactions were committed, and of what was sent in them two messages were never settled."""
    shop = scene.shop().usual()
    sender = shop.senders[0]
    for number in range(6):
        _at(shop, number)
        tx_id = transaction(shop, sender, "tx.commit", number, acks=0)
        message = shop.send(ORDERS, by=sender, tx_id=tx_id)
        if number < 2:
            _not_settled(shop, message)
        else:
            shop.deliver(message, after=5 * SECOND)
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


@situation
def a_batch_is_rolled_back_and_done_one_by_one(scene: Scene) -> Truth:
    """Ten messages in one transaction failed, and were done in one transaction each."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    _at(shop, 4)
    batch = [shop.send(ORDERS) for _ in range(10)]
    failed = transaction(shop, worker, "tx.rollback", 0, acks=0)
    for message in batch:
        shop.deliver(message, "rolled_back", by=worker, tx_id=failed, error="ValueError")
    for number, message in enumerate(batch, 1):
        shop.now += SECOND
        tx_id = transaction(shop, worker, "tx.commit", number, acks=1)
        after = (10 + number) * SECOND
        shop.deliver(message, "committed", attempt=2, by=worker, tx_id=tx_id, after=after)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def one_of_a_batch_is_lost(scene: Scene) -> Truth:
    """Ten messages came in one chunk, and nine were acknowledged in one frame; the tenth is nowhere."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    where = {"dest": ORDERS, "consumer": worker.consumers[ORDERS]}
    _at(shop, 4)
    batch = [shop.send(ORDERS) for _ in range(10)]
    worker.noted_of_session(
        "recv.batch", shop.now + 10_000, messages=10, redelivered_messages=0, **where
    )
    for message in batch[:-1]:
        shop.deliver(message, by=worker)
    worker.noted_of_session("ack.batch", shop.now + SECOND, messages=9, trigger="idle", **where)
    _not_settled(shop, batch[-1])
    shop.ship(scene.directory)
    return _suspect(shop, ORDERS)


# Replies, subscriptions, names.


@situation
def a_reply_is_lost(scene: Scene) -> Truth:
    """Requests are answered to one queue that the asker reads; one answer never came."""
    shop = scene.shop().usual()
    asker = shop.fleet.process("asker", "ask-a")
    shop.reads(asker, "queue://replies")
    for number in range(12):
        _at(shop, number)
        asked = shop.done(ORDERS)
        answer = shop.send(
            "queue://replies",
            by=shop.consumers[ORDERS][0],
            at=shop.now + SECOND,
            cause_key=asked.key,
        )
        if number == 5:
            _not_settled(shop, answer)
        else:
            shop.deliver(answer)
    shop.ship(scene.directory)
    return _suspect(shop, "queue://replies")


def _news(shop: Shop, *hosts: str, skews: tuple[int, ...] = (0, 0)) -> list[Process]:
    """Durable subscribers of `topic://news`."""
    readers = []
    for host, skew in zip(hosts, skews, strict=True):
        reader = shop.fleet.process("news", host, skew=skew)
        reader.consumers["topic://news"] = f"news.{host}"
        reader.copies["topic://news"] = f"durable:{host}.news"
        readers.append(reader)
    return readers


@situation
def durable_subscribers_hours_apart_and_a_loss(scene: Scene) -> Truth:
    """The clocks of two durable subscribers are five hours ahead and three behind; one never had one message."""
    shop = scene.shop().usual()
    readers = _news(shop, "east", "west", skews=(5 * HOUR, -3 * HOUR))
    for number in range(20):
        _at(shop, number)
        message = shop.send("topic://news", counted=False)
        for reader in readers:
            if number != 13 or reader is readers[0]:
                shop.deliver(message, by=reader, counted=False)
            else:
                shop.books.lost.add(message.key)
    shop.ship(scene.directory)
    return Truth(
        SUSPECT,
        numbers={"unaccounted": 1, "duplicates": 0},
        verdicts={"topic://news": SUSPECT, ORDERS: BALANCED},
        lost_keys=frozenset(shop.books.lost),
    )


@situation
def a_durable_subscriber_of_whom_there_is_no_log(scene: Scene) -> Truth:
    """Two are expected, and the log of one never came: nothing is said of its copies."""
    shop = scene.shop().usual()
    (reader,) = _news(shop, "east", skews=(0,))
    for number in range(20):
        _at(shop, number)
        shop.deliver(shop.send("topic://news", counted=False), by=reader, counted=False)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers=_WELL,
        findings=[("news", "2")],
        options={"expect": {"news": 2, "web": 1}},
    )


@situation
def a_wildcard_beside_a_plain_name(scene: Scene) -> Truth:
    """One consumer reads `queue://eu.*` and another `queue://eu.parcels`: each message went to one of them."""
    shop = scene.shop().usual()
    wide = shop.fleet.process("reader", "fan-a")
    wide.consumers["queue://eu.*"] = "reader.all"
    plain = shop.fleet.process("parcels", "parcel-a")
    plain.consumers["queue://eu.parcels"] = "parcels"
    for number in range(20):
        _at(shop, number)
        message = shop.send("queue://eu.parcels", counted=False)
        who, dest = (wide, "queue://eu.*") if number % 3 else (plain, "queue://eu.parcels")
        shop.deliver(message, by=who, dest=dest, counted=False)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers=_WELL, verdicts={ORDERS: BALANCED})


# Logs that are cut, packed and missing.


@situation
def compacted_in_the_middle(scene: Scene) -> Truth:
    """All hours but the last were compacted; later segments lie beside them, and a loss is in both."""
    shop = scene.shop().usual()
    for number in (3, 44):
        _at(shop, number)
        _not_settled(shop, shop.send(ORDERS))
    segments = shop.fleet.segments()
    last = max(segment.folder for segment in segments)
    scene.write([segment for segment in segments if segment.folder != last])
    list(compact(scene.directory))
    scene.write([segment for segment in segments if segment.folder == last])
    return _suspect(shop, ORDERS, complete=True)


@situation
def compacted_and_shipped_again(scene: Scene) -> Truth:
    """What was compacted came once more as segments: each line counts once."""
    shop = scene.shop().usual()
    segments = shop.ship(scene.directory)
    list(compact(scene.directory))
    scene.write(segments[::3])
    return shop.truth(complete=True)


@situation
def a_compacted_file_was_cut(scene: Scene) -> Truth:
    """Half of a compacted file is there: nothing of it can be read."""
    shop = scene.shop().usual()
    shop.ship(scene.directory)
    list(compact(scene.directory))
    cut = min(scene.directory.rglob("*.parquet"))
    cut.write_bytes(cut.read_bytes()[: cut.stat().st_size // 2])
    return Truth(UNVERIFIABLE, findings=[(cut.name,)], complete=False)


@situation
def killed_between_a_dead_letter_and_its_delivery(scene: Scene) -> Truth:
    """It wrote that a message is a dead letter, and was killed before the delivery; another buried it, too."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    shop.now = shop.fleet.closed - MINUTE
    message = shop.send(ORDERS)
    shop.dead_letter(message, one, shop.now + SECOND, 3, "max_redeliveries", error="ValueError")
    one.ends = "killed"
    one.note("log.recovered", shop.now + 9 * SECOND, lost_bytes=0, recovered_by=two.writer)
    at = shop.deliver(message, "dead_lettered", attempt=4, after=20 * SECOND, by=two)
    shop.dead_letter(message, two, at, 4, "max_redeliveries", error="ValueError")
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers=_WELL)


@situation
def the_broker_expired_what_a_gap_may_have_done(scene: Scene) -> Truth:
    """Deliveries were dropped, and the broker says that as many expired: nothing is lost, and nothing proven."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    before = shop.books.exact()[ORDERS]["sent"]
    for number in range(5):
        _at(shop, number)
        shop.send(ORDERS, expires_us=shop.now + 2 * SECOND)
    worker.note("log.gap", START + HOUR, reason="overflow", dropped=5, dropped_kind="delivery")
    stats(shop.senders[0], START, ORDERS)
    total = before + 5
    stats(shop.senders[0], shop.fleet.closed, ORDERS, enqueued=total, dequeued=total, expired=5)
    shop.ship(scene.directory)
    return Truth(UNVERIFIABLE, numbers={"unaccounted": 0, "duplicates": 0})
