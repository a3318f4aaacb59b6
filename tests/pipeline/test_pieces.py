"""Segments that are read while they grow: the tables are those of a log that was read at once."""

from __future__ import annotations

import json
import random
import shutil
from typing import TYPE_CHECKING, Any, Final

import polars as pl
import pytest
from polars.testing import assert_frame_equal

import jmsx_report
from jmsx.errors import ConfigurationError
from jmsx_report import store as runs
from jmsx_report.pieces import piece, whole_lines
from jmsx_report.reports import extend, read, store_of
from jmsx_report.segments import survey
from jmsx_spark.offsets import NOTHING, between, current, latest, noted
from tests.benchmarks.segments import write
from tests.pipeline.situations.judge import chosen
from tests.pipeline.situations.scene import Scene

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

#: How far a segment has grown, as a share of its bytes; in the end it is closed.
_STEPS: Final = (0.2, 0.5, 0.51, 1.0)
#: Logs with something in them that is about numbers of lines, or about several lines together.
_SITUATIONS: Final = (
    "clean",
    "shuffled_lines",
    "joined_segments",
    "open_and_closed",
    "no_last_line_feed",
)


def grow(events: Path, chance: random.Random) -> Iterator[None]:
    """Let the segments below `events` begin anew, and grow again to what they are."""
    whole = {path: path.read_bytes() for path in sorted(events.rglob("*.jsonl"))}
    for path in whole:
        path.rename(f"{path}.open")
    for step in _STEPS:
        for path, content in whole.items():
            alive = path.with_name(f"{path.name}.open")
            if step == 1.0 and alive.exists():
                alive.write_bytes(content)
                alive.rename(path)
            elif step == _STEPS[0] and chance.random() < 0.3:
                alive.unlink()  # it begins later
            elif chance.random() < 0.7:
                alive.write_bytes(content[: int(step * len(content))])
        yield
    for path, content in whole.items():
        path.write_bytes(content)


def streamed(events: Path, out: Path, chance: random.Random) -> None:
    """Have `out` filled as a stream does, while the log grows; now and then a report is made."""
    offset = dict(NOTHING)
    for _ in grow(events, chance):
        store = store_of(out)
        store.open()
        try:
            while True:
                reached = latest(events, current(events), offset, most_bytes=60_000, lenient=True)
                if reached == offset:
                    break
                extend(store, between(offset, reached), events, map, 20_000)
                if chance.random() < 0.5:  # as if it was killed before it noted how far it was
                    extend(store, between(offset, reached), events, map, 20_000)
                offset = reached
            if chance.random() < 0.5 and current(events):
                read(survey(events, out), events, store, map)
        finally:
            store.close()


@pytest.mark.parametrize("name", _SITUATIONS)
def test_the_tables_are_those_of_a_log_read_at_once(tmp_path: Path, name: str) -> None:
    """To the last bit, whatever was read in which pieces."""
    assert_equal(tmp_path, name, seed=1)


def assert_equal(folder: Path, name: str, seed: int) -> None:
    """Make the log of a situation, stream it and read it at once, and compare."""
    events = folder / "events"
    events.mkdir()
    (one,) = chosen([name])
    one.make(Scene(events, seed, 240))
    streamed(events, folder / "streamed", random.Random(seed))

    _assert_as_read_at_once(events, folder)


def _assert_as_read_at_once(events: Path, folder: Path) -> None:
    found = jmsx_report.run(events, folder / "streamed", engine=map)
    shutil.rmtree(folder / "once", ignore_errors=True)
    expected = jmsx_report.run(events, folder / "once", engine=map)

    assert found.audit == expected.audit
    for table, path in expected.tables.items():
        assert_frame_equal(
            pl.read_parquet(found.tables[table]), pl.read_parquet(path), check_exact=True
        )


def test_what_comes_while_runs_are_merged_is_added_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stream goes on while its report merges, also when a merged run is there beside those that it was made of."""
    monkeypatch.setattr(runs, "FAN", 2)
    events = tmp_path / "events"
    write(events, events=1200, segments=4, hours=1)
    segments = survey(events).segments
    store = store_of(tmp_path / "streamed")
    shares = iter((0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8))

    def add() -> None:
        share = next(shares, 1.0)
        ends = (whole_lines(events, one._replace(size=int(share * one.size))) for one in segments)
        pieces = (piece(one, 0, end) for one, end in zip(segments, ends, strict=True))
        extend(store, pieces, events, map, 1_000_000)

    def adding_meanwhile(job: Any, todo: Iterable[Any], /) -> Iterator[Any]:
        for one in todo:
            add()
            yield job(one)
            add()

    store.open()
    try:
        for _ in range(4):
            add()
        store.merge(adding_meanwhile)
        assert next(shares, None) is None
    finally:
        store.close()

    _assert_as_read_at_once(events, tmp_path)


def test_a_note_of_spark_s_is_read_only_as_what_it_says_that_it_is(tmp_path: Path) -> None:
    """Where a newer Spark notes offsets in another way, nobody guesses what a batch reads."""
    notes = tmp_path / "offsets"
    notes.mkdir()
    offset = {"closed": {"a": {"w-0.jsonl": 7}}, "open": {}}
    settings = '{"batchWatermarkMs":0}'
    (notes / "0").write_text(f"v1\n{settings}\n{json.dumps(offset)}")
    assert (noted(tmp_path, -1), noted(tmp_path, 0)) == (NOTHING, offset)
    for number, other in enumerate(
        (f"v2\n{settings}\n{json.dumps(offset)}", f"v1\n{settings}\n{{}}\n{{}}", ""), 1
    ):
        (notes / str(number)).write_text(other)
        with pytest.raises(ConfigurationError, match="note of Spark's"):
            noted(tmp_path, number)
