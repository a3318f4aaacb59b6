"""The `jmsx` command. Commands of adapters join by the entry point group `jmsx.commands`."""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from typing import TYPE_CHECKING

from jmsx.cli.exits import FAILED, INTERRUPTED
from jmsx.cli.interrupts import is_interruption, take_sigterm_as_init

if TYPE_CHECKING:
    from typing import TextIO


def main() -> None:
    """Run the command line; an error is told in one clear line on standard error, never as a traceback."""
    take_sigterm_as_init()
    gc.disable()  # imported modules stay: collecting garbage among them takes a fifth of the time of `jmsx --help`
    try:
        from jmsx.cli.commands import run  # noqa: PLC0415 - the extra may be missing, and we say so
    except ModuleNotFoundError as error:
        sys.exit(f"jmsx: the command line needs {error.name}; install it: pip install 'jmsx[cli]'")
    except (KeyboardInterrupt, RuntimeError) as error:
        # to import it takes a second on a busy machine
        if not is_interruption(error):
            raise
        sys.exit(INTERRUPTED)
    gc.freeze()
    gc.enable()
    for stream in (sys.stdout, sys.stderr):
        # A character that the locale cannot encode is escaped, for else nothing would be written.
        if isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")
    try:
        code = run()
    except (KeyboardInterrupt, RuntimeError) as error:  # before the command began
        if not is_interruption(error):
            raise
        code = INTERRUPTED
    _is_printed(sys.stderr)  # result ignored: the exit code says more than the text there
    sys.exit(code if _is_printed(sys.stdout) else code or FAILED)


def _is_printed(stream: TextIO | None) -> bool:
    """
    Return whether standard output or error has all that was printed; else have Python not try that once more when it
    ends.

    It would tell of that in its own words, and end with its own code. Source: "Note on SIGPIPE", the `signal` module.
    """
    if stream is None:  # closed by the program that started this one
        return True
    try:
        stream.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), stream.fileno())
        return False
    return True
