"""
What a report costs: `uv run python -m tests.benchmarks.report [--events N] [--segments N] [--hours N] [--pairs N]`.

A log of which the truth is known is written, and read four times, each time by processes of its own: by `jmsx report`
in one go, by DuckDB in SQL, by `jmsx report` without its last hour, and with that hour added. Printed are CPU seconds
of all processes (the clock of a busy machine says little), events for each of them, and the most memory that all
processes of a run had at once. Every cell of the tables is compared with DuckDB's, percentiles within 1 %.
"""

from __future__ import annotations

import argparse
import math
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import polars as pl

from jmsx.cli import exits
from jmsx_eventlog.schema import FIELDS, FieldType
from tests.benchmarks.segments import Truth, write

_HOUR_US: Final = 3_600_000_000
_SQL_TYPES: Final = {
    FieldType.STRING: "VARCHAR",
    FieldType.INT: "INTEGER",
    FieldType.LONG: "BIGINT",
    FieldType.BOOLEAN: "BOOLEAN",
}
_NEEDED: Final = frozenset(
    {
        *("kind", "writer", "seq", "ts_us", "session_id", "epoch", "dest", "consumer", "msg_key"),
        *("attempt", "redelivered", "outcome", "error_type", "error_place", "sent_us", "recv_us"),
        *("start_us", "end_us", "next_attempt", "delay_us", "reason", "attempts"),
    }
)
_LATENCY: Final = """
select dest, consumer, ts_us // 60000000 * 60000000 as minute_us, count(*) as n,
       avg(recv_us - sent_us) as queue_mean_us, avg(start_us - recv_us) as buffer_mean_us,
       avg(end_us - start_us) as handler_mean_us, avg(ts_us - end_us) as ack_mean_us,
       avg(ts_us - sent_us) as end_to_end_mean_us,
       quantile_disc(end_us - start_us, [0.5, 0.9, 0.95, 0.99]) as handler,
       quantile_disc(ts_us - sent_us, [0.5, 0.9, 0.95, 0.99]) as end_to_end
from events where kind = 'delivery' and outcome in ('acknowledged', 'committed') group by all
"""
_REDELIVERY: Final = """
select * from (
  select dest, consumer, ts_us // 3600000000 * 3600000000 as hour_us, count(*) as deliveries,
         count(*) filter (attempt > 1 or redelivered) as redelivered, max(attempt) as attempts_max,
         count(*) filter (attempt > 1 and outcome in ('acknowledged', 'committed')) as succeeded_late
  from events where kind = 'delivery' group by all
) left join (
  select d.dest, d.consumer, d.ts_us // 3600000000 * 3600000000 as hour_us, count(*) as scheduled,
         avg(s.delay_us) as delay_planned_mean_us, avg(d.start_us - s.ts_us) as delay_actual_mean_us
  from events d join events s on d.kind = 'delivery' and s.kind = 'redelivery.scheduled' and d.writer = s.writer
    and d.session_id = s.session_id and d.epoch = s.epoch and d.dest = s.dest and d.consumer = s.consumer
    and d.msg_key = s.msg_key and d.attempt = s.next_attempt and d.attempt > 1
  group by all
) using (dest, consumer, hour_us)
"""
_DEAD: Final = """
select dest, reason, coalesce(error_type, '') as error_type, coalesce(error_place, '') as error_place, count(*) as n,
       max(attempts) as attempts_max, min(ts_us) as first_us, max(ts_us) as last_us
from events where kind = 'dlq' group by all
"""
_HEALTH: Final = """
select writer, count(*) as lines, max(seq) + 1 as expected, min(ts_us) as first_us, max(ts_us) as last_us
from events group by all
"""
_TWINS: Final = {
    "delivery_latency": (_LATENCY, ["dest", "consumer", "minute_us"]),
    "redelivery": (_REDELIVERY, ["dest", "consumer", "hour_us"]),
    "dead_letters": (_DEAD, ["dest", "reason", "error_type", "error_place"]),
    "event_log_health": (_HEALTH, ["writer"]),
}
#: Exit codes of a process that has made its tables, whatever a verdict on them is.
_MADE: Final = (exits.DONE, exits.SUSPECT, exits.UNVERIFIABLE)


@dataclass(frozen=True, slots=True)
class Cost:
    """What one run took."""

    cpu: float  #: seconds, of all its processes
    wall: float  #: seconds
    memory: int  #: bytes, of all its processes at once, as sampled


def by_duckdb(events: Path, out: Path) -> None:
    """Make the same tables in SQL."""
    import duckdb  # noqa: PLC0415 - who reads by jmsx does not import it

    out.mkdir(parents=True)
    columns = {field.name: _SQL_TYPES[field.type] for field in FIELDS if field.name in _NEEDED}
    connection = duckdb.connect()
    connection.execute(f"set threads={os.cpu_count()}")
    connection.execute(
        f"create temp table events as select distinct on (writer, seq) * from read_json("
        f"'{events}/*/*/*.jsonl', format='newline_delimited', columns={columns})"
    )
    for name, (query, _) in _TWINS.items():
        connection.execute(f"copy ({query}) to '{out}/{name}.parquet' (format parquet)")


def measured(how: str, events: Path, out: Path) -> Cost:
    """Run `how` in a process of its own, and count what it and its children took."""
    before, begun = resource.getrusage(resource.RUSAGE_CHILDREN), time.monotonic()
    command = {
        "jmsx": ["-m", "jmsx_report", str(events), "--out", str(out)],  # as a user would
        "duckdb": ["-m", "tests.benchmarks.report", "--by-duckdb", str(events), str(out)],
    }[how]
    # Python's bytecode is kept, as it is where a package was installed: to compile Polars takes as long as to read
    # 100,000 events.
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": ""}
    worker = subprocess.Popen(
        [sys.executable, *command],
        start_new_session=True,
        env=environment,
        stdout=subprocess.DEVNULL,
    )
    most = 0
    while worker.poll() is None:
        most = max(most, _memory(worker.pid))
        time.sleep(0.1)
    if worker.returncode not in _MADE:
        raise SystemExit(f"{how} failed")
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return Cost(cpu, time.monotonic() - begun, most)


def _memory(session: int) -> int:
    """Add up the resident memory of all processes of a session, in bytes; pages that are shared count once."""
    total = 0
    for folder in Path("/proc").iterdir():
        try:
            if folder.name.isdigit() and os.getsid(int(folder.name)) == session:
                told = (folder / "smaps_rollup").read_text()
                total += int(told.partition("\nPss:")[2].split()[0]) * 1024
        except (OSError, ValueError, IndexError):
            continue  # it has just ended
    return total


def compare(ours: Path, theirs: Path) -> list[str]:
    """List the tables that differ from DuckDB's in any cell."""
    wrong = []
    for name, (_, key) in _TWINS.items():
        found = pl.read_parquet(ours / "tables" / name).sort(key)
        expected = pl.read_parquet(theirs / f"{name}.parquet").sort(key)
        same = found.height == expected.height and all(
            _close(found, expected, column) for column in expected.columns
        )
        if not same:
            wrong.append(name)
    return wrong


def _close(found: pl.DataFrame, expected: pl.DataFrame, column: str) -> bool:
    if column in ("handler", "end_to_end"):
        return all(
            _equal(found[f"{column}_p{number}_us"], expected[column].list.get(index), 0.01)
            for index, number in enumerate((50, 90, 95, 99))
        )
    return _equal(found[column], expected[column], 1e-12)


def _equal(left: pl.Series, right: pl.Series, tolerance: float) -> bool:
    return all(
        math.isclose(one, other, rel_tol=tolerance)
        if isinstance(one, float) and other is not None
        else one == other
        for one, other in zip(left, right, strict=True)
    )


def truths(ours: Path, truth: Truth) -> list[str]:
    """List what is not as the generator had it."""
    tables = {name: pl.read_parquet(ours / "tables" / name) for name in _TWINS}
    latency = tables["delivery_latency"]
    done = dict(latency.group_by("dest").agg(pl.col("n").sum()).rows())
    late = dict(tables["redelivery"].group_by("dest").agg(pl.col("scheduled").sum()).rows())
    dead = dict(tables["dead_letters"].select("dest", "n").rows())
    facts = {
        "done": (done, truth.done),
        "redelivered": ({dest: n for dest, n in late.items() if n}, truth.redelivered),
        "dead": (dead, truth.dead),
    }
    wrong = [
        name
        for name, (found, true) in facts.items()
        if found != {f"queue://{dest}": n for dest, n in true.items()}
    ]
    if tables["event_log_health"]["lines"].sum() != truth.events:
        wrong.append("lines")
    return wrong


def main() -> None:
    """Write the log, measure, compare, print."""
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.report", description=__doc__)
    parser.add_argument("--events", type=float, default=1e6)
    parser.add_argument("--segments", type=int, default=192)
    parser.add_argument("--hours", type=int, default=24)
    parser.add_argument("--pairs", type=int, default=2)
    parser.add_argument("--by-duckdb", nargs=2, metavar=("EVENTS", "OUT"), help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.by_duckdb:
        by_duckdb(*map(Path, given.by_duckdb))
        return
    with tempfile.TemporaryDirectory() as folder:
        work = Path(folder)
        truth = write(
            work / "events",
            events=round(given.events),
            segments=given.segments,
            hours=given.hours,
            pairs=given.pairs,
        )
        _measure(work, truth)


def _measure(work: Path, truth: Truth) -> None:
    events = work / "events"
    print(f"{truth.events} events, {len(list(events.rglob('*.jsonl')))} segments")
    _print("jmsx, all", measured("jmsx", events, work / "all"), truth.events)
    _print("duckdb, all", measured("duckdb", events, work / "duckdb"), truth.events)
    last = max(path for path in events.glob("*/*"))
    shutil.move(last, work / "late")
    day = measured("jmsx", events, work / "hourly")
    shutil.move(work / "late", last)
    _print("jmsx, but for the last hour", day, truth.events)
    hour = measured("jmsx", events, work / "hourly")
    _print("jmsx, the last hour added", hour, truth.events)
    print(f"one more hour is {hour.cpu / day.cpu:.1%} of its day")
    for name in ("all", "hourly"):
        wrong = compare(work / name, work / "duckdb") + truths(work / name, truth)
        print(f"{name}: {'every cell as in DuckDB, and true' if not wrong else f'WRONG: {wrong}'}")


def _print(what: str, cost: Cost, events: int) -> None:
    print(
        f"{what:30} {cost.cpu:8.2f} CPU s {cost.wall:8.2f} s {events / cost.cpu / 1e6:6.3f} M events/CPU s"
        f" {cost.memory / 2**20:6.0f} MiB",
        flush=True,
    )


if __name__ == "__main__":
    main()
