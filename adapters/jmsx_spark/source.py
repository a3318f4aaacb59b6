"""
The event log as a data source of Spark: `spark.read.format("jmsx")`, `spark.readStream.format("jmsx")`.

Segments that are still being written are read as well, up to their last whole line, and a stream goes on from there.
"""

from __future__ import annotations

from itertools import accumulate
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import polars as pl
from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    InputPartition,
)
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    SupportsTriggerAvailableNow,
)

from jmsx.core.headers import whole
from jmsx.errors import ConfigurationError
from jmsx_eventlog.schema import FIELDS
from jmsx_report.events import SCHEMAS, named
from jmsx_report.lines import Content, read
from jmsx_report.pieces import chunks, piece, whole_lines
from jmsx_report.segments import Segment, batches
from jmsx_spark.offsets import NOTHING, between, current, latest

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pyarrow as pa
    from pyspark.sql.types import StructType


#: Bytes that are read and handed to Spark at once, which limits the memory of a worker.
_CHUNK_BYTES: Final = 8 * 1024 * 1024
_TYPES: Final[Mapping[str, type[pl.DataType]]] = {
    "path": pl.String,
    "offset": pl.Int64,
    **{name: of for columns in SCHEMAS.values() for name, of in columns.items()},
    "fault": pl.String,
    "text": pl.String,
}


class EventLogSource(DataSource):
    """
    Lines of an event log as rows; `spark.dataSource.register(EventLogSource)` makes it known as "jmsx".

    Columns are `path` (of the segment, below the folder, by its final name), `offset` (of the line in it, in bytes),
    all fields of the log's schema, and for invalid lines `fault` (the reason; else null) and `text`.
    Repeated lines, and different lines with the same number, all appear: (`writer`, `seq`) identifies a line.
    A schema with some of these columns makes rows narrower: `.schema("kind string, ts_us bigint")`.

    Options: `path`, the folder of an `EventLog`, or one with those of many hosts below it, which all Spark workers must
    reach by this path; and for a stream `maxBytesPerTrigger` (bytes of lines; default: all there are) and
    `failOnDataLoss` ("false": go on if a segment has changed, or is gone before it was closed and read).

    A stream reads each line once: its offsets are byte positions between lines, so a batch that is repeated after a
    failure has the same rows. This holds while the checkpoint is kept, and segments stay in the folder until they are
    closed and read. Late segments are read when they come; there is no watermark.
    """

    @classmethod
    def name(cls) -> str:
        """Return the name that `spark.readStream.format()` takes for this source."""
        return "jmsx"

    def schema(self) -> str:
        """Return all columns as SQL."""
        fields = ", ".join(f"`{field.name}` {field.type}" for field in FIELDS)
        return f"path string, offset bigint, {fields}, fault string, text string"

    def reader(self, schema: StructType) -> DataSourceReader:
        """Return a reader of the lines that exist now."""
        return _Reader(self._folder(), _known(schema))

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader of the lines that exist, and then of new ones."""
        return _StreamReader(self._folder(), _known(schema), *self._stream_options())

    def _folder(self) -> Path:
        folder = self.options.get("path")
        if not folder:
            raise ConfigurationError(
                'the source jmsx needs the folder of an event log: .format("jmsx").load("events")'
            )
        return Path(folder).absolute()

    def _stream_options(self) -> tuple[int | None, bool]:
        most, fail = (
            self.options.get("maxBytesPerTrigger"),
            self.options.get("failOnDataLoss", "true"),
        )
        if most is not None and not whole(most, least=1):
            raise ConfigurationError(
                f"maxBytesPerTrigger is {most!r}; it is a number of bytes, 1 or more"
            )
        if fail.lower() not in ("true", "false"):
            raise ConfigurationError(f"failOnDataLoss must be true or false, not {fail!r}")
        return None if most is None else int(most), fail.lower() == "false"


class PieceSource(EventLogSource):
    """Like `EventLogSource`, but its batches have no rows: only their offsets are used, which say what to read."""

    @classmethod
    def name(cls) -> str:
        """Return the name that `spark.readStream.format()` takes for this source."""
        return "jmsx-pieces"

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:  # noqa: N802 - Spark's name
        """Return a reader whose batches have offsets, but no rows."""
        return _PieceReader(self._folder(), schema, *self._stream_options())


def _known(schema: StructType) -> StructType:
    unknown = sorted(set(schema.names) - _TYPES.keys())
    if unknown:
        raise ConfigurationError(f"an event log has no column {', '.join(unknown)}")
    return schema


class _Lines:
    """Reads the rows of a partition, in a worker."""

    def __init__(self, events: Path, schema: StructType) -> None:
        self._events = events
        self._schema = schema

    def _partitions(self, pieces: Iterable[Segment]) -> list[InputPartition]:
        return [InputPartition(batch) for batch in batches(pieces, _CHUNK_BYTES)]

    def _rows(
        self, pieces: Iterable[Segment], *, lenient: bool = False
    ) -> Iterator[pa.RecordBatch]:
        schema = to_arrow_schema(self._schema, timezone="UTC")
        for one in pieces:
            try:
                for offset, data in chunks(self._events, one, _CHUNK_BYTES):
                    rows = lines(one.path, offset, data).select(self._schema.names).to_arrow()
                    yield from rows.cast(schema).to_batches()
            except ConfigurationError:
                if not lenient:
                    raise


def lines(path: str, offset: int, data: bytes) -> pl.DataFrame:
    """Return rows for the whole lines `data` at byte `offset` of a segment, with the columns of `EventLogSource`."""
    reading = read([Content(path, data)])
    aside = reading.aside.rename({"why": "fault"}).join(reading.lines, on="line")
    length = [len(line) + 1 for line in data.split(b"\n")]
    begins = pl.Series("offset", list(accumulate(length, initial=offset))[: reading.lines.height])
    places = pl.DataFrame({"line": reading.lines["line"], "offset": begins}).with_columns(
        pl.lit(path).alias("path")
    )
    none = pl.DataFrame(schema={**_TYPES, "line": pl.UInt32}).drop("path", "offset")
    rows = pl.concat([none, *map(named, reading.frames.values()), aside], how="diagonal").sort(
        "line"
    )
    return rows.join(places, on="line").select(*_TYPES)


class _Reader(_Lines, DataSourceReader):
    def partitions(self) -> Sequence[InputPartition]:
        return self._partitions(
            piece(
                segment, 0, whole_lines(self._events, segment) if segment.is_open else segment.size
            )
            for segment in current(self._events)
        )

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._rows(partition.value)


class _StreamReader(_Lines, DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(
        self,
        events: Path,
        schema: StructType,
        most_bytes: int | None,
        lenient: bool,  # noqa: FBT001 - unpacked from the source's options
    ) -> None:
        super().__init__(events, schema)
        self._most_bytes = most_bytes
        self._lenient = lenient
        self._until: list[Segment] | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return dict(NOTHING)

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802 - Spark's name
        return ReadAllAvailable() if self._most_bytes is None else ReadMaxBytes(self._most_bytes)

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802 - Spark's name
        self._until = current(self._events)

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802 - Spark's name
        return latest(
            self._events,
            current(self._events) if self._until is None else self._until,
            start,
            most_bytes=limit.max_bytes if isinstance(limit, ReadMaxBytes) else None,
            lenient=self._lenient,
        )

    def partitions(
        self, start: Mapping[str, Any], end: Mapping[str, Any]
    ) -> Sequence[InputPartition]:
        return self._partitions(between(start, end))

    def read(self, partition: InputPartition) -> Iterator[Any]:
        return self._rows(partition.value, lenient=self._lenient)


class _PieceReader(_StreamReader):
    def partitions(self, *_: Mapping[str, Any]) -> Sequence[InputPartition]:
        return ()
