"""Messages that a consumer has, and of which no line tells: they lie behind one that waits, or that takes long."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import BALANCED, NOT_SUSPECT, SUSPECT, UNVERIFIABLE, Truth

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Message, Shop

ORDERS = "queue://orders"
#: Of a report on what follows.
_DEADLINE = {"deadline": 300}


def alive(shop: Shop, *, until: int) -> None:
    """Every process runs on, and all but consumers with messages in hand say so last at `until`."""
    for process in shop.fleet.processes:
        process.ends = "living"
        process.noted_of_session(
            "conn.stats", until, frames_in=9, frames_out=9, bytes_in=900, bytes_out=900
        )


def _has(
    worker: Process,
    at: int,
    *,
    buffered: int,
    in_process: int = 0,
    still: int | None = None,
    **of: str,
) -> None:
    """A consumer says how many messages it has; `still`: as it did when it said so last."""
    told = {"dest": ORDERS, "consumer": worker.consumers[ORDERS]}
    worker.noted_of_session(
        "sub.stats",
        at,
        **(told | of),
        buffered=buffered,
        in_process=in_process,
        still_in_process=still,
    )


def _prefetched(shop: Shop, count: int, worker: Process) -> list[Message]:
    """So many messages are sent from the end of the trade on, and come to `worker`, which does nothing with them."""
    sent = []
    for _ in range(count):
        shop.now += SECOND
        message = shop.send(ORDERS)
        worker.noted_of_session(
            "recv.batch",
            shop.now + SECOND,
            dest=ORDERS,
            consumer=worker.consumers[ORDERS],
            messages=1,
            redelivered_messages=0,
        )
        sent.append(message)
    return sent


def _overdue(shop: Shop, messages: list[Message], *, explained: int) -> Truth:
    """What is true where so many are not settled in time, of which consumers may have `explained`."""
    shop.books.add(ORDERS, "unaccounted", len(messages))
    keys = frozenset(one.key for one in messages)
    proven = len(messages) > explained
    truth = shop.truth(
        SUSPECT if proven else UNVERIFIABLE,
        verdicts={ORDERS: SUSPECT if proven else UNVERIFIABLE, "queue://mail": BALANCED},
        options=_DEADLINE,
        findings=[("orders", "consumers have")],
    )
    truth.numbers["explained"] = explained
    truth.may_be_lost = keys if not explained else frozenset()
    return truth


@situation
def prefetched_behind_a_planned_wait(scene: Scene) -> Truth:
    """A message waits an hour for its redelivery, and thirty lie behind it in the prefetch: none of them is lost."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    first = shop.send(ORDERS)
    shop._failed(first, worker, 1, 20_000, delay_us=HOUR)
    shop.books.add(ORDERS, "in_flight")
    behind = _prefetched(shop, 30, worker)
    end = shop.now + 20 * MINUTE
    _has(worker, end - 5 * SECOND, buffered=31)
    alive(shop, until=end)
    shop.ship(scene.directory)
    return _overdue(shop, behind, explained=30)


@situation
def prefetched_behind_a_slow_handler(scene: Scene) -> Truth:
    """A handler has run for twenty minutes, and a dozen messages wait for it; nothing is lost."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][1]
    had = _prefetched(shop, 13, worker)
    end = shop.now + 20 * MINUTE
    for minute in range(20):
        _has(worker, end - 5 * SECOND - minute * MINUTE, buffered=12, in_process=1)
    alive(shop, until=end)
    shop.ship(scene.directory)
    return _overdue(shop, had, explained=13)


@situation
def prefetched_behind_one_that_was_slow(scene: Scene) -> Truth:
    """A handler was done after twenty minutes, and has the next; a dozen sent since the first wait for it still."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][1]
    first, *had = _prefetched(shop, 13, worker)
    shop.now += 20 * MINUTE
    shop.deliver(first, by=worker, after=shop.now - first.sent_at)
    _has(worker, shop.now + 5 * SECOND, buffered=11, in_process=1, still=0)
    alive(shop, until=shop.now + 10 * SECOND)
    shop.ship(scene.directory)
    return _overdue(shop, had, explained=12)


@situation
def one_of_two_handlers_has_the_oldest(scene: Scene) -> Truth:
    """A handler has run for an hour; the one beside it is done with what came later; nothing comes any more."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    stuck = shop.send(ORDERS)
    shop.now += HOUR
    shop.deliver(shop.send(ORDERS), by=worker)
    shop.now += MINUTE
    _has(worker, shop.now, buffered=0, in_process=1, still=1)
    alive(shop, until=shop.now + 5 * SECOND)
    shop.ship(scene.directory)
    return _overdue(shop, [stuck], explained=1)


@situation
def lost_before_what_is_in_hand(scene: Scene) -> Truth:
    """A message went astray an hour before one that a consumer was done with; what it has now came later."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    gone = shop.send(ORDERS)
    shop.now += HOUR
    shop.deliver(shop.send(ORDERS), by=worker)
    shop.books.add(ORDERS, "in_flight")
    shop.send(ORDERS)
    _has(worker, shop.now + 2 * SECOND, buffered=0, in_process=1, still=0)
    alive(shop, until=shop.now + 5 * SECOND)
    shop.ship(scene.directory)
    return _overdue(shop, [gone], explained=0)


@situation
def one_handler_of_several_is_stuck(scene: Scene) -> Truth:
    """A handler has run for an hour, and others of the same consumer go on beside it; nothing is lost."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    stuck = shop.send(ORDERS)
    for minute in range(60):
        shop.now += MINUTE
        shop.deliver(shop.send(ORDERS), by=worker)
        _has(worker, shop.now + 5 * SECOND, buffered=2, in_process=4, still=int(minute > 0))
        shop.deliver(shop.send(ORDERS), by=worker, after=10 * SECOND)
    alive(shop, until=shop.now + 20 * SECOND)
    shop.ship(scene.directory)
    return _overdue(shop, [stuck], explained=1)


@situation
def one_session_of_several_is_stuck(scene: Scene) -> Truth:
    """Of two sessions under one name one has a handler that runs on, and a prefetch behind it; the other goes on."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    had = _prefetched(shop, 11, worker)
    other = f"{worker.session}-b"
    for minute in range(60):
        shop.now += MINUTE
        _has(worker, shop.now, buffered=10, in_process=1, still=int(minute > 0))
        _has(worker, shop.now, buffered=0, in_process=1, still=0, session_id=other)
        shop.deliver(shop.send(ORDERS), by=worker, after=10 * SECOND, session_id=other)
    alive(shop, until=shop.now + 20 * SECOND)
    shop.ship(scene.directory)
    return _overdue(shop, had, explained=11)


@situation
def one_is_stuck_and_one_is_lost(scene: Scene) -> Truth:
    """The same, and another message went astray: one of the two is lost, nobody knows which."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    gone = [shop.send(ORDERS), shop.send(ORDERS)]
    for _ in range(60):
        shop.now += MINUTE
        shop.deliver(shop.send(ORDERS), by=worker)
        _has(worker, shop.now + 5 * SECOND, buffered=2, in_process=4, still=1)
        shop.deliver(shop.send(ORDERS), by=worker, after=10 * SECOND)
    alive(shop, until=shop.now + 20 * SECOND)
    shop.ship(scene.directory)
    return _overdue(shop, gone, explained=1)


@situation
def more_is_overdue_than_is_in_hand(scene: Scene) -> Truth:
    """Two consumers have five and four messages, and fourteen are overdue: five are lost, nobody knows which."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    had = [*_prefetched(shop, 9, one), *_prefetched(shop, 5, two)]
    end = shop.now + 20 * MINUTE
    _has(one, end - 5 * SECOND, buffered=5)
    _has(two, end - 3 * SECOND, buffered=3, in_process=1)
    alive(shop, until=end)
    shop.ship(scene.directory)
    return _overdue(shop, had, explained=9)


@situation
def in_hand_and_given_back(scene: Scene) -> Truth:
    """A consumer had eight messages when it said so, and gave them back at its end; the other one did them."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    had = _prefetched(shop, 8, one)
    _has(one, shop.now + SECOND, buffered=8)
    for message in had:
        away = shop.now + 10 * SECOND - message.sent_at
        shop.deliver(message, "released", by=one, after=away, handled=False)
        shop.deliver(message, by=two, after=away + SECOND)
    shop.ends_at(shop.now + MINUTE)
    shop.ship(scene.directory)
    return shop.truth(complete=True)


@situation
def had_by_one_whose_link_is_lost(scene: Scene) -> Truth:
    """It lost its link an hour ago, and the broker has had the messages since: nobody has them in hand."""
    shop = scene.shop().usual()
    worker = shop.consumers[ORDERS][0]
    had = _prefetched(shop, 6, worker)
    _has(worker, shop.now + SECOND, buffered=6)
    worker.noted_of_session("conn.lost", shop.now + 2 * SECOND, reason="io")
    for message in had:
        after = shop.now + 2 * SECOND - message.sent_at
        shop.deliver(message, "abandoned", by=worker, after=after, handled=False)
    alive(shop, until=shop.now + HOUR)
    shop.ship(scene.directory)
    truth = _overdue(shop, had, explained=0)
    truth.findings = []
    return truth


@situation
def killed_with_a_full_prefetch(scene: Scene) -> Truth:
    """A consumer said that it has messages, and was killed; the other one did them all."""
    shop = scene.shop().usual()
    one, two = shop.consumers[ORDERS]
    had = _prefetched(shop, 8, one)
    _has(one, shop.now + SECOND, buffered=8)
    one.note("log.recovered", shop.now + 20 * SECOND, lost_bytes=0, recovered_by=two.writer)
    one.ends = "killed"
    for message in had:
        shop.deliver(message, by=two, after=shop.now + 30 * SECOND - message.sent_at)
    shop.ends_at(shop.now + MINUTE)
    shop.ship(scene.directory)
    return Truth(NOT_SUSPECT, numbers={"unaccounted": 0, "duplicates": 0, "unsent": 0})
