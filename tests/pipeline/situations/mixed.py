"""Several things at once, drawn by lot: each queue meets its own fate, and is judged by it alone."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START, key_at
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.shop import Message, Shop
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.pipeline.situations.fleet import Process, Segment

_SPAN: Final = 2 * HOUR
_USUAL: Final = ("done",) * 12 + (
    "retried",
    "dead",
    "discarded",
    "suppressed",
    "expired",
    "released",
    "interrupted",
)


class _Queue:
    """A queue with one or two consumers of its own, and what is put into it."""

    def __init__(self, shop: Shop, name: str, messages: int) -> None:
        self.shop = shop
        self.name = name
        self.messages = messages
        self.workers: list[Process] = []
        self.gone: Callable[[list[Segment]], list[Segment]] | None = None
        self.exact = True

    def workers_of(self, count: int) -> None:
        for number in range(count):
            skew = self.shop.chance.randrange(-200, 200) * SECOND
            short = self.name.rpartition("/")[2]
            worker = self.shop.fleet.process(short, f"{short}-{number}", skew=skew)
            self.workers.append(self.shop.reads(worker, self.name))

    def trade(self, **fates: int) -> None:
        told = [fate for fate, count in fates.items() for _ in range(count)]
        told += self.shop.chance.choices(_USUAL, k=self.messages - len(told))
        self.shop.chance.shuffle(told)
        for number, fate in enumerate(told):
            self.at(number, len(told))
            getattr(self.shop, fate)(self.name)

    def at(self, number: int, count: int) -> None:
        step = _SPAN // (count + 1)
        self.shop.now = START + number * step + self.shop.chance.randrange(step)


def _well(queue: _Queue) -> frozenset[str]:
    queue.workers_of(2)
    queue.trade()
    return BALANCED


def _lossy(queue: _Queue) -> frozenset[str]:
    queue.workers_of(2)
    queue.trade(lost=queue.shop.chance.randrange(1, 5))
    return SUSPECT


def _doubled(queue: _Queue) -> frozenset[str]:
    queue.workers_of(2)
    queue.trade(twice=queue.shop.chance.randrange(1, 5))
    return SUSPECT


def _lossy_and_doubled(queue: _Queue) -> frozenset[str]:
    queue.workers_of(1)
    count = queue.shop.chance.randrange(1, 5)
    queue.trade(lost=count, twice=count)
    return SUSPECT


def _unread(queue: _Queue) -> frozenset[str]:
    for number in range(20):
        queue.at(number, 20)
        queue.shop.send(queue.name)
        queue.shop.books.add(queue.name, "unread")
    return NOT_BALANCED


def _foreign(queue: _Queue) -> frozenset[str]:
    queue.workers_of(1)
    queue.trade()
    shop = queue.shop
    for number in range(7):
        queue.at(number, 7)
        shop.deliver(Message(f"ID:java-{number}", queue.name, shop.now, shop.senders[0]))
        shop.books.add(queue.name, "foreign")
    return UNVERIFIABLE


def _unsent(queue: _Queue) -> frozenset[str]:
    queue.workers_of(1)
    queue.trade()
    shop = queue.shop
    for number in range(7):
        queue.at(number, 7)
        key = key_at(shop.now, shop.chance)
        shop.deliver(Message(key, queue.name, shop.now, shop.senders[0]))
        shop.books.add(queue.name, "unsent")
    return UNVERIFIABLE


def _unconfirmed_and_done(queue: _Queue) -> frozenset[str]:
    queue.workers_of(2)
    queue.trade()
    shop = queue.shop
    for number in range(9):
        queue.at(number, 9)
        shop.deliver(shop.send(queue.name, outcome="unconfirmed"))
        shop.books.add(queue.name, "sent")
    return BALANCED


def _expired(queue: _Queue) -> frozenset[str]:
    queue.workers_of(2)
    queue.trade()
    shop = queue.shop
    queue.exact = False
    for number in range(9):
        queue.at(number, 9)
        shop.send(queue.name, expires_us=shop.now + 2 * SECOND)
    return NOT_SUSPECT


def _a_segment_gone(queue: _Queue) -> frozenset[str]:
    queue.workers_of(1)
    queue.trade()
    queue.exact = False
    number = queue.shop.chance.randrange(3)

    def gone(mine: list[Segment]) -> list[Segment]:
        return [segment for index, segment in enumerate(mine) if index != number % len(mine)]

    queue.gone = gone
    return UNVERIFIABLE


def _killed(queue: _Queue) -> frozenset[str]:
    queue.workers_of(1)
    queue.trade()
    queue.workers[0].ends = "killed"
    queue.exact = False
    return UNVERIFIABLE


def _dropped(queue: _Queue) -> frozenset[str]:
    queue.workers_of(1)
    queue.trade()
    queue.exact = False
    at = START + queue.shop.chance.randrange(_SPAN)
    worker = queue.workers[0]
    worker.note("log.gap", at, reason="overflow", dropped=3, dropped_kind="delivery")
    return UNVERIFIABLE


_WHOLE: Final = (
    _well,
    _lossy,
    _doubled,
    _lossy_and_doubled,
    _unread,
    _foreign,
    _unsent,
    _unconfirmed_and_done,
    _expired,
)
_HARMLESS: Final = (_well, _unconfirmed_and_done, _expired)
_BROKEN: Final = (_a_segment_gone, _killed, _dropped)


def _mixed(scene: Scene, fates: tuple[Callable[[_Queue], frozenset[str]], ...]) -> Truth:
    chance = scene.shop().chance
    skews = tuple(chance.randrange(-200, 200) for _ in range(4))
    shop = scene.shop(queues=(), skews=skews, hosts=0, segment_lines=chance.randrange(8, 40))
    verdicts: dict[str, frozenset[str]] = {}
    queues = []
    for number in range(6):
        queue = _Queue(shop, f"queue://lot.{number}", scene.messages // 4)
        fate = shop.chance.choice(fates)
        verdicts[queue.name] = fate(queue)
        queues.append(queue)
    shop.ends_at(START + _SPAN + 2 * MINUTE)
    _write(scene, shop, queues)
    truth = shop.truth(_overall(verdicts), verdicts=verdicts)
    if any(not queue.exact for queue in queues):
        truth.numbers = {}
    for queue in queues:
        if not queue.exact:
            del truth.by_destination[queue.name]
    if SUSPECT in verdicts.values():
        truth.exit_codes = frozenset({2})
    truth.lost_keys = frozenset()
    return truth


def _overall(verdicts: dict[str, frozenset[str]]) -> frozenset[str]:
    """The worst of all; where harm is proven in a log with gaps, either word may be the first."""
    words = [*verdicts.values()]
    if SUSPECT in words:
        return SUSPECT | (UNVERIFIABLE if UNVERIFIABLE in words else frozenset())
    if NOT_BALANCED in words:
        return NOT_BALANCED
    if UNVERIFIABLE in words:
        return UNVERIFIABLE
    return NOT_SUSPECT if NOT_SUSPECT in words else BALANCED


def _write(scene: Scene, shop: Shop, queues: list[_Queue]) -> None:
    segments = shop.fleet.segments()
    for queue in queues:
        if queue.gone is not None:
            names = {worker.writer for worker in queue.workers}
            mine = [segment for segment in segments if segment.writer in names]
            others = [segment for segment in segments if segment.writer not in names]
            segments = [*others, *queue.gone(mine)]
    shop.chance.shuffle(segments)
    scene.write(segments)
    for segment in segments[::5]:
        segment.write(scene.directory / "again")


@situation
def all_at_once(scene: Scene) -> Truth:
    """Six queues, each with a fate of its own, in a log that is whole."""
    return _mixed(scene, _WHOLE)


@situation
def all_at_once_with_gaps(scene: Scene) -> Truth:
    """Six queues, some of them with gaps in the log of their consumer."""
    return _mixed(scene, _WHOLE + _BROKEN)


@situation
def gaps_without_harm(scene: Scene) -> Truth:
    """Six queues; all is well, and some logs have gaps."""
    return _mixed(scene, _HARMLESS + _BROKEN)


@situation
def harmless(scene: Scene) -> Truth:
    """Six queues, in which all is well."""
    return _mixed(scene, _HARMLESS)
