"""What a process would leave on the disk if it was killed, once for each state of it."""

from __future__ import annotations

import shutil
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


class Copies:
    """
    Copies of a folder, as it is after one change and before the next.

    Args:
        folder: what is copied, if it is there.
        into: where copies go.

    """

    def __init__(self, folder: Path, into: Path) -> None:
        self._folder = folder
        self._into = into
        self._last: dict[str, tuple[int, bytes | None]] | None = None
        self._copies: list[Path] = []

    def __len__(self) -> int:
        return len(self._copies)

    def __iter__(self) -> Iterator[Path]:
        return iter(self._copies)

    def take(self) -> None:
        """Copy the folder, if a name, a byte or a time in it is another than in the last copy."""
        if not self._folder.exists():
            return
        now = {
            str(path): (path.stat().st_mtime_ns, path.read_bytes() if path.is_file() else None)
            for path in (self._folder, *self._folder.rglob("*"))
        }
        if now != self._last:
            self._last = now
            self._copies.append(self._into / f"killed-{len(self)}")
            shutil.copytree(self._folder, self._copies[-1])
