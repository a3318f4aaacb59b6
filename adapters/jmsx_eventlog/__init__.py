"""
The event log: what happened, a JSON object a line, in segments that say what is missing.

A name is loaded when it is first asked for: who reads logs needs the schema, and not the writer.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any, Final

from jmsx.plugins import needing as _needing

if TYPE_CHECKING:
    from jmsx_eventlog.log import EventLog, recover_orphans
    from jmsx_eventlog.segment import Recovered

__all__ = ["EventLog", "Recovered", "recover_orphans"]

_HOMES: Final = {
    "EventLog": "jmsx_eventlog.log",
    "Recovered": "jmsx_eventlog.segment",
    "recover_orphans": "jmsx_eventlog.log",
}


def __getattr__(name: str) -> Any:
    """The public name `name`, imported now."""
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    with _needing("jmsx_eventlog"):
        return getattr(import_module(_HOMES[name]), name)
