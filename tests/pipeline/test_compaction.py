"""Segments in Parquet: an eighth of the room, and the same tables; killed at any point, nothing is lost."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

import duckdb
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from typer.testing import CliRunner

import jmsx_report
from jmsx.cli.commands import app
from jmsx.errors import ConfigurationError
from jmsx_report import segments
from jmsx_report.compacted import content_of
from jmsx_report.compaction import compact
from jmsx_report.local import make
from tests.benchmarks.segments import write
from tests.pipeline.copies import Copies

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

Gold = dict[str, pl.DataFrame]


@pytest.fixture
def events(tmp_path: Path) -> Path:
    """A log of two hours with a living segment, an odd line, one that is not UTF-8, and a torn one."""
    folder = tmp_path / "events"
    write(folder, events=1500, segments=8, hours=2)
    first, second, third, *_, last = sorted(folder.rglob("*.jsonl"))
    first.write_bytes(first.read_bytes() + b'{"v":1,"kind":"nonsense"}\n')
    second.write_bytes(b'{"v":1,"kind":"\xff"}\r\n\n' + second.read_bytes())
    third.write_bytes(third.read_bytes()[:-20])
    last.rename(f"{last}.open")
    return folder


def contents(folder: Path) -> dict[str, bytes]:
    """Every segment below `folder`, wherever it lies now."""
    return {
        path.path: (folder / path.path).read_bytes()
        if (folder / path.path).exists()
        else content_of(folder / path.path) or b""
        for path in segments.survey(folder).segments
    }


def gold(folder: Path, out: Path) -> Gold:
    """Make the tables, and read them."""
    tables = jmsx_report.run(folder, out, engine=map).tables
    return {name: pl.read_parquet(path) for name, path in tables.items()}


def assert_same(left: Gold, right: Gold) -> None:
    """Every cell of every table is equal."""
    assert left.keys() == right.keys()
    for name, table in left.items():
        assert_frame_equal(table, right[name], check_exact=True)


def test_a_compacted_log_gives_the_same_tables(events: Path, tmp_path: Path) -> None:
    """Read anew, or by who has read the segments before: then nothing is read at all."""
    before, expected = contents(events), gold(events, tmp_path / "out")
    size = sum(len(data) for name, data in before.items() if name.endswith(".jsonl"))

    made = CliRunner().invoke(app, ["events", "compact", str(events)])
    again = CliRunner().invoke(app, ["events", "compact", str(events)])

    assert made.exit_code == 0, made.output
    assert "segments" in made.output
    assert again.output == "there is no closed segment that is not compacted\n"
    assert [path.name.endswith(".open") for path in events.rglob("*.jsonl*")] == [True]
    assert sum(path.stat().st_size for path in events.rglob("*.parquet")) < size / 5
    assert contents(events) == before
    assert_same(gold(events, tmp_path / "fresh"), expected)
    read: list[object] = []

    def engine(job: Callable[[Any], Any], todo: Any) -> Iterator[Any]:
        for one in todo:
            read.append(getattr(job, "func", None))
            yield job(one)

    jmsx_report.run(events, tmp_path / "out", engine=engine)
    assert make not in read


def test_others_can_look_for_lines(events: Path) -> None:
    """By kind, writer, number and time, sorted by writer and number, in any tool that reads Parquet."""
    list(compact(events))

    found = duckdb.sql(
        f"SELECT writer, seq, ts_us, line FROM '{events}/**/compacted-*.parquet' WHERE kind = 'send'"
    )
    assert found is not None
    rows = found.fetchall()

    assert len(rows) > 100
    assert all(f'"seq":{seq},"ts_us":{at},' in line for _, seq, at, line in rows)
    for file in events.rglob("*.parquet"):
        told = pl.read_parquet(file).drop_nulls("seq").select("writer", "seq").rows()
        assert told == sorted(told)


def test_killed_at_each_step_nothing_is_lost(
    events: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What kill -9 leaves before and after each change of the disk has every byte; the next call ends the work."""
    monkeypatch.setattr(segments, "BATCH_BYTES", 60_000)
    before, left = contents(events), Copies(events, tmp_path)

    def watched(real: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any, **options: Any) -> Any:
            left.take()
            done = real(*arguments, **options)
            left.take()
            return done

        return step

    with pytest.MonkeyPatch.context() as patched:
        for owner, name in (
            (Path, "unlink"),
            (Path, "rename"),
            (pl.DataFrame, "write_parquet"),
        ):
            patched.setattr(owner, name, watched(getattr(owner, name)))
        list(compact(events))

    assert len(left) > 20
    for folder in left:
        assert contents(folder) == before
        list(compact(folder))
        assert contents(folder) == before
        assert len(list(folder.rglob("*.jsonl"))) == 0
        assert [path.name for path in folder.rglob(".*")] == []


def test_what_was_written_wrong_is_not_relied_on(
    events: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that gives back something else: the segments stay."""
    before = contents(events)
    real = pl.DataFrame.write_parquet

    def lying(frame: pl.DataFrame, path: Path, **options: Any) -> None:
        real(frame.with_columns(pl.col("line").str.replace("send", "sent")), path, **options)

    monkeypatch.setattr(pl.DataFrame, "write_parquet", lying)
    with pytest.raises(ConfigurationError, match="is damaged"):
        list(compact(events))
    monkeypatch.undo()
    assert contents(events) == before
    assert len(list(events.rglob("*.jsonl"))) == len(before) - 1


def test_a_segment_that_comes_again_counts_once_or_is_told_of(events: Path, tmp_path: Path) -> None:
    """Shipped a second time it is removed; another of its name is not read beside it in silence."""
    kept = {path: path.read_bytes() for path in events.rglob("*.jsonl")}
    expected = gold(events, tmp_path / "out")
    list(compact(events))
    path, data = next(iter(kept.items()))
    path.write_bytes(data)
    found = gold(events, tmp_path / "again")
    assert_frame_equal(found["delivery_latency"], expected["delivery_latency"])
    assert_frame_equal(found["files"].drop("why"), expected["files"].drop("why"))
    files = len(list(events.rglob("*.parquet")))
    assert list(compact(events)) == []
    assert not path.exists()
    assert len(list(events.rglob("*.parquet"))) == files

    path.write_bytes(data[: data.index(b"\n") + 1])
    rows = gold(events, tmp_path / "other")["files"].filter(what="changed")
    assert rows["path"].to_list() == [str(path.relative_to(events))]
    assert rows["unread"].all()


def test_a_spoilt_file_is_said(events: Path, tmp_path: Path) -> None:
    """Not a table without its lines, and not a traceback."""
    list(compact(events))
    first = min(events.rglob("*.parquet"))
    (events / "compacted-other.parquet").write_bytes(b"?")
    pl.DataFrame({"a": [1]}).write_parquet(events / "compacted-none.parquet")
    told = gold(events, tmp_path / "out")["files"].filter(what="unreadable")
    assert told["path"].to_list() == ["compacted-none.parquet", "compacted-other.parquet"]

    data = bytearray(first.read_bytes())
    data[len(data) // 2 : len(data) // 2 + 100] = bytes(100)
    first.write_bytes(bytes(data))
    with pytest.raises(ConfigurationError, match=first.name):
        gold(events, tmp_path / "fresh")
