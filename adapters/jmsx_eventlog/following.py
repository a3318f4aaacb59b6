"""An event log read while it is written: each line of every writer, soon after it was written."""

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

#: Of the lines that are there already, the last ones are looked for in so many bytes of each living segment.
_LOOKED_AT: Final = 256 * 1024
#: A folder may change again without another time, so soon after it did.
_SETTLED_NS: Final = 1_000_000_000
#: Members that are told first, or that tell nothing to who reads along.
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
    Word the `last` lines of living writers, and then each line that is written, one text a line, without end.

    Segments that are begun later, in whatever folder, are read from their beginning; one that is closed, to its end.

    Args:
        directory: of an `EventLog`, or of many hosts below it.
        last: how many lines of those that are there.
        wait: is called whenever nothing is left to be read.
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
    """One segment under whichever name it has now, and how far it was read."""

    path: Path  #: of the closed segment
    living: bool
    read: int = 0
    done: bool = False  #: closed, and read to its end

    def rest(self, most: int | None = None) -> bytes:
        """Read the whole lines that were not read yet; of those no more than the last `most` bytes."""
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
        self.done = True  # it is gone
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
        """Find what has been begun."""
        left = [str(self.root)]
        while left:
            folder = left.pop()
            try:
                changed = os.stat(folder).st_mtime_ns  # noqa: PTH116 - there are many folders, and each is asked often
                seen, folders = self._seen.get(folder, (0, []))
                if seen != changed or time.time_ns() - changed < _SETTLED_NS:
                    folders = self._listed(folder)
                    self._seen[folder] = (changed, folders)
            except OSError:  # it was taken away
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
        """Leave out segments that were read to their end."""
        self.segments = {key: one for key, one in self.segments.items() if not one.done}


def _told(
    data: bytes, kind: str | None, word: Callable[[bytes, int, dict[str, Any] | None], str]
) -> Iterator[tuple[int, str]]:
    """Yield each line, if it is of `kind`, as its time and as `word` has it; `word` gets None for what is no line."""
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
