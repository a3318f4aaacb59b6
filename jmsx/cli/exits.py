"""What the exit codes of `jmsx` mean. The help and the guide show this table."""

from __future__ import annotations

from typing import Final

DONE: Final = 0
FAILED: Final = 1
#: Of `jmsx report`, whose wrong arguments are FAILED.
SUSPECT: Final = 2
WRONG_ARGUMENTS: Final = 2
UNVERIFIABLE: Final = 3
INTERRUPTED: Final = 130

MEANINGS: Final = {
    DONE: "done, and nothing is wrong",
    FAILED: "not done, not all of it, or nothing found; an error is on standard error",
    WRONG_ARGUMENTS: "the command line cannot be read; of `report`: something is proven wrong (suspect)",
    UNVERIFIABLE: "of `report`: nothing is proven, either way (unverifiable)",
    INTERRUPTED: "interrupted, by Ctrl-C, a second signal, or SIGTERM while something is in doubt",
}
