"""Errors of commands about a file that cannot be written or read: which file, and why."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING

from jmsx.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterator


def worded(error: OSError) -> str:
    """Return the text to print for an OSError: the file, if it names one, and the cause."""
    why = error.strerror or str(error) or type(error).__name__
    return why if error.filename is None else f"{error.filename}: {why}"


@contextmanager
def writing(what: str) -> Iterator[None]:
    """Turn an OSError in this block into a ConfigurationError: `what` (such as `--page life.html`) is not writable."""
    try:
        yield
    except OSError as error:
        named = error.filename is not None and str(error.filename) in what
        why = error.strerror if named else worded(error)
        raise ConfigurationError(f"{what} cannot be written: {why}") from error
