"""One send and several subscriptions: each of them has to do the message, once."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    Truth,
    either,
)

if TYPE_CHECKING:
    from collections.abc import Container

    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Message, Shop
    from tests.pipeline.situations.truth import Allowed

#: What is said of each of these where all is well; how often a message with two copies was `sent` is left open.
_WELL: dict[str, Allowed] = {
    "unaccounted": 0,
    "duplicates": 0,
    "unsent": 0,
    "foreign": 0,
    "unread": 0,
    "in_flight": 0,
}
_COUNT = 40


class _Spread:
    """A healthy trade; beside it, messages that go to two readers each."""

    def __init__(self, scene: Scene, sent_to: str, readers: tuple[str, str]) -> None:
        self.shop: Shop = scene.shop().usual()
        self.sent_to = sent_to
        self.readers: list[tuple[Process, str]] = []
        for number, dest in enumerate(readers):
            process = self.shop.fleet.process(f"reader-{number}", f"fan-{number}")
            process.consumers[dest] = f"reader-{number}.{dest.rpartition('/')[2]}"
            self.readers.append((process, dest))

    def durable(self) -> _Spread:
        """Each reader has a durable subscription, and its lines say so."""
        for process, dest in self.readers:
            process.copies[dest] = f"durable:{process.service}.all"
        return self

    def send(self, number: int) -> Message:
        self.shop.now = START + number * 2 * MINUTE + 7 * SECOND
        return self.shop.send(self.sent_to, counted=False)

    def reads(self, message: Message, reader: int, after: int = 20_000) -> None:
        process, dest = self.readers[reader]
        self.shop.deliver(message, by=process, dest=dest, after=after, counted=False)

    def all_well(self) -> None:
        for number in range(_COUNT):
            message = self.send(number)
            self.reads(message, 0)
            self.reads(message, 1)

    def truth(self, scene: Scene, verdict: frozenset[str], **numbers: Allowed) -> Truth:
        self.shop.ship(scene.directory)
        usual = self.shop.truth().numbers["sent"]
        assert isinstance(usual, int)
        counted = either(usual + _COUNT, usual + 2 * _COUNT)
        if scene.skewed:
            numbers.pop("removed", None)  # how many were sent just before the removal, clocks tell
        if self.sent_to.startswith("topic://") and "VirtualTopic" not in self.sent_to:
            counted |= {usual}  # who sends to a topic cannot know whether anybody had to get it
        return Truth(
            verdict,
            numbers={**_WELL, "sent": counted, **numbers},
            verdicts=dict.fromkeys(self.shop.queues, BALANCED),
        )


_VIRTUAL = (
    "topic://VirtualTopic.prices",
    ("queue://Consumer.A.VirtualTopic.prices", "queue://Consumer.B.VirtualTopic.prices"),
)
_COMPOSITE = ("queue://left,queue://right", ("queue://left", "queue://right"))
_DURABLE = ("topic://news", ("topic://news", "topic://news"))
_FQQN = ("queue://prices", ("queue://prices::prices.a", "queue://prices::prices.b"))


@situation
def virtual_topic(scene: Scene) -> Truth:
    """Two queues of a virtual topic each had every message."""
    spread = _Spread(scene, *_VIRTUAL)
    spread.all_well()
    return spread.truth(scene, BALANCED)


@situation
def virtual_topic_and_a_loss(scene: Scene) -> Truth:
    """One of the two queues never had one message."""
    spread = _Spread(scene, *_VIRTUAL)
    for number in range(_COUNT):
        message = spread.send(number)
        spread.reads(message, 0)
        if number != 11:
            spread.reads(message, 1)
    return spread.truth(scene, SUSPECT, unaccounted=1)


@situation
def virtual_topic_and_a_repeat(scene: Scene) -> Truth:
    """In one of the two queues, one message was done twice."""
    spread = _Spread(scene, *_VIRTUAL)
    spread.all_well()
    message = spread.send(_COUNT)
    for reader in (0, 1, 1):
        spread.reads(message, reader, after=reader * SECOND)
    truth = spread.truth(scene, SUSPECT, duplicates=1)
    del truth.numbers["sent"]
    return truth


@situation
def virtual_topic_lost_here_and_repeated_there(scene: Scene) -> Truth:
    """One queue never had a message, the other did it twice: the counts agree."""
    spread = _Spread(scene, *_VIRTUAL)
    spread.all_well()
    message = spread.send(_COUNT)
    for reader in (0, 0):
        spread.reads(message, reader, after=reader * SECOND)
    truth = spread.truth(scene, SUSPECT, duplicates=1, unaccounted=1)
    del truth.numbers["sent"]
    return truth


@situation
def virtual_topic_that_expires_in_one_queue(scene: Scene) -> Truth:
    """In one of the two queues some were too old, and others were lost that were not."""
    spread = _Spread(scene, *_VIRTUAL)
    for number in range(_COUNT):
        spread.shop.now = START + number * 2 * MINUTE + 7 * SECOND
        lives = 2 * SECOND if number % 4 == 0 else 48 * HOUR
        message = spread.shop.send(
            spread.sent_to, counted=False, expires_us=spread.shop.now + lives
        )
        spread.reads(message, 1)
        if number % 4 and number not in (5, 9, 13):
            spread.reads(message, 0)
    return spread.truth(scene, SUSPECT, unaccounted=3)


@situation
def virtual_topic_of_one_queue(scene: Scene) -> Truth:
    """Only one queue hangs on the virtual topic."""
    spread = _Spread(scene, *_VIRTUAL)
    del spread.readers[1]
    spread.shop.fleet.processes.pop()
    for number in range(_COUNT):
        spread.reads(spread.send(number), 0)
    return spread.truth(scene, BALANCED)


@situation
def virtual_topic_and_a_late_subscriber(scene: Scene) -> Truth:
    """The second queue was made when half of the messages had been sent: it owes only the rest."""
    spread = _Spread(scene, *_VIRTUAL)
    process, dest = spread.readers[1]
    name = process.consumers.pop(dest)
    half = START + _COUNT * MINUTE
    process.noted_of_session(
        "sub.open",
        half,
        dest=dest,
        consumer=name,
        ack_mode="auto",
        prefetch=100,
        max_redeliveries=6,
        optimize_ack=False,
    )
    for number in range(_COUNT):
        message = spread.send(number)
        spread.reads(message, 0)
        if message.sent_at > half:
            spread.reads(message, 1)
    return spread.truth(scene, NOT_SUSPECT)


@situation
def composite_queue(scene: Scene) -> Truth:
    """Sent to two queues in one name; both had every message."""
    spread = _Spread(scene, *_COMPOSITE)
    spread.all_well()
    return spread.truth(scene, BALANCED)


@situation
def composite_queue_and_a_loss(scene: Scene) -> Truth:
    """One of the two queues never had one message."""
    spread = _Spread(scene, *_COMPOSITE)
    for number in range(_COUNT):
        message = spread.send(number)
        spread.reads(message, 1)
        if number != 5:
            spread.reads(message, 0)
    return spread.truth(scene, SUSPECT, unaccounted=1)


@situation
def composite_queue_half_unread(scene: Scene) -> Truth:
    """Sent to two queues in one name; jmsx reads only one of them."""
    spread = _Spread(scene, *_COMPOSITE)
    spread.readers.pop()
    spread.shop.fleet.processes.pop()
    for number in range(_COUNT):
        spread.reads(spread.send(number), 0)
    truth = spread.truth(scene, NOT_BALANCED)
    truth.numbers["unread"] = _COUNT
    return truth


@situation
def durable_topic(scene: Scene) -> Truth:
    """Two durable subscriptions of a topic each had every message: no repeat."""
    spread = _Spread(scene, *_DURABLE).durable()
    spread.all_well()
    return spread.truth(scene, NOT_SUSPECT)


@situation
def durable_topic_of_an_older_log(scene: Scene) -> Truth:
    """The same in a log whose lines do not say whose copy it is: two consumers, no repeat."""
    spread = _Spread(scene, *_DURABLE)
    spread.all_well()
    return spread.truth(scene, NOT_SUSPECT)


@situation
def durable_topic_shared_by_two_processes(scene: Scene) -> Truth:
    """One durable subscription moved from a process to another; each message was done once."""
    spread = _Spread(scene, *_DURABLE)
    for process, dest in spread.readers:
        process.copies[dest] = "durable:readers.all"
    for number in range(_COUNT):
        spread.reads(spread.send(number), int(number >= _COUNT // 2))
    return spread.truth(scene, NOT_SUSPECT)


@situation
def topic_without_durables(scene: Scene) -> Truth:
    """Two plain subscribers of a topic; one came late and owes nothing that was sent before."""
    spread = _Spread(scene, *_DURABLE)
    for process, dest in spread.readers:
        process.copies[dest] = f"{process.session}:1"
    for number in range(_COUNT):
        message = spread.send(number)
        spread.reads(message, 0)
        if number >= _COUNT // 2:
            spread.reads(message, 1)
    return spread.truth(scene, NOT_SUSPECT)


@situation
def durable_topic_and_a_repeat(scene: Scene) -> Truth:
    """One of two durable subscribers did a message twice."""
    spread = _Spread(scene, *_DURABLE).durable()
    spread.all_well()
    message = spread.send(_COUNT)
    for reader in (0, 1, 1):
        spread.reads(message, reader, after=reader * SECOND)
    truth = spread.truth(scene, NOT_BALANCED, duplicates=1)
    del truth.numbers["sent"]
    return truth


@situation
def durable_topic_and_a_loss(scene: Scene) -> Truth:
    """One of two durable subscribers never had one message."""
    spread = _Spread(scene, *_DURABLE).durable()
    _trades(spread, {*range(_COUNT)} - {5})
    truth = spread.truth(scene, NOT_BALANCED)
    truth.numbers["unaccounted"] = either(0, 1)
    return truth


def _trades(spread: _Spread, read: Container[int]) -> None:
    """Send all messages: the second reader reads each, the first one those whose number is in `read`."""
    for number in range(_COUNT):
        message = spread.send(number)
        spread.reads(message, 1)
        if number in read:
            spread.reads(message, 0)


def _closes(spread: _Spread, reader: int, at: int) -> None:
    process, dest = spread.readers[reader]
    process.noted_of_session("sub.close", at, dest=dest, consumer=process.consumers[dest])


def _removes(spread: _Spread, reader: int, at: int) -> None:
    """The subscription's own consumer is closed, then it is removed."""
    process, dest = spread.readers[reader]
    _closes(spread, reader, at - SECOND)
    process.noted_of_session("sub.removed", at, subscription=process.copies[dest])


def _between(number: int) -> int:
    """A time after message `number` was sent and read, and before the next one is sent."""
    return START + number * 2 * MINUTE + MINUTE


@situation
def durable_subscription_that_was_removed(scene: Scene) -> Truth:
    """One of two durable subscriptions is removed half-way: what is sent to the topic after that is not owed to it."""
    spread = _Spread(scene, *_DURABLE).durable()
    half = _COUNT // 2
    _trades(spread, range(half + 1))
    _removes(spread, 0, _between(half))
    return spread.truth(scene, BALANCED, removed=0)


@situation
def durable_subscription_removed_by_another_process(scene: Scene) -> Truth:
    """The same; the process that removes it has nothing else to do with the topic."""
    spread = _Spread(scene, *_DURABLE).durable()
    half = _COUNT // 2
    _trades(spread, range(half + 1))
    process, dest = spread.readers[0]
    _closes(spread, 0, _between(half) - SECOND)
    admin = spread.shop.fleet.process("admin", "fan-9")
    admin.noted_of_session("sub.removed", _between(half), subscription=process.copies[dest])
    return spread.truth(scene, BALANCED, removed=0)


@situation
def durable_subscription_removed_with_messages(scene: Scene) -> Truth:
    """What it had not given out when it was removed went with it: that is told, and nothing is lost."""
    spread = _Spread(scene, *_DURABLE).durable()
    half = _COUNT // 2
    _trades(spread, range(half - 2))
    _closes(spread, 0, _between(half - 3))
    process, dest = spread.readers[0]
    process.noted_of_session("sub.removed", _between(half), subscription=process.copies[dest])
    return spread.truth(scene, BALANCED, removed=3)


@situation
def durable_subscription_removed_beside_a_loss(scene: Scene) -> Truth:
    """One of two durable subscriptions is removed; the other never had a message that was sent after that."""
    spread = _Spread(scene, *_DURABLE).durable()
    half = _COUNT // 2
    for number in range(_COUNT):
        message = spread.send(number)
        if number != half + 5:
            spread.reads(message, 1)
        if number <= half:
            spread.reads(message, 0)
    _removes(spread, 0, _between(half))
    return spread.truth(scene, SUSPECT, unaccounted=1, removed=0)


def _begins_again(spread: _Spread, reader: int, at: int) -> None:
    process, dest = spread.readers[reader]
    process.noted_of_session(
        "sub.open",
        at,
        dest=dest,
        consumer=process.consumers[dest],
        subscription=process.copies[dest],
        ack_mode="auto",
        prefetch=100,
        max_redeliveries=6,
        optimize_ack=False,
    )


@situation
def durable_subscription_removed_and_begun_again(scene: Scene) -> Truth:
    """It is removed twice, with two messages and with one, and begins again each time: then all is owed to it."""
    spread = _Spread(scene, *_DURABLE).durable()
    away = {*range(9, 15), *range(24, 27)}
    _trades(spread, {*range(_COUNT)} - away)
    for last, removed, again in ((8, 10, 14), (23, 24, 26)):
        _closes(spread, 0, _between(last))
        process, dest = spread.readers[0]
        process.noted_of_session(
            "sub.removed", _between(removed), subscription=process.copies[dest]
        )
        _begins_again(spread, 0, _between(again))
    return spread.truth(scene, BALANCED, removed=3)


@situation
def durable_subscription_begun_again_and_a_loss(scene: Scene) -> Truth:
    """After it was removed and has begun again it never had one message."""
    spread = _Spread(scene, *_DURABLE).durable()
    _trades(spread, {*range(_COUNT)} - {*range(9, 15), 30})
    _removes(spread, 0, _between(8))
    _begins_again(spread, 0, _between(14))
    return spread.truth(scene, SUSPECT, unaccounted=1, removed=0)


@situation
def topic_without_a_subscriber(scene: Scene) -> Truth:
    """A topic that nobody subscribed forgets what is sent to it: nothing is lost."""
    shop = scene.shop().usual()
    for number in range(10):
        shop.now = START + number * MINUTE
        shop.send("topic://weather", counted=False)
    shop.ship(scene.directory)
    return Truth(
        NOT_SUSPECT,
        numbers={"unaccounted": 0, "duplicates": 0},
        verdicts=dict.fromkeys(shop.queues, BALANCED),
    )


@situation
def fully_qualified_queues(scene: Scene) -> Truth:
    """On Artemis, two queues of one address, read by their full names, each had every message."""
    spread = _Spread(scene, "topic://prices", _FQQN[1])
    spread.all_well()
    return spread.truth(scene, NOT_SUSPECT)


@situation
def one_fully_qualified_queue(scene: Scene) -> Truth:
    """Sent to an address, read by the full name of its one queue."""
    shop = scene.shop().usual()
    worker = shop.fleet.process("reader", "fan-a")
    worker.consumers["queue://prices::prices"] = "reader.prices"
    for number in range(_COUNT):
        shop.now = START + number * 2 * MINUTE + 7 * SECOND
        message = shop.send("queue://prices", counted=False)
        shop.deliver(message, by=worker, dest="queue://prices::prices", counted=False)
    usual = shop.truth().numbers
    shop.ship(scene.directory)
    assert isinstance(usual["sent"], int)
    return Truth(BALANCED, numbers={**_WELL, "sent": usual["sent"] + _COUNT})


@situation
def wildcard(scene: Scene) -> Truth:
    """One consumer reads `queue://*.parcels`, and each message was sent to another name."""
    return _by_pattern(scene, "queue://*.parcels", lose=0)


@situation
def wildcard_of_many_levels(scene: Scene) -> Truth:
    """One consumer reads `queue://eu.>`."""
    return _by_pattern(scene, "queue://eu.>", lose=0)


@situation
def wildcard_and_a_loss(scene: Scene) -> Truth:
    """One message of a queue that a wildcard reads was never settled."""
    return _by_pattern(scene, "queue://*.parcels", lose=1)


def _by_pattern(scene: Scene, pattern: str, lose: int) -> Truth:
    shop = scene.shop().usual()
    worker = shop.fleet.process("reader", "fan-a")
    worker.consumers[pattern] = "reader.all"
    for number in range(_COUNT):
        shop.now = START + number * 2 * MINUTE + 7 * SECOND
        message = shop.send("queue://eu.parcels", counted=False)
        if number >= lose:
            shop.deliver(message, by=worker, dest=pattern, counted=False)
    usual = shop.truth().numbers
    shop.ship(scene.directory)
    assert isinstance(usual["sent"], int)
    return Truth(
        SUSPECT if lose else BALANCED,
        numbers={**_WELL, "sent": usual["sent"] + _COUNT, "unaccounted": lose},
        verdicts=dict.fromkeys(shop.queues, BALANCED),
    )


@situation
def request_and_reply(scene: Scene) -> Truth:
    """Replies go to temporary queues, which are read under the name that the client gave them."""
    shop = scene.shop().usual()
    asker = shop.fleet.process("asker", "ask-a")
    asker.consumers["temp-queue://replies"] = "asker.replies"
    for number in range(_COUNT):
        shop.now = START + number * 2 * MINUTE + 7 * SECOND
        shop.done("queue://orders")
        sent_to = f"remote-temp-queue://ID:vm-4711-1:{number}"
        reply = shop.send(sent_to, by=shop.consumers["queue://orders"][0], counted=False)
        shop.deliver(reply, by=asker, dest="temp-queue://replies", counted=False)
    shop.ship(scene.directory)
    return Truth(
        NOT_SUSPECT,
        numbers={"unaccounted": 0, "duplicates": 0},
        verdicts=dict.fromkeys(shop.queues, BALANCED),
    )
