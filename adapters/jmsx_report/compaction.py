"""Puts closed segments into Parquet files, which take about an eighth of the space: see `compacted`."""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import uuid
import zlib
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx.errors import ConfigurationError
from jmsx_report.compacted import KEY, PREFIX, SUFFIX, content_of, contents, files, listed
from jmsx_report.segments import Segment, batches, survey
from jmsx_report.store import to_disk, write_parquet

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


_UNFINISHED: Final = ".compacting-"
_BEGINS: Final = (
    r'^\{"v":\d+,"kind":"([^"\\]+)","writer":"([^"\\]+)","seq":(\d+),"ts_us":(-?\d+)[,}]'
)
_LEVEL: Final = 9
_ROW_GROUP: Final = 50_000


def compact(events: Path) -> Iterator[str]:
    """
    Put the closed segments below `events` into Parquet, and yield a sentence about each file that is made.

    A segment is removed only after the Parquet file was written to the disk, read again completely, and renamed to its
    final name. If this is killed, each segment is in its own file, in Parquet, or in both, and is still counted once;
    the next call finishes the work.

    Raises:
        ConfigurationError: there is no segment, something cannot be read or written, or another is at it.

    """
    with _alone(events):
        for left in sorted(events.rglob(f"{_UNFINISHED}*")):
            left.unlink()
        for folder, segments in sorted(_closed(events).items()):
            done = {
                (name, size, digest)
                for file in files(folder)
                for name, size, _, digest, _ in listed(file)
            }
            for batch in batches(_left(events, segments, done)):
                yield _compacted(events, folder, batch)


def _closed(events: Path) -> dict[Path, list[Segment]]:
    """Return the closed segments by their folders."""
    folders: dict[Path, list[Segment]] = {}
    for segment in survey(events).segments:
        path = events / segment.path
        if not segment.is_open and path.is_file():
            folders.setdefault(path.parent, []).append(segment)
    return folders


@contextmanager
def _alone(events: Path) -> Iterator[None]:
    try:
        opened = os.open(events, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise ConfigurationError(f"{events} is no directory of an event log") from error
    try:
        fcntl.flock(opened, fcntl.LOCK_EX | fcntl.LOCK_NB)
        yield
    except BlockingIOError as error:
        raise ConfigurationError(
            f"{events} is being compacted by another process; wait for it"
        ) from error
    finally:
        os.close(opened)


def _left(
    events: Path, segments: Iterable[Segment], done: set[tuple[str, int, int]]
) -> Iterator[Segment]:
    """Yield the segments that are not yet in Parquet; remove those that are, after an interruption or shipped again."""
    for segment in segments:
        path = events / segment.path
        if (path.name, segment.size, segment.digest) not in done:
            yield segment
        elif content_of(path) == _read(path):
            path.unlink()


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {path}: {error.strerror}") from error


def _compacted(events: Path, folder: Path, batch: Sequence[Segment]) -> str:
    """Put segments of one folder into a file, and remove them."""
    sources = {Path(segment.path).name: _read(events / segment.path) for segment in batch}
    index = []
    for (name, data), segment in zip(sources.items(), batch, strict=True):
        if len(data) != segment.size:
            raise ConfigurationError(
                f"{folder / name} is being changed, as a closed segment never is; it was left as it is"
            )
        index.append((name, segment.size, segment.mtime_ns, segment.digest, zlib.crc32(data)))
    told = json.dumps(index)
    made = folder / f"{PREFIX}{hashlib.sha256(told.encode()).hexdigest()[:24]}{SUFFIX}"
    try:
        _put(sources, told, made)
        for name in sources:
            (folder / name).unlink()
    except OSError as error:
        raise ConfigurationError(
            f"cannot compact {folder}: {error.strerror or error}; nothing is lost: what is in no Parquet lies where"
            " it was"
        ) from error
    before, after = sum(map(len, sources.values())), made.stat().st_size
    return f"{made.relative_to(events)}: {len(sources)} segments, {before:,} bytes in {after:,}"


def _put(sources: Mapping[str, bytes], told: str, made: Path) -> None:
    """Write a file that gets its name only when it is on the disk and its content has been checked."""
    unfinished = made.with_name(f"{_UNFINISHED}{uuid.uuid4().hex}{SUFFIX}")
    write_parquet(
        _rows(sources),
        unfinished,
        compression="zstd",
        compression_level=_LEVEL,
        row_group_size=_ROW_GROUP,
        metadata={KEY: told},
    )
    to_disk(unfinished)
    if contents(unfinished) != sources:
        raise ConfigurationError(
            f"{unfinished} does not read back as it was written; nothing was removed"
        )
    unfinished.rename(made)
    to_disk(made.parent)


def _rows(sources: Mapping[str, bytes]) -> pl.DataFrame:
    """Return one row a line, by segment, that is by writer and number."""
    rows = [
        (name, *_decoded(line)) for name, data in sorted(sources.items()) for line in _lines(data)
    ]
    schema = {"segment": pl.String, "line": pl.String, "raw": pl.Binary}
    begins = pl.col("line").str.extract_groups(_BEGINS)
    return pl.DataFrame(rows, schema=schema, orient="row").select(
        begins.struct.field("1").alias("kind"),
        begins.struct.field("2").alias("writer"),
        begins.struct.field("3").cast(pl.Int64, strict=False).alias("seq"),
        begins.struct.field("4").cast(pl.Int64, strict=False).alias("ts_us"),
        "segment",
        "line",
        "raw",
    )


def _decoded(line: bytes) -> tuple[str | None, bytes | None]:
    try:
        return line.decode(), None
    except UnicodeDecodeError:
        return None, line


def _lines(data: bytes) -> Iterator[bytes]:
    """Yield each line with its line feed; the last one may have none."""
    *whole, torn = data.split(b"\n")
    yield from (line + b"\n" for line in whole)
    if torn:
        yield torn
