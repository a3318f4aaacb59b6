"""Files that appear whole: who reads one sees all of it, or what was there before."""

from __future__ import annotations

import os
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterator


@contextmanager
def appearing(path: Path) -> Iterator[Path]:
    """
    A file to write to, which at the end becomes `path`, in place of an earlier one.

    Where writing fails, or the process is killed, an earlier one stays as it is. A link leads to what is replaced; what
    is no file, such as a pipe, is written to itself. OSError that is raised within tells of `path`.
    """
    if path.exists() and not path.is_file():
        yield path
        return
    whole = Path(os.path.realpath(path))
    unfinished = whole.with_name(f".{whole.name}")
    try:
        yield unfinished
        unfinished.rename(whole)
    except BaseException as error:
        with suppress(OSError):
            unfinished.unlink(missing_ok=True)
        if isinstance(error, OSError) and error.filename == str(unfinished):
            error.filename, error.filename2 = str(path), None
        raise
