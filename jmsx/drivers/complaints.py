"""ERRORs of the broker that nobody waits for: they stand in the log, or nobody would know."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from jmsx.core.events import ErrorReceived
from jmsx.log import Seldom, logger

if TYPE_CHECKING:
    from jmsx.core.events import Event, Source

#: Seconds between two lines of one session.
PAUSE: Final = 10.0

_log = logger("jmsx.session")


class Complaints:
    """Those of one session."""

    def __init__(self) -> None:
        self._lines = Seldom(PAUSE)

    def observe(self, event: Event, source: Source) -> None:
        """Log `event` if it is one."""
        if not isinstance(event, ErrorReceived) or event.receipt_id is not None:
            return
        left_out = self._lines.due(event.at)
        if left_out is not None:
            _log.warning(
                "broker complained", broker=source.broker, error=event.message, left_out=left_out
            )
