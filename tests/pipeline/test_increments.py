"""Whatever comes when, and whatever is killed: the tables are those of the folder, read at once."""

from __future__ import annotations

import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
from collections import Counter
from functools import partial as bound
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import jmsx_report
from jmsx_report import merge, segments, store
from jmsx_report.additive import Adds, Partial
from jmsx_report.local import look_again, make, processes
from jmsx_report.overlaps import earlier
from jmsx_report.period import Period
from tests.benchmarks.segments import write

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from jmsx_report.events import Events

A = TypeVar("A")
T = TypeVar("T")
Gold = dict[str, pl.DataFrame]
ROOT: Final = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let small logs have many batches, and merges."""
    monkeypatch.setattr(segments, "BATCH_BYTES", 40_000)
    monkeypatch.setattr(store, "FAN", 4)


def gold(events: Path, out: Path) -> Gold:
    """Make the tables in this process, and read them."""
    tables = jmsx_report.run(events, out, engine=map).tables
    return {name: pl.read_parquet(folder) for name, folder in tables.items()}


def assert_same(left: Gold, right: Gold) -> None:
    """Every cell of every table is equal."""
    assert left.keys() == right.keys()
    for name, table in left.items():
        assert_frame_equal(table, right[name], check_exact=True)


def log(directory: Path, events: int = 1500) -> list[Path]:
    """A day's log; its segments in order of time."""
    write(directory, events=events, segments=24, hours=3)
    return sorted(directory.rglob("*.jsonl"))


def test_hour_after_hour_gives_what_one_run_gives(tmp_path: Path) -> None:
    """New segments are merged into what was there; also those that come late."""
    parts = log(tmp_path / "all")
    order = [*parts[4:], *parts[:4]]  # the first hour comes last
    for begin in range(0, len(order), 8):
        for path in order[begin : begin + 8]:
            target = tmp_path / "some" / path.relative_to(tmp_path / "all")
            target.parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(path, target)
        found = gold(tmp_path / "some", tmp_path / "step")

    assert_same(found, gold(tmp_path / "all", tmp_path / "once"))
    assert len(list((tmp_path / "step" / "partials").glob("*/*/run.json"))) < 16


def test_one_more_hour_makes_its_part_of_a_table(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Those of other hours stay the files that they were; one that somebody took away is made again."""
    monkeypatch.setattr(merge, "SOCKETS_A_PART", 1)
    log(tmp_path / "events")
    (late,) = (tmp_path / "events").glob("*/hour=02")
    late.rename(tmp_path / "late")
    latency = tmp_path / "out" / "tables" / "delivery_latency"
    gold(tmp_path / "events", tmp_path / "out")
    before = {path.name: path.stat().st_ino for path in latency.iterdir()}

    (tmp_path / "late").rename(late)
    gold(tmp_path / "events", tmp_path / "out")
    after = {path.name: path.stat().st_ino for path in latency.iterdir()}
    (latency / min(before)).unlink()
    found = gold(tmp_path / "events", tmp_path / "out")

    assert len(before) == 2
    assert len(after) == 3
    assert before.items() < after.items()
    assert {path.name for path in latency.iterdir()} == after.keys()
    assert_same(found, gold(tmp_path / "events", tmp_path / "fresh"))


def test_what_the_page_keeps_of_a_part_is_as_if_it_were_made_anew(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kept by part, whatever becomes of parts; not believed where it cannot be read, nor for a part of a period."""
    monkeypatch.setattr(merge, "SOCKETS_A_PART", 1)
    log(tmp_path / "events")
    (late,) = (tmp_path / "events").glob("*/hour=02")
    some = sorted(late.parent.glob("hour=01/*"))[::2]
    late.rename(tmp_path / "late")
    first = page(tmp_path / "events", tmp_path / "out")
    kept = tmp_path / "out" / "partials" / "shown"
    before = {path.name: path.stat().st_ino for path in kept.iterdir()}
    (tmp_path / "late").rename(late)
    assert first != page(tmp_path / "events", tmp_path / "out")

    after = {path.name: path.stat().st_ino for path in kept.iterdir()}
    assert before.items() < after.items()
    for name, spoilt in zip(sorted(after), (b"", b"PAR1", None), strict=True):
        if spoilt is None:
            (kept / name).unlink()
        else:
            (kept / name).write_bytes(spoilt)
    fresh = page(tmp_path / "events", tmp_path / "fresh")
    for _ in range(2):
        assert page(tmp_path / "events", tmp_path / "out") == fresh
    half = Period(until_us=1_795_132_800_000_000 + 5_400_000_000)
    cut = page(tmp_path / "events", tmp_path / "out", half)
    assert cut == page(tmp_path / "events", tmp_path / "half", half)
    assert cut != fresh
    for path in some:
        path.unlink()
    fewer = page(tmp_path / "events", tmp_path / "out")
    assert fewer == page(tmp_path / "events", tmp_path / "fewer")
    assert len(list(kept.iterdir())) == len(after)


def page(events: Path, out: Path, asked: Period | None = None) -> str:
    """Make a report in this process, and read its page."""
    return jmsx_report.run(events, out, engine=map, asked=asked).report.read_text()


def test_what_was_read_is_not_read_again(tmp_path: Path) -> None:
    """A second run asks the engine for the new segment only; a third for none."""
    parts = log(tmp_path / "events")
    late = parts.pop()
    late.rename(tmp_path / "late")
    asked: list[str] = []

    def engine(job: Callable[[A], T], todo: Iterable[A]) -> Iterator[T]:
        for each in todo:
            if isinstance(job, bound) and job.func is make and isinstance(each, list):
                asked.extend(part.segment.path for part in each)
            yield job(each)

    jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=engine)
    assert len(asked) == len(parts)
    asked.clear()
    (tmp_path / "late").rename(late)
    jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=engine)
    assert asked == [str(late.relative_to(tmp_path / "events"))]
    asked.clear()
    jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=engine)
    assert asked == []


def test_segments_that_are_gone_or_changed_are_not_counted_as_they_were(tmp_path: Path) -> None:
    """The tables are those of the folder as it is now."""
    parts = log(tmp_path / "events")
    gold(tmp_path / "events", tmp_path / "out")
    parts[5].unlink()
    lines = parts[9].read_bytes().splitlines(keepends=True)
    parts[9].write_bytes(b"".join(lines[:-3]))

    found = gold(tmp_path / "events", tmp_path / "out")

    assert_same(found, gold(tmp_path / "events", tmp_path / "fresh"))
    assert found["event_log_health"]["missing"].sum() > 3


def test_a_segment_that_was_replaced_is_read_again(tmp_path: Path) -> None:
    """By one of the same name, size and time: its ends tell."""
    parts = log(tmp_path / "events")
    gold(tmp_path / "events", tmp_path / "out")
    before = parts[9].stat()
    whole = parts[9].read_bytes()
    parts[9].write_bytes(whole[:-2] + b"?\n")
    os.utime(parts[9], ns=(before.st_atime_ns, before.st_mtime_ns))
    after = parts[9].stat()
    assert (after.st_size, after.st_mtime_ns) == (before.st_size, before.st_mtime_ns)

    found = gold(tmp_path / "events", tmp_path / "out")

    assert_same(found, gold(tmp_path / "events", tmp_path / "fresh"))
    assert found["quarantine"].height == 1


def test_a_page_that_is_being_read_stays_whole(tmp_path: Path) -> None:
    """The next report puts another in its place."""
    log(tmp_path / "events", events=200)
    jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=map, title="first")
    with (tmp_path / "out" / "report.html").open() as page:
        jmsx_report.run(tmp_path / "events", tmp_path / "out", engine=map, title="second")
        assert "first" in page.read()
    assert "second" in (tmp_path / "out" / "report.html").read_text()


@pytest.mark.parametrize("later", [True, False])
def test_a_segment_shipped_again_is_free(tmp_path: Path, later: bool) -> None:
    """Under another name, whole or in part, before or after: the numbers stay, the repeats are told."""
    parts = log(tmp_path / "events")
    whole = gold(tmp_path / "events", tmp_path / "out")
    if not later:
        shutil.rmtree(tmp_path / "out")
    copies = tmp_path / "events" / "a-second-shipment"
    copies.mkdir()
    repeated = 0
    for path in parts[3:6]:
        lines = path.read_bytes().splitlines(keepends=True)
        (copies / path.name).write_bytes(b"".join(lines[len(lines) // 2 :]))
        repeated += len(lines) - len(lines) // 2

    found = gold(tmp_path / "events", tmp_path / "out")

    for name in ("delivery_latency", "redelivery", "dead_letters", "quarantine"):
        assert_frame_equal(found[name], whole[name], check_exact=True)
    assert found["event_log_health"]["repeated"].sum() == repeated
    assert found["event_log_health"]["missing"].sum() == 0


def test_two_writers_of_one_name_are_seen(tmp_path: Path) -> None:
    """The same numbers with other contents: the second is put aside, each of its lines."""
    first = log(tmp_path / "events")[0]
    other = tmp_path / "events" / "zzz" / first.name
    other.parent.mkdir()
    text = first.read_text().replace('"size":256', '"size":257')
    other.write_text(text)
    same = sum('"size":257' not in line for line in text.splitlines())

    found = gold(tmp_path / "events", tmp_path / "out")["quarantine"]

    assert set(found["path"]) == {f"zzz/{first.name}"}
    assert found.height == len(text.splitlines()) - same
    assert "has another content in date=" in found["why"][0]


def test_open_segments_count_up_to_their_last_whole_line(tmp_path: Path) -> None:
    """A living writer's lines are read in every run anew; when it closes the segment, nothing changes."""
    parts = log(tmp_path / "events")
    last = parts[-1]
    whole = last.read_bytes()
    alive = last.with_name(f"{last.name}.open")
    last.unlink()
    lines = whole.splitlines(keepends=True)
    alive.write_bytes(b"".join(lines[:10]) + lines[10][:20])

    some = gold(tmp_path / "events", tmp_path / "out")
    assert some["quarantine"].height == 0
    assert some["files"].select("what", "unread").rows() == [("open", False)]
    alive.write_bytes(b"".join(lines[:20]))
    more = gold(tmp_path / "events", tmp_path / "out")
    alive.write_bytes(whole)
    alive.rename(last)
    found = gold(tmp_path / "events", tmp_path / "out")

    counts = [table["event_log_health"]["lines"].sum() for table in (some, more, found)]
    assert counts == [counts[2] - len(lines) + 10, counts[2] - len(lines) + 20, counts[2]]
    assert_same(found, gold(tmp_path / "events", tmp_path / "fresh"))


def test_no_file_is_passed_over_in_silence(tmp_path: Path) -> None:
    """What is no segment, or cannot be read, is a finding with its reason."""
    events = tmp_path / "events"
    parts = log(events)
    (events / ".x.jsonl").touch()
    (events / "_x.jsonl").touch()
    (events / "x.jsonl.gz").write_bytes(gzip.compress(b"{}"))
    (events / "notes.txt").touch()
    (events / "x.jsonl.1").touch()
    (events / "gone.jsonl").symlink_to(events / "nowhere")
    (events / "around").symlink_to(events)
    old = events / "old-000000000000.jsonl.open"
    old.touch()
    os.utime(old, (1, 1))

    found = gold(events, events / "out")["files"].select("path", "what", "unread").rows()

    assert found == [
        (".x.jsonl", "hidden", True),
        ("_x.jsonl", "hidden", True),
        ("gone.jsonl", "dangling", True),
        ("notes.txt", "other", False),
        ("old-000000000000.jsonl.open", "stale", False),
        ("x.jsonl.1", "other", True),
        ("x.jsonl.gz", "compressed", True),
    ]
    assert len(parts) == 24


def test_no_value_breaks_a_table(tmp_path: Path) -> None:
    """Timestamps of 0 and of the year 9999, thousands of them: sums do not overflow."""
    end = 253_402_300_799_999_999
    story = {
        "v": 1,
        "kind": "delivery",
        "writer": "w",
        "dest": "queue://a",
        "consumer": "c",
        "msg_key": "k",
    }
    with (tmp_path / "w-000000000000.jsonl").open("w") as file:
        for seq in range(6000):
            times = {"sent_us": 0, "recv_us": -end, "start_us": -end, "end_us": end, "ts_us": end}
            told = story | {"seq": seq, "attempt": 1 + seq % 2, "outcome": "acknowledged"} | times
            file.write(json.dumps(told, separators=(",", ":")) + "\n")

    found = gold(tmp_path, tmp_path / "out")

    (row,) = found["delivery_latency"].rows(named=True)
    assert (row["n"], row["service"]) == (6000, None)
    assert row["handler_mean_us"] == pytest.approx(2 * end)
    assert found["quarantine"].height == 0


def test_only_writers_that_overlap_are_compared() -> None:
    """Of each segment, those before it by name that share a number of one writer."""
    ranges = pl.DataFrame(
        [
            ("a", "w", 0, 9),
            ("b", "w", 10, 19),
            ("c", "w", 5, 11),
            ("d", "v", 0, 9),
            ("e", "v", 10, 10),
            ("f", "u", 0, 99),
            ("g", "u", 3, 4),
            ("h", "u", 6, 7),
        ],
        schema=["segment", "writer", "low", "high"],
        orient="row",
    )

    assert earlier(ranges) == {"c": ("a", "b"), "g": ("f",), "h": ("f",)}


_CHILD: Final = """
import os, signal, sys
from pathlib import Path
from tests.pipeline import test_increments as tests
tests.segments.BATCH_BYTES, tests.store.FAN = 40_000, 4
point, steps = int(sys.argv[3]), 0
def dying(name):
    real = getattr(Path, name)
    def step(self, *arguments, **options):
        global steps
        for _ in range(2):  # before it is done, and after
            if steps == point:
                os.kill(os.getpid(), signal.SIGKILL)
            steps += 1
            if steps % 2:
                done = real(self, *arguments, **options)
        return done
    setattr(Path, name, step)
dying("rename")
dying("write_text")
tests.gold(Path(sys.argv[1]), Path(sys.argv[2]))
print(steps)
"""


def test_a_report_that_is_killed_leaves_nothing_that_is_wrong(tmp_path: Path) -> None:
    """A process that is killed while it reads, merges and writes tables; each step of the partials has its own test."""
    log(tmp_path / "events")
    expected = gold(tmp_path / "events", tmp_path / "fresh")
    points = _dies(tmp_path, 10**9)
    assert points is not None
    assert points > 20

    out = tmp_path / "out"
    for point in (2, points // 2, points // 2 + 1, points - 3):
        shutil.rmtree(out)
        assert _dies(tmp_path, point) is None
        assert_same(gold(tmp_path / "events", out), expected)


def _dies(folder: Path, point: int) -> int | None:
    """Have a report killed at its step `point`; the number of steps, if it has fewer."""
    command = [
        sys.executable,
        "-c",
        _CHILD,
        str(folder / "events"),
        str(folder / "out"),
        str(point),
    ]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode in (0, -signal.SIGKILL), done.stderr
    return int(done.stdout) if done.returncode == 0 else None


def test_the_engine_is_asked_for_open_segments_apart() -> None:
    """What will have grown by the next run must not have the rest read again."""
    closed = [segments.Segment(f"a-{number}.jsonl", 10, 0) for number in range(3)]
    alive = segments.Segment("a-1.jsonl.open", 10, 0)

    assert list(segments.batches([*closed, alive])) == [tuple(closed), (alive,)]


def test_a_table_made_hour_by_hour_is_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log of many rows is added up some hours at a time, so that memory is bounded."""
    log(tmp_path / "events")
    monkeypatch.setattr(merge, "SOCKETS_A_PART", 10_000)
    whole = gold(tmp_path / "events", tmp_path / "out")
    assert len(list((tmp_path / "out" / "tables" / "delivery_latency").glob("*.parquet"))) == 1
    monkeypatch.setattr(merge, "SOCKETS_A_PART", 1)

    found = gold(tmp_path / "events", tmp_path / "out")

    assert len(list((tmp_path / "out" / "tables" / "delivery_latency").glob("*.parquet"))) > 2
    by = ["dest", "consumer", "minute_us"]
    assert_frame_equal(
        found["delivery_latency"].sort(by), whole["delivery_latency"].sort(by), check_exact=True
    )


def sends_to(dest: str) -> Partial:
    """Count sends to one destination, by writer; for a second look."""

    def count(events: Events) -> pl.DataFrame:
        sends = events.of("send").filter(dest=dest)
        return sends.group_by("writer").agg(pl.len().cast(pl.Int64).alias("n"))

    return Partial("sends_to", ("writer",), {"n": Adds.SUM}, count)


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 2, 1, 0), (1, 3, 0, 2), (2, 0, 3, 1)])
def test_a_redelivery_that_was_given_back_counts_once(
    tmp_path: Path, order: tuple[int, ...]
) -> None:
    """It came when it was handed over, in whichever order the segments with its lines come."""
    at = 1_795_132_800_000_000
    here = {"session_id": "s", "epoch": 1, "dest": "queue://q", "consumer": "c", "msg_key": "k"}
    lines: list[dict[str, object]] = [
        {"kind": "delivery", "attempt": 1, "start_us": at, "outcome": "rolled_back"},
        {"kind": "redelivery.scheduled", "next_attempt": 2, "delay_us": 1_000_000},
        {"kind": "delivery", "attempt": 2, "outcome": "released"},
        {"kind": "delivery", "attempt": 2, "start_us": at + 9_000_000, "outcome": "acknowledged"},
    ]
    for seq in order:
        own = {"v": 1, "writer": "w-1-0", "seq": seq, "ts_us": at + seq * 3_000_000}
        line = json.dumps({"v": 1, "kind": lines[seq]["kind"], **own, **here, **lines[seq]})
        (tmp_path / "events").mkdir(exist_ok=True)
        (tmp_path / "events" / f"w-1-0-{seq:012}.jsonl").write_text(line + "\n")
        found = gold(tmp_path / "events", tmp_path / "out")["redelivery"]

    assert found["scheduled"].to_list() == [1]
    assert found["delay_actual_mean_us"].to_list() == [6_000_000.0]
    assert_frame_equal(
        found, gold(tmp_path / "events", tmp_path / "once")["redelivery"], check_exact=True
    )


def test_a_redelivery_begins_with_the_first_hand_over_wherever_that_lies(tmp_path: Path) -> None:
    """Also where a batch has a copy of that line, which was taken from another one."""
    at = 1_795_132_800_000_000
    here = {"session_id": "s", "epoch": 1, "dest": "queue://q", "consumer": "c", "msg_key": "k"}
    told: list[dict[str, object]] = [
        {"kind": "redelivery.scheduled", "next_attempt": 2, "delay_us": 1_000_000},
        {"kind": "delivery", "attempt": 2, "start_us": at + 4_000_000, "outcome": "released"},
        {"kind": "delivery", "attempt": 2, "start_us": at + 9_000_000, "outcome": "acknowledged"},
    ]
    lines = [
        json.dumps({"v": 1, "writer": "w-1-0", "seq": seq, "ts_us": at + seq, **here, **one})
        for seq, one in enumerate(told)
    ]
    (tmp_path / "events").mkdir()
    (tmp_path / "events" / "w-1-0-000000000001.jsonl").write_text(lines[1] + "\n")
    gold(tmp_path / "events", tmp_path / "out")
    (tmp_path / "events" / "w-1-0-000000000002.jsonl").write_text("\n".join([*lines, ""]))
    found = gold(tmp_path / "events", tmp_path / "out")["redelivery"]

    assert found["delay_actual_mean_us"].to_list() == [4_000_000.0]
    assert_frame_equal(
        found, gold(tmp_path / "events", tmp_path / "once")["redelivery"], check_exact=True
    )


def test_a_second_look_reads_only_what_it_is_given(tmp_path: Path) -> None:
    """A partial that nobody keeps, of some segments, made by several processes."""
    log(tmp_path / "events")
    found = segments.survey(tmp_path / "events").segments
    parts = [[store.Part(segment)] for segment in found[:4]]

    looked = look_again(
        sends_to, "queue://orders", parts, tmp_path / "events", bound(processes, workers=2)
    )

    texts = [(tmp_path / "events" / each.path).read_text().splitlines() for each in found[:4]]
    lines = [json.loads(line) for text in texts for line in text]
    sent = Counter(
        line["writer"]
        for line in lines
        if (line["kind"], line.get("dest")) == ("send", "queue://orders")
    )
    assert dict(looked.rows()) == sent != {}
