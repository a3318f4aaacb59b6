"""Dead letters that jmsx moves by a copy, and what becomes of the copies."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, SECOND_BROKER, START
from tests.pipeline.situations.in_hand import alive
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import BALANCED, UNVERIFIABLE, Truth
from tests.pipeline.situations.unsettled import stats

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Message, Shop

ORDERS = "queue://orders"
DEAD = "queue://orders.DLQ"


def _clerk(shop: Shop, name: str = "clerk", **more: Any) -> Process:
    """Start a process that reads the dead letters."""
    return shop.reads(shop.fleet.process(name, f"{name}-a", **more), DEAD)


def _dies(shop: Shop, count: int = 12, *, every: int = 5 * MINUTE) -> list[Message]:
    """So many messages fail, and are moved by copies that the broker confirms."""
    found = []
    for number in range(count):
        shop.now = START + number * every + 7 * SECOND
        message = shop.send(ORDERS)
        worker = shop.chance.choice(shop.consumers[ORDERS])
        at = shop.deliver(message, "dead_lettered", by=worker, error="ValueError")
        shop.dead_letter(message, worker, at, 1, "rejected", error="ValueError", copied_to=DEAD)
        found.append(message)
    return found


def _read(shop: Shop, messages: list[Message], clerk: Process, *, after: int = SECOND) -> None:
    for message in messages:
        shop.deliver(message, by=clerk, dest=DEAD, after=after, counted=False)


def _says(clerk: Process, *, buffered: int = 0, until: int = START + 2 * HOUR) -> None:
    """The clerk says each minute how many messages it has."""
    for at in range(START, until, MINUTE):
        clerk.noted_of_session(
            "sub.stats",
            at + 30 * SECOND,
            dest=DEAD,
            consumer=clerk.consumers[DEAD],
            buffered=buffered,
            in_process=0,
            still_in_process=0,
        )


def _truth(shop: Shop, scene: Scene, unclaimed: int = 0, **more: Any) -> Truth:
    """All is well with the orders, and with the dead letters, but for so many that nobody read."""
    shop.ship(scene.directory)
    truth = shop.truth(UNVERIFIABLE if unclaimed else BALANCED, **more)
    for name in ("settled", "done"):
        truth.numbers.pop(name, None)
    truth.numbers |= {"unclaimed": unclaimed, "unsent": 0, "duplicates": 0}
    truth.by_destination.setdefault(DEAD, {})["unclaimed"] = unclaimed
    truth.verdicts |= dict.fromkeys(shop.queues, BALANCED)
    if unclaimed:
        truth.verdicts[DEAD] = UNVERIFIABLE
        truth.findings.append((DEAD, f"{unclaimed} moved there as dead letters", "by hand"))
    return truth


@situation
def copies_of_dead_letters_are_read(scene: Scene) -> Truth:
    """Each comes to the clerk at once."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    _read(shop, _dies(shop), clerk)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_are_gone(scene: Scene) -> Truth:
    """Two of twelve come to nobody, though the clerk has nothing to do."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    dead = _dies(shop)
    _read(shop, [*dead[:4], *dead[5:-1]], clerk)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene, 2)


@situation
def copies_of_dead_letters_are_gone_under_a_living_fleet(scene: Scene) -> Truth:
    """The same, and the fleet runs on; the last one died just now, and is on its way."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    dead = _dies(shop, every=9 * MINUTE)
    _read(shop, [*dead[:4], *dead[5:-1]], clerk)
    end = dead[-1].sent_at + 20 * SECOND
    _says(clerk, until=end)
    alive(shop, until=end)
    truth = _truth(shop, scene, 1)
    truth.verdicts = {DEAD: UNVERIFIABLE}
    return truth


@situation
def copies_of_dead_letters_wait_for_a_slow_reader(scene: Scene) -> Truth:
    """The clerk is busy all the time; what it has not read yet lies in its queue."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    _read(shop, _dies(shop)[:3], clerk, after=20 * MINUTE)
    _says(clerk, buffered=5)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_are_read_on_the_next_day(scene: Scene) -> Truth:
    """The clerk comes to work eight hours later."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    _read(shop, _dies(shop), clerk, after=8 * HOUR)
    _says(clerk, until=START + 10 * HOUR)
    clerk.noted[:] = [one for one in clerk.noted if one[0] >= START + 8 * HOUR]
    shop.ends_at(START + 10 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_are_read_by_a_selector(scene: Scene) -> Truth:
    """The only reader there takes some of them, and the others wait."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    clerk.selects = {DEAD}
    _read(shop, _dies(shop)[::2], clerk)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_and_an_older_release(scene: Scene) -> Truth:
    """It does not tell whether the reader takes all that is there."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    clerk.selects = None
    _read(shop, _dies(shop)[::2], clerk)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_that_nobody_reads(scene: Scene) -> Truth:
    """They wait, for somebody who looks at them one day."""
    shop = scene.shop().usual()
    _dies(shop)
    shop.ends_at(START + 2 * HOUR)
    shop.ship(scene.directory)
    truth = shop.truth()
    truth.numbers["unclaimed"] = 0
    return truth


@situation
def copies_of_dead_letters_are_moved_back(scene: Scene) -> Truth:
    """An operator moves some of them back at the broker's console, and they are done; the clerk gets the others."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    dead = _dies(shop)
    _read(shop, dead[::2], clerk)
    for message in dead[1::2]:
        shop.deliver(message, after=600 * SECOND)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_are_moved_back_and_one_is_gone(scene: Scene) -> Truth:
    """The same, and one that was moved back died again; its second copy came to nobody."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    dead = _dies(shop)
    _read(shop, dead[::2], clerk)
    for message in dead[1:-1:2]:
        shop.deliver(message, after=600 * SECOND)
    last, worker = dead[-1], shop.consumers[ORDERS][0]
    at = shop.deliver(last, "dead_lettered", by=worker, after=600 * SECOND)
    shop.dead_letter(last, worker, at, 1, "rejected", copied_to=DEAD, msg_id="moved-1")
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene, 1)


@situation
def copies_of_dead_letters_are_purged_by_an_operator(scene: Scene) -> Truth:
    """Somebody empties the queue by hand each hour, without a trace: nobody can know what became of those."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    _read(shop, _dies(shop)[:7], clerk)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene, 5)


@situation
def copies_of_dead_letters_are_taken_and_the_broker_tells(scene: Scene) -> Truth:
    """A foreign consumer takes five, and the broker counts that; it is told as before, and none is gone."""
    return _counted(scene, dequeued=12)


@situation
def copies_of_dead_letters_expire_and_the_broker_tells(scene: Scene) -> Truth:
    """The broker has a time for them, and counts those that expired."""
    truth = _counted(scene, dequeued=12, expired=5)
    truth.findings = [(DEAD, "expired")]
    truth.verdict |= BALANCED
    truth.verdicts.pop(DEAD)
    return truth


@situation
def copies_of_dead_letters_are_gone_and_the_broker_tells(scene: Scene) -> Truth:
    """The broker counts that seven went, and that none is there: five are gone."""
    truth = _counted(scene, dequeued=7)
    truth.numbers["unclaimed"] = truth.by_destination[DEAD]["unclaimed"] = 5
    truth.findings = [(DEAD, "5 moved there as dead letters")]
    return truth


def _counted(scene: Scene, **counted: int) -> Truth:
    """The broker's counts of twelve copies of which the clerk read seven."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    stats(clerk, START, DEAD)
    _read(shop, _dies(shop)[:7], clerk)
    _says(clerk)
    stats(clerk, START + 2 * HOUR, DEAD, enqueued=12, **counted)
    shop.ends_at(START + 2 * HOUR + MINUTE)
    truth = _truth(shop, scene)
    truth.verdicts[DEAD] = UNVERIFIABLE
    return replace(truth, verdict=UNVERIFIABLE)


@situation
def copies_of_dead_letters_and_a_long_deadline(scene: Scene) -> Truth:
    """Asked to wait for two hours, the report waits for the clerk, too."""
    shop = scene.shop().usual()
    clerk = _clerk(shop)
    _read(shop, _dies(shop)[:-1], clerk)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    truth = _truth(shop, scene, options={"deadline": 7200})
    truth.numbers = {"unclaimed": 0, "unaccounted": 0}
    truth.by_destination = {}
    return truth


@situation
def copies_of_dead_letters_on_another_broker(scene: Scene) -> Truth:
    """The clerk reads a queue of that name on the other broker, where nothing comes."""
    shop = scene.shop().usual()
    clerk = _clerk(shop, broker=SECOND_BROKER)
    _dies(shop)
    _says(clerk)
    shop.ends_at(START + 2 * HOUR)
    return _truth(shop, scene)


@situation
def copies_of_dead_letters_and_a_clerk_that_is_killed(scene: Scene) -> Truth:
    """One of two clerks is killed, and may have read what is not told of; the log is not whole."""
    shop = scene.shop().usual()
    clerk, other = _clerk(shop), _clerk(shop, "other")
    _read(shop, _dies(shop)[:-1], clerk)
    _says(clerk)
    other.note("log.recovered", START + HOUR, lost_bytes=0, recovered_by=clerk.writer)
    other.ends = "killed"
    shop.ends_at(START + 2 * HOUR)
    truth = _truth(shop, scene)
    return Truth(UNVERIFIABLE, numbers=truth.numbers)
