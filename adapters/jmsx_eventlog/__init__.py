"""
The event log: one JSON object on each line for each event, in segments that also say what is missing.

A name is imported when it is first used: programs that read logs need the schema, and not the writer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.plugins import needing as _needing
from jmsx.plugins import on_demand as _on_demand

if TYPE_CHECKING:
    from jmsx_eventlog.log import EventLog, recover_orphans
    from jmsx_eventlog.segment import Recovered

__all__ = ["EventLog", "Recovered", "recover_orphans"]

_HOMES: Final = {
    "EventLog": "jmsx_eventlog.log",
    "Recovered": "jmsx_eventlog.segment",
    "recover_orphans": "jmsx_eventlog.log",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = _on_demand(__name__, _HOMES, lambda: _needing("jmsx_eventlog"))
