"""Files that are replaced as a whole: a reader sees all of the new one, or the earlier one."""

from __future__ import annotations

import errno
import os
import secrets
import shutil
import stat
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterator

_LINKS: Final = 40  #: symbolic links in a chain; Linux follows no more
_LONGEST: Final = 16  #: characters of a suffix; an unfinished file has a shorter one as well
#: Errors of a folder that takes no new file, and of a file that cannot be replaced.
_IN_PLACE: Final = {errno.EACCES, errno.EPERM, errno.EROFS, errno.EBUSY, errno.EXDEV}


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """
    Yield a file to write to, which at the end becomes `path`, in place of an earlier one.

    The new file gets the mode of the earlier one, and its owner if that is allowed. Where writing fails, or the process
    is killed, the earlier file stays as it is; a kill leaves a `.jmsx-…` beside it. If `path` is a symbolic link, the
    file that it leads to is replaced. `path` itself is yielded where it cannot be replaced: it is no file but a pipe or
    the like, it is a link of the system such as /dev/stdout, it is a mount point, or its folder takes no new file. An
    OSError that is raised meanwhile names `path`.
    """
    whole = Path(os.path.realpath(path))
    ending = whole.suffix if len(whole.suffix) < _LONGEST else ""
    unfinished = whole.with_name(f".jmsx-{secrets.token_hex(8)}{ending}")
    try:
        mode = None if _is_written_itself(path) else _made(unfinished)
        if mode is None:
            yield path
            return
        try:
            yield unfinished
            _put(unfinished, whole, mode)
        finally:
            with suppress(OSError):
                unfinished.unlink(missing_ok=True)
    except OSError as error:
        # An error of write(), such as a full disk, has an errno and no file name
        unnamed = error.filename is None and error.errno is not None
        if unnamed or error.filename in (str(unfinished), str(whole)):
            error.filename = str(path)
            del error.filename2  # None would be shown: 'page' -> None
        raise


def _is_written_itself(path: Path) -> bool:
    """Return whether `path` is no regular file, or leads through a symbolic link in /dev or /proc."""
    if path.exists() and not path.is_file():
        return True
    for _ in range(_LINKS):
        at = Path(os.path.realpath(path.parent), path.name)
        if not at.is_symlink():
            return False
        if at.parts[1] in {"dev", "proc"}:
            return True
        path = at.parent / at.readlink()
    return True


def _made(unfinished: Path) -> int | None:
    """Create a file for its owner alone, and return the mode that new files get; None if the folder takes none."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    try:
        descriptor = os.open(str(unfinished), flags, 0o666)
    except OSError as error:
        if error.errno in _IN_PLACE:
            return None
        raise
    try:
        mode = os.fstat(descriptor).st_mode
        with suppress(PermissionError):  # a file system may have no modes
            os.fchmod(descriptor, 0o600)
    finally:
        os.close(descriptor)
    return mode


def _put(unfinished: Path, whole: Path, mode: int) -> None:
    """Replace `whole` by `unfinished`, or copy the content into `whole` where it cannot be replaced."""
    with suppress(FileNotFoundError):
        earlier = whole.stat()
        mode = earlier.st_mode
        for owner, group in ((-1, earlier.st_gid), (earlier.st_uid, -1)):
            with suppress(OSError):
                os.chown(unfinished, owner, group)
    with suppress(PermissionError):  # a file system may have no modes
        unfinished.chmod(stat.S_IMODE(mode))
    try:
        unfinished.rename(whole)
    except OSError as error:
        if error.errno not in _IN_PLACE:
            raise
        shutil.copyfile(unfinished, whole)
