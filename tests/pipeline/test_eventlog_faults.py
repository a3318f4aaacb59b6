"""The event log when the disk is full, the process is killed, or it forks: real processes, real errors."""

from __future__ import annotations

import json
import os
import signal
import struct
import subprocess
import sys
import threading
import time
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx_eventlog import recover_orphans
from tests.pipeline.lines import lines, of_kind, segments
from tests.pipeline.simulator import SOURCE, Clock, delivery, open_log, seeded

if TYPE_CHECKING:
    from collections.abc import Iterator

_ROOT: Final = Path(__file__).parents[2]
#: When a call of `observe` began and ended: seconds, monotonic.
_CALL: Final = struct.Struct("dd")
_CALLS: Final = 2_000_000
_START: Final = """
import json, os, random, resource, sys, threading, time
from pathlib import Path
from tests.pipeline.simulator import SOURCE, Clock, delivery, open_log, sent
from jmsx.core.events import AckTrigger, MessagesAcknowledged
directory, chance = Path(sys.argv[1]), random.Random(1)

def deliveries(count):
    return [delivery(f"{n:032x}", "queue://orders", 1.0, chance) for n in range(count)]

def wait_until(condition):
    deadline = time.monotonic() + 20
    while not condition():
        assert time.monotonic() < deadline
        time.sleep(0.01)

def allow(size):  # bytes that a file may have; beyond it every write fails
    sys.dont_write_bytecode = True  # what Python compiles of a module would be cut short, and taken for whole by others
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))

def tell_abreast(log, told):  # by four threads at once, all that they can; `longest` is for one of the events in `told`
    longest, counts = [], []
    def tell():
        worst, count = 0.0, 0
        for events in told:
            began = time.monotonic()
            for event in events: log.observe(event, SOURCE)
            worst, count = max(worst, time.monotonic() - began), count + len(events)
        longest.append(worst)
        counts.append(count)
    threads = [threading.Thread(target=tell) for _ in range(4)]
    for thread in threads: thread.start()
    most = 0
    while any(thread.is_alive() for thread in threads):
        most = max(most, log.queued)
        time.sleep(0.001)
    log.close()
    print(json.dumps({
        "told": sum(counts), "dropped": log.dropped, "longest": max(longest), "most": most, "records": log.records
    }))
"""


def start(script: str, directory: Path) -> subprocess.Popen[str]:
    """Run `script` in a process of its own."""
    return subprocess.Popen(
        [sys.executable, "-c", _START + script, str(directory)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        cwd=_ROOT,
        # Unbuffered: some end by os._exit(), and stderr may be a file of pytest's, which cannot be written either.
        env=os.environ | {"PYTHONPATH": str(_ROOT), "PYTHONUNBUFFERED": "1"},
        text=True,
    )


def told_by(script: str, directory: Path) -> dict[str, Any]:
    """Run `script` to its end; what it printed last, as JSON."""
    with start(script, directory) as process:
        told, _ = process.communicate(timeout=60)
    assert process.returncode == 0
    found: dict[str, Any] = json.loads(told.splitlines()[-1])
    return found


@pytest.fixture
def writing(tmp_path: Path) -> Iterator[subprocess.Popen[str]]:
    """Run a process that writes 3000 deliveries, says so, and then writes on until it is killed."""
    script = """
log = open_log(directory, Clock(), segment_bytes=400_000, sync="none")
events = deliveries(3000)
for event in events: log.observe(event, SOURCE)
wait_until(lambda: log.records > 3000)
print(log.writer, flush=True)
while True:
    for event in events[:20]: log.observe(event, SOURCE)
    time.sleep(0.001)
"""
    with start(script, tmp_path) as process:
        yield process
        process.kill()


def test_a_full_disk_costs_a_counted_number_of_events(tmp_path: Path) -> None:
    """
    With the disk full delivery goes on; when it is back the log says exactly what is missing.

    5000 deliveries and 5000 ACKs meet a queue of 300: the first delivery without room waits, no other does.
    """
    told = told_by(
        """
log = open_log(directory, Clock(), queue_events=300, patience_seconds=0.3)
wait_until(lambda: log.records)
allow(0)
acked = MessagesAcknowledged(at=1.0, consumer="c", destination="queue://orders", messages=1, trigger=AckTrigger.EACH)
began = time.monotonic()
for event in deliveries(5000):
    log.observe(event, SOURCE)
    log.observe(acked, SOURCE)
took = time.monotonic() - began
wait_until(lambda: log.errors > 2)
dropped = log.dropped
allow(resource.RLIM_INFINITY)
wait_until(lambda: log.queued == 0)
log.observe(deliveries(1)[0], SOURCE)
log.close()
print(json.dumps({"took": took, "dropped": dropped, "end": log.dropped, "records": log.records}))
""",
        tmp_path,
    )

    found = lines(tmp_path)
    gaps = Counter[str]()
    for gap in of_kind(found, "log.gap"):
        gaps[gap["dropped_kind"]] += gap["dropped"]
    kept = {kind: len(of_kind(found, kind)) for kind in ("delivery", "ack.batch")}
    assert [line["seq"] for line in found] == list(range(told["records"]))
    assert {kind: kept[kind] + gaps[kind] for kind in kept} == {"delivery": 5001, "ack.batch": 5000}
    assert told["dropped"] == told["end"] == sum(gaps.values()) == found[-1]["dropped"]
    assert told["dropped"] > 8000
    assert 0.3 <= told["took"] < 3.0


def test_each_time_that_the_disk_is_full_is_told_with_the_folder(tmp_path: Path) -> None:
    """Once each: whoever has made room hears of the next time, too, and which disk it is."""
    told = told_by(
        """
import logging
said = []
handler = logging.Handler()
handler.emit = lambda record: said.append(record.getMessage())
logging.getLogger("jmsx.eventlog").addHandler(handler)
log = open_log(directory, Clock())
wait_until(lambda: log.records)
for event in deliveries(2):
    errors, records = log.errors, log.records
    allow(0)
    log.observe(event, SOURCE)
    wait_until(lambda: log.errors > errors + 1)
    allow(resource.RLIM_INFINITY)
    wait_until(lambda: log.records > records)
log.close()
print(json.dumps({"said": said, "writer": log.writer}))
""",
        tmp_path,
    )
    away, back = "event log cannot be written", "event log can be written again"
    assert [line.split("'")[1] for line in told["said"]] == [away, back, away, back]
    assert all(f"directory='{tmp_path}'" in line for line in told["said"])


def test_a_write_that_fails_halfway_leaves_no_torn_line(tmp_path: Path) -> None:
    """The disk is full in the middle of a line; after it is back the line stands there once."""
    told = told_by(
        """
log = open_log(directory, Clock())
wait_until(lambda: log.records)
allow(100_000)
for event in deliveries(2000): log.observe(event, SOURCE)
wait_until(lambda: log.errors > 1)
allow(resource.RLIM_INFINITY)
log.close()
print(json.dumps({"errors": log.errors, "dropped": log.dropped}))
""",
        tmp_path,
    )

    found = lines(tmp_path)
    assert told["errors"] > 1
    assert told["dropped"] == 0
    assert [line["seq"] for line in found] == list(range(2002))


def test_what_was_written_before_the_disk_was_full_is_forced_to_it(tmp_path: Path) -> None:
    """Also while what comes behind it cannot be written: a loss of power costs no more than it must."""
    told = told_by(
        """
from jmsx_eventlog import EventLog
log = EventLog(directory, service="shop")
wait_until(lambda: log.records and not log.unsynced_seconds)
for event in deliveries(50): log.observe(event, SOURCE)
wait_until(lambda: log.records > 50)
allow(0)
for event in deliveries(50): log.observe(event, SOURCE)
unsynced = []
wait_until(lambda: unsynced.append(log.unsynced_seconds) or (log.errors > 12 and unsynced[-1] == 0))
print(json.dumps({"errors": log.errors, "longest": max(unsynced)}))
os._exit(0)
""",
        tmp_path,
    )
    assert told["longest"] < 10


def test_close_gives_up_on_a_disk_that_stays_full(tmp_path: Path) -> None:
    """An application can always end; the log has no `log.close`, so a reader knows."""
    told = told_by(
        """
log = open_log(directory, Clock(), close_seconds=0.5)
wait_until(lambda: log.records)
allow(0)
for event in deliveries(100): log.observe(event, SOURCE)
began = time.monotonic()
log.close()
print(json.dumps({"took": time.monotonic() - began, "dropped": log.dropped}))
""",
        tmp_path,
    )

    assert told["took"] < 3.0
    assert told["dropped"] >= 100
    [orphan] = recover_orphans(tmp_path)
    assert orphan.lost_bytes == 0
    assert [line["kind"] for line in lines(tmp_path)] == ["log.open", "log.recovered"]


@pytest.mark.parametrize("torn", [b"", b'{"v":1,"kind":"deliv', b"\0" * 512, b'{"v":1}\n{"torn'])
def test_a_killed_writer_is_recovered_to_its_last_whole_line(
    tmp_path: Path, writing: subprocess.Popen[str], torn: bytes
) -> None:
    """After SIGKILL the next writer cuts off the torn end and says how long it was."""
    assert writing.stdout is not None
    dead = writing.stdout.readline().strip()
    writing.send_signal(signal.SIGKILL)
    writing.wait()
    [orphan] = segments(tmp_path, ".open")
    with orphan.open("ab") as end:
        end.write(torn)
    *_, last = orphan.read_bytes().removesuffix(torn).splitlines()

    open_log(tmp_path, Clock()).close()

    found = lines(tmp_path, dead)
    assert [line["seq"] for line in found] == list(range(len(found)))
    assert len(found) > 3000
    assert json.loads(last) == found[-2]
    assert ("log.recovered", len(torn)) == (found[-1]["kind"], found[-1]["lost_bytes"])
    assert segments(tmp_path, ".open") == []


def test_a_living_writer_is_left_alone(tmp_path: Path, writing: subprocess.Popen[str]) -> None:
    """Nobody touches the segment of a process that still runs, whatever its age."""
    assert writing.stdout is not None
    living = writing.stdout.readline().strip()

    assert recover_orphans(tmp_path, any_host=True) == []

    assert living in segments(tmp_path, ".open")[0].name
    assert of_kind(lines(tmp_path), "log.recovered") == []


def test_orphans_of_another_host_wait_for_it(tmp_path: Path) -> None:
    """On a shared disk a lock may not reach far enough, so only the own host is looked after."""
    folder = tmp_path / "date=2026-01-01" / "hour=00"
    folder.mkdir(parents=True)
    orphan = folder / "elsewhere-1-0123abcd-000000000005.jsonl.open"
    orphan.write_text('{"seq":5,"writer":"x"}\n{"seq":6,"writer":"x"}\n')

    assert recover_orphans(tmp_path) == []
    [recovered] = recover_orphans(tmp_path, any_host=True)

    assert (recovered.writer, recovered.lost_bytes) == ("elsewhere-1-0123abcd", 0)
    assert lines(tmp_path)[-1]["seq"] == 7


def test_a_forked_child_writes_its_own_log(tmp_path: Path) -> None:
    """Parent and child both keep a whole log, under two names."""
    told = told_by(
        """
log = open_log(directory, Clock())
for event in deliveries(100): log.observe(event, SOURCE)
child = os.fork()
for event in deliveries(50 if child else 30): log.observe(event, SOURCE)
log.close()
if not child: os._exit(0)
_, status = os.waitpid(child, 0)
print(json.dumps({"writer": log.writer, "child": status}))
""",
        tmp_path,
    )

    found = lines(tmp_path)
    child = {line["writer"] for line in found} - {told["writer"]}
    assert told["child"] == 0
    assert len(lines(tmp_path, told["writer"])) == 150 + 2
    assert list(range(30 + 2)) == [line["seq"] for line in lines(tmp_path, child.pop())]
    assert child == set()


def test_the_writers_thread_imports_nothing(tmp_path: Path) -> None:
    """In the child of a fork nobody ends an import at which that thread was, and whoever needs it waits for ever."""
    imported = told_by(
        """
found = []

class Finder:
    def find_spec(self, name, path=None, target=None):
        if threading.current_thread() is not threading.main_thread(): found.append(name)

sys.meta_path.insert(0, Finder())
log = open_log(directory, Clock())
for event in deliveries(100): log.observe(event, SOURCE)
log.close()
print(json.dumps({"found": found}))
""",
        tmp_path,
    )
    assert imported == {"found": []}


def test_a_log_that_is_closed_as_the_program_ends_is_whole(tmp_path: Path) -> None:
    """Python from 3.12 on starts no thread any more then, and so none may be needed for the first time."""
    script = """
import atexit
log = open_log(directory, Clock(), segment_bytes=2_000)
atexit.register(log.close)
for event in deliveries(100): log.observe(event, SOURCE)
print("{}")
"""

    told_by(script, tmp_path)

    assert [line["seq"] for line in lines(tmp_path)] == list(range(102))
    assert list(tmp_path.rglob("*.open")) == []


def test_where_no_further_thread_can_be_started_the_disk_holds_up_the_writer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a limit of processes the log is slower, and not incomplete."""
    start_any = threading.Thread.start

    def start_some(thread: threading.Thread) -> None:
        if thread.name == "jmsx-eventlog-disk":
            raise RuntimeError("can't start new thread")
        start_any(thread)

    monkeypatch.setattr(threading.Thread, "start", start_some)
    log = open_log(tmp_path, Clock(), segment_bytes=20_000)
    for number in range(200):
        log.observe(delivery(f"{number:032x}", "queue://a", 1.0, seeded(1)), SOURCE)
    log.close()

    assert (log.dropped, log.records) == (0, 202)
    assert [line["seq"] for line in lines(tmp_path)] == list(range(202))


def test_a_writer_that_dies_is_told_and_keeps_nothing_back(tmp_path: Path) -> None:
    """Whatever broke it: what it had not written is counted as dropped, and what comes later, and nobody waits."""
    broken = threading.Event()

    class Failing(Clock):
        def wall(self) -> float:
            if broken.is_set():
                raise MemoryError
            return super().wall()

    log = open_log(tmp_path, Failing())
    event = delivery("0" * 32, "queue://a", 1.0, seeded(1))
    log.observe(event, SOURCE)
    while log.records < 2:
        time.sleep(0.01)
    broken.set()
    for _ in range(5_000):
        log.observe(event, SOURCE)
    log.close()

    assert (log.queued, log.dropped, log.errors) == (0, 5_000, 1)
    assert [one.lost_bytes for one in recover_orphans(tmp_path)] == [0]
    assert [line["kind"] for line in lines(tmp_path)] == ["log.open", "delivery", "log.recovered"]


def test_a_segment_that_went_on_elsewhere_gets_no_line(tmp_path: Path) -> None:
    """A writer that had to leave a segment behind used its numbers again, so none is given out."""
    log = open_log(tmp_path, Clock(), segment_bytes=20_000)
    for number in range(200):
        log.observe(delivery(f"{number:032x}", "queue://a", 1.0, seeded(1)), SOURCE)
    log.close()
    first = segments(tmp_path)[0]
    first.rename(first.with_name(first.name + ".open"))

    recover_orphans(tmp_path)

    assert [line["seq"] for line in lines(tmp_path)] == list(range(202))


def test_overload_drops_no_delivery(tmp_path: Path) -> None:
    """Four threads that tell all they can are held back; every line is there, and nobody's patience ends."""
    told = told_by(
        """
acked = MessagesAcknowledged(at=1.0, consumer="c", destination="queue://orders", messages=1, trigger=AckTrigger.EACH)
told = [(event, acked) for event in deliveries(10_000)]
tell_abreast(open_log(directory, Clock(), patience_seconds=20), told)
""",
        tmp_path,
    )

    found = lines(tmp_path)
    assert [line["seq"] for line in found] == list(range(told["records"]))
    assert len(of_kind(found, "delivery")) == len(of_kind(found, "ack.batch")) == 40_000
    assert told["dropped"] == 0
    assert told["most"] <= 1000 + 4
    assert told["longest"] < 20


def test_a_process_that_was_stopped_is_no_disk_that_takes_nothing(tmp_path: Path) -> None:
    """Stopped for longer than patience lasts, it leaves nothing out when it goes on."""
    script = """
acked = MessagesAcknowledged(at=1.0, consumer="c", destination="queue://orders", messages=1, trigger=AckTrigger.EACH)
class UntilTold:
    def __iter__(self):
        while not told: yield (acked,)
told = []
threading.Thread(target=lambda: told.append(sys.stdin.readline())).start()
print("begun", flush=True)
tell_abreast(open_log(directory, Clock(), patience_seconds=0.4), UntilTold())
"""
    with start(script, tmp_path) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        process.stdout.readline()
        for _ in range(5):
            time.sleep(0.2)
            process.send_signal(signal.SIGSTOP)
            time.sleep(0.5)
            process.send_signal(signal.SIGCONT)
        told = json.loads(process.communicate("enough\n", timeout=60)[0])

    assert told["dropped"] == 0
    assert told["most"] <= 1000 + 4


def test_a_disk_that_is_only_slow_costs_no_line(tmp_path: Path) -> None:
    """
    Whoever waits for room is not passed over by others until his patience ends: nothing is left out.

    Four threads tell until the disk has been written to 150 times. With a processor to themselves they fill each write
    with 500 events; on a busy machine they get few in before the oldest is 10 ms old, so a number of events is no end.
    """
    told = told_by(
        """
from jmsx_eventlog import segment
append, writes = segment.Segment.append, 0
def slowly(self, lines):
    global writes
    writes += 1
    time.sleep(0.02)
    append(self, lines)
segment.Segment.append = slowly
acked = MessagesAcknowledged(at=1.0, consumer="c", destination="queue://orders", messages=1, trigger=AckTrigger.EACH)
class UntilWritten:
    def __iter__(self):
        while writes < 150: yield (acked,)
tell_abreast(open_log(directory, Clock(), patience_seconds=0.3), UntilWritten())
""",
        tmp_path,
    )

    found = lines(tmp_path)
    assert told["dropped"] == 0
    assert [line["seq"] for line in found] == list(range(told["records"]))
    assert len(of_kind(found, "ack.batch")) == told["told"] >= 4
    assert told["most"] <= 1000 + 4


def test_a_disk_that_takes_nothing_for_a_while_costs_no_delivery(tmp_path: Path) -> None:
    """Rare events go first: what is audited is kept in memory, and written when the disk takes it."""
    told = told_by(
        """
log = open_log(directory, Clock(), patience_seconds=0.1)
wait_until(lambda: log.records)
allow(0)
acked = MessagesAcknowledged(at=1.0, consumer="c", destination="queue://orders", messages=1, trigger=AckTrigger.EACH)
for event in deliveries(5000):
    log.observe(event, SOURCE)
    log.observe(acked, SOURCE)
allow(resource.RLIM_INFINITY)
log.close()
print(json.dumps({"dropped": log.dropped, "by_kind": log.dropped_by_kind(), "records": log.records}))
""",
        tmp_path,
    )

    found = lines(tmp_path)
    assert [line["seq"] for line in found] == list(range(told["records"]))
    assert len(of_kind(found, "delivery")) == 5000
    assert told["by_kind"] == {"ack.batch": told["dropped"]}
    assert len(of_kind(found, "ack.batch")) == 5000 - told["dropped"]
    assert told["dropped"] > 3000


@pytest.mark.parametrize("pause", [0.0, 0.0002, 0.002])
def test_a_kill_costs_no_more_than_a_thousand_events_and_10_ms(
    tmp_path: Path, pause: float
) -> None:
    """A process that tells all it can, or now and then, is killed: the rest is with the operating system."""
    script = f"""
import mmap, struct
log = open_log(directory / "log", Clock(), sync="none")
events = deliveries(1000)
with (directory / "told").open("wb+") as file:
    file.truncate({_CALL.size} * {_CALLS})
    calls = mmap.mmap(file.fileno(), 0)
print("telling", flush=True)
for number in range({_CALLS}):
    began = time.monotonic()
    log.observe(events[number % 1000], SOURCE)
    struct.pack_into("{_CALL.format}", calls, {_CALL.size} * number, began, time.monotonic())
    if {pause}: time.sleep({pause})
"""
    lost = []
    for run in range(8):
        directory = tmp_path / str(run)
        directory.mkdir()
        with start(script, directory) as process:
            assert process.stdout is not None
            process.stdout.readline()
            time.sleep(0.05 + seeded(run).random() / 2)
            process.kill()
        (directory / "log").mkdir(exist_ok=True)
        recover_orphans(directory / "log")
        found = lines(directory / "log")
        assert [line["seq"] for line in found] == list(range(len(found)))
        kept = len(of_kind(found, "delivery"))
        calls = [call for call in _CALL.iter_unpack((directory / "told").read_bytes()) if call[1]]
        assert len(calls) < _CALLS
        lost.append(len(calls) - kept)
        if lost[-1] > 0:
            assert calls[-1][0] - calls[kept][1] <= 0.010

    assert max(lost) <= 1000
    assert min(lost) >= -1  # that the last one was told may not have been noted


def test_a_disk_that_takes_its_time_holds_up_who_tells(tmp_path: Path) -> None:
    """While a write takes 50 ms nothing is told that comes more than 10 ms behind what it has not written."""
    told = told_by(
        """
from jmsx_eventlog import segment
append, calls, ages, written = segment.Segment.append, [], [], 0
def slowly(self, lines):
    global written
    time.sleep(0.05)
    if calls and written < len(calls):
        last = calls[-1][0]
        ages.append(last - calls[written][1])
    append(self, lines)
    written += lines.count(b'"kind":"delivery"')
segment.Segment.append = slowly
log = open_log(directory, Clock())
for event in deliveries(600):
    began = time.monotonic()
    log.observe(event, SOURCE)
    calls.append((began, time.monotonic()))
    time.sleep(0.0005)
log.close()
print(json.dumps({"oldest": max(ages), "writes": len(ages), "dropped": log.dropped}))
""",
        tmp_path,
    )

    assert told["writes"] > 3
    assert told["oldest"] <= 0.010
    assert told["dropped"] == 0
    assert len(of_kind(lines(tmp_path), "delivery")) == 600


def test_nobody_waits_until_the_disk_has_what_was_written(tmp_path: Path) -> None:
    """To force lines to a slow disk holds up neither who tells nor what is written meanwhile."""
    told = told_by(
        """
from jmsx_eventlog import EventLog, segment
forced = []
def slowly(fd):
    time.sleep(0.5)
    forced.append(fd)
segment.os.fdatasync = segment.os.fsync = slowly
log = EventLog(directory, service="shop")
longest, most, unsynced, begun = 0.0, 0, 0.0, time.monotonic()
while time.monotonic() - begun < 3:
    began = time.monotonic()
    for event in deliveries(5): log.observe(event, SOURCE)
    longest = max(longest, time.monotonic() - began)
    unsynced = max(unsynced, log.unsynced_seconds)
    time.sleep(0.001)
log.close()
print(json.dumps({"forced": len(forced), "longest": longest, "unsynced": unsynced, "dropped": log.dropped}))
""",
        tmp_path,
    )

    assert told["forced"] >= 3
    assert told["longest"] < 0.4
    assert told["unsynced"] > 0.5
    assert told["dropped"] == 0
    assert of_kind(lines(tmp_path), "log.close")
