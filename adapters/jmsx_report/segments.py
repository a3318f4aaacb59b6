"""Finds the segments to read, and reports every other file in the folder of a log: none is ignored silently."""

from __future__ import annotations

import errno
import os
import stat
import zlib
from dataclasses import dataclass
from itertools import chain
from operator import attrgetter
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

import polars as pl

from jmsx.errors import ConfigurationError
from jmsx_eventlog.segment import OPEN_SUFFIX, SEALED_SUFFIX, UNNAMED_SUFFIX, sealed_name
from jmsx_report.compacted import is_compacted, listed
from jmsx_report.garbage import uncollected

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

#: Bytes of JSON that a worker reads at once, which limits its memory.
BATCH_BYTES: Final = 32 * 1024 * 1024
#: The most bytes of JSON whose partials are kept as one run: each run has some thirty files, and must be merged.
RUN_BYTES: Final = 128 * 1024 * 1024
#: How many runs are made, unless they would be too small: several processes shall have something to do.
_RUNS: Final = 12
#: The fewest batches in a run, if there are enough: making a run costs as much as reading some ten thousand lines.
_LEAST_BATCHES: Final = 3
#: A living writer closes its segment every minute; one that is this much older than the newest file is stale.
STALE_SECONDS: Final = 900
#: Bytes at each end of a segment that are hashed, to distinguish it from another of the same size and time.
ENDS_BYTES: Final = 4096
_COMPRESSED: Final = (".gz", ".zst", ".bz2", ".xz", ".lz4", ".snappy", ".zip")
_FILES: Final = {"path": pl.String, "what": pl.String, "unread": pl.Boolean, "why": pl.String}
_NS: Final = 1_000_000_000


class Segment(NamedTuple):
    """
    A segment file in the folder; with another size, time, beginning or end it counts as another segment.

    It is a tuple for speed: there may be 100,000, each made, compared and looked up again and again.
    """

    path: str  #: below the folder of the log
    size: int
    mtime_ns: int
    begin: int = 0  #: bytes before it are no part of this segment
    digest: int = 0  #: of its first and its last ENDS_BYTES

    @property
    def is_open(self) -> bool:
        """Whether its writer may still write to it: only its whole lines are read."""
        return self.path.endswith(OPEN_SUFFIX)

    @property
    def name(self) -> str:
        """The final path: that of the closed segment."""
        return sealed_name(self.path) if self.is_open else self.path


@dataclass(frozen=True, slots=True)
class Survey:
    """All files in the folder of a log."""

    segments: tuple[Segment, ...]  #: to be read, sorted
    #: Findings: path, what, unread (whether events may be in it that were not read), why.
    files: pl.DataFrame


@uncollected()
def survey(events: Path, out: Path | None = None) -> Survey:
    """
    Look at each file below `events`, but not below `out`; links to folders are followed.

    Raises:
        ConfigurationError: there is no segment.

    """
    segments, findings = look(events, out)
    still_open = [segment for segment in segments if segment.is_open]
    closed = {segment.path for segment in segments} if still_open else set[str]()
    for segment in [one for one in still_open if one.name in closed]:
        segments.remove(segment)
        still_open.remove(segment)
        findings.append((segment.path, "superseded", False, "it is there as a closed segment, too"))
    if not segments:
        raise ConfigurationError(
            f"no event log segment (*.jsonl) below {events}"
            + (f"; {findings[0][0]} is there: {findings[0][3]}" if findings else "")
        )
    findings += _stale(still_open, max(segment.mtime_ns for segment in segments))
    segments.sort()
    return Survey(tuple(segments), pl.DataFrame(sorted(findings), _FILES, orient="row"))


def look(
    events: Path, out: Path | None = None
) -> tuple[list[Segment], list[tuple[str, str, bool, str]]]:
    """
    Return the segments, and rows of `Survey.files` for all other files; there may be none yet.

    Raises:
        ConfigurationError: there is no such folder.

    """
    if not events.is_dir():
        raise ConfigurationError(f"{events} is no directory of an event log")
    segments: list[Segment] = []
    compacted: list[Segment] = []
    findings: list[tuple[str, str, bool, str]] = []
    for folder, name in _files(events, out, findings):
        path = f"{folder}{name}"
        if _legible(path) != path:
            holds = SEALED_SUFFIX in name.lower()
            findings.append(
                (_legible(path), "unreadable", holds, "its name is no UTF-8; rename it")
            )
            continue
        if is_compacted(name):
            try:
                compacted += (
                    Segment(f"{folder}{one}", size, mtime_ns, digest=digest)
                    for one, size, mtime_ns, digest, _ in listed(events / path)
                )
            except ConfigurationError as error:
                findings.append((path, "unreadable", True, str(error)))
            continue
        found = _finding(name) or _looked_at(str(events), path)
        if name.endswith(UNNAMED_SUFFIX) and not (events / path).stat().st_size:
            found = ("unnamed", False, "nothing was written to it: its process was killed before")
        if isinstance(found, Segment):
            segments.append(found)
        else:
            findings.append((path, *found))
    if compacted:
        findings += _added(segments, compacted)
    return segments, findings


def _added(
    segments: list[Segment], compacted: Iterable[Segment]
) -> Iterator[tuple[str, str, bool, str]]:
    """Add compacted segments, each once; a segment that is there twice, with different content, is a finding."""
    here = {segment.path: segment for segment in segments}
    for one in compacted:
        other = here.setdefault(one.path, one)
        if other is one:
            segments.append(one)
        elif (other.size, other.digest) != (one.size, one.digest):
            why = "it differs from what was compacted under this name, which is not read; keep one of them"
            yield one.path, "changed", True, why


def _files(
    events: Path, out: Path | None, findings: list[tuple[str, str, bool, str]]
) -> Iterator[tuple[str, str]]:
    """Yield each file once, even if links form circles: its folder below `events`, with a slash, and its name."""
    seen = {_identity(out)} if out is not None and out.exists() else set()

    def unreadable(error: OSError) -> None:
        path = Path(error.filename).relative_to(events)
        findings.append(
            (_legible(str(path)), "unreadable", True, error.strerror or type(error).__name__)
        )

    for folder, folders, names in os.walk(events, onerror=unreadable, followlinks=True):
        here = _identity(Path(folder))
        if here in seen:
            folders.clear()
            continue
        seen.add(here)
        below = os.path.relpath(folder, events)
        prefix = "" if below == os.curdir else f"{below}/"
        yield from ((prefix, name) for name in names)


def _looked_at(events: str, path: str) -> Segment | tuple[str, bool, str]:
    """Return the segment, or why it cannot be read: what, unread, why. There may be 100,000: strings are faster."""
    whole = f"{events}/{path}"
    try:
        # Non-blocking: opening a pipe would wait for a writer.
        opened = os.open(whole, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if error.errno == errno.ENXIO:  # a socket
            return "other", True, "no file"
        lost = os.path.islink(whole) and error.errno == errno.ENOENT  # noqa: PTH114 - a Path costs more
        what = "dangling" if lost else "unreadable"
        return what, True, error.strerror or type(error).__name__
    try:
        seen = os.fstat(opened)
        if not stat.S_ISREG(seen.st_mode):
            return "other", True, "no file"
        digest = zlib.crc32(os.pread(opened, ENDS_BYTES, 0))
        if seen.st_size > ENDS_BYTES:
            digest = zlib.crc32(os.pread(opened, ENDS_BYTES, seen.st_size - ENDS_BYTES), digest)
    except OSError as error:
        return "unreadable", True, error.strerror or type(error).__name__
    finally:
        os.close(opened)
    return Segment(path, seen.st_size, seen.st_mtime_ns, digest=digest)


def _legible(path: str) -> str:
    """Return a path for tables and JSON: bytes that are not UTF-8 are replaced."""
    return path if path.isascii() else os.fsencode(path).decode(errors="replace")


def _identity(path: Path) -> tuple[int, int]:
    seen = path.stat()
    return seen.st_dev, seen.st_ino


def _finding(name: str) -> tuple[str, bool, str] | None:
    """Return what is wrong with a file, judging by its name: what, unread, why; None: it is a segment."""
    holds = SEALED_SUFFIX in name.lower()
    if name.startswith((".", "_")):
        return "hidden", holds, "a name that readers of segments skip; it may be half copied"
    if name.endswith((SEALED_SUFFIX, OPEN_SUFFIX)):
        return None
    if name.endswith(_COMPRESSED):
        return "compressed", True, "compressed files are not read; unpack it"
    return "other", holds, "no segment by its name"


def _stale(still_open: Iterable[Segment], newest_ns: int) -> Iterator[tuple[str, str, bool, str]]:
    for segment in still_open:
        behind = (newest_ns - segment.mtime_ns) // _NS
        what = "stale" if behind > STALE_SECONDS else "open"
        yield (
            segment.path,
            what,
            False,
            f"still open; last written {behind} s before the newest file",
        )


def batches(segments: Iterable[Segment], most: int | None = None) -> Iterator[tuple[Segment, ...]]:
    """
    Gather segments, in order, into batches of about `most` bytes (None: BATCH_BYTES); a larger one is one by itself.

    Open ones are kept apart: they will have grown by the next run, and their batch is then read again.
    """
    ordered = sorted(segments, key=attrgetter("path", "begin"))
    closed = [segment for segment in ordered if not segment.is_open]
    of_open = [segment for segment in ordered if segment.is_open]
    yield from chain(_batches(closed, most or BATCH_BYTES), _batches(of_open, most or BATCH_BYTES))


def _batches(ordered: Iterable[Segment], most: int) -> Iterator[tuple[Segment, ...]]:
    batch: list[Segment] = []
    size = 0
    for segment in ordered:
        length = segment.size - segment.begin
        if batch and size + length > most:
            yield tuple(batch)
            batch, size = [], 0
        batch.append(segment)
        size += length
    if batch:
        yield tuple(batch)


def shares(segments: Iterable[Segment]) -> Iterator[tuple[Segment, ...]]:
    """Group segments into shares of up to RUN_BYTES, each of which becomes one run; it is read batch by batch."""
    listed = list(segments)
    each = sum(segment.size - segment.begin for segment in listed) // _RUNS
    return batches(listed, min(max(each, _LEAST_BATCHES * BATCH_BYTES), RUN_BYTES))
