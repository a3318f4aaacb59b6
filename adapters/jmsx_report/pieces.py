"""
Segments that are read while they grow: piece by piece, each from where the one before ended, each whole lines.

A piece is a `Segment` that goes by its final name, whether it is closed or not: bytes `begin` to `size` of it. What has
been read of a segment is not changed by its writer any more, also when it is closed; so neither are pieces.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, BinaryIO, Final

from jmsx.errors import ConfigurationError
from jmsx_eventlog.segment import OPEN_SUFFIX, SEALED_SUFFIX
from jmsx_report.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

#: Stands for the time of a file that was not complete when it was read, and changed afterwards.
GROWING: Final = -1
#: The end of a file is looked through for a line feed in steps of so many bytes.
_STEP: Final = 64 * 1024


def piece(segment: Segment, begin: int, end: int) -> Segment:
    """Bytes `begin` to `end` of a segment."""
    return Segment(segment.name, end, GROWING, begin)


def is_piece(segment: Segment) -> bool:
    """Whether it may be less than the whole file."""
    return segment.mtime_ns == GROWING


def whole_lines(events: Path, segment: Segment) -> int:
    """
    Find the end of the last whole line between `begin` and `size`; `begin` where there is none.

    Raises:
        ConfigurationError: it cannot be read.

    """
    with _opened(events, segment.path) as file:
        end = segment.size
        while end > segment.begin:
            step = max(segment.begin, end - _STEP)
            found: int = os.pread(file.fileno(), end - step, step).rfind(b"\n")
            if found >= 0:
                return step + found + 1
            end = step
    return segment.begin


def lines_before(events: Path, segment: Segment) -> int:
    """
    Count the lines before `begin`.

    Raises:
        ConfigurationError: it cannot be read.

    """
    with _opened(events, segment.path) as file:
        return file.read(segment.begin).count(b"\n")


def chunks(events: Path, segment: Segment, most: int) -> Iterator[tuple[int, bytes]]:
    """
    Read from `begin` to `size`, in chunks of whole lines and about `most` bytes: where each begins, and it.

    Raises:
        ConfigurationError: it cannot be read, or is not the file any more that it was.

    """
    with _opened(events, segment.path) as file:
        before = os.pread(file.fileno(), 1, segment.begin - 1) if segment.begin else b"\n"
        if before != b"\n" or os.fstat(file.fileno()).st_size < segment.size:
            raise ConfigurationError(
                f"{events / segment.path} is not the file any more of which {segment.begin} bytes were read;"
                " its writer only ever appends: put back what was there, or read it anew from the beginning"
            )
        file.seek(segment.begin)
        at, left = segment.begin, b""
        while at + len(left) < segment.size:
            data = left + file.read(min(most, segment.size - at - len(left)))
            end = len(data) if at + len(data) >= segment.size else data.rfind(b"\n") + 1
            if end:
                yield at, data[:end]
            at, left = at + end, data[end:]


def _opened(events: Path, path: str) -> BinaryIO:
    """Open a segment by the name that it has now: its writer may close it at any time."""
    final = path.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX if path.endswith(OPEN_SUFFIX) else path
    growing = final.removesuffix(SEALED_SUFFIX) + OPEN_SUFFIX
    for name in (path, growing, final):
        try:
            return (events / name).open("rb")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigurationError(f"cannot read {events / name}: {error.strerror}") from error
    raise ConfigurationError(
        f"{events / path} is gone, and {events / growing} is not there either; what of it was not read yet is lost"
    )
