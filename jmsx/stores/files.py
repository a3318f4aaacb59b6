"""Files and folders for their owner alone, whatever the umask says: keys, errors and counts are private."""

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
    Make an empty file, mode 0600, unless there is one, which keeps its mode.

    It is not opened: closing a file takes away the locks that this process has on it, which SQLite relies on.
    Raises OSError.
    """
    with contextlib.suppress(FileExistsError):
        os.mknod(path, _FILE | stat.S_IFREG)
        path.chmod(_FILE)  # the umask may have taken away the owner's bits as well


def create_file(path: Path, flags: int) -> int:
    """Return a descriptor of a file that was not there, mode 0600, opened with `flags` besides; raises OSError."""
    descriptor = os.open(path, flags | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, _FILE)
    os.fchmod(descriptor, _FILE)
    return descriptor


def make_folder(path: Path) -> None:
    """Make a folder, and those above it that are missing, mode 0700; what is there keeps its mode. Raises OSError."""
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
