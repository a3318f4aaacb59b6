"""
Segments: files of lines that are `.jsonl.open` while they grow and `.jsonl` for ever after.

A living writer holds a lock (flock) on its open segment, so whoever can take the lock knows that
the writer is dead; this also holds in containers, where process ids repeat. Nothing here knows what
is in a line but `recover`, which has to read the last one.
"""

from __future__ import annotations

import fcntl
import os
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Final

import orjson

from jmsx.stores.files import create_file, make_folder
from jmsx_eventlog.encode import own_line

if TYPE_CHECKING:
    from pathlib import Path

#: A segment that is still written to; readers take `*.jsonl` only.
OPEN_SUFFIX: Final = ".jsonl.open"
SEALED_SUFFIX: Final = ".jsonl"
#: One that is not locked yet: nothing is written to it before it has its name.
UNNAMED_SUFFIX: Final = f"{OPEN_SUFFIX}.new"


def sealed_name(name: str) -> str:
    """Name a segment, open or not, as it is for good."""
    return name.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX if name.endswith(OPEN_SUFFIX) else name


def open_name(name: str) -> str:
    """Name a segment as its writer does until it is complete."""
    return name if name.endswith(OPEN_SUFFIX) else name.removesuffix(SEALED_SUFFIX) + OPEN_SUFFIX


_SEQ_DIGITS: Final = 12  #: so that names sort as numbers up to 10^12 lines a process


def writer_of(path: Path) -> str:
    """Name the writer whose segment `path` is."""
    return path.name.split(".jsonl")[0].rsplit("-", 1)[0]


def first_seq_of(path: Path) -> int:
    """Read the `seq` of the first line of the segment off its name."""
    return int(path.name.split(".jsonl")[0].rsplit("-", 1)[1])


class Segment:
    """One growing file of whole lines; raises OSError as it comes."""

    def __init__(self, directory: Path, writer: str, first_seq: int, wall: float) -> None:
        hour = datetime.fromtimestamp(wall, UTC)
        folder = directory / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        make_folder(folder)
        self.path = folder / f"{writer}-{first_seq:0{_SEQ_DIGITS}}{OPEN_SUFFIX}"
        self.size = 0  #: bytes that are whole lines
        self.broken = False  #: a failed write could not be undone: abandon it
        # First the lock, then the name: a file of this name without a lock is taken for that of a process that died.
        unnamed = self.path.with_name(
            f".{self.path.name.removesuffix(OPEN_SUFFIX)}{UNNAMED_SUFFIX}"
        )
        self._fd = create_file(unnamed, os.O_WRONLY | os.O_APPEND)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            unnamed.rename(self.path)
        except OSError:
            os.close(self._fd)
            unnamed.unlink(missing_ok=True)
            raise

    def append(self, lines: bytes) -> None:
        """Write `lines` whole, or raise OSError with the file cut back to what it was."""
        view = memoryview(lines)
        try:
            while view:
                view = view[os.write(self._fd, view) :]
        except OSError:
            self.broken = True
            os.ftruncate(self._fd, self.size)
            self.broken = False
            raise
        self.size += len(lines)

    def sync(self) -> None:
        """Have what was written on the disk, not only in the page cache."""
        os.fdatasync(self._fd)

    def seal(self, *, durable: bool) -> None:
        """Close the segment and give it its final name; `durable` also against loss of power."""
        try:
            if durable:
                os.fsync(self._fd)
            _publish(self.path, durable=durable)
        finally:
            os.close(self._fd)

    def abandon(self) -> None:
        """Let go of the file as it is: an orphan, unless a parent process owns it."""
        with suppress(OSError):
            os.close(self._fd)


def _publish(path: Path, *, durable: bool) -> Path:
    """Rename an open segment to its final name."""
    sealed = path.rename(path.with_name(sealed_name(path.name)))
    if durable:
        folder = os.open(path.parent, os.O_RDONLY | os.O_DIRECTORY)
        try:
            os.fsync(folder)
        finally:
            os.close(folder)
    return sealed


@dataclass(frozen=True, slots=True)
class Recovered:
    """What was done about one segment of a dead writer."""

    path: Path  #: its name now
    writer: str  #: the dead one
    lost_bytes: int  #: length of the torn end that was cut off


def recover(directory: Path, *, host: str | None, by: str, wall: float) -> list[Recovered]:
    """
    Repair and rename the open segments that dead processes of `host` left (None: of any host).

    The torn end is cut off, the dead writer's next `seq` is given to a `log.recovered` line, and
    the segment gets its final name. `by` is the writer that does it and `wall` the time in seconds
    since the epoch. Segments of living processes are left alone. Raises OSError.
    """
    found = []
    for path in sorted(directory.rglob(f"*{OPEN_SUFFIX}")):
        if path.name.startswith(".") or (host is not None and _host_of(path) != host):
            continue
        orphan = _lock(path)
        if orphan is None:
            continue
        try:
            found.append(_repair(directory, path, orphan, by, wall))
        finally:
            os.close(orphan)
    return found


def _host_of(path: Path) -> str:
    return writer_of(path).rsplit("-", 2)[0]


def _lock(path: Path) -> int | None:
    """Open and lock `path`; None where its writer lives or another recovers it."""
    try:
        fd = os.open(path, os.O_RDWR | os.O_APPEND | os.O_CLOEXEC)
    except FileNotFoundError:
        return None
    try:
        fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if os.fstat(fd).st_ino == path.stat().st_ino:
            return fd
    except (BlockingIOError, FileNotFoundError):
        pass
    os.close(fd)
    return None


def _repair(directory: Path, path: Path, fd: int, by: str, wall: float) -> Recovered:
    writer, first = writer_of(path), first_seq_of(path)
    content = path.read_bytes()
    whole, last = _whole_lines(content, first)
    os.ftruncate(fd, whole)
    lost = len(content) - whole
    later = any(
        first_seq_of(other) > first for other in directory.rglob(f"{writer}-*{SEALED_SUFFIX}*")
    )
    if not later:  # else the writer went on after this segment, and its `seq` with it
        line = own_line(
            writer, "log.recovered", last + 1, wall, None, lost_bytes=lost, recovered_by=by
        )
        os.write(fd, line)
    os.fsync(fd)
    return Recovered(_publish(path, durable=True), writer, lost)


def _whole_lines(content: bytes, first: int) -> tuple[int, int]:
    """Find the end of the last readable line, in bytes, and the `seq` of that line."""
    end = content.rfind(b"\n") + 1
    while end:
        start = content.rfind(b"\n", 0, end - 1) + 1
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            return end, int(orjson.loads(content[start:end])["seq"])
        end = start
    return 0, first - 1
