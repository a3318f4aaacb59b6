"""
The functions that the commands of `jmsx` call.

Each command has its process to itself, where Polars is set up as in the processes that read segments. The functions are
entry points: a command's module is imported only after the process is set up.
"""

from __future__ import annotations

import gc
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from jmsx.plugins import needing, on_demand
from jmsx_report import processes
from jmsx_report.garbage import uncollected

if TYPE_CHECKING:
    from collections.abc import Iterator

_HOMES: Final = {
    "compact": "jmsx_report.compaction",
    "deaths": "jmsx_report.explanation",
    "explain": "jmsx_report.explanation",
    "faults": "jmsx_report.validation",
    "page": "jmsx_report.life",
    "report": "jmsx_report.reports",
    "worded": "jmsx_report.explanation",
}


@contextmanager
def _alone() -> Iterator[None]:
    processes.set_up()
    with needing("jmsx_report"), uncollected():
        yield
        gc.freeze()  # what is imported stays: no later search goes through it


__getattr__, __dir__ = on_demand(__name__, _HOMES, _alone)
