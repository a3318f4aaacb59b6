"""
What `jmsx check` finds out about a broker.

Adapters add what only they can ask their broker, by the entry point group `jmsx.inspections`: a function of a started
session and queue names that yields findings, and takes nothing from any queue. What a session knows of its broker
beyond JMS, such as the broker's address, they get by `jmsx.jms.session.link_of`.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum


class Level(StrEnum):
    """How much a finding matters."""

    OK = "ok"  #: tried, and it works
    NOTE = "note"  #: good to know
    WARNING = "warning"  #: works, but not as most people mean it
    FAILURE = "failure"  #: does not work


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that was looked at."""

    check: str  #: what, in a word or two
    level: Level
    told: str  #: what was found, and what to do about it
