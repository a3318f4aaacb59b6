"""
Segments that are read while they grow: in pieces of whole lines, each of which begins where the one before ended.

A piece is a `Segment` under the file's final name, whether that is closed or not: its bytes from `begin` to `size`. A
writer never changes what it has written, also when it closes the segment; so pieces do not change either.
"""

from __future__ import annotations

import os
from functools import cached_property
from io import BytesIO
from itertools import pairwise
from operator import attrgetter
from typing import TYPE_CHECKING, BinaryIO, Final

from jmsx.errors import ConfigurationError
from jmsx_eventlog.segment import open_name, sealed_name
from jmsx_report.compacted import content_of
from jmsx_report.segments import Segment

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


#: The `mtime_ns` of a piece: the file may have grown after it was read, so its time means nothing.
GROWING: Final = -1
#: The last line feed of a file is searched for from the end in steps of so many bytes.
_STEP: Final = 64 * 1024


def piece(segment: Segment, begin: int, end: int) -> Segment:
    """Return bytes `begin` to `end` of a segment."""
    return Segment(segment.name, end, GROWING, begin)


def is_piece(segment: Segment) -> bool:
    """Return whether `segment` is a piece, which may be less than the whole file."""
    return segment.mtime_ns == GROWING


def whole_lines(events: Path, segment: Segment) -> int:
    """
    Find the end of the last whole line between `begin` and `size`; `begin` where there is none.

    Raises:
        ConfigurationError: it cannot be read.

    """
    with opened(events, segment.path) as file:
        end = segment.size
        while end > segment.begin:
            step = max(segment.begin, end - _STEP)
            file.seek(step)
            found = file.read(end - step).rfind(b"\n")
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
    with opened(events, segment.path) as file:
        return file.read(segment.begin).count(b"\n")


def chunks(events: Path, segment: Segment, most: int) -> Iterator[tuple[int, bytes]]:
    """
    Yield a segment's bytes from `begin` to `size` in chunks of whole lines and about `most` bytes: (where, bytes).

    Raises:
        ConfigurationError: the segment cannot be read, or is another file than it was.

    """
    with opened(events, segment.path) as file:
        file.seek(max(0, segment.begin - 1))
        before = file.read(1) if segment.begin else b"\n"
        if before != b"\n" or file.seek(0, os.SEEK_END) < segment.size:
            raise ConfigurationError(
                f"{events / segment.path} is not the file any more that was read up to byte {segment.begin};"
                " its writer only ever appends: put back what was there, or read the log anew, to another place"
            )
        file.seek(segment.begin)
        at, left = segment.begin, b""
        while at + len(left) < segment.size:
            data = left + file.read(min(most, segment.size - at - len(left)))
            end = len(data) if at + len(data) >= segment.size else data.rfind(b"\n") + 1
            if end:
                yield at, data[:end]
            at, left = at + end, data[end:]


def opened(events: Path, path: str) -> BinaryIO:
    """Open a segment by its present name: its writer may close it at any time, and another process compact it."""
    final = sealed_name(path)
    for name in (path, open_name(path), final):
        try:
            return (events / name).open("rb")
        except FileNotFoundError:
            continue
        except OSError as error:
            raise ConfigurationError(f"cannot read {events / name}: {error.strerror}") from error
    compacted = content_of(events / final)
    if compacted is not None:
        return BytesIO(compacted)
    raise ConfigurationError(f"{events / path} is gone; make the report again, or put it back")


class Pieces:
    """Which segments and pieces, by final name, a store has, and which it lacks."""

    def __init__(self, read: Iterable[frozenset[Segment]]) -> None:
        self.segments = frozenset[Segment]().union(*read)  #: pieces, and whole ones

    @cached_property
    def _whole(self) -> frozenset[str]:
        """The names of segments that were not read piece by piece."""
        return frozenset(one.name for one in self.segments if not is_piece(one))

    @cached_property
    def _pieces(self) -> Mapping[str, list[Segment]]:
        """The pieces of each segment, in order."""
        found: dict[str, list[Segment]] = {}
        for one in sorted(filter(is_piece, self.segments), key=attrgetter("begin")):
            found.setdefault(one.path, []).append(one)
        return found

    def fits(self, segment: Segment, now: Segment | None) -> bool:
        """Return whether `segment`, as it was read, is part of the segment that exists `now`, without overlaps."""
        if now is None or not is_piece(segment):
            return segment == now
        return (
            segment.size <= now.size
            and now not in self.segments
            and all(one.size <= other.begin for one, other in pairwise(self._of(now)))
        )

    def lacking(self, events: Path, now: Segment) -> Segment | None:
        """
        Return what must be read next of the segment that exists `now`, if all read parts `fits`; None: nothing.

        Raises:
            ConfigurationError: it cannot be read.

        """
        if now in self.segments:
            return None
        if not self._pieces.get(now.name):
            return now
        reached = 0
        for one in self._of(now):
            if one.begin > reached:
                return piece(now, reached, one.begin)
            reached = one.size
        rest = now._replace(begin=reached)
        end = whole_lines(events, rest) if now.is_open else now.size
        return piece(now, reached, end) if end > reached else None

    def lacking_of(self, events: Path, several: Sequence[Segment]) -> list[Segment]:
        """Return the results of `lacking` for `several` segments, none of which was read in its present state."""
        if not self._pieces:
            return list(several)
        found = (self.lacking(events, one) for one in several)
        return [one for one in found if one is not None]

    def missing(self, wanted: Segment) -> Segment | None:
        """Return what must still be read of the piece `wanted`; None: nothing, or the segment was read as a whole."""
        if wanted.path in self._whole:
            return None
        reached = max((one.size for one in self._pieces.get(wanted.path, ())), default=0)
        return piece(wanted, reached, wanted.size) if reached < wanted.size else None

    def _of(self, segment: Segment) -> list[Segment]:
        return self._pieces.get(segment.name, [])
