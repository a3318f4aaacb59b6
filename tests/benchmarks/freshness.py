"""
How fresh a stream is: `uv run python -m tests.benchmarks.freshness [--rate N] [--seconds N] [--trigger N] [--every N]`.

Lines are appended to open segments at a rate, every 20 ms, by a process of its own, and segments are closed as they are
full. Of each line is measured when the partials that it is in are on the disk, after it was written; what never was is
as old as it gets. The seconds in which Spark starts are not measured, but those are in which it is not warm. The clock
of a busy machine says little.
"""

from __future__ import annotations

import argparse
import math
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from threading import Event, Thread
from typing import TYPE_CHECKING, Any, Final

import pytest

from jmsx_report.reports import extend
from jmsx_spark import streaming
from tests.benchmarks.segments import write

if TYPE_CHECKING:
    from collections.abc import Iterable

    from jmsx_report.segments import Segment

_TICK: Final = 0.02
_WARM: Final = "warm-{}-00000000-000000000000.jsonl"
#: So long is waited for lines that have been written.
_PATIENCE: Final = 60.0


def replay(source: Path, events: Path, rate: int) -> None:
    """Write what lies in `source` to `events`, a pair of writers after the other; prints time, path and size."""
    turns: dict[str, list[Path]] = {}
    for path in sorted(source.rglob("*.jsonl")):
        turns.setdefault(path.name.rpartition("-")[0], []).append(path)
    begun, written = time.time(), 0
    for paths in zip(*turns.values(), strict=True):
        whole = [path.read_bytes().splitlines(keepends=True) for path in paths]
        targets = [events / f"{path.relative_to(source)}.open" for path in paths]
        for target in targets:
            target.parent.mkdir(parents=True, exist_ok=True)
        files = [target.open("ab", buffering=0) for target in targets]
        at = [0] * len(paths)
        share = max(1, round(rate * _TICK / len(paths)))
        while any(at[number] < len(lines) for number, lines in enumerate(whole)):
            for number, lines in enumerate(whole):
                some = lines[at[number] : at[number] + share]
                at[number] += len(some)
                written += len(some)
                if some:
                    files[number].write(b"".join(some))
                    told = targets[number].relative_to(events)
                    print(time.time(), told, files[number].tell(), len(some), flush=True)
            time.sleep(max(0.0, begun + written / rate - time.time()))
        for file, target in zip(files, targets, strict=True):
            file.close()
            target.rename(target.with_name(target.name.removesuffix(".open")))
    print("end", flush=True)


def main() -> None:
    """Write a log, replay it, and print how old lines were when they were in the partials."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.benchmarks.freshness", description=__doc__
    )
    parser.add_argument("--rate", type=float, default=40_000, help="lines a second")
    parser.add_argument("--seconds", type=float, default=30)
    parser.add_argument("--trigger", type=float, default=0.2)
    parser.add_argument(
        "--every", type=float, default=math.inf, help="seconds between reports; else none is made"
    )
    parser.add_argument("--replay", nargs=3, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.replay:
        source, events, rate = given.replay
        replay(Path(source), Path(events), round(float(rate)))
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        write(work / "source", events=round(given.rate * given.seconds), segments=24, hours=3)
        (work / "events").mkdir()
        _measure(work, given.rate, given.trigger, given.every)


def _measure(work: Path, rate: float, trigger: float, every: float) -> None:
    added: list[tuple[float, str, int, int]] = []

    def timed(store: Any, pieces: Iterable[Segment], *rest: Any) -> None:
        listed = list(pieces)
        extend(store, listed, *rest)
        now = time.time()
        added.extend((now, one.path, one.begin, one.size) for one in listed)

    told, over = work / "told", Event()
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(streaming, "extend", timed)
        Thread(target=_write, args=(work, told, rate, added, over), daemon=True).start()
        begun = time.monotonic()
        for made in streaming.stream(
            work / "events",
            work / "out",
            trigger_seconds=trigger,
            report_seconds=every,
            is_enough=over.is_set,
        ):
            print(f"{time.monotonic() - begun:.1f} s: {made.line}", flush=True)
    _print(told, added)


def _write(
    work: Path, told: Path, rate: float, added: list[tuple[float, str, int, int]], over: Event
) -> None:
    """Write the log as soon as Spark has read something, and wait until all of it was read."""
    events = work / "events"
    for number in range(2):  # the first batches start what is needed of Spark
        (events / _WARM.format(number)).write_bytes(b"{}\n")
        while len(added) <= number:
            time.sleep(0.1)
    command = [sys.executable, "-m", "tests.benchmarks.freshness", "--replay"]
    with told.open("wb") as sink:
        subprocess.run(
            [*command, str(work / "source"), str(events), str(rate)],
            stdout=sink,
            check=True,
        )
    until = time.monotonic() + _PATIENCE
    total = sum(path.stat().st_size for path in events.rglob("*.jsonl"))
    while sum(end - begin for _, _, begin, end in added) < total and time.monotonic() < until:
        time.sleep(0.1)
    over.set()


def _print(told: Path, added: list[tuple[float, str, int, int]]) -> None:
    ages: list[tuple[float, int]] = []
    pieces: dict[str, list[tuple[float, int, int]]] = {}
    for now, path, begin, end in added:
        pieces.setdefault(path, []).append((now, begin, end))
    written = [line.split() for line in told.read_text().splitlines() if line != "end"]
    for at, path, size, count in written:
        here = pieces.get(path.removesuffix(".open"), ())
        seen = [now for now, begin, end in here if begin < int(size) <= end]
        ages.append((min(seen, default=math.inf) - float(at), int(count)))
    ages.sort()
    total = sum(lines for _, lines in ages)
    seconds = float(written[-1][0]) - float(written[0][0])
    print(
        f"{total} lines in {seconds:.1f} s, {total / seconds:,.0f} a second; load {os.getloadavg()[0]:.1f}"
    )
    for share in (0.5, 0.95, 0.99, 1.0):
        so_far = 0
        for age, lines in ages:
            so_far += lines
            if so_far >= share * total:
                print(f"{share:5.0%} of the lines were in the partials within {age:.2f} s")
                break


if __name__ == "__main__":
    main()
