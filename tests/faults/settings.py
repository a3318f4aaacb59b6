"""How both ends of the workload connect."""

from __future__ import annotations

from typing import Final

#: Seconds: (send every, expect every). Short, for a dead link is what most cases are about.
HEARTBEAT: Final = (1.0, 1.0)


def failover(url: str) -> str:
    """A connection that outlives its links, with attempts that are soon enough for a bench."""
    return f"failover:({url})?maxReconnectDelay=200"
