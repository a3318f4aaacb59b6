"""What a company that pays for each message that is lost or done twice would meet, one day or another."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, SECOND_BROKER, START
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
    from tests.pipeline.situations.shop import Shop

ORDERS: Final = "queue://orders"
TRANSFERS: Final = "queue://transfers"


def _only(shop: Shop, verdict: frozenset[str], dest: str = ORDERS) -> Truth:
    """Whatever is wrong is wrong with one queue."""
    truth = Truth(verdict, verdicts=dict.fromkeys(shop.queues, BALANCED) | {dest: verdict})
    truth.may_be_lost = frozenset(shop.books.lost)
    return truth


@situation
def a_clock_is_put_back_and_it_does_one_again(scene: Scene) -> Truth:
    """The host of a worker is an hour behind from one segment to the next, and did one message on both sides of it."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    shop.now = shop.fleet.closed
    message = shop.send(ORDERS)
    shop.deliver(message, by=worker)
    worker.skew -= HOUR
    for number in range(10):
        shop.now += 10 * SECOND
        shop.deliver(shop.send(ORDERS), by=worker)
        if number == 5:
            shop.deliver(message, by=worker, attempt=2, after=shop.now - message.sent_at)
    shop.books.add(ORDERS, "duplicates")
    shop.books.repeated.add(message.key)
    shop.ends_at(shop.now + 2 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, verdicts={ORDERS: SUSPECT}, complete=True)


def _mirrored(shop: Shop, *, lost: int = 0) -> None:
    """Each transfer is sent to two data centres, under one key, and an app of one name does it in each."""
    west = shop.fleet.process("transfers", "west-a")
    east = shop.fleet.process("transfers", "east-a", broker=SECOND_BROKER)
    for reader in (west, east):
        shop.reads(reader, TRANSFERS)
    sender = shop.senders[0]
    session = sender.connects_to(SECOND_BROKER, START)
    for number in range(20):
        shop.now = START + number * 5 * MINUTE
        message = shop.send(TRANSFERS, by=sender)
        shop.send(TRANSFERS, by=sender, key=message.key, session_id=session, at=shop.now + 3000)
        shop.deliver(message, by=west)
        if number >= lost:
            shop.deliver(message, by=east)
        else:
            shop.books.lost.add(message.key)


@situation
def one_name_in_two_data_centres(scene: Scene) -> Truth:
    """Two apps of one name, in two data centres, each did every transfer once, as was meant."""
    shop = scene.shop().usual()
    _mirrored(shop)
    shop.ship(scene.directory)
    truth = _only(shop, NOT_SUSPECT, TRANSFERS)
    truth.numbers = {"duplicates": 0, "effect_duplicates": 0, "unaccounted": 0}
    return truth


@situation
def one_name_in_two_data_centres_and_one_never_had_some(scene: Scene) -> Truth:
    """The same, and three transfers were never done in one of the two."""
    shop = scene.shop().usual()
    _mirrored(shop, lost=3)
    shop.ship(scene.directory)
    truth = _only(shop, SUSPECT, TRANSFERS)
    truth.numbers = {"duplicates": 0, "effect_duplicates": 0, "unaccounted": 3}
    return truth


@situation
def a_replay_dies_between_send_and_ack(scene: Scene) -> Truth:
    """A program sent a dead letter back and was killed; the next one sent it again, and the transfer was done twice."""
    shop = scene.shop(queues=(ORDERS,)).usual()
    dead = [shop.dead(ORDERS) for shop.now in (START + 20 * MINUTE, START + 30 * MINUTE)]
    shop.now = START + HOUR
    for number, ends in enumerate(("killed", "closed")):
        replay = shop.fleet.process("replay", f"replay-{number}", ends=ends)
        shop.reads(replay, "queue://ActiveMQ.DLQ")
        for message in dead[: number + 1]:
            again = shop.now + number * MINUTE
            shop.send(ORDERS, by=replay, key=message.key, at=again, counted=False)
            shop.deliver(message, after=again + SECOND - message.sent_at, counted=False)
            if ends == "closed":
                shop.deliver(
                    message,
                    by=replay,
                    dest="queue://ActiveMQ.DLQ",
                    after=again + 2 * SECOND - message.sent_at,
                    counted=False,
                )
    shop.ship(scene.directory)
    truth = Truth(NOT_BALANCED, verdicts={ORDERS: NOT_BALANCED})
    truth.numbers = {"unaccounted": 0, "unsent": 0}
    truth.may_be_lost = frozenset()
    return truth


@situation
def in_doubt_and_expired_meanwhile(scene: Scene) -> Truth:
    """The answer to COMMIT was lost; had the broker not done it, the messages were too old to come again."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(5):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS, expires_us=shop.now + 5 * SECOND)
        tx_id = transaction(shop, worker, "tx.in_doubt", number, acks=1)
        shop.deliver(message, "abandoned", by=worker, tx_id=tx_id)
    shop.ship(scene.directory)
    truth = _only(shop, UNVERIFIABLE)
    truth.numbers = {"unaccounted": 0, "duplicates": 0, "effect_duplicates": 0}
    return truth


@situation
def expired_while_its_handler_ran_on(scene: Scene) -> Truth:
    """The link was lost; handlers came to their ends, and the broker threw the messages away: done, and not lost."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(5):
        shop.now = START + number * 3 * MINUTE
        message = shop.send(ORDERS, expires_us=shop.now + 5 * SECOND)
        at = shop.deliver(message, "abandoned", by=worker, runs_on=True)
        shop.late(message, worker, at + SECOND, "done")
    shop.ship(scene.directory)
    truth = _only(shop, NOT_SUSPECT)
    truth.numbers = {"unaccounted": 0, "duplicates": 0, "effect_duplicates": 0}
    return truth


@situation
def handlers_ran_on_over_a_failover(scene: Scene) -> Truth:
    """The reserve took over while handlers ran: what they came to is told later, and their messages are done again."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    half = START + HOUR
    messages = []
    for number in range(3):
        shop.now = half - (number + 1) * SECOND
        message = shop.send(ORDERS)
        shop.deliver(message, "abandoned", by=worker, runs_on=True)
        messages.append(message)
    worker.noted_of_session("conn.lost", half, reason="io")
    told = {"server": "ActiveMQ/6.1.8", "connect_us": 900, "broker": "10.0.0.2:61613"}
    worker.noted_of_session("conn.up", half + SECOND, epoch=2, broker_kind="classic", **told)
    worker.noted_of_session("conn.restored", half + SECOND, epoch=2, attempts=2, outage_us=SECOND)
    for number, message in enumerate(messages):
        shop.late(message, worker, half + 2 * SECOND, "failed" if number else "done")
        shop.deliver(message, by=worker, attempt=2, after=MINUTE, epoch=2)
    shop.ship(scene.directory)
    truth = _only(shop, SUSPECT)
    truth.numbers = {"unaccounted": 0, "duplicates": 0, "effect_duplicates": 1}
    return truth


@situation
def done_without_its_ack_and_then_dead(scene: Scene) -> Truth:
    """A handler succeeded and its link was lost; the next one failed for good, so that a replay would do it again."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(2):
        shop.now = START + (number + 1) * 5 * MINUTE
        message = shop.send(ORDERS)
        at = shop.deliver(message, "abandoned", by=worker, runs_on=bool(number))
        if number:
            shop.late(message, worker, at + SECOND, "done")
        at = shop.deliver(
            message, "dead_lettered", by=worker, attempt=2, after=MINUTE, error="ValueError"
        )
        shop.dead_letter(message, worker, at, 2, "rejected", error="ValueError")
    shop.ship(scene.directory)
    truth = _only(shop, UNVERIFIABLE)
    truth.numbers = {"dead_after_done": 2, "duplicates": 0, "effect_duplicates": 0}
    truth.findings = [("dead-lettered", ORDERS)]
    return truth


@situation
def rejected_and_the_answer_was_lost(scene: Scene) -> Truth:
    """The broker was asked to make dead letters, and the link was lost before it said so: they are, or are gone."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    for number in range(3):
        shop.now = START + (number + 1) * 5 * MINUTE
        message = shop.send(ORDERS)
        at = shop.deliver(message, "abandoned", by=worker, error="ValueError")
        shop.late(message, worker, at, "in_doubt")
    shop.ship(scene.directory)
    truth = _only(shop, UNVERIFIABLE)
    truth.numbers = {"unaccounted": 3, "duplicates": 0}
    return truth


def _sent_again_elsewhere(shop: Shop, *, done: int) -> None:
    """Send payments with their ids, and again to another address; `done`: of the two so many are, the first first."""
    sender = shop.senders[0]
    session = sender.connects_to(SECOND_BROKER, START)
    for number in range(3):
        shop.now = START + (number + 1) * 5 * MINUTE
        payment: dict[str, Any] = {"by": sender, "duplicate_id": f"payment-{number}"}
        first = shop.send(ORDERS, **payment)
        again = shop.send(ORDERS, **payment, session_id=session, at=shop.now + SECOND)
        for message in (first, again)[:done]:
            shop.deliver(message)
        if not done:
            shop.books.lost.add(first.key)


@situation
def sent_again_to_the_backup_or_to_another_broker(scene: Scene) -> Truth:
    """A backup that knows the id confirms and drops it, another broker has lost it: no line tells which it is."""
    shop = scene.shop().usual()
    _sent_again_elsewhere(shop, done=1)
    shop.ship(scene.directory)
    truth = _only(shop, UNVERIFIABLE)
    truth.numbers = {"unaccounted": 3, "dropped": 0, "duplicates": 0}
    return truth


@situation
def sent_again_to_another_address_and_nowhere_done(scene: Scene) -> Truth:
    """Of each id one message is lost, whether the other address is of the same broker or not."""
    shop = scene.shop().usual()
    _sent_again_elsewhere(shop, done=0)
    shop.ship(scene.directory)
    truth = _only(shop, SUSPECT)
    truth.numbers = {"unaccounted": 6, "explained": 3, "dropped": 0}
    return truth


@situation
def the_log_of_who_tried_first_is_missing(scene: Scene) -> Truth:
    """Payments are sent again with their ids by who took over: the broker drops them, for the first ones were done."""
    shop = scene.shop().usual()
    gone = shop.fleet.process("web", "web-c")
    _taken_over(shop, gone, done=4)
    scene.write([one for one in shop.fleet.segments() if one.writer != gone.writer])
    truth = _only(shop, UNVERIFIABLE)
    truth.numbers = {"unaccounted": 4, "explained": 4, "unsent": 4, "dropped": 0}
    truth.may_be_lost = frozenset()
    return truth


@situation
def more_ids_than_the_missing_log_can_have_had(scene: Scene) -> Truth:
    """Six payments were not done, and two were of whose sending no log tells: four of the six are lost."""
    shop = scene.shop().usual()
    gone = shop.fleet.process("web", "web-c")
    _taken_over(shop, gone, done=2)
    for number in range(4):
        shop.now = START + (number + 20) * 5 * MINUTE
        lost = shop.send(ORDERS, duplicate_id=f"lost-{number}")
        shop.books.lost.add(lost.key)
    scene.write([one for one in shop.fleet.segments() if one.writer != gone.writer])
    truth = _only(shop, SUSPECT)
    truth.numbers = {"unaccounted": 6, "explained": 2, "unsent": 2, "dropped": 0}
    truth.may_be_lost = truth.lost_keys = frozenset()
    return truth


def _taken_over(shop: Shop, first: Process, *, done: int) -> None:
    for number in range(done):
        shop.now = START + (number + 1) * 5 * MINUTE
        payment: dict[str, Any] = {"duplicate_id": f"payment-{number}"}
        shop.deliver(shop.send(ORDERS, by=first, counted=False, **payment), counted=False)
        shop.send(ORDERS, by=shop.senders[0], at=shop.now + SECOND, **payment)


@situation
def a_senders_disk_was_full(scene: Scene) -> Truth:
    """Lines of what it sent are missing, and it says so; nobody can have lost that, nor is it somebody else's."""
    shop = scene.shop().usual()
    sender = shop.senders[0]
    for number in range(7):
        shop.now = START + 20 * MINUTE + number * SECOND
        message = shop.send(ORDERS, by=sender, counted=False)
        sender.noted.pop()
        shop.deliver(message, counted=False)
    sender.note("log.gap", shop.now, reason="overflow", dropped=7, dropped_kind="send")
    shop.ship(scene.directory)
    truth = Truth(UNVERIFIABLE, numbers={"unaccounted": 0, "duplicates": 0})
    truth.may_be_lost = frozenset()
    return truth


@situation
def purged_by_an_operator(scene: Scene) -> Truth:
    """Somebody emptied the queue at the console while its readers were down: the broker counts it as dequeued."""
    shop = scene.shop(queues=(ORDERS,)).trade()
    begun = shop.fleet.closed + 10 * MINUTE
    teller, sent = shop.senders[0], shop.books.exact()[ORDERS]["sent"]
    stats(teller, START, ORDERS)
    stats(teller, begun - MINUTE, ORDERS, enqueued=sent, dequeued=sent)
    for number in range(9):
        shop.now = begun + number * SECOND
        shop.send(ORDERS, by=teller)
    stats(teller, begun + MINUTE, ORDERS, enqueued=sent + 9, dequeued=sent, size=9)
    stats(teller, begun + 2 * MINUTE, ORDERS, enqueued=sent + 9, dequeued=sent + 9)
    shop.ends_at(begun + 10 * MINUTE)
    shop.ship(scene.directory)
    truth = Truth(UNVERIFIABLE, findings=[("orders", "foreign")], verdicts={ORDERS: UNVERIFIABLE})
    truth.may_be_lost = frozenset()
    return truth


@situation
def a_branch_whose_reader_went_home(scene: Scene) -> Truth:
    """Sent to two queues in one name; half-way the reader of one closed, and the broker has the rest of them there."""
    shop = scene.shop().usual()
    readers = []
    for dest in ("queue://ledger.a", "queue://ledger.b"):
        reader = shop.fleet.process("books", dest[-1] * 3)
        shop.reads(reader, dest)
        readers.append((dest, reader))
    for number in range(20):
        shop.now = START + number * 5 * MINUTE
        message = shop.send("queue://ledger.a,ledger.b", counted=False)
        for dest, reader in readers[: 2 if number < 10 else 1]:
            shop.deliver(message, by=reader, dest=dest, counted=False)
    for (dest, _), size in zip(readers, (0, 10), strict=True):
        stats(shop.senders[1], START, dest)
        stats(shop.senders[1], shop.fleet.closed, dest, enqueued=20, dequeued=20 - size, size=size)
    shop.ship(scene.directory)
    truth = Truth(NOT_BALANCED, verdicts=dict.fromkeys(shop.queues, BALANCED))
    truth.numbers = {"duplicates": 0}
    truth.may_be_lost = frozenset()
    truth.findings = [("ledger.b", "10")]
    return truth
