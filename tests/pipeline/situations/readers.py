"""Who reads, who sends, and who keeps no log: what jmsx cannot know is not called lost, and not called well."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import MINUTE, SECOND, START, key_at
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.shop import Message, Shop
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
    either,
)

if TYPE_CHECKING:
    from tests.pipeline.situations.truth import Allowed


@situation
def nobody_reads(scene: Scene) -> Truth:
    """One queue has no consumer: its messages are unread, and that is not balanced."""
    shop = scene.shop().usual()
    for number in range(25):
        shop.now = START + number * MINUTE
        shop.send("queue://archive")
        shop.books.add("queue://archive", "unread")
    shop.ship(scene.directory)
    truth = shop.truth(NOT_BALANCED, complete=True)
    truth.verdicts = dict.fromkeys(shop.queues, BALANCED) | {"queue://archive": NOT_BALANCED}
    return truth


@situation
def nobody_reads_anything(scene: Scene) -> Truth:
    """Only senders run."""
    shop = scene.shop(hosts=0, queues=("queue://orders",), messages=0)
    for number in range(60):
        shop.now = START + number * MINUTE
        shop.send("queue://orders")
        shop.books.add("queue://orders", "unread")
    shop.ends_at(START + 61 * MINUTE)
    shop.ship(scene.directory)
    truth = shop.truth(NOT_BALANCED)
    truth.verdicts = {"queue://orders": NOT_BALANCED}
    return truth


@situation
def read_by_another_client(scene: Scene) -> Truth:
    """A Java program consumes a queue to which jmsx sends; without the broker's counts, nothing tells."""
    shop = scene.shop().usual()
    for number in range(25):
        shop.now = START + number * MINUTE
        shop.send("queue://to-java")
    shop.ship(scene.directory)
    return Truth(
        NOT_BALANCED,
        numbers={"unread": 25, "unaccounted": 0},
        verdicts=dict.fromkeys(shop.queues, BALANCED) | {"queue://to-java": NOT_BALANCED},
    )


@situation
def java_senders(scene: Scene) -> Truth:
    """Messages of a Java program are consumed; their keys tell no time, and no send of them is logged."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        sender = shop.senders[0]
        message = Message(f"ID:java-7-1:1:1:1:{number}", "queue://orders", shop.now, sender)
        shop.deliver(message)
        shop.books.add("queue://orders", "foreign")
    shop.ship(scene.directory)
    truth = shop.truth(UNVERIFIABLE)
    truth.verdicts = dict.fromkeys(shop.queues, BALANCED) | {"queue://orders": UNVERIFIABLE}
    return truth


@situation
def java_senders_and_a_repeat(scene: Scene) -> Truth:
    """A Java program's message was acknowledged twice, as a redelivery; that is proven whoever sent it."""
    return _java_senders(scene, attempt=2, truth=Truth(SUSPECT, numbers=_foreign_repeats(1)))


@situation
def java_senders_and_a_repeat_that_nobody_told(scene: Scene) -> Truth:
    """As above, and the broker did not call it a redelivery: such repeats are not looked for, and nothing is proven."""
    return _java_senders(scene, attempt=1, truth=Truth(UNVERIFIABLE, numbers=_foreign_repeats(0)))


def _foreign_repeats(duplicates: int) -> dict[str, Allowed]:
    return {"unaccounted": 0, "duplicates": duplicates, "foreign": 21}


def _java_senders(scene: Scene, *, attempt: int, truth: Truth) -> Truth:
    """Twenty messages of a Java program, the first of them settled once more in this attempt."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        message = Message(
            f"ID:java-7-1:1:1:1:{number}", "queue://orders", shop.now, shop.senders[0]
        )
        shop.deliver(message)
        if not number:
            shop.deliver(message, attempt=attempt, after=10 * SECOND)
    shop.ship(scene.directory)
    return truth


@situation
def a_sender_without_a_log(scene: Scene) -> Truth:
    """A jmsx sender has no event log: its messages are unsent as far as the log knows."""
    shop = scene.shop().usual()
    for number in range(20):
        shop.now = START + number * MINUTE
        message = Message(
            key_at(shop.now, shop.chance), "queue://orders", shop.now, shop.senders[0]
        )
        shop.deliver(message)
        shop.books.add("queue://orders", "unsent")
    shop.ship(scene.directory)
    truth = shop.truth(UNVERIFIABLE)
    truth.verdicts = dict.fromkeys(shop.queues, BALANCED) | {"queue://orders": UNVERIFIABLE}
    return truth


def _dead_letters(shop: Shop, count: int = 6) -> list[Message]:
    found = []
    for number in range(count):
        shop.now = START + number * 4 * MINUTE
        found.append(shop.dead("queue://orders"))
    return found


@situation
def dead_letters_are_read(scene: Scene) -> Truth:
    """A jmsx program reads the dead letter queue; a dead letter that it acknowledges is no repeat."""
    shop = scene.shop().usual()
    reader = shop.fleet.process("undertaker", "dlq-a")
    shop.reads(reader, "queue://ActiveMQ.DLQ")
    for message in _dead_letters(shop):
        shop.deliver(message, by=reader, dest="queue://ActiveMQ.DLQ", after=60 * SECOND)
    shop.ship(scene.directory)
    truth = Truth(BALANCED, numbers={"duplicates": 0, "unaccounted": 0, "unsent": 0, "foreign": 0})
    truth.verdicts = dict.fromkeys(shop.queues, BALANCED)
    return truth


@situation
def dead_letters_come_back(scene: Scene) -> Truth:
    """Somebody moved dead letters back at the broker's console; then they were done."""
    shop = scene.shop().usual()
    for message in _dead_letters(shop):
        shop.deliver(message, after=600 * SECOND)
    shop.ship(scene.directory)
    truth = shop.truth()
    del truth.numbers["settled"], truth.by_destination["queue://orders"]["settled"]
    return truth


@situation
def done_and_then_dead(scene: Scene) -> Truth:
    """A message was done, its ACK was lost, and whoever got it next rejected it: its dead letter must stay there."""
    shop = scene.shop().usual()
    shop.now = START + 5 * MINUTE
    message = shop.done("queue://orders")
    at = shop.deliver(message, "dead_lettered", attempt=2, after=10 * MINUTE, error="ValueError")
    consumer = shop.consumers["queue://orders"][0]
    shop.dead_letter(message, consumer, at, 2, "rejected", error="ValueError")
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"dead_after_done": 1, "duplicates": 0, "unaccounted": 0, "unsent": 0},
        verdicts=dict.fromkeys(shop.queues, BALANCED) | {"queue://orders": UNVERIFIABLE},
        findings=[("dead-lettered", "queue://orders")],
    )


@situation
def dead_letters_come_back_and_die_again(scene: Scene) -> Truth:
    """They were moved back, and failed again."""
    shop = scene.shop().usual()
    for message in _dead_letters(shop):
        at = shop.deliver(message, "dead_lettered", after=600 * SECOND, error="ValueError")
        shop.dead_letter(
            message,
            shop.consumers["queue://orders"][0],
            at,
            1,
            "max_redeliveries",
            error="ValueError",
        )
    shop.ship(scene.directory)
    return Truth(BALANCED, numbers={"duplicates": 0, "unaccounted": 0, "unsent": 0})


@situation
def dead_letters_are_sent_again(scene: Scene) -> Truth:
    """A jmsx program sent dead letters again, with their keys; each was done once."""
    shop = scene.shop().usual()
    reader = shop.fleet.process("replay", "replay-a")
    shop.reads(reader, "queue://ActiveMQ.DLQ")
    before = shop.truth().numbers["sent"]
    for message in _dead_letters(shop):
        shop.deliver(message, by=reader, dest="queue://ActiveMQ.DLQ", after=60 * SECOND)
        again = shop.now + 62 * SECOND
        shop.send("queue://orders", by=reader, key=message.key, at=again)
        shop.deliver(message, after=70 * SECOND)
    shop.ship(scene.directory)
    assert isinstance(before, int)
    truth = Truth(BALANCED, numbers={"duplicates": 0, "unaccounted": 0, "unsent": 0})
    truth.numbers["sent"] = either(before + 6, before + 12)
    return truth


@situation
def sent_again_and_done_twice(scene: Scene) -> Truth:
    """The application sent messages again, with their keys, and both were done."""
    shop = scene.shop().usual()
    for number in range(3):
        shop.now = START + number * 4 * MINUTE
        message = shop.done("queue://orders")
        shop.send("queue://orders", key=message.key, at=shop.now + 5 * SECOND)
        shop.deliver(message, after=8 * SECOND)
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        numbers={"unaccounted": 0, "unsent": 0},
        findings=[("orders", "under one key")],
    )


@situation
def a_browser_of_no_consequence(scene: Scene) -> Truth:
    """A consumer subscribed, received messages and gave all of them back."""
    shop = scene.shop().usual()
    nosy = shop.fleet.process("nosy", "nosy-a")
    shop.reads(nosy, "queue://orders")
    for number in range(15):
        shop.now = START + number * 4 * MINUTE
        message = shop.send("queue://orders")
        shop.deliver(message, "released", by=nosy, handled=False)
        shop.deliver(message, by=shop.consumers["queue://orders"][0], after=9 * SECOND)
    shop.ship(scene.directory)
    return shop.truth(complete=True)
