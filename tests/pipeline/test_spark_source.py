"""The log as a source of Spark: each line once, with what it says, from segments that grow meanwhile."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
from pyspark.errors import PySparkException

from jmsx_eventlog.schema import FIELDS
from jmsx_spark import EventLogSource
from tests.pipeline.lines import segments
from tests.pipeline.simulator import Shop

if TYPE_CHECKING:
    from pathlib import Path

    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.spark

_TORN: Final = b'{"v":1,"kind":"send","wri'


@pytest.fixture
def source(spark: SparkSession) -> SparkSession:
    """Lend the session, in which the source is known."""
    spark.dataSource.register(EventLogSource)
    return spark


def _shop(directory: Path, messages: int = 300) -> Path:
    shop = Shop(directory, seed=31, segment_bytes=40_000)
    shop.trade(messages, dead=3)
    shop.close()
    return directory


def _line(row: Any) -> dict[str, Any]:
    return {
        name: value
        for name, value in row.asDict().items()
        if value is not None and name not in ("path", "offset")
    }


def test_a_batch_has_every_line_with_its_place(source: SparkSession, tmp_path: Path) -> None:
    """Each field as it was written, at the byte where the line begins; what is not good says why."""
    events = _shop(tmp_path / "events")
    spoilt = segments(events)[0]
    lines = spoilt.read_bytes().splitlines(keepends=True)
    spoilt.write_bytes(b"".join([lines[0], b'{"v":1,"kind":"se\xff"}\n', b"[]\n", *lines[1:]]))
    last = segments(events)[-1]
    alive = last.rename(f"{last}.open")
    alive.write_bytes(alive.read_bytes() + _TORN)

    frame = source.read.format("jmsx").load(str(events))
    rows = frame.collect()

    assert frame.columns == ["path", "offset", *(field.name for field in FIELDS), "fault", "text"]
    contents = {
        str(path.relative_to(events)).removesuffix(".open"): path.read_bytes()
        for path in (*segments(events), alive)
    }
    found = {}
    for row in rows:
        end = contents[row["path"]].index(b"\n", row["offset"])
        line = contents[row["path"]][row["offset"] : end]
        if row["fault"] is None:
            assert _line(row) == json.loads(line)
        found[row["path"], row["offset"]] = row["fault"]
    assert len(found) == len(rows) == sum(content.count(b"\n") for content in contents.values())
    assert sorted(fault for fault in found.values() if fault) == [
        "an empty line, or none of UTF-8",
        "no JSON object",
    ]


def test_some_columns_are_enough(source: SparkSession, tmp_path: Path) -> None:
    """Which are asked for by a schema; one that is none of the log's is refused by its name."""
    events = _shop(tmp_path / "events")

    frame = source.read.format("jmsx").schema("seq bigint, kind string").load(str(events))

    assert frame.where("kind = 'dlq'").count() == 3
    assert frame.columns == ["seq", "kind"]
    with pytest.raises(PySparkException, match="an event log has no column colour"):
        source.read.format("jmsx").schema("colour string").load(str(events)).collect()


def _stream(source: SparkSession, events: Path, checkpoint: Path, **options: str) -> DataFrame:
    """Read what is there by a stream, a batch at a time, to Parquet below the checkpoint."""
    read = source.readStream.format("jmsx").options(**options).load(str(events))
    query: StreamingQuery = (
        read.select("path", "offset", "writer", "seq")
        .writeStream.format("parquet")
        .option("checkpointLocation", str(checkpoint))
        .option("path", str(checkpoint / "rows"))
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()
    return source.read.parquet(str(checkpoint / "rows"))


def test_a_stream_reads_each_line_once(source: SparkSession, tmp_path: Path) -> None:
    """Segments grow and are closed between its batches; a torn line is read when it is whole."""
    whole = {path: path.read_bytes() for path in segments(_shop(tmp_path / "events"))}
    for path in whole:
        path.unlink()
    for step in (0.3, 0.6, 1.0):
        for number, (path, content) in enumerate(whole.items()):
            alive = path.with_name(f"{path.name}.open")
            if step == 1.0:
                alive.rename(path)
                path.write_bytes(content)
            elif number % 3 or step > 0.5:  # some begin later
                alive.write_bytes(content[: int(step * len(content))])
        rows = _stream(source, tmp_path / "events", tmp_path / "stream", maxBytesPerTrigger="90000")

    found = [(row["writer"], row["seq"]) for row in rows.collect()]
    lines = [json.loads(line) for content in whole.values() for line in content.splitlines()]
    assert sorted(found) == sorted((line["writer"], line["seq"]) for line in lines)
    batches = list((tmp_path / "stream" / "commits").glob("[0-9]*"))
    assert len(batches) > sum(map(len, whole.values())) / 90_000


@pytest.mark.parametrize("harm", ["gone", "replaced"])
def test_lines_that_are_lost_are_told(source: SparkSession, tmp_path: Path, harm: str) -> None:
    """A segment that is gone before it was closed, or is another one now, ends the stream with its name."""
    events = _shop(tmp_path / "events", messages=60)
    first = segments(events)[0]
    content = first.read_bytes()
    alive = first.rename(f"{first}.open")
    before = _stream(source, events, tmp_path / "stream").count()

    if harm == "gone":
        alive.unlink()
    else:
        alive.write_bytes(content[100:] + content)

    with pytest.raises(PySparkException, match=first.name):
        _stream(source, events, tmp_path / "stream")
    after = _stream(source, events, tmp_path / "stream", failOnDataLoss="false")
    assert after.count() >= before
