"""The event log: what happened, a JSON object a line, in segments that say what is missing."""

from __future__ import annotations

from jmsx.plugins import needing as _needing

with _needing("jmsx_eventlog"):
    from jmsx_eventlog.log import EventLog, recover_orphans
    from jmsx_eventlog.segment import Recovered

__all__ = ["EventLog", "Recovered", "recover_orphans"]
