"""The `jmsx` command. Commands of adapters join by the entry point group `jmsx.commands`."""

from __future__ import annotations

import contextlib
import gc
import os
import sys

from jmsx.cli.exits import FAILED, INTERRUPTED


def main() -> None:
    """Run the command line; what goes wrong is one clear line on standard error, never a traceback."""
    gc.disable()  # what is imported stays: to look for garbage in it takes a fifth of the time of `jmsx --help`
    try:
        from jmsx.cli.commands import run  # noqa: PLC0415 - the extra may be missing, and we say so
    except ModuleNotFoundError as error:
        sys.exit(f"jmsx: the command line needs {error.name}; install it: pip install 'jmsx[cli]'")
    except KeyboardInterrupt:  # to import it takes a second on a busy machine
        sys.exit(INTERRUPTED)
    gc.freeze()
    gc.enable()
    try:
        code = run()
    except KeyboardInterrupt:  # before the command began
        code = INTERRUPTED
    sys.exit(code if _is_printed() else code or FAILED)


def _is_printed() -> bool:
    """
    Whether standard output has all that was printed; else have Python not try that once more when it ends.

    It would tell of that in its own words, and end with its own code. Source: "Note on SIGPIPE", the `signal` module.
    """
    if sys.stdout is None:  # closed by whoever started us
        return True
    try:
        sys.stdout.flush()
    except (OSError, ValueError):
        with contextlib.suppress(OSError, ValueError):
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return False
    return True
