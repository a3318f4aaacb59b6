"""Messages were lost: which, where, and when; nothing else is called so."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, SECOND_BROKER, START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    ANY,
    BALANCED,
    NOT_BALANCED,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)

if TYPE_CHECKING:
    from tests.pipeline.situations.shop import Shop


def _suspect(scene: Scene, shop: Shop) -> Truth:
    shop.ship(scene.directory)
    truth = shop.truth(SUSPECT, quarantined=0, complete=True)
    for queue, numbers in shop.books.exact().items():
        wrong = numbers["unaccounted"] or numbers["duplicates"]
        truth.verdicts[queue] = SUSPECT if wrong else BALANCED
    return truth


def _each(shop: Shop, fate: str, count: int) -> Shop:
    """A healthy trade, and `count` orders of another fate within it."""
    shop.usual()
    for number in range(count):
        shop.now = START + (number * 7 + 3) * MINUTE
        getattr(shop, fate)("queue://orders")
    return shop


@situation
def lost(scene: Scene) -> Truth:
    """Some messages of several queues were never settled."""
    return _suspect(scene, scene.shop().usual(lost=7))


@situation
def lost_one(scene: Scene) -> Truth:
    """One message of all was never settled; its key is named."""
    return _suspect(scene, _each(scene.shop(), "lost", 1))


@situation
def lost_and_repeated(scene: Scene) -> Truth:
    """Some were lost and others done twice."""
    return _suspect(scene, scene.shop(skews=(-30, 60, 10, 0)).usual(lost=5, twice=4))


@situation
def lost_and_repeated_in_one_second(scene: Scene) -> Truth:
    """Counts agree in every second: one lost, one done twice."""
    shop = scene.shop().usual()
    shop.now = START + 10 * MINUTE + 3 * SECOND
    shop.lost("queue://orders")
    shop.twice("queue://orders")
    return _suspect(scene, shop)


@situation
def lost_with_skews(scene: Scene) -> Truth:
    """Losses, with clocks that are minutes apart."""
    return _suspect(scene, scene.shop(skews=(-120, 240, 45, -90), broker_skew=-60).usual(lost=7))


@situation
def lost_in_the_first_hour(scene: Scene) -> Truth:
    """Only the first hour is suspect; the second is balanced."""
    shop = _each(scene.shop(queues=("queue://orders",)), "lost", 3)
    truth = _suspect(scene, shop)
    truth.hours = {
        ("queue://orders", START): SUSPECT,
        ("queue://orders", START + HOUR): BALANCED,
    }
    return truth


@situation
def lost_all_of_one_queue(scene: Scene) -> Truth:
    """Consumers subscribed to a queue, and nothing of it was ever settled."""
    shop = scene.shop().usual()
    shop.reads(shop.fleet.process("worker", "worker-y"), "queue://exports")
    for number in range(15):
        shop.now = START + number * MINUTE
        shop.send("queue://exports")
    shop.ship(scene.directory)
    truth = Truth(NOT_BALANCED, verdicts=dict.fromkeys(shop.queues, BALANCED))
    truth.verdicts["queue://exports"] = NOT_BALANCED
    return truth


@situation
def lost_after_a_planned_retry(scene: Scene) -> Truth:
    """It failed, a redelivery was scheduled, and it never came."""
    shop = scene.shop().usual()
    for number in range(3):
        shop.now = START + number * 9 * MINUTE
        message = shop.send("queue://mail")
        worker = shop.consumers["queue://mail"][0]
        shop._failed(message, worker, 1, 20_000)
        shop.books.add("queue://mail", "unaccounted")
        shop.books.lost.add(message.key)
    return _suspect(scene, shop)


@situation
def lost_after_release(scene: Scene) -> Truth:
    """An orderly close gave messages back, and nobody got them again."""
    shop = scene.shop().usual()
    for number in range(4):
        shop.now = START + number * 9 * MINUTE
        message = shop.send("queue://ledger")
        shop.deliver(message, "released", handled=False)
        shop.books.add("queue://ledger", "unaccounted")
        shop.books.lost.add(message.key)
    return _suspect(scene, shop)


@situation
def lost_with_its_dead_letter(scene: Scene) -> Truth:
    """The dead letter could not be confirmed, and the original never came again."""
    shop = scene.shop().usual()
    shop.now = START + 20 * MINUTE
    message = shop.send("queue://orders")
    worker = shop.consumers["queue://orders"][0]
    shop._failed(message, worker, 1, 20_000)
    worker.noted_of_session(
        "dlq.failed",
        shop.now + 5 * SECOND,
        dest="queue://orders",
        consumer="worker.orders",
        msg_key=message.key,
        reason="max_redeliveries",
    )
    shop.books.add("queue://orders", "unaccounted")
    shop.books.lost.add(message.key)
    return _suspect(scene, shop)


@situation
def lost_on_one_of_two_brokers(scene: Scene) -> Truth:
    """A queue's name is used on two brokers; on the second, messages were lost."""
    shop = scene.shop().usual()
    sender = shop.fleet.process("web", "east-a", broker=SECOND_BROKER, kind="artemis")
    worker = shop.fleet.process("worker", "east-b", broker=SECOND_BROKER, kind="artemis")
    shop.reads(worker, "queue://orders")
    for number in range(30):
        shop.now = START + number * MINUTE
        message = shop.send("queue://orders", by=sender)
        if number % 10:
            shop.deliver(message, by=worker)
        else:
            shop.books.add("queue://orders", "unaccounted")
            shop.books.lost.add(message.key)
    return _suspect(scene, shop)


@situation
def repeated(scene: Scene) -> Truth:
    """Some messages were done twice."""
    return _suspect(scene, scene.shop().usual(twice=6))


@situation
def repeated_by_a_transaction(scene: Scene) -> Truth:
    """Acknowledged by one consumer, committed by another."""
    shop = scene.shop().usual()
    for number in range(3):
        shop.now = START + number * 5 * MINUTE
        message = shop.done("queue://orders")
        shop.deliver(message, "committed", after=20 * SECOND)
        shop.books.add("queue://orders", "duplicates")
        shop.books.repeated.add(message.key)
    return _suspect(scene, shop)


@situation
def repeated_by_two_services(scene: Scene) -> Truth:
    """Two services compete for a queue, and both did the same messages."""
    shop = scene.shop().usual()
    other = shop.fleet.process("audit", "audit-a")
    shop.reads(other, "queue://mail")
    for number in range(3):
        shop.now = START + number * 5 * MINUTE
        message = shop.send("queue://mail")
        shop.deliver(message, by=shop.consumers["queue://mail"][0])
        shop.deliver(message, by=other, after=2 * SECOND)
        shop.books.add("queue://mail", "duplicates")
        shop.books.repeated.add(message.key)
    return _suspect(scene, shop)


@situation
def repeated_hours_later(scene: Scene) -> Truth:
    """The second time was hours after the first."""
    shop = scene.shop().usual()
    shop.now = START + 5 * MINUTE
    message = shop.done("queue://orders")
    shop.deliver(message, after=5 * HOUR)
    shop.books.add("queue://orders", "duplicates")
    shop.books.repeated.add(message.key)
    return _suspect(scene, shop)


@situation
def repeated_three_times(scene: Scene) -> Truth:
    """One message was done three times; that is one key, or two repeats."""
    shop = scene.shop().usual()
    shop.now = START + 5 * MINUTE
    message = shop.twice("queue://orders")
    shop.deliver(message, after=50 * SECOND)
    truth = _suspect(scene, shop)
    truth.numbers["duplicates"] = frozenset({1, 2})
    truth.by_destination["queue://orders"]["duplicates"] = frozenset({1, 2})
    return truth


@situation
def handlers_ran_twice(scene: Scene) -> Truth:
    """The handler succeeded, its acknowledgement was lost with the link, and it succeeded again."""
    shop = _each(scene.shop(), "ran_twice", 4)
    truth = _suspect(scene, shop)
    truth.verdict = truth.verdicts["queue://orders"] = ANY
    truth.findings = [("handler",)]
    return truth


def _ran_on(scene: Scene, late: str | None, verdict: frozenset[str]) -> Truth:
    shop = scene.shop().usual()
    for number in range(4):
        shop.now = START + (number * 7 + 3) * MINUTE
        shop.ran_on("queue://orders", late)
    truth = _suspect(scene, shop)
    truth.verdict = truth.verdicts["queue://orders"] = verdict
    return truth


@situation
def handlers_ran_on_without_a_link_and_succeeded(scene: Scene) -> Truth:
    """The link was lost while they ran; they came to their ends, and others did the same again."""
    truth = _ran_on(scene, "done", SUSPECT)
    truth.numbers["effect_duplicates"] = 4
    return truth


@situation
def handlers_ran_on_without_a_link_and_failed(scene: Scene) -> Truth:
    """They came to nothing, and what others did was done once."""
    return _ran_on(scene, "failed", BALANCED)


@situation
def handlers_ran_on_without_a_link_and_nobody_tells(scene: Scene) -> Truth:
    """Their process died, or is of an older release: they may have succeeded."""
    truth = _ran_on(scene, None, UNVERIFIABLE)
    truth.numbers["effect_duplicates"] = 0
    truth.findings = [("lost link",)]
    return truth
