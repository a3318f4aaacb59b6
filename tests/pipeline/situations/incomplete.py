"""Lines are missing: what they could have told is not proven, and only that."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from tests.pipeline.situations.fleet import (
    HOUR,
    MINUTE,
    SECOND,
    START,
    Line,
    Segment,
    folder_of,
    rewritten,
)
from tests.pipeline.situations.scene import Scene, situation
from tests.pipeline.situations.truth import (
    BALANCED,
    NOT_BALANCED,
    NOT_SUSPECT,
    SUSPECT,
    UNVERIFIABLE,
    Truth,
)

if TYPE_CHECKING:
    from tests.pipeline.situations.fleet import Process
    from tests.pipeline.situations.shop import Shop


def _with_exports(scene: Scene, **options: Any) -> tuple[Shop, Process]:
    """A healthy trade, and a queue that one process alone reads."""
    shop = scene.shop(**options).usual()
    worker = shop.fleet.process("exporter", "export-a")
    shop.reads(worker, "queue://exports")
    for number in range(100):
        shop.now = START + number * shop.span // 100
        shop.done("queue://exports")
    return shop, worker


def _tainted(shop: Shop, *, words: tuple[str, ...] = (), complete: bool | None = False) -> Truth:
    """Of `queue://exports` nothing is proven, and so nothing is lost; of the others everything is."""
    verdicts = dict.fromkeys(shop.queues, BALANCED) | {"queue://exports": UNVERIFIABLE}
    return Truth(
        UNVERIFIABLE,
        verdicts=verdicts,
        findings=[words] if words else [],
        complete=complete,
        may_be_lost=frozenset(),
    )


def _split(shop: Shop, writer: Process) -> tuple[list[Segment], list[Segment]]:
    segments = shop.fleet.segments()
    mine = [segment for segment in segments if segment.writer == writer.writer]
    return mine, [segment for segment in segments if segment.writer != writer.writer]


@situation
def a_segment_is_missing(scene: Scene) -> Truth:
    """One segment in the middle never came; only its writer's queue is tainted."""
    shop, worker = _with_exports(scene)
    mine, others = _split(shop, worker)
    del mine[2]
    scene.write([*mine, *others])
    return _tainted(shop, words=(worker.writer, "missing"))


@situation
def the_first_segment_is_missing(scene: Scene) -> Truth:
    """The segment with log.open, and so with the service's name, never came."""
    shop, worker = _with_exports(scene)
    mine, others = _split(shop, worker)
    scene.write([*mine[1:], *others])
    return _tainted(shop, words=(worker.writer,))


@situation
def the_first_segments_are_missing_and_it_read_no_more(scene: Scene) -> Truth:
    """Of what one of two readers did every line is missing: only what it has in hand tells that it read at all."""
    shop, _ = _with_exports(scene)
    worker = shop.fleet.process("exporter", "export-b")
    shop.reads(worker, "queue://exports")
    return _first_half_missing(shop, scene, worker, "queue://exports")


@situation
def the_first_segments_of_who_reads_a_pattern_are_missing(scene: Scene) -> Truth:
    """The same, and one of the two reads that queue, the other one all queues of that kind."""
    shop = scene.shop().usual()
    one, all_ = "queue://exports.eu", "queue://exports.>"
    direct, other = (shop.fleet.process("exporter", f"export-{host}") for host in "ab")
    shop.reads(direct, one)
    shop.reads(other, all_)
    for number in range(10):
        shop.now = START + number * MINUTE
        shop.deliver(shop.send(one), by=direct)
    return _first_half_missing(shop, scene, other, all_, one)


@situation
def the_first_segments_of_the_next_reader_are_missing(scene: Scene) -> Truth:
    """A durable subscription goes on in a second process, of whose deliveries every line is missing."""
    shop = scene.shop().usual()
    first, second = (shop.fleet.process("exporter", f"export-{host}") for host in "ab")
    first.copies["topic://exports"] = second.copies["topic://exports"] = "durable:exporter.all"
    shop.reads(first, "topic://exports")
    for number in range(10):
        shop.now = START + number * MINUTE
        message = shop.send("topic://exports")
        shop.deliver(message, by=first)
    shop.reads(second, "topic://exports")
    return _first_half_missing(shop, scene, second, "topic://exports")


def _first_half_missing(
    shop: Shop, scene: Scene, reader: Process, dest: str, sent_to: str | None = None
) -> Truth:
    """`reader` does some messages; what it wrote until half of the time is over never came."""
    to = sent_to or dest
    for number in range(5):
        shop.now = START + 20 * MINUTE + number * MINUTE
        shop.deliver(shop.send(to), by=reader, dest=dest)
    half = START + shop.span // 2
    for at in range(half, START + shop.span, MINUTE):
        reader.noted_of_session(
            "sub.stats", at, dest=dest, consumer=reader.consumers[dest], buffered=0, in_process=0
        )
    shop.reads(shop.senders[0], "queue://exported")
    shop.now = half + 10 * MINUTE
    shop.deliver(shop.send("queue://exported", by=reader))
    mine, others = _split(shop, reader)
    later = folder_of(half)
    scene.write([*(segment for segment in mine if segment.folder >= later), *others])
    verdicts = dict.fromkeys(shop.queues, BALANCED) | {to: UNVERIFIABLE}
    return Truth(
        UNVERIFIABLE,  # never that five are lost
        verdicts=verdicts,
        numbers={"unaccounted": 5, "explained": 5},
        complete=False,
        may_be_lost=frozenset(),
    )


@situation
def the_last_segment_is_missing(scene: Scene) -> Truth:
    """The log of one writer just stops."""
    shop, worker = _with_exports(scene)
    mine, others = _split(shop, worker)
    scene.write([*mine[:-1], *others])
    return _tainted(shop, words=(worker.writer,))


@situation
def the_last_segments_of_all_readers_are_missing(scene: Scene) -> Truth:
    """Nothing tells them from readers that run on: what is said holds up to their last lines, and accuses nobody."""
    shop = scene.shop().usual()
    readers = {worker.writer for workers in shop.consumers.values() for worker in workers}
    last = {segment.writer: segment for segment in shop.fleet.segments()}
    missing = [last[writer].name for writer in readers]
    scene.write([one for one in shop.fleet.segments() if one.name not in missing])
    return Truth(
        NOT_SUSPECT,
        numbers={"unaccounted": 0, "duplicates": 0, "unsent": 0},
        findings=[(writer, "has not ended") for writer in sorted(readers)],
        complete=False,
    )


@situation
def a_gap_taints_its_hour_only(scene: Scene) -> Truth:
    """A segment of the first hour is missing: later hours are proven all the same."""
    shop, worker = _with_exports(scene, span=4 * HOUR, segment_lines=30)
    mine, others = _split(shop, worker)
    missing = next(segment for segment in mine[1:] if "hour=06" in segment.folder)
    scene.write([segment for segment in [*mine, *others] if segment is not missing])
    truth = _tainted(shop, words=(worker.writer, "missing"))
    truth.hours = {
        ("queue://exports", START): UNVERIFIABLE,
        ("queue://exports", START + 3 * HOUR): BALANCED,
        ("queue://orders", START): BALANCED,
    }
    return truth


@situation
def an_hour_is_missing(scene: Scene) -> Truth:
    """The folder of one hour never came, of no host."""
    shop = scene.shop(span=3 * HOUR).usual()
    scene.write([segment for segment in shop.fleet.segments() if "hour=07" not in segment.folder])
    return Truth(UNVERIFIABLE, findings=[("missing",)], complete=False)


def _dropped(dropped_kind: str, writer: Process, true_us: int) -> None:
    writer.note("log.gap", true_us, reason="overflow", dropped=7, dropped_kind=dropped_kind)


@situation
def deliveries_were_dropped(scene: Scene) -> Truth:
    """The log says that seven deliveries were dropped."""
    shop, worker = _with_exports(scene)
    _dropped("delivery", worker, START + 30 * MINUTE)
    shop.ship(scene.directory)
    return _tainted(shop, words=("7",), complete=None)


@situation
def lost_or_only_dropped(scene: Scene) -> Truth:
    """Deliveries are not in the log, and the log says that some were dropped: that proves no loss."""
    shop, worker = _with_exports(scene)
    _dropped("delivery", worker, START + 30 * MINUTE)
    for number in range(7):
        shop.now = START + 29 * MINUTE + number * 5 * SECOND
        shop.send("queue://exports")
    shop.ship(scene.directory)
    truth = _tainted(shop, complete=None)
    truth.numbers = {"unaccounted": 7, "explained": 7}
    return truth


@situation
def a_gap_has_room_for_some(scene: Scene) -> Truth:
    """Of seven messages three were done, and the lines of that dropped: four are lost, nobody knows which."""
    shop, worker = _with_exports(scene, span=4 * HOUR)
    shop.fleet.chance.shuffle(fates := ["dropped"] * 3 + ["lost"] * 4)
    for number, fate in enumerate(fates):
        shop.now = START + number * 20 * MINUTE
        message = shop.send("queue://exports")
        if fate == "lost":
            shop.books.lost.add(message.key)
    shop.now = START + 3 * HOUR + 30 * MINUTE
    sure = shop.send("queue://exports")
    worker.note("log.gap", START + 3 * HOUR, reason="overflow", dropped=3, dropped_kind="delivery")
    shop.ship(scene.directory)
    truth = _tainted(shop, complete=None)
    truth.verdict = truth.verdicts["queue://exports"] = SUSPECT
    truth.numbers = {"unaccounted": 8, "explained": 3}
    truth.may_be_lost = truth.lost_keys = frozenset({*shop.books.lost, sure.key})
    truth.hours = {
        # Each of these may be as it should.
        ("queue://exports", START): UNVERIFIABLE,
        ("queue://exports", START + HOUR): UNVERIFIABLE,
        ("queue://exports", START + 2 * HOUR): UNVERIFIABLE,
        ("queue://exports", START + 3 * HOUR): SUSPECT,
    }
    return truth


@situation
def batches_were_dropped(scene: Scene) -> Truth:
    """Only lines were dropped that no verdict rests on."""
    shop, worker = _with_exports(scene)
    _dropped("recv.batch", worker, START + 30 * MINUTE)
    shop.ship(scene.directory)
    return shop.truth(NOT_SUSPECT)


@situation
def log_close_tells_of_drops(scene: Scene) -> Truth:
    """The last line says that something was dropped, and no other does."""
    shop, worker = _with_exports(scene)

    def tell(line: Line) -> Line:
        return line | {"dropped": 5} if line["kind"] == "log.close" else line

    mine, others = _split(shop, worker)
    scene.write([*(rewritten(segment, tell) for segment in mine), *others])
    return _tainted(shop, words=(worker.writer, "5"), complete=None)


@situation
def a_gap_and_a_proven_repeat(scene: Scene) -> Truth:
    """A segment is missing, and what is there proves repeats: the harm is told."""
    shop = scene.shop().usual(twice=6)
    writer = shop.fleet.process("exporter", "export-a")
    shop.reads(writer, "queue://exports")
    for number in range(60):
        shop.now = START + number * MINUTE
        shop.done("queue://exports")
    mine, others = _split(shop, writer)
    del mine[1]
    scene.write([*mine, *others])
    truth = Truth(NOT_BALANCED, exit_codes=frozenset({2}), complete=False)
    truth.numbers = {"duplicates": 6}
    truth.verdicts = {
        queue: SUSPECT if shop.books.numbers[queue]["duplicates"] else BALANCED
        for queue in shop.queues
    }
    truth.verdicts["queue://exports"] = UNVERIFIABLE
    return truth


@situation
def a_gap_here_and_a_loss_there(scene: Scene) -> Truth:
    """A segment is missing of a writer that never touched the queue that lost messages."""
    shop = scene.shop().usual(lost=5)
    writer = shop.fleet.process("exporter", "export-a")
    shop.reads(writer, "queue://exports")
    for number in range(60):
        shop.now = START + number * MINUTE
        shop.done("queue://exports")
    mine, others = _split(shop, writer)
    del mine[1]
    scene.write([*mine, *others])
    truth = Truth(NOT_BALANCED, exit_codes=frozenset({2}), complete=False)
    truth.lost_keys = truth.may_be_lost = frozenset(shop.books.lost)
    truth.verdicts = {
        queue: SUSPECT if shop.books.numbers[queue]["unaccounted"] else BALANCED
        for queue in shop.queues
    }
    truth.verdicts["queue://exports"] = UNVERIFIABLE
    return truth


# Writers that died.


@situation
def torn_tail(scene: Scene) -> Truth:
    """A consumer was killed; its segment is open and ends within a line."""
    shop, worker = _with_exports(scene)
    worker.ends = "living"
    for segment in shop.ship(scene.directory):
        if segment.suffix == ".jsonl.open":
            path = scene.directory / segment.path
            path.write_bytes(segment.content()[:-40])
    truth = _tainted(shop, complete=None)  # a living writer's segment looks the same
    truth.verdict = truth.verdicts["queue://exports"] = NOT_SUSPECT
    return truth


@situation
def torn_tail_of_a_closed_segment(scene: Scene) -> Truth:
    """A closed segment was cut within its last line while it was shipped."""
    shop, worker = _with_exports(scene)
    segments = shop.ship(scene.directory)
    mine = next(segment for segment in segments if segment.writer == worker.writer)
    (scene.directory / mine.path).write_bytes(mine.content()[:-40])
    return _tainted(shop, words=(mine.name,))


@situation
def killed_between_segments(scene: Scene) -> Truth:
    """A consumer was killed when it had no open segment: nothing says that its log has ended."""
    shop, worker = _with_exports(scene)
    worker.ends = "killed"
    shop.ship(scene.directory)
    return _tainted(shop, words=(worker.writer,))


def _recovered(scene: Scene, lost_bytes: int) -> tuple[Shop, Process]:
    shop, worker = _with_exports(scene)
    worker.ends = "killed"
    worker.note(
        "log.recovered",
        START + shop.span + MINUTE,
        lost_bytes=lost_bytes,
        recovered_by="export-a-9999-0badcafe",
    )
    shop.ship(scene.directory)
    return shop, worker


@situation
def killed_and_recovered(scene: Scene) -> Truth:
    """The next process closed the log of a killed one; a line was cut off."""
    shop, _ = _recovered(scene, 213)
    return _tainted(shop, words=("213",), complete=None)


@situation
def killed_and_recovered_whole(scene: Scene) -> Truth:
    """The same, and the last line was whole: what was in memory is gone all the same."""
    shop, _ = _recovered(scene, 0)
    truth = _tainted(shop, complete=None)
    truth.verdict = truth.verdicts["queue://exports"] = NOT_SUSPECT
    return truth


@situation
def killed_with_messages_in_hand(scene: Scene) -> Truth:
    """A consumer was killed; the last messages may have been done without a line."""
    shop, worker = _with_exports(scene)
    worker.ends = "killed"
    for number in range(5):
        shop.now = START + shop.span + number * SECOND
        shop.send("queue://exports")
    shop.ship(scene.directory)
    return _tainted(shop, words=(worker.writer,))


# Logs that never came.


@situation
def the_consumers_hosts_are_missing(scene: Scene) -> Truth:
    """The logs of all consumers never came: nobody can tell what they did."""
    shop = scene.shop().usual()
    scene.write(
        [segment for segment in shop.fleet.segments() if not segment.writer.startswith("worker-")]
    )
    unread = shop.truth().numbers["sent"]
    return Truth(
        NOT_BALANCED,
        numbers={"sent": unread, "settled": 0, "unread": unread, "unaccounted": 0},
        verdicts=dict.fromkeys(shop.queues, NOT_BALANCED),
    )


@situation
def one_of_two_consumers_is_missing(scene: Scene) -> Truth:
    """The roster expects two workers, and the log of one never came."""
    shop = scene.shop().usual()
    scene.write(
        [segment for segment in shop.fleet.segments() if not segment.writer.startswith("worker-b")]
    )
    return Truth(
        UNVERIFIABLE,
        options={"expect": {"worker": 2}},
        findings=[("worker", "1", "2")],
    )


@situation
def a_silent_service(scene: Scene) -> Truth:
    """The roster expects a service of which there is no log at all."""
    shop = scene.shop().usual()
    shop.ship(scene.directory)
    return Truth(
        UNVERIFIABLE,
        options={"expect": {"worker": 2, "fraud-check": 1}},
        findings=[("fraud-check",)],
    )


@situation
def the_roster_is_met(scene: Scene) -> Truth:
    """Every service that is expected has its logs here."""
    shop = scene.shop().usual()
    shop.ship(scene.directory)
    return shop.truth(options={"expect": {"worker": 2, "web": 1, "batch": 1}})


@situation
def a_sender_is_missing(scene: Scene) -> Truth:
    """The log of one of two senders never came: what it sent was settled, and is not lost."""
    shop = scene.shop().usual()
    segments = shop.fleet.segments()
    there = [segment for segment in segments if not segment.writer.startswith("batch-")]
    scene.write(there)
    numbers = {"unaccounted": 0, "duplicates": 0}
    numbers["unsent"] = sum(
        line["kind"] == "send" and line["outcome"] == "confirmed"
        for segment in segments
        if segment not in there
        for line in segment.lines
        if isinstance(line, dict)
    )
    return Truth(UNVERIFIABLE, numbers=dict(numbers))
