"""
How far a stream has read an event log: for each segment, how many bytes of it.

An offset is JSON: {"closed": {FOLDER: {NAME: bytes}}, "open": {FOLDER: {NAME: bytes}}}, with final names. A segment is
in "closed" when it was closed and all of it was read. Segments that are no longer in the folder of the log are removed
from the offset, so that it does not grow for ever.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from jmsx.errors import ConfigurationError
from jmsx_report.pieces import piece, whole_lines
from jmsx_report.segments import Segment, look

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from pathlib import Path

_CLOSED: Final = "closed"
_OPEN: Final = "open"
NOTHING: Final[Mapping[str, Any]] = {_CLOSED: {}, _OPEN: {}}
#: The version of Spark's offset files that `noted` reads.
_NOTED_AS: Final = "v1"


def current(events: Path) -> list[Segment]:
    """
    Return the present segments, in order; if one is there both open and closed, the closed one.

    Raises:
        ConfigurationError: there is no such folder.

    """
    segments, _ = look(events)
    newest = {segment.name: segment for segment in segments if segment.is_open}
    newest |= {segment.path: segment for segment in segments if not segment.is_open}
    return [newest[name] for name in sorted(newest)]


def latest(
    events: Path,
    present: Iterable[Segment],
    start: Mapping[str, Any],
    *,
    most_bytes: int | None = None,
    lenient: bool = False,
) -> dict[str, Any]:
    """
    Return the offset up to which a batch may read.

    Args:
        events: the folder of the log.
        present: its segments.
        start: how far has been read.
        most_bytes: the most bytes to admit (one segment, if its next line is longer); None: all there are.
        lenient: go on if lines are lost, because an unclosed segment is gone or a segment has changed.

    Raises:
        ConfigurationError: lines are lost, or a segment cannot be read.

    """
    closed, growing = _flat(start[_CLOSED]), _flat(start[_OPEN])
    left = most_bytes
    done: dict[str, int] = {}
    reached: dict[str, int] = {}
    for segment in present:
        name = segment.name
        begin = closed.pop(name, None)
        if begin is not None and begin == segment.size and not segment.is_open:
            done[name] = begin
            continue
        known = growing.pop(name, 0) if begin is None else begin
        if known > segment.size or begin is not None:
            if not lenient:
                raise ConfigurationError(_changed(events, segment, known))
            known = 0
        end = _end(events, segment, known, left)
        if end == known and left is not None and left == most_bytes:
            end = _end(events, segment, known, None)
        if left is not None:
            left = max(0, left - (end - known))
        if end == segment.size and not segment.is_open:
            done[name] = end
        elif end:
            reached[name] = end
    if growing and not lenient:
        raise ConfigurationError(_gone(events, growing))
    return {_CLOSED: _nested(done), _OPEN: _nested(reached)}


def between(start: Mapping[str, Any], end: Mapping[str, Any]) -> list[Segment]:
    """Return the pieces of segments between two offsets, in order."""
    before = _flat(start[_CLOSED]) | _flat(start[_OPEN])
    after = _flat(end[_CLOSED]) | _flat(end[_OPEN])
    pieces = []
    for name in sorted(after):
        begin = before.get(name, 0)
        begin = begin if begin <= after[name] else 0  # the segment has changed, as allowed
        if begin < after[name]:
            pieces.append(piece(Segment(name, 0, 0), begin, after[name]))
    return pieces


def noted(checkpoint: Path, batch: int) -> Mapping[str, Any]:
    """
    Return the offset at which a batch of a stream ends; the next batch begins there, and the first one at NOTHING.

    Spark writes it before the batch begins, into a file of the checkpoint named by the batch's number: its lines are
    the version of the format, the settings of the stream, and the offset of its source.

    Raises:
        ConfigurationError: it is a note of another version.

    """
    if batch < 0:
        return NOTHING
    note = checkpoint / "offsets" / str(batch)
    version, *rest = note.read_text("utf-8").split("\n")
    if version != _NOTED_AS or len(rest) != 2:  # noqa: PLR2004 - settings and offset
        raise ConfigurationError(
            f"{note} is a note of Spark's of version {version!r}, and {_NOTED_AS!r} is known: a newer Spark may have"
            " made it; use the one that the checkpoint is of, or make the report anew, in another folder"
        )
    return json.loads(rest[1])  # type: ignore[no-any-return]  # what `latest` has made; JSON keeps its types


def _end(events: Path, segment: Segment, begin: int, left: int | None) -> int:
    """Return up to which byte a segment is read now: an open one to its last whole line, a closed one to its end."""
    if segment.size == begin or left == 0:
        return begin
    admitted = segment.size if left is None else min(segment.size, begin + left)
    if admitted == segment.size and not segment.is_open:
        return admitted
    return whole_lines(events, Segment(segment.path, admitted, 0, begin))


def _flat(offset: Mapping[str, Mapping[str, int]]) -> dict[str, int]:
    return {
        f"{folder}{name}": size for folder, names in offset.items() for name, size in names.items()
    }


def _nested(sizes: Mapping[str, int]) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = {}
    for path, size in sizes.items():
        folder, slash, name = path.rpartition("/")
        found.setdefault(folder + slash, {})[name] = size
    return found


def _changed(events: Path, segment: Segment, read: int) -> str:
    return (
        f"{events / segment.path} has {segment.size} bytes, and {read} bytes of it were read before: it is another file"
        f" or was changed; put back what was there, or set failOnDataLoss to false to go on with what is there now"
    )


def _gone(events: Path, growing: Mapping[str, int]) -> str:
    name = min(growing)
    return (
        f"{events / name} is gone, as are {len(growing) - 1} others, before it was closed and all of it was read"
        f" ({growing[name]} bytes were); put it back, or set failOnDataLoss to false to go on without it"
    )
