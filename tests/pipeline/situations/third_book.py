"""What the broker says of its queues, beside what the clients say."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import MINUTE, SECOND, START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)
from tests.pipeline.situations.unsettled import stats

if TYPE_CHECKING:
    from tests.pipeline.situations.shop import Shop

ORDERS = "queue://orders"
_BEFORE = 1000  #: messages that went through each queue before the log begins


def _told(
    shop: Shop,
    *,
    enqueued: int = 0,
    dequeued: int = 0,
    expired: int = 0,
    size: int = 0,
    early: int = 0,
) -> None:
    """The broker's counts, `early` before the beginning and at the end; else: what orders have beyond the log."""
    teller = shop.senders[0]
    for queue, numbers in shop.books.exact().items():
        stats(teller, START - early, queue, enqueued=_BEFORE, dequeued=_BEFORE)
        more = (enqueued, dequeued, expired, size) if queue == ORDERS else (0, 0, 0, 0)
        gone = sum(numbers[name] for name in ("unaccounted", "in_flight", "unread"))
        stats(
            teller,
            shop.fleet.closed,
            queue,
            enqueued=_BEFORE + numbers["sent"] + more[0],
            dequeued=_BEFORE + numbers["sent"] - gone + more[1],
            expired=more[2],
            size=more[3],
        )


@situation
def the_broker_agrees(scene: Scene) -> Truth:
    """As many were enqueued and dequeued as the clients say."""
    shop = scene.shop().trade(retried=8, discarded=3)
    _told(shop)
    shop.ship(scene.directory)
    return shop.truth(complete=True, quarantined=0)


@situation
def the_broker_agrees_each_minute(scene: Scene) -> Truth:
    """The broker's counts stand in the log for each minute, from two processes that agree."""
    shop = scene.shop(queues=(ORDERS,)).trade()
    sent_at = sorted(
        at for sender in shop.senders for at, _, line in sender.noted if line["kind"] == "send"
    )
    for at in range(START, shop.fleet.closed + 1, MINUTE):
        done = sum(sent < at for sent in sent_at)
        quiet = not any(at - 2 * SECOND < sent < at + 2 * SECOND for sent in sent_at)
        for teller in (shop.senders[0], shop.consumers[ORDERS][0]):
            if quiet:
                stats(teller, at, ORDERS, enqueued=_BEFORE + done, dequeued=_BEFORE + done)
    shop.ship(scene.directory)
    return shop.truth(complete=True, quarantined=0)


@situation
def another_client_takes_messages(scene: Scene) -> Truth:
    """Messages that jmsx sent were dequeued by nobody of ours: a foreign consumer, and no loss."""
    shop = scene.shop().trade()
    for number in range(12):
        shop.now = START + number * 4 * MINUTE
        shop.send(ORDERS)
    _told(shop)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        findings=[("orders", "foreign")],
        verdicts={ORDERS: UNVERIFIABLE, "queue://mail": BALANCED},
    )


@situation
def another_client_takes_messages_before_the_broker_is_asked(scene: Scene) -> Truth:
    """An app that runs for less than a minute asks once, when it ends: a foreign consumer has had twelve by then."""
    shop = scene.shop().trade()
    for number in range(12):
        shop.now = START + number * SECOND
        shop.send(ORDERS)
    sent = shop.books.exact()[ORDERS]["sent"]
    stats(shop.senders[0], shop.fleet.closed, ORDERS, enqueued=sent, dequeued=sent)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 12, "explained": 12},
        findings=[("orders", "foreign")],
        verdicts={ORDERS: UNVERIFIABLE, "queue://mail": BALANCED},
        may_be_lost=frozenset(),
    )


@situation
def another_client_takes_messages_and_the_broker_is_killed(scene: Scene) -> Truth:
    """A foreign consumer took twelve, some after the broker's last count and before its death: who counts those?"""
    shop = scene.shop().trade()
    for number in range(12):
        shop.now = START + number * 4 * MINUTE
        shop.send(ORDERS)
    teller, sent = shop.senders[0], shop.books.exact()[ORDERS]["sent"]
    stats(teller, START, ORDERS, enqueued=_BEFORE, dequeued=_BEFORE)
    stats(
        teller,
        shop.fleet.closed - MINUTE,
        ORDERS,
        enqueued=_BEFORE + sent - 8,
        dequeued=_BEFORE + sent - 8,
    )
    stats(teller, shop.fleet.closed, ORDERS)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 12, "explained": 12},
        findings=[("orders", "foreign")],
        verdicts={ORDERS: UNVERIFIABLE},
        may_be_lost=frozenset(),
    )


@situation
def another_client_takes_what_an_app_sends_to_itself(scene: Scene) -> Truth:
    """Who sends to a queue reads it, too, in the same minutes; and a foreign consumer does."""
    shop = _to_itself(scene)
    for number in range(12):
        shop.now = START + number * 4 * MINUTE
        shop.send(ORDERS)
    _told(shop)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 12, "explained": 12},
        findings=[("orders", "foreign")],
        verdicts={ORDERS: UNVERIFIABLE, "queue://mail": BALANCED},
        may_be_lost=frozenset(),
    )


@situation
def the_broker_agrees_about_what_an_app_sends_to_itself(scene: Scene) -> Truth:
    """Who sends to a queue reads it, too, in the same minutes: the broker counts each message once."""
    shop = _to_itself(scene)
    teller = shop.senders[0]
    sent = shop.books.exact()[ORDERS]["sent"]
    stats(teller, START - 10 * MINUTE, ORDERS)
    stats(teller, shop.fleet.closed + 10 * MINUTE, ORDERS, enqueued=sent, dequeued=sent)
    shop.ends_at(shop.fleet.closed + 20 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(complete=True, quarantined=0)


def _to_itself(scene: Scene) -> Shop:
    shop = scene.shop()
    shop.consumers[ORDERS].clear()
    for sender in shop.senders:
        shop.reads(sender, ORDERS)
    return shop.trade()


@situation
def another_client_sends(scene: Scene) -> Truth:
    """More was enqueued than our senders sent, and it lies there."""
    shop = scene.shop().trade()
    _told(shop, enqueued=9, size=9)
    shop.ship(scene.directory)
    return Truth(
        NOT_BALANCED | BALANCED,
        numbers={"unaccounted": 0, "duplicates": 0},
        findings=[("orders", "9")],
    )


@situation
def still_in_the_broker(scene: Scene) -> Truth:
    """Messages that jmsx sent were not settled, and the broker still holds them: unread, not lost."""
    shop = scene.shop().trade()
    for number in range(12):
        shop.now = START + number * 4 * MINUTE
        shop.send(ORDERS)
    _told(shop, dequeued=-12, size=12)
    shop.ship(scene.directory)
    return Truth(
        NOT_BALANCED,
        findings=[("orders", "12")],
        verdicts={ORDERS: NOT_BALANCED, "queue://mail": BALANCED},
    )


@situation
def some_wait_and_lines_of_others_were_dropped(scene: Scene) -> Truth:
    """Of seven messages four wait in the broker, and three were done, of which the lines were dropped: none is lost."""
    shop = scene.shop().trade()
    exporter = shop.fleet.process("exporter", "export-a")
    shop.reads(exporter, "queue://exports")
    for number in range(7):
        shop.now = START + number * MINUTE
        shop.send("queue://exports")
    at = START + 30 * MINUTE
    exporter.note("log.gap", at, reason="overflow", dropped=3, dropped_kind="delivery")
    stats(shop.senders[0], START - SECOND, "queue://exports")
    stats(shop.senders[0], shop.fleet.closed, "queue://exports", enqueued=7, dequeued=3, size=4)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 7, "explained": 7},
        verdicts={"queue://exports": UNVERIFIABLE, ORDERS: BALANCED},
        may_be_lost=frozenset(),
    )


@situation
def lost_in_the_broker(scene: Scene) -> Truth:
    """The broker has neither dequeued nor expired nor kept what it confirmed: it is lost."""
    shop = scene.shop().trade(lost=0)
    for number in range(12):
        shop.now = START + number * 4 * MINUTE
        shop.lost(ORDERS)
    _told(shop)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, verdicts={ORDERS: SUSPECT, "queue://mail": BALANCED})


@situation
def the_broker_was_started_anew(scene: Scene) -> Truth:
    """The broker's counts begin at zero again in the middle: no contradiction."""
    shop = scene.shop(queues=(ORDERS,)).trade()
    teller = shop.senders[0]
    total = shop.books.exact()[ORDERS]["sent"]
    stats(teller, START, ORDERS, enqueued=_BEFORE, dequeued=_BEFORE)
    stats(teller, START + shop.span // 2, ORDERS)
    stats(teller, shop.fleet.closed, ORDERS, enqueued=total // 2, dequeued=total // 2)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers=shop.truth().numbers)


@situation
def nobody_reads_and_the_broker_says_so(scene: Scene) -> Truth:
    """A queue that nobody reads; the broker's size says how many wait."""
    shop = scene.shop().trade()
    for number in range(12):
        shop.now = START + number * 4 * MINUTE
        shop.send("queue://archive")
        shop.books.add("queue://archive", "unread")
    _told(shop)
    stats(
        shop.senders[1],
        shop.fleet.closed,
        "queue://archive",
        enqueued=12 + _BEFORE,
        dequeued=_BEFORE,
        size=12,
    )
    shop.ship(scene.directory)
    return Truth(
        NOT_BALANCED,
        numbers={"unread": 12, "unaccounted": 0},
        findings=[("archive", "12")],
        verdicts={"queue://archive": NOT_BALANCED, ORDERS: BALANCED},
    )


@situation
def the_broker_counts_fewer_than_were_sent(scene: Scene) -> Truth:
    """It confirmed and delivered all, and its counters lack five: they may have begun anew, so that is only told."""
    shop = scene.shop().trade()
    shop.ends_at(shop.fleet.closed + 10 * MINUTE)
    _told(shop, enqueued=-5, dequeued=-5, early=10 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(
        findings=[
            ("orders", "5", "fewer came", "made again"),
            ("orders", "5", "fewer went", "made again"),
        ]
    )


@situation
def acknowledgements_that_the_broker_did_not_get(scene: Scene) -> Truth:
    """Consumers say that they acknowledged all, and the broker holds four of these still: they come again."""
    shop = scene.shop().trade()
    shop.ends_at(shop.fleet.closed + 10 * MINUTE)
    _told(shop, dequeued=-4, size=4, early=10 * MINUTE)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 0, "duplicates": 0},
        findings=[("orders", "4", "fewer went")],
        verdicts={ORDERS: UNVERIFIABLE, "queue://mail": BALANCED},
    )


@situation
def sent_with_a_delay_of_hours(scene: Scene) -> Truth:
    """The broker counts messages when their time has come, and these wait in its scheduler: no book is wrong."""
    shop = scene.shop().trade()
    end = shop.fleet.closed + 10 * MINUTE
    for number in range(6):
        shop.now = end - 20 * MINUTE + number * SECOND
        shop.send(ORDERS)
        shop.books.add(ORDERS, "in_flight")
    shop.ends_at(end)
    _told(shop, enqueued=-6, early=10 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(options={"deadline": 3600}, findings=[("orders", "6", "fewer came")])


def _later(shop: Shop, count: int = 6, *, never: int = 0) -> None:
    """So many fail, and the broker is to deliver them in a minute, under new ids; the last `never` never come."""
    for number in range(count):
        shop.now = START + number * 5 * MINUTE + 7 * SECOND
        message = shop.send(ORDERS)
        one, two = shop.chance.sample(shop.consumers[ORDERS], 2)
        shop._failed(message, one, 1, 20_000, delay_us=MINUTE, blocking=False, by_broker=True)
        if number < count - never:
            again = shop.id_of(message) + "1"
            shop.deliver(message, by=two, attempt=2, after=MINUTE + SECOND, msg_id=again)


@situation
def the_broker_counts_what_it_delivers_later(scene: Scene) -> Truth:
    """What fails goes back to it, under a new id: one more came, and one more went, and nobody else was there."""
    shop = scene.shop().trade()
    _later(shop)
    shop.ends_at(shop.fleet.closed + 10 * MINUTE)
    _told(shop, enqueued=6, dequeued=6, early=10 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(complete=True, quarantined=0)


@situation
def another_client_takes_messages_and_others_go_back(scene: Scene) -> Truth:
    """Six went back to the broker, and came again; four others a foreign consumer took."""
    shop = scene.shop().trade()
    _later(shop)
    for number in range(4):
        shop.now = START + number * 4 * MINUTE
        shop.send(ORDERS)
    _told(shop, enqueued=6, dequeued=6)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 4, "explained": 4},
        findings=[("orders", "at least 4 messages went", "foreign")],
        verdicts={ORDERS: UNVERIFIABLE, "queue://mail": BALANCED},
        may_be_lost=frozenset(),
    )


@situation
def messages_are_lost_while_others_go_back(scene: Scene) -> Truth:
    """Who watches the queue lost the link for a moment; that messages went back to the broker explains no loss."""
    shop = scene.shop().trade(lost=0)
    _later(shop)
    for number in range(5):
        shop.now = START + 40 * MINUTE + number * SECOND
        shop.lost(ORDERS)
    teller, book = shop.senders[0], shop.books.exact()[ORDERS]
    up = {"broker": teller.broker, "broker_kind": teller.kind}
    teller.noted_of_session("conn.up", START + 35 * MINUTE, epoch=2, **up)
    enqueued, dequeued = book["sent"] + 6, book["sent"] - book["unaccounted"] + 6
    stats(teller, START, ORDERS)
    stats(teller, shop.fleet.closed, ORDERS, epoch=2, enqueued=enqueued, dequeued=dequeued)
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, verdicts={ORDERS: SUSPECT, "queue://mail": BALANCED})


@situation
def some_that_go_back_never_come(scene: Scene) -> Truth:
    """Two of six never came again: whether the broker lost these, or somebody took them, no count tells."""
    shop = scene.shop().trade()
    _later(shop, never=2)
    _told(shop, enqueued=6, dequeued=6)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 2, "explained": 2},
        verdicts={ORDERS: UNVERIFIABLE, "queue://mail": BALANCED},
        options={"deadline": 60},
        may_be_lost=frozenset(),
    )
