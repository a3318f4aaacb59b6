"""Follows an event log while it is written: yields each line of every writer soon after it was written."""

from __future__ import annotations

import os
import time
from dataclasses import dataclass, field
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from jmsx.errors import ConfigurationError
from jmsx_eventlog.segment import OPEN_SUFFIX, SEALED_SUFFIX, open_name, sealed_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

#: The last existing lines are looked for in so many bytes at the end of each open segment.
_LOOKED_AT: Final = 256 * 1024
#: A folder changed less than this ago is listed again: another change may not alter its modification time.
_SETTLED_NS: Final = 1_000_000_000
#: Members that are shown first, or not at all because they tell a reader nothing.
_FRAME: Final = frozenset({"v", "kind", "writer", "seq", "ts_us", "mono_us", "session_id", "epoch"})


def follow(
    directory: Path,
    *,
    last: int,
    wait: Callable[[], object],
    kind: str | None = None,
    as_json: bool = False,
) -> Iterator[str]:
    """
    Yield the `last` existing lines of running writers, and then each line that is written, as texts, without end.

    Segments begun later, in whatever folder, are read from their beginning; closed segments to their end.

    Args:
        directory: the directory of an `EventLog`, or one with those of many hosts below it.
        last: how many of the existing lines to yield.
        wait: called whenever there is nothing more to read.
        kind: only events of this kind, such as `conn.lost`.
        as_json: give each line as it was written; a line that is no event is given as a JSON string.

    Raises:
        ConfigurationError: there is no such folder.

    """
    if not directory.is_dir():
        raise ConfigurationError(f"{directory} is no directory of an event log")
    told = partial(_told, kind=kind, word=_written if as_json else _worded)
    log = _Log(directory)
    log.look()
    before: list[tuple[int, str]] = []
    for segment in log.segments.values():
        if segment.living:
            before += told(segment.rest(_LOOKED_AT))
        segment.done = not segment.living
    yield from (text for _, text in sorted(before)[max(0, len(before) - last) :])
    while True:
        log.forget()
        log.look()
        new = [one for segment in log.segments.values() for one in told(segment.rest())]
        yield from (text for _, text in sorted(new))
        if not new:
            wait()


@dataclass(slots=True)
class _Segment:
    """One segment, under its open or its final name, and how far it was read."""

    path: Path  #: of the closed segment
    living: bool
    read: int = 0
    done: bool = False  #: closed, and read to its end

    def rest(self, most: int | None = None) -> bytes:
        """Return the complete lines that were not read yet, at most the last `most` bytes of them."""
        growing = self.path.with_name(open_name(self.path.name))
        for path in (growing, self.path) if self.living else (self.path,):
            try:
                with path.open("rb") as file:
                    size = os.fstat(file.fileno()).st_size
                    begin = self.read if most is None else max(self.read, size - most)
                    file.seek(begin)
                    data = file.read(size - begin)
            except OSError:
                continue
            self.living = path == growing
            self.done = not self.living
            whole = data[: data.rfind(b"\n") + 1]
            self.read = begin + len(whole)
            return whole if begin == 0 or most is None else whole[whole.find(b"\n") + 1 :]
        self.done = True  # the file is gone
        return b""


@dataclass(slots=True)
class _Log:
    """The segments below a folder; a folder is listed again when it has changed."""

    root: Path
    segments: dict[str, _Segment] = field(default_factory=dict)
    #: folder -> time, folders.
    _seen: dict[str, tuple[int, list[str]]] = field(default_factory=dict)
    _known: set[str] = field(default_factory=set)

    def look(self) -> None:
        """Find segments that have been begun since the last call."""
        left = [str(self.root)]
        while left:
            folder = left.pop()
            try:
                changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - there are many folders, and each is asked often
                seen, folders = self._seen.get(folder, (0, []))
                if seen != changed or time.time_ns() - changed < _SETTLED_NS:
                    folders = self._listed(folder)
                    self._seen[folder] = (changed, folders)
            except OSError:  # the folder was removed
                self._seen.pop(folder, None)
                continue
            left += folders

    def _listed(self, folder: str) -> list[str]:
        folders = []
        with os.scandir(folder) as entries:
            for entry in entries:
                living = entry.name.endswith(OPEN_SUFFIX)
                if entry.is_dir():
                    folders.append(entry.path)
                elif (living or entry.name.endswith(SEALED_SUFFIX)) and entry.name[0] != ".":
                    path = sealed_name(entry.path)
                    if path not in self._known:
                        self._known.add(path)
                        self.segments[path] = _Segment(Path(path), living)
        return folders

    def forget(self) -> None:
        """Forget segments that are closed and were read to their end."""
        self.segments = {key: one for key, one in self.segments.items() if not one.done}


def _told(
    data: bytes, kind: str | None, word: Callable[[bytes, int, dict[str, Any] | None], str]
) -> Iterator[tuple[int, str]]:
    """Yield time and wording of each line of `kind`; `word` gets None for text that is no valid line."""
    for line in data.split(b"\n")[:-1]:
        try:
            found = orjson.loads(line)
        except orjson.JSONDecodeError:
            found = None
        at = found.get("ts_us") if isinstance(found, dict) else None
        if isinstance(found, dict) and isinstance(at, int):
            if kind is None or found.get("kind") == kind:
                yield at, word(line, at, found)
        else:
            yield 0, word(line, 0, None)


def _written(text: bytes, _at: int, line: dict[str, Any] | None) -> str:
    legible = text.decode(errors="replace")
    return orjson.dumps(legible).decode() if line is None else legible


def _worded(text: bytes, at: int, line: dict[str, Any] | None) -> str:
    if line is None:
        return f"no line of an event log: {text.decode(errors='replace')}"
    try:
        moment = datetime.fromtimestamp(at / 1_000_000, UTC).strftime("%Y-%m-%d %H:%M:%S.%f")
    except (OverflowError, ValueError, OSError):
        moment = str(at)
    rest = " ".join(f"{name}={value}" for name, value in line.items() if name not in _FRAME)
    return f"{moment} {line.get('writer')} {line.get('kind')} {rest}".rstrip()
