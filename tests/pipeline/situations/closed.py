"""Messages that nobody reads any more: whoever read there has closed in order, or has not."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pipeline.situations.fleet import HOUR, MINUTE, SECOND, START
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import BALANCED, SUSPECT, UNVERIFIABLE, Truth
from tests.pipeline.situations.unsettled import stats

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Message, Shop

_TOPIC = "topic://news"
_QUEUE = "queue://press.news"
_DURABLE = "durable:press.all"
_DEADLINE = {"deadline": 60}
#: So many messages are read, one in two minutes; then the reader closes, and as many more are sent.
_READ = 12
_CLOSED = START + (2 * _READ + 1) * MINUTE


def _reader(shop: Shop, dest: str, host: str = "press-a", name: str | None = None) -> Process:
    process = shop.fleet.process("press", host)
    process.consumers[dest] = name or f"press.{dest.rpartition('/')[2]}"
    if dest.startswith("topic://"):
        process.copies[dest] = _DURABLE
    return process


def _closes(process: Process, dest: str, at: int = _CLOSED, **more: Any) -> None:
    told = {"dest": dest, "consumer": process.consumers[dest]}
    process.noted_of_session("sub.close", at, **(told | more))


def _opens(process: Process, dest: str, at: int, **more: Any) -> None:
    told = {"dest": dest, "consumer": process.consumers[dest], "ack_mode": "auto"}
    copy = process.copies.get(dest)
    process.noted_of_session(
        "sub.open",
        at,
        **(told | more | ({} if copy is None else {"subscription": copy})),
        prefetch=100,
        max_redeliveries=6,
        optimize_ack=False,
    )


def _trade(shop: Shop, dest: str, *readers: Process) -> None:
    """All that is sent until the closing is read, by one and then another."""
    for number in range(_READ):
        shop.now = START + 2 * number * MINUTE
        shop.deliver(shop.send(dest), by=readers[number % len(readers)])


def _then_sends(shop: Shop, dest: str, number: str, *, since: int = _CLOSED) -> list[Message]:
    """As many again are sent, and nobody reads them: that is the `number` which counts them."""
    sent = []
    for minute in range(_READ):
        shop.now = since + (10 + 2 * minute) * MINUTE
        sent.append(shop.send(dest))
    shop.books.add(dest, number, len(sent))
    if number == "unaccounted":
        shop.books.lost.update(message.key for message in sent)
    return sent


def _waits(shop: Shop, scene: Scene, dest: str) -> Truth:
    shop.ship(scene.directory)
    return shop.truth(
        UNVERIFIABLE,
        verdicts=dict.fromkeys(shop.queues, BALANCED) | {dest: UNVERIFIABLE},
        findings=[(dest.rpartition("/")[2], "closed in order")],
        options=_DEADLINE,
    )


def _is_missed(shop: Shop, scene: Scene, dest: str) -> Truth:
    shop.ship(scene.directory)
    return shop.truth(
        SUSPECT,
        verdicts=dict.fromkeys(shop.queues, BALANCED) | {dest: SUSPECT},
        options=_DEADLINE,
    )


@situation
def a_durable_subscriber_has_closed(scene: Scene) -> Truth:
    """It closed in order, and what was sent since waits for it: that is not proven, and not called lost."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    _closes(reader, _TOPIC)
    _then_sends(shop, _TOPIC, "awaiting_reader")
    return _waits(shop, scene, _TOPIC)


@situation
def the_reader_of_a_queue_has_closed(scene: Scene) -> Truth:
    """The same of a queue, which the broker does not count for this log."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _trade(shop, _QUEUE, reader)
    _closes(reader, _QUEUE)
    _then_sends(shop, _QUEUE, "awaiting_reader")
    return _waits(shop, scene, _QUEUE)


@situation
def a_reader_has_closed_in_a_living_fleet(scene: Scene) -> Truth:
    """The same, while all others run on."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    _closes(reader, _TOPIC)
    _then_sends(shop, _TOPIC, "awaiting_reader")
    for process in shop.fleet.processes:
        if process is not reader:
            process.ends = "living"
            told = {"frames_in": 9, "frames_out": 9, "bytes_in": 900, "bytes_out": 900}
            process.noted_of_session("conn.stats", shop.fleet.closed, **told)
    truth = _waits(shop, scene, _TOPIC)
    # By wrong clocks the horizon is some minutes earlier, and the last messages come after it.
    if scene.skewed:
        truth.numbers, truth.by_destination = {"unaccounted": 0, "duplicates": 0}, {}
    return truth


@situation
def a_reader_has_closed_before_anything_was_sent(scene: Scene) -> Truth:
    """It was there for a moment, long before the first message."""
    shop = scene.shop().usual()
    _closes(_reader(shop, _QUEUE), _QUEUE, START + MINUTE)
    _then_sends(shop, _QUEUE, "awaiting_reader")
    return _waits(shop, scene, _QUEUE)


@situation
def one_was_overdue_when_its_reader_closed(scene: Scene) -> Truth:
    """A message was there for twenty minutes when the reader closed, and that never had it: it is lost."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    shop.now = _CLOSED - 20 * MINUTE
    shop.books.lost.add(shop.send(_TOPIC).key)
    shop.books.add(_TOPIC, "unaccounted")
    _closes(reader, _TOPIC)
    _then_sends(shop, _TOPIC, "awaiting_reader")
    return _is_missed(shop, scene, _TOPIC)


@situation
def two_readers_have_closed(scene: Scene) -> Truth:
    """A queue had two readers, on two hosts; both closed in order, one much later than the other."""
    shop = scene.shop().usual()
    one, two = _reader(shop, _QUEUE), _reader(shop, _QUEUE, "press-b")
    _trade(shop, _QUEUE, one, two)
    _closes(one, _QUEUE, _CLOSED)
    _closes(two, _QUEUE, _CLOSED + HOUR)
    _then_sends(shop, _QUEUE, "awaiting_reader", since=_CLOSED + HOUR)
    return _waits(shop, scene, _QUEUE)


@situation
def one_of_two_readers_is_still_there(scene: Scene) -> Truth:
    """Of two readers one closed in order; the other is there to the end, and has nothing: the messages are lost."""
    shop = scene.shop().usual()
    one, two = _reader(shop, _QUEUE), _reader(shop, _QUEUE, "press-b")
    _trade(shop, _QUEUE, one, two)
    _closes(one, _QUEUE)
    _then_sends(shop, _QUEUE, "unaccounted")
    return _is_missed(shop, scene, _QUEUE)


@situation
def one_of_two_readers_was_killed(scene: Scene) -> Truth:
    """The other one closed in order: what was sent long after it had died is called lost, as ever where one died."""
    shop = scene.shop().usual()
    one, two = _reader(shop, _QUEUE), _reader(shop, _QUEUE, "press-b")
    _trade(shop, _QUEUE, one, two)
    _closes(one, _QUEUE)
    two.note("log.recovered", _CLOSED - MINUTE, lost_bytes=0, recovered_by=one.writer)
    two.ends = "killed"
    _then_sends(shop, _QUEUE, "unaccounted")
    shop.ship(scene.directory)
    return shop.truth(SUSPECT, verdicts={_QUEUE: SUSPECT}, options=_DEADLINE)


@situation
def a_reader_has_opened_again_and_is_idle(scene: Scene) -> Truth:
    """It closed in order, and soon opened again; it gets nothing."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    _closes(reader, _TOPIC)
    _opens(reader, _TOPIC, _CLOSED + SECOND)
    _then_sends(shop, _TOPIC, "unaccounted")
    return _is_missed(shop, scene, _TOPIC)


@situation
def a_reader_has_opened_and_closed_again(scene: Scene) -> Truth:
    """It closed in order, twice: what was sent after the second time waits for it."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    _closes(reader, _TOPIC, _CLOSED - MINUTE)
    _opens(reader, _TOPIC, _CLOSED - 2 * SECOND)
    _closes(reader, _TOPIC)
    _then_sends(shop, _TOPIC, "awaiting_reader")
    return _waits(shop, scene, _TOPIC)


@situation
def one_of_two_sessions_of_a_name_is_still_there(scene: Scene) -> Truth:
    """One process has two sessions, each with a consumer of the same name; one of them closed in order."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _opens(reader, _QUEUE, START, session_id=f"{reader.session}-b")
    _trade(shop, _QUEUE, reader)
    _closes(reader, _QUEUE)
    _then_sends(shop, _QUEUE, "unaccounted")
    return _is_missed(shop, scene, _QUEUE)


@situation
def one_of_two_consumers_of_a_name_is_still_there(scene: Scene) -> Truth:
    """One session has two consumers of the same name; one of them closed in order."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _opens(reader, _QUEUE, START)
    _trade(shop, _QUEUE, reader)
    _closes(reader, _QUEUE)
    _then_sends(shop, _QUEUE, "unaccounted")
    return _is_missed(shop, scene, _QUEUE)


@situation
def a_reader_has_closed_after_its_link_was_lost(scene: Scene) -> Truth:
    """It lost its link, was there again on the next one, and then closed in order."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    reader.noted_of_session("conn.lost", _CLOSED - MINUTE, reason="io")
    reader.noted_of_session(
        "conn.up", _CLOSED - 40 * SECOND, epoch=2, broker=reader.broker, broker_kind=reader.kind
    )
    _opens(reader, _TOPIC, _CLOSED - 30 * SECOND, epoch=2)
    _closes(reader, _TOPIC, epoch=2)
    _then_sends(shop, _TOPIC, "awaiting_reader")
    return _waits(shop, scene, _TOPIC)


@situation
def a_reader_has_lost_its_link_and_was_not_closed(scene: Scene) -> Truth:
    """Its link was lost, and it never came back: nobody closed it."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    reader.noted_of_session("conn.lost", _CLOSED, reason="io")
    _then_sends(shop, _TOPIC, "unaccounted")
    return _is_missed(shop, scene, _TOPIC)


@situation
def the_broker_has_nothing_for_a_reader_that_has_closed(scene: Scene) -> Truth:
    """The broker counts the queue after the closing, and nothing waits there: what was sent since is lost."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _trade(shop, _QUEUE, reader)
    _closes(reader, _QUEUE)
    _then_sends(shop, _QUEUE, "unaccounted")
    stats(shop.senders[0], START, _QUEUE, enqueued=0, dequeued=0)
    stats(shop.senders[0], shop.fleet.closed, _QUEUE, enqueued=2 * _READ, dequeued=_READ)
    return _is_missed(shop, scene, _QUEUE)


@situation
def a_reader_of_many_queues_is_still_there(scene: Scene) -> Truth:
    """The queue's own reader closed in order; one that reads it by a pattern is there, and has nothing."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _reader(shop, "queue://press.*", "press-b")
    _trade(shop, _QUEUE, reader)
    _closes(reader, _QUEUE)
    _then_sends(shop, _QUEUE, "unaccounted")
    return _is_missed(shop, scene, _QUEUE)


@situation
def a_reader_closed_in_order_and_lines_are_missing(scene: Scene) -> Truth:
    """Of a process that reads elsewhere three lines are missing: they may have told that it read here, too."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _trade(shop, _QUEUE, reader)
    _closes(reader, _QUEUE)
    other = shop.fleet.process("other", "other-a")
    other.consumers["queue://elsewhere"] = "other"
    for second in range(9):
        told = {"frames_in": 1, "frames_out": 1, "bytes_in": 1, "bytes_out": 1}
        other.noted_of_session("conn.stats", START + HOUR + second * SECOND, **told)
    _then_sends(shop, _QUEUE, "unaccounted")
    segments = shop.fleet.segments()
    for segment in segments:
        if segment.writer == other.writer:
            del segment.lines[4:7]
    scene.write(segments)
    return shop.truth(SUSPECT, verdicts={_QUEUE: SUSPECT}, options=_DEADLINE)


@situation
def a_reader_gave_a_message_up_before_it_closed(scene: Scene) -> Truth:
    """It had the last one, which failed, and closed in order then; that one is called lost, as it always was."""
    shop = scene.shop().usual()
    reader = _reader(shop, _QUEUE)
    _trade(shop, _QUEUE, reader)
    shop.now = _CLOSED - 2 * SECOND
    failed = shop.send(_QUEUE)
    shop.deliver(failed, "rolled_back", by=reader, error="ValueError")
    shop.books.add(_QUEUE, "unaccounted")
    shop.books.lost.add(failed.key)
    _closes(reader, _QUEUE)
    _then_sends(shop, _QUEUE, "awaiting_reader")
    return _is_missed(shop, scene, _QUEUE)


@situation
def a_reader_has_closed_about_a_full_hour(scene: Scene) -> Truth:
    """What is sent in the hour of the closing waits, and so does what is sent in the next; the hour before is well."""
    shop = scene.shop().usual()
    reader = _reader(shop, _TOPIC)
    _trade(shop, _TOPIC, reader)
    closed = START + HOUR + 50 * MINUTE
    shop.now = closed - 30 * MINUTE
    shop.deliver(shop.send(_TOPIC), by=reader)
    _closes(reader, _TOPIC, closed)
    for minute in (1, 2, 9, 11, 12):
        shop.now = closed + minute * MINUTE + (4 * MINUTE if scene.skewed else 0)
        shop.send(_TOPIC)
    shop.books.add(_TOPIC, "awaiting_reader", 5)
    shop.ends_at(START + 3 * HOUR)
    truth = _waits(shop, scene, _TOPIC)
    if not scene.skewed:
        truth.hours = {
            (_TOPIC, START): BALANCED,
            (_TOPIC, START + HOUR): UNVERIFIABLE,
            (_TOPIC, START + 2 * HOUR): UNVERIFIABLE,
        }
    return truth


@situation
def a_reader_has_closed_and_another_came(scene: Scene) -> Truth:
    """It closed in order; a day's work later the next process reads all that waited."""
    shop = scene.shop().usual()
    one, two = _reader(shop, _QUEUE), _reader(shop, _QUEUE, "press-b")
    _trade(shop, _QUEUE, one)
    _closes(one, _QUEUE)
    for minute in range(_READ):
        shop.now = _CLOSED + (10 + 2 * minute) * MINUTE
        shop.deliver(shop.send(_QUEUE), by=two, after=50 * MINUTE)
    _closes(two, _QUEUE, shop.fleet.closed)
    shop.ship(scene.directory)
    return shop.truth(complete=True, options=_DEADLINE)
