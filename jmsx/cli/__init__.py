"""The `jmsx` command. Commands of adapters join by the entry point group `jmsx.commands`."""

from __future__ import annotations

import gc
import sys

from jmsx.cli.exits import INTERRUPTED


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
    sys.exit(code)
