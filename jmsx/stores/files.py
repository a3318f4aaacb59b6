"""Creates files and folders that only their owner may read, whatever the umask: keys, errors and counts are private."""

from __future__ import annotations

import contextlib
import os
import stat
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from pathlib import Path

_FILE: Final = 0o600
_FOLDER: Final = 0o700


def make_file(path: Path) -> None:
    """
    Create an empty file, mode 0600; a file that exists keeps its mode.

    The file is not opened: closing it would release the locks that this process has on it, which SQLite relies on.
    Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.mknod(path, _FILE | stat.S_IFREG)
        path.chmod(_FILE)  # the umask may have taken away the owner's bits as well


def create_file(path: Path, flags: int) -> int:
    """Create a file, mode 0600, and return its descriptor, opened with `flags`; raises OSError if it exists."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE)
    os.fchmod(descriptor, _FILE)
    return descriptor


def make_folder(path: Path) -> None:
    """Create a folder and its missing parents, mode 0700; existing ones keep their mode. Raises OSError."""
    if path.is_dir():
        return
    make_folder(path.parent)
    try:
        path.mkdir(_FOLDER)
    except FileExistsError:
        if not path.is_dir():
            raise
    else:
        path.chmod(_FOLDER)
