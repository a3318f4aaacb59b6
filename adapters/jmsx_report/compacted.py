"""
Closed segments in Parquet: some of a folder in one file, `compacted-*.parquet` beside where they lay.

Nothing of a segment is lost: the column `segment` has its name and `line` each of its lines, in order (`raw` if a line
is not UTF-8). The file's metadata keeps each segment's path, size, time and digest, so that a report does not read
again what it has read before. The other columns are for searches: kind, writer, seq and ts_us, null if a line does not
begin as the writer begins lines.
"""

from __future__ import annotations

import json
import zlib
from functools import lru_cache
from typing import TYPE_CHECKING, Final

import polars as pl

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

PREFIX: Final = "compacted-"
SUFFIX: Final = ".parquet"
#: The key of the file's metadata under which its segments are listed, as `Listed`.
KEY: Final = "jmsx.segments"
#: Name, size, mtime_ns, digest (as of a `segments.Segment`), checksum of all its bytes (CRC-32).
Listed = tuple[str, int, int, int, int]


def is_compacted(name: str) -> bool:
    """Return whether a file of that name holds segments."""
    return name.startswith(PREFIX) and name.endswith(SUFFIX)


def files(folder: Path) -> list[Path]:
    """Return the files of `folder` that hold segments."""
    return sorted(folder.glob(f"{PREFIX}*{SUFFIX}"))


def listed(file: Path) -> list[Listed]:
    """
    List the segments of a file.

    Raises:
        ConfigurationError: it is none of ours, or it cannot be read.

    """
    try:
        told = json.loads(pl.read_parquet_metadata(file)[KEY])
        return [
            (str(name), int(size), int(mtime_ns), int(digest), int(checksum))
            for name, size, mtime_ns, digest, checksum in told
        ]
    except (OSError, pl.exceptions.PolarsError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{file} is no file of compacted segments: {error}") from error


def content_of(segment: Path) -> bytes | None:
    """
    Read a segment that was compacted, by the path that it had; None: it is in no file there.

    Raises:
        ConfigurationError: a file is damaged.

    """
    for file in files(segment.parent):
        found = _recent(file, file.stat().st_mtime_ns).get(segment.name)
        if found is not None:
            return found
    return None


@lru_cache(maxsize=2)  # the segments of a batch lie beside each other
def _recent(file: Path, _mtime_ns: int) -> Mapping[str, bytes]:
    return contents(file)


def contents(file: Path) -> dict[str, bytes]:
    """
    Read all segments of a file, each held against its checksum; name -> bytes.

    Raises:
        ConfigurationError: it is damaged.

    """
    index = listed(file)
    try:
        rows = pl.read_parquet(file, columns=["segment", "line", "raw"])
    except (OSError, pl.exceptions.PolarsError) as error:
        raise ConfigurationError(f"cannot read {file}: {error}") from error
    data = pl.coalesce(pl.col("line").cast(pl.Binary), "raw").alias("data")
    joined = rows.group_by("segment", maintain_order=True).agg(data)
    found = {name: b"" for name, *_ in index}
    found |= {name: b"".join(lines) for name, lines in joined.iter_rows()}
    for name, size, _, _, checksum in index:
        if len(found[name]) != size or zlib.crc32(found[name]) != checksum:
            raise ConfigurationError(
                f"{file} is damaged: {name} in it is not what was written; restore the file from a backup"
            )
    return found
