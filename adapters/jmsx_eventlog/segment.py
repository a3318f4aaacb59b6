"""
Segments: files of lines that are named `.jsonl.open` while they grow, and `.jsonl` for ever after.

A running writer holds a lock (flock) on its open segment, so a process that gets the lock knows
that the writer is dead; this also works in containers, where process ids repeat. Only `recover`
depends on the content of lines: it has to read the last one.
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
#: A new segment that is not locked yet: nothing is written to it before it gets its name.
UNNAMED_SUFFIX: Final = f"{OPEN_SUFFIX}.new"


def sealed_name(name: str) -> str:
    """Return the final name of a segment, open or closed."""
    return name.removesuffix(OPEN_SUFFIX) + SEALED_SUFFIX if name.endswith(OPEN_SUFFIX) else name


def open_name(name: str) -> str:
    """Return the name that a segment has while it is open."""
    return name if name.endswith(OPEN_SUFFIX) else name.removesuffix(SEALED_SUFFIX) + OPEN_SUFFIX


_SEQ_DIGITS: Final = 12  #: so that names sort as numbers up to 10^12 lines a process


def writer_of(path: Path) -> str:
    """Return the name of the writer of the segment `path`."""
    return path.name.split(".jsonl")[0].rsplit("-", 1)[0]


def first_seq_of(path: Path) -> int:
    """Return the `seq` of the segment's first line, from its name."""
    return int(path.name.split(".jsonl")[0].rsplit("-", 1)[1])


class Segment:
    """One growing file of whole lines; its methods raise OSError."""

    def __init__(self, directory: Path, writer: str, first_seq: int, wall: float) -> None:
        hour = datetime.fromtimestamp(wall, UTC)
        folder = directory / f"date={hour:%Y-%m-%d}" / f"hour={hour:%H}"
        make_folder(folder)
        self.path = folder / f"{writer}-{first_seq:0{_SEQ_DIGITS}}{OPEN_SUFFIX}"
        self.size = 0  #: bytes that are whole lines
        self.broken = False  #: a failed write could not be undone: abandon it
        # First the lock, then the name: an unlocked file with this name would be taken for a dead writer's.
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
        """Force what was written to the disk, not only into the page cache."""
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
        """Close the file as it is: an orphan for `recover`, unless the parent process still writes it."""
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
    """How one segment of a dead writer was repaired."""

    path: Path  #: its name now
    writer: str  #: the dead one
    lost_bytes: int  #: length of the torn end that was cut off


def recover(directory: Path, *, host: str | None, by: str, wall: float) -> list[Recovered]:
    """
    Repair and rename the open segments that dead processes of `host` left (None: of any host).

    The incomplete last line is cut off, a `log.recovered` line with the dead writer's next `seq` is
    added, and the segment gets its final name. `by` is the writer that does it and `wall` the time
    in seconds since the epoch. Segments of running processes are left alone. Raises OSError.
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
    """Open and lock `path`; return None if its writer runs, or another process is recovering it."""
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
    if not later:  # else the writer has later segments, with higher numbers
        line = own_line(
            writer, "log.recovered", last + 1, wall, None, lost_bytes=lost, recovered_by=by
        )
        os.write(fd, line)
    os.fsync(fd)
    return Recovered(_publish(path, durable=True), writer, lost)


def _whole_lines(content: bytes, first: int) -> tuple[int, int]:
    """Return where the last readable line ends, in bytes, and its `seq`."""
    end = content.rfind(b"\n") + 1
    while end:
        start = content.rfind(b"\n", 0, end - 1) + 1
        with suppress(orjson.JSONDecodeError, KeyError, TypeError):
            return end, int(orjson.loads(content[start:end])["seq"])
        end = start
    return 0, first - 1
